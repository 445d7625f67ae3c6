"""Shared loss terms against plain loops, and their gradients at the edge of float32."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from warmpot.methods.losses import (
    complement_entropy,
    mean_entropy,
    reversal_strength,
    sample_entropy,
    weighted_cross_entropy,
)

LOGITS = [[1.0, -0.5, 0.3, 2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 1.0, -2.0, 0.5]]
LABELS = [3, 1, 2]
WEIGHTS = [0.2, 1.5, 0.7]


def _p(row: list[float]) -> list[float]:
    odds = [math.exp(z) for z in row]
    return [x / sum(odds) for x in odds]


def _tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    return logits, torch.tensor(LABELS), torch.tensor(WEIGHTS, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_weighted_cross_entropy_is_the_formula(smoothing: float) -> None:
    top = 0.0
    for row, y, w in zip(LOGITS, LABELS, WEIGHTS, strict=True):
        p = _p(row)
        mixed = [(1 - smoothing) * (k == y) + smoothing / 4 for k in range(4)]
        top += w * -sum(q * math.log(x) for q, x in zip(mixed, p, strict=True))
    found = weighted_cross_entropy(*_tensors(), smoothing=smoothing, delta=0.3)
    assert float(found.detach()) == pytest.approx(top / (sum(WEIGHTS) + 0.3), rel=1e-12)


def test_no_gradient_goes_through_weights() -> None:
    logits, labels, weights = _tensors()
    (weighted_cross_entropy(logits, labels, weights) + complement_entropy(logits, labels, weights)).backward()
    assert weights.grad is None
    assert logits.grad is not None


def test_without_weight_there_is_no_loss() -> None:
    logits, labels, _ = _tensors()
    nothing = torch.zeros(3)
    assert float(weighted_cross_entropy(logits, labels, nothing).detach()) == 0.0
    assert float(complement_entropy(logits, labels, nothing).detach()) == 0.0


def test_entropies_are_the_formula() -> None:
    truth = [-sum(x * math.log(x) for x in _p(row)) for row in LOGITS]
    np.testing.assert_allclose(sample_entropy(torch.tensor(LOGITS, dtype=torch.float64)).numpy(), truth, rtol=1e-12)
    assert float(mean_entropy(torch.tensor(LOGITS, dtype=torch.float64))) == pytest.approx(sum(truth) / 3, rel=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_complement_entropy_is_the_formula(weighted: bool) -> None:
    top = bottom = 0.0
    for row, y, w in zip(LOGITS, LABELS, WEIGHTS, strict=True):
        p = _p(row)
        q = [x / (1 - p[y]) for k, x in enumerate(p) if k != y]
        count = (w if weighted else 1.0) * (1 - p[y])
        top += count * sum(x * math.log(x) for x in q) / math.log(3)
        bottom += count
    logits, labels, weights = _tensors()
    found = complement_entropy(logits, labels, weights if weighted else None)
    assert float(found.detach()) == pytest.approx(top / bottom, rel=1e-6)


def test_complement_entropy_differentiates_the_values_with_the_doubt_held() -> None:
    """The count ``1 - p_y`` of a sample is a constant: for one sample the gradient is that of its value alone."""
    z = torch.tensor([[1.0, -0.5, 0.3, 2.0], [0.1, 0.4, -1.0, 0.2]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([3, 0])
    complement_entropy(z, y).backward()
    again = z.detach().clone().requires_grad_()
    p = again.softmax(1)
    doubt = 1 - p[[0, 1], y] + 1e-7
    wrong = torch.tensor([[1.0, 1, 1, 0], [0, 1, 1, 1]])
    q = p / (1 - p[[0, 1], y])[:, None]
    values = (wrong * q * q.log()).sum(1) / math.log(3)
    ((doubt.detach() * values).sum() / doubt.detach().sum()).backward()
    torch.testing.assert_close(z.grad, again.grad, rtol=1e-9, atol=1e-12)


@given(st.integers(3, 9), st.floats(-50, 50))
def test_complement_entropy_is_least_where_the_wrong_classes_are_alike(n_classes: int, right: float) -> None:
    logits = torch.zeros(2, n_classes, dtype=torch.float64)
    logits[:, 1] = right
    assert float(complement_entropy(logits, torch.tensor([1, 1]))) == pytest.approx(-1.0, abs=1e-12)


def test_two_classes_have_one_wrong_class() -> None:
    assert float(complement_entropy(torch.tensor([[1.0, 2.0]]), torch.tensor([0]))) == 0.0


def test_certain_predictions_have_finite_losses_and_gradients() -> None:
    for dtype in (torch.float16, torch.float32):
        logits = torch.tensor([[2e4, 0.0, -3e4, 1e3], [0.0, 3e4, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        labels = torch.tensor([0, 2])
        total = weighted_cross_entropy(logits, labels, torch.ones(2)) + mean_entropy(logits)
        total = total + complement_entropy(logits, labels)
        total.backward()
        assert torch.isfinite(total)
        assert torch.isfinite(logits.grad).all()


@given(st.floats(0, 1), st.floats(0, 20))
def test_reversal_comes_up_as_the_formula_says(progress: float, slope: float) -> None:
    assert reversal_strength(progress, slope) == pytest.approx(2 / (1 + math.exp(-slope * progress)) - 1, abs=1e-15)
