"""Costs: closed forms, gradients, blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.costs import PairCosts, feature_distance, joint_cost, label_loss, nearest_rows
from warmpot.errors import InputError
from warmpot.losses import get_label_loss


def test_distance_of_close_points_keeps_its_digits_in_float32() -> None:
    x = torch.full((30, 8), 1000.0)
    y = x.clone()
    y[:, 0] += 1e-3 * torch.arange(30)
    expected = 1e-3 * torch.arange(30).double().expand(30, 30)
    found = feature_distance(x, y).double()
    exact = (y[:, 0].double() - 1000.0).expand(30, 30)  # what float32 could hold of the shift
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=1e-6)
    assert (found - expected).abs().max() < 1e-4
    assert found.dtype == torch.float64
    assert feature_distance(x, y).dtype == torch.float32


def test_distance_has_a_finite_gradient_everywhere_and_zero_at_zero() -> None:
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone()
    feature_distance(x, y).diagonal().sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_distance_gradient_equals_finite_differences() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(feature_distance, (x, y))


def test_squared_distances_and_their_gradient() -> None:
    x = torch.tensor([[0.0, 0.0], [3.0, 1.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[3.0, 4.0], [3.0, 1.0]], dtype=torch.float64, requires_grad=True)
    found = feature_distance(x, y, squared=True)
    torch.testing.assert_close(found, torch.tensor([[25.0, 10.0], [9.0, 0.0]], dtype=torch.float64))
    (found * torch.tensor([[1.0, 10.0], [100.0, 1000.0]])).sum().backward()
    # d/dx ||x - y||^2 = 2 (x - y): (-6, -8) + 10 (-6, -2) and 100 (0, -6) + 1000 (0, 0)
    torch.testing.assert_close(x.grad, torch.tensor([[-66.0, -28.0], [0.0, -600.0]], dtype=torch.float64))
    torch.testing.assert_close(y.grad, torch.tensor([[6.0, 608.0], [60.0, 20.0]], dtype=torch.float64))
    same = torch.full((2, 3), 1e3)  # squares of rounding errors would be negative
    assert torch.equal(feature_distance(same, same, squared=True), torch.zeros(2, 2))


def test_half_precision_is_computed_in_float32() -> None:
    x = torch.randn(3, 4).half()
    assert feature_distance(x, x).dtype == torch.float32
    assert label_loss(torch.tensor([0]), x).dtype == torch.float32


def test_label_losses_have_their_closed_forms() -> None:
    outputs = torch.tensor([[0.0, 0.0], [0.0, 1e4]])  # certain: a naive log(softmax) would be infinite
    loss = label_loss(torch.tensor([0, 1]), outputs)
    torch.testing.assert_close(loss, torch.tensor([[np.log(2), 1e4], [np.log(2), 0.0]], dtype=torch.float32))
    real = torch.tensor([[1.0], [4.0]])
    assert label_loss(torch.tensor([3.0]), real, "absolute").tolist() == [[2.0, 1.0]]
    assert label_loss(torch.tensor([3.0]), real, "squared").tolist() == [[4.0, 1.0]]
    with pytest.raises(InputError, match="cross_entropy"):
        label_loss(torch.tensor([0]), outputs, "hinge")


def test_the_feature_only_cost_does_not_look_at_the_outputs() -> None:
    x, y = torch.randn(3, 2), torch.randn(4, 2)
    nonsense = torch.full((4, 2), float("nan"))
    cost = joint_cost(x, torch.tensor([0, 1, 1]), y, nonsense, eta1=2.0, eta2=0.0)
    torch.testing.assert_close(cost, 2 * feature_distance(x, y))


@pytest.mark.parametrize("max_memory", [1.0, 1e-9], ids=["kept", "again"])
@pytest.mark.parametrize("squared", [False, True], ids=["distance", "square"])
@pytest.mark.parametrize("loss", ["cross_entropy", "absolute", "squared"])
def test_blocks_equal_the_whole_matrix(max_memory: float, loss: str, squared: bool) -> None:
    rng = np.random.default_rng(0)
    xs, xt = rng.normal(size=(9, 3)), rng.normal(size=(7, 3))
    labels = torch.as_tensor(rng.integers(0, 4, 9))
    outputs = torch.as_tensor(rng.normal(size=(7, 4 if get_label_loss(loss).classification else 1)))
    how: dict[str, Any] = {"eta1": 0.3, "eta2": 2.0, "loss": loss, "squared": squared}
    cost = PairCosts(xs, xt, max_memory=max_memory).joint(labels, outputs, **how)
    rows = np.array([4, 0, 8])
    whole = joint_cost(torch.as_tensor(xs), labels, torch.as_tensor(xt), outputs, **how).numpy()[rows]
    np.testing.assert_allclose(cost.block(rows), whole, atol=1e-6)
    distances = np.linalg.norm(xs[rows, None] - xt, axis=2)
    expected = 0.3 * distances ** (2 if squared else 1) + 2.0 * label_loss(labels[rows], outputs, loss).numpy()
    np.testing.assert_allclose(whole, expected, atol=1e-12)


@pytest.mark.parametrize("count", [0, 1, 5, 39])
def test_nearest_rows_are_those_of_all_distances(count: int) -> None:
    x = np.random.default_rng(0).normal(size=(40, 3))
    x[7] = x[3]
    distances = np.linalg.norm(x[:, None] - x, axis=2)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(nearest_rows(x, count), np.argsort(distances, axis=1, kind="stable")[:, :count])
