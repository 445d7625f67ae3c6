"""SPDA: loss and every gradient by loops, the schedule, who joins the source, batches, the recipes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, NamedBatch, Setup, TrainProgress
from warmpot.methods.spda import ADDED, Spda, SpdaMemory, mean_of_largest_cosines
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train import load_config

LABELS = torch.tensor([0, 1, 2, 3])
SETUP = Setup(n_source=9, n_target=5, n_classes=4, width=3, pooled=6)


def outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    return Outputs(*(torch.randn(n, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (3, 4)))


def make_memory() -> SpdaMemory:
    """Three of five target samples have joined nine of the source."""
    memory = Spda().make_memory(SETUP)
    memory.pseudo.copy_(torch.tensor([2, -1, 0, -1, 3]))
    return memory


def make_context(step: int = 55, *, added: bool = True) -> BatchContext:
    extra = NamedBatch(outputs(2, 2), torch.tensor([4, 0]), torch.tensor([3, 2]), domain="target")
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0], dtype=torch.float64)
    extras = {ADDED: extra} if added else {}
    return BatchContext(
        outputs(4, 0), LABELS, outputs(3, 1), TrainProgress(step, 100), extra=extras, weights=weights
    )  # fmt: skip


def brute_cross_entropy(logits: Tensor, labels: list[int], weights: list[float]) -> tuple[float, np.ndarray]:
    total, gradient = 0.0, np.zeros(tuple(logits.shape))
    for i, (row, label) in enumerate(zip(logits.tolist(), labels, strict=True)):
        p = [math.exp(z) / sum(math.exp(u) for u in row) for z in row]
        total -= weights[i] * math.log(p[label])
        gradient[i] = weights[i] * (np.array(p) - np.eye(len(p))[label])
    return total, gradient


def brute_cosines(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Value, and gradients by ``d cos / dx = (y / |y| - cos x / |x|) / |x|``."""
    total, of_x, of_y = 0.0, np.zeros_like(x), np.zeros_like(y)
    for j, target in enumerate(y):
        cosines = [row @ target / np.linalg.norm(row) / np.linalg.norm(target) for row in x]
        i = int(np.argmax(cosines))
        a, b, c = x[i], target, cosines[i]
        total += c / len(y)
        of_x[i] += (b / np.linalg.norm(b) - c * a / np.linalg.norm(a)) / np.linalg.norm(a) / len(y)
        of_y[j] += (a / np.linalg.norm(a) - c * b / np.linalg.norm(b)) / np.linalg.norm(b) / len(y)
    return total, of_x, of_y


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("step", [0, 9, 55])
def test_the_loss_and_its_gradients_are_those_of_the_formula(step: int, joined: bool) -> None:
    context, memory = make_context(step, added=joined), make_memory()
    result = Spda(epochs=10).step(context, memory)
    result.loss.backward()
    strength = 2.0 * (2 / (1 + math.exp(-10 * (step // 10) / 10)) - 1)
    share = 3 / 12 if joined else 0.0
    source, target = context.source, context.target
    weights = [(1 - share) * w / (3.5 + 1e-5) for w in (1.0, 0.5, 0.0, 2.0)]
    loss, of_source = brute_cross_entropy(source.logits, LABELS.tolist(), weights)
    features = source.features.detach().numpy()
    if joined:
        added = context.extra[ADDED]
        assert added.labels is not None
        own, of_added = brute_cross_entropy(added.outputs.logits, added.labels.tolist(), [share / 2] * 2)
        loss += own
        features = np.concatenate([features, added.outputs.features.detach().numpy()])
        np.testing.assert_allclose(added.outputs.logits.grad, of_added, atol=1e-6)
    cosine, of_x, of_y = brute_cosines(features, target.features.detach().numpy())
    assert float(result.loss.detach()) == pytest.approx(loss - strength * cosine, abs=1e-6)
    np.testing.assert_allclose(source.logits.grad, of_source, atol=1e-6)
    np.testing.assert_allclose(source.features.grad, -strength * of_x[:4], atol=1e-6)
    np.testing.assert_allclose(target.features.grad, -strength * of_y, atol=1e-6)
    if joined:
        np.testing.assert_allclose(context.extra[ADDED].outputs.features.grad, -strength * of_x[4:], atol=1e-6)
    assert target.logits.grad is None


def request(logits: list[list[float]]) -> Any:
    network = build_network(NetworkSettings(width=3), 6, 4, seed=0)
    target = Outputs.of(logits=torch.tensor(logits))
    return lambda: DatasetPass(Outputs.of(), target, LABELS, network)


def test_confident_samples_join_and_may_leave_again() -> None:
    method, memory = Spda(epochs=10), Spda().make_memory(SETUP)
    unsure, sure = [0.0, 1.0, 0.0, 0.0], [0.0, 9.0, 0.0, 0.0]
    method.refresh(memory, TrainProgress(5, 100), request([sure] * 5))  # within the first epoch
    assert memory.pseudo.tolist() == [-1] * 5
    assert method.pools(memory) == {}
    method.refresh(memory, TrainProgress(10, 100), request([sure, unsure, unsure, [9.0, 0.0, 0.0, 0.0], unsure]))
    pool = method.pools(memory)[ADDED]
    assert pool.labels is not None
    assert (pool.rows.tolist(), pool.labels.tolist()) == ([0, 3], [1, 0])
    assert memory.share == 2 / 11
    method.refresh(memory, TrainProgress(20, 100), request([unsure] * 4 + [sure]))
    assert memory.pseudo.tolist() == [-1, -1, -1, -1, 1]


def test_the_added_batch_starts_with_the_second_epoch() -> None:
    method = Spda(epochs=10)
    assert method.extra_batches(TrainProgress(9, 100), 36) == {}
    assert method.extra_batches(TrainProgress(10, 100), 36)[ADDED][:2] == (9, "target")
    assert method.extra_batches(TrainProgress(10, 100), 1)[ADDED].size == 1


def test_a_batch_without_pseudo_labels_plays_no_part() -> None:
    context = make_context()
    blank = context.extra[ADDED]._replace(labels=None)
    with_blank = BatchContext(context.source, LABELS, context.target, context.progress, extra={ADDED: blank},
                              weights=context.weights)  # fmt: skip
    memory = Spda().make_memory(SETUP)
    assert torch.equal(Spda().step(with_blank, memory).loss, Spda().step(make_context(added=False), memory).loss)


def test_features_of_zeros_have_finite_gradients() -> None:
    source, target = torch.zeros(2, 3).requires_grad_(), torch.zeros(1, 3).requires_grad_()
    mean_of_largest_cosines(source, target).backward()
    assert torch.isfinite(source.grad).all()
    assert torch.isfinite(target.grad).all()


@pytest.mark.parametrize("bad", [{"similarity": -1.0}, {"threshold": 1.1}, {"epochs": 0}, {"added": 0.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Spda(**bad)


def test_the_recipes_have_the_official_numbers() -> None:
    params = {"similarity": 2.0, "threshold": 0.9, "epochs": 200, "slope": 10.0, "added": 0.25}
    loop = load_config("spda").minibatch
    assert load_config("spda").params == params == load_config("spda-frozen").params
    assert (loop.source_batch, loop.target_batch, loop.sampler) == (128, 128, "shuffled")
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("bn_relu_dropout", 1024, False)
    optimizer = loop.optimizer
    assert (optimizer.lr, optimizer.momentum, optimizer.weight_decay) == (0.1, 0.0, 0.0)
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.decay_power) == (0.1, 1.0, 1.0, 0.75)
    assert load_config("spda-frozen").minibatch == load_config("frozen").minibatch
