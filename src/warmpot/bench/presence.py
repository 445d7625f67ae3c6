"""How well a run separates the source classes that occur in the target from the others; for evaluation only."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import brier_score_loss, roc_auc_score

from warmpot._typing import BoolArray, FloatArray
from warmpot.data import Truth
from warmpot.weights import predicted_shares

__all__ = ["LOST_BELOW", "presence_scores"]

LOST_BELOW = 0.1
"""A class of the target with a lower accuracy is lost: what is left of it is hardly more than chance."""


def presence_scores(outputs: FloatArray, truth: Truth, presence: Any = None) -> dict[str, float | int | None]:
    """Return the fields `share_auc`, `presence_auc`, `presence_brier` and `lost_classes` of a record.

    Parameters
    ----------
    outputs : (n_t, C) array
        Class probabilities of the target samples.
    truth : Truth
        Target labels.
    presence : object, optional
        An estimate with the (C,) array `probability`: how probably each source class occurs in the target.

    Examples
    --------
    >>> truth = Truth(np.array([0, 0, 1]), ("a", "b", "c"))
    >>> presence_scores(np.eye(3)[[0, 0, 2]], truth)
    {'share_auc': 0.5, 'presence_auc': None, 'presence_brier': None, 'lost_classes': 1}
    """
    codes = np.arange(len(truth.classes))
    present = np.isin(codes, truth.yt)
    correct = outputs.argmax(axis=1) == truth.yt
    scores: dict[str, float | int | None] = {
        "share_auc": _auc(present, predicted_shares(outputs)),
        "presence_auc": None,
        "presence_brier": None,
        "lost_classes": sum(bool(correct[truth.yt == k].mean() < LOST_BELOW) for k in codes[present]),
    }
    if presence is not None:
        # rounding errors may exceed the range, and scikit-learn refuses these
        probability = np.clip(np.asarray(presence.probability, dtype=np.float64), 0.0, 1.0)
        scores["presence_auc"] = _auc(present, probability)
        scores["presence_brier"] = float(brier_score_loss(present, probability, pos_label=True))
    return scores


def _auc(present: BoolArray, scores: FloatArray) -> float | None:
    """Return the area under the ROC curve; None if there is nothing to separate."""
    return float(roc_auc_score(present, scores)) if present.any() and not present.all() else None
