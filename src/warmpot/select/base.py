"""What every validator has: a name, what it needs, and a score without target labels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from warmpot.errors import InputError
from warmpot.select.evidence import Evidence

__all__ = ["NEEDS", "Validator"]

NEEDS = {
    "held": ("held_labels", "Keep a part of the source out of the training."),
    "transport": ("transport", "Use a method that has a plan."),
    "head": ("head", "Use a network with a linear head."),
}
"""What a validator may need beyond the outputs on both domains: the field of `Evidence` and what to do without."""


class Validator(ABC):
    """A validator is a frozen dataclass: its fields are its parameters.

    Class attributes
    ----------------
    name : str
        What users call it.
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

    def score(self, evidence: Evidence) -> float:
        """Judge one candidate; the larger the better, always finite.

        Raises
        ------
        InputError
            When something the validator `needs` is not in the evidence.
        """
        for need in sorted(self.needs):
            field, remedy = NEEDS[need]
            if getattr(evidence, field) is None:
                allowed = f"evidence with {field}"
                raise InputError(f"validator {self.name!r}", got=f"no {field}", allowed=allowed, remedy=remedy)
        return float(self._score(evidence))

    @abstractmethod
    def _score(self, evidence: Evidence) -> float:
        """Return the score; what the validator needs is there."""
