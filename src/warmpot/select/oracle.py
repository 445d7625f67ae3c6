"""The oracle: the only place of this room that sees target labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from warmpot.data.task import Truth
from warmpot.errors import InputError
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence

__all__ = ["Oracle"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Oracle(Validator):
    """Accuracy on the target: what no user can choose by. A measure of the regret of all other validators.

    It is made from a `Truth`, never from a name, it says so in the log, and its name stands in every `Choice` it makes.
    Samples of a class that the source does not know count as wrong.
    """

    truth: Truth

    name: ClassVar[str] = "oracle"
    summary: ClassVar[str] = "accuracy on the target; needs its labels, for evaluation only"

    def __post_init__(self) -> None:
        logger.warning("oracle: choosing by target labels; no such choice can be made on unlabelled data")

    def __repr__(self) -> str:
        return "Oracle(oracle: sees target labels)"

    def _score(self, evidence: Evidence) -> float:
        predictions, classes = evidence.target_predictions, len(self.truth.classes)
        if (len(predictions), evidence.n_classes) != (len(self.truth.yt), classes):
            got = f"{len(predictions)} samples of {evidence.n_classes} classes"
            allowed = f"{len(self.truth.yt)} of {classes}, as the labels have"
            raise InputError("oracle", got=got, allowed=allowed, remedy="Pass the Truth of the same task.")
        return float((predictions == self.truth.yt).mean())
