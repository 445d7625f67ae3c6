"""One method a file: its losses, its parameters, its deviations from its paper; and how source samples are weighted."""

from __future__ import annotations

from warmpot.methods.base import Clock, Labelled, Look, Memory, Method, Sizes, Step, View, Whole
from warmpot.methods.learner import Learner
from warmpot.methods.registry import METHODS, OWN, WEIGHTINGS, make_method, make_weighting
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot
from warmpot.methods.weighting import Weighting

__all__ = [
    "METHODS",
    "OWN",
    "WEIGHTINGS",
    "Clock",
    "Labelled",
    "Learner",
    "Look",
    "Memory",
    "Method",
    "Sizes",
    "SourceOnly",
    "Step",
    "View",
    "Warmpot",
    "Weighting",
    "Whole",
    "make_method",
    "make_weighting",
]
