"""DAN: the discrepancy and its gradients against all pairs of kernels, edge cases, the recipe."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Memory
from warmpot.methods.dan import Dan, linear_mmd
from warmpot.train import load_config


def by_matrix(source: torch.Tensor, target: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The kernel matrix of all pairs, and the matrix of coefficients, as the library has them."""
    n, x = len(source), torch.cat([source, target])
    squares = ((x[None] - x[:, None]) ** 2).sum(2)
    mean = squares.detach().mean()
    kernels = sum(torch.exp(-squares / (2 * 2.0**k * mean)) for k in range(-3, 2))
    coefficients = torch.zeros(2 * n, 2 * n, dtype=x.dtype)
    for i in range(n):
        j = (i + 1) % n
        coefficients[i, j] += weights[i] * weights[j] / n
        coefficients[n + i, n + j] += 1 / n
        coefficients[i, n + j] -= weights[i] / n
        coefficients[j, n + i] -= weights[j] / n
    return (kernels * coefficients).sum()


UNEVEN = torch.tensor([2.0, 1.0, 0.5, 0.0, 1.5], dtype=torch.float64)


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    w = context.weights / context.weights.sum()
    losses = torch.nn.functional.cross_entropy(context.source.logits, context.labels, reduction="none")
    parts = context.source.features, context.target.features
    return (w * losses).sum() + 0.7 * by_matrix(*parts, len(w) * w), []


@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
def test_loss_and_gradients_are_the_formula(batch: Any, same_as: Any, weights: Any) -> None:
    context = batch(5, 5, weights=weights)
    result = Dan(transfer=0.7).step(context, Memory())
    same_as(result, context, Memory(), formula)
    np.testing.assert_allclose(result.weights, context.weights / context.weights.sum(), rtol=1e-6)


def test_equal_distributions_have_no_discrepancy_and_moved_ones_do() -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4000, 3, generator=rng, dtype=torch.float64) for _ in range(2))
    assert abs(float(linear_mmd(x, y))) < 0.1
    assert float(linear_mmd(x, y + 1.0)) > 0.5


def test_further_samples_of_the_larger_batch_count_in_the_bandwidth_only(batch: Any) -> None:
    source, target = batch(5, 3).source.features.detach(), batch(5, 3).target.features.detach()
    mean = torch.cdist(torch.cat([source, target]), torch.cat([source, target])).square().mean()

    def kernel(a: torch.Tensor, b: torch.Tensor) -> float:
        return sum(float(torch.exp(-(a - b).square().sum() / (2 * 2.0**k * mean))) for k in range(-3, 2))

    s, t = source[:3], target
    truth = 0.0
    for i in range(3):
        j = (i + 1) % 3
        truth += (kernel(s[i], s[j]) + kernel(t[i], t[j]) - kernel(s[i], t[j]) - kernel(s[j], t[i])) / 3
    assert float(linear_mmd(source, target)) == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (3, 2)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context = batch(n, m, weights=weights)
        result = Dan().step(context, Memory())
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.source.features.grad).all()


def test_constant_features_are_finite() -> None:
    x = torch.ones(4, 3, requires_grad=True)
    loss = linear_mmd(x, torch.ones(4, 3))
    loss.backward()
    assert float(loss.detach()) == 0
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="transfer"):
        Dan(transfer=-1.0)


def test_the_recipe_is_that_of_the_library() -> None:
    config = load_config("dan")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (20 * 500, 32, 32, "shuffled")
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate, optimizer.backbone) == (3e-3, 5e-4, 3e-4, 0.1)
    assert (optimizer.bottleneck, optimizer.head) == (1.0, 1.0)
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("relu_dropout", 256, True)
    assert (config.params, config.weights) == ({"transfer": 1.0}, "uniform")


def test_the_loop_on_features_is_the_common_one() -> None:
    assert load_config("dan-frozen").minibatch == load_config("frozen").minibatch
