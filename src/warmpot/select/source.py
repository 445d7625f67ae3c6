"""Validators that read the labels of a part of the source kept out of the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence, log_softmax

__all__ = ["DeepEmbedded", "SourceAccuracy"]

LOSSES = ("error", "cross_entropy")
STEEPEST = 30.0
"""Largest magnitude of a log density ratio: one sample cannot outweigh every other without end."""


@dataclass(frozen=True)
class SourceAccuracy(Validator):
    """Accuracy on the held part of the source.

    Says nothing of the target, and classes that the target lacks count as much as the others. Ties are frequent.

    Deviations: none.
    """

    name: ClassVar[str] = "source"
    summary: ClassVar[str] = "accuracy on a held part of the source"
    needs: ClassVar[frozenset[str]] = frozenset({"held"})

    def _score(self, evidence: Evidence) -> float:
        assert evidence.held_logits is not None
        return float((evidence.held_logits.argmax(axis=1) == evidence.held_labels).mean())


@dataclass(frozen=True)
class DeepEmbedded(Validator):
    """Minus the risk of deep embedded validation (DEV, You et al. 2019).

    The loss on the held part, weighted by the ratio w of the densities of target and source features, less a control
    variate: ``mean(w l) + eta (mean(w) - 1)`` with ``eta = -cov(w l, w) / var(w)``. Where the domains can be told
    apart for certain, all weights vanish and the estimate says little.

    Deviations: the domains are told apart by a logistic regression on standardised features in place of a network with
    one hidden layer; log ratios are cut at 30; the loss is the 0-1 loss by default, as accuracy is what is asked for.

    Parameters
    ----------
    loss : "error" or "cross_entropy"
    """

    loss: str = "error"

    name: ClassVar[str] = "dev"
    summary: ClassVar[str] = "loss on a held part of the source, weighted to look like the target"
    needs: ClassVar[frozenset[str]] = frozenset({"held"})

    def __post_init__(self) -> None:
        check_choice("loss", self.loss, LOSSES)

    def _score(self, evidence: Evidence) -> float:
        assert evidence.held_features is not None
        assert evidence.held_logits is not None
        weights = density_ratio(evidence.source_features, evidence.target_features, evidence.held_features)
        if self.loss == "error":
            losses = (evidence.held_logits.argmax(axis=1) != evidence.held_labels).astype(np.float64)
        else:
            losses = -log_softmax(evidence.held_logits)[np.arange(len(weights)), evidence.held_labels]
        spread = weights - weights.mean()
        variance = float(spread @ spread)
        eta = -float(spread @ (weights * losses)) / variance if variance > 0 else 0.0
        return -float((weights * losses).mean() + eta * (weights.mean() - 1))


def density_ratio(source: FloatArray, target: FloatArray, points: FloatArray) -> FloatArray:
    """Density of the target over that of the source at some points, by logistic regression on standardised features."""
    from sklearn.linear_model import LogisticRegression

    both = np.concatenate([source, target])
    centre, scale = both.mean(axis=0), both.std(axis=0)
    scale[scale == 0] = 1.0
    domain = np.repeat([0, 1], [len(source), len(target)])
    odds = LogisticRegression(tol=1e-6, max_iter=1000).fit((both - centre) / scale, domain).decision_function
    logs = np.clip(odds((points - centre) / scale) + np.log(len(source) / len(target)), -STEEPEST, STEEPEST)
    ratio: FloatArray = np.exp(logs)
    return ratio
