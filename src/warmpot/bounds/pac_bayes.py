"""From the target sample to the target population: Lemma 3.4 and Corollaries 3.5 and 3.6.

For a loss in [0, 1], a prior that does not depend on the target sample and a fixed lambda > 0, with probability
1 - delta over the target sample, for *every* posterior (Lemma 3.4 and its proof, Appendix D),

    E_post[L_population]  <=  E_post[R] + lambda / (8 n_t) + (KL(post || prior) + log(1/delta)) / lambda,

where R(w) is anything that is at least the loss on the target sample: here Theorem 3.2 or 3.3. What the proof allows:

- Chance enters once, in Hoeffding's inequality for the target sample (drawn independently, and of the source). All else
  may depend on the *source*: prior, its scale, lambda, features. The whole source, not a split of it: source labels
  enter R by a deterministic theorem, not by concentration, so a prior learned from them does not use them twice.
- Nothing that the inequality is applied to may depend on the *target sample*: not the prior, and not the features
  either. The loss with features fitted to the target sample is not an average of independent losses.
- It holds for all posteriors at once, so the posterior's scale is free; and R is a bound for every alpha, beta and
  feasible plan at once, so these are free. lambda and the prior's scale are not: choosing them from a grid splits delta
  evenly over it (union bound).
- ``L <= 1`` and the ideal term is not negative, so ``min(1, computable part) + ideal term`` bounds L as well.
- Each head is in the set of heads of its own Lipschitz constant, so the ideal term is a mean over heads as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import check_choice, check_count, check_features, check_fraction, check_matrix, check_nonnegative
from warmpot._typing import Array, FloatArray
from warmpot.bounds._gaussian import Draws, GaussianHead, HeadBound, gaussian_kl
from warmpot.bounds.intervals import mean_upper_bound
from warmpot.bounds.lipschitz import Lipschitz, head_lipschitz
from warmpot.bounds.losses import DEFAULT_LOSS, check_both_features, get_bound_loss
from warmpot.bounds.report import PAC_BAYES, BoundReport, Term
from warmpot.bounds.theorems import THEOREMS, BoundProblem
from warmpot.errors import InputError

__all__ = ["Gap", "Penalty", "head_at", "lambda_grid", "pac_bayes_bound", "pac_bayes_penalty", "probability",
           "report_draws"]  # fmt: skip

LAMBDAS = 16
NOISE = tuple(np.geomspace(0.02, 5.0, 12))  # default prior scales, on the logits of a typical source sample
PILOT = 8  # draws per posterior scale from which the scale is chosen; the bound is computed from fresh ones
SCALE_RANGE = (1e-40, 1e40)
FITTED = (
    "NOT A CERTIFICATE: the features were fitted to the target sample, the proof needs features that were not. The "
    "number is computed as if they were fixed in advance; fit f on the source or on other target samples and pass "
    "features_saw_target=False"
)


class Penalty(NamedTuple):
    """What the lemma adds to E_post[R], with the lambda that was chosen."""

    complexity: float  # KL / lambda
    confidence: float  # log(1/delta') / lambda + lambda / (8 n_t) with delta' = delta / number of lambdas
    lam: float

    @property
    def total(self) -> float:
        """Sum of both parts."""
        return self.complexity + self.confidence


def lambda_grid(n_t: int) -> FloatArray:
    """Lambdas among which one is close to the best, whatever the data.

    The best lambda is ``sqrt(8 n_t K)`` for ``K = KL + log(1/delta)``, and the lemma then adds ``sqrt(K / (2 n_t))``.
    ``1 <= K <= 2 n_t`` covers all non-vacuous bounds: from ``sqrt(8 n_t)`` to ``4 n_t``.

    Examples
    --------
    >>> lambda_grid(200)[[0, -1]]
    array([ 40., 800.])
    """
    n_t = check_count("n_t", n_t)
    return np.geomspace(np.sqrt(8.0 * n_t), 4.0 * n_t, LAMBDAS)


def pac_bayes_penalty(
    kl: float, n_t: int, delta: float, lambdas: Sequence[float] | FloatArray | None = None
) -> Penalty:
    """Return what Lemma 3.4 adds to the posterior's mean of R, at the best lambda of a grid.

    Parameters
    ----------
    kl : float
        KL(posterior || prior).
    n_t : int
        Size of the target sample.
    delta : float
        In (0, 1): probability with which the bound may fail, split evenly over the lambdas.
    lambdas : sequence of float, optional
        Fixed before the target sample is seen; `lambda_grid` by default.

    Examples
    --------
    >>> penalty = pac_bayes_penalty(1.0, 50, 0.05, [10.0, 40.0])
    >>> penalty.lam, penalty.complexity, round(penalty.confidence, 3)
    (40.0, 0.025, 0.192)
    """
    kl, n_t, delta = check_nonnegative("kl", kl, maximum=1e300), check_count("n_t", n_t), probability("delta", delta)
    grid = lambda_grid(n_t) if lambdas is None else _grid("lambdas", lambdas)
    confidence = np.log(grid.size / delta) / grid + grid / (8.0 * n_t)
    best = int(np.argmin(kl / grid + confidence))
    return Penalty(float(kl / grid[best]), float(confidence[best]), float(grid[best]))


def pac_bayes_bound(
    source: Array,
    labels: Array,
    target: Array,
    weight: Array,
    bias: Array | None = None,
    *,
    kind: str = "joint",
    alpha: float = 1.0,
    beta: float = 1.0,
    plan: Any = "tightest",
    eps: float | None = None,
    loss: str | None = None,
    form: str = "paper",
    prior: str | tuple[Array, Array | None] = "zero",
    prior_scales: Sequence[float] | float | None = None,
    posterior_scales: Sequence[float] | float | None = None,
    features_saw_target: bool = True,
    candidates: int = 1,
    delta: float = 0.04,
    delta_mc: float = 0.01,
    draws: int = 500,
    lambdas: Sequence[float] | None = None,
    seed: int = 0,
) -> BoundReport:
    """Bound the loss of a randomised linear head on the target *population* (Corollaries 3.5 and 3.6).

    The head is drawn from ``N((W, b), s^2 I)``, the prior is ``N((W0, b0), s0^2 I)``; biases are counted at the mean of
    the source features. The mean of R over heads is estimated from `draws` heads; `delta_mc` is the probability with
    which this may fail, see `mean_upper_bound`. Where that brings the bound below 1, terms of a head whose computable
    part exceeds 1 are scaled down to sum to 1 (see the module); a vacuous bound is left as it is, to show by how much.

    Parameters
    ----------
    source, labels, target
        Features of both domains and class codes of the source, as in `joint_bound`.
    weight, bias : (C, d) and (C,) arrays or tensors
        The trained head, in logits; without a bias, biases are drawn around 0.
    kind : "joint" or "features"
        Theorem 3.3 or Theorem 3.2.
    alpha, beta, plan, eps, form
        As in `joint_bound`; a plan that is solved for is that of the head (W, b), and serves all heads.
    loss : "tv" or "euclidean", optional
        By default as in `joint_bound` and `feature_bound`.
    prior : "zero" or (W0, b0)
        Centre of the prior. A head trained on the source alone is allowed, from all of it; a head that has seen the
        target sample is not.
    prior_scales : float or sequence, optional
        s0, fixed before the target sample is seen; delta is split evenly over several. By default a grid that puts
        noise of 0.02 to 5 on the logits of a typical source sample.
    posterior_scales : float or sequence, optional
        Candidates for s, at no price: chosen with a pilot, evaluated on fresh draws. By default the prior's.
    features_saw_target : bool
        Whether the feature extractor, or a scaling of the features, was fitted to this target sample. Then the number
        is not a certificate, and the report contains a note.
    candidates : int
        How many classifiers, listed before the target sample is seen, this one was chosen from by that sample; delta is
        divided by it, so that the lemma holds for all of them at once.
    delta : float
        Probability with which the lemma may fail.
    delta_mc : float
        Probability with which the mean over heads may be underestimated.
    draws : int
        Number of heads.
    lambdas : sequence of float, optional
        Fixed before the target sample is seen; `lambda_grid` by default.
    seed : int

    Returns
    -------
    BoundReport
        Holds with probability ``1 - delta - delta_mc``.
    """
    delta, delta_mc = probability("delta", delta), probability("delta_mc", delta_mc)
    probability("delta + delta_mc", delta + delta_mc)
    candidates = check_count("candidates", candidates)
    draws, seed = check_count("draws", draws), check_count("seed", seed, minimum=0)
    xs, xt = check_both_features(source, target)
    origin = xs.mean(axis=0)
    head = head_at("weight", weight, bias, origin)
    start = _start(prior, head, origin)
    default = _default_scales(xs - origin) if prior_scales is None else prior_scales
    s0 = _grid("prior_scales", default, *SCALE_RANGE)
    s = s0 if posterior_scales is None else _grid("posterior_scales", posterior_scales, *SCALE_RANGE)
    joint = check_choice("kind", kind, THEOREMS) == "joint"
    loss = DEFAULT_LOSS[kind] if loss is None else loss
    if get_bound_loss(loss).continuous:
        remedy = "Continuous labels have no PAC-Bayes bound here; fresh_bounds certifies new samples."
        raise InputError("loss", got=repr(loss), allowed="'tv' or 'euclidean'", remedy=remedy)

    proba = head.proba(xs - origin), head.proba(xt - origin) if joint else None
    problem = BoundProblem(kind, xs, labels, xt, *proba, gamma=head_lipschitz(head.weight, loss), loss=loss)
    alpha, beta = check_fraction("alpha", alpha), check_fraction("beta", beta)
    matrix, record = problem.planned(alpha, beta, plan=plan, eps=eps, form=form)
    base = replace(problem.report(alpha, beta, plan=matrix, form=form), plan=record)

    heads = HeadBound(problem, matrix, origin, base)
    grid = lambda_grid(len(xt)) if lambdas is None else _grid("lambdas", lambdas)
    gaps = [_smallest_gap(head, start, one, s0, len(xt), delta / candidates, grid) for one in s.tolist()]
    pilot_seed, final_seed = np.random.SeedSequence(seed).spawn(2)
    pick = 0
    if s.size > 1:
        pilot = [heads.draws(head, one, PILOT, pilot_seed) for one in s]
        totals = [[mean + gap.penalty.total for mean in one.means] for one, gap in zip(pilot, gaps, strict=True)]
        cut, plain = np.array(totals).T
        pick = int(np.argmin(cut if cut.min() < 1.0 else plain))  # totals that are cut to 1 do not distinguish scales
    final = heads.draws(head, float(s[pick]), draws, final_seed)
    report = report_draws(base, final, gaps[pick], delta, delta_mc)
    if candidates > 1:
        paid = f"{report.union_bound}; delta divided by the {candidates} candidates that the target chose from"
        report = replace(report, union_bound=paid)
    return replace(report, notes=(*report.notes, FITTED)) if features_saw_target else report


class Gap(NamedTuple):
    """Price of a posterior: scales of posterior and prior, their divergence, what the lemma adds, and the grids."""

    scale: float
    prior_scale: float
    kl: float
    penalty: Penalty
    grids: tuple[int, int]

    @property
    def paid(self) -> str:
        """What choosing from grids costs."""
        price = np.log(math.prod(self.grids)) / self.penalty.lam
        grids = "delta split over {} lambdas and {} prior scales".format(*self.grids)
        return f"{grids}, {price:.2g} of the bound; alpha, beta, plan and posterior are free"

    @property
    def choice(self) -> str:
        """What was chosen."""
        scales = f"posterior scale {self.scale:.3g}, prior scale {self.prior_scale:.3g}"
        return f"{scales}, KL {self.kl:.4g}, lambda {self.penalty.lam:.4g}"


def _smallest_gap(
    head: GaussianHead,
    start: GaussianHead,
    scale: float,
    prior_scales: FloatArray,
    n_t: int,
    delta: float,
    lambdas: FloatArray,
) -> Gap:
    """Return the cheapest prior of the grid, which delta is split over."""
    square, gaps = head.square_from(start), []
    for prior_scale in prior_scales:
        kl = gaussian_kl(square, head.size, scale, float(prior_scale))
        penalty = pac_bayes_penalty(kl, n_t, delta / prior_scales.size, lambdas)
        gaps.append(Gap(scale, float(prior_scale), kl, penalty, (lambdas.size, prior_scales.size)))
    return min(gaps, key=lambda gap: gap.penalty.total)


def report_draws(base: BoundReport, draws: Draws, gap: Gap, delta: float, delta_mc: float) -> BoundReport:
    """Put means over heads and the lemma's terms into the report of the theorem."""
    cut, plain = draws.means
    noise = mean_upper_bound(draws.bounds, delta_mc) - cut
    vacuous = cut + noise + gap.penalty.total >= 1.0
    means = (draws.terms if vacuous else draws.clipped_terms).mean(axis=0)
    known = [term for term in base.terms if term.computable]
    notes = ["bounds the loss on the target population of a head drawn again for every prediction; terms are means"]
    if plain > cut and not vacuous:
        share = float((draws.bounds == 1.0).mean())
        notes.append(f"{share:.0%} of the heads have a bound above 1 and count as 1 (mean before {plain:.3g})")
    return replace(
        base,
        theorem=f"{PAC_BAYES}, {base.theorem}",
        terms=(
            *(replace(term, value=float(mean)) for term, mean in zip(known, means, strict=True)),
            Term("complexity", gap.penalty.complexity, "divergence of the posterior from the prior, KL / lambda"),
            Term("confidence", gap.penalty.confidence, "chance in target: log(1/delta') / lambda + lambda / 8 n_t"),
            Term("Monte Carlo", noise, f"chance in the {len(draws.gammas)} heads drawn"),
            *(term for term in base.terms if not term.computable),
        ),
        lipschitz=Lipschitz(float(draws.gammas.mean()), f"mean over heads; {base.lipschitz.origin}"),
        union_bound=gap.paid,
        confidence=1.0 - delta - delta_mc,
        notes=(*base.notes, *notes, gap.choice),
    )


def head_at(name: str, weight: Array, bias: Array | None, origin: FloatArray) -> GaussianHead:
    """Check a head and count its bias at the origin."""
    W = check_matrix(name, weight, width=origin.size)
    b = np.zeros(len(W)) if bias is None else _vector(f"bias of {name}", bias)
    if b.size != len(W):
        remedy = "Pass one number per class, as many as rows of the weights."
        raise InputError(f"bias of {name}", got=f"{b.size} numbers", allowed=str(len(W)), remedy=remedy)
    for what, x in ((name, W), (f"bias of {name}", b)):
        check_features(what, x)
    return GaussianHead(W, b + W @ origin)


def _start(prior: str | tuple[Array, Array | None], head: GaussianHead, origin: FloatArray) -> GaussianHead:
    """Centre of the prior."""
    if isinstance(prior, str):
        check_choice("prior", prior, ("zero",))
        return GaussianHead(np.zeros_like(head.weight), np.zeros_like(head.bias))
    start = head_at("prior", *prior, origin)
    if start.weight.shape != head.weight.shape:
        got, allowed = f"weights of shape {start.weight.shape}", f"shape {head.weight.shape}"
        remedy = "Prior and posterior are over the same heads."
        raise InputError("prior", got=got, allowed=allowed, remedy=remedy)
    return start


def _default_scales(centred: FloatArray) -> FloatArray:
    """Scales in the units of the source features."""
    typical = math.sqrt(1.0 + float(np.einsum("ij,ij->i", centred, centred).mean()))
    return np.array([noise / typical for noise in NOISE])


def _grid(name: str, x: Sequence[float] | FloatArray | float, low: float = 1e-100, high: float = 1e100) -> FloatArray:
    grid = _vector(name, x)
    if grid.min() < low or grid.max() > high:
        got, allowed = f"numbers from {grid.min():g} to {grid.max():g}", f"numbers in [{low:g}, {high:g}]"
        raise InputError(name, got=got, allowed=allowed, remedy="Rescale the features.")
    return grid


def _vector(name: str, x: Any) -> FloatArray:
    array = x if hasattr(x, "reshape") else np.asarray(x)
    vector: FloatArray = check_matrix(name, array.reshape(1, -1))[0]
    return vector


def probability(name: str, x: object) -> float:
    """Return a probability of failure, in (0, 1)."""
    value = check_fraction(name, x, "It is a probability of failure: pass a number in (0, 1).")
    if value == 1.0:
        raise InputError(name, got=1, allowed=f"0 < {name} < 1", remedy="It is a probability of failure.")
    return value
