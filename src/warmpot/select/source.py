"""Validators that use the labels of a held-out part of the source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray
from warmpot.select.base import Validator
from warmpot.select.candidate import Candidate, log_softmax

__all__ = ["DeepEmbedded", "SourceAccuracy"]

LOSSES = ("error", "cross_entropy")
MAX_LOG_RATIO = 30.0
"""Largest magnitude of a log density ratio, so that the weight of a single sample stays finite."""


@dataclass(frozen=True)
class SourceAccuracy(Validator):
    """Accuracy on the held-out part of the source.

    It ignores the target, and classes that the target lacks count as much as the others. Ties are frequent.

    Deviations: none.
    """

    name: ClassVar[str] = "source"
    summary: ClassVar[str] = "accuracy on a held-out part of the source"
    needs: ClassVar[frozenset[str]] = frozenset({"held"})

    def _score(self, candidate: Candidate) -> float:
        assert candidate.held_logits is not None
        return float((candidate.held_logits.argmax(axis=1) == candidate.held_labels).mean())


@dataclass(frozen=True)
class DeepEmbedded(Validator):
    """Minus the risk of deep embedded validation (DEV, You et al. 2019).

    The loss on the held-out part, weighted by the density ratio w of target and source features, with a control
    variate: ``mean(w l) + eta (mean(w) - 1)`` with ``eta = -cov(w l, w) / var(w)``. If the domains can be separated
    perfectly, all weights vanish and the estimate is useless.

    Deviations: the domains are separated by a logistic regression on standardised features instead of a network with
    one hidden layer; log ratios are clipped at 30; the default is the 0-1 loss, since results are judged by accuracy.

    Parameters
    ----------
    loss : "error" or "cross_entropy"
    """

    loss: str = "error"

    name: ClassVar[str] = "dev"
    summary: ClassVar[str] = "loss on a held-out part of the source, weighted towards the target"
    needs: ClassVar[frozenset[str]] = frozenset({"held"})

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)

    def _score(self, candidate: Candidate) -> float:
        assert candidate.held_features is not None
        assert candidate.held_logits is not None
        weights = density_ratio(candidate.source_features, candidate.target_features, candidate.held_features)
        if self.loss == "error":
            losses = (candidate.held_logits.argmax(axis=1) != candidate.held_labels).astype(np.float64)
        else:
            losses = -log_softmax(candidate.held_logits)[np.arange(len(weights)), candidate.held_labels]
        spread = weights - weights.mean()
        variance = float(spread @ spread)
        eta = -float(spread @ (weights * losses)) / variance if variance > 0 else 0.0
        return -float((weights * losses).mean() + eta * (weights.mean() - 1))


def density_ratio(source: FloatArray, target: FloatArray, points: FloatArray) -> FloatArray:
    """Return target density / source density at some points, by logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression

    both = np.concatenate([source, target])
    centre, scale = both.mean(axis=0), both.std(axis=0)
    scale[scale == 0] = 1.0
    domain = np.repeat([0, 1], [len(source), len(target)])
    odds = LogisticRegression(tol=1e-6, max_iter=1000).fit((both - centre) / scale, domain).decision_function
    logs = np.clip(odds((points - centre) / scale) + np.log(len(source) / len(target)), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio: FloatArray = np.exp(logs)
    return ratio
