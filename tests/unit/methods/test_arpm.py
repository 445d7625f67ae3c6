"""ARPM: every term by hand, whom the gradients reach, the bank, and the start of the head."""

from __future__ import annotations

import copy
import dataclasses
import logging
import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from warmpot._settings import from_mapping
from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Setup, TrainProgress, make_weighting
from warmpot.methods.arpm import Arpm, TargetBank, pca_head
from warmpot.methods.base import progress_at
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.train import load_config
from warmpot.train.recipes import read_preset

N_TARGET, N_SOURCE, INPUTS, CLASSES = 12, 9, 5, 3
BEFORE, FIRST = (progress_at(step, 12, Arpm().phases) for step in (1, 2))  # 2 of 12 is the default start


class _Scene:
    """A network, both domains, and the context of a step."""

    def __init__(self, n_target: int = N_TARGET, sphere: float | None = 8.0) -> None:
        rng = torch.Generator().manual_seed(0)
        self.network = build_network(NetworkSettings(width=4, sphere=sphere), INPUTS, CLASSES, seed=1)
        self.source, self.target = (torch.randn(n, INPUTS, generator=rng) for n in (N_SOURCE, n_target))
        self.labels = torch.arange(N_SOURCE) % CLASSES
        self.weights = torch.rand(N_SOURCE, generator=rng)
        self.looks = 0

    def look(self) -> DatasetPass:
        self.looks += 1
        with torch.no_grad():
            return DatasetPass(self.network(self.source), self.network(self.target), self.labels, self.network)

    def memory(self, method: Arpm) -> TargetBank:
        memory = method.make_memory(Setup(N_SOURCE, len(self.target), CLASSES, 4, INPUTS))
        assert isinstance(memory, TargetBank)
        return memory

    def filled(self, method: Arpm) -> TargetBank:
        memory = self.memory(method)
        method.refresh(memory, FIRST, self.look)
        return memory

    def context(self, rows: list[int], clock: TrainProgress = FIRST, shift: float = 0.0) -> BatchContext:
        picked = torch.tensor(rows)
        target = self.network(self.target[picked] + shift * torch.arange(INPUTS))
        return BatchContext(
            self.network(self.source), self.labels, target, clock,
            target_rows=picked, network=self.network, weights=self.weights,
        )  # fmt: skip


def _softmax(z: list[float]) -> list[float]:
    e = [math.exp(v - max(z)) for v in z]
    return [v / sum(e) for v in e]


def _classification(context: BatchContext, smoothing: float = 0.1) -> float:
    total, weights = 0.0, context.weights.tolist()  # type: ignore[union-attr]
    for z, y, w in zip(context.source.logits.tolist(), context.labels.tolist(), weights, strict=True):
        p = _softmax(z)
        total -= w * sum(((k == y) * (1 - smoothing) + smoothing / CLASSES) * math.log(p[k]) for k in range(CLASSES))
    return total / (sum(weights) + 1e-5)


def _cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def _agreement(scene: _Scene, context: BatchContext, k: int, kk: int) -> float:
    """Mean over the batch of .1 <p, q> over neighbours of neighbours, by loops over the whole target."""
    whole = scene.look().target
    pooled, scores = whole.pooled.tolist(), [_softmax(z) for z in whole.logits.tolist()]  # type: ignore[union-attr]
    rows = context.target_rows.tolist()  # type: ignore[union-attr]
    for j, row in enumerate(rows):  # the batch is newer
        pooled[row], scores[row] = context.target.pooled[j].tolist(), _softmax(context.target.logits[j].tolist())  # type: ignore[index]

    def nearest(i: int, count: int) -> list[int]:
        others = [j for j in range(len(pooled)) if j != i]
        return sorted(others, key=lambda j: -_cosine(pooled[i], pooled[j]))[:count]

    total = 0.0
    for row in rows:
        for one in nearest(row, k):
            for two in nearest(one, kk):
                total += 0.1 * sum(p * q for p, q in zip(scores[row], scores[two], strict=True))
    return total / len(rows)


def test_before_its_start_the_loss_is_that_of_the_source() -> None:
    scene = _Scene()
    method, context = Arpm(), scene.context([3, 1, 8], BEFORE)
    memory = scene.memory(method)
    method.refresh(memory, BEFORE, scene.look)
    result = method.step(context, memory)
    assert scene.looks == 0
    assert float(result.loss.detach()) == pytest.approx(_classification(context), rel=1e-5)
    assert "power" not in result.metrics


@pytest.mark.parametrize("shift", [0.0, 0.2], ids=["frozen", "moved"])
@pytest.mark.parametrize(("k", "kk"), [(4, 3), (2, 5)])
def test_every_term_by_hand(k: int, kk: int, shift: float) -> None:
    scene = _Scene()
    method = Arpm(neighbours=k, second_neighbours=kk)
    memory, context = scene.filled(method), scene.context([3, 1, 8, 0], shift=shift)
    result = method.step(context, memory)
    assert bool(memory.still) == (shift == 0.0)
    power = np.mean([sum(p**6 for p in _softmax(z)) for z in context.target.logits.tolist()])
    agreement = _agreement(scene, context, k, kk)
    assert float(result.metrics["power"]) == pytest.approx(power, rel=1e-5)
    assert float(result.metrics["consistency"]) == pytest.approx(-agreement, rel=1e-5)
    assert float(result.loss.detach()) == pytest.approx(_classification(context) - 0.3 * power - agreement, rel=1e-5)
    np.testing.assert_allclose(result.weights, scene.weights / scene.weights.sum(), atol=1e-4)
    assert not result.weights.requires_grad


def test_the_bank_is_of_all_rows_and_follows_the_batches() -> None:
    scene = _Scene()
    method = Arpm()
    memory, context = scene.filled(method), scene.context([3, 1], shift=0.3)
    assert scene.looks > 0
    torch.testing.assert_close(memory.features.norm(dim=1), torch.ones(N_TARGET))
    torch.testing.assert_close(memory.scores.sum(dim=1), torch.ones(N_TARGET))
    old = memory.features.clone(), memory.scores.clone()
    method.step(context, memory)
    changed = (memory.features != old[0]).any(dim=1).nonzero().flatten().tolist()
    assert changed == [1, 3]
    torch.testing.assert_close(memory.scores[[3, 1]], context.target.logits.detach().softmax(dim=1))
    assert torch.equal(memory.scores[4:], old[1][4:])
    assert not memory.scores.requires_grad


def test_it_looks_at_the_start_and_when_its_terms_begin_and_never_else() -> None:
    scene = _Scene(sphere=None)
    method, seen = Arpm(), []
    memory = scene.memory(method)
    for step in range(12):
        before = scene.looks
        method.refresh(memory, progress_at(step, 12, method.phases), scene.look)
        seen += [step] if scene.looks > before else []
    assert seen == [0, 2]


def test_a_bank_from_the_first_step_knows_the_new_head() -> None:
    scene = _Scene(sphere=8.0)
    method = Arpm(start=0.0)
    memory, cached = scene.memory(method), scene.look()
    method.refresh(memory, progress_at(0, 12, method.phases), lambda: cached)  # training looks once a step
    torch.testing.assert_close(memory.scores, scene.look().target.logits.softmax(dim=1))
    assert not torch.allclose(memory.scores, cached.target.logits.softmax(dim=1))


def _gradients(**params: Any) -> dict[str, torch.Tensor]:
    scene = _Scene()
    method = Arpm(**params)
    memory = scene.filled(method)
    method.step(scene.context([3, 1, 8]), memory).loss.backward()
    return {name: parameter.grad for name, parameter in scene.network.named_parameters()}  # type: ignore[misc]


@pytest.mark.parametrize("term", [{"power_weight": 2.0}, {"consistency": 2.0}])
def test_the_head_learns_nothing_from_the_target(term: dict[str, float]) -> None:
    nothing = {"power_weight": 0.0, "consistency": 0.0}
    without, with_ = _gradients(**nothing), _gradients(**{**nothing, **term})
    for name, gradient in without.items():
        same = torch.equal(gradient, with_[name])
        assert same if name.startswith("head") else not same


def test_neighbours_are_constants_in_the_gradient() -> None:
    """The gradient by p is -.1 times the mean of the neighbours' scores, though they are rows of the batch too."""
    scene = _Scene(n_target=4)
    method = Arpm(neighbours=2, second_neighbours=1)
    memory, context = scene.filled(method), scene.context([0, 1, 2, 3])
    p = context.target.logits.softmax(dim=1).detach().requires_grad_()
    method._consistency(p, context, memory).backward()
    expected = []
    for row in range(4):
        second = [memory.neighbours(one[None], 1)[0, 0] for one in memory.neighbours(torch.tensor([row]), 2)[0]]
        expected.append(-0.1 * memory.scores[torch.stack(second)].sum(dim=0) / 4)
    torch.testing.assert_close(p.grad, torch.stack(expected))


@pytest.mark.parametrize("n_target", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_small_targets(n_target: int, shift: float) -> None:
    scene = _Scene(n_target=n_target)
    method = Arpm()
    memory, context = scene.filled(method), scene.context([0], shift=shift)
    result = method.step(context, memory)
    others = n_target - 1
    expected = _agreement(scene, context, min(4, others), min(3, others))
    assert float(result.metrics["consistency"]) == pytest.approx(-expected, abs=1e-6)


def test_without_pooled_features_the_features_serve() -> None:
    scene = _Scene()
    method = Arpm()
    memory = method.make_memory(Setup(N_SOURCE, N_TARGET, CLASSES, 4, 4))
    whole, context = scene.look(), scene.context([2, 5])
    bare = DatasetPass(whole.source, whole.target._replace(pooled=None), whole.labels, whole.network)
    method.refresh(memory, FIRST, lambda: bare)
    result = method.step(dataclasses.replace(context, target=context.target._replace(pooled=None)), memory)
    assert float(result.metrics["consistency"]) < 0


def test_resumes_bit_for_bit() -> None:
    scene = _Scene()
    method = Arpm()
    memory = scene.filled(method)
    method.step(scene.context([3, 1], shift=0.3), memory)
    resumed = scene.memory(method)
    resumed.load_state_dict(copy.deepcopy(memory.state_dict()))
    found = [
        method.step(scene.context([7, 2, 3], progress_at(3, 12, method.phases)), each).loss
        for each in (memory, resumed)
    ]
    assert torch.equal(*found)
    for mine, theirs in zip(memory.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_never_nan_for_certain_predictions() -> None:
    scene = _Scene()
    method = Arpm()
    memory, context = scene.filled(method), scene.context([3, 1])
    features = (1e5 * context.target.features).detach().requires_grad_()
    result = method.step(dataclasses.replace(context, target=context.target._replace(features=features)), memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(features.grad).all()  # type: ignore[arg-type]


def _scores(found: PCA, target: np.ndarray) -> list[tuple[np.ndarray, list[float]]]:
    """Every axis with the scores of the target along it."""
    return [(axis, [float(axis @ (x - found.mean_)) for x in target]) for axis in found.components_]


def _expected_head(source: np.ndarray, labels: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Follow docs/method-specifications.md, ARPM, with sklearn's PCA and loops."""
    found = PCA(n_components=CLASSES, svd_solver="full").fit(target)
    axes = np.array([axis if max(scores) > -min(scores) else -axis for axis, scores in _scores(found, target)])
    rows = []
    for k in range(CLASSES):
        votes = [int(np.argmax(axes @ (x - found.mean_))) for x in source[labels == k]]
        rows.append(sum(axes[vote] for vote in votes) / len(votes))
    return np.array(rows)


@pytest.mark.parametrize("sphere", [None, 8.0])
def test_the_head_starts_from_the_principal_axes_of_the_target_and_can_learn(sphere: float | None) -> None:
    scene = _Scene(sphere=sphere)
    features = [scene.look().source.features.double().numpy(), scene.look().target.features.double().numpy()]
    expected = _expected_head(features[0], scene.labels.numpy(), features[1])
    if sphere:
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    optimizer = torch.optim.SGD(scene.network.parameters(), lr=0.1)
    method = Arpm()
    memory = scene.memory(method)
    method.refresh(memory, progress_at(0, 12, method.phases), scene.look)
    start = scene.network.head.weight.detach().clone()
    np.testing.assert_allclose(start, expected, atol=1e-5)
    method.step(scene.context([0, 1], BEFORE), memory).loss.backward()
    optimizer.step()
    assert not torch.allclose(scene.network.head.weight, start)


def test_the_farthest_target_sample_decides_the_sign_of_an_axis() -> None:
    """The target varies along (3, -1) alone, farthest on the side of (-3, 1): its largest *entry* would say (3, -1)."""
    axis = torch.tensor([3.0, -1.0]) / math.sqrt(10.0)
    target = torch.outer(torch.tensor([-5.0, 1.0, 2.0, 2.0]), axis)
    target = target + 1e-3 * torch.outer(torch.tensor([1.0, -1.0, 0.0, 0.0]), axis.flip(0))
    source, labels = torch.outer(torch.tensor([-1.0, -2.0]), axis), torch.tensor([0, 0])
    found = pca_head(source, labels, target, torch.zeros(2, 2))
    torch.testing.assert_close(found[0], -axis.double(), atol=1e-3, rtol=0.0)


def test_a_class_without_samples_keeps_its_row() -> None:
    rng = torch.Generator().manual_seed(0)
    otherwise, labels = torch.randn(3, 4, generator=rng), torch.tensor([0, 0, 2])
    found = pca_head(torch.randn(3, 4, generator=rng), labels, torch.randn(5, 4, generator=rng), otherwise)
    torch.testing.assert_close(found[1], otherwise[1].double())
    assert (found[[0, 2]].norm(dim=1) >= 1 / math.sqrt(3)).all()


def test_the_head_starts_from_a_few_source_samples() -> None:
    scene, whole = _Scene(), _Scene().look()
    asked: list[torch.Tensor] = []

    def of_source(rows: torch.Tensor | None = None) -> Outputs:
        assert rows is not None, "the whole source passed"
        asked.append(rows)
        return Outputs.of(features=whole.source.features[rows])

    method = Arpm(head_samples=6)
    lazy = DatasetPass(of_source, whole.target, whole.labels, scene.network)
    before = scene.network.head.weight.detach().clone()
    method.refresh(scene.memory(method), progress_at(0, 12, method.phases), lambda: lazy)
    (rows,) = asked
    assert len(rows.unique()) == 6
    axes = pca_head(whole.source.features[rows], whole.labels[rows], whole.target.features, before)
    expected = torch.nn.functional.normalize(axes, dim=1).float()
    torch.testing.assert_close(scene.network.head.weight.detach(), expected, atol=1e-5, rtol=0.0)


def _head_after(method: Arpm, scene: _Scene) -> tuple[torch.Tensor, torch.Tensor]:
    network: Network = scene.network
    before = network.head.weight.detach().clone()
    method.refresh(scene.memory(method), progress_at(0, 12, method.phases), scene.look)
    return before, network.head.weight.detach()


def test_the_head_is_left_alone_with_too_few_samples_or_when_asked(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "warmpot"):
        assert torch.equal(*_head_after(Arpm(), _Scene(n_target=CLASSES - 1)))
        assert "3 classes" in caplog.text
        caplog.clear()
        assert torch.equal(*_head_after(Arpm(pca_head=False), _Scene()))
        assert not torch.equal(*_head_after(Arpm(), _Scene()))
        assert not caplog.text


@pytest.mark.parametrize(
    "params",
    [
        {"power": 1.0},
        {"power_weight": -1.0},
        {"consistency": -1.0},
        {"neighbours": 0},
        {"start": 1.5},
        {"head_samples": 0},
    ],
)
def test_bad_parameters(params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(params))):
        Arpm(**params)


@pytest.mark.parametrize(
    "name",
    ["arpm", "arpm-frozen", "arpm-warmpot", "arpm-warmpot-frozen", "arpm-plan", "arpm-plan-frozen"],
)
def test_recipes_differ_in_weights_alone(name: str) -> None:
    recipe = read_preset(name)
    found = from_mapping(Arpm, recipe["params"], "params")
    assert found == Arpm(start=found.start, pca_head=not name.endswith("frozen"))
    assert found.start == pytest.approx(0.375 if name.endswith("frozen") else 1 / 6, abs=1e-6)
    assert recipe["minibatch"]["network"]["sphere"] == "auto"
    assert recipe["weights"] == {"arpm": "chi2_ball", "warmpot": "capped", "plan": "plan"}[
        ([*name.removesuffix("-frozen").split("-")])[-1]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("start", "weights", "params"),
    [
        (0.16, "chi2_ball", {"periods": 6}),
        (0.9, "chi2_ball", {"periods": 1}),  # no refresh at all
        (0.3, "capped", {"periods": 2}),
        (0.3, "plan", {"scope": "dataset", "periods": 3}),
        (0.3, "class_share", {"periods": 3}),
    ],
)
def test_its_terms_do_not_begin_before_the_first_weights(start: float, weights: str, params: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="start"):
        Arpm(start=start).check_first_refresh(make_weighting(weights, params).first_refresh)


def test_a_run_without_weights_before_the_terms_of_the_target_is_refused() -> None:
    with pytest.raises(InputError) as error:
        load_config("arpm-frozen", changes={"params": {"start": 0.125}, "weight_params": {"periods": 4}})
    assert (error.value.what, error.value.allowed) == ("config.params.start", "at least 0.25")
    assert "periods" in error.value.remedy


@pytest.mark.parametrize(
    ("start", "weights", "params"),
    [
        (0.1666666, "chi2_ball", {"periods": 6}),  # rounded
        (1.0, "chi2_ball", {"periods": 1}),
        (0.0, "uniform", {}),
        (0.0, "plan", {"scope": "batch", "periods": 3}),
        (0.0, "class_share", {"periods": 3, "from_start": True}),
    ],
)
def test_its_terms_may_begin_with_the_first_weights(start: float, weights: str, params: dict[str, Any]) -> None:
    Arpm(start=start).check_first_refresh(make_weighting(weights, params).first_refresh)


@pytest.mark.parametrize("name", ["arpm-imagenet", "arpm-warmpot-imagenet"])
def test_imagenet_recipes(name: str) -> None:
    recipe = read_preset(name)
    assert recipe["weight_params"]["periods"] == 10
    assert recipe["params"]["start"] == 0.1
    assert recipe["params"]["head_samples"] == recipe["weight_params"]["subset"] == 128000
    assert recipe["minibatch"]["network"]["width"] == 4096
    assert recipe["minibatch"]["optimizer"]["decay_rate"] == 0.0004
