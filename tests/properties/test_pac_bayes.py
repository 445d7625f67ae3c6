"""PAC-Bayes: does it hold as often as it says? Simulated target samples with known population losses."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warmpot.bounds._gaussian import gaussian_kl
from warmpot.bounds.intervals import mean_upper_bound
from warmpot.bounds.pac_bayes import lambda_grid, pac_bayes_bound, pac_bayes_penalty

RUNS = 3000
DELTAS = [0.05, 0.2, 0.5]
KL = st.floats(0, 1e4)
SIZE = st.integers(1, 10**6)
DELTA = st.floats(1e-9, 0.999)


def at_most(rate: float, delta: float, runs: int = RUNS) -> bool:
    """Whether a rate is delta or less, up to four standard errors."""
    return rate <= delta + 4 * math.sqrt(delta * (1 - delta) / runs)


# --- the lemma, for a finite set of heads ---------------------------------------------------------------------------


def gibbs(losses: np.ndarray, prior: np.ndarray, rate: float) -> np.ndarray:
    """Posterior proportional to ``prior * exp(-rate * loss)``, one row a sample."""
    weights = np.log(prior) - rate * losses
    weights = np.exp(weights - weights.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def divergence(posterior: np.ndarray, prior: np.ndarray) -> np.ndarray:
    ratio = np.where(posterior > 0, posterior / prior, 1.0)
    return (posterior * np.log(ratio)).sum(axis=1).clip(min=0.0)


@cache
def simulated(n_t: int, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Population and sample loss of the Gibbs posterior, and its divergence, for many target samples.

    500 heads about as good as a coin. Their losses on a sample are independent, the worst case for choosing among
    them; and R is the sample loss itself, the smallest R there is.
    """
    rng = np.random.default_rng(7)
    population, prior = rng.uniform(0.48, 0.52, 500), rng.dirichlet(np.full(500, 5.0))
    sample = rng.binomial(n_t, population, (RUNS, 500)) / n_t
    posterior = gibbs(sample, prior, rate)
    return posterior @ population, (posterior * sample).sum(axis=1), divergence(posterior, prior)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rate", [0.0, 20.0, 1e4])
@pytest.mark.parametrize("single", [False, True])
def test_the_lemma_holds_as_often_as_it_says(delta: float, rate: float, single: bool) -> None:
    n_t = 40
    truth, empirical, kl = simulated(n_t, rate)
    lambdas = [math.sqrt(8 * n_t * 3.0)] if single else None
    bound = empirical + [pac_bayes_penalty(one, n_t, delta, lambdas).total for one in kl]
    assert at_most(float((truth > bound).mean()), delta)
    # The simulation can tell: the sample loss alone is no bound, nor is it when choosing among heads goes unpaid.
    assert (truth > empirical).mean() > 0.3
    unpaid = empirical + pac_bayes_penalty(0.0, n_t, delta, lambdas).total
    if rate == 1e4 and single:
        assert not at_most(float((truth > unpaid).mean()), delta)


@pytest.mark.parametrize("delta", DELTAS)
def test_the_lemma_is_not_loose_where_nothing_is_learnt(delta: float) -> None:
    """One head, one lambda: failures do happen, and fewer when delta is split over a grid."""
    n_t, rng = 400, np.random.default_rng(3)
    sample = rng.binomial(n_t, 0.5, 20_000) / n_t
    lam = math.sqrt(8 * n_t * math.log(1 / delta))
    fails = sample + pac_bayes_penalty(0.0, n_t, delta, [lam]).total < 0.5
    assert 0.1 * delta < fails.mean() <= delta
    split = sample + pac_bayes_penalty(0.0, n_t, delta, [lam] * 4).total < 0.5
    assert split.mean() < 0.5 * fails.mean()


# --- its Gaussian form ----------------------------------------------------------------------------------------------


def test_gaussian_posterior_with_drawn_heads_holds() -> None:
    """Labels by coin on 60 inputs; the posterior follows the labels of the sample as far as it can."""
    runs, n_t, d, s, draws, delta_mc = RUNS, 25, 60, 0.7, 40, 0.05
    rng = np.random.default_rng(11)
    # Inputs e_1 .. e_d, labels +-1: the loss of weights w at (e_k, y) is sigmoid(-y w_k), its population mean 1/2.
    known, kl = np.empty(runs), np.empty(runs)
    for run in range(runs):
        inputs, signs = rng.integers(0, d, n_t), rng.choice([-1.0, 1.0], n_t)
        centre = 3.0 * np.sign(np.bincount(inputs, signs, d))
        heads = centre + s * rng.standard_normal((draws, d))
        known[run] = mean_upper_bound((1 / (1 + np.exp(signs * heads[:, inputs]))).mean(axis=1), delta_mc)
        kl[run] = gaussian_kl(float(centre @ centre), d, s, s)
    for delta in DELTAS:
        bound = known + [pac_bayes_penalty(one, n_t, delta).total for one in kl]
        assert at_most(float((bound < 0.5).mean()), delta + delta_mc, runs)
    unpaid = known + pac_bayes_penalty(0.0, n_t, 0.5, [math.sqrt(8 * n_t * math.log(2))]).total
    assert not at_most(float((unpaid < 0.5).mean()), 0.55, runs)  # it does overfit


@pytest.mark.parametrize("law", ["coin", "rare", "narrow"])
def test_interval_of_the_mean_over_heads_holds(law: str) -> None:
    runs, m, rng = RUNS, 30, np.random.default_rng(5)
    draws, mean = {
        "coin": (rng.binomial(1, 0.5, (runs, m)).astype(float), 0.5),
        "rare": (rng.binomial(1, 0.05, (runs, m)).astype(float), 0.05),
        "narrow": (rng.beta(60, 40, (runs, m)), 0.6),
    }[law]
    ends = {delta: np.array([mean_upper_bound(row, delta) for row in draws]) for delta in (0.05, 0.5)}
    for delta, end in ends.items():
        assert at_most(float((end < mean).mean()), delta, runs)
    shrunk = draws.mean(axis=1) + 0.2 * (ends[0.5] - draws.mean(axis=1))
    assert (shrunk < mean).mean() > 0.05  # a much shorter interval would not hold
    hoeffding = draws.mean(axis=1) + math.sqrt(math.log(1 / 0.05) / (2 * m))
    assert np.median(ends[0.05] - hoeffding) < 0.03  # nor is it a long one


# --- the whole certificate ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["joint", "features"])
def test_certificate_holds_where_the_ideal_term_is_zero(kind: str) -> None:
    """Two clusters 2 apart, heads of slope above 1/2: a map of that slope is right everywhere, the ideal term is 0."""
    runs, n_t, delta = 40, 100, 0.3
    rng = np.random.default_rng(2)
    support = np.array([[-1.3], [-1.1], [-1.0], [1.0], [1.2]])
    truth = (support[:, 0] > 0).astype(int)
    shares = np.array([0.1, 0.3, 0.2, 0.3, 0.1])
    source = np.concatenate([rng.uniform(-1.5, -1.0, (12, 1)), rng.uniform(1.0, 1.5, (12, 1))])
    labels = (source[:, 0] > 0).astype(int)
    prior, scale, fails, source_alone = (np.array([[-1.5], [1.5]]), np.zeros(2)), 0.1, 0, 0
    for run in range(runs):
        seen = rng.choice(5, n_t, p=shares)
        tilt = rng.uniform(0.0, 0.2)
        weight, bias = prior[0] * (1 + tilt), np.array([0.0, 0.5 - truth[seen].mean()])
        report = pac_bayes_bound(
            source, labels, support[seen], weight, bias, kind=kind, beta=0.5, prior=prior, prior_scales=[scale, 0.5],
            posterior_scales=scale, delta=delta, delta_mc=0.1, draws=20, seed=run, features_saw_target=False,
        )  # fmt: skip
        assert report.lipschitz.value > 0.5
        assert not report.vacuous
        # logit of class 1 at x: (w_1 - w_0) (x - origin) + difference of biases at the origin
        at_origin = (bias + weight @ source.mean(axis=0)) @ [-1, 1]
        slope = np.diff(weight, axis=0)[0, 0] + math.sqrt(2) * scale * rng.standard_normal(2000)
        height = at_origin + math.sqrt(2) * scale * rng.standard_normal(2000)
        logit = slope[:, None] * (support[:, 0] - source.mean()) + height[:, None]
        wrong = 1 / (1 + np.exp(np.where(truth == 1, 1, -1) * logit))  # both losses are this for two classes
        loss = float((wrong @ shares).mean())
        fails += loss > report.total
        source_alone += loss > (report["source loss"].value or 0.0)
    assert at_most(fails / runs, delta + 0.1, runs)
    assert source_alone > 0.9 * runs  # the other terms are needed


# --- bookkeeping ----------------------------------------------------------------------------------------------------


@given(KL, SIZE, DELTA)
def test_penalty_is_at_least_that_of_the_best_lambda(kl: float, n_t: int, delta: float) -> None:
    found = pac_bayes_penalty(kl, n_t, delta)
    assert found.complexity >= 0
    assert found.confidence > 0
    assert found.total >= math.sqrt((kl + math.log(1 / delta)) / (2 * n_t)) * (1 - 1e-12)
    assert found.lam in lambda_grid(n_t)


@given(KL, SIZE, DELTA, st.floats(1.0, 3.0))
def test_penalty_falls_with_samples_and_rises_with_divergence_and_certainty(
    kl: float, n_t: int, delta: float, factor: float
) -> None:
    at = pac_bayes_penalty(kl, n_t, delta).total * (1 + 1e-12)
    assert pac_bayes_penalty(kl * factor, n_t, delta).total >= at * (1 - 1e-9)
    assert pac_bayes_penalty(kl, n_t, delta / factor).total >= at * (1 - 1e-9)
    lambdas = lambda_grid(n_t)
    assert pac_bayes_penalty(kl, 2 * n_t, delta, lambdas).total < pac_bayes_penalty(kl, n_t, delta, lambdas).total


@given(st.floats(0, 1e6), st.integers(1, 10**5), st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_divergence_is_not_negative_and_zero_only_at_the_prior(square: float, size: int, s: float, s0: float) -> None:
    found = gaussian_kl(square, size, s, s0)
    assert found * (1 + 1e-12) + 1e-300 >= square / (2 * s0**2) >= 0  # denormal numbers round
    assert gaussian_kl(0.0, size, s, s) == 0
    if abs(math.log(s / s0)) > 1e-3:
        assert found > square / (2 * s0**2) or found > 1e9  # beyond that the first part may be lost to rounding


@given(hnp.arrays(float, st.integers(1, 60), elements=st.floats(0, 1)), DELTA)
def test_interval_lies_between_mean_and_one(values: np.ndarray, delta: float) -> None:
    end = mean_upper_bound(values, delta)
    assert values.mean() <= end <= 1.0
    assert mean_upper_bound(values, delta / 2) >= end - 1e-12
    assert mean_upper_bound(values[::-1], delta) == pytest.approx(end, abs=1e-9)
    assert mean_upper_bound(np.minimum(1.0, values + 0.1), delta) >= end - 1e-9
