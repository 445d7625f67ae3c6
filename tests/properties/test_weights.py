"""What weights from scores must always satisfy, with a certificate that they are the best ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warmpot.weights import capped_weights, chi2_ball_weights

RHO = st.sampled_from([0.0, 1e-12, 0.5, 1.0, 5.0, 1e3]) | st.floats(1e-6, 50)
BETA = st.sampled_from([1.0, 0.5, 1 / 3, 1e-300]) | st.floats(1e-3, 1)


@st.composite
def scores(draw: st.DrawFn) -> np.ndarray:
    """Few scores with many ties (sums of them are exact), or many of any shape."""
    if draw(st.booleans()):
        whole = st.integers(-8, 8).map(float) | st.integers(-8192, 8192).map(lambda k: k / 1024)
        return draw(hnp.arrays(float, st.integers(1, 30), elements=whole))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.sampled_from([100, 3_000, 40_000]))
    shape = draw(st.sampled_from(["normal", "cauchy", "two piles", "lone low", "lone high", "rounded"]))
    d = rng.standard_cauchy(n) if shape == "cauchy" else rng.normal(size=n)
    if shape == "two piles":
        d = 0.01 * d + 100 * (rng.random(n) < 0.7)
    if shape.startswith("lone"):
        d[0] = -1e6 if shape == "lone low" else 1e6
    return d.round(1) if shape == "rounded" else d


def assert_weights(d: np.ndarray, w: np.ndarray) -> None:
    assert w.shape == d.shape
    assert w.dtype == np.float64
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1, abs=1e-12)
    order = np.argsort(d, kind="stable")
    assert (np.diff(w[order]) <= 0).all(), "a smaller score never weighs less"
    same = np.diff(d[order]) == 0
    assert (np.diff(w[order])[same] == 0).all(), "equal scores weigh the same"


@given(d=scores(), rho=RHO)
@settings(max_examples=400)
def test_ball_is_optimal(d: np.ndarray, rho: float) -> None:
    """KKT: d + lam w = nu where w > 0, d >= nu where w = 0, and lam > 0 only if the ball binds."""
    n, w = len(d), chi2_ball_weights(d, rho)
    assert_weights(d, w)
    size = n * float((w - 1 / n) @ (w - 1 / n))
    assert size <= rho * (1 + 1e-9) + 1e-9
    if rho < 1e-9:  # the multiplier grows as 1 / sqrt(rho): nothing to read off
        np.testing.assert_allclose(n * w, 1, atol=1e-3)
        return
    best, worst = int(np.argmin(d)), int(np.argmax(np.where(w > 0, d, -np.inf)))
    reach = d[worst] - d[best]
    lam = reach / (w[best] - w[worst]) if reach > 0 else 0.0
    nu = d[best] + lam * w[best]
    residual = d + lam * w - nu
    scale = lam * w[best] if lam else 1.0
    assert np.abs(residual[w > 0]).max() <= 1e-9 * scale
    assert residual[w == 0].min(initial=0.0) >= -1e-9 * scale
    if lam:
        assert size == pytest.approx(rho, rel=1e-9, abs=1e-12)


@given(d=scores(), rho=RHO)
@settings(max_examples=200)
def test_ball_has_no_duality_gap(d: np.ndarray, rho: float) -> None:
    """``nu - sum (nu - d)_+^2 / (2 lam) - lam (1 + rho) / (2 n)`` is below every feasible mean score."""
    n, w = len(d), chi2_ball_weights(d, rho)
    x = (d - d.min()) / (np.ptp(d) or 1.0)
    k = int((w > 0).sum())
    low = np.sort(x)[:k]
    spread = k * (1 + rho) / n - 1
    lam = k * low.std() / np.sqrt(spread) if spread > 0 else 0.0
    if lam == 0:  # equal weights for equal scores, for rho = 0, or the minimisers alone
        assert w @ x == pytest.approx(0 if rho else x.mean(), abs=1e-12)
        return
    nu = low.mean() + lam / k
    bound = nu - (np.maximum(nu - x, 0) ** 2).sum() / (2 * lam) - lam * (1 + rho) / (2 * n)
    assert w @ x == pytest.approx(bound, abs=1e-9)


@given(d=scores(), rho=RHO)
@settings(max_examples=200)
def test_ball_keeps_enough_samples(d: np.ndarray, rho: float) -> None:
    assert (chi2_ball_weights(d, rho) > 0).sum() * (1 + rho) >= len(d) * (1 - 1e-12)


@given(d=scores(), rho=RHO, scale=st.sampled_from([1e-200, 1e-12, 0.7, 3.0, 1e200]))
@settings(max_examples=200)
def test_ball_ignores_the_scale(d: np.ndarray, rho: float, scale: float) -> None:
    n = len(d)
    np.testing.assert_allclose(n * chi2_ball_weights(scale * d, rho), n * chi2_ball_weights(d, rho), atol=1e-8)


@given(
    d=hnp.arrays(float, st.integers(1, 40), elements=st.integers(-50, 50).map(float)),
    rho=RHO,
    shift=st.sampled_from([1e8, -1e8, 2.0**52]),
)
def test_ball_ignores_the_shift(d: np.ndarray, rho: float, shift: float) -> None:
    """Whole numbers: the shifted ones are exact, so the weights are the same to the bit."""
    np.testing.assert_array_equal(chi2_ball_weights(d + shift, rho), chi2_ball_weights(d, rho))


@given(d=scores(), rho=RHO, beta=BETA, seed=st.integers(0, 2**32))
@settings(max_examples=200)
def test_the_order_of_samples_has_no_say(d: np.ndarray, rho: float, beta: float, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(d))
    np.testing.assert_array_equal(chi2_ball_weights(d[order], rho), chi2_ball_weights(d, rho)[order])
    np.testing.assert_array_equal(capped_weights(d[order], beta), capped_weights(d, beta)[order])


@given(d=scores(), beta=BETA)
@settings(max_examples=300)
def test_cap_is_optimal(d: np.ndarray, beta: float) -> None:
    """Between the cap and 0 there is one score at most, and the cap is reached below it."""
    n, w = len(d), capped_weights(d, beta)
    assert_weights(d, w)
    cap = min(1 / (beta * n), 1.0)
    assert w.max() <= cap * (1 + 1e-12)
    between = np.unique(d[(w > 1e-9 * cap) & (w < cap * (1 - 1e-9))])
    assert len(between) <= 1
    if len(between):
        assert (w[d < between[0]] >= cap * (1 - 1e-12)).all()
        assert (w[d > between[0]] == 0).all()
