"""What a method outside the package may rely on: phases, batches, passes, rounds, entry points, true weights."""

from __future__ import annotations

import copy
import dataclasses
import importlib.metadata
import itertools
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor
from torch.nn import functional
from typer.testing import CliRunner

from warmpot.bench import read_store
from warmpot.cli import app
from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import (
    METHODS,
    BatchContext,
    BatchSpec,
    Learner,
    Memory,
    Method,
    PassRequest,
    Phase,
    RoundResult,
    Rounds,
    SamplePool,
    Setup,
    SourceOnly,
    StepResult,
    TrainProgress,
    alternation,
    make_weighting,
    registry,
)
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.select import fit_chosen
from warmpot.train import fit, load_config
from warmpot.train.batch_engine import _Trainer
from warmpot.train.hardware import make_fabric
from warmpot.train.run_reader import read_run

N_SOURCE, N_TARGET, CLASSES, WIDTH, STEPS, BATCH = 40, 30, 4, 5, 6, 8
FEW: dict[str, Any] = {
    "minibatch": {"steps": STEPS, "warmup": 0.0, "source_batch": BATCH, "target_batch": BATCH, "log_every": 1}
}


def make_task() -> Task:
    rng = np.random.default_rng(0)
    ys, yt = np.arange(N_SOURCE) % CLASSES, np.arange(N_TARGET) % 2
    xs, xt = (3 * np.eye(CLASSES, WIDTH)[y] + rng.normal(size=(len(y), WIDTH)) for y in (ys, yt))
    return Task(xs.astype(np.float32), ys, xt.astype(np.float32), tuple("abcd"))


class CopyMemory(Memory):
    """A frozen copy of the network, pseudo-labels of the target, and what the steps saw."""

    pseudo: Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        assert setup.network is not None
        self.encoder = copy.deepcopy(setup.network).eval().requires_grad_(False)
        self.register_buffer("pseudo", torch.zeros(setup.n_target, dtype=torch.long))
        self.contexts: list[BatchContext] = []


@dataclass(frozen=True)
class TwoPhases(Method[CopyMemory]):
    """Train on the source; then on pseudo-labels of the target, without the source and with the head frozen.

    This is the shape of ADDA (a frozen source encoder) and of SHOT++ (pseudo-labels, a frozen head, two views).
    """

    name: ClassVar[str] = "two-phases"
    summary: ClassVar[str] = "for a test"
    reference: ClassVar[str] = "none"
    passes: ClassVar[Mapping[Any, tuple[str, ...]]] = {"target": ("logits",)}
    memories: ClassVar[list[CopyMemory]] = []

    @property
    def phases(self) -> tuple[Phase, ...]:
        second = Phase("target", frozen=("head",), uses_source=False, restarts_decay=True)
        return Phase("source", 0.5, adapts=False, uses_target=False), second

    def make_memory(self, setup: Setup) -> CopyMemory:
        self.memories.append(CopyMemory(setup))
        return self.memories[-1]

    def refresh(self, memory: CopyMemory, progress: TrainProgress, request: PassRequest) -> None:
        if progress.phase == "target":
            if progress.starts_phase:
                memory.encoder.load_state_dict(request().network.state_dict())
            memory.pseudo.copy_(request().target.logits.argmax(dim=1))

    def pools(self, memory: CopyMemory) -> Mapping[str, SamplePool]:
        return {"target": SamplePool(torch.arange(len(memory.pseudo)), memory.pseudo)}

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:
        return {"again": BatchSpec(source_batch // 2, "target", "target")} if progress.phase == "target" else {}

    def step(self, context: BatchContext, memory: CopyMemory) -> StepResult:
        memory.contexts.append(context)
        if context.progress.phase == "source":
            losses = functional.cross_entropy(context.source.logits, context.labels, reduction="none")
            return StepResult(losses.mean(), torch.full_like(losses, 1 / len(losses)).detach(), {})
        assert context.forward is not None
        assert context.pseudo_labels is not None
        frozen = context.forward(context.inputs, memory.encoder).features
        loss = functional.cross_entropy(context.target.logits, context.pseudo_labels)
        return StepResult(loss + (context.target.features.mean(0) - frozen.mean(0)).square().sum(), None, {})


@pytest.fixture
def method(monkeypatch: pytest.MonkeyPatch) -> TwoPhases:
    monkeypatch.setitem(METHODS, TwoPhases.name, TwoPhases)
    TwoPhases.memories.clear()
    return TwoPhases()


def test_phases_of_one_domain(method: TwoPhases) -> None:
    changes = {**FEW, "method": method.name, "minibatch": {**FEW["minibatch"], "network": {"bottleneck": "bn"}}}
    fitted = fit(make_task(), load_config("frozen", changes=changes))
    (memory,) = method.memories
    first, second = memory.contexts[:3], memory.contexts[3:]
    assert [len(context.source.logits) for context in memory.contexts] == [BATCH] * 3 + [0] * 3
    assert [len(context.target.logits) for context in memory.contexts] == [0] * 3 + [BATCH] * 3
    assert [context.progress.phase_share for context in second] == pytest.approx([0, 1 / 3, 2 / 3])
    for context in second:
        assert context.inputs is not None
        assert context.target_rows is not None
        assert len(context.inputs) == len(context.labels) == BATCH
        assert context.weights is None
        again = context.extra["again"]
        assert torch.equal(again.rows, context.target_rows[: BATCH // 2])
        assert (again.domain, again.weights) == ("target", None)
        assert torch.equal(again.labels, context.pseudo_labels[: BATCH // 2])
    assert all(not context.extra and context.weights is not None for context in first)
    network = fitted.predictor.network
    assert torch.equal(network.head.weight, memory.encoder.head.weight)  # frozen since the copy
    assert not torch.equal(network.bottleneck[0].weight, memory.encoder.bottleneck[0].weight)
    # BatchNorm has seen the source in the first phase; then the target, and its second view
    assert int(network.bottleneck[1].num_batches_tracked) == 3 + 3 * 2
    assert fitted.training_weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["adda", "apda-ci", "shot-plus"])  # the official code of DRCN does pass it
def test_source_phases_do_not_pass_the_target(name: str) -> None:
    params = {"params": {"pretraining" if name == "adda" else "pretrain": 0.9}}
    bottleneck = {"minibatch": {**FEW["minibatch"], "network": {"bottleneck": "bn", "head": "linear", "scale": "none"}}}
    tasks = [make_task(), dataclasses.replace(make_task(), xt=make_task().xt + 100.0)]
    config = load_config(f"{name}-frozen", changes={**FEW, **bottleneck, **params})
    trained = [_Trainer(task, config, make_fabric(config.minibatch.hardware)) for task in tasks]
    for trainer in trained:
        trainer.model.train()
        for step, batches in itertools.islice(trainer.steps(0), 3):
            trainer.step(step, batches)
    first, second = (trainer.network.state_dict() for trainer in trained)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_samples_of_a_joined_batch_can_be_exchanged(method: TwoPhases) -> None:
    fit(make_task(), load_config("frozen", changes={**FEW, "method": method.name}))
    context, index = method.memories[0].contexts[0], torch.tensor([2, 0, 3])
    assert torch.equal(context.own_rows(context.gather(context.inputs)[index]), context.inputs[[2, 0, 3]])
    # over two processes, which have every second row each, a share becomes the batch, and the batch a share
    joined, order = torch.arange(6.0), torch.tensor([4, 1, 0, 5, 3, 2])
    for rank in range(2):
        fabric = SimpleNamespace(global_rank=rank, world_size=2)
        trainer = SimpleNamespace(fabric=fabric, _joins=True, _joined=lambda _: joined)
        whole = _Trainer._gather(trainer, joined[rank::2])
        assert torch.equal(_Trainer._own_rows(trainer, whole[order]), joined[order][rank::2])


SUBSET: dict[str, Any] = {
    "minibatch": {**FEW["minibatch"], "steps": 12, "checkpoint_every": 5, "sampler": "shuffled"},
    "weight_params": {"periods": 3, "subset": 16, "critic": {"hidden": 8, "steps": 3, "batch": 4}},
    "params": {"start": 0.5, "pca_head": True, "head_samples": 20},
}


def test_a_weighting_may_pass_and_train_on_a_subset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every refresh passes new rows of the source and no others; batches come from them until the next."""
    passed: list[int] = []
    batches: list[set[int]] = []
    outputs_of, step_of = _Trainer.outputs, Learner.step

    def counting(self: _Trainer, x: Any, *rest: Any) -> Outputs:
        passed.append(len(x))
        return outputs_of(self, x, *rest)

    def recording(self: Learner, step: int, context: BatchContext) -> StepResult:
        assert context.rows is not None
        batches.append(set(context.rows.tolist()))
        return step_of(self, step, context)

    monkeypatch.setattr(_Trainer, "outputs", counting)
    monkeypatch.setattr(Learner, "step", recording)
    config = load_config("arpm-frozen", changes=SUBSET)
    fitted = fit(make_task(), config, out=tmp_path / "run")
    assert sorted(set(passed)) == [16, 20, N_TARGET]  # a subset, the start of the head, the target
    subsets = [set().union(*batches[start : start + 4]) for start in (0, 4, 8)]
    assert len(subsets[0]) > 16
    assert len(subsets[1]) == len(subsets[2]) == 16
    assert subsets[1] != subsets[2]
    assert set(np.flatnonzero(fitted.training_weights).tolist()) <= subsets[2]
    assert fitted.presence is not None
    chosen = fit_chosen(make_task(), load_config("arpm-frozen", changes={**SUBSET, "choose": "neighbours"}))
    assert [line["step"] for line in chosen.history if "score" in line] == [5, 10, 12]
    resumed = tmp_path / "resumed"
    shutil.copytree(tmp_path / "run", resumed)
    for late in ("step-00000010", "step-00000012"):
        shutil.rmtree(resumed / "checkpoints" / late, ignore_errors=True)
    again = fit(make_task(), config, out=resumed, resume=True)
    np.testing.assert_array_equal(again.outputs, fitted.outputs)
    np.testing.assert_array_equal(again.training_weights, fitted.training_weights)


@pytest.mark.parametrize("joint", [False, True], ids=["separate", "joint"])
@pytest.mark.parametrize("warmup", [0.0, 0.5])
def test_a_method_that_does_not_use_the_target_never_passes_it(joint: bool, warmup: float) -> None:
    """BatchNorm's statistics, and with them all predictions, depend on the source alone."""
    network = {"bottleneck": "bn", "joint": joint}
    settings = {**FEW["minibatch"], "warmup": warmup, "network": network}
    config = load_config("source-only-frozen", changes={"minibatch": settings})
    task = make_task()
    other = Task(task.xs, task.ys, 5 - 3 * task.xt[:17], task.classes)
    networks = [fit(each, config).predictor.network for each in (task, other)]
    norm = networks[0].bottleneck[1]
    assert int(norm.num_batches_tracked) == STEPS
    for mine, theirs in zip(networks[0].state_dict().values(), networks[1].state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    x = torch.from_numpy(task.xt)
    assert torch.equal(networks[0](x).logits, networks[1](x).logits)


def test_a_method_that_does_not_use_the_target_gets_no_rows_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts: list[BatchContext] = []
    step = SourceOnly.step

    def recording(self: SourceOnly, context: BatchContext, memory: Memory) -> StepResult:
        contexts.append(context)
        return step(self, context, memory)

    monkeypatch.setattr(SourceOnly, "step", recording)
    fitted = fit(make_task(), load_config("source-only-frozen", changes=FEW))
    assert [len(context.source.logits) for context in contexts] == [BATCH] * STEPS
    assert all(len(part) == 0 for context in contexts for part in context.target[:2])
    assert all(context.target_rows is None and context.target_inputs is None for context in contexts)
    assert all("effective_weights" in line and "effective_classes" not in line for line in fitted.history)


def test_passes_keep_parts_in_the_same_order_in_all_processes(method: TwoPhases) -> None:
    """The order of a set of texts differs between processes, which gather part by part."""
    network = build_network(NetworkSettings(width=3), WIDTH, CLASSES, seed=0)
    setup = Setup(N_SOURCE, N_TARGET, CLASSES, 3, WIDTH, network=network)
    object.__setattr__(method, "passes", {"target": ("pooled", "logits", "features")})
    learner = Learner(method, make_weighting("class_share"), setup, steps=8)
    assert learner.pass_parts("target") == ["features", "logits", "pooled"]


def test_decay_starts_again_with_a_phase(method: TwoPhases) -> None:
    network = build_network(NetworkSettings(width=3), WIDTH, CLASSES, seed=0)
    setup = Setup(N_SOURCE, N_TARGET, CLASSES, 3, WIDTH, network=network)
    learner = Learner(method, make_weighting("uniform"), setup, steps=8, warmup=2)
    assert [learner.decay_span(step) for step in range(8)] == [(k, 5) for k in range(5)] + [(k, 3) for k in range(3)]


def test_a_cosine_ends_with_its_phase() -> None:
    power, cosine = (load_config("official").minibatch.optimizer, load_config("slm").minibatch.optimizer)
    assert [power.decay(step, steps) for step, steps in ((0, 9), (1000, 1001))] == [1.0, pytest.approx(2**-0.75)]
    factors = [cosine.decay(step, 4) for step in range(4)]
    np.testing.assert_allclose(factors, [1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])
    config = load_config("slm")
    setup = Setup(n_source=8, n_target=8, n_classes=2, width=3, pooled=4)
    learner = Learner(config.built_method, None, setup, steps=15000)
    spans = [learner.decay_span(step) for step in (0, 4999, 5000, 14999)]
    assert spans == [(0, 5000), (4999, 5000), (0, 10000), (9999, 10000)]
    with pytest.raises(InputError, match="schedule"):
        load_config("slm", changes={"minibatch": {"optimizer": {"schedule": "linear"}}})


@dataclass(frozen=True)
class SmallerLater(TwoPhases):
    """Its second phase is a training of its own, on smaller target batches."""

    name: ClassVar[str] = "smaller-later"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return Phase("source", 0.5, adapts=False), Phase("target", separate=True)

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:
        sizes = {"target": source_batch // 4, "source": 100 * source_batch}  # the second is no smaller, and ignored
        return {name: BatchSpec(size, name) for name, size in sizes.items()} if progress.phase == "target" else {}


def test_a_phase_like_a_training_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Momentum starts from zero with it; batches may be cut in it."""
    monkeypatch.setitem(METHODS, SmallerLater.name, SmallerLater)
    TwoPhases.memories.clear()
    momenta: list[bool] = []
    step = _Trainer.step

    def recording(self: _Trainer, number: int, batches: Any) -> Any:
        result = step(self, number, batches)
        (first, *_) = self.network.bottleneck.parameters()
        momentum = self.optimizer.state[first]["momentum_buffer"]
        decayed = before[-1] * self.settings.optimizer.weight_decay + first.grad  # of the parameters before the step
        momenta.append(bool(torch.allclose(momentum, decayed, atol=1e-7)))
        before.append(first.detach().clone())
        return result

    config = load_config("frozen", changes={**FEW, "method": SmallerLater.name})
    first_weight = build_network(config.minibatch.network, WIDTH, CLASSES, seed=config.seed).bottleneck[0].weight
    before = [first_weight.detach().clone()]
    monkeypatch.setattr(_Trainer, "step", recording)
    fit(make_task(), config)
    assert momenta == [True, False, False, True, False, False]
    (memory,) = TwoPhases.memories
    assert [len(context.target.logits) for context in memory.contexts] == [BATCH] * 3 + [BATCH // 4] * 3
    assert [len(context.source.logits) for context in memory.contexts] == [BATCH] * 6


class MeanRounds(Rounds):
    """Class means in closed form; later rounds add the target with its predicted labels. No plan."""

    n_rounds = 2

    def __init__(self, task: Task) -> None:
        self.xs, self.xt, self.ys = torch.from_numpy(task.xs), torch.from_numpy(task.xt), torch.from_numpy(task.ys)
        self.settings = NetworkSettings(bottleneck="none")
        self._network = build_network(self.settings, WIDTH, CLASSES, seed=0).eval()

    def start(self) -> None:
        self._fit(self.xs, self.ys)

    def _fit(self, x: Tensor, y: Tensor) -> None:
        means = torch.stack([x[y == k].mean(dim=0) for k in range(CLASSES)])
        with torch.no_grad():
            self._network.head.weight.copy_(means)
            self._network.head.bias.copy_(-means.square().sum(dim=1) / 2)

    def round(self, number: int) -> RoundResult:
        guesses = self.outputs()[1].logits.argmax(dim=1)
        self._fit(torch.cat([self.xs, self.xt]), torch.cat([self.ys, guesses]))
        return RoundResult({"guessed_classes": len(guesses.unique())})

    def outputs(self) -> tuple[Outputs, Outputs]:
        with torch.no_grad():
            return self._network(self.xs), self._network(self.xt)

    def network(self) -> Network:
        return self._network

    def state(self) -> dict[str, Tensor]:
        return self._network.state_dict()

    def load(self, state: dict[str, Tensor]) -> None:
        self._network.load_state_dict({name: state[name] for name in self._network.state_dict()})

    @property
    def training_weights(self) -> Tensor:
        return torch.full((len(self.xs),), 1 / len(self.xs))


@dataclass(frozen=True)
class Means(Method[Memory]):
    name: ClassVar[str] = "class-means"
    summary: ClassVar[str] = "for a test"
    reference: ClassVar[str] = "none"
    engines: ClassVar[tuple[str, ...]] = ("full",)

    def rounds(self, task: Task, *_: Any) -> Rounds:
        return MeanRounds(task)


def test_rounds_without_a_plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(METHODS, Means.name, Means)
    config = load_config("full", changes={"method": Means.name})
    fitted = fit(make_task(), config, out=tmp_path / "run")
    assert [line["step"] for line in fitted.history] == [1, 2]
    assert all("transport" not in line and "effective_weights" in line for line in fitted.history)
    assert fitted.plan_weights is None
    assert fitted.outputs.argmax(axis=1).max() <= 1
    resumed = fit(make_task(), config, out=tmp_path / "run", resume=True)
    np.testing.assert_array_equal(resumed.outputs, fitted.outputs)


def test_training_weights_are_those_of_the_last_refit_of_the_best_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Tensor] = []
    refit = alternation.fit_classifier

    def recording(x: Tensor, targets: Tensor, weights: Tensor, *rest: Any, **settings: Any) -> Any:
        used.append(weights[:N_SOURCE].double())
        return refit(x, targets, weights, *rest, **settings)

    monkeypatch.setattr(alternation, "fit_classifier", recording)
    fitted = fit(make_task(), load_config("full", changes={"full": {"rounds": 3}}))
    tried = [line for line in fitted.history if "support" in line]
    assert len(used) == 1 + 3 * (len(tried) - 1)  # the source alone, then three for each; none for a single class
    best = max(range(len(tried)), key=lambda k: tried[k]["support"])
    last = used[3 * best] / used[3 * best].sum()  # in the order in which samples are trained on
    np.testing.assert_allclose(np.sort(fitted.training_weights), np.sort(last), rtol=1e-6)
    ys = make_task().ys
    for c in np.unique(ys):
        assert len(np.unique(fitted.training_weights[c == ys])) == 1  # samples of a class count the same
    assert all(0 < line["alpha"] <= 1 and 0 < line["beta"] <= 1 for line in fitted.history[1:])
    assert fitted.plan_weights is not None
    assert not np.allclose(fitted.training_weights, fitted.plan_weights / fitted.plan_weights.sum())


@pytest.mark.parametrize("weights", ["own", "class_share", "plan"])
def test_training_weights_are_those_of_the_losses(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    used, step_of = torch.zeros(N_SOURCE, dtype=torch.float64), Learner.step
    last: list[Tensor] = []

    def recording(self: Learner, step: int, context: BatchContext) -> StepResult:
        result = step_of(self, step, context)
        losses = functional.cross_entropy(context.source.logits, context.labels, reduction="none").detach()
        assert float(result.metrics["classification"]) == pytest.approx(float(result.weights @ losses), rel=1e-4)
        used[context.rows] = result.weights.double()
        last[:] = [context.rows]
        return result

    monkeypatch.setattr(Learner, "step", recording)
    fitted = fit(make_task(), load_config("frozen", changes={**FEW, "weights": weights}))
    if weights == "class_share":  # samples that were not in the last batch have the weight of their class too
        (rows,) = last
        shown = torch.from_numpy(fitted.training_weights)[rows]
        np.testing.assert_allclose(shown / shown.sum(), used[rows] / used[rows].sum(), rtol=1e-4)
    else:
        np.testing.assert_allclose(fitted.training_weights, used / used.sum(), rtol=1e-5, atol=1e-9)


OUTSIDE = """
from dataclasses import dataclass
from typing import ClassVar
from warmpot.methods import SourceOnly

@dataclass(frozen=True)
class Outside(SourceOnly):
    name: ClassVar[str] = "outside"
    engines: ClassVar[tuple[str, ...]] = ("minibatch",)
    factor: float = 1.0
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a package with an entry point: what pip would write, on the path."""
    site = tmp_path / "site"
    (site / "outside-1.0.dist-info").mkdir(parents=True)
    (site / "outside_method.py").write_text(OUTSIDE)
    (site / "outside-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    entry = "[warmpot.methods]\noutside = outside_method:Outside\n"
    (site / "outside-1.0.dist-info" / "entry_points.txt").write_text(entry)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    task = make_task()
    np.savez(tmp_path / "source.npz", X=task.xs, y=task.ys)
    np.savez(tmp_path / "target.npz", X=task.xt, y=np.arange(N_TARGET) % 2)
    monkeypatch.setattr(registry, "METHODS", dict(METHODS))
    for cached in (registry._installed, importlib.metadata.entry_points):
        getattr(cached, "cache_clear", lambda: None)()
    yield tmp_path
    for cached in (registry._installed, importlib.metadata.entry_points):
        getattr(cached, "cache_clear", lambda: None)()


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_method_of_another_package_works_in_fit_sweep_and_bench(installed: Path) -> None:
    source, target, steps = installed / "source.npz", installed / "target.npz", "minibatch.steps=3"
    run("fit", source, target, "--method", "outside", "--set", steps, "--out", installed / "run", "--quiet")
    config = yaml.safe_load((installed / "run" / "config.yaml").read_text())
    assert (config["method"], config["params"]) == ("outside", {"factor": 1.0})
    assert "outside" in run("methods")
    assert "factor" in run("methods", "outside")
    del registry.METHODS["outside"]  # as in another process, which has not trained with it
    assert read_run(installed / "run").method.name == "outside"
    space = {"method": "outside", "minibatch.steps": 3, "params.factor": [1.0, 2.0]}
    (installed / "space.yaml").write_text(yaml.safe_dump(space))
    run("sweep", source, target, "--space", installed / "space.yaml", "--out", installed / "sweep", "--quiet")
    grid = {
        "title": "outside",
        "data": [{"name": "blobs", "source": "source.npz", "target": "target.npz"}],
        "rows": [{"name": "outside", "preset": "frozen", "set": {"method": "outside", "minibatch.steps": 3}}],
        "seeds": 1,
    }
    (installed / "grid.yaml").write_text(yaml.safe_dump(grid))
    run("bench", installed / "grid.yaml", "--data", installed, "--out", installed / "bench", "--quiet")
    assert len(read_store(installed / "bench")) == 1
