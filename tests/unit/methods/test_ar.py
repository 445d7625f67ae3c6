"""AR: its loss by hand, and whom its gradients reach."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from warmpot._settings import from_mapping
from warmpot.errors import InputError
from warmpot.methods import BatchContext, Memory, TrainProgress
from warmpot.methods.ar import Ar
from warmpot.methods.base import progress_at
from warmpot.nets import NetworkSettings, build_network
from warmpot.train.recipes import read_preset

LABELS = torch.tensor([0, 1, 2, 1])
WEIGHTS = torch.tensor([3.0, 0.0, 1.0, 2.0])


def _context(weights: torch.Tensor = WEIGHTS) -> tuple[BatchContext, torch.nn.Module]:
    rng = torch.Generator().manual_seed(0)
    network = build_network(NetworkSettings(width=4, sphere=10.0), 5, 3, seed=1)
    source, target = (torch.randn(n, 5, generator=rng) for n in (4, 6))
    context = BatchContext(
        network(source), LABELS, network(target), TrainProgress(0, 10), network=network, weights=weights
    )
    return context, network


def _by_hand(context: BatchContext, smoothing: float, entropy: float) -> float:
    def log_softmax(z: list[float]) -> list[float]:
        total = math.log(sum(math.exp(v - max(z)) for v in z)) + max(z)
        return [v - total for v in z]

    weights, classification = context.weights.tolist(), 0.0  # type: ignore[union-attr]
    for z, y, w in zip(context.source.logits.tolist(), context.labels.tolist(), weights, strict=True):
        logs = log_softmax(z)
        classification += w * sum(-((k == y) * (1 - smoothing) + smoothing / 3) * logs[k] for k in range(3))
    uncertain = [-sum(math.exp(v) * v for v in log_softmax(z)) for z in context.target.logits.tolist()]
    return classification / (sum(weights) + 1e-5) + entropy * sum(uncertain) / len(uncertain)


@pytest.mark.parametrize(("smoothing", "entropy"), [(0.0, 0.1), (0.1, 0.1), (0.1, 2.0), (0.0, 0.0)])
def test_loss_by_hand(smoothing: float, entropy: float) -> None:
    context, _ = _context()
    result = Ar(label_smooth=smoothing, entropy=entropy).step(context, Memory())
    assert float(result.loss.detach()) == pytest.approx(_by_hand(context, smoothing, entropy), rel=1e-5)
    np.testing.assert_allclose(result.weights, WEIGHTS / 6, atol=1e-5)
    assert not result.weights.requires_grad


@pytest.mark.parametrize(("step", "counts"), [(999, False), (1000, True), (2999, True)])
def test_the_entropy_counts_from_its_start(step: int, counts: bool) -> None:
    method, (context, _) = Ar(entropy=2.0, start=1 / 3), _context()
    progress = progress_at(step, 3000, method.phases)
    assert progress.phase == ("target" if counts else "source")
    result = method.step(dataclasses.replace(context, progress=progress), Memory())
    assert float(result.loss.detach()) == pytest.approx(_by_hand(context, 0.0, 2.0 * counts), rel=1e-5)


def _gradients(entropy: float) -> dict[str, torch.Tensor]:
    context, network = _context()
    Ar(entropy=entropy).step(context, Memory()).loss.backward()
    return {name: parameter.grad for name, parameter in network.named_parameters()}  # type: ignore[misc]


def test_the_head_learns_nothing_from_the_target() -> None:
    without, with_ = _gradients(0.0), _gradients(5.0)
    for name, gradient in without.items():
        same = torch.equal(gradient, with_[name])
        assert same if name.startswith("head") else not same


def test_no_gradient_reaches_the_weights() -> None:
    weights = WEIGHTS.clone().requires_grad_()
    context, _ = _context(weights)
    Ar().step(context, Memory()).loss.backward()
    assert weights.grad is None


def test_never_nan_for_certain_predictions_or_a_batch_without_weight() -> None:
    context, _ = _context(torch.zeros(4))
    far = context.target._replace(features=1e6 * context.target.features)
    result = Ar(label_smooth=0.1).step(dataclasses.replace(context, target=far), Memory())
    assert torch.isfinite(result.loss)
    assert torch.isfinite(result.weights).all()


@pytest.mark.parametrize("params", [{"entropy": -1.0}, {"label_smooth": 1.5}, {"start": 1.5}])
def test_bad_parameters(params: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(params))):
        Ar(**params)


@pytest.mark.parametrize(
    ("name", "radius"), [("ar", 10.0), ("ar-imagenet", 20.0), ("ar-office31", 8.5), ("ar-frozen", 10.0)]
)
def test_recipes(name: str, radius: float) -> None:
    recipe = read_preset(name)
    assert from_mapping(Ar, recipe["params"], "params") == Ar()
    assert recipe["minibatch"]["network"]["sphere"] == radius
