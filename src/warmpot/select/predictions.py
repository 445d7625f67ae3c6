"""Validators that use only the predicted class probabilities of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_positive
from warmpot._typing import FloatArray
from warmpot.select.base import Validator
from warmpot.select.candidate import Candidate, log_softmax

__all__ = ["Confusion", "Entropy", "Infomax", "NuclearNorm", "SoftNeighbourhood"]

TINY = float(np.finfo(np.float64).tiny)
BLOCK = 1024
"""Rows of an n_t x n_t matrix in memory at the same time: 8 MB for 1,000 target samples."""


def _entropies(log_proba: FloatArray) -> FloatArray:
    entropies: FloatArray = -(np.exp(log_proba) * log_proba).sum(axis=1)
    return entropies


@dataclass(frozen=True)
class Entropy(Validator):
    """Minus the mean entropy of the target predictions (Morerio et al. 2018), in nats.

    A collapse (one class for all samples, with certainty) has the maximal score 0: use it with `choose`.

    Deviations: none.
    """

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "how confident the target predictions are; blind to a collapse"

    def _score(self, candidate: Candidate) -> float:
        return float(-_entropies(candidate.target_log_proba).mean())


@dataclass(frozen=True)
class Infomax(Validator):
    """Mutual information of target samples and predictions (Shi & Sha 2012), in nats.

    The entropy of the mean prediction minus the mean entropy of the predictions, in [0, log C]. In partial domain
    adaptation the first term also rewards predictions of classes that the target lacks.

    Deviations: none.
    """

    name: ClassVar[str] = "infomax"
    summary: ClassVar[str] = "confident predictions over many classes; also rewards classes that the target lacks"

    def _score(self, candidate: Candidate) -> float:
        mean = candidate.target_proba.mean(axis=0)
        return float(-(mean * np.log(np.maximum(mean, TINY))).sum() - _entropies(candidate.target_log_proba).mean())


@dataclass(frozen=True)
class NuclearNorm(Validator):
    """Nuclear norm of the matrix of target probabilities, divided by the number of samples (BNM, Cui et al. 2020).

    Large if predictions are both confident and diverse. For one-hot predictions with class counts ``n_k`` it is
    ``sum_k sqrt(n_k) / n_t``: like `Infomax` it rewards classes that the target lacks.

    Deviations: the whole target instead of mini-batches.
    """

    name: ClassVar[str] = "nuclear"
    summary: ClassVar[str] = "nuclear norm of the target predictions: confident and diverse"

    def _score(self, candidate: Candidate) -> float:
        return float(np.linalg.svd(candidate.target_proba, compute_uv=False).sum() / len(candidate.target_proba))


@dataclass(frozen=True)
class Confusion(Validator):
    """Minus the class confusion of the target predictions (MCC, Jin et al. 2020), in [-1, 0].

    With tempered probabilities Y and sample weights ``v ~ 1 + exp(-entropy)``, the confusion of class k is the share of
    row k of ``Y' diag(v) Y`` off the diagonal; the score is minus its mean over the classes. A class that is never
    predicted has confusion 1, so classes that the target lacks lower the scores of all good candidates alike.

    Deviations: the whole target instead of mini-batches.

    Parameters
    ----------
    temperature : float
        Divisor of the logits; 2.5 in the paper.
    """

    temperature: float = 2.5

    name: ClassVar[str] = "confusion"
    summary: ClassVar[str] = "how rarely the target predictions confuse two classes"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, candidate: Candidate) -> float:
        log_proba = log_softmax(candidate.target_logits / self.temperature)
        proba = np.exp(log_proba)
        weights = 1 + np.exp(-_entropies(log_proba))
        confusion = proba.T @ (proba * weights[:, None])
        return float((np.diag(confusion) / np.maximum(confusion.sum(axis=1), TINY)).mean() - 1.0)


@dataclass(frozen=True)
class SoftNeighbourhood(Validator):
    """Soft neighbourhood density of the target predictions (Saito et al. 2021), in [0, log(n_t - 1)].

    The mean entropy of ``softmax(cosine / temperature)`` over the other samples, where the cosine is that of two rows
    of probabilities: large if every sample has many similar ones. A collapse scores highest: use it with `choose`.

    Deviations: none. The authors also use features; those of a collapsed network are dense, so we use predictions.

    Parameters
    ----------
    temperature : float
        0.05 in the paper.
    """

    temperature: float = 0.05

    name: ClassVar[str] = "snd"
    summary: ClassVar[str] = "how many target samples get similar predictions; blind to a collapse"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, candidate: Candidate) -> float:
        proba, n = candidate.target_proba, len(candidate.target_proba)
        if n < 3:  # with one other sample the entropy is 0
            return 0.0
        unit, total = proba / np.linalg.norm(proba, axis=1, keepdims=True), 0.0
        for start in range(0, n, BLOCK):
            near = unit[start : start + BLOCK] @ unit.T / self.temperature
            rows = np.arange(len(near))
            others = np.ones(near.shape, dtype=bool)
            others[rows, start + rows] = False
            total += float(_entropies(log_softmax(near[others].reshape(len(near), n - 1))).sum())
        return total / n
