"""The oracle: the only validator that uses target labels; and a task whose source has only the target's classes."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from itertools import compress
from typing import ClassVar

import numpy as np

from warmpot.data.table import LazyRows
from warmpot.data.task import Task, Truth
from warmpot.errors import InputError
from warmpot.select.candidate import Candidate, Validator

__all__ = ["Oracle", "keep_target_classes"]

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


def keep_target_classes(task: Task, truth: Truth) -> tuple[Task, Truth]:
    """Restrict the source of a task to the classes that occur in the target, which only target labels reveal.

    The result of training on it is an oracle: the difference to the result on the whole source is what the classes
    without target samples cost. Both returned parts have the codes of the remaining classes; target samples of a class
    that the source lacks stay -1.

    Examples
    --------
    >>> task = Task(np.arange(8.0).reshape(4, 2), np.array([0, 1, 2, 2]), np.zeros((2, 2)), ("a", "b", "c"))
    >>> task, truth = keep_target_classes(task, Truth(np.array([2, 0]), task.classes))
    >>> task.classes, task.ys.tolist(), truth.yt.tolist()
    (('a', 'c'), [0, 1, 1], [1, 0])
    """
    present = np.isin(np.arange(task.n_classes), truth.yt)
    if present.sum() < 2:
        remedy = "Leave out the oracle (`known_classes`): there is nothing to train with fewer."
        raise InputError("classes of the target", got=int(present.sum()), allowed="two or more", remedy=remedy)
    classes, codes = tuple(compress(task.classes, present)), np.cumsum(present) - 1
    rows = np.flatnonzero(present[task.ys.astype(np.int64)])
    xs = task.xs.subset(rows) if isinstance(task.xs, LazyRows) else task.xs[rows]
    names = tuple(task.source_names[k] for k in rows) if task.source_names else ()
    yt = truth.yt.astype(np.int64)
    restricted = replace(task, xs=xs, ys=codes[task.ys[rows].astype(np.int64)], classes=classes, source_names=names)
    return restricted, Truth(np.where(yt < 0, -1, codes[yt]), classes)
