"""ETN: the loss and all gradients against the formula, the leaky softmax, edge cases, the recipe."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup, TrainProgress
from warmpot.methods.etn import Etn, leaky_losses
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-10 * 300 / 5000)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def leaky(scores: torch.Tensor) -> torch.Tensor:
    return scores.exp() / (scores.exp().sum(1, keepdim=True) + scores.shape[1])


def likeness(context: BatchContext, memory: Any) -> list[float]:
    if context.weights is not None:
        return (context.weights / context.weights.mean()).tolist()
    with torch.no_grad():
        d = leaky(memory.weigher(context.source.features)).sum(1).tolist()
    return [(1 - x) / (sum(1 - y for y in d) / len(d)) for x in d]


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    n, m, w = len(context.labels), len(context.target.features), likeness(context, memory)
    features = torch.cat([context.source.features, context.target.features])
    d = torch.sigmoid(memory.discriminator(features))
    adversarial = -sum(w[i] * d[i].log() for i in range(n)) / n - sum((1 - d[n + j]).log() for j in range(m)) / m
    q = leaky(memory.weigher(features.detach()))
    domain = -sum(q[i].sum().log() for i in range(n)) / n - sum((1 - q[n + j].sum()).log() for j in range(m)) / m
    label = 0
    for i, y in enumerate(context.labels.tolist()):
        label = label - sum(q[i, k].log() if k == y else (1 - q[i, k]).log() for k in range(3)) / n
    p = context.source.logits.softmax(1)
    classification = -sum(w[i] * p[i, y].log() for i, y in enumerate(context.labels.tolist())) / n
    r = context.target.logits.softmax(1)
    plain = classification - 0.2 * (r * r.log()).sum() / m + 10.0 * domain + label
    return plain, [(adversarial, STRENGTH)]


@pytest.mark.parametrize("weights", [None, UNEVEN], ids=["own", "given"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any) -> None:
    context, memory = batch(weights=weights), Etn(hidden=8).make_memory(SIZES).double().eval()  # no dropout
    result = Etn(hidden=8).step(context, memory)
    same_as(result, context, memory, formula)
    w = np.array(likeness(context, memory))
    np.testing.assert_allclose(result.weights, w / w.sum(), rtol=1e-6)


def test_a_leak_as_large_as_the_number_of_classes() -> None:
    """With equal scores of 0 half of the probability leaks."""
    logit, loss = leaky_losses(torch.zeros(1, 4, dtype=torch.float64), torch.tensor([1]))
    assert float(logit) == pytest.approx(0.0, abs=1e-12)
    assert float(loss) == pytest.approx(-math.log(1 / 8) - 3 * math.log(7 / 8))


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_large_scores_are_finite(size: float) -> None:
    scores = torch.tensor([[size, 0.0, 0.0], [0.0, size, 0.0]], requires_grad=True)
    logit, loss = leaky_losses(scores, torch.tensor([0, 0]))
    (loss.sum() + logit.sum()).backward()
    assert torch.isfinite(loss).all()
    assert torch.isfinite(scores.grad).all()


def test_the_reversal_counts_two_passes_a_step() -> None:
    """The official counter advances for the source and for the target; its horizon is 10000 passes."""
    for step in (0, 100, 4000):
        truth = 2 / (1 + math.exp(-10 * (2 * step) / 10000)) - 1
        assert Etn().strength(TrainProgress(step, 20000)) == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in (None, torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), Etn(hidden=8).make_memory(SIZES).double()
        result = Etn(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()
        assert torch.isfinite(result.weights).all()


@pytest.mark.parametrize("bad", [{"auxiliary": -1.0}, {"labels": -1.0}, {"entropy": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Etn(**bad)


def test_the_recipe_is_the_official_one() -> None:
    config = load_config("etn")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (20000, 36, 36, "balanced")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == (1e-3, 5e-4, 10 / 1e4)
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra) == (0.1, 1.0, 1.0, 1.0)
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("linear", 256, False)
    assert config.params == {"adversarial": 1.0, "slope": 10.0, "horizon": 5000, "ceiling": 1.0, "hidden": 1024,
                             "entropy": 0.2, "auxiliary": 10.0, "labels": 1.0}  # fmt: skip
    assert config.weights == "own"
    assert load_config("etn-frozen").minibatch == load_config("frozen").minibatch
