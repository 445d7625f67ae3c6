"""Choices without target labels: validators, the best iterate of a run, the best settings, a check for collapse."""

from __future__ import annotations

from warmpot._deprecation import moved_names
from warmpot.select.best_iterate import fit_chosen
from warmpot.select.candidate import Candidate, Choice, Validator, choose, explain_collapse
from warmpot.select.oracle import Oracle
from warmpot.select.space import DEFAULT_SPACE
from warmpot.select.study import SweepResult, sweep
from warmpot.select.validators import DEFAULT_VALIDATOR, VALIDATORS, make_validator

__all__ = [
    "DEFAULT_SPACE",
    "DEFAULT_VALIDATOR",
    "VALIDATORS",
    "Candidate",
    "Choice",
    "Oracle",
    "SweepResult",
    "Validator",
    "choose",
    "explain_collapse",
    "fit_chosen",
    "make_validator",
    "sweep",
]

__getattr__ = moved_names(
    __name__,
    {
        "Evidence": "warmpot.select:Candidate",
        "Swept": "warmpot.select:SweepResult",
        "degenerate": "warmpot.select:explain_collapse",
    },
)
