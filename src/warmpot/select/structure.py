"""Validators that ask whether the target predictions fit the geometry of the data.

A candidate learns its features, and collapsed ones make any prediction look consistent; the inputs are the same for all
candidates. Both scores are 0 for predictions no better than chance and for a single class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_choice, check_count
from warmpot._typing import FloatArray, IntArray
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence
from warmpot.weights import estimate_present_classes, predicted_shares

__all__ = ["Neighbours", "Reverse"]

SPACES = ("features", "inputs")


def _above_chance(agreement: float, chance: float) -> float:
    return (agreement - chance) / (1 - chance) if chance < 1 else 0.0


@dataclass(frozen=True)
class Neighbours(Validator):
    """Agreement of target samples with their nearest neighbours on the predicted class, at most 1.

    The mean share of the `k` nearest other target samples that get the same prediction, above what the class shares
    give by chance (Cohen's kappa): 1 for perfect agreement, 0 for random predictions and for a single class.

    Deviations: no paper's; k-nearest-neighbour consistency is folklore.

    Parameters
    ----------
    k : int
        At most half of the other samples are asked: were all of them neighbours, nothing would set candidates apart.
    space : "inputs" or "features"
        Where the neighbours are; "inputs" means the features when the evidence holds no inputs.
    """

    k: int = 5
    space: str = "inputs"

    name: ClassVar[str] = "neighbours"
    summary: ClassVar[str] = "whether near target samples are predicted alike, beyond chance"

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_choice("space", self.space, SPACES)

    def _score(self, evidence: Evidence) -> float:
        from sklearn.neighbors import NearestNeighbors

        predictions, x = evidence.target_predictions, evidence.points("target", self.space)
        if len(x) == 1:
            return 0.0
        k = min(self.k, max((len(x) - 1) // 2, 1))
        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x - x.mean(axis=0))
        near = search.kneighbors(return_distance=False)
        agreement = float((predictions[near] == predictions[:, None]).mean())
        shares = predicted_shares(evidence.target_logits)
        return _above_chance(agreement, float(shares @ shares))


@dataclass(frozen=True)
class Reverse(Validator):
    """Reverse validation (Zhong et al. 2010; Ganin et al. 2016): learn from the target, test on the source.

    A classifier is trained on the target samples with their predicted classes and tested on the held part of the
    source (on all of it if none was held). Under partial domain adaptation it cannot know the classes that the target
    lacks, so only the source classes believed present count (`estimate_present_classes`). To name few classes is
    then easy: the score is the mean recall of these classes above chance, which is 0 for a single class.

    Deviations: the reverse classifier is the nearest class mean, not the method again; above-chance recall as said.

    Parameters
    ----------
    space : "features" or "inputs"
        Where it is learned. True labels test it, so collapsed features gain nothing here.
    """

    space: str = "features"

    name: ClassVar[str] = "reverse"
    summary: ClassVar[str] = "a classifier learned from the target predictions, tested on the source"

    def __post_init__(self) -> None:
        check_choice("space", self.space, SPACES)

    def _score(self, evidence: Evidence) -> float:
        present = np.sort(list(estimate_present_classes(predicted_shares(evidence.target_logits))))
        side, labels = "source", evidence.source_labels
        if evidence.held_labels is not None:
            side, labels = "held", evidence.held_labels
        counts = np.isin(labels, present)
        if len(present) < 2 or not counts.any():
            return 0.0
        x, points = evidence.points("target", self.space), evidence.points(side, self.space)[counts]
        found, labels = present[_nearest_mean(x, evidence.target_predictions, present, points)], labels[counts]
        recalls = [float((found[labels == k] == k).mean()) for k in np.unique(labels)]
        return _above_chance(float(np.mean(recalls)), 1 / len(present))


def _nearest_mean(x: FloatArray, y: IntArray, classes: IntArray, points: FloatArray) -> IntArray:
    """Position in `classes` of the one whose mean is nearest to each point."""
    centre = x.mean(axis=0)  # a common shift keeps the digits of the products
    means = np.stack([x[y == k].mean(axis=0) for k in classes]) - centre
    found: IntArray = ((points - centre) @ means.T - 0.5 * (means * means).sum(axis=1)).argmax(axis=1)
    return found
