"""Which source classes are in the target: a probability and a share for each, without target labels.

The evidence of a class is what a discriminant classifier of the source says of the target: the share of the samples
predicted as the class, and how often their nearest target samples are predicted the same. Samples of a class that is
there lie together; those predicted as an absent class are strays among samples of other classes.

What this evidence is worth depends on the data, so it is calibrated on them. Half of the source plays the target: some
classes are taken away, and each remaining class is moved by a random vector as long as the moves seen between the
source and the real target, in the directions in which the classes differ. There the truth is known, and a logistic
regression learns the probability of a class from its evidence. The class sets are at first of sizes whose logarithm is
uniform, then drawn from the current probabilities, so that the number of classes is estimated too and not assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular, svd
from scipy.sparse import csr_array

from warmpot._checks import check_count, check_matrix
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.weights._logistic import fit_logistic
from warmpot.weights.axes import indicators, principal_axes, smallest_of_rows, with_signs, without_order
from warmpot.weights.formulas import class_codes

__all__ = ["STATES", "ClassPresence", "axes_of_scatter", "discriminant_axes", "estimate_presence", "unit_rows"]

STATES = ("present", "doubtful", "absent")
CERTAIN = 0.95
"""A class is present from this probability, absent below 1 minus it, doubtful between; training ignores absent ones."""
SHRINKAGE = 0.3
"""Of the scatter within classes, in units of the mean variance."""
NEIGHBOURS = 0.25
"""Neighbours that are asked, as a share of a class of typical size: a simulated target may be smaller than the real."""
AXES = 256
"""Principal axes kept: the discriminant needs a covariance."""
MOST = 5000
"""Samples of a domain that are looked at; drawn at random from more."""
LEAST = 1e-9
"""Odds of a class are at least this; how unlikely classes are ordered is worth something, too."""
BISECTIONS = 60
ROUNDS = 3
"""Of simulation: the first with class sets of any size, the others with sets drawn from the probabilities so far."""


@dataclass(frozen=True)
class ClassPresence:
    """Estimate of which source classes occur in the target.

    Attributes
    ----------
    probability : (C,) array
        Of each class to occur in the target.
    share : (C,) array
        Expected share of the target samples in each class; they sum to 1.
    evidence : mapping of str to (C,) array
        "predicted share" by a classifier of the source, and after `given` the "adapted share"; "consistency": how often
        the nearest target samples of those predicted as the class are predicted the same, over the mean of all; 0 for a
        class that is never predicted.
    """

    probability: FloatArray
    share: FloatArray
    evidence: Mapping[str, FloatArray]

    @property
    def expected_number(self) -> float:
        """Expected number of classes in the target."""
        return float(self.probability.sum())

    @property
    def states(self) -> tuple[str, ...]:
        """Per class: "present", "doubtful" or "absent"."""
        likely, unlikely = self.probability >= CERTAIN, self.probability < 1 - CERTAIN
        return tuple(np.where(likely, STATES[0], np.where(unlikely, STATES[2], STATES[1])).tolist())

    @property
    def present(self) -> dict[int, float]:
        """Classes that are more likely present than absent, with their expected shares, the largest first."""
        order = np.argsort(-self.share, kind="stable")
        return {int(k): float(self.share[k]) for k in order if self.probability[k] >= 0.5}

    @property
    def factors(self) -> FloatArray:
        """Factors of source weights and capacities: the probability, and 0 for a class that is absent.

        Were they a little above 0, a classifier could still put shifted samples of a present class there. In a small
        target with many possible classes, those of small probability may be most of the expected number together:
        they are set to 0, the smallest first, as long as they are at most ``1 - CERTAIN`` of it.
        """
        order = np.argsort(self.probability, kind="stable")
        few = np.cumsum(self.probability[order]) <= (1 - CERTAIN) * self.expected_number
        factors = self.probability.copy()
        factors[order[few & (factors[order] < 1 - CERTAIN)]] = 0.0
        return factors

    def with_number(self, number: float) -> ClassPresence:
        """Return the estimate with an expected number of classes: the odds of all classes times the same factor.

        Examples
        --------
        >>> estimate = ClassPresence(np.array([0.9, 0.5, 0.1]), np.array([0.6, 0.3, 0.1]), {})
        >>> estimate.with_number(1.0).probability.round(3)
        array([0.733, 0.234, 0.033])
        """
        possible = self.probability > 0
        if number >= np.count_nonzero(possible):
            probability = possible.astype(float)
        else:
            likely = np.clip(self.probability, LEAST, 1 - LEAST)
            odds = np.log(likely / (1 - likely))
            low, high = -100.0, 100.0
            for _ in range(BISECTIONS):
                middle = (low + high) / 2
                probability = np.where(possible, 0.5 * (1 + np.tanh((odds + middle) / 2)), 0.0)
                low, high = (low, middle) if probability.sum() > number else (middle, high)
        return ClassPresence(probability, _shares(self.share * probability), self.evidence)

    def given(self, predicted: FloatArray, n: int) -> ClassPresence:
        """Return the estimate after an adapted classifier predicted n target samples with these shares.

        The odds are multiplied by ``2 K share``, where K is the expected number of classes: half of an equal share
        changes nothing. The factor is not calibrated. It is always applied to this estimate, never to an updated one:
        shares that follow from probabilities do not compound.
        """
        likely = np.clip(self.probability, 1e-4, 1 - 1e-4)
        factors = 2 * max(self.expected_number, 1.0) * (predicted + 0.5 / n)
        # In a target of fewer samples than classes, not to be predicted is no evidence for a class either.
        odds = likely / (1 - likely) * np.where(predicted > 0, factors, np.minimum(factors, 1.0))
        probability = np.where(self.probability > 0, odds / (1 + odds), 0.0)
        evidence = {**self.evidence, "adapted share": predicted}
        return ClassPresence(probability, _shares(predicted * probability), evidence)

    def source_share(self, labels: Any) -> float:
        """Return the expected share of the source samples whose class occurs in the target."""
        return float(self.probability[class_codes(labels, len(self.probability))].mean())


class _Look(NamedTuple):
    """Predictions of the target samples, how consistent they are with their neighbours', and the evidence (C, 3)."""

    predicted: IntArray
    consistency: FloatArray
    evidence: FloatArray


def estimate_presence(
    xs: Any, labels: Any, xt: Any, *, n_classes: int | None = None, unit: bool = True, simulations: int = 12,
    seed: int = 0,
) -> ClassPresence:  # fmt: skip
    """Estimate which classes of the source are in the target.

    Parameters
    ----------
    xs, xt : (n_s, d) and (n_t, d) arrays
        Features of both domains.
    labels : (n_s,) array of int
        Class codes of the source samples.
    n_classes : int, optional
        Default: one more than the largest code. A class without a source sample has probability 0.
    unit : bool
        Bring the features to length 1: for embeddings. False for measurements.
    simulations : int
        Simulated targets per round of calibration.
    seed : int
        Of the simulation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> centres, labels = 4 * rng.normal(size=(6, 8)), np.repeat(np.arange(6), 30)
    >>> source = centres[labels] + rng.normal(size=(180, 8))
    >>> target = centres[labels[:60]] + rng.normal(size=(60, 8)) + 0.5
    >>> estimate_presence(source, labels, target, unit=False).states
    ('present', 'present', 'absent', 'absent', 'absent', 'absent')
    """
    xs, xt = check_matrix("xs", xs), check_matrix("xt", xt)
    if xs.shape[1] != xt.shape[1]:
        got, allowed = f"{xs.shape[1]} and {xt.shape[1]} columns", "the same features in both domains"
        raise InputError("xs, xt", got=got, allowed=allowed, remedy="Extract both with the same network.")
    check_count("simulations", simulations)
    codes = class_codes(labels, 2**31 if n_classes is None else check_count("n_classes", n_classes))
    if len(codes) != len(xs):
        got, remedy = f"{len(codes)} for {len(xs)} samples", "Pass one class code per row of xs."
        raise InputError("labels", got=got, allowed="as many as samples", remedy=remedy)
    number = n_classes if n_classes is not None else int(codes.max()) + 1
    rng = np.random.default_rng(seed)
    order = without_order(xs, codes)
    xs, codes, xt = xs[order], codes[order], xt[without_order(xt)]
    if len(xs) > MOST:  # of every class at least some
        source = np.argsort(_ranks(rng.permutation(len(xs)), codes), kind="stable")[:MOST]
        xs, codes = xs[source], codes[source]
    if len(xt) > MOST:
        xt = xt[rng.permutation(len(xt))[:MOST]]
    xs, xt = _principal(xs, xt, unit)
    simulator = _Simulator(xs, codes, xt, number, unit, rng)
    look = simulator.real
    probability = simulator.calibrated(simulations)
    counts = np.bincount(look.predicted, minlength=number)
    evidence = {"predicted share": counts / len(xt), "consistency": look.evidence[:, 1]}
    return ClassPresence(probability, _shares(counts * probability), evidence)


def _ranks(order: IntArray, labels: IntArray) -> IntArray:
    """Return the rank of each sample within its class, 0 first, where samples are ranked as in `order`."""
    order = order[np.argsort(labels[order], kind="stable")]
    ends = np.bincount(labels).cumsum()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - (ends - np.bincount(labels))[labels[order]]
    return ranks


def _shares(masses: FloatArray) -> FloatArray:
    return masses / masses.sum() if masses.any() else np.full(len(masses), 1 / len(masses))


def _principal(xs: FloatArray, xt: FloatArray, unit: bool) -> tuple[FloatArray, FloatArray]:
    """Coordinates on the principal axes of both domains; of length 1 before and after if `unit`."""
    x = np.concatenate([xs, xt])
    x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True) if unit else np.abs(x).max(), 1e-300)
    x -= x.mean(axis=0)
    if x.shape[1] > AXES:
        x = x @ principal_axes(x, AXES)[1]
    x = unit_rows(x) if unit else x / max(float(x.std()), 1e-300)
    return x[: len(xs)], x[len(xs) :]


def unit_rows(x: FloatArray) -> FloatArray:
    """Rows scaled to length 1; rows of zeros stay."""
    scaled: FloatArray = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300)
    return scaled


def discriminant_axes(
    x: FloatArray, targets: FloatArray | csr_array, weights: FloatArray, shrinkage: float = SHRINKAGE
) -> FloatArray:
    r"""Axes that separate classes: maximise ``tr P'BP`` under ``P'(W + shrinkage s I)P = I`` (Fisher's discriminant).

    B and W are the scatter of the class means and within classes, s the mean variance.

    Parameters
    ----------
    x : (n, d) array
        Features, float32 or float64: sums over samples are computed in that.
    targets : (n, C) array, dense or sparse
        Class probabilities.
    weights : (n,) array
        Nonnegative; their scale does not matter.

    Returns
    -------
    (d, k) array
        With ``k = min(d, max(C - 1, 2))``, the best axis first.
    """
    roots = np.sqrt(weights).astype(x.dtype)[:, None]
    x = x - (weights / weights.sum()).astype(x.dtype) @ x  # an offset of all samples separates nothing
    x *= roots
    groups = targets.T  # once: of a sparse matrix it costs more than a small product
    return axes_of_scatter(x.T @ x, groups @ (x * roots), groups @ weights, shrinkage)


def axes_of_scatter(total: FloatArray, sums: FloatArray, sizes: FloatArray, shrinkage: float = SHRINKAGE) -> FloatArray:
    """Return the axes of `discriminant_axes` for centred samples of which only sums are known.

    Parameters
    ----------
    total : (d, d) array
        Sum of weighted products ``w x x'``.
    sums : (C, d) array
        Sums of weighted samples of each class.
    sizes : (C,) array
        Sums of the weights of each class.
    """
    width, kept = len(total), min(len(total), max(len(sizes) - 1, 2))
    # the class means, times the roots of the sizes: B is their product with themselves, of rank C at most
    means = sums / np.sqrt(np.maximum(sizes, 1e-300))[:, None]
    variance = float(np.trace(total)) / width
    ridge = shrinkage * variance if variance > 1e-30 else 1.0  # features that are all the same have no axes
    within = total - means.T @ means
    within[np.diag_indices(width)] += ridge
    # In coordinates where the scatter within is the identity (R'R = W) the axes are singular vectors of the means.
    root = cholesky(within, overwrite_a=True)
    whitened = solve_triangular(root, means.T, trans=1)
    if whitened.shape[1] < kept:
        whitened = np.pad(whitened, ((0, 0), (0, kept - whitened.shape[1])))
    axes = svd(whitened, full_matrices=False)[0][:, :kept]
    return with_signs(solve_triangular(root, axes))


def _look(xs: FloatArray, labels: IntArray, xt: FloatArray, n_classes: int, unit: bool) -> _Look:
    """Classify the target by the nearest class mean on the discriminant axes, and collect the evidence.

    Done twice: the second time the target is translated by the mean distance of its consistent samples to the classes
    they were predicted as. A shift that all classes share is no evidence.
    """
    one_hot = indicators(labels, n_classes)
    groups, sizes = one_hot.T, np.bincount(labels, minlength=n_classes)
    axes = discriminant_axes(xs, one_hot, np.ones(len(xs)))
    means = groups @ xs / np.maximum(sizes, 1)[:, None]
    centre = np.concatenate([xs, xt]).mean(axis=0)
    for last in (False, True):
        predicted, consistency = _nearest_class(xs, xt, groups, sizes, axes, centre, unit)
        if not last and consistency.any():
            weights = consistency / consistency.sum()
            xt = xt - weights @ (xt - means[predicted])
            centre = xs.mean(axis=0)
    n, counts = len(xt), np.bincount(predicted, minlength=n_classes)
    per_class = np.bincount(predicted, consistency, minlength=n_classes) / np.maximum(counts, 1)
    # half a sample: a class that is never predicted has a finite value
    share, largest = np.log((counts + 0.5) * n_classes / n), np.log((counts + 0.5) / (counts.max() + 0.5))
    # Where no two neighbours agree, such as with one sample per class, consistency is no evidence.
    overall = float(consistency.mean())
    relative = per_class / overall if overall > 0 else (counts > 0).astype(float)
    return _Look(predicted, consistency, np.stack([share, relative, largest], axis=1))


def _nearest_class(
    xs: FloatArray, xt: FloatArray, groups: Any, sizes: IntArray, axes: FloatArray, centre: FloatArray, unit: bool
) -> tuple[IntArray, FloatArray]:
    """Predict the target, and count how often the nearest target samples are predicted the same."""
    source, target = (xs - centre) @ axes, (xt - centre) @ axes
    source, target = (unit_rows(source), unit_rows(target)) if unit else (source, target)
    means = groups @ source / np.maximum(sizes, 1)[:, None]
    means = unit_rows(means) if unit else means
    scores = target @ means.T - 0.5 * (means * means).sum(axis=1)
    predicted = np.where(sizes > 0, scores, -np.inf).argmax(axis=1)
    counts = np.bincount(predicted)
    k = min(max(round(NEIGHBOURS * float(counts @ counts) / len(target)), 1), len(target) - 1)
    if k < 1:
        return predicted, np.ones(len(target))
    distances, same = _distances(target), predicted[:, None] == predicted
    reach = smallest_of_rows(distances, k)
    near = distances <= reach
    agree, excess = np.count_nonzero(near & same, axis=1).astype(float), np.count_nonzero(near, axis=1) - k
    if excess.any():  # copies of samples are equally far: they share the places that are left
        rows = np.flatnonzero(excess)
        last = distances[rows] == reach[rows]
        agree[rows] -= excess[rows] * np.count_nonzero(last & same[rows], axis=1) / np.count_nonzero(last, axis=1)
    return predicted, agree / k


def _distances(x: FloatArray) -> FloatArray:
    """Squared distances up to a constant per row, in float32; no sample is near itself."""
    y = (x - x.mean(axis=0)).astype(np.float32)
    distances: FloatArray = y @ y.T
    distances *= -2  # in place: new arrays of this size take longer than the product
    distances += (y * y).sum(axis=1)
    np.fill_diagonal(distances, np.inf)
    return distances


class _Simulator:
    """Targets made of half of the source, and the probabilities that are calibrated on them."""

    def __init__(
        self, xs: FloatArray, labels: IntArray, xt: FloatArray, n_classes: int, unit: bool, rng: np.random.Generator
    ) -> None:
        self.xs, self.labels, self.n_classes, self.unit, self.rng = xs, labels, n_classes, unit, rng
        self.n_target = len(xt)
        self.real = _look(xs, labels, xt, n_classes, unit)
        predicted, consistency = self.real.predicted, self.real.consistency
        mass = np.bincount(predicted, consistency, minlength=n_classes)
        if not mass.any():
            consistency, mass = np.ones(len(xt)), np.bincount(predicted, minlength=n_classes).astype(float)
        here = mass > 0
        sizes = np.bincount(labels, minlength=n_classes)
        self.possible, self.split = sizes > 0, sizes > 1
        source = indicators(labels, n_classes).T @ xs / np.maximum(sizes, 1)[:, None]
        target = indicators(predicted, n_classes).T @ (xt * consistency[:, None]) / np.where(here, mass, 1)[:, None]
        moves, share = (target - source)[here], mass[here] / mass.sum()
        self.move = share @ moves
        # As large as the moves that are seen, but in the directions in which classes differ: those that are seen are of
        # the classes that were predicted, and where predictions fail these are few, and always the same.
        size = float(share @ np.square(moves - self.move).sum(axis=1))
        apart = source[self.possible] - source[self.possible].mean(axis=0)
        self.deviations = apart * np.sqrt(size / max(float(np.square(apart).sum()), 1e-300))

    def calibrated(self, simulations: int) -> FloatArray:
        """Return the probability of each class."""
        if not self.split.any():  # no class has a sample for either half
            return self.possible.astype(float)
        probability: FloatArray | None = None
        for _ in range(ROUNDS):
            runs = [self._simulated(self._classes(probability)) for _ in range(simulations)]
            evidence, present = (np.concatenate(parts) for parts in zip(*runs, strict=True))
            if present.all() or not present.any():
                break
            probability = np.where(self.possible, self._learned(evidence, present), 0.0)
        if probability is None:  # every simulated target had all classes: there is only one
            probability = self.possible.astype(float)
        return probability / min(float(probability.sum()), 1.0)  # a target has a class

    def _classes(self, probability: FloatArray | None) -> BoolArray:
        """Draw a set of classes that can be simulated, as a mask; never an empty one."""
        classes = np.flatnonzero(self.split)
        drawn = np.zeros(self.n_classes, bool)
        if probability is None:
            number = int(np.exp(self.rng.uniform(0.0, np.log(len(classes) + 1))))
            drawn[self.rng.permutation(classes)[:number]] = True
            return drawn
        for _ in range(20):
            drawn[classes] = self.rng.random(len(classes)) < probability[classes]
            if drawn.any():
                return drawn
        drawn[classes[probability[classes].argmax()]] = True
        return drawn

    def _simulated(self, classes: BoolArray) -> tuple[FloatArray, BoolArray]:
        """Return the evidence on one simulated target, and which classes it has."""
        order = self.rng.permutation(len(self.labels))
        odd = self.rng.integers(2, size=self.n_classes) * self.split  # a class of one sample is never the target's
        second = (_ranks(order, self.labels) + odd[self.labels]) % 2 == 1
        first = np.flatnonzero(~second)
        second = order[(second & classes[self.labels])[order]][: self.n_target]
        labels = self.labels[second]
        draws = self.rng.standard_normal((self.n_classes, len(self.deviations)))
        target = self.xs[second] + (self.move + draws @ self.deviations)[labels]
        target = unit_rows(target) if self.unit else target
        look = _look(self.xs[first], self.labels[first], target, self.n_classes, self.unit)
        return look.evidence[self.split], np.isin(np.flatnonzero(self.split), labels)

    def _learned(self, evidence: FloatArray, present: BoolArray) -> FloatArray:
        centre, scale = evidence.mean(axis=0), np.maximum(evidence.std(axis=0), 1e-9)
        known, asked = (evidence - centre) / scale, (self.real.evidence - centre) / scale
        coefficients, intercept = fit_logistic(known, present)
        if (against := coefficients < 0).any():  # more evidence is never against a class: what seems so is noise
            known[:, against] = asked[:, against] = 0.0
            coefficients, intercept = fit_logistic(known, present)
        probability: FloatArray = 0.5 * (1 + np.tanh((asked @ coefficients + intercept) / 2))
        return probability
