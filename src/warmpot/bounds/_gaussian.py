"""Gaussian distributions over linear heads: their divergence, their draws, and the terms of a theorem for each draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from warmpot._typing import FloatArray
from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.report import BoundReport
from warmpot.bounds.theorems import BoundProblem

__all__ = ["Draws", "GaussianHead", "HeadBound", "gaussian_kl"]


def gaussian_kl(squared_distance: float, size: int, scale: float, prior_scale: float) -> float:
    """KL(N(m, s^2 I) || N(m0, s0^2 I)) in `size` dimensions, with `squared_distance` ``||m - m0||^2``.

    Examples
    --------
    >>> gaussian_kl(8.0, 3, 2.0, 2.0)
    1.0
    """
    log_ratio = 2.0 * (math.log(scale) - math.log(prior_scale))
    return 0.5 * (size * max(0.0, math.expm1(log_ratio) - log_ratio) + squared_distance / prior_scale**2)


@dataclass(frozen=True)
class GaussianHead:
    """Centre of a Gaussian over heads ``softmax(W (u - origin) + bias)``.

    The bias is the one at `origin`, the mean of the source features: noise in W then moves the logits by the distance
    from there, not from 0.
    """

    weight: FloatArray
    bias: FloatArray

    @property
    def size(self) -> int:
        """Dimensions that change the softmax: a shift common to all classes does not."""
        classes, features = self.weight.shape
        return int((classes - 1) * (features + 1))

    def square_from(self, other: GaussianHead) -> float:
        """Squared distance of two centres, without the part that is common to all classes."""
        change = np.column_stack([self.weight - other.weight, self.bias - other.bias])
        return float(np.square(change - change.mean(axis=0)).sum())

    def drawn(self, scale: float, rng: np.random.Generator) -> GaussianHead:
        """Draw a head."""
        weight = self.weight + scale * rng.standard_normal(self.weight.shape)
        return GaussianHead(weight, self.bias + scale * rng.standard_normal(self.bias.shape))

    def proba(self, centred: FloatArray) -> FloatArray:
        """Class probabilities of features minus the origin."""
        from scipy.special import softmax  # here: it is slow to import, and fits import this module

        proba: FloatArray = softmax(centred @ self.weight.T + self.bias, axis=1)
        return proba


class Draws(NamedTuple):
    """Computable terms (one row per head) and Lipschitz constants of drawn heads."""

    terms: FloatArray
    gammas: FloatArray

    @property
    def bounds(self) -> FloatArray:
        """Sum of the terms of each head, at most 1."""
        bounds: FloatArray = np.minimum(1.0, self.terms.sum(axis=1))
        return bounds

    @property
    def clipped_terms(self) -> FloatArray:
        """Terms scaled down to sum to 1 where they sum to more."""
        terms: FloatArray = self.terms / np.maximum(1.0, self.terms.sum(axis=1, keepdims=True))
        return terms

    @property
    def means(self) -> tuple[float, float]:
        """Mean bound of a head, with and without clipping at 1."""
        return float(self.bounds.mean()), float(self.terms.sum(axis=1).mean())


class HeadBound:
    """Computable part of Theorem 3.2 or 3.3 for any linear head, with one plan for all of them.

    The theorems hold for every feasible plan, so one plan may serve all heads, each with its own Lipschitz constant.
    Of the plan only sums are needed: those of its rows, its total distance, and its mass between each source class
    and each target sample. `base` is the theorem's bound with this plan, for any head; that of `problem` is not used.
    """

    def __init__(self, problem: BoundProblem, plan: csr_array, origin: FloatArray, base: BoundReport) -> None:
        scale, factor = problem.coefficients(base.alpha, base.form)
        entries, p = plan.tocoo(), np.asarray(plan.sum(axis=1))
        used = np.flatnonzero(p > 0)
        self.loss, self.left_out = problem.loss, base["target left out"].value or 0.0
        self.source, self.labels, self.p = problem.source[used] - origin, problem.labels[used], scale * p[used]
        self.distance = scale * factor * float(entries.data @ problem.matched_distances(entries.row, entries.col))
        self.target: FloatArray | None = None
        if problem.kind == "joint":
            self.target = problem.target - origin
            shape = (int(problem.labels.max()) + 1, problem.shape[1])
            cells = (problem.labels[entries.row], entries.col)
            self.by_class = csr_array((scale * entries.data, cells), shape=shape).toarray()

    def terms(self, head: GaussianHead) -> tuple[list[float], float]:
        """Return the computable terms in the order of the theorem's report, and the head's Lipschitz constant."""
        gamma = head_lipschitz(head.weight, self.loss.name).value
        terms = [float(self.p @ self.loss.of_labels(head.proba(self.source), self.labels)), gamma * self.distance]
        if self.target is not None:
            losses = self.loss.of_pairs(np.arange(len(self.by_class)), head.proba(self.target))
            terms.append(float(np.vdot(self.by_class, losses)))
        return [*terms, self.left_out], gamma

    def draws(self, centre: GaussianHead, scale: float, count: int, seed: np.random.SeedSequence) -> Draws:
        """Draw heads around `centre` and evaluate them."""
        rng = np.random.default_rng(seed)
        terms, gammas = zip(*(self.terms(centre.drawn(scale, rng)) for _ in range(count)), strict=True)
        return Draws(np.array(terms), np.array(gammas))
