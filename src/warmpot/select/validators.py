"""The validators, and a table of them by name; not the oracle, which is made explicitly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from warmpot._checks import check_choice, check_count, check_positive
from warmpot._settings import from_mapping, suggestion
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.costs import nearest_rows
from warmpot.errors import InputError
from warmpot.select.candidate import Candidate, Validator, log_softmax
from warmpot.select.plan_validators import Bound, PlanValue, TransportValue
from warmpot.weights import estimate_present_classes, predicted_shares
from warmpot.weights.evidence import LabelEvidence

__all__ = ["DEFAULT_VALIDATOR", "VALIDATORS", "make_validator"]

LOSSES = ("error", "cross_entropy")
SPACES = ("features", "inputs")
"""Features are learned, and collapsed ones make any prediction look consistent; inputs are the same for all."""
MAX_LOG_RATIO = 30.0
"""Largest magnitude of a log density ratio, so that the weight of a single sample stays finite."""
TINY = float(np.finfo(np.float64).tiny)
BLOCK = 1024
"""Rows of an n_t x n_t matrix in memory at the same time: 8 MB for 1,000 target samples."""


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
        weights = _density_ratio(candidate.source_features, candidate.target_features, candidate.held_features)
        if self.loss == "error":
            losses = (candidate.held_logits.argmax(axis=1) != candidate.held_labels).astype(np.float64)
        else:
            losses = -log_softmax(candidate.held_logits)[np.arange(len(weights)), candidate.held_labels]
        spread = weights - weights.mean()
        variance = float(spread @ spread)
        eta = -float(spread @ (weights * losses)) / variance if variance > 0 else 0.0
        return -float((weights * losses).mean() + eta * (weights.mean() - 1))


def _density_ratio(source: FloatArray, target: FloatArray, points: FloatArray) -> FloatArray:
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


def _entropies(log_proba: FloatArray) -> FloatArray:
    entropies: FloatArray = -(np.exp(log_proba) * log_proba).sum(axis=1)
    return entropies


@dataclass(frozen=True)
class Entropy(Validator):
    """Minus the mean entropy of the target predictions (Morerio et al. 2018), in nats.

    A collapse (one class for all samples, with certainty) has the maximal score 0; `choose` rejects collapsed
    candidates.

    Deviations: none.
    """

    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "how confident the target predictions are; blind to a collapse"

    def _score(self, candidate: Candidate) -> float:
        return float(-_entropies(candidate.target_log_proba).mean())


@dataclass(frozen=True)
class Infomax(Validator):
    """Mutual information of target samples and predictions (Shi & Sha 2012), in nats.

    The entropy of the mean prediction minus the mean entropy of the predictions, in [0, log C]. In partial domain
    adaptation the first term also rewards predictions of classes that the target lacks.

    Deviations: none.
    """

    name: ClassVar[str] = "infomax"
    summary: ClassVar[str] = "confident predictions over many classes; also rewards classes that the target lacks"

    def _score(self, candidate: Candidate) -> float:
        mean = candidate.target_proba.mean(axis=0)
        return float(-(mean * np.log(np.maximum(mean, TINY))).sum() - _entropies(candidate.target_log_proba).mean())


@dataclass(frozen=True)
class NuclearNorm(Validator):
    """Nuclear norm of the matrix of target probabilities, divided by the number of samples (BNM, Cui et al. 2020).

    Large if predictions are both confident and diverse. For one-hot predictions with class counts ``n_k`` it is
    ``sum_k sqrt(n_k) / n_t``: like `Infomax` it rewards classes that the target lacks.

    Deviations: the whole target instead of mini-batches.
    """

    name: ClassVar[str] = "nuclear"
    summary: ClassVar[str] = "nuclear norm of the target predictions: confident and diverse"

    def _score(self, candidate: Candidate) -> float:
        return float(np.linalg.svd(candidate.target_proba, compute_uv=False).sum() / len(candidate.target_proba))


@dataclass(frozen=True)
class Confusion(Validator):
    """Minus the class confusion of the target predictions (MCC, Jin et al. 2020), in [-1, 0].

    With tempered probabilities Y and sample weights v proportional to ``1 + exp(-entropy)``, the confusion of class k
    is the share of row k of ``Y' diag(v) Y`` off the diagonal; the score is minus its mean over the classes. A class
    that is never predicted has confusion 1, so classes that the target lacks lower the scores of all good candidates
    equally.

    Deviations: the whole target instead of mini-batches.

    Parameters
    ----------
    temperature : float
        Divisor of the logits; 2.5 in the paper.
    """

    temperature: float = 2.5

    name: ClassVar[str] = "confusion"
    summary: ClassVar[str] = "how rarely the target predictions confuse two classes"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, candidate: Candidate) -> float:
        log_proba = log_softmax(candidate.target_logits / self.temperature)
        proba = np.exp(log_proba)
        weights = 1 + np.exp(-_entropies(log_proba))
        confusion = proba.T @ (proba * weights[:, None])
        return float((np.diag(confusion) / np.maximum(confusion.sum(axis=1), TINY)).mean() - 1.0)


@dataclass(frozen=True)
class SoftNeighbourhood(Validator):
    """Soft neighbourhood density of the target predictions (Saito et al. 2021), in [0, log(n_t - 1)].

    The mean entropy of ``softmax(cosine / temperature)`` over the other samples, where the cosine is that of two rows
    of probabilities: large if every sample has many similar ones. A collapse scores highest;
    `choose` rejects collapsed candidates.

    Deviations: predictions only. The authors also use features, but those of a collapsed network are dense.

    Parameters
    ----------
    temperature : float
        0.05 in the paper.
    """

    temperature: float = 0.05

    name: ClassVar[str] = "snd"
    summary: ClassVar[str] = "how many target samples get similar predictions; blind to a collapse"

    def __post_init__(self) -> None:
        check_positive("temperature", self.temperature)

    def _score(self, candidate: Candidate) -> float:
        proba, n = candidate.target_proba, len(candidate.target_proba)
        if n < 3:  # with one other sample the entropy is 0
            return 0.0
        unit, total = proba / np.linalg.norm(proba, axis=1, keepdims=True), 0.0
        for start in range(0, n, BLOCK):
            similarities = unit[start : start + BLOCK] @ unit.T / self.temperature
            rows = np.arange(len(similarities))
            others = np.ones(similarities.shape, dtype=bool)
            others[rows, start + rows] = False
            total += float(_entropies(log_softmax(similarities[others].reshape(len(rows), n - 1))).sum())
        return total / n


def _above_chance(agreement: float, chance: float) -> float:
    return (agreement - chance) / (1 - chance) if chance < 1 else 0.0


@dataclass(frozen=True)
class Neighbours(Validator):
    """Agreement of target samples with their nearest neighbours on the predicted class, at most 1.

    The mean share of the `k` nearest other target samples that get the same prediction, above what the class shares
    give by chance (Cohen's kappa): 1 for perfect agreement, 0 for random predictions and for a single class.

    Not from a paper; k-nearest-neighbour consistency is a common idea.

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
        agreement, chance = self._agreement(candidate)
        return _above_chance(float(agreement.mean()), chance)

    def target_terms(self, candidate: Candidate) -> FloatArray:
        """Return the agreement of every target sample with its neighbours, above chance."""
        agreement, chance = self._agreement(candidate)
        return np.array([_above_chance(share, chance) for share in agreement.mean(axis=1)])

    def _agreement(self, candidate: Candidate) -> tuple[BoolArray, float]:
        """Return whether each target sample and each of its neighbours get the same class, and how often by chance."""
        predictions, x = candidate.target_predictions, candidate.points("target", self.space)
        if len(x) == 1:
            return np.zeros((1, 1), dtype=bool), 0.0
        k = min(self.k, max((len(x) - 1) // 2, 1))
        near = nearest_rows(x, k)
        shares = predicted_shares(candidate.target_logits)
        return predictions[near] == predictions[:, None], float(shares @ shares)


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


@dataclass(frozen=True)
class Clusters(Validator):
    """How well round clusters, one per predicted class, describe the target, with Schwarz's penalty (ours).

    The evidence by which the full engine compares its hypotheses (`warmpot.weights.evidence.Evidence`), without that of
    how far classes moved: it favours predictions that were not adapted.

    Deviations: none.

    Parameters
    ----------
    space : "features" or "inputs"
        Space of the clusters.
    """

    space: str = "inputs"

    name: ClassVar[str] = "clusters"
    summary: ClassVar[str] = "how well clusters of the target, one per predicted class, describe it"

    def __post_init__(self) -> None:
        check_choice("space", self.space, SPACES)

    def _score(self, candidate: Candidate) -> float:
        source, target = (candidate.points(side, self.space) for side in ("source", "target"))
        evidence = LabelEvidence(source, candidate.source_labels, target, candidate.n_classes)
        return evidence.of(candidate.target_predictions).clusters


def _nearest_mean(x: FloatArray, y: IntArray, classes: IntArray, points: FloatArray) -> IntArray:
    """Return the index in `classes` of the nearest class mean of each point."""
    centre = x.mean(axis=0)  # centred products lose fewer digits
    means = np.stack([x[y == k].mean(axis=0) for k in classes]) - centre
    nearest: IntArray = ((points - centre) @ means.T - 0.5 * (means * means).sum(axis=1)).argmax(axis=1)
    return nearest


_ALL: tuple[type[Validator], ...] = (
    *(SourceAccuracy, DeepEmbedded, Entropy, Infomax, NuclearNorm, Confusion, SoftNeighbourhood),
    *(Neighbours, Clusters, Reverse, PlanValue, TransportValue, Bound),
)
VALIDATORS: dict[str, type[Validator]] = {cls.name: cls for cls in _ALL}
DEFAULT_VALIDATOR = "neighbours"
"""The default validator; docs/selection.md has the comparison behind this choice."""


def make_validator(name: str, params: Mapping[str, Any] | None = None) -> Validator:
    """Make a validator from its name and parameters.

    Examples
    --------
    >>> make_validator("snd", {"temperature": 0.1}).temperature
    0.1
    """
    if name not in VALIDATORS:
        remedy = suggestion(str(name), VALIDATORS)
        if name == "oracle":
            remedy = "The oracle needs target labels; it is only in Python, as warmpot.select.Oracle."
        raise InputError("validator", got=repr(name), allowed=", ".join(VALIDATORS), remedy=remedy)
    return from_mapping(VALIDATORS[name], params or {}, "params")
