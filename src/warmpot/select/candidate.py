"""Candidates: what a validator may use of one (no field holds target labels), its score, and the choice among several.

Most label-free scores are best when every target sample gets the same class. So a candidate is refused, whatever its
score, if its predictions lost most of the classes that a reference (source-only, or the first iterate of a run)
predicts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from warmpot._checks import check_features, check_matrix, check_nonnegative, check_weights
from warmpot._interop import is_torch
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.train.health import LONE, LOST, effective_classes

__all__ = ["Candidate", "Choice", "Validator", "choose", "collapse_reason", "explain_collapse", "log_softmax"]

NEEDS = {
    "held": ("held_labels", "Hold out a part of the source."),
    "transport": ("transport", "Use a method that has a plan."),
    "head": ("head", "Use a network with a linear head."),
}
"""What a validator may need besides outputs on both domains: the field of `Candidate`, and the remedy if it is None."""


def log_softmax(logits: FloatArray) -> FloatArray:
    """Return the log-probabilities of rows of scores, without overflow."""
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
                name, width = f"{part}_{kind}", None if part == "source" else getattr(self, f"source_{kind}").shape[1]
                self._set(name, check_matrix(name, getattr(self, name), width=width))
                check_features(name, getattr(self, name))
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


class Validator(ABC):
    """Gives a candidate a score; subclasses are frozen dataclasses whose fields are the parameters.

    Class attributes
    ----------------
    name, summary : str
        Name in settings and on the command line, and one line for lists.
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
        """Return the score of a candidate: larger is better. One without what the validator `needs` is an error."""
        for need in sorted(self.needs):
            field, remedy = NEEDS[need]
            if getattr(candidate, field) is None:
                allowed = f"a candidate with {field}"
                raise InputError(f"validator {self.name!r}", got=f"no {field}", allowed=allowed, remedy=remedy)
        return float(self._score(candidate))

    @abstractmethod
    def _score(self, candidate: Candidate) -> float:
        """Return the score of a candidate that has everything needed."""

    def target_terms(self, candidate: Candidate) -> FloatArray | None:  # noqa: ARG002
        """Return one number per target sample whose mean is the score; None if the score is not such a mean."""
        return None


@dataclass(frozen=True)
class Choice:
    """The chosen candidate, with the scores of all.

    Attributes
    ----------
    index : int or None
        Number of the winner; None if all candidates are refused, so that the reference wins.
    scores : list of float
        Score of every candidate, refused or not.
    refusals : dict of int to str
        Reason for every refused candidate.
    validator : str
        Name of the validator; "oracle" if target labels were used.
    """

    index: int | None
    scores: list[float]
    refusals: dict[int, str]
    validator: str


def effective_target_classes(candidate: Candidate) -> float:
    """Return the effective number of classes that a candidate predicts on the target."""
    return effective_classes(torch.from_numpy(candidate.target_proba))


def diversity_terms(candidate: Candidate) -> FloatArray:
    """Return one number per target sample; their mean is the entropy of the predicted shares of the classes.

    Of predictions, not of probabilities: outputs that only become more certain do not lose a class.
    """
    predictions = candidate.target_predictions
    terms: FloatArray = np.log(len(predictions) / np.bincount(predictions)[predictions])
    return terms


def collapse_reason(classes: float, reference: float, name: str = "those of the reference") -> str | None:
    """Return why an effective number of classes is a collapse compared with the reference's; None if it is not."""
    if classes < LOST * reference or classes < LONE <= reference:
        return f"the target predictions use {classes:.2f} classes, {name} {reference:.2f}"
    return None


def explain_collapse(candidate: Candidate, reference: Candidate) -> str | None:
    """Return why a candidate's predictions are a collapse compared with the reference's; None if they are not.

    The effective number of predicted classes (exp of the entropy of the mean prediction) must stay above a quarter of
    the reference's, and above 1.5 if the reference's is (a target may consist of a single class).
    """
    return collapse_reason(effective_target_classes(candidate), effective_target_classes(reference))


def choose(candidates: Sequence[Candidate], validator: Validator, reference: Candidate) -> Choice:
    """Choose the candidate with the best score among those that have not collapsed.

    Parameters
    ----------
    candidates : sequence of Candidate
        The first wins a tie: put the preferred ones first.
    reference : Candidate
        Candidates are checked for collapse against it, and it wins if all are refused. It may be a candidate too.
    """
    scores = [validator.score(candidate) for candidate in candidates]
    refusals = {}
    for k, candidate in enumerate(candidates):
        reason = explain_collapse(candidate, reference) if math.isfinite(scores[k]) else f"its score is {scores[k]}"
        if reason is not None:
            refusals[k] = reason
    allowed = [k for k in range(len(scores)) if k not in refusals]
    return Choice(max(allowed, key=scores.__getitem__, default=None), scores, refusals, validator.name)
