"""How many of the source's classes the target has: several hypotheses, and how well the answer of each is supported.

The probabilities of the classes (`warmpot.weights.estimate_presence`) order the classes well, also where the shift is
severe; how many of them are there is less certain. A hypothesis is a number of classes K: the log-odds of all classes
are moved by the same amount, until the probabilities sum to K. Every hypothesis is carried through the alternation by
itself, so that no class is ruled out before adaptation was tried with it. Then its weight is ``exp(support)``, a
log-linear pool of how far K is from the estimate and of `Evidence` that no adaptation has touched. The best supported
classifier is the result; probabilities of classes are averaged over all hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from warmpot._typing import IntArray
from warmpot.weights import ClassPresence
from warmpot.weights.evidence import Evidence, LabelEvidence

__all__ = ["Hypotheses", "class_numbers", "support"]

STEPS = (0.7, 1.0, 1.4)
"""Numbers of classes that are tried, over the expected number; one class and all classes are tried, too."""
DISTANCE, MOVE, CLUSTERS = 2.0, 3.0, 5.0
"""Factors of the log-linear pool: rounded fits, each family of data left out in turn (docs/engines.md)."""
FLATTER = 4.0
"""Divides the supports in `Hypotheses.consensus`; of 1, 2, 4 and 8, chosen with all families in view."""


def class_numbers(expected: float, possible: int) -> tuple[int, ...]:
    """Return the numbers of classes that are tried, the smallest first.

    Examples
    --------
    >>> class_numbers(2.2, 7), class_numbers(20.0, 65)
    ((1, 2, 3, 7), (1, 14, 20, 28, 65))
    """
    tried = {min(max(round(step * expected), 1), possible) for step in STEPS}
    return tuple(sorted(tried | {1, possible}))


def support(number: int, expected: float, evidence: Evidence) -> float:
    """Return the logarithm of the weight of a hypothesis, up to a constant."""
    prior = -DISTANCE * abs(math.log(number / max(expected, 1.0)))
    return prior + MOVE * evidence.move + CLUSTERS * evidence.clusters


class Hypotheses:
    """The hypotheses about one target.

    Parameters
    ----------
    presence : ClassPresence
        The estimate.
    evidence : LabelEvidence
        Of the same target.
    n_target : int
        Number of target samples.
    """

    def __init__(self, presence: ClassPresence, evidence: LabelEvidence, n_target: int) -> None:
        self.estimate, self._evidence = presence, evidence
        possible = int(np.count_nonzero(presence.probability))
        self.numbers = class_numbers(presence.expected_number, max(possible, 1))
        self.supports = torch.full((len(self.numbers),), -math.inf, dtype=torch.float64)
        self._labels = torch.zeros(len(self.numbers), n_target, dtype=torch.int32)

    def presence(self, k: int) -> ClassPresence:
        """Return the probabilities of the classes under hypothesis k."""
        return self.estimate.with_number(self.numbers[k])

    def judge(self, k: int, labels: IntArray) -> dict[str, float]:
        """Set the support of hypothesis k, from the labels that it gives the target; return numbers to log."""
        evidence = self._evidence.of(labels)
        value = support(self.numbers[k], self.estimate.expected_number, evidence)
        self.supports[k], self._labels[k] = value, torch.from_numpy(labels)
        return {"classes": float(self.numbers[k]), "support": value, **evidence._asdict()}

    @property
    def tried(self) -> bool:
        """Whether all hypotheses were tried."""
        return bool(self.supports.isfinite().all())

    @property
    def first(self) -> int:
        """The index of the best supported hypothesis."""
        return int(self.supports.argmax())

    @property
    def best(self) -> ClassPresence:
        """The probabilities of the classes under the best supported hypothesis."""
        return self.presence(self.first)

    @property
    def consensus(self) -> float:
        """Share of the labels of the best supported hypothesis that the others confirm.

        Their weights ``exp(support / 4)`` are flatter than those of the classes, with which the confidence of the
        result was too high on every family of data with a severe shift.
        """
        agree = (self._labels == self._labels[self.first]).double().mean(dim=1)
        return float(torch.softmax(self.supports / FLATTER, dim=0) @ agree)

    def state(self) -> dict[str, torch.Tensor]:
        """Return what a resumed run needs."""
        return {"supports": self.supports, "labels": self._labels}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `state` returned."""
        self.supports, self._labels = state["supports"].clone(), state["labels"].clone()

    def combined_presence(self) -> ClassPresence:
        """Return the mean probabilities of the classes, each hypothesis with the weight ``exp(support)``."""
        weights = torch.softmax(self.supports, dim=0).numpy()
        parts = [self.presence(k) for k in range(len(weights))]
        probability = weights @ np.stack([part.probability for part in parts])
        share = weights @ np.stack([part.share for part in parts])
        return ClassPresence(probability, share, self.estimate.evidence)
