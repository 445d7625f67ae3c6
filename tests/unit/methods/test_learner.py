"""The learner: weights reach the loss, state is complete, parts are asked in order."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from warmpot.methods import (
    METHODS,
    WEIGHTINGS,
    BatchContext,
    DatasetPass,
    Learner,
    Memory,
    NamedBatch,
    Phase,
    Setup,
    StepResult,
    TrainProgress,
    make_method,
    make_weighting,
)
from warmpot.methods.ba3us import EXTRA
from warmpot.methods.base import progress_at
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.weighting import Uniform
from warmpot.nets import NetworkSettings, Outputs, build_network

CLASSES, WIDTH, STEPS = 5, 6, 100
NETWORK = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)
SIZES = Setup(20, 16, CLASSES, WIDTH, WIDTH, network=NETWORK)
LABELS = torch.arange(20) % CLASSES
STEPPING = [name for name, method in METHODS.items() if "minibatch" in method.engines]
HEARD = [name for name in STEPPING if METHODS[name].uses_target]
UNWEIGHTED: dict[str, dict[str, Any]] = {
    "pwan": {"complement": 0.0},
    "san": {"entropy": 0.0},
    "drcn": {"joint": 0.0, "by_class": 0.0},
    "adda": {"pretraining": 0.9},  # the phase in which the network sees the source
}
"""Settings without the terms that take all source samples alike, by their papers."""
SOURCE_PHASE: dict[str, dict[str, Any]] = {"shot-plus": {"rotation": 0.0, "pretrain": 0.9}}
"""Settings with which the source has a part, and which need no images."""


def outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    features, logits = torch.randn(n, WIDTH, generator=rng), torch.randn(n, CLASSES, generator=rng)
    return Outputs(features.requires_grad_(), logits.requires_grad_(), features.detach())


def make_context(step: int = 60, extra: bool = True) -> BatchContext:
    further = {EXTRA: NamedBatch(outputs(4, 2), torch.arange(4), LABELS[:4])} if extra else {}
    return BatchContext(
        outputs(20, 0), LABELS, outputs(16, 1), TrainProgress(step, STEPS),
        rows=torch.arange(20), target_rows=torch.arange(16), network=NETWORK, extra=further,
        inputs=outputs(20, 3).features.detach(), target_inputs=outputs(16, 4).features.detach(),
        forward=lambda x, network=NETWORK: network(x),
    )  # fmt: skip


def step_of(name: str, weights: torch.Tensor | None, context: BatchContext) -> StepResult:
    method = make_method(name, {**UNWEIGHTED, **SOURCE_PHASE}.get(name, {}))
    memory = method.make_memory(SIZES)
    progress = progress_at(context.progress.step, STEPS, method.phases)
    extra = {key: b._replace(weights=None if weights is None else weights[b.rows]) for key, b in context.extra.items()}
    with torch.random.fork_rng():
        torch.manual_seed(0)  # dropout
        return method.step(dataclasses.replace(context, weights=weights, extra=extra, progress=progress), memory)


@pytest.mark.parametrize("name", HEARD)
def test_a_sample_without_weight_has_no_say(name: str) -> None:
    context, weights = make_context(), (LABELS < 2).float()
    result = step_of(name, weights, context)
    result.loss.backward()
    gradient = context.source.logits.grad
    assert gradient is not None
    assert torch.equal(gradient[weights == 0], torch.zeros(12, CLASSES))
    assert (gradient[weights > 0].abs().sum(dim=1) > 0).all()
    torch.testing.assert_close(result.weights.double().sum(), torch.tensor(1.0).double(), atol=1e-4, rtol=0)
    assert torch.equal(result.weights == 0, weights == 0)


@pytest.mark.parametrize("name", HEARD)
def test_only_ratios_of_weights_count(name: str) -> None:
    weights = 1.0 + torch.arange(20.0)
    one, other = step_of(name, weights, make_context()), step_of(name, 7 * weights, make_context())
    torch.testing.assert_close(one.loss, other.loss, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(one.weights.double(), weights.double() / weights.sum(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", HEARD)
def test_weights_that_are_all_0_do_not_make_nan(name: str) -> None:
    context = make_context()
    result = step_of(name, torch.zeros(20), context)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    for part in (*context.source[:2], *context.target[:2]):
        assert part.grad is None or torch.isfinite(part.grad).all()


@pytest.mark.parametrize("name", STEPPING)
@pytest.mark.parametrize("weights", WEIGHTINGS)
def test_state_goes_round(name: str, weights: str) -> None:
    """A learner with the state of another says the same, whatever seed it was made with."""
    params = {"critic": {"hidden": 8, "steps": 3, "batch": 4}} if hasattr(make_weighting(weights), "critic") else {}

    def make(seed: int) -> Learner:
        method = make_method(name, SOURCE_PHASE.get(name, {}))
        return Learner(method, make_weighting(weights, params), SIZES._replace(seed=seed), steps=STEPS)

    one, other = make(1), make(2)
    seen = DatasetPass(*(Outputs(*(x.detach() for x in outputs(n, 5 + n))) for n in (20, 16)), LABELS, NETWORK)
    for step in (0, 60):
        one.refresh(step, lambda: seen)
    other.load_state_dict(one.state_dict())
    result = []
    for learner in (one, other):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            result.append(learner.step(60, make_context()))
    assert torch.equal(result[0].loss, result[1].loss)
    assert torch.equal(result[0].weights, result[1].weights)
    mine = {id(p) for p in one.parameters() if p.requires_grad}  # a frozen copy of the network is not trained
    apart = [p for optimizer in one.optimizers().values() for group in optimizer.param_groups for p in group["params"]]
    by_run = [*one.trained(), *(p for group in one.param_groups() for p in group.params)]
    assert {id(p) for p in (*apart, *by_run)} == mine  # everything is trained, by one of them
    assert len(apart) + len(by_run) == len(mine)


def test_the_parts_of_a_pass_have_one_order() -> None:
    """Processes gather them one after the other; the order of a set of names differs between processes."""
    learner = Learner(make_method("pwan"), make_weighting("presence"), SIZES, steps=STEPS)
    for domain in ("source", "target"):
        parts = learner.pass_parts(domain)
        assert isinstance(parts, list)
        assert parts == sorted(set(parts))
        assert parts


class _Told(SourceOnly):
    """Keeps what it is shown."""

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def refresh(self, memory: Memory, progress: TrainProgress, request: Any) -> None:
        self.log.append("method")  # type: ignore[attr-defined]

    def step(self, context: BatchContext, memory: Memory) -> StepResult:
        self.log.append(context)  # type: ignore[attr-defined]
        return super().step(context, memory)


class _Rows(Uniform):
    """Weighs a sample by its row."""

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def refresh(self, memory: Memory, progress: TrainProgress, request: Any) -> None:
        self.log.append("weighting")  # type: ignore[attr-defined]

    def weigh(self, memory: Memory, batch: NamedBatch, context: BatchContext) -> torch.Tensor:
        assert len(batch.outputs.logits) == len(batch.labels) == len(batch.rows)
        return batch.rows.float()


class _Apart(_Told):
    """Has a phase in which the network does not see the source."""

    phases = (Phase("apart", uses_source=False),)  # type: ignore[assignment]

    def step(self, context: BatchContext, memory: Memory) -> StepResult:
        self.log.append(context)  # type: ignore[attr-defined]
        return StepResult(context.target.logits.mean(), None, {})


def test_samples_that_the_method_passes_itself_can_be_weighted() -> None:
    log: list[Any] = []
    context = make_context()
    passed = NamedBatch(outputs(3, 7), torch.tensor([5, 2, 9]), LABELS[[5, 2, 9]])
    Learner(_Apart(log), _Rows(log), SIZES, steps=STEPS).step(60, context)
    assert log[0].weights is None
    assert torch.equal(log[0].weigh(passed), torch.tensor([5.0, 2.0, 9.0]))
    Learner(_Apart(log), None, SIZES, steps=STEPS).step(60, context)
    assert log[1].weigh is None


def test_the_method_sees_the_weights_of_both_batches_after_the_refresh() -> None:
    log: list[Any] = []
    learner = Learner(_Told(log), _Rows(log), SIZES, steps=STEPS)
    learner.refresh(0, lambda: pytest.fail("nobody asked"))
    learner.step(60, make_context())
    assert log[:2] == ["method", "weighting"]  # a method may set the head, by which a weighting goes
    assert torch.equal(log[2].weights, torch.arange(20.0))
    assert torch.equal(log[2].extra[EXTRA].weights, torch.arange(4.0))
    learner.step(60, make_context(extra=False))
    assert log[3].extra == {}


class _SetsHead(_Told):
    def refresh(self, memory: Memory, progress: TrainProgress, request: Any) -> None:
        request().network.head.weight.data.zero_()


class _Looks(_Rows):
    def refresh(self, memory: Memory, progress: TrainProgress, request: Any) -> None:
        assert request() is request()
        self.log.append(request().target.logits)  # type: ignore[attr-defined]


def test_a_weighting_sees_the_head_that_the_method_has_set() -> None:
    log: list[Any] = []
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)

    def look() -> DatasetPass:
        return DatasetPass(
            lambda: network(torch.ones(20, WIDTH)), lambda: network(torch.ones(16, WIDTH)), LABELS, network
        )

    Learner(_SetsHead([]), _Looks(log), SIZES, steps=STEPS).refresh(0, look)
    assert torch.equal(log[0], torch.zeros(16, CLASSES))


def test_state_of_method_or_weighting_is_state_of_the_learner() -> None:
    states = {
        (name, weights): Learner(make_method(name), make_weighting(weights), SIZES, steps=STEPS).has_state
        for name in ("warmpot", "ba3us", "arpm") for weights in ("uniform", "plan", "class_share", "capped")
    }  # fmt: skip
    assert [pair for pair, has_state in states.items() if not has_state] == [
        ("warmpot", "uniform"),
        ("warmpot", "plan"),
    ]
    dataset = make_weighting("plan", {"scope": "dataset"})
    assert Learner(make_method("warmpot"), dataset, SIZES, steps=STEPS).has_state


def test_without_a_weighting_the_method_weighs() -> None:
    log: list[Any] = []
    learner = Learner(_Told(log), None, SIZES, steps=STEPS)
    learner.step(60, make_context())
    assert log[0].weights is None
    assert not learner.has_state
    assert learner.expected_share == SourceOnly().expected_share
    assert isinstance(learner.of_weighting, nn.Module)
