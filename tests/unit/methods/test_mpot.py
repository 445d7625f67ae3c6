"""MPOT: its loss against loops, where gradients go, its ramp and its weights."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import ot
import pytest
import torch

from warmpot.costs import PairCosts
from warmpot.errors import InputError
from warmpot.losses import LABEL_LOSSES
from warmpot.methods import BatchContext, Memory, TrainProgress
from warmpot.methods.mpot import Mpot
from warmpot.nets import Outputs

LABELS = torch.tensor([0, 1, 2, 0, 3])
END = TrainProgress(9, 10)
CROSS_ENTROPY = LABEL_LOSSES["cross_entropy"]


def _context(*, grad: bool = False, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> BatchContext:
    rng = torch.Generator().manual_seed(3)
    parts = [torch.randn(n, k, dtype=torch.float64, generator=rng) for n, k in ((5, 2), (5, 4), (4, 2), (4, 4))]
    fs, zs, ft, zt = (part.to(dtype).requires_grad_(grad) for part in (parts[0], parts[1], parts[2], scale * parts[3]))
    return BatchContext(Outputs(fs, zs), LABELS, Outputs(ft, zt), END, weights=torch.ones(5, dtype=dtype))


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


def _oracle_plan(cost: np.ndarray, mass: float, eps: float) -> np.ndarray:
    n, m = cost.shape
    return ot.partial.entropic_partial_wasserstein(
        np.full(n, 1 / n), np.full(m, 1 / m), cost, m=mass, reg=eps, numItermax=100_000, stopThr=1e-15
    )


def test_the_loss_is_the_papers() -> None:
    """Cost and cross-entropy by loops, the plan by POT's own solver."""
    context, method = _context(), Mpot(alpha=0.4, eta1=0.2, eta2=1.5, eps=0.5, loss_scale=0.7)
    result = method.step(context, Memory())
    cost = _cost(context, 0.2, 1.5)
    plan = _oracle_plan(cost, 0.4, 0.5)
    assert result.metrics["alpha"] == pytest.approx(0.4)
    assert result.metrics["transport"] == pytest.approx((plan * cost).sum(), rel=1e-6)
    assert result.metrics["classification"] == pytest.approx(_source_losses(context).mean(), rel=1e-5)
    assert result.metrics["plan_ok"] == 1.0
    expected = _source_losses(context).mean() + 0.7 * (plan * cost).sum()
    assert result.loss == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(result.weights, torch.full((5,), 0.2, dtype=torch.float64), atol=1e-6, rtol=0)


def test_defaults_are_the_official_ones() -> None:
    context = _context()
    cost = _cost(context, 0.03, 7.5)
    plan = _oracle_plan(cost, 0.25, 0.5)
    assert Mpot().step(context, Memory()).loss == pytest.approx(
        _source_losses(context).mean() + (plan * cost).sum(), rel=1e-5
    )


def test_gradient_goes_through_the_cost_and_not_through_the_plan() -> None:
    context = _context(grad=True)
    Mpot(eta1=0.2, eta2=1.5, alpha=0.4).step(context, Memory()).loss.backward()
    plan = torch.from_numpy(_oracle_plan(_cost(context, 0.2, 1.5), 0.4, 0.5))
    fs, ft, zt = (x.detach() for x in (context.source.features, context.target.features, context.target.logits))
    apart = fs[:, None] - ft
    torch.testing.assert_close(
        context.source.features.grad, 0.4 * (plan[..., None] * apart).sum(dim=1), rtol=1e-5, atol=1e-8
    )
    torch.testing.assert_close(
        context.target.features.grad, -0.4 * (plan[..., None] * apart).sum(dim=0), rtol=1e-5, atol=1e-8
    )
    # of sum_ij P_ij CE(y_i, z_j): (column sum) softmax(z_j) - mass that comes from each class
    from_class = plan.T @ torch.eye(4, dtype=torch.float64)[LABELS]
    expected = 1.5 * (plan.sum(dim=0)[:, None] * zt.softmax(dim=1) - from_class)
    torch.testing.assert_close(context.target.logits.grad, expected, rtol=1e-5, atol=1e-7)
    own = (context.source.logits.detach().softmax(dim=1) - torch.eye(4, dtype=torch.float64)[LABELS]) / 5
    torch.testing.assert_close(context.source.logits.grad, own, rtol=1e-4, atol=1e-6)


def test_without_a_weighting_the_row_sums_of_the_plan_weigh() -> None:
    context = dataclasses.replace(_context(grad=True), weights=None)
    result = Mpot(eta1=0.2, eta2=1.5, alpha=0.4).step(context, Memory())
    p = _oracle_plan(_cost(context, 0.2, 1.5), 0.4, 0.5).sum(axis=1)
    assert not result.weights.requires_grad
    np.testing.assert_allclose(result.weights.numpy(), p / p.sum(), atol=2e-5)
    assert result.metrics["classification"] == pytest.approx(p @ _source_losses(context) / p.sum(), rel=1e-4)


def test_other_weights_change_the_source_loss_alone() -> None:
    context = _context()
    given = torch.tensor([4.0, 0.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    result, uniform = Mpot().step(dataclasses.replace(context, weights=given), Memory()), Mpot().step(context, Memory())
    losses = _source_losses(context)
    assert result.metrics["classification"] == pytest.approx(0.8 * losses[0] + 0.2 * losses[3], rel=1e-5)
    assert result.metrics["transport"] == uniform.metrics["transport"]


def test_the_ramp_ends_halfway_at_half_of_the_codes_argument() -> None:
    found = [Mpot().alpha_at(step / 5000) for step in (0, 1250, 2500, 2501, 5000)]
    assert found == pytest.approx([0.01, 0.13, 0.25, 0.25, 0.25])
    assert max(found) <= 0.25
    assert [(phase.name, phase.share) for phase in Mpot().phases] == [("ramp", 0.5), ("constant", 1.0)]
    masses = [
        Mpot().step(dataclasses.replace(_context(), progress=TrainProgress(step, 8)), Memory()).metrics["alpha"]
        for step in (0, 2, 4, 7)
    ]
    assert [float(mass) for mass in masses] == pytest.approx([0.01, 0.13, 0.25, 0.25])


def test_confident_predictions_leave_everything_finite() -> None:
    """Where log(softmax) is infinite and exp(-cost / eps) is 0."""
    context = _context(grad=True, dtype=torch.float32, scale=3000.0)
    result = Mpot().step(context, Memory())
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert result.metrics["alpha"] == pytest.approx(0.25, rel=1e-5)
    for part in (context.source.features, context.source.logits, context.target.features, context.target.logits):
        assert part.grad is not None
        assert torch.isfinite(part.grad).all()


def test_the_plan_over_all_pairs_is_the_exact_one() -> None:
    context = _context()
    costs = PairCosts(context.source.features.numpy(), context.target.features.numpy())
    method = Mpot(alpha=0.4, eta1=0.2, eta2=1.5)
    solution = method.plan(costs, LABELS, context.target.logits, 1.0, CROSS_ENTROPY).solution
    cost = _cost(context, 0.2, 1.5)
    expected = ot.partial.partial_wasserstein(np.full(5, 0.2), np.full(4, 0.25), cost, m=0.4)
    assert solution.p.sum() == pytest.approx(0.4)
    assert solution.value == pytest.approx((expected * cost).sum(), rel=1e-5)


@pytest.mark.parametrize(
    "params",
    [{"alpha": 1.5}, {"alpha_start": 0.0}, {"eps": 0.0}, {"eta1": -1.0}, {"eta1": 0.0, "eta2": 0.0}, {"ramp": 2}],
)
def test_bad_parameters_are_named(params: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(params))):
        Mpot(**params)
