"""Corollaries 3.5 and 3.6 with random features: W = G o F for Gaussian noise on a linear bottleneck and its head.

In `pac_bayes_bound` only the head is random, and the features must not depend on the target sample. Here both are
drawn, as in the paper's corollaries, so both may be *adapted to the target*: what the prior needs is that the inputs
of the bottleneck do not depend on the target sample, which holds for a frozen backbone. With x0 the mean of the source
inputs,

    F(x) = V (x - x0),    G(u) = softmax(W u + b),    (V, W, b) ~ N(., t^2 I) x N(., s^2 I),

and a prior of the same form around fixed centres. The divergence is the sum of both parts. Theorems 3.2 and 3.3 hold
for every feasible plan, so one plan serves all draws; each draw has its own distances and its own Lipschitz constant. A
bias of the bottleneck moves all features alike: it is counted in b, and changes no distance.

The price is the divergence of ``V.size`` more numbers: for a bottleneck of 256 x 2048 it exceeds any target sample, and
the bound is vacuous. For narrow inputs it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import check_choice, check_count, check_features, check_matrix
from warmpot._typing import Array, FloatArray
from warmpot.bounds._gaussian import Draws, GaussianHead, HeadBound, gaussian_kl
from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.losses import DEFAULT_LOSS, check_both_features
from warmpot.bounds.pac_bayes import PILOT, Gap, head_at, pac_bayes_penalty, probability, report_draws
from warmpot.bounds.report import BoundReport
from warmpot.bounds.theorems import THEOREMS, BoundProblem
from warmpot.errors import InputError

__all__ = ["random_feature_bound"]

NOISE = (0.03, 0.1, 0.3, 1.0)
"""Default scales: noise on features and logits of a typical source sample, relative to the prior's features (or 1)."""


class FeatureBound(HeadBound):
    """Computable part of a theorem for any bottleneck and head, with one plan for all of them."""

    def __init__(
        self, problem: BoundProblem, plan: csr_array, inputs: tuple[FloatArray, FloatArray], base: BoundReport
    ) -> None:
        super().__init__(problem, plan, np.zeros(problem.source.shape[1]), base)
        xs, xt = inputs
        entries = plan.tocoo()
        scale, factor = problem.coefficients(base.alpha, base.form)
        self._mass, self._apart = scale * factor * entries.data, xs[entries.row] - xt[entries.col]
        self._xs, self._xt = xs[np.flatnonzero(np.asarray(plan.sum(axis=1)) > 0)], xt

    def draws_of(
        self, bottleneck: FloatArray, head: GaussianHead, scales: tuple[float, float], count: int, seed: Any
    ) -> Draws:
        """Draw bottlenecks and heads, and evaluate them."""
        rng, joint = np.random.default_rng(seed), self.target is not None
        terms, gammas = [], []
        for _ in range(count):
            V = bottleneck + scales[0] * rng.standard_normal(bottleneck.shape)
            self.source, self.target = self._xs @ V.T, self._xt @ V.T if joint else None
            self.distance = float(self._mass @ np.linalg.norm(self._apart @ V.T, axis=1))
            one, gamma = self.terms(head.drawn(scales[1], rng))
            terms.append(one)
            gammas.append(gamma)
        return Draws(np.array(terms), np.array(gammas))


def random_feature_bound(
    source: Array,
    labels: Array,
    target: Array,
    bottleneck: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    kind: str = "joint",
    alpha: float = 1.0,
    beta: float = 1.0,
    form: str = "sharp",
    prior: tuple[Array, Array, Array | None] | None = None,
    noise: Sequence[float] = NOISE,
    inputs_saw_target: bool = True,
    delta: float = 0.04,
    delta_mc: float = 0.01,
    draws: int = 200,
    seed: int = 0,
) -> BoundReport:
    """Bound the loss of a randomised linear bottleneck and head on the target population.

    Parameters
    ----------
    source, labels, target
        *Inputs* of the bottleneck for both domains, and class codes of the source.
    bottleneck : (d, D) array or tensor
        V, as in ``torch.nn.Linear``; adapted to the target or not.
    weight, bias : (C, d) and (C,) arrays or tensors
        The head on the bottleneck's features. A bias c of the bottleneck enters as ``bias + weight @ c``.
    kind, alpha, beta, form, delta, delta_mc, draws, seed
        As in `pac_bayes_bound`.
    prior : (V0, W0, b0), optional
        Centre of the prior, from the source alone; by default all 0.
    noise : sequence of float
        Scales of prior and posterior, fixed in advance; delta is split over all pairs of them.
    inputs_saw_target : bool
        Whether the inputs, or their scaling, depend on the target sample: then the number is not a certificate.
    """
    delta, delta_mc = probability("delta", delta), probability("delta_mc", delta_mc)
    xs, xt = check_both_features(source, target)
    middle = xs.mean(axis=0)
    xs, xt = xs - middle, xt - middle
    V = check_matrix("bottleneck", bottleneck, width=xs.shape[1])
    check_features("bottleneck", V)
    head = head_at("weight", weight, bias, V @ middle)
    start, first = GaussianHead(np.zeros_like(head.weight), np.zeros_like(head.bias)), np.zeros_like(V)
    if prior is not None:
        first = check_matrix("prior bottleneck", prior[0], width=xs.shape[1])
        start = head_at("prior", prior[1], prior[2], first @ middle)
        if (first.shape, start.weight.shape) != (V.shape, head.weight.shape):
            got, allowed = f"shapes {first.shape} and {start.weight.shape}", f"{V.shape} and {head.weight.shape}"
            raise InputError("prior", got=got, allowed=allowed, remedy="Pass a bottleneck and head of this shape.")
    joint = check_choice("kind", kind, THEOREMS) == "joint"
    features = xs @ V.T, xt @ V.T
    proba = head.proba(features[0]), head.proba(features[1]) if joint else None
    loss = DEFAULT_LOSS[kind]
    gamma = head_lipschitz(head.weight, loss)
    problem = BoundProblem(kind, features[0], labels, features[1], *proba, gamma=gamma, loss=loss)
    plan, record = problem.planned(alpha, beta, form=form)
    base = replace(problem.report(alpha, beta, plan=plan, form=form), plan=record)

    bound, m = FeatureBound(problem, plan, (xs, xt), base), len(xt)
    # Scales of the prior may depend on the source and on the prior's centre, not on the bottleneck that was learnt.
    typical, length = (math.sqrt(float(np.square(x).sum(axis=1).mean())) or 1.0 for x in (xs, xs @ first.T))
    grid = [(t * length / typical, s / math.sqrt(1.0 + length**2)) for t, s in product(noise, noise)]
    square = float(np.square(V - first).sum()), head.square_from(start)
    gaps = []
    for t, s in grid:
        kl = gaussian_kl(square[0], V.size, t, t) + gaussian_kl(square[1], head.size, s, s)
        gaps.append(Gap(s, s, kl, pac_bayes_penalty(kl, m, delta / len(grid)), (16, len(grid))))
    pilot_seed, final_seed = np.random.SeedSequence(check_count("seed", seed, minimum=0)).spawn(2)
    totals = [bound.draws_of(V, head, scales, PILOT, pilot_seed).means[0] + gap.penalty.total
              for scales, gap in zip(grid, gaps, strict=True)]  # fmt: skip
    pick = int(np.argmin(totals))
    final = bound.draws_of(V, head, grid[pick], check_count("draws", draws), final_seed)
    report = report_draws(base, final, gaps[pick], delta, delta_mc)
    notes = [f"random bottleneck and head: scales {grid[pick][0]:.3g} and {grid[pick][1]:.3g}"]
    if inputs_saw_target:
        notes.append("NOT A CERTIFICATE: the inputs of the bottleneck depend on the target sample")
    return replace(report, theorem=f"{report.theorem}, random features", notes=(*report.notes, *notes))
