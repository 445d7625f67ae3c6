"""The oracle: the only validator that uses target labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from warmpot.data.task import Truth
from warmpot.errors import InputError
from warmpot.select.candidate import Candidate, Validator

__all__ = ["Oracle"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Oracle(Validator):
    """Accuracy on the target, to measure the regret of the other validators; unlabelled data does not allow it.

    It is made from a `Truth`, never by name, it logs a warning, and its name is in every `Choice`. Samples of a class
    that the source lacks count as wrong.
    """

    truth: Truth

    name: ClassVar[str] = "oracle"
    summary: ClassVar[str] = "accuracy on the target; needs its labels, for evaluation only"

    def __post_init__(self) -> None:
        logger.warning("oracle: choosing by target labels; no such choice can be made on unlabelled data")

    def __repr__(self) -> str:
        return "Oracle(oracle: uses target labels)"

    def _score(self, candidate: Candidate) -> float:
        predictions, classes = candidate.target_predictions, len(self.truth.classes)
        if (len(predictions), candidate.n_classes) != (len(self.truth.yt), classes):
            got = f"{len(predictions)} samples of {candidate.n_classes} classes"
            allowed = f"{len(self.truth.yt)} of {classes}, as in the labels"
            raise InputError("oracle", got=got, allowed=allowed, remedy="Pass the Truth of the same task.")
        return float((predictions == self.truth.yt).mean())
