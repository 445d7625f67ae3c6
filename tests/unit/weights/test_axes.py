"""Principal axes from either side of the data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from warmpot.methods.locality import uncentred_axes
from warmpot.weights import axes as module
from warmpot.weights import estimate_presence
from warmpot.weights.axes import principal_axes, smallest_of_rows, with_signs


def _centred(n: int, d: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * (1.0 / np.arange(1, d + 1))
    return x - x.mean(axis=0)


def test_both_sides_have_the_same_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _centred(30, 60)
    squares, axes = principal_axes(x, 12)
    monkeypatch.setattr(module, "MODERATE", 0)
    other_squares, other_axes = principal_axes(x, 12)
    np.testing.assert_allclose(other_squares, squares, rtol=1e-10)
    np.testing.assert_allclose(other_axes, axes, atol=1e-9)
    _, singular, rows = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(squares, singular[:12] ** 2, rtol=1e-10)
    np.testing.assert_allclose(axes, with_signs(rows[:12].T.copy()), atol=1e-9)


def test_axes_beyond_the_rank_are_zero_and_coordinates_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _centred(8, 40)
    _, axes = principal_axes(x, 20)
    monkeypatch.setattr(module, "MODERATE", 0)
    squares, other = principal_axes(x, 20)
    assert other.shape == axes.shape
    assert (squares[7:] == 0).all()  # centred: 8 samples have rank 7
    assert (other[:, 7:] == 0).all()
    np.testing.assert_allclose(x @ other, x @ axes, atol=1e-9)
    np.testing.assert_allclose(other[:, :7].T @ other[:, :7], np.eye(7), atol=1e-9)
    assert uncentred_axes(x, 20).shape == (40, 7)


def test_samples_that_are_all_the_same_have_no_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MODERATE", 0)
    squares, axes = principal_axes(np.zeros((3, 6)), 4)
    assert not squares.any()
    assert not axes.any()
    assert axes.shape == (6, 4)


def test_the_randomised_axes_span_the_same_where_the_variance_falls(monkeypatch: pytest.MonkeyPatch) -> None:
    x = _centred(80, 50)
    squares, axes = principal_axes(x, 6)
    monkeypatch.setattr(module, "LARGE", 20)
    random_squares, random_axes = principal_axes(x, 6)
    np.testing.assert_allclose(random_squares, squares, rtol=1e-3)
    assert np.degrees(subspace_angles(axes[:, :3], random_axes[:, :3]).max()) < 1
    np.testing.assert_array_equal(principal_axes(x, 6)[1], random_axes)  # a fixed seed


def test_the_presence_does_not_depend_on_the_side(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    centres, labels = rng.normal(size=(6, 400)), np.repeat(np.arange(6), 15)
    xs = centres[labels] + 1.5 * rng.normal(size=(90, 400))
    xt = centres[labels[:45]] + 1.5 * rng.normal(size=(45, 400)) + 0.1
    expected = estimate_presence(xs, labels, xt)
    monkeypatch.setattr(module, "MODERATE", 256)
    presence = estimate_presence(xs, labels, xt)
    np.testing.assert_allclose(presence.probability, expected.probability, atol=1e-6)


def test_a_single_axis_is_an_array_that_torch_takes() -> None:
    axes = np.array([[2.0, 0.0], [0.0, 1.0]])[:, ::-1][:, :1]
    assert min(with_signs(axes).strides) > 0


@pytest.mark.parametrize("k", [1, 3, 24, 100, 203])
def test_the_smallest_of_rows_are_those_of_a_sort(k: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 203)).astype(np.float32)
    x[:, ::2] = x[:, ::2].round()  # equal entries
    x[np.arange(50), np.arange(50)] = np.inf
    np.testing.assert_array_equal(smallest_of_rows(x, k)[:, 0], np.sort(x, axis=1)[:, k - 1])
