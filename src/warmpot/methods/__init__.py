"""One method a file: its losses, its parameters, its deviations from its paper."""

from __future__ import annotations

from warmpot.methods.base import Method, Step
from warmpot.methods.registry import METHODS, make_method
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot

__all__ = ["METHODS", "Method", "SourceOnly", "Step", "Warmpot", "make_method"]
