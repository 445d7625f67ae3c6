"""Weights from critic scores: closed forms, edges and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.weights import capped_weights, chi2_ball_weights


def test_ball_of_two_samples_by_hand() -> None:
    """2 ((w - 1/2)^2 + (w - 1/2)^2) = rho: w = 1/2 + sqrt(rho) / 2."""
    np.testing.assert_allclose(chi2_ball_weights([3.0, -1.0], rho=0.25), [0.25, 0.75], atol=1e-15)


def test_ball_of_three_equal_steps_by_hand() -> None:
    """w = (1/3 + e, 1/3, 1/3 - e), 3 * 2 e^2 = rho."""
    np.testing.assert_allclose(chi2_ball_weights([1.0, 2.0, 3.0], rho=0.06), [13 / 30, 1 / 3, 7 / 30], atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("rho", [0.0, 5.0, 1e100])
def test_equal_scores_weigh_the_same(n: int, rho: float) -> None:
    for value in (0.0, -3.3, 1e300):
        np.testing.assert_array_equal(chi2_ball_weights(np.full(n, value), rho), np.full(n, 1 / n))
        np.testing.assert_allclose(capped_weights(np.full(n, value), 0.4), np.full(n, 1 / n), rtol=1e-15)


def test_no_ball_is_equal_weights() -> None:
    np.testing.assert_array_equal(chi2_ball_weights([1.0, 5.0, 2.0], rho=0), np.full(3, 1 / 3))


@pytest.mark.parametrize(("ties", "rho"), [(1, 5.0), (2, 2.0), (3, 1.0), (6, 0.0), (1, 1e150)])
def test_a_ball_that_does_not_bind_leaves_the_minimisers(ties: int, rho: float) -> None:
    """From rho = n / ties - 1 on, here to the point."""
    d = np.array([-2.0] * ties + [0.0, 1.0, 1.0, 4.0, 9.0][: 6 - ties])
    np.testing.assert_array_equal(chi2_ball_weights(d, rho), np.where(d == -2, 1 / ties, 0))


def test_a_ball_just_too_small_for_the_minimisers() -> None:
    d = np.array([-2.0, -2.0, 0.0, 1.0, 1.0, 4.0])
    w = chi2_ball_weights(d, 2.0 - 1e-6)
    assert w[0] == w[1] < 0.5
    assert w[2] > 0
    assert (w[3:] == 0).all()
    assert 6 * (w @ w) - 1 == pytest.approx(2.0 - 1e-6, abs=1e-12)


def test_a_score_far_off_costs_no_precision() -> None:
    """It has no weight here; the others are those of a problem of their own with the same sum of w^2."""
    near = np.array([0.0, 1.0, 2.0])
    alone = chi2_ball_weights(near, rho=3 * 1.4 / 4 - 1)
    for far, unit in ((1e300, 1.0), (1e150, 1e-150), (1.0, 5e-324)):
        w = chi2_ball_weights(np.append(near * unit, far), rho=0.4)
        np.testing.assert_allclose(w, np.append(alone, 0.0), rtol=1e-14)


def test_the_widest_scores_float64_can_hold() -> None:
    big = float(np.finfo(float).max)
    expected = chi2_ball_weights([-1.0, 0.0, 1.0], rho=0.3)
    np.testing.assert_allclose(chi2_ball_weights([-big, 0.0, big], rho=0.3), expected, rtol=1e-15)
    np.testing.assert_allclose(capped_weights([-big, 0.0, big], 0.5), [2 / 3, 1 / 3, 0.0], rtol=1e-15)


@pytest.mark.parametrize("rho", [1e-9, 1e-16, 5e-324])
def test_a_tiny_ball_keeps_its_size(rho: float) -> None:
    w = chi2_ball_weights([0.0, 1.0], rho)
    assert w[0] - 0.5 == pytest.approx(np.sqrt(rho) / 2, abs=1e-16)


def test_a_million_samples() -> None:
    n = 1_280_000
    d = np.random.default_rng(0).normal(size=n)
    w = chi2_ball_weights(d)
    assert n * (w @ w) - 1 == pytest.approx(5, abs=1e-9)
    assert (w > 0).mean() == pytest.approx(0.278, abs=0.002)  # about 28 % for normal scores


def test_cap_by_hand() -> None:
    np.testing.assert_allclose(capped_weights([5.0, 1.0, 3.0, 2.0, 4.0], 0.5), [0, 0.4, 0.2, 0.4, 0], atol=1e-15)


def test_ties_at_the_threshold_share_what_is_left() -> None:
    w = capped_weights([1.0, 0.0, 1.0, 1.0, 7.0], 0.4)
    np.testing.assert_allclose(w, [1 / 6, 1 / 2, 1 / 6, 1 / 6, 0], atol=1e-15)


def test_a_cap_above_one_is_none() -> None:
    np.testing.assert_array_equal(capped_weights([1.0, 0.0, 0.0, 7.0], 1e-320), [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_read(dtype: Any) -> None:
    d = torch.tensor([2.0, 0.5, 1.0, 4.0], dtype=dtype, requires_grad=True)
    for w, same in (
        (chi2_ball_weights(d, 0.5), chi2_ball_weights([2.0, 0.5, 1.0, 4.0], 0.5)),
        (capped_weights(d, 0.6), capped_weights([2.0, 0.5, 1.0, 4.0], 0.6)),
    ):
        assert isinstance(w, np.ndarray)
        np.testing.assert_array_equal(w, same)


def test_scores_are_left_alone() -> None:
    d = np.array([3.0, 1.0, 2.0])
    chi2_ball_weights(d, 0.2)
    capped_weights(d, 0.5)
    np.testing.assert_array_equal(d, [3.0, 1.0, 2.0])


@pytest.mark.parametrize("bad", [[np.nan, 1.0], [np.inf, 1.0], [1.0, -np.inf], [], [[1.0, 2.0]], ["a"], None])
def test_scores_that_cannot_be_used(bad: Any) -> None:
    for weigh in (chi2_ball_weights, lambda d: capped_weights(d, 0.5)):
        with pytest.raises(InputError, match=r"^scores: got"):
            weigh(bad)


@pytest.mark.parametrize("rho", [-1e-9, np.nan, np.inf, "much"])
def test_rho_that_cannot_be_used(rho: Any) -> None:
    with pytest.raises(InputError, match=r"^rho: got"):
        chi2_ball_weights([1.0, 2.0], rho)


@pytest.mark.parametrize("beta", [0.0, -0.5, 1.1, np.nan])
def test_beta_that_cannot_be_used(beta: float) -> None:
    with pytest.raises(InputError, match=r"^beta: got"):
        capped_weights([1.0, 2.0], beta)
