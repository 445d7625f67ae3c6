"""Base class of the validators: a name, what it needs, and a score without target labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from warmpot.errors import InputError
from warmpot.select.candidate import Candidate

__all__ = ["NEEDS", "Validator"]

NEEDS = {
    "held": ("held_labels", "Hold out a part of the source."),
    "transport": ("transport", "Use a method that has a plan."),
    "head": ("head", "Use a network with a linear head."),
}
"""What a validator may need besides outputs on both domains: the field of `Candidate`, and the remedy if it is None."""


class Validator(ABC):
    """Gives a candidate a score; subclasses are frozen dataclasses whose fields are the parameters.

    Class attributes
    ----------------
    name : str
        Name in settings and on the command line.
    summary : str
        One line for lists.
    needs : frozenset of str
        Keys of `NEEDS`.
    across_runs : bool
        Whether scores of runs with different settings can be compared.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    across_runs: ClassVar[bool] = True

    def score(self, candidate: Candidate) -> float:
        """Return the score of a candidate: larger is better.

        Raises
        ------
        InputError
            If the candidate lacks something that the validator `needs`.
        """
        for need in sorted(self.needs):
            field, remedy = NEEDS[need]
            if getattr(candidate, field) is None:
                allowed = f"a candidate with {field}"
                raise InputError(f"validator {self.name!r}", got=f"no {field}", allowed=allowed, remedy=remedy)
        return float(self._score(candidate))

    @abstractmethod
    def _score(self, candidate: Candidate) -> float:
        """Return the score of a candidate that has everything needed."""
