"""The value for every mass at once."""

from __future__ import annotations

import numpy as np
import pytest

from warmpot.transport import partial_path, solve_partial


def test_path_with_forbidden_pairs_ends_at_the_movable_mass() -> None:
    cost = np.array([[np.inf, 1.0], [np.inf, 2.0]])
    assert partial_path(cost).masses[-1] == pytest.approx(0.5)
    assert partial_path(np.full((2, 2), np.inf)).masses.tolist() == [0.0]


@pytest.mark.parametrize("low", [0.0, 1e12])
def test_equal_points_of_the_curve_are_one(low: float) -> None:
    """Capacities below the rounding of the mass, and slopes below the rounding of the costs, are not on the curve."""
    tiny = np.array([1.0, 3e-17, 2e-17, 1.0])
    cost = low + np.array(
        [[0.0, 1.0, 2.0, 9.0], [9.0, 2.0, 1.0, 9.0], [9.0, 2.0 + 1e-7, 3.0, 9.0], [9.0, 9.0, 9.0, 5.0]]
    )
    for a, b in ((tiny, tiny), (tiny, None), (None, tiny), (tiny * 1e60, tiny * 1e60)):
        path = partial_path(cost, a, b)
        assert (np.diff(path.masses) > 0).all()
        assert (np.diff(path.slopes) > 0).all()
        assert path.masses.size == path.values.size == path.slopes.size + 1
        mass = 0.7 * path.masses[-1]
        value = solve_partial(cost, a, b, mass=mass).value
        assert np.interp(mass, path.masses, path.values) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("low", [0.0, -0.7, 100.0])
@pytest.mark.parametrize("share", [0.0, 0.8])
def test_a_curve_with_a_tolerance_is_above_the_exact_one_by_no_more(tol: float, low: float, share: float) -> None:
    rng = np.random.default_rng(3)
    cost = low + rng.uniform(size=(70, 45))
    cost[rng.uniform(size=cost.shape) < share] = np.inf
    a, b = rng.uniform(size=70), rng.uniform(size=45)
    a[:5] = b[:5] = 0.0
    exact, curve = partial_path(cost, a, b), partial_path(cost, a, b, tol=tol)
    assert curve.masses[-1] == pytest.approx(exact.masses[-1], rel=1e-9)
    assert (np.diff(curve.slopes) > 0).all()
    error = np.interp(exact.masses, curve.masses, curve.values) - exact.values
    scale = np.abs(exact.values).max()
    assert error.min() >= -1e-12 * scale
    assert error.max() <= (tol + 1e-12) * scale


@pytest.mark.parametrize("cost", [np.zeros((3, 4)), np.ones((1, 1)), np.array([[0.0, 3.0], [5.0, 1.0]])])
def test_small_curves_with_a_tolerance(cost: np.ndarray) -> None:
    exact, curve = partial_path(cost), partial_path(cost, tol=1e-6)
    np.testing.assert_allclose(np.interp(exact.masses, curve.masses, curve.values), exact.values, atol=1e-6)
