"""IWAN: the loss and all gradients against the formula, its weights, edge cases, the recipe."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup
from warmpot.methods.iwan import Iwan
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-0.3)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def likeness(context: BatchContext, memory: Any) -> list[float]:
    if context.weights is not None:
        return (context.weights / context.weights.mean()).tolist()
    with torch.no_grad():
        d = (1 / (1 + torch.exp(-memory.weigher(context.source.features)))).tolist()
    mean = sum(1 - x for x in d) / len(d)
    return [(1 - x) / (mean + 1e-5) for x in d]


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    n, m, w = len(context.labels), len(context.target.features), likeness(context, memory)
    features = torch.cat([context.source.features, context.target.features])
    own, other = (
        torch.sigmoid(net(x)) for net, x in ((memory.discriminator, features), (memory.weigher, features.detach()))
    )
    aligned = -sum(w[i] * own[i].log() for i in range(n)) / n - sum((1 - own[n + j]).log() for j in range(m)) / m
    judged = -sum(other[i].log() for i in range(n)) / n - sum((1 - other[n + j]).log() for j in range(m)) / m
    p = context.target.logits.softmax(1)
    entropy = -(p * p.log()).sum() / m
    cross = torch.nn.functional.cross_entropy(context.source.logits, context.labels, reduction="none")
    classification = sum((1.0 if context.weights is None else w[i]) * cross[i] for i in range(n)) / n
    plain = classification + 1.5 * 3.0 * judged / 2 + 0.1 * entropy
    return plain, [(3.0 * aligned / 2, STRENGTH)]


@pytest.mark.parametrize("weights", [None, UNEVEN], ids=["own", "given"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any) -> None:
    context, memory = batch(weights=weights), Iwan(hidden=8).make_memory(SIZES).double().eval()  # no dropout
    result = Iwan(hidden=8).step(context, memory)
    same_as(result, context, memory, formula)
    w = np.array(likeness(context, memory))
    np.testing.assert_allclose(result.weights, w / w.sum(), rtol=1e-6)


def test_the_two_discriminators_differ_and_come_from_the_seed() -> None:
    before = torch.get_rng_state()
    memory = Iwan(hidden=8).make_memory(SIZES)
    assert torch.equal(before, torch.get_rng_state())
    first, second = memory.discriminator.layers[0].weight, memory.weigher.layers[0].weight
    assert not torch.equal(first, second)
    assert len(list(memory.trained())) == len(list(memory.parameters()))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in (None, torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), Iwan(hidden=8).make_memory(SIZES).double()
        result = Iwan(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()
        assert torch.isfinite(result.weights).all()


def test_certain_discriminators_are_finite(batch: Any) -> None:
    context, memory = batch(weights=None), Iwan(hidden=8).make_memory(SIZES).double()
    with torch.no_grad():
        memory.weigher.layers[-1].bias.fill_(1e4)  # every sample is taken for the source
    result = Iwan(hidden=8).step(context, memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.equal(result.weights, torch.zeros(5, dtype=torch.float64))


@pytest.mark.parametrize("bad", [{"weigher": -1.0}, {"entropy": -1.0}, {"horizon": 0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Iwan(**bad)


def test_the_recipe_is_that_of_the_library() -> None:
    config = load_config("iwan")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (30 * 1000, 36, 36, "shuffled")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate, optimizer.backbone) == (1e-3, 1e-3, 1e-3, 0.1)
    assert config.params == {"adversarial": 3.0, "slope": 1.0, "horizon": 1000, "ceiling": 1.0, "hidden": 1024,
                             "weigher": 1.5, "entropy": 0.1}  # fmt: skip
    assert config.weights == "own"
    other = load_config("iwan-office31").minibatch
    assert (other.steps, other.optimizer.lr) == (10 * 1000, 3e-4)
    imagenet = load_config("iwan-imagenet").minibatch
    assert (imagenet.steps, imagenet.optimizer.lr, imagenet.network.bottleneck) == (10 * 1000, 1e-3, "none")
    assert load_config("iwan-frozen").minibatch == load_config("frozen").minibatch
