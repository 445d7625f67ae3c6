"""JUMBOT: its plan against POT and against a fixed-point loop, its loss, where gradients go."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import ot
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Memory, TrainProgress
from warmpot.methods.jumbot import Jumbot
from warmpot.nets import Outputs

pytestmark = pytest.mark.filterwarnings("ignore:If reg_type = entropy:UserWarning")  # POT's, on our oracle
LABELS = torch.tensor([0, 1, 2, 0, 3])


def _context(*, grad: bool = False, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> BatchContext:
    rng = torch.Generator().manual_seed(5)
    parts = [torch.randn(n, k, dtype=torch.float64, generator=rng) for n, k in ((5, 2), (5, 4), (4, 2), (4, 4))]
    fs, zs, ft, zt = (part.to(dtype).requires_grad_(grad) for part in (parts[0], parts[1], parts[2], scale * parts[3]))
    return BatchContext(
        Outputs(fs, zs), LABELS, Outputs(ft, zt), TrainProgress(0, 10), weights=torch.ones(5, dtype=dtype)
    )


def _cross_entropy(logits: np.ndarray, label: int) -> float:
    return math.log(sum(math.exp(z - max(logits)) for z in logits)) + max(logits) - logits[label]


def _cost(context: BatchContext, eta1: float, eta2: float) -> np.ndarray:
    fs, ft, zt = (
        x.detach().double().numpy() for x in (context.source.features, context.target.features, context.target.logits)
    )
    return np.array(
        [
            [eta1 * sum((x - y) ** 2) + eta2 * _cross_entropy(z, int(label)) for y, z in zip(ft, zt, strict=True)]
            for x, label in zip(fs, context.labels, strict=True)
        ]
    )


def _source_losses(context: BatchContext) -> np.ndarray:
    logits = context.source.logits.detach().double().numpy()
    return np.array([_cross_entropy(z, int(label)) for z, label in zip(logits, context.labels, strict=True)])


def _oracle_plan(cost: np.ndarray, tau: float, eps: float, regularizer: str) -> np.ndarray:
    n, m = cost.shape
    return ot.unbalanced.sinkhorn_unbalanced(
        np.full(n, 1 / n), np.full(m, 1 / m), cost, eps, tau, method="sinkhorn", reg_type=regularizer,
        numItermax=100_000, stopThr=1e-14,
    )  # fmt: skip


@pytest.mark.parametrize("regularizer", ["entropy", "kl"])
def test_the_loss_is_the_papers(regularizer: str) -> None:
    """Cost and cross-entropy by loops, the plan by POT's own solver."""
    context = _context()
    method = Jumbot(tau=0.5, eps=0.3, eta1=0.2, eta2=1.5, loss_scale=0.7, regularizer=regularizer)
    result = method.step(context, Memory())
    cost = _cost(context, 0.2, 1.5)
    plan = _oracle_plan(cost, 0.5, 0.3, regularizer)
    assert result.metrics["alpha"] == pytest.approx(plan.sum(), rel=1e-4)
    assert result.metrics["transport"] == pytest.approx((plan * cost).sum(), rel=1e-4)
    assert result.metrics["plan_ok"] == 1.0
    assert result.loss == pytest.approx(_source_losses(context).mean() + 0.7 * (plan * cost).sum(), rel=1e-4)
    torch.testing.assert_close(result.weights, torch.full((5,), 0.2, dtype=torch.float64), atol=1e-6, rtol=0)


def test_defaults_are_the_official_ones() -> None:
    """The fixed point ``u = (a / K v)^(6/7)``, ``v = (b / K' u)^(6/7)`` of the code of 2021, in logarithms."""
    context = _context(scale=4.0)
    cost = _cost(context, 0.003, 0.75)
    power, f, g = 6 / 7, np.zeros(5), np.zeros(4)
    for _ in range(2000):
        f = power * (math.log(1 / 5) - np.logaddexp.reduce(g - cost / 0.01, axis=1))
        g = power * (math.log(1 / 4) - np.logaddexp.reduce(f[:, None] - cost / 0.01, axis=0))
    plan = np.exp(f[:, None] + g - cost / 0.01)
    result = Jumbot().step(context, Memory())
    assert 0.1 < plan.sum() < 1.0  # else the next lines would compare nothing
    assert result.metrics["alpha"] == pytest.approx(plan.sum(), rel=1e-4)
    assert result.loss == pytest.approx(_source_losses(context).mean() + 10 * (plan * cost).sum(), rel=1e-4)


def test_the_entropy_moves_more_than_the_divergence_from_the_product() -> None:
    """What POT changed in 0.9.5: a unit of mass costs ``eps log(n m)`` more."""
    moved = {
        name: float(Jumbot(regularizer=name).step(_context(), Memory()).metrics["alpha"]) for name in ("entropy", "kl")
    }
    # all of the plan scales: at the optimum by exp(-eps log(n m) / (eps + 2 tau))
    assert moved["kl"] / moved["entropy"] == pytest.approx(20 ** (-0.01 / 0.13), rel=1e-3)


def test_gradient_goes_through_the_cost_and_not_through_the_plan() -> None:
    context = _context(grad=True)
    Jumbot(tau=0.5, eps=0.3, eta1=0.2, eta2=1.5, loss_scale=1.0).step(context, Memory()).loss.backward()
    plan = torch.from_numpy(_oracle_plan(_cost(context, 0.2, 1.5), 0.5, 0.3, "entropy"))
    apart = context.source.features.detach()[:, None] - context.target.features.detach()
    torch.testing.assert_close(
        context.source.features.grad, 0.4 * (plan[..., None] * apart).sum(dim=1), rtol=1e-3, atol=1e-5
    )
    torch.testing.assert_close(
        context.target.features.grad, -0.4 * (plan[..., None] * apart).sum(dim=0), rtol=1e-3, atol=1e-5
    )
    # of sum_ij P_ij CE(y_i, z_j): (column sum) softmax(z_j) - mass that comes from each class
    from_class = plan.T @ torch.eye(4, dtype=torch.float64)[LABELS]
    expected = 1.5 * (plan.sum(dim=0)[:, None] * context.target.logits.detach().softmax(dim=1) - from_class)
    torch.testing.assert_close(context.target.logits.grad, expected, rtol=1e-3, atol=1e-5)
    own = (context.source.logits.detach().softmax(dim=1) - torch.eye(4, dtype=torch.float64)[LABELS]) / 5
    torch.testing.assert_close(context.source.logits.grad, own, rtol=1e-4, atol=1e-6)


def test_confident_predictions_leave_everything_finite() -> None:
    """Where log(softmax) is infinite and exp(-cost / eps) is 0."""
    context = _context(grad=True, dtype=torch.float32, scale=3000.0)
    result = Jumbot().step(context, Memory())
    result.loss.backward()
    assert torch.isfinite(result.loss)
    for part in (context.source.features, context.source.logits, context.target.features, context.target.logits):
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()


@pytest.mark.parametrize(
    "params", [{"tau": 0.0}, {"eps": -1.0}, {"eta1": -1.0}, {"eta1": 0.0, "eta2": 0.0}, {"regularizer": "l2"}]
)
def test_bad_parameters_are_named(params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(params))):
        Jumbot(**params)
