"""Validators that read nothing but the class probabilities of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_positive
from warmpot._typing import FloatArray
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence, log_softmax

__all__ = ["Confusion", "Entropy", "Infomax", "NuclearNorm", "SoftNeighbourhood"]

TINY = float(np.finfo(np.float64).tiny)
BLOCK = 1024
"""Rows of an n_t x n_t matrix that are in memory at a time."""


def _entropies(log_proba: FloatArray) -> FloatArray:
    found: FloatArray = -(np.exp(log_proba) * log_proba).sum(axis=1)
    return found


@dataclass(frozen=True)
class Entropy(Validator):
    """Minus the mean entropy of the target predictions (Morerio et al. 2018), in nats.

    Alone it loves a collapse: one class for all samples, with certainty, scores 0, the maximum. Choose with the guard.

    Deviations: none.
    """

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "how sure the target predictions are; blind to a collapse"

    def _score(self, evidence: Evidence) -> float:
        return float(-_entropies(evidence.target_log_proba).mean())


@dataclass(frozen=True)
class Infomax(Validator):
    """Information that the predictions carry about the target samples (Shi & Sha 2012), in nats.

    The entropy of the mean prediction minus the mean entropy of the predictions, in [0, log C]. In partial domain
    adaptation the first term also rewards predictions of classes that the target does not hold.

    Deviations: none.
    """

    name: ClassVar[str] = "infomax"
    summary: ClassVar[str] = "sure predictions over many classes; rewards classes that are not there"

    def _score(self, evidence: Evidence) -> float:
        mean = evidence.target_proba.mean(axis=0)
        return float(-(mean * np.log(np.maximum(mean, TINY))).sum() - _entropies(evidence.target_log_proba).mean())


@dataclass(frozen=True)
class NuclearNorm(Validator):
    """Nuclear norm of the matrix of target probabilities over the number of samples (BNM, Cui et al. 2020).

    Large when predictions are both sure and diverse. For one-hot predictions with class counts ``n_k`` it is
    ``sum_k sqrt(n_k) / n_t``: like `Infomax` it rewards classes that are not there.

    Deviations: the whole target in place of mini-batches.
    """

    name: ClassVar[str] = "nuclear"
    summary: ClassVar[str] = "nuclear norm of the target predictions: sure and diverse"

    def _score(self, evidence: Evidence) -> float:
        return float(np.linalg.svd(evidence.target_proba, compute_uv=False).sum() / len(evidence.target_proba))


@dataclass(frozen=True)
class Confusion(Validator):
    """Minus the class confusion of the target predictions (MCC, Jin et al. 2020), in [-1, 0].

    With tempered probabilities Y and sample weights ``v ~ 1 + exp(-entropy)``, the confusion of class k is the share of
    row k of ``Y' diag(v) Y`` off the diagonal; the score is minus its mean over the classes. A class that is never
    predicted has confusion 1, so classes that are not there count against a candidate, the same for all that see this.

    Deviations: the whole target in place of mini-batches.

    Parameters
    ----------
    temperature : float
        What logits are divided by; the paper's 2.5.
    """

    temperature: float = 2.5

    name: ClassVar[str] = "confusion"
    summary: ClassVar[str] = "how rarely the target predictions confuse two classes"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, evidence: Evidence) -> float:
        log_proba = log_softmax(evidence.target_logits / self.temperature)
        proba = np.exp(log_proba)
        weights = 1 + np.exp(-_entropies(log_proba))
        confusion = proba.T @ (proba * weights[:, None])
        return float((np.diag(confusion) / np.maximum(confusion.sum(axis=1), TINY)).mean() - 1.0)


@dataclass(frozen=True)
class SoftNeighbourhood(Validator):
    """Soft neighbourhood density of the target predictions (Saito et al. 2021), in [0, log(n_t - 1)].

    The mean entropy of ``softmax(cosine / temperature)`` over the other samples, where the cosine is that of two rows
    of probabilities: large when every sample has many like it. One class for all is the maximum: choose with the guard.

    Deviations: none. The authors also take features; those of a collapsed network look dense, so ours are predictions.

    Parameters
    ----------
    temperature : float
        The paper's 0.05.
    """

    temperature: float = 0.05

    name: ClassVar[str] = "snd"
    summary: ClassVar[str] = "how many target samples are predicted alike; blind to a collapse"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, evidence: Evidence) -> float:
        proba, n = evidence.target_proba, len(evidence.target_proba)
        if n < 3:  # one other sample: nothing to spread over
            return 0.0
        unit, total = proba / np.linalg.norm(proba, axis=1, keepdims=True), 0.0
        for start in range(0, n, BLOCK):
            near = unit[start : start + BLOCK] @ unit.T / self.temperature
            rows = np.arange(len(near))
            others = np.ones(near.shape, dtype=bool)
            others[rows, start + rows] = False
            total += float(_entropies(log_softmax(near[others].reshape(len(near), n - 1))).sum())
        return total / n
