"""Validators that compare the target predictions with the geometry of the data.

Features are learned, and collapsed ones make any prediction look consistent; inputs are the same for all candidates.
Both scores are 0 for random predictions and for a single class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmpot._checks import check_choice, check_count
from warmpot._typing import FloatArray, IntArray
from warmpot.select.base import Validator
from warmpot.select.candidate import Candidate
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

    Deviations: not from a paper; k-nearest-neighbour consistency is folklore.

    Parameters
    ----------
    k : int
        Number of neighbours, at most half of the other samples: with all of them, every candidate would score the same.
    space : "inputs" or "features"
        Space of the distances; features are used if the candidate has no inputs.
    """

    k: int = 5
    space: str = "inputs"

    name: ClassVar[str] = "neighbours"
    summary: ClassVar[str] = "whether near target samples get the same prediction, beyond chance"

    def __post_init__(self) -> None:
        check_count("k", self.k)
        check_choice("space", self.space, SPACES)

    def _score(self, candidate: Candidate) -> float:
        from sklearn.neighbors import NearestNeighbors

        predictions, x = candidate.target_predictions, candidate.points("target", self.space)
        if len(x) == 1:
            return 0.0
        k = min(self.k, max((len(x) - 1) // 2, 1))
        search = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(x - x.mean(axis=0))
        near = search.kneighbors(return_distance=False)
        agreement = float((predictions[near] == predictions[:, None]).mean())
        shares = predicted_shares(candidate.target_logits)
        return _above_chance(agreement, float(shares @ shares))


@dataclass(frozen=True)
class Reverse(Validator):
    """Reverse validation (Zhong et al. 2010; Ganin et al. 2016): learn from the target, test on the source.

    A classifier is trained on the target samples with their predicted classes and tested on the held-out part of the
    source (on all of it if none is held out). In partial domain adaptation it cannot know the classes that the target
    lacks, so only source classes estimated to be present count (`estimate_present_classes`). Fewer classes are easier,
    so the score is the mean recall of these classes above chance, which is 0 for a single class.

    Deviations: the reverse classifier is the nearest class mean, not the method itself; recall above chance.

    Parameters
    ----------
    space : "features" or "inputs"
        Space of the classifier. It is tested with true labels, so collapsed features do not help.
    """

    space: str = "features"

    name: ClassVar[str] = "reverse"
    summary: ClassVar[str] = "a classifier learned from the target predictions, tested on the source"

    def __post_init__(self) -> None:
        check_choice("space", self.space, SPACES)

    def _score(self, candidate: Candidate) -> float:
        present = np.sort(list(estimate_present_classes(predicted_shares(candidate.target_logits))))
        part, labels = "source", candidate.source_labels
        if candidate.held_labels is not None:
            part, labels = "held", candidate.held_labels
        counted = np.isin(labels, present)
        if len(present) < 2 or not counted.any():
            return 0.0
        x, points = candidate.points("target", self.space), candidate.points(part, self.space)[counted]
        predictions, labels = present[_nearest_mean(x, candidate.target_predictions, present, points)], labels[counted]
        recalls = [float((predictions[labels == k] == k).mean()) for k in np.unique(labels)]
        return _above_chance(float(np.mean(recalls)), 1 / len(present))


def _nearest_mean(x: FloatArray, y: IntArray, classes: IntArray, points: FloatArray) -> IntArray:
    """Return the index in `classes` of the nearest class mean of each point."""
    centre = x.mean(axis=0)  # centred products lose fewer digits
    means = np.stack([x[y == k].mean(axis=0) for k in classes]) - centre
    nearest: IntArray = ((points - centre) @ means.T - 0.5 * (means * means).sum(axis=1)).argmax(axis=1)
    return nearest
