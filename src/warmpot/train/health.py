"""Label-free signs that a training has collapsed; they are logged in every run.

Three ways to fail were measured on frozen features (docs/engines.md). Weights from an untrained head feed back on
themselves until a handful of samples, then one class, is left, while the loss looks converged. A plan that is too
smooth for its costs mixes the labels of the target until predictions spread over classes that are not there. And terms
that reward certain predictions make them certain at once, wrong ones too, before anything can correct them.
"""

from __future__ import annotations

import logging
import math
from collections import deque

import torch
from torch import Tensor

from warmpot.weights import effective_share

__all__ = ["Health", "effective_classes"]

logger = logging.getLogger(__name__)

LONE = 1.5
"""Fewer effective classes than this is a single class: every target sample is predicted alike."""
LOST = 0.25
"""Predictions on a smaller part of the classes they used before the first plan have lost classes for good."""
SPREAD = 1.4
"""Predictions on this many times the fewest classes seen are spreading again."""
CERTAIN, WITHIN = 1 / 3, 50
"""Entropy that falls below this part in so many steps: ARPM's falls to .20 to .28, that of others to .47 or more."""
AVERAGED = 5
"""Batches at both ends of these steps whose entropy is averaged: that of a single one varies by a tenth."""
UNCERTAIN = 0.5
"""Nats. Predictions that are this certain already have nothing to lose, and their entropy varies more."""
CONCENTRATED = 0.25
"""Weights on a smaller part of the samples that the final plan must use at least are concentrated."""


def effective_classes(probabilities: Tensor) -> float:
    """Effective number of predicted classes: exp of the entropy of the mean prediction.

    Examples
    --------
    >>> round(effective_classes(torch.tensor([[1.0, 0.0], [0.0, 1.0]])), 6)
    2.0
    """
    return _effective(probabilities.double().mean(dim=0))


def _effective(mean: Tensor) -> float:
    return float(torch.exp(-(mean * mean.clamp_min(1e-300).log()).sum()))


class Health:
    """Watches predictions and weights, and warns once for each sign of collapse.

    `expected_share` is the share of the source samples that the final plan uses at least (alpha times beta; 1 without a
    plan). Plans begin after the share `warmup` of the training, the mass no longer grows after `settled`.
    `expected_classes` is how many classes the target is estimated to have: to predict so few is no collapse.
    """

    expected_classes: float = math.inf

    def __init__(self, expected_share: float = 1.0, warmup: float = 0.0, settled: float = 0.5) -> None:
        self._expected, self._warmup, self._settled = expected_share, warmup, settled
        self._before = self._fewest = float("nan")
        self._mean, self._batches = torch.zeros(0, dtype=torch.float64), 0
        self._entropies: deque[float] = deque(maxlen=WITHIN)
        self._warned: set[str] = set()

    def see(self, logits: Tensor, progress: float | None = None) -> None:
        """Add predictions on target samples; `check` uses all since the last check.

        `progress` is the share of the training that is done, for predictions of one step.
        """
        log_p = torch.log_softmax(logits.detach().double(), dim=1)
        mean = log_p.exp().mean(dim=0).cpu()
        self._mean = mean if self._batches == 0 else self._mean + mean
        self._batches += 1
        if progress is not None and progress > self._warmup:  # while a head learns from the source, it may fall
            self._entropies.append(float(-(log_p.exp() * log_p).sum(dim=1).mean()))
            self._check_fall(progress)

    def _check_fall(self, progress: float) -> None:
        """Compare the entropy with that of some steps ago."""
        if self._warmup == 0 or len(self._entropies) < WITHIN:
            return
        entropies = list(self._entropies)
        before, now = (sum(part) / AVERAGED for part in (entropies[:AVERAGED], entropies[-AVERAGED:]))
        if before >= UNCERTAIN and now < CERTAIN * before:
            text = f"the entropy of target predictions fell from {before:.2f} to {now:.2f} in {WITHIN} steps"
            self._warn(progress, "certain", text, "a later start of the terms of the target")

    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs to log the same numbers."""
        numbers = torch.tensor([self._before, self._fewest, self._batches], dtype=torch.float64)
        entropies = torch.tensor([*self._entropies], dtype=torch.float64)
        return {"numbers": numbers, "mean": self._mean, "entropies": entropies}

    def load(self, state: dict[str, Tensor]) -> None:
        """Undo `state`; checkpoints of version 0.1 have no entropies."""
        self._before, self._fewest = state["numbers"][:2].tolist()
        self._batches, self._mean = int(state["numbers"][2]), state["mean"]
        self._entropies.extend(state["entropies"].tolist() if "entropies" in state else [])

    def check(self, progress: float, weights: Tensor) -> dict[str, float]:
        """Return the numbers to log; warn when they are those of a collapse."""
        share = effective_share(weights)
        signs = {"effective_weights": share}
        if share < CONCENTRATED * self._expected:
            self._warn(progress, "concentrated", f"the source weights sit on {share:.1%} of the samples")
        if self._batches == 0 or len(self._mean) < 2:  # nothing seen, or regression
            return signs
        classes = signs["effective_classes"] = _effective(self._mean / self._batches)
        self._batches = 0
        if progress <= self._warmup:
            self._before = classes
        elif classes < min(LOST * self._before, self.expected_classes / 2):
            self._warn(progress, "lost", f"the target predictions use {classes:.1f} classes, {self._before:.1f} before")
        if progress >= self._settled:
            self._fewest = min(classes, self._fewest) if self._fewest == self._fewest else classes
            if classes > SPREAD * self._fewest:
                text = f"the target predictions spread over {classes:.1f} classes again, {self._fewest:.1f} before"
                self._warn(progress, "spreading", text)
        if classes < LONE and self.expected_classes >= 2:
            self._warn(progress, "lone", f"the target predictions use {classes:.2f} classes")
        return signs

    def _warn(
        self, progress: float, sign: str, text: str, remedy: str = "a lower alpha, another preset or better features"
    ) -> None:
        if sign not in self._warned:
            self._warned.add(sign)
            logger.warning("collapse? after %.0f%% of the training %s; %s may help", 100 * progress, text, remedy)
