"""Certificates and rounding of any plan."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from warmpot.transport import certify, round_to_feasible

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
