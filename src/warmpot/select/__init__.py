"""Choices without target labels: validators, the choice within a run and across runs, a guard against collapse."""

from __future__ import annotations

from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence
from warmpot.select.guard import Choice, choose, degenerate
from warmpot.select.oracle import Oracle
from warmpot.select.registry import DEFAULT_VALIDATOR, VALIDATORS, make_validator
from warmpot.select.space import DEFAULT_SPACE
from warmpot.select.sweep import Swept, sweep
from warmpot.select.within import fit_chosen

__all__ = [
    "DEFAULT_SPACE",
    "DEFAULT_VALIDATOR",
    "VALIDATORS",
    "Choice",
    "Evidence",
    "Oracle",
    "Swept",
    "Validator",
    "choose",
    "degenerate",
    "fit_chosen",
    "make_validator",
    "sweep",
]
