"""What a validator may see of one candidate: no field of it holds target labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmpot._checks import check_features, check_matrix, check_nonnegative, check_weights
from warmpot._interop import is_torch
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = ["Evidence", "log_softmax"]


def log_softmax(logits: FloatArray) -> FloatArray:
    """Log-probabilities of rows of scores, without overflow.

    Examples
    --------
    >>> np.exp(log_softmax(np.array([[1e9, 1e9]]))).tolist()
    [[0.5, 0.5]]
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found


@dataclass(frozen=True, eq=False)
class Evidence:
    """Features and outputs of one candidate (a snapshot of a run, or a run of a sweep) on both domains.

    Arrays or tensors go in, float64 (labels: int64) numpy arrays come out; numbers that are not finite are refused.

    Attributes
    ----------
    source_features, target_features : (n_s, d) and (n_t, d) arrays
        What the candidate's head sees. Learned, so not comparable between candidates.
    source_logits, target_logits : (n_s, C) and (n_t, C) arrays
        Scores of the C >= 2 classes.
    source_labels : (n_s,) int array
        Class codes of the source.
    held_features, held_logits, held_labels : arrays, optional
        The same for a part of the source that was kept out of the training; all three or none.
    source_inputs, target_inputs, held_inputs : arrays, optional
        What the candidates were trained on: the same for all of them, so distances there are comparable. Of every
        side that is there, or of none.
    source_weights : (n_s,) array, optional
        What each source sample counts for the candidate.
    transport : float, optional
        Value of the candidate's last plan per unit of mass, in units of its own cost.
    head : pair of (C, d) and (C,) arrays, optional
        Weight and bias of the candidate's linear head.

    Examples
    --------
    >>> x, logits = np.eye(2), np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> evidence = Evidence(x, logits, np.array([0, 1]), x, logits)
    >>> evidence
    Evidence(2 source, 2 target samples, 2 features, 2 classes)
    >>> evidence.target_predictions.tolist()
    [0, 1]
    """

    source_features: FloatArray
    source_logits: FloatArray
    source_labels: IntArray
    target_features: FloatArray
    target_logits: FloatArray
    held_features: FloatArray | None = None
    held_logits: FloatArray | None = None
    held_labels: IntArray | None = None
    source_inputs: FloatArray | None = None
    target_inputs: FloatArray | None = None
    held_inputs: FloatArray | None = None
    source_weights: FloatArray | None = None
    transport: float | None = None
    head: tuple[FloatArray, FloatArray] | None = None

    def __post_init__(self) -> None:
        sides = ["source", "target"] + ["held"] * self._whole("held_features", "held_logits", "held_labels")
        with_inputs = self._whole(*(f"{side}_inputs" for side in sides))
        if "held" not in sides:
            self._whole("held_inputs", "held_features")
        for side in sides:
            self._matrix(f"{side}_features", None if side == "source" else self.source_features.shape[1])
            self._matrix(f"{side}_logits", None if side == "source" else self.n_classes)
            if with_inputs:
                self._matrix(f"{side}_inputs", None if side == "source" else self.points("source", "inputs").shape[1])
            self._lengths(side)
        if self.n_classes < 2:
            remedy = "Validators judge classifiers; regression has none yet."
            raise InputError("source_logits", got="1 column", allowed="2 or more classes", remedy=remedy)
        for side in sides[::2]:
            self._labels(f"{side}_labels")
        if self.source_weights is not None:
            self._set("source_weights", check_weights("source_weights", self.source_weights, len(self.source_features)))
        if self.transport is not None:
            self._set("transport", check_nonnegative("transport", self.transport))
        if self.head is not None:
            self._head()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _whole(self, *names: str) -> bool:
        """Tell whether these fields are given; some but not all of them is an error."""
        given = [getattr(self, name) is not None for name in names]
        if any(given) and not all(given):
            got = ", ".join(name for name, there in zip(names, given, strict=True) if there) + " only"
            remedy = "Leave all of them out otherwise."
            raise InputError("evidence", got=got, allowed=f"{', '.join(names)} together", remedy=remedy)
        return any(given)

    def _matrix(self, name: str, width: int | None) -> None:
        found = check_matrix(name, getattr(self, name), width=width)
        check_features(name, found)
        self._set(name, found)

    def _lengths(self, side: str) -> None:
        names = [name for name in ("features", "logits", "inputs", "labels") if hasattr(self, f"{side}_{name}")]
        arrays = {name: getattr(self, f"{side}_{name}") for name in names}
        found = {name: (*np.shape(array), 0)[0] for name, array in arrays.items() if array is not None}
        if len(set(found.values())) > 1:
            got = ", ".join(f"{n} {name}" for name, n in found.items())
            remedy = "Compute all of them on the same samples."
            raise InputError(side, got=got, allowed="as many rows of each", remedy=remedy)

    def _labels(self, name: str) -> None:
        labels = getattr(self, name)
        labels = np.asarray(labels.cpu() if is_torch(labels) else labels)
        whole = labels.ndim == 1 and labels.dtype.kind in "iu"
        if not whole or labels.min() < 0 or labels.max() >= self.n_classes:
            got = f"codes {labels.min()} to {labels.max()}" if whole else f"{labels.dtype}, shape {labels.shape}"
            allowed = f"a 1-d array of integers in [0, {self.n_classes - 1}]"
            raise InputError(name, got=got, allowed=allowed, remedy="Pass the codes of a Task.")
        self._set(name, labels.astype(np.int64))

    def _head(self) -> None:
        assert self.head is not None
        weight = check_matrix("head weight", self.head[0], width=self.source_features.shape[1])
        bias = check_matrix("head bias", self.head[1][None], width=self.n_classes)[0]
        if len(weight) != self.n_classes:
            allowed = f"{self.n_classes} rows, one a class"
            raise InputError("head weight", got=f"{len(weight)} rows", allowed=allowed, remedy="Transpose it.")
        self._set("head", (weight, bias))

    def __repr__(self) -> str:
        held = "" if self.held_labels is None else f"{len(self.held_labels)} held, "
        (n_s, d), n_t = self.source_features.shape, len(self.target_features)
        return f"Evidence({n_s} source, {held}{n_t} target samples, {d} features, {self.n_classes} classes)"

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.source_logits.shape[1])

    @cached_property
    def target_log_proba(self) -> FloatArray:
        """Log-probabilities of the classes of every target sample."""
        return log_softmax(self.target_logits)

    @cached_property
    def target_proba(self) -> FloatArray:
        """Probabilities of the classes of every target sample."""
        return np.exp(self.target_log_proba)

    @property
    def target_predictions(self) -> IntArray:
        """Predicted class of every target sample."""
        found: IntArray = self.target_logits.argmax(axis=1)
        return found

    @property
    def source_proba(self) -> FloatArray:
        """Probabilities of the classes of every source sample."""
        return np.exp(log_softmax(self.source_logits))

    def points(self, side: str, space: str) -> FloatArray:
        """Return the "source", "target" or "held" samples in the "features" or "inputs"; without inputs, features."""
        found: FloatArray | None = getattr(self, f"{side}_inputs") if space == "inputs" else None
        return getattr(self, f"{side}_features") if found is None else found
