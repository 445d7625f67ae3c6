"""MOT: the masked plan by a fixed-point loop, loss and gradients by formula, batches without a common class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Memory, TrainProgress
from warmpot.methods.mot import Mot, masked
from warmpot.nets import Outputs
from warmpot.train import load_config

LABELS = torch.tensor([0, 1, 2, 0, 3])
METHOD = {"tau": 0.5, "eps": 0.3, "eta": 0.2, "loss_scale": 0.7, "entropy": 0.4}


def make_context(weights: Any = (1.0, 0.5, 0.0, 2.0, 1.0), scale: float = 1.0) -> BatchContext:
    rng = torch.Generator().manual_seed(5)
    parts = [torch.randn(n, k, dtype=torch.float64, generator=rng) for n, k in ((5, 2), (5, 4), (4, 2), (4, 4))]
    fs, zs, ft, zt = (part.requires_grad_() for part in (parts[0], parts[1], parts[2], scale * parts[3]))
    weights = torch.tensor(weights, dtype=torch.float64)
    return BatchContext(Outputs(fs, zs), LABELS, Outputs(ft, zt), TrainProgress(3, 10), weights=weights)


def arrays(context: BatchContext) -> list[np.ndarray]:
    parts = (context.source.features, context.source.logits, context.target.features, context.target.logits)
    return [part.detach().numpy() for part in parts]


def log_softmax(z: np.ndarray) -> np.ndarray:
    return np.array([[v - max(row) - math.log(sum(math.exp(u - max(row)) for u in row)) for v in row] for row in z])


def brute_plan(context: BatchContext, soft: bool) -> tuple[np.ndarray, np.ndarray]:
    """Scaling of the kernel ``mask a b' exp(-C / eps)`` to its fixed point; and the cost."""
    fs, _, ft, zt = arrays(context)
    cost = np.array([[0.2 * sum((x - y) ** 2) for y in ft] for x in fs])
    logs = log_softmax(zt)
    mask = np.array([[math.exp(row[k]) if soft else float(k == row.argmax()) for row in logs] for k in LABELS.tolist()])
    # As a cost of its own, the mask is divided by eps like the distance.
    kernel = np.where(mask > 0, np.exp((np.log(np.where(mask > 0, mask, 1)) - cost) / 0.3), 0)
    a = context.given_weights.numpy() / context.given_weights.numpy().sum()
    b = np.full(4, 0.25)
    kernel = kernel * a[:, None] * b
    u, v, power = np.ones(5), np.ones(4), 0.5 / (0.5 + 0.3)
    for _ in range(5000):
        u = np.array([(x / s) ** power if s > 0 else 0.0 for x, s in zip(a, kernel @ v, strict=True)])
        v = np.array([(x / s) ** power if s > 0 else 0.0 for x, s in zip(b, u @ kernel, strict=True)])
    return u[:, None] * kernel * v, cost


@pytest.mark.parametrize("soft", [False, True])
def test_the_loss_and_its_gradients_are_those_of_the_formula(soft: bool) -> None:
    context = make_context()
    result = Mot(soft=soft, **METHOD).step(context, Memory())
    result.loss.backward()
    fs, zs, ft, zt = arrays(context)
    plan, cost = brute_plan(context, soft)
    assert plan.sum() > 0.01
    weights = context.given_weights.numpy() / (context.given_weights.numpy().sum() + 1e-5)
    logs_s, logs_t = log_softmax(zs), log_softmax(zt)
    entropies = -(np.exp(logs_t) * logs_t).sum(axis=1)
    classification = -sum(w * row[k] for w, row, k in zip(weights, logs_s, LABELS.tolist(), strict=True))
    wanted = classification + 0.7 * (plan * cost).sum() + 0.4 * entropies.mean()
    assert float(result.loss.detach()) == pytest.approx(wanted, abs=1e-6)
    pull, push = np.zeros_like(ft), np.zeros_like(fs)
    for j in range(4):
        for i in range(5):
            pull[j] += 0.7 * plan[i, j] * 0.2 * 2 * (ft[j] - fs[i])
            push[i] += 0.7 * plan[i, j] * 0.2 * 2 * (fs[i] - ft[j])
    np.testing.assert_allclose(context.target.features.grad, pull, atol=1e-6)
    np.testing.assert_allclose(context.source.features.grad, push, atol=1e-6)
    p = np.exp(logs_t)
    np.testing.assert_allclose(context.target.logits.grad, -0.1 * p * (logs_t + entropies[:, None]), atol=1e-6)
    steps = weights[:, None] * (np.exp(logs_s) - np.eye(4)[LABELS.numpy()])
    np.testing.assert_allclose(context.source.logits.grad, steps, atol=1e-6)
    assert result.metrics["alpha"] == pytest.approx(plan.sum(), abs=1e-5)


def test_mass_moves_within_predicted_classes_only() -> None:
    logits = torch.tensor([[5.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 5.0]], dtype=torch.float64)
    cost = torch.ones(5, 2, dtype=torch.float64)
    assert torch.isfinite(masked(cost, LABELS, logits, soft=False)).tolist() == [
        [True, False], [False, False], [False, False], [True, False], [False, True],
    ]  # fmt: skip
    soft = masked(cost, LABELS, logits, soft=True)
    torch.testing.assert_close(torch.exp(1 - soft), torch.softmax(logits, dim=1)[:, LABELS].T)


@pytest.mark.parametrize("weights", [[1.0] * 5, [0.0] * 5])
def test_a_batch_without_a_common_class_moves_nothing(weights: list[float]) -> None:
    context = make_context(weights)
    with torch.no_grad():
        context.target.logits.copy_(torch.tensor([[-50.0, -50.0, -50.0, -50.0]] * 4))
        context.target.logits[:, 3] = 50.0
    context = BatchContext(context.source, torch.zeros_like(LABELS), context.target, context.progress,
                           weights=context.weights)  # fmt: skip
    result = Mot().step(context, Memory())
    result.loss.backward()
    assert float(result.metrics["alpha"]) == 0
    parts = (context.source.features, context.source.logits, context.target.features, context.target.logits)
    assert all(bool(torch.isfinite(part.grad).all()) for part in parts)


@pytest.mark.parametrize("bad", [{"tau": 0.0}, {"eps": 0.0}, {"eta": -1.0}, {"entropy": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Mot(**bad)


@pytest.mark.parametrize("preset", ["mot", "mot-frozen"])
def test_it_is_called_an_interpretation(preset: str) -> None:
    assert Mot.status.startswith("interpretation: ")
    config = load_config(preset)
    wanted = {"tau": 0.06, "eps": 0.01, "eta": 0.003, "loss_scale": 10.0, "entropy": 0.1, "soft": False}
    assert (config.params, config.weights) == (wanted, "class_share")
