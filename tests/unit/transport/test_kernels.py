"""Arithmetic inside kernels: exponentials, logarithms and linear systems, compared with numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from warmpot._typing import FloatArray
from warmpot.transport._compile import kernel
from warmpot.transport._elementary import exp_of, log_of
from warmpot.transport._kernels import measure
from warmpot.transport._lapack import set_to_minus_gram, solve_linear

RNG = np.random.default_rng(0)


@kernel
def _exp(x: FloatArray) -> None:
    for k in range(x.size):
        x[k] = exp_of(x[k])


@kernel
def _log(logs: FloatArray, x: FloatArray) -> None:
    for k in range(x.size):
        logs[k] = log_of(x[k])


@kernel
def _gram(rows: FloatArray, matrix: FloatArray) -> None:
    set_to_minus_gram(rows, rows.shape[0], rows.shape[1], matrix, np.empty(4, np.intc))


@kernel
def _solve(matrix: FloatArray, right: FloatArray) -> bool:
    return bool(solve_linear(matrix, right, right.size, np.empty(4, np.intc), np.empty(right.size, np.intc)))


def test_exponentials_are_as_exact_as_their_arguments() -> None:
    x = np.concatenate([RNG.uniform(-700, 700, 999), RNG.normal(size=99), [0.0, -0.0, 1.0, np.log(2) / 2, 5e-324]])
    result = x.copy()
    _exp(result)
    np.testing.assert_allclose(result / np.exp(x), 1.0, rtol=0, atol=np.finfo(float).eps * (4 + 700))
    small = np.abs(x) < 1
    np.testing.assert_allclose(result[small], np.exp(x[small]), rtol=1e-15)


def test_logarithms() -> None:
    tiny = np.finfo(float).tiny
    x = np.concatenate([np.exp(RNG.uniform(-700, 700, 999)), [1.0, 1.5, 0.75, 2.0, 1 - 1e-16, 1 + 1e-15, tiny, 1e308]])
    logs = np.empty(x.size)
    _log(logs, x)
    np.testing.assert_allclose(logs, np.log(x), rtol=4e-16, atol=1e-16)


def test_zeros_and_numbers_below_the_normal_ones_have_no_entropy() -> None:
    plan = np.array([[0.0, 0.25], [5e-324, 0.5]])
    value, entropy = measure(plan, np.array([[np.inf, 1.0], [2.0, 4.0]]))
    assert value == pytest.approx(2.25, rel=1e-15)
    assert entropy == pytest.approx(0.25 * (np.log(0.25) - 1) + 0.5 * (np.log(0.5) - 1), rel=1e-15)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (4, 7), (7, 4)])
def test_products_fill_the_upper_triangle_and_nothing_else(shape: tuple[int, int]) -> None:
    rows, matrix = RNG.normal(size=shape), np.full((shape[0] + 1, shape[0] + 1), 9.0)
    _gram(rows, matrix)
    expected = np.full(matrix.shape, 9.0)
    upper = np.triu_indices(shape[0])
    expected[upper] = -(rows @ rows.T)[upper]
    np.testing.assert_allclose(matrix, expected, rtol=1e-13, atol=1e-15)


def test_linear_systems() -> None:
    matrix = RNG.normal(size=(6, 6))
    matrix += matrix.T
    right = RNG.normal(size=6)
    solution = right.copy()
    assert _solve(matrix.copy(), solution)
    np.testing.assert_allclose(matrix @ solution, right, rtol=1e-10)
    assert not _solve(np.zeros((2, 2)), np.ones(2))
