"""DANN and what adversarial methods share: the loss and all gradients against the formula, schedules, edge cases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup, TrainProgress
from warmpot.methods.adversarial import mean_one
from warmpot.methods.dann import Dann
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-0.3)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    """Sample by sample, with probabilities instead of logits."""
    p = context.source.logits.exp() / context.source.logits.exp().sum(1, keepdim=True)
    w = context.weights / context.weights.sum()
    classification = -sum(w[i] * p[i, y].log() for i, y in enumerate(context.labels.tolist()))
    n, m = len(context.source.features), len(context.target.features)
    d = 1 / (1 + torch.exp(-memory.discriminator(torch.cat([context.source.features, context.target.features]))))
    source = -sum(n * w[i] * d[i].log() for i in range(n)) / n
    target = -sum((1 - d[n + j]).log() for j in range(m)) / m
    return classification, [((source + target) / 2, STRENGTH)]


@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any) -> None:
    context, memory = batch(weights=weights), Dann(hidden=8).make_memory(SIZES).double()
    result = Dann(hidden=8).step(context, memory)  # in training mode: BatchNorm sees both domains together
    same_as(result, context, memory, formula)
    np.testing.assert_allclose(result.weights, context.weights / context.weights.sum(), rtol=1e-6)
    assert result.metrics["reversal"] == pytest.approx(STRENGTH)


def test_the_discriminator_normalises_both_domains_together(batch: Any) -> None:
    memory = Dann(hidden=8).make_memory(SIZES).double()
    first = memory.discriminator.layers[0]
    context = batch()
    Dann(hidden=8).step(context, memory)
    inputs = first(torch.cat([context.source.features, context.target.features])).detach()
    torch.testing.assert_close(memory.discriminator.layers[1].running_mean, 0.1 * inputs.mean(0))


def test_the_reversal_follows_the_schedule_of_the_library() -> None:
    method = Dann(slope=1.0, horizon=1000, ceiling=2.0)
    for step in (0, 1, 500, 1000, 5000):
        truth = 2 * 2.0 / (1 + math.exp(-step / 1000)) - 2.0
        assert method.strength(TrainProgress(step, 5000)) == pytest.approx(truth, abs=1e-12)
        later = TrainProgress(step + 70, 6000, "second", 70, 6000)  # a phase has its own count
        assert method.strength(later) == pytest.approx(truth, abs=1e-12)


def test_nothing_is_reversed_at_the_first_step(batch: Any) -> None:
    context, memory = batch(step=0), Dann(hidden=8).make_memory(SIZES).double()
    Dann(hidden=8).step(context, memory).loss.backward()
    assert context.target.features.grad.abs().max() == 0
    assert any(p.grad.abs().max() > 0 for p in memory.trained())


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), Dann(hidden=8).make_memory(SIZES).double()
        result = Dann(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()
        assert torch.isfinite(context.target.features.grad).all()


def test_weights_of_mean_one() -> None:
    assert torch.equal(mean_one(torch.full((3,), 0.2)), torch.ones(3))
    torch.testing.assert_close(mean_one(torch.tensor([1.0, 3.0])), torch.tensor([0.5, 1.5]))
    assert torch.equal(mean_one(torch.zeros(2)), torch.zeros(2))


def test_the_memory_comes_from_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, second, other = (Dann(hidden=8).make_memory(SIZES._replace(seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(before, torch.get_rng_state())
    weights = [next(iter(memory.trained())) for memory in (first, second, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize(
    "bad", [{"adversarial": -1.0}, {"slope": -1.0}, {"ceiling": -1.0}, {"horizon": 0}, {"hidden": 0}]
)
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Dann(**bad)


def test_the_recipe_is_that_of_the_library() -> None:
    config = load_config("dann")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler, loop.warmup) == (
        5000,
        36,
        36,
        "shuffled",
        0,
    )
    assert (optimizer.name, optimizer.lr, optimizer.momentum, optimizer.nesterov) == ("sgd", 0.002, 0.9, True)
    assert (optimizer.weight_decay, optimizer.decay_rate, optimizer.decay_power) == (1e-3, 1e-3, 0.75)
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra) == (0.1, 1.0, 1.0, 1.0)
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("bn_relu", 256, True)
    assert config.params == {"adversarial": 1.0, "slope": 1.0, "horizon": 1000, "ceiling": 1.0, "hidden": 1024}
    assert config.weights == "uniform"
    imagenet = load_config("dann-imagenet").minibatch
    assert (imagenet.steps, imagenet.network.bottleneck) == (5000, "none")


def test_the_loop_on_features_is_the_common_one() -> None:
    assert load_config("dann-frozen").minibatch == load_config("frozen").minibatch
