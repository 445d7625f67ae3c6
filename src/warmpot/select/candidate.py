"""What a validator may use of one candidate; no field holds target labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from warmpot._checks import check_features, check_matrix, check_nonnegative, check_weights
from warmpot._interop import is_torch
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = ["Candidate", "log_softmax"]


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return the log-probabilities of rows of scores, without overflow.

    Examples
    --------
    >>> np.exp(log_softmax(np.array([[1e9, 1e9]]))).tolist()
    [[0.5, 0.5]]
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_proba: FloatArray = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return log_proba


@dataclass(frozen=True, eq=False)
class Candidate:
    """Features and outputs of one candidate (an iterate of a run, or a run of a sweep) on both domains.

    Accepts arrays or tensors; stores float64 (labels: int64) numpy arrays. Infinite values and NaN are refused.

    Attributes
    ----------
    source_features, target_features : (n_s, d) and (n_t, d) arrays
        Inputs of the candidate's head. They are learned, so not comparable between candidates.
    source_logits, target_logits : (n_s, C) and (n_t, C) arrays
        Scores of the C >= 2 classes.
    source_labels : (n_s,) int array
        Class codes of the source.
    held_features, held_logits, held_labels : arrays, optional
        The same for a held-out part of the source, which was not trained on; all three or none.
    source_inputs, target_inputs, held_inputs : arrays, optional
        Inputs of the network. They are the same for all candidates, so distances between them are comparable. Give
        them for all parts or for none.
    source_weights : (n_s,) array, optional
        The candidate's weight of each source sample.
    transport : float, optional
        Cost of the candidate's last plan per unit of mass, in units of its own cost.
    head : pair of (C, d) and (C,) arrays, optional
        Weight and bias of the candidate's linear head.

    Examples
    --------
    >>> x, logits = np.eye(2), np.array([[2.0, 0.0], [0.0, 2.0]])
    >>> candidate = Candidate(x, logits, np.array([0, 1]), x, logits)
    >>> candidate
    Candidate(2 source, 2 target samples, 2 features, 2 classes)
    >>> candidate.target_predictions.tolist()
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
        parts = ["source", "target"] + ["held"] * self._all_given("held_features", "held_logits", "held_labels")
        kinds = ["features", "logits"] + ["inputs"] * self._all_given(*(f"{part}_inputs" for part in parts))
        if "held" not in parts:
            self._all_given("held_inputs", "held_features")
        for part in parts:
            for kind in kinds:
                width = None if part == "source" else getattr(self, f"source_{kind}").shape[1]
                self._check_matrix(f"{part}_{kind}", width)
            self._check_lengths(part)
        if self.n_classes < 2:
            remedy = "Validators judge classifiers; there is none for regression yet."
            raise InputError("source_logits", got="1 column", allowed="2 or more classes", remedy=remedy)
        for part in parts[::2]:  # the target has no labels
            self._check_labels(f"{part}_labels")
        if self.source_weights is not None:
            self._set("source_weights", check_weights("source_weights", self.source_weights, len(self.source_features)))
        if self.transport is not None:
            self._set("transport", check_nonnegative("transport", self.transport))
        if self.head is not None:
            self._check_head(*self.head)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _all_given(self, *names: str) -> bool:
        """Return whether these fields are given; some but not all of them is an error."""
        given = [name for name in names if getattr(self, name) is not None]
        if given and len(given) < len(names):
            got, allowed = f"{', '.join(given)} only", f"{', '.join(names)} together"
            raise InputError("candidate", got=got, allowed=allowed, remedy="Leave all of them out otherwise.")
        return bool(given)

    def _check_matrix(self, name: str, width: int | None) -> None:
        matrix = check_matrix(name, getattr(self, name), width=width)
        check_features(name, matrix)
        self._set(name, matrix)

    def _check_lengths(self, part: str) -> None:
        arrays = {kind: getattr(self, f"{part}_{kind}", None) for kind in ("features", "logits", "inputs", "labels")}
        lengths = {kind: (*np.shape(array), 0)[0] for kind, array in arrays.items() if array is not None}
        if len(set(lengths.values())) > 1:
            got = ", ".join(f"{n} {kind}" for kind, n in lengths.items())
            remedy = "Compute all of them on the same samples."
            raise InputError(part, got=got, allowed="the same number of rows in each", remedy=remedy)

    def _check_labels(self, name: str) -> None:
        labels = getattr(self, name)
        labels = np.asarray(labels.cpu() if is_torch(labels) else labels)
        integers = labels.ndim == 1 and labels.dtype.kind in "iu"
        if not integers or labels.min() < 0 or labels.max() >= self.n_classes:
            got = f"codes {labels.min()} to {labels.max()}" if integers else f"{labels.dtype}, shape {labels.shape}"
            allowed = f"a 1-d array of integers in [0, {self.n_classes - 1}]"
            raise InputError(name, got=got, allowed=allowed, remedy="Pass the codes of a Task.")
        self._set(name, labels.astype(np.int64))

    def _check_head(self, weight: FloatArray, bias: FloatArray) -> None:
        weight = check_matrix("head weight", weight, width=self.source_features.shape[1])
        bias = check_matrix("head bias", bias[None], width=self.n_classes)[0]
        if len(weight) != self.n_classes:
            allowed = f"{self.n_classes} rows, one per class"
            raise InputError("head weight", got=f"{len(weight)} rows", allowed=allowed, remedy="Transpose it.")
        self._set("head", (weight, bias))

    def __repr__(self) -> str:
        held = "" if self.held_labels is None else f"{len(self.held_labels)} held-out, "
        (n_s, d), n_t = self.source_features.shape, len(self.target_features)
        return f"Candidate({n_s} source, {held}{n_t} target samples, {d} features, {self.n_classes} classes)"

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.source_logits.shape[1])

    @cached_property
    def target_log_proba(self) -> FloatArray:
        """Log-probabilities of the classes for every target sample."""
        return log_softmax(self.target_logits)

    @cached_property
    def target_proba(self) -> FloatArray:
        """Probabilities of the classes for every target sample."""
        return np.exp(self.target_log_proba)

    @property
    def target_predictions(self) -> IntArray:
        """Predicted class of every target sample."""
        predictions: IntArray = self.target_logits.argmax(axis=1)
        return predictions

    @property
    def source_proba(self) -> FloatArray:
        """Probabilities of the classes for every source sample."""
        return np.exp(log_softmax(self.source_logits))

    def points(self, part: str, space: str) -> FloatArray:
        """Return the features of a part ("source", "target" or "held"), or its inputs if `space` is "inputs"."""
        inputs: FloatArray | None = getattr(self, f"{part}_inputs") if space == "inputs" else None
        return getattr(self, f"{part}_features") if inputs is None else inputs
