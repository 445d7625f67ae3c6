"""CDAN+E: the loss and all gradients against loops over products, random maps, edge cases, the recipe."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup
from warmpot.methods.cdan import Cdan
from warmpot.train import load_config

SIZES = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=9, seed=3)
STRENGTH = 2 / (1 + math.exp(-0.3)) - 1
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)


def formula(certainty: bool, random_map: int) -> Any:
    def of(context: BatchContext, memory: Any) -> tuple[Any, Any]:
        n = len(context.labels)
        features = torch.cat([context.source.features, context.target.features])
        p = torch.cat([context.source.logits, context.target.logits]).detach().numpy()
        p = np.exp(p) / np.exp(p).sum(1, keepdims=True)
        rows, v = [], []
        for i, row in enumerate(p):
            if random_map:
                mixed = (memory.of_predictions.T @ torch.from_numpy(row)) * (memory.of_features.T @ features[i])
                rows.append(mixed / random_map**0.5)
            else:
                rows.append(torch.cat([row[k] * features[i] for k in range(3)]))
            v.append(1 + math.exp(sum(x * math.log(x) for x in row)) if certainty else 1.0)
        w = (context.weights / context.weights.mean()).tolist()
        counts = [a * b for a, b in zip(v, [*w, *[1.0] * len(context.target.features)], strict=True)]
        d = torch.sigmoid(memory.discriminator(torch.stack(rows)))
        losses = [-d[i].log() if i < n else -(1 - d[i]).log() for i in range(len(d))]
        adversarial = sum(c * loss for c, loss in zip(counts, losses, strict=True)) / sum(counts)
        cross = torch.nn.functional.cross_entropy(context.source.logits, context.labels, reduction="none")
        classification = (context.weights * cross).sum() / context.weights.sum()
        return classification, [(adversarial, STRENGTH)]

    return of


@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
@pytest.mark.parametrize(("certainty", "random_map"), [(True, 0), (False, 0), (True, 7)])
def test_loss_and_gradients_are_the_formula(
    batch: Any, same_as: Any, certainty: bool, random_map: int, weights: Any
) -> None:
    method = Cdan(hidden=8, certainty=certainty, random_map=random_map)
    context, memory = batch(weights=weights), method.make_memory(SIZES).double()
    result = method.step(context, memory)
    same_as(result, context, memory, formula(certainty, random_map))
    np.testing.assert_allclose(result.weights, context.weights / context.weights.sum(), rtol=1e-6)


def test_the_discriminator_sees_as_many_products_as_there_are() -> None:
    widths = [Cdan(hidden=8, random_map=r).make_memory(SIZES).discriminator.layers[0].in_features for r in (0, 1024)]
    assert widths == [6 * 3, 1024]


def test_random_maps_are_part_of_the_state_and_come_from_the_seed() -> None:
    before = torch.get_rng_state()
    memory, other = (Cdan(hidden=8, random_map=7).make_memory(SIZES._replace(seed=seed)) for seed in (3, 4))
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(memory.of_features, other.of_features)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(memory.of_features, other.of_features)
    assert torch.equal(memory.of_predictions, other.of_predictions)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), Cdan(hidden=8).make_memory(SIZES).double()
        result = Cdan(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()


@pytest.mark.parametrize("bad", [{"random_map": -1}, {"horizon": 0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Cdan(**bad)


def test_the_recipe_is_that_of_the_library() -> None:
    config = load_config("cdan")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (30 * 1000, 32, 32, "shuffled")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate, optimizer.backbone) == (1e-2, 1e-3, 1e-3, 0.1)
    assert (loop.network.bottleneck, loop.network.joint) == ("bn_relu", True)
    assert config.params == {"adversarial": 1.0, "slope": 1.0, "horizon": 1000, "ceiling": 1.0, "hidden": 1024,
                             "certainty": True, "random_map": 0}  # fmt: skip
    assert load_config("cdan-office31").minibatch.steps == 20 * 1000
    assert load_config("cdan-frozen").minibatch == load_config("frozen").minibatch
