"""SHOT++: every phase against its formula, pseudo-labels, the split, mixing, phases of a run, images, the recipes."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from torch import Tensor, nn

from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Learner, NamedBatch, Setup, TrainProgress, make_weighting
from warmpot.methods.shot import (
    ShotMemory,
    ShotPlus,
    centroid_labels,
    interleaved,
    mixed_samples,
    split_by_entropy,
)
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.train import fit, load_config

FEATURES = ShotPlus(rotation=0.0, turning=0.0, pretrain=0.2, adapting=0.3)
CLASSES, WIDTH = 3, 6


def outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    parts = (torch.randn(n, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (WIDTH, CLASSES))
    return Outputs(*parts)


def make_memory(method: ShotPlus = FEATURES, n_target: int = 8, network: Network | None = None) -> ShotMemory:
    setup = Setup(n_source=9, n_target=n_target, n_classes=CLASSES, width=WIDTH, pooled=4, seed=3, network=network)
    return method.make_memory(setup).double()


def softmax(row: np.ndarray) -> np.ndarray:
    values = np.exp(row - row.max())
    return values / values.sum()


# ------------------------------------------------------------------------------------------------------ first phases


@pytest.mark.parametrize("weights", [[1.0] * 5, [0.5, 0.1, 0.3, 0.02, 0.0]], ids=["equal", "uneven"])
def test_the_first_phase_is_the_smoothed_cross_entropy(weights: list[float]) -> None:
    source, labels = outputs(5, 0), torch.tensor([0, 1, 2, 0, 1])
    progress = TrainProgress(1, 100, "source", 0, 20)
    context = BatchContext(source, labels, outputs(4, 1), progress, weights=torch.tensor(weights).double())
    result = FEATURES.step(context, make_memory())
    result.loss.backward()
    total, gradient = 0.0, np.zeros((5, CLASSES))
    for i, row in enumerate(source.logits.detach().numpy()):
        p, y = softmax(row), 0.9 * np.eye(CLASSES)[labels[i]] + 0.1 / CLASSES
        total -= weights[i] / sum(weights) * float(y @ np.log(p))
        gradient[i] = weights[i] / sum(weights) * (p - y)
    assert float(result.loss.detach()) == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(source.logits.grad, gradient, atol=1e-7)
    np.testing.assert_allclose(result.weights, np.array(weights) / sum(weights), atol=1e-7)


def test_the_target_phase_is_the_formula() -> None:
    memory, target, rows = make_memory(), outputs(4, 1), torch.tensor([5, 0, 7, 2])
    memory.pseudo.copy_(torch.tensor([2, 0, 1, 0, 0, 1, 2, 0]))
    nothing = Outputs(*(part[:0] for part in outputs(5, 0)[:2]))
    progress = TrainProgress(30, 100, "target", 20, 50)
    context = BatchContext(nothing, torch.zeros(5).long(), target, progress, target_rows=rows)
    result = FEATURES.step(context, memory)
    result.loss.backward()
    total, gradient = 0.0, np.zeros((4, CLASSES))
    for i, row in enumerate(target.logits.detach().numpy()):
        p, y = softmax(row), np.eye(CLASSES)[memory.pseudo[rows[i]]]
        entropy = -float(p @ np.log(p))
        total += (-0.3 * float(y @ np.log(p)) + entropy) / 4
        gradient[i] = (0.3 * (p - y) - p * (np.log(p) + entropy)) / 4
    assert float(result.loss.detach()) == pytest.approx(total, rel=1e-6)
    np.testing.assert_allclose(target.logits.grad, gradient, atol=1e-7)
    assert target.features.grad is None
    assert result.weights is None  # the source has no part


class Flatten(nn.Module):
    """Features of an image: a linear map of its pixels."""

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(4)
        self.weight = nn.Parameter(torch.randn(WIDTH, 27, generator=rng, dtype=torch.float64) / 1000)

    def forward(self, x: Tensor) -> Outputs:
        features = x.flatten(1).double() @ self.weight.T
        return Outputs(features, features[:, :CLASSES])


@pytest.mark.parametrize("phase", ["rotation", "target"])
def test_the_loss_of_rotations_is_the_formula(phase: str) -> None:
    method, net = ShotPlus(), Flatten()
    memory = make_memory(method)
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (6, 3, 3, 3)).astype(np.uint8))
    target, progress = net(images), TrainProgress(30, 100, phase, 20, 50)
    context = BatchContext(outputs(0, 0), torch.zeros(0).long(), target, progress, target_rows=torch.arange(6),
                           target_inputs=images, forward=net)  # fmt: skip
    result = method.step(context, memory)
    wanted: list[Tensor] = list(memory.trained())
    if phase == "target":
        wanted.append(net.weight)
    turns = np.random.default_rng([3, 30]).integers(0, 4, 6)
    assert len(set(turns.tolist())) > 2
    turned = [np.rot90(image, turn, axes=(1, 2)).reshape(-1) for image, turn in zip(images.numpy(), turns, strict=True)]
    after = torch.from_numpy(np.stack(turned).astype(float)) @ net.weight.T
    assert memory.rotation is not None
    scores = torch.cat([target.features.detach(), after], dim=1) @ memory.rotation.weight.T + memory.rotation.bias
    truth = -sum(scores[i].log_softmax(0)[turns[i]] for i in range(6)) / 6
    if phase == "target":
        plain = dataclasses.replace(method, rotation=0.0)
        truth = 0.6 * truth + plain.step(context, make_memory(plain)).loss
    assert float(result.loss.detach()) == pytest.approx(float(truth.detach()), rel=1e-6)
    found, free = (torch.autograd.grad(x, wanted, retain_graph=True) for x in (result.loss, truth))
    for mine, theirs in zip(found, free, strict=True):
        assert theirs.abs().max() > 1e-8
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-10)
    if phase == "rotation":
        assert torch.autograd.grad(result.loss, [net.weight], allow_unused=True) == (None,)


# ---------------------------------------------------------------------------------------- pseudo-labels and the split


@pytest.mark.parametrize("threshold", [0, 10, 25])
def test_pseudo_labels_are_those_of_a_loop(threshold: int) -> None:
    rng = np.random.default_rng(0)
    truth = np.r_[np.zeros(40, int), np.ones(30, int), np.full(12, 2), np.full(8, 3)]
    x = 2 * np.eye(5)[truth] + rng.normal(size=(90, 5))
    logits = x[:, :4] + 0.5 * rng.normal(size=(90, 4))
    rows = np.c_[x, np.ones(90)] / np.linalg.norm(np.c_[x, np.ones(90)], axis=1)[:, None]
    member, labels = np.array([softmax(row) for row in logits]), logits.argmax(axis=1)
    for _ in range(2):
        classes = [k for k in range(4) if (labels == k).sum() > threshold]
        means = [sum(member[i, k] * rows[i] for i in range(90)) / member[:, k].sum() for k in classes]
        labels = np.array(classes)[cdist(rows, np.array(means), "cosine").argmin(axis=1)]
        member = np.eye(4)[labels]
    found = centroid_labels(torch.from_numpy(x), torch.from_numpy(logits), threshold)
    assert found.tolist() == labels.tolist()
    assert not np.array_equal(labels, logits.argmax(axis=1))


def test_without_a_class_above_the_threshold_all_predicted_ones_stay() -> None:
    logits = 9 * torch.eye(4)[torch.tensor([0, 0, 2, 2, 3])]
    assert centroid_labels(logits, logits, threshold=10).tolist() == [0, 0, 2, 2, 3]
    assert set(centroid_labels(logits, logits, threshold=1).tolist()) == {0, 2}
    assert centroid_labels(logits[:1], logits[:1], threshold=10).tolist() == [0]


def test_easy_samples_are_the_most_certain_of_each_class() -> None:
    logits = 3 * np.random.default_rng(1).normal(size=(50, 4))
    probabilities = np.array([softmax(row) for row in logits])
    entropy = -(probabilities * np.log(probabilities)).sum(axis=1)
    share, easy = (entropy < entropy.mean()).mean(), set()
    for k in range(4):
        rows = sorted(np.flatnonzero(logits.argmax(axis=1) == k), key=lambda i: entropy[i])
        easy |= set(rows[: math.floor(share * len(rows))])
    found, hard = split_by_entropy(torch.from_numpy(logits))
    assert set(torch.nonzero(found).flatten().tolist()) == easy
    assert torch.equal(hard, ~found)
    assert 0 < len(easy) < 50


def test_neither_part_of_the_target_is_ever_empty() -> None:
    easy, hard = split_by_entropy(torch.zeros(5, 3))  # all alike: none is below the mean
    assert easy.tolist() == [True, False, False, False, False]
    assert hard.tolist() == [False, True, True, True, True]
    easy, hard = split_by_entropy(torch.eye(2))  # one sample of each class
    assert easy.all()
    assert hard.all()


# ---------------------------------------------------------------------------------------------------------- MixMatch


@pytest.mark.parametrize("size", range(1, 9))
def test_every_pass_has_a_third_of_each_batch(size: int) -> None:
    order = interleaved(size)
    assert torch.equal(order[order], torch.arange(3 * size))
    groups = [size // 3] * 3  # as in MixMatch: what is left goes to the last groups
    for k in range(size % 3):
        groups[-k - 1] += 1
    for batch in range(3):
        owners = (order.reshape(3, size)[batch] // size).tolist()
        swapped = {0: [0, 1, 2], 1: [1, 0, 1], 2: [2, 2, 0]}[batch]
        assert owners == [owner for owner, count in zip(swapped, groups, strict=True) for _ in range(count)]


def test_mixed_pixels_are_rounded() -> None:
    pixels, partners = torch.tensor([[0, 255], [10, 0]], dtype=torch.uint8), torch.tensor([1, 0])
    mixed = mixed_samples(pixels, 0.75, partners)
    assert mixed.dtype == torch.uint8
    assert mixed.tolist() == [[2, 191], [8, 64]]


def mixing_context(network: Network, n: int = 5, m: int = 5, step: int = 60) -> BatchContext:
    rng = torch.Generator().manual_seed(5)
    easy, hard, view = (torch.randn(k, 4, generator=rng, dtype=torch.float64) for k in (n, m, m))
    extra = {
        "easy": NamedBatch(network(easy), torch.arange(n), torch.arange(n) % CLASSES, easy, domain="target"),
        "view": NamedBatch(network(view), torch.arange(m), None, view, domain="target"),
    }
    return BatchContext(
        outputs(0, 0), torch.zeros(0).long(), network(hard), TrainProgress(step, 100, "mixing", 50, 100), extra=extra,
        target_inputs=hard, forward=network,
    )  # fmt: skip


def make_network(bottleneck: str = "bn") -> Network:
    settings = NetworkSettings(width=WIDTH, bottleneck=bottleneck, head="weight_norm")
    return build_network(settings, 4, CLASSES, seed=1).double()


@pytest.mark.parametrize(("n", "m"), [(5, 5), (7, 5), (4, 6)], ids=["equal", "more easy", "more hard"])
def test_the_loss_of_mixing_is_the_formula(n: int, m: int) -> None:
    network = make_network()
    context = mixing_context(network, n, m)
    result = FEATURES.step(context, make_memory())
    k = min(n, m)
    easy, view = context.extra["easy"], context.extra["view"]
    assert easy.labels is not None
    guesses = []
    views = [logits.detach().numpy() for logits in (context.target.logits, view.outputs.logits)]
    for one, other in zip(*(logits[:k] for logits in views), strict=True):
        q = ((softmax(one) + softmax(other)) / 2) ** 2
        guesses.append(q / q.sum())
    labels = np.concatenate([np.eye(CLASSES)[easy.labels[:k]], guesses, guesses])
    inputs = np.concatenate([x[:k] for x in (easy.inputs, context.target_inputs, view.inputs) if x is not None])
    rng = np.random.default_rng([3, 60])
    b = rng.beta(0.75, 0.75)
    share, partners = max(b, 1 - b), rng.permutation(3 * k)
    mixed = torch.from_numpy(np.stack([share * inputs[i] + (1 - share) * inputs[j] for i, j in enumerate(partners)]))
    wanted = np.stack([share * labels[i] + (1 - share) * labels[j] for i, j in enumerate(partners)])
    groups: list[list[int]] = [[], [], []]
    thirds = [g for g, count in enumerate([k // 3, k // 3 + (k % 3 == 2), k - 2 * (k // 3) - (k % 3 == 2)])
              for _ in range(count)]  # fmt: skip
    for i in range(3 * k):  # sample i of batch 0 changes places with the one of batch g in the g-th third
        batch, place = divmod(i, k)
        g = thirds[place]
        groups[{0: g, g: 0}.get(batch, batch)].append(i)
    logits: dict[int, Tensor] = {}
    for group in groups:
        ordered = sorted(group, key=lambda i: i % k)
        logits |= dict(zip(ordered, network(mixed[ordered]).logits, strict=True))
    first = -sum(float(wanted[i, c]) * logits[i].log_softmax(0)[c] for i in range(k) for c in range(CLASSES)) / k
    second = sum((logits[i].softmax(0)[c] - float(wanted[i, c])) ** 2 for i in range(k, 3 * k) for c in range(CLASSES))
    truth = first + 100 * (11 / 50) * second / (2 * k * CLASSES)
    assert float(result.loss.detach()) == pytest.approx(float(truth.detach()), rel=1e-6)
    parameters = list(network.parameters())
    found, free = (torch.autograd.grad(x, parameters, retain_graph=True) for x in (result.loss, truth))
    assert max(float(x.abs().max()) for x in free) > 1e-3
    for mine, theirs in zip(found, free, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)


def test_the_weight_of_hard_samples_grows_linearly() -> None:
    ramps = []
    for step in (50, 74, 99):
        metrics = FEATURES.step(mixing_context(make_network(), step=step), make_memory()).metrics
        ramps.append(metrics["ramp"])
    assert ramps == pytest.approx([0.02, 0.5, 1.0])


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (2, 2)])
def test_small_batches_and_certain_guesses_are_finite(n: int, m: int) -> None:
    network = make_network("linear")
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([3000.0, 0.0, 0.0]))
    result = FEATURES.step(mixing_context(network, n, m), make_memory())
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert all(bool(torch.isfinite(p.grad).all()) for p in network.parameters() if p.grad is not None)


# ------------------------------------------------------------------------------------------------------------ a run


def make_task(n: int = 60, m: int = 40) -> Task:
    rng = np.random.default_rng(0)
    ys, yt = np.arange(n) % CLASSES, np.arange(m) % 2
    xs, xt = (3 * np.eye(CLASSES, 5)[y] + rng.normal(size=(len(y), 5)) for y in (ys, yt))
    return Task(xs.astype(np.float32), ys, xt.astype(np.float32), tuple("abc"))


def test_the_phases_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    heads: list[Any] = []
    contexts: list[BatchContext] = []
    splits: list[tuple[set[int], set[int]]] = []
    step = ShotPlus.step

    def recording(self: ShotPlus, context: BatchContext, memory: ShotMemory) -> Any:
        contexts.append(context)
        heads.append(copy.deepcopy(context.head.state_dict()))
        splits.append(tuple(set(torch.nonzero(part).flatten().tolist()) for part in (memory.easy, memory.hard)))
        return step(self, context, memory)

    monkeypatch.setattr(ShotPlus, "step", recording)
    minibatch = {"steps": 20, "source_batch": 16, "target_batch": 16, "network": {"bottleneck": "bn", "width": 8}}
    params = {"pretrain": 0.25, "adapting": 0.25, "threshold": 2, "periods": 2}
    fit(make_task(), load_config("shot-plus-frozen", changes={"minibatch": minibatch, "params": params}))
    phases = [context.progress.phase for context in contexts]
    assert phases == ["source"] * 5 + ["target"] * 5 + ["mixing"] * 10

    def same(one: int, other: int) -> bool:
        return all(torch.equal(heads[one][name], heads[other][name]) for name in heads[0])

    assert not same(0, 5)
    assert all(same(5, k) for k in range(6, 10))  # frozen
    assert not same(9, 10)  # started again
    assert not same(10, 0)  # from other weights than the first
    assert not same(10, 11)
    assert [len(context.source.logits) for context in contexts] == [16] * 5 + [0] * 15
    for context, (easy, hard) in zip(contexts[10:], splits[10:], strict=True):
        assert len(context.target.logits) == len(context.extra["easy"].rows) == len(context.extra["view"].rows) == 9
        assert context.target_rows is not None
        assert torch.equal(context.target_rows, context.extra["view"].rows)
        assert set(context.target_rows.tolist()) <= hard
        assert set(context.extra["easy"].rows.tolist()) <= easy
    assert len(splits[10][0] | splits[10][1]) == 40
    assert not splits[10][0] & splits[10][1]


def test_pseudo_labels_are_computed_as_often_as_asked() -> None:
    method, memory, passes = dataclasses.replace(FEATURES, periods=5, threshold=0), make_memory(), []

    def request() -> DatasetPass:
        passes.append(1)
        rows = torch.eye(CLASSES)[torch.arange(8) % CLASSES]
        return DatasetPass(Outputs.of(), Outputs.of(features=rows, logits=rows), torch.arange(3), make_network())

    due = []
    for step in range(20, 50):
        before = len(passes)
        method.refresh(memory, TrainProgress(step, 100, "target", 20, 50), request)
        due += [step] if len(passes) > before else []
    assert due == [20, 26, 32, 38, 44]
    assert memory.pseudo.tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
    assert method.pools(memory) == {}


def test_every_phase_is_a_training_of_its_own() -> None:
    network = make_network()
    setup = Setup(9, 8, CLASSES, WIDTH, 4, network=network)
    learner = Learner(FEATURES, make_weighting("uniform"), setup, steps=10)
    assert [learner.decay_span(step)[0] for step in range(10)] == pytest.approx(
        [0, 5, 0, 10 / 3, 20 / 3, 0, 2, 4, 6, 8]  # 2, 3 and 5 steps: each decays as the whole 10 would
    )
    assert [step for step in range(10) if learner.restarts_momentum(step)] == [0, 2, 5]


@pytest.mark.parametrize("steps", [5000, 200])
def test_every_phase_decays_by_its_share_whatever_its_length(steps: int) -> None:
    config = load_config("shot-plus", changes={"minibatch": {"steps": steps}})
    learner = Learner(config.built_method, None, Setup(9, 8, CLASSES, WIDTH, 4), steps=steps)
    starts = [int(share * steps) for share in (0, 0.55, 0.625, 0.7)]
    for start, end in itertools.pairwise([*starts, steps]):
        for step in (start, start + 1, end - 1):
            factor = config.minibatch.optimizer.decay(*learner.decay_span(step))
            assert factor == pytest.approx((1 + 10 * (step - start) / (end - start)) ** -0.75)


def test_a_run_on_images() -> None:
    """All four phases, with rotations and mixed pixels."""
    rng = np.random.default_rng(0)
    xs, xt = (rng.integers(0, 256, (n, 3, 32, 32)).astype(np.uint8) for n in (24, 20))
    changes = {
        "minibatch": {"steps": 8, "source_batch": 8, "target_batch": 8, "log_every": 1, "network": {"width": 8}},
        "params": {"pretrain": 0.25, "turning": 0.25, "adapting": 0.25, "threshold": 1},
        "images": {
            "backbone": {"name": "test_resnet", "weights": "none", "train_from": "all"},
            "view": {"resize": 32, "crop": 32},
        },
    }
    fitted = fit(Task(xs, np.arange(24) % 3, xt, tuple("abc")), load_config("shot-plus", changes=changes))
    assert ["rotation" in line for line in fitted.history] == [False, False, True, True, True, True, False, False]
    assert ["consistency" in line for line in fitted.history] == [False] * 6 + [True] * 2
    assert np.isfinite(fitted.outputs).all()


# ----------------------------------------------------------------------------------------------- refusals and recipes


def test_rotations_of_features_are_refused() -> None:
    with pytest.raises(InputError, match="rotation") as caught:
        fit(make_task(), load_config("shot-plus"))
    assert "shot-plus-frozen" in str(caught.value)
    context = BatchContext(
        outputs(3, 0), torch.arange(3), outputs(3, 1), TrainProgress(0, 9, "source", 0, 5),
        weights=torch.ones(3), target_inputs=torch.zeros(3, 4, 2, 2),
    )  # fmt: skip
    with pytest.raises(InputError, match="pixels"):  # stored activations of a frozen stem
        ShotPlus().step(context, make_memory(ShotPlus()))


@pytest.mark.parametrize(
    "bad",
    [
        {"pseudo": -1.0},
        {"smoothing": 1.5},
        {"temperature": 0.0},
        {"mixing": 0.0},
        {"threshold": -1},
        {"periods": 0},
        {"mix_batch": 0.0},
        {"pretrain": 0.9, "adapting": 0.2},
    ],
)
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        ShotPlus(**bad)


def test_weights_that_come_too_late_are_refused() -> None:
    late = {"weights": "class_share", "weight_params": {"periods": 1}}  # the first after the source phase, 55 %
    with pytest.raises(InputError, match="pretrain"):
        load_config("shot-plus-frozen", changes=late)
    late["weight_params"] = {"periods": 2}
    assert load_config("shot-plus-frozen", changes=late).weights == "class_share"


def test_the_recipes_have_the_official_numbers() -> None:
    official = {
        "smoothing": 0.1, "pseudo": 0.3, "entropy": 1.0, "rotation": 0.6, "threshold": 10, "periods": 15,
        "consistency": 100.0, "temperature": 0.5, "mixing": 0.75, "mix_batch": 0.5625,
    }  # fmt: skip
    config = load_config("shot-plus")
    assert official.items() <= config.params.items()
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.source_batch, loop.target_batch, loop.sampler, loop.warmup) == (64, 64, "shuffled", 0.0)
    assert (loop.network.bottleneck, loop.network.width, loop.network.head) == ("bn", 256, "weight_norm")
    assert (optimizer.lr, optimizer.backbone, optimizer.bottleneck, optimizer.head) == (0.01, 0.1, 1.0, 1.0)
    assert (optimizer.weight_decay, optimizer.decay_power) == (1e-3, 0.75)
    phases = config.built_method.phases
    assert [phase.name for phase in phases] == ["source", "rotation", "target", "mixing"]
    assert [round(phase.share * loop.steps) for phase in phases[:3]] == [2750, 375, 375]
    assert [phase.frozen for phase in phases] == [(), ("backbone", "bottleneck", "head"), ("head",), ()]
    mixing = TrainProgress(4000, 5000, "mixing", 3500, 5000)
    assert {spec.size for spec in config.built_method.extra_batches(mixing, 64).values()} == {36}
    frozen = load_config("shot-plus-frozen")
    assert (official | {"rotation": 0.0}).items() <= frozen.params.items()
    assert [phase.name for phase in frozen.built_method.phases] == ["source", "target", "mixing"]
    assert frozen.minibatch.optimizer == load_config("frozen").minibatch.optimizer
