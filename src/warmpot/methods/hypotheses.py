"""How many of the source's classes the target has: several hypotheses, and how well the answer of each is supported.

The probabilities of the classes (`warmpot.weights.estimate_presence`) order the classes well, also where the shift is
severe; how many of them are there is less certain. A hypothesis is a number of classes K: the log-odds of all classes
are moved by the same amount, until the probabilities sum to K. Every hypothesis is carried through the alternation by
itself, so that no class is ruled out before adaptation was tried with it. Then its support is a log-linear pool of how
far K is from the estimate and of `Evidence` that no adaptation has touched. The best supported classifier is the
result; probabilities of classes to be in the target are averaged over all hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from warmpot._typing import IntArray
from warmpot.weights import ClassPresence
from warmpot.weights.evidence import Evidence, LabelEvidence

__all__ = ["Hypotheses", "class_numbers", "over_numbers", "support"]

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


def over_numbers(estimate: ClassPresence) -> ClassPresence:
    """Return the mean of an estimate over the numbers of classes that are tried, where there is no evidence of them.

    Examples
    --------
    >>> certain = ClassPresence(np.array([0.99, 0.01, 0.01]), np.array([0.9, 0.05, 0.05]), {})
    >>> over_numbers(certain).probability.round(2)
    array([0.99, 0.11, 0.11])
    """
    numbers = class_numbers(estimate.expected_number, max(int(np.count_nonzero(estimate.probability)), 1))
    supports = [support(number, estimate.expected_number, Evidence(0.0, 0.0)) for number in numbers]
    return _mean([estimate.with_number(number) for number in numbers], torch.tensor(supports).double().softmax(dim=0))


def _mean(parts: Sequence[ClassPresence], weights: torch.Tensor) -> ClassPresence:
    factors = weights.numpy()
    probability = factors @ np.stack([part.probability for part in parts])
    return ClassPresence(probability, factors @ np.stack([part.share for part in parts]), parts[0].evidence)


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

    def judge(self, k: int, labels: torch.Tensor) -> dict[str, float]:
        """Set the support of hypothesis k, from the labels that it gives the target; return numbers to log."""
        evidence = self._evidence.of(labels.numpy())
        value = support(self.numbers[k], self.estimate.expected_number, evidence)
        self.supports[k], self._labels[k] = value, labels
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
    def weights(self) -> torch.Tensor:
        """The weights of the hypotheses, ``exp(support)``, with the sum 1; of one that was not tried 0."""
        return self.supports.softmax(dim=0)

    def consensus(self, labels: torch.Tensor) -> float:
        """Return the share of these labels of the target that the hypotheses confirm.

        Their weights ``exp(support / 4)`` are flatter than those of the probabilities, with which it says little:
        of the tasks where it was above .95, as many had lost by adaptation as of the others.
        """
        agree = (self._labels == labels).double().mean(dim=1)
        return float((self.supports / FLATTER).softmax(dim=0) @ agree)

    def clusters_gain(self, labels: IntArray, unadapted: IntArray) -> float:
        """Return how much clearer the clusters of these labels are than those of the labels without adaptation."""
        return self._evidence.of(labels).clusters - self._evidence.of(unadapted).clusters

    def state(self) -> dict[str, torch.Tensor]:
        """Return what a resumed run needs."""
        return {"supports": self.supports, "labels": self._labels}

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Continue from what `state` returned."""
        self.supports, self._labels = state["supports"].clone(), state["labels"].clone()

    def combined_presence(self) -> ClassPresence:
        """Return the mean probabilities of the classes over the hypotheses."""
        return _mean([self.presence(k) for k in range(len(self.numbers))], self.weights)
