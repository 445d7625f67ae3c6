"""Losses of bounds: metrics with values in [0, 1], on the probability simplex or between numbers.

Cross-entropy is neither bounded nor a metric, so Theorems 3.2 and 3.3 do not hold for it. They hold for the two
losses here. A label y is the corner e_y of the simplex, a prediction a row of class probabilities (softmax of the
logits).

- ``"tv"``: total variation, ``l(p, r) = ||p - r||_1 / 2``, so ``l(p, y) = 1 - p[y]``: the chance that a label drawn
  from p is wrong.
- ``"euclidean"``: ``l(p, r) = ||p - r||_2 / sqrt(2)``. It is zeta-Lipschitz in each argument with ``zeta = 1/sqrt(2)``.

Of continuous labels (regression) ``"absolute"`` is ``l(v, y) = min(1, |v - y|)``: a metric as well, since cutting a
metric at 1 keeps the triangle inequality. The unit of v and y is what counts as a complete error; `bound_inputs` takes
the standard deviation of the source labels.

One convention for both theorems: *gamma is the Lipschitz constant of the head with respect to the loss*,
``l(g(u), g(v)) <= gamma ||u - v||``. That is the gamma of Theorem 3.2. In Theorem 3.3 it is the paper's product
``zeta * gamma``: the proof uses the two only through ``|l(w, g(u)) - l(w, g(v))| <= zeta gamma ||u - v||``, and for a
metric the left side is at most ``l(g(u), g(v))`` (reverse triangle inequality). So all losses can be
used in both theorems.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from warmpot._checks import check_choice, check_features, check_matrix
from warmpot._interop import to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "DEFAULT_LOSS",
    "LOSSES",
    "Absolute",
    "BoundLoss",
    "Euclidean",
    "SimplexLoss",
    "TotalVariation",
    "check_both_features",
    "check_labels",
    "check_proba",
    "get_bound_loss",
]

SUM_TOLERANCE = 1e-4  # how far the sum of a row of probabilities may be from 1: float16 softmaxes come close to it


class BoundLoss(ABC):
    """A metric with values in [0, 1], and the Lipschitz constant of a linear head with respect to it.

    Predictions are rows: class probabilities, or a single value for continuous labels.
    """

    name: ClassVar[str]  # in arguments
    head_formula: ClassVar[str]  # of the constant of a linear head
    continuous: ClassVar[bool] = False  # whether labels are numbers

    @abstractmethod
    def check_predictions(self, name: str, x: object, rows: int, n_outputs: int | None = None) -> FloatArray:
        """Return predictions, one row per sample."""

    @abstractmethod
    def check_labels(self, name: str, x: object, rows: int, n_outputs: int) -> Any:
        """Return labels of the kind that the loss takes."""

    @abstractmethod
    def of_labels(self, proba: FloatArray, labels: Any) -> FloatArray:
        """Return ``l(proba_i, y_i)`` for every sample."""

    @abstractmethod
    def of_pairs(self, labels: Any, proba: FloatArray) -> FloatArray:
        """Return ``l(y_i, proba_j)`` for every label and every prediction."""

    @abstractmethod
    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the distance between two predictions, row by row."""

    @abstractmethod
    def linear_constant(self, weight: FloatArray) -> float:
        """Return the constant of a linear head from its weights, one row per output."""


class SimplexLoss(BoundLoss):
    """A loss of class probabilities."""

    def check_predictions(self, name: str, x: object, rows: int, n_outputs: int | None = None) -> FloatArray:
        """Return rows of class probabilities."""
        return check_proba(name, x, rows, n_outputs)

    def check_labels(self, name: str, x: object, rows: int, n_outputs: int) -> IntArray:
        """Return class codes."""
        return check_labels(name, x, rows, n_outputs)

    def linear_constant(self, weight: FloatArray) -> float:
        """Return the constant of ``softmax(W u + b)``; a shift common to all rows does not change it."""
        return self.head_constant(weight - weight.mean(axis=0))

    def of_labels(self, proba: FloatArray, labels: IntArray) -> FloatArray:
        """Return ``l(proba_i, y_i)`` for every sample.

        Examples
        --------
        >>> LOSSES["tv"].of_labels(np.array([[0.75, 0.25]]), np.array([0]))
        array([0.25])
        """
        return self._from_parts(proba[np.arange(len(labels)), labels], _squares(proba))

    def of_pairs(self, labels: IntArray, proba: FloatArray) -> FloatArray:
        """Return ``l(y_i, proba_j)`` for every label and every prediction.

        Examples
        --------
        >>> LOSSES["tv"].of_pairs(np.array([0, 1]), np.array([[0.75, 0.25]]))
        array([[0.25],
               [0.75]])
        """
        return self._from_parts(proba.T[labels], _squares(proba))

    @abstractmethod
    def _from_parts(self, of_label: FloatArray, square: FloatArray) -> FloatArray:
        """Loss from the probability of the label and the squared norm of the prediction."""

    @abstractmethod
    def head_constant(self, centred: FloatArray) -> float:
        """Return the constant of ``softmax(W u + b)`` from the rows of W less their mean."""

    @abstractmethod
    def smooth_of_labels(self, proba: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample, differentiable in the probabilities."""

    @abstractmethod
    def smooth_head_constant(self, weight: Tensor) -> Tensor:
        """Return the constant of a linear head, differentiable in its weights."""


class TotalVariation(SimplexLoss):
    """``||p - r||_1 / 2``, for a label ``1 - softmax[y]``."""

    name, head_formula = "tv", "max ||w_k - w_l|| / 4"

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the distance between two predictions, row by row."""
        distance: FloatArray = np.linalg.norm(first - second, ord=1, axis=-1)
        return distance / 2.0

    def _from_parts(self, of_label: FloatArray, square: FloatArray) -> FloatArray:  # noqa: ARG002
        return 1.0 - of_label

    def head_constant(self, centred: FloatArray) -> float:
        """Return a quarter of the largest distance between two rows."""
        # Differences, not a product form: two nearly equal rows must not come out closer than they are.
        return max(float(np.linalg.norm(centred - row, axis=1).max()) for row in centred) / 4

    def smooth_of_labels(self, proba: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample."""
        return 1.0 - _at_labels(proba, labels)

    def smooth_head_constant(self, weight: Tensor) -> Tensor:
        """Return the constant of a linear head."""
        return (weight[:, None] - weight[None]).square().sum(dim=2).max().sqrt() / 4


class Euclidean(SimplexLoss):
    """``||p - r||_2 / sqrt(2)``, for a label ``||softmax - e_y||_2 / sqrt(2)``."""

    name, head_formula = "euclidean", "sigma_max(centred W) / 2 / sqrt(2)"

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the distance between two predictions, row by row."""
        distance: FloatArray = np.linalg.norm(first - second, ord=2, axis=-1)
        return distance / math.sqrt(2.0)

    def _from_parts(self, of_label: FloatArray, square: FloatArray) -> FloatArray:
        # ||p - e_y||^2 = ||p||^2 - 2 p_y + 1; rounding must not take it out of [0, 1].
        return np.sqrt(np.clip((square - 2.0 * of_label + 1.0) / 2.0, 0.0, 1.0))

    def head_constant(self, centred: FloatArray) -> float:
        """Return the largest singular value, times 1/2 (of softmax) and ``1 / sqrt(2)`` (of the loss)."""
        return float(np.linalg.norm(centred, 2)) / 2 / math.sqrt(2)

    def smooth_of_labels(self, proba: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample; at least 1e-4, where the square root still has a gradient."""
        return ((proba.square().sum(dim=1) - 2 * _at_labels(proba, labels) + 1) / 2).clamp_min(1e-8).sqrt()

    def smooth_head_constant(self, weight: Tensor) -> Tensor:
        """Return the constant of a linear head."""
        import torch

        widest: Tensor = torch.linalg.matrix_norm(weight - weight.mean(dim=0), 2)
        return widest / 8**0.5


class Absolute(BoundLoss):
    """``min(1, |v - y|)``, for continuous labels."""

    name, head_formula, continuous = "absolute", "||w||", True

    def check_predictions(self, name: str, x: object, rows: int, n_outputs: int | None = None) -> FloatArray:  # noqa: ARG002
        """Return a column of values."""
        return _column(name, x, rows)

    def check_labels(self, name: str, x: object, rows: int, n_outputs: int) -> FloatArray:  # noqa: ARG002
        """Return numbers."""
        values: FloatArray = _column(name, x, rows)[:, 0]
        return values

    def of_labels(self, proba: FloatArray, labels: Any) -> FloatArray:
        """Return ``min(1, |v_i - y_i|)``.

        Examples
        --------
        >>> LOSSES["absolute"].of_labels(np.array([[0.5], [3.0]]), np.array([0.25, 0.0]))
        array([0.25, 1.  ])
        """
        losses: FloatArray = np.minimum(1.0, np.abs(proba[:, 0] - labels))
        return losses

    def of_pairs(self, labels: Any, proba: FloatArray) -> FloatArray:
        """Return ``min(1, |y_i - v_j|)``."""
        losses: FloatArray = np.minimum(1.0, np.abs(labels[:, None] - proba[:, 0]))
        return losses

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the distance between two predictions, row by row."""
        distance: FloatArray = np.minimum(1.0, np.abs(first - second)[..., 0])
        return distance

    def linear_constant(self, weight: FloatArray) -> float:
        """Return the length of the weights: cutting at 1 does not make anything steeper."""
        return float(np.linalg.norm(weight))


LOSSES: dict[str, Any] = {loss.name: loss for loss in (TotalVariation(), Euclidean(), Absolute())}
DEFAULT_LOSS = {"features": "tv", "joint": "euclidean"}
"""The loss of each theorem where none is named (docs/theory.md, Losses for bounds)."""


def _at_labels(proba: Tensor, labels: Tensor) -> Tensor:
    import torch

    return proba[torch.arange(len(labels)), labels]


def _column(name: str, x: object, rows: int) -> FloatArray:
    """Return finite numbers, one per sample, as a column."""
    values = to_numpy(x)
    column = check_matrix(name, values.reshape(-1, 1) if values.ndim == 1 else values, width=1)
    if len(column) != rows:
        remedy = "Pass one number per sample."
        raise InputError(name, got=f"{len(column)} numbers", allowed=f"{rows} numbers", remedy=remedy)
    return column


def _squares(proba: FloatArray) -> FloatArray:
    squares: FloatArray = np.einsum("ij,ij->i", proba, proba)
    return squares


def get_bound_loss(name: object) -> BoundLoss:
    """Return the loss of that name; cross-entropy and squared errors are refused."""
    if isinstance(name, str) and name not in LOSSES:
        remedy = "A bound needs a metric with values in [0, 1]; cross-entropy and squared errors are not."
        allowed = " or ".join(repr(known) for known in LOSSES)
        raise InputError("loss", got=repr(name), allowed=allowed, remedy=remedy)
    loss: BoundLoss = LOSSES[check_choice("loss", name, LOSSES)]
    return loss


def check_both_features(source: object, target: object) -> tuple[FloatArray, FloatArray]:
    """Return the features of both domains, of one width."""
    xs = check_matrix("source", source)
    xt = check_matrix("target", target, width=xs.shape[1])
    for name, x in (("source", xs), ("target", xt)):
        check_features(name, x)
    return xs, xt


def check_proba(name: str, x: object, rows: int, n_classes: int | None = None) -> FloatArray:
    """Return rows of class probabilities, each divided by its sum; logits and hard codes are refused."""
    proba = check_matrix(name, x, width=n_classes)
    allowed = f"{rows} rows of class probabilities (each >= 0, sum 1)"
    if proba.shape[0] != rows or proba.shape[1] < 2:
        remedy = "One row per sample, one column per class."
        raise InputError(name, got=f"shape {proba.shape}", allowed=allowed, remedy=remedy)
    sums = proba.sum(axis=1, keepdims=True)
    worst = float(np.abs(sums - 1.0).max())
    if proba.min() < 0 or worst > SUM_TOLERANCE:
        got = f"entries from {proba.min():.3g}, sums up to {worst:.3g} from 1"
        raise InputError(name, got=got, allowed=allowed, remedy="Pass softmax of the logits.")
    scaled: FloatArray = proba / sums
    return scaled


def check_labels(name: str, x: object, rows: int, n_classes: int) -> IntArray:
    """Return class codes in [0, n_classes)."""
    allowed = f"{rows} whole numbers in [0, {n_classes})"
    remedy = "Pass class codes that count the columns of the probabilities."
    try:
        values = to_numpy(x)
    except (TypeError, ValueError, OverflowError) as error:
        got = f"{type(x).__name__} ({error})"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy) from error
    if values.shape != (rows,):
        raise InputError(name, got=f"shape {values.shape}", allowed=allowed, remedy=remedy)
    whole = np.isfinite(values) & (values == np.floor(values)) & (values >= 0) & (values < n_classes)
    if not whole.all():
        got = f"{values[~whole][0]:g} at {int(np.argmin(whole))}"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy)
    codes: IntArray = values.astype(np.int64)
    return codes
