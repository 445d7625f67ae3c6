"""Losses a bound can be written in: metrics on the probability simplex with values in [0, 1].

Cross-entropy is neither bounded nor a metric, so it cannot stand in Theorem 3.2 or 3.3. The two losses here can; a
label y is the corner e_y of the simplex, a prediction a row of class probabilities (softmax of the logits).

- ``"tv"``: total variation, ``l(p, r) = ||p - r||_1 / 2``, so ``l(p, y) = 1 - p[y]``: the chance that a label drawn
  from p is wrong.
- ``"euclidean"``: ``l(p, r) = ||p - r||_2 / sqrt(2)``. It is zeta-Lipschitz in each argument with ``zeta = 1/sqrt(2)``.

One convention for both theorems: *gamma is the Lipschitz constant of the head with respect to the loss*,
``l(g(u), g(v)) <= gamma ||u - v||``. That is the gamma of Theorem 3.2. In Theorem 3.3 it stands for the paper's product
``zeta * gamma``: the proof uses the two only through ``|l(w, g(u)) - l(w, g(v))| <= zeta gamma ||u - v||``, and for a
metric the left side is at most ``l(g(u), g(v))`` (reverse triangle inequality). So both losses serve in both theorems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warmpot._checks import check_choice, check_matrix
from warmpot._interop import to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = ["LOSSES", "Loss", "check_labels", "check_proba", "loss_named"]

SUM_TOLERANCE = 1e-4
"""How far a row of probabilities may sum from 1: float16 softmaxes come close to it."""


@dataclass(frozen=True)
class Loss:
    """A metric on the simplex with values in [0, 1].

    Attributes
    ----------
    name : "tv" or "euclidean"
    formula : str
        How it reads for a label.
    """

    name: str
    formula: str

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

    def between(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Return the distance between two predictions, row by row."""
        order = 1 if self.name == "tv" else 2
        distance: FloatArray = np.linalg.norm(first - second, ord=order, axis=-1)
        return distance / (2.0 if self.name == "tv" else math.sqrt(2.0))

    def _from_parts(self, of_label: FloatArray, square: FloatArray) -> FloatArray:
        """Loss from the probability of the label and the squared norm of the prediction."""
        if self.name == "tv":
            return 1.0 - of_label
        # ||p - e_y||^2 = ||p||^2 - 2 p_y + 1; rounding must not take it out of [0, 1].
        return np.sqrt(np.clip((square - 2.0 * of_label + 1.0) / 2.0, 0.0, 1.0))


LOSSES = {
    loss.name: loss
    for loss in (
        Loss("tv", "1 - softmax[y]"),
        Loss("euclidean", "||softmax - e_y||_2 / sqrt(2)"),
    )
}


def _squares(proba: FloatArray) -> FloatArray:
    squares: FloatArray = np.einsum("ij,ij->i", proba, proba)
    return squares


def loss_named(name: object) -> Loss:
    """Return the loss of that name; cross-entropy and regression losses are refused."""
    if isinstance(name, str) and name not in LOSSES:
        remedy = "A bound needs a metric with values in [0, 1]; cross-entropy and regression losses are not."
        allowed = " or ".join(repr(known) for known in LOSSES)
        raise InputError("loss", got=repr(name), allowed=allowed, remedy=remedy)
    return LOSSES[check_choice("loss", name, LOSSES)]


def check_proba(name: str, x: object, rows: int, n_classes: int | None = None) -> FloatArray:
    """Return rows of class probabilities, each made to sum to 1 exactly; logits and hard codes are refused."""
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
        found = to_numpy(x)
    except (TypeError, ValueError, OverflowError) as error:
        got = f"{type(x).__name__} ({error})"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy) from error
    if found.shape != (rows,):
        raise InputError(name, got=f"shape {found.shape}", allowed=allowed, remedy=remedy)
    whole = np.isfinite(found) & (found == np.floor(found)) & (found >= 0) & (found < n_classes)
    if not whole.all():
        got = f"{found[~whole][0]:g} at {int(np.argmin(whole))}"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy)
    codes: IntArray = found.astype(np.int64)
    return codes
