"""What bounds need of a trained classifier and its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from warmpot._typing import FloatArray, IntArray
from warmpot.bounds import BoundProblem, head_lipschitz
from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.train.predictor import Predictor

__all__ = ["BoundInputs", "bound_inputs"]

LOSSES = {"features": "tv", "joint": "euclidean"}
"""The loss of each theorem (docs/theory.md, Losses for bounds)."""


@dataclass(frozen=True, eq=False)
class BoundInputs:
    """Features, class probabilities and head of a classifier; no target label.

    Attributes
    ----------
    source, target : (n_s, d) and (n_t, d) arrays
        Features.
    labels : (n_s,) array
        Class codes of the source.
    source_proba, target_proba : (n_s, C) and (n_t, C) arrays
    weight, bias : (C, d) and (C,) arrays
        The head, in logits.
    """

    source: FloatArray
    labels: IntArray
    target: FloatArray
    source_proba: FloatArray
    target_proba: FloatArray
    weight: FloatArray
    bias: FloatArray

    @property
    def points(self) -> tuple[FloatArray, IntArray, FloatArray, FloatArray, FloatArray]:
        """The arguments of `joint_bound`."""
        return self.source, self.labels, self.target, self.source_proba, self.target_proba

    def problem(self, kind: str = "joint") -> BoundProblem:
        """Return the problem of Theorem 3.2 ("features") or 3.3 ("joint"), with the head's own constant."""
        loss = LOSSES.get(kind, "tv")
        points = self.points if kind == "joint" else self.points[:4]
        return BoundProblem(kind, *points, gamma=head_lipschitz(self.weight, loss), loss=loss)


def bound_inputs(predictor: Predictor, task: Task) -> BoundInputs:
    """Apply a classifier to both domains of a task.

    Parameters
    ----------
    predictor : Predictor
        ``Fitted.predictor``, ``WarmpotClassifier.predictor_`` or ``Predictor.load(run)``.
    task : Task
        What it was trained on.
    """
    if not predictor.classes:
        remedy = "The theorems need a loss that is a metric with values in [0, 1]."
        raise InputError("predictor", got="a regressor", allowed="a classifier", remedy=remedy)
    features = task.xs.ndim == 2  # the width of images is their channels; the predictor knows which of them it takes
    if predictor.classes != task.classes or (features and predictor.width != task.width):
        got, remedy = "a model with other classes or features", "Pass the data that it was trained on."
        raise InputError("predictor", got=got, allowed="a model that was trained on this task", remedy=remedy)
    source, target = predictor.outputs(task.xs, "source", source=True), predictor.outputs(task.xt, "target")
    head = predictor.network.head
    return BoundInputs(
        source.features.numpy(),
        np.asarray(task.ys, np.int64),
        target.features.numpy(),
        torch.softmax(source.logits, dim=1).numpy(),
        torch.softmax(target.logits, dim=1).numpy(),
        head.weight.detach().double().numpy(),
        head.bias.detach().double().numpy(),
    )
