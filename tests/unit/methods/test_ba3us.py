"""BA3US: the loss against plain loops, reversed gradients, the further batch, resuming."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import BatchContext, BatchSpec, NamedBatch, Setup, TrainProgress
from warmpot.methods.ba3us import EXTRA, Ba3us
from warmpot.nets import NetworkSettings, Outputs
from warmpot.train.batches import Batches
from warmpot.train.config import MinibatchSettings

N, M, K, C, D = 4, 3, 2, 5, 6
SIZES = Setup(n_source=40, n_target=30, n_classes=C, width=D, pooled=9)
CLOCK = TrainProgress(300, 1000)


def _outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    made = (torch.randn(n, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (D, C))
    return Outputs(*made)


def _context(*, further: bool = True, progress: TrainProgress = CLOCK) -> BatchContext:
    extra_weights = torch.tensor([0.02, 0.1], dtype=torch.float64)
    extra = NamedBatch(_outputs(K, 2), torch.tensor([7, 8]), torch.tensor([4, 1]), weights=extra_weights)
    return BatchContext(
        _outputs(N, 0), torch.tensor([0, 1, 2, 4]), _outputs(M, 1), progress, extra={EXTRA: extra} if further else {},
        weights=torch.tensor([0.5, 0.1, 0.3, 0.02], dtype=torch.float64),
    )  # fmt: skip


def _memory():  # type: ignore[no-untyped-def]
    return Ba3us().make_memory(SIZES._replace(seed=3)).double().eval()  # no dropout: a loss that can be computed again


def _probabilities(logits: torch.Tensor) -> list[list[float]]:
    rows = [[math.exp(z) for z in row] for row in logits.tolist()]
    return [[x / sum(row) for x in row] for row in rows]


def _adversarial_by_loops(context: BatchContext, judged: list[float]) -> float:
    parts = [context.source, context.target] + [batch.outputs for batch in context.extra.values()]
    h = [-sum(x * math.log(x) for x in row) for part in parts for row in _probabilities(part.logits.detach())]
    v = [1 + math.exp(-x) for x in h]
    c = [
        *context.weights.tolist(),
        *[1.0] * M,
        *(w for batch in context.extra.values() for w in batch.weights.tolist()),
    ]
    domain = ["s"] * N + ["t"] * M + ["x"] * (len(v) - N - M)
    of_source = sum(a * b for a, b, d in zip(v, c, domain, strict=True) if d != "t")
    of_target = sum(a for a, d in zip(v, domain, strict=True) if d == "t")
    grown = 1 + (len(v) - N - M) / N
    total = all_weight = 0.0
    for vi, ci, d, g in zip(v, c, domain, judged, strict=True):
        weight = vi / of_target if d == "t" else grown * vi * ci / of_source
        probability = 1 / (1 + math.exp(-g))  # of being source
        total += weight * -math.log(probability if d == "s" else 1 - probability)
        all_weight += weight
    return total / all_weight


@pytest.mark.parametrize("further", [True, False])
def test_terms_are_the_formulas(further: bool) -> None:
    context, memory = _context(further=further), _memory()
    result = Ba3us().step(context, memory)
    parts = [context.source, context.target] + [batch.outputs for batch in context.extra.values()]
    with torch.no_grad():
        judged = memory.discriminator(torch.cat([part.features for part in parts])).tolist()
    adversarial = _adversarial_by_loops(context, judged)
    c, p = context.weights.tolist(), _probabilities(context.source.logits.detach())
    labels = context.labels.tolist()
    classification = sum(w * -math.log(row[y]) for w, row, y in zip(c, p, labels, strict=True)) / sum(c)
    entropy = np.mean([-sum(x * math.log(x) for x in row) for row in _probabilities(context.target.logits.detach())])
    counts = [w * (1 - row[y]) for w, row, y in zip(c, p, labels, strict=True)]
    values = [
        sum(x / (1 - row[y]) * math.log(x / (1 - row[y])) for k, x in enumerate(row) if k != y) / math.log(C - 1)
        for row, y in zip(p, labels, strict=True)
    ]
    complement = np.dot(counts, values) / sum(counts)
    for name, truth in (("classification", classification), ("adversarial", adversarial), ("entropy", entropy),
                        ("complement", complement)):  # fmt: skip
        assert float(result.metrics[name]) == pytest.approx(truth, rel=1e-6), name
    assert float(result.loss.detach()) == pytest.approx(
        classification + adversarial + 0.1 * entropy + complement, rel=1e-6
    )
    np.testing.assert_allclose(result.weights.numpy(), np.array(c) / sum(c), rtol=1e-6)
    assert not result.weights.requires_grad


def _gradients(context: BatchContext, memory) -> list[torch.Tensor]:  # type: ignore[no-untyped-def]
    only = Ba3us(entropy=0.0, complement=0.0)
    loss = only.step(context, memory).loss
    parts = [context.target, context.extra[EXTRA].outputs, context.source]
    loss.backward()
    return [grad for part in parts for grad in (part.features.grad, part.logits.grad)]


def _free(context: BatchContext, memory) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """Return the adversarial loss with nothing reversed: sums held, v free."""
    parts = [context.source, context.target, context.extra[EXTRA].outputs]
    p = torch.cat([part.logits for part in parts]).softmax(1)
    v = 1 + torch.exp((p * p.log()).sum(1))
    v = v * torch.cat([context.weights, torch.ones(M, dtype=torch.float64), context.extra[EXTRA].weights])
    held = v.detach()
    source_sum = held[:N].sum() + held[N + M :].sum()
    shares = [1.5 / source_sum] * N + [1.0 / held[N : N + M].sum()] * M + [1.5 / source_sum] * K
    factor = torch.stack(shares)
    g = memory.discriminator(torch.cat([part.features for part in parts]))
    y = torch.cat([torch.ones(N), torch.zeros(M + K)]).double()
    bce = torch.nn.functional.softplus(g) - y * g
    return (v * factor * bce).sum() / (held * factor).sum()


def test_features_and_predictions_ascend_where_the_discriminator_descends() -> None:
    strength = 2 / (1 + math.exp(-10 * 0.3)) - 1
    memory, other = _memory(), _memory()
    mine = _gradients(_context(), memory)
    context = _context()
    _free(context, other).backward()
    theirs = [
        grad
        for part in (context.target, context.extra[EXTRA].outputs)
        for grad in (part.features.grad, part.logits.grad)
    ]
    for found, free in zip(mine[:4], theirs, strict=True):
        assert free.abs().max() > 1e-6
        torch.testing.assert_close(found, -strength * free, rtol=1e-6, atol=1e-12)
    torch.testing.assert_close(mine[4], -strength * context.source.features.grad, rtol=1e-6, atol=1e-12)
    for a, b in zip(memory.trained(), other.trained(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-6, atol=1e-12)


def test_nothing_is_reversed_at_the_first_step() -> None:
    context, memory = _context(progress=TrainProgress(0, 1000)), _memory()
    Ba3us(entropy=0.0, complement=0.0).step(context, memory).loss.backward()
    assert context.target.features.grad.abs().max() == 0
    assert context.target.logits.grad.abs().max() == 0
    assert any(p.grad.abs().max() > 0 for p in memory.trained())


def test_the_further_batch_shrinks_as_in_the_official_schedule() -> None:
    truth = [int(max(0, (36 // 4) * (1 - e / 10))) for e in range(10)]
    sizes = [Ba3us().extra_batches(TrainProgress(500 * e, 5000), 36)[EXTRA].size for e in range(10)]
    assert sizes == truth == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert Ba3us(augmentation=0.0).extra_batches(TrainProgress(0, 10), 36)[EXTRA].size == 0


@pytest.mark.parametrize(
    ("bottleneck", "world", "sizes"),
    [
        ("linear", 1, [3, 2, 1, 0]),
        ("bn_relu", 1, [3, 2, 0, 0]),
        ("linear", 2, [2, 2, 0, 0]),
        ("bn_relu", 2, [0, 0, 0, 0]),
    ],
)
def test_the_further_batch_is_drawn_in_equal_shares(bottleneck: str, world: int, sizes: list[int]) -> None:
    settings = MinibatchSettings(source_batch=12, target_batch=12, network=NetworkSettings(bottleneck=bottleneck))
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(20, 3)), np.arange(20) % 4, rng.normal(size=(15, 3)), tuple("abcd"))
    extra = [{EXTRA: BatchSpec(size)} for size in (3, 2, 1, 0)]
    parts = [Batches(task, settings, 0, rank=rank, world=world, extra=extra) for rank in range(world)]
    for step, drawn in enumerate(sizes):
        batches = [part.at(step).get(EXTRA) for part in parts]
        rows = [int(row) for batch in batches if batch is not None for row in batch.rows]
        assert len(rows) == len(set(rows)) == drawn


def test_a_batch_without_weight_and_certain_predictions_are_finite() -> None:
    context = _context()
    target = Outputs(context.target.features, (1e4 * context.target.logits.detach()).float().requires_grad_())
    nothing = torch.zeros(N, dtype=torch.float64)
    context = dataclasses.replace(
        context,
        target=target,
        weights=nothing,
        extra={EXTRA: context.extra[EXTRA]._replace(weights=torch.zeros(K, dtype=torch.float64))},
    )
    result = Ba3us().step(context, _memory())
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(target.logits.grad).all()
    assert result.weights.sum() == 0


def test_memory_is_its_state() -> None:
    """After a round trip through the state the next step is the same, bit for bit."""
    memory = Ba3us().make_memory(SIZES._replace(seed=3)).double()
    other = Ba3us().make_memory(SIZES._replace(seed=4)).double()
    assert not torch.equal(next(iter(memory.trained())), next(iter(other.trained())))
    other.load_state_dict(copy.deepcopy(memory.state_dict()))
    losses = []
    for each in (memory, other):
        torch.manual_seed(0)  # dropout
        losses.append(Ba3us().step(_context(), each).loss)
    assert torch.equal(*losses)
    assert list(memory.optimizers()) == []


def test_the_memory_draws_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    Ba3us().make_memory(SIZES._replace(seed=3))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bad", [{"entropy": -1.0}, {"augmentation": 2.0}, {"periods": 0}, {"slope": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Ba3us(**bad)
