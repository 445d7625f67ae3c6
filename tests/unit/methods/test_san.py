"""SAN: the loss and all gradients against loops over classes, edge cases, the recipe."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup
from warmpot.methods.san import San
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-10 * 300 / 10000)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def judge(memory: Any, k: int, x: torch.Tensor) -> torch.Tensor:
    """Apply the discriminator of one class."""
    net = memory.discriminator
    for number, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
        x = (x.clamp_min(0) if number else x) @ weight[k] + bias[k]
    return torch.sigmoid(x[:, 0])


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    n, m = len(context.labels), len(context.target.features)
    features = torch.cat([context.source.features, context.target.features])
    p = torch.cat([context.source.logits, context.target.logits]).softmax(1)
    w = (context.weights / context.weights.mean()).tolist()
    share = p.detach().numpy().mean(0)
    terms = []
    for k in range(3):
        d = judge(memory, k, p[:, k : k + 1].detach() * features)
        loss = -sum(w[i] * d[i].log() for i in range(n)) - sum((1 - d[n + j]).log() for j in range(m))
        terms.append((loss / (n + m), STRENGTH * share[k] / share.max()))
    cross = torch.nn.functional.cross_entropy(context.source.logits, context.labels, reduction="none")
    classification = sum(w[i] * cross[i] for i in range(n)) / n
    return classification - 0.2 * (p * p.log()).sum() / (n + m), terms


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any, layers: int) -> None:
    method = San(hidden=8, layers=layers)
    context, memory = batch(weights=weights), method.make_memory(SIZES).double().eval()  # no dropout
    result = method.step(context, memory)
    same_as(result, context, memory, formula)
    np.testing.assert_allclose(result.weights, context.weights / context.weights.sum(), rtol=1e-6)


def test_discriminators_differ_drop_units_in_training_and_come_from_the_seed() -> None:
    before = torch.get_rng_state()
    net = San(hidden=64).make_memory(SIZES).discriminator
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(net.weights[0][0], net.weights[0][1])
    assert [tuple(weight.shape) for weight in net.weights] == [(3, 6, 64), (3, 64, 64), (3, 64, 1)]
    x = torch.ones(3, 2, 6)
    torch.manual_seed(0)
    assert not torch.equal(net(x)[:, 0], net(x)[:, 1])
    net.eval()
    assert torch.equal(net(x)[:, 0], net(x)[:, 1])


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), San(hidden=8).make_memory(SIZES).double()
        result = San(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()


@pytest.mark.parametrize("bad", [{"entropy": -1.0}, {"layers": -1}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        San(**bad)


def test_the_recipe_is_the_official_one() -> None:
    config = load_config("san")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (50000, 36, 36, "shuffled")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == (3e-4, 5e-4, 1e-3)
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra) == (1.0, 10.0, 10.0, 10.0)
    assert (loop.network.bottleneck, loop.network.joint) == ("linear", True)
    assert config.params == {"adversarial": 1.0, "slope": 10.0, "horizon": 10000, "ceiling": 1.0, "hidden": 1024,
                             "entropy": 0.2, "layers": 2}  # fmt: skip
    imagenet = load_config("san-imagenet")
    assert (imagenet.params["entropy"], imagenet.params["layers"]) == (1.0, 0)
    assert (imagenet.minibatch.network.bottleneck, imagenet.minibatch.optimizer.head) == ("none", 1.0)
    assert load_config("san-frozen").minibatch == load_config("frozen").minibatch
