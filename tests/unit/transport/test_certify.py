"""Certificates and rounding of any plan."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest
import scipy.sparse as sp

from warmpot.transport import Potentials, certify, round_to_feasible, solve_partial

RNG = np.random.default_rng(0)


def test_certify_sees_infeasible_and_forbidden_plans() -> None:
    cost = np.array([[0.0, np.inf], [1.0, 0.0]])
    assert not certify(np.eye(2), cost, None, None, 1.0).feasible
    used = certify(np.full((2, 2), 0.25), cost, None, None, 1.0)
    assert used.value == np.inf
    assert not used.feasible
    best = certify(sp.csr_array(np.eye(2) / 2), cost, None, None, 1.0)
    assert best.feasible
    assert best.gap == pytest.approx(0.0, abs=1e-15)


def test_sparse_rounding_stays_sparse() -> None:
    rng = np.random.default_rng(12)
    n, m = 200, 100
    plan = sp.random_array((n, m), density=0.01, rng=rng)
    rounded = round_to_feasible(plan, np.full(n, 1 / (0.35 * n)), None, 0.8)
    assert rounded.nnz <= plan.nnz + n + m
    assert rounded.sum() == pytest.approx(0.8, rel=1e-12)
    assert rounded.sum(axis=0).max() <= (1 + 1e-12) / m
    empty = round_to_feasible(sp.csr_array((3, 2)), None, None, 0.5)
    assert empty.sum() == pytest.approx(0.5)


@pytest.mark.parametrize("room", [1.0, 1e100, 1e149])
@pytest.mark.parametrize("mass", [1.0, 1e-100, 1e-149])
def test_rounding_at_any_scale(room: float, mass: float) -> None:
    rounded = round_to_feasible(np.array([[0.0, 0.0], [0.5, 0.0]]) * mass, np.full(2, room), np.full(2, room), mass)
    assert rounded.sum() == pytest.approx(mass, rel=1e-12)
    assert rounded.sum(axis=1).max() <= room
    assert rounded.sum(axis=0).max() <= room


def test_certificate_where_forbidden_pairs_do_not_allow_the_mass() -> None:
    """The potentials given spare the solve that would refuse the mass; the bound is finite all the same."""
    cost = np.array([[1.0, 2.0], [np.inf, np.inf]])
    for plan, forbidden in ((np.array([[0.5, 0.0], [0.0, 0.5]]), True), (np.array([[0.5, 0.5], [0.0, 0.0]]), False)):
        proof = certify(plan, cost, None, None, 1.0, potentials=Potentials(np.zeros(2), np.zeros(2)))
        assert not proof.feasible
        assert np.isfinite([proof.dual_value, proof.slope, *proof.potentials.u]).all()
        assert proof.gap == (np.inf if forbidden else pytest.approx(1.5 - 1.0))


def test_gap_covers_the_rounding_of_costs_that_cancel() -> None:
    """Compared with the optimum in exact arithmetic, over all partial matchings."""
    rng, size = np.random.default_rng(0), 3
    for _ in range(60):
        cost = rng.choice([-1.0, 1.0], (size, size)) * rng.random((size, size)).round(1)
        cost = cost - cost.mean(axis=rng.integers(2), keepdims=True) + 1e-10 * rng.random((size, size))
        share, moved = np.full(size, 0.25), int(rng.integers(2, size + 1))
        matchings = product(combinations(range(size), moved), permutations(range(size), moved))
        best = min(sum(Fraction(float(c)) for c in cost[list(rows), list(cols)]) for rows, cols in matchings) / 4
        s = solve_partial(cost, share, share, mass=0.25 * moved)
        assert abs(Fraction(s.value) - best) <= s.gap <= 1e-14
        assert Fraction(s.dual_value) <= best
