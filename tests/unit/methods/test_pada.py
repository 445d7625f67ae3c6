"""PADA: the loss and all gradients against the formula, its class weights, edge cases, the recipe."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Setup, TrainProgress, make_weighting
from warmpot.methods.pada import Pada
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-0.3)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    n, m, c = len(context.labels), len(context.target.features), (context.weights / max(context.weights)).tolist()
    p = context.source.logits.exp() / context.source.logits.exp().sum(1, keepdim=True)
    classification = -sum(c[i] * p[i, y].log() for i, y in enumerate(context.labels.tolist())) / sum(c)
    d = torch.sigmoid(memory.discriminator(torch.cat([context.source.features, context.target.features])))
    source = -sum(c[i] * d[i].log() for i in range(n)) / n
    target = -sum(sum(c) / n * (1 - d[n + j]).log() for j in range(m)) / m
    return classification, [((source + target) / 2, STRENGTH)]


@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any) -> None:
    context, memory = batch(weights=weights), Pada(hidden=8).make_memory(SIZES).double()
    result = Pada(hidden=8).step(context, memory)
    same_as(result, context, memory, formula)
    np.testing.assert_allclose(result.weights, context.weights / context.weights.sum(), rtol=1e-6)


def test_weights_are_relative_to_the_heaviest_of_all_classes(batch: Any) -> None:
    whole = batch(weights=UNEVEN)
    part = dataclasses.replace(whole, largest_weight=torch.tensor(1.0))  # of a class that the batch does not have
    results = [Pada(hidden=8).step(context, Pada(hidden=8).make_memory(SIZES).double()) for context in (whole, part)]
    large, small = (result.metrics["adversarial"] for result in results)
    assert float(small) == pytest.approx(0.5 * float(large))
    assert float(results[0].metrics["classification"]) == float(results[1].metrics["classification"])


def test_class_weights_have_a_temperature() -> None:
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 0.1, 0.2], [0.3, 0.0, 0.0]])
    odds = np.exp(logits / 0.1)
    shares = (odds / odds.sum(1, keepdims=True)).mean(0)
    network = build_network(NetworkSettings(width=2), 4, 3, seed=0)
    target = Outputs.of(logits=torch.from_numpy(logits))
    labels = torch.tensor([0, 1, 2])
    weighting = make_weighting("class_share", {"temperature": 0.1, "periods": 2})
    memory = weighting.make_memory(SIZES)
    weighting.refresh(memory, TrainProgress(5, 10), lambda: DatasetPass(target, target, labels, network))
    np.testing.assert_allclose(memory.weights, shares, rtol=1e-6)


def test_bad_class_weights_are_refused() -> None:
    with pytest.raises(InputError, match="temperature"):
        make_weighting("class_share", {"temperature": 0.0})


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), Pada(hidden=8).make_memory(SIZES).double()
        result = Pada(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()


def test_the_recipe_is_that_of_the_library() -> None:
    config = load_config("pada")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (30 * 1000, 36, 36, "shuffled")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate, optimizer.backbone) == (2e-3, 1e-3, 1e-3, 0.1)
    assert (loop.network.bottleneck, loop.network.joint) == ("bn_relu", True)
    assert (config.weights, config.weight_params["temperature"]) == ("class_share", 0.01)
    other = load_config("pada-office31")
    assert (other.minibatch.steps, other.weight_params["temperature"]) == (20 * 1000, 0.1)
    imagenet = load_config("pada-imagenet")
    assert (imagenet.minibatch.steps, imagenet.minibatch.optimizer.lr) == (20 * 2000, 3e-3)
    assert (imagenet.minibatch.network.bottleneck, imagenet.weight_params["temperature"]) == ("none", 0.01)
    for each, every in ((config, 500), (other, 500), (imagenet, 2000)):  # steps between refreshes
        assert each.minibatch.steps // each.weight_params["periods"] == every
    assert load_config("pada-frozen").minibatch == load_config("frozen").minibatch
