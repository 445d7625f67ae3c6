"""Label-free signs that a training has collapsed: they are logged, never hidden."""

from __future__ import annotations

import logging

import torch
from torch import Tensor

from warmpot.weights import effective_share

__all__ = ["Health", "effective_classes"]

logger = logging.getLogger(__name__)

FEW_CLASSES = 1.5
"""A target of fewer effective classes is called collapsed; a real one has two at least."""
FEW_SAMPLES = 0.02
"""Source weights on a smaller share of the samples are called concentrated."""


def effective_classes(probabilities: Tensor) -> float:
    """Effective number of predicted classes: exp of the entropy of the mean prediction.

    Examples
    --------
    >>> effective_classes(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    2.0
    """
    mean = probabilities.double().mean(dim=0)
    return float(torch.exp(-(mean * mean.clamp_min(1e-300).log()).sum()))


class Health:
    """Watches predictions and weights, and warns once for each sign of collapse."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def check(self, step: int, probabilities: Tensor | None, weights: Tensor) -> dict[str, float]:
        """Return the numbers to log; warn when they are those of a collapse.

        Parameters
        ----------
        step : int
        probabilities : (n_t, C) tensor or None
            Predictions of target samples; None in regression.
        weights : (n_s,) tensor
            Source weights.
        """
        found = {"effective_weights": effective_share(weights)}
        if found["effective_weights"] < FEW_SAMPLES:
            self._warn(step, "the source weights", f"sit on {found['effective_weights']:.1%} of the samples")
        if probabilities is not None:
            found["effective_classes"] = effective_classes(probabilities)
            if found["effective_classes"] < FEW_CLASSES:
                self._warn(step, "the target predictions", f"use {found['effective_classes']:.2f} classes in effect")
        return found

    def _warn(self, step: int, what: str, how: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            logger.warning(
                "collapse? at step %d %s %s; lower eta2 or alpha, or use the preset `frozen` for frozen features",
                step, what, how,
            )  # fmt: skip
