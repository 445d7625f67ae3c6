"""The learner: weights reach the loss, state is complete, parts are asked in order."""

from __future__ import annotations

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
    Setup,
    StepResult,
    TrainProgress,
    make_method,
    make_weighting,
)
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.weighting import Uniform
from warmpot.nets import NetworkSettings, Outputs, build_network

CLASSES, WIDTH = 5, 6
SIZES = Setup(20, 16, CLASSES, WIDTH, WIDTH)
LABELS = torch.arange(20) % CLASSES
HEARD = [name for name, method in METHODS.items() if method.uses_target]
UNWEIGHTED: dict[str, dict[str, Any]] = {"pwan": {"complement": 0.0}}
"""Terms that take all source samples alike, by their papers."""


def outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    features, logits = torch.randn(n, WIDTH, generator=rng), torch.randn(n, CLASSES, generator=rng)
    return Outputs(features.requires_grad_(), logits.requires_grad_(), features.detach())


def make_view(step: int = 60, extra: bool = True) -> BatchContext:
    head = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0).head
    return BatchContext(
        outputs(20, 0), LABELS, outputs(16, 1), TrainProgress(step, 100),
        rows=torch.arange(20), target_rows=torch.arange(16), head=head, extra=NamedBatch(outputs(4, 2), LABELS[:4], torch.arange(4)) if extra else None,
    )  # fmt: skip


def step_of(name: str, weights: torch.Tensor | None, view: BatchContext) -> StepResult:
    method = make_method(name, UNWEIGHTED.get(name, {}))
    memory = method.memory(SIZES, 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)  # dropout
        extra_weights = None if weights is None or view.extra is None else weights[view.extra.rows]
        return method.step(view._replace(weights=weights, extra_weights=extra_weights), memory)


@pytest.mark.parametrize("name", HEARD)
def test_a_sample_without_weight_has_no_say(name: str) -> None:
    view, weights = make_view(), (LABELS < 2).float()
    said = step_of(name, weights, view)
    said.loss.backward()
    gradient = view.source.logits.grad
    assert gradient is not None
    assert torch.equal(gradient[weights == 0], torch.zeros(12, CLASSES))
    assert (gradient[weights > 0].abs().sum(dim=1) > 0).all()
    torch.testing.assert_close(said.weights.double().sum(), torch.tensor(1.0).double(), atol=1e-4, rtol=0)
    assert torch.equal(said.weights == 0, weights == 0)


@pytest.mark.parametrize("name", HEARD)
def test_only_ratios_of_weights_count(name: str) -> None:
    weights = 1.0 + torch.arange(20.0)
    one, other = step_of(name, weights, make_view()), step_of(name, 7 * weights, make_view())
    torch.testing.assert_close(one.loss, other.loss, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(one.weights, other.weights, atol=1e-5, rtol=0)
    torch.testing.assert_close(one.weights.double(), weights.double() / weights.sum(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", HEARD)
def test_weights_that_are_all_0_do_not_make_nan(name: str) -> None:
    view = make_view()
    said = step_of(name, torch.zeros(20), view)
    said.loss.backward()
    assert torch.isfinite(said.loss)
    for part in (*view.source[:2], *view.target[:2]):
        assert part.grad is None or torch.isfinite(part.grad).all()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("weights", WEIGHTINGS)
def test_state_goes_round(name: str, weights: str) -> None:
    """A learner with the state of another says the same, whatever seed it was made with."""
    params = {"critic": {"hidden": 8, "steps": 3, "batch": 4}} if hasattr(make_weighting(weights), "critic") else {}

    def make(seed: int) -> Learner:
        return Learner(make_method(name), make_weighting(weights, params), SIZES, seed)

    one, other = make(1), make(2)
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)
    seen = DatasetPass(
        *(Outputs(*(x.detach() for x in outputs(n, 5 + n))) for n in (20, 16)), LABELS, network, "cross_entropy"
    )
    for step in (0, 60):
        one.refresh(TrainProgress(step, 100), lambda: seen)
    other.load_state_dict(one.state_dict())
    said = []
    for learner in (one, other):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            said.append(learner.step(make_view()))
    assert torch.equal(said[0].loss, said[1].loss)
    assert torch.equal(said[0].weights, said[1].weights)
    mine = {id(p) for p in one.parameters()}
    apart = [p for found in one.optimizers().values() for group in found.param_groups for p in group["params"]]
    assert {id(p) for p in apart} | {id(p) for p in one.trained()} == mine  # everything is trained, by one of them
    assert len(apart) + len(list(one.trained())) == len(mine)


class _Told(SourceOnly):
    """Keeps what it is shown."""

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def refresh(self, memory: Memory, clock: TrainProgress, look: Any) -> None:
        self.log.append("method")  # type: ignore[attr-defined]

    def step(self, view: BatchContext, memory: Memory) -> StepResult:
        self.log.append(view)  # type: ignore[attr-defined]
        return super().step(view, memory)


class _Rows(Uniform):
    """Weighs a sample by its row."""

    def __init__(self, log: list[Any]) -> None:
        object.__setattr__(self, "log", log)

    def refresh(self, memory: Memory, clock: TrainProgress, look: Any) -> None:
        self.log.append("weighting")  # type: ignore[attr-defined]

    def weigh(self, memory: Memory, samples: NamedBatch, view: BatchContext) -> torch.Tensor:
        assert len(samples.outputs.logits) == len(samples.labels) == len(samples.rows)
        return samples.rows.float()


def test_the_method_sees_the_weights_of_both_batches_after_the_refresh() -> None:
    log: list[Any] = []
    learner = Learner(_Told(log), _Rows(log), SIZES, 0)
    learner.refresh(TrainProgress(0, 1), lambda: pytest.fail("nobody asked"))
    learner.step(make_view())
    assert log[:2] == ["method", "weighting"]  # a method may set the head, by which a weighting goes
    assert torch.equal(log[2].weights, torch.arange(20.0))
    assert torch.equal(log[2].extra_weights, torch.arange(4.0))
    learner.step(make_view(extra=False))
    assert log[3].extra_weights is None


class _SetsHead(_Told):
    def refresh(self, memory: Memory, clock: TrainProgress, look: Any) -> None:
        look().network.head.weight.data.zero_()


class _Looks(_Rows):
    def refresh(self, memory: Memory, clock: TrainProgress, look: Any) -> None:
        assert look() is look()
        self.log.append(look().target.logits)  # type: ignore[attr-defined]


def test_a_weighting_sees_the_head_that_the_method_has_set() -> None:
    log: list[Any] = []
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)

    def look() -> DatasetPass:
        return DatasetPass(
            lambda: network(torch.ones(20, WIDTH)), lambda: network(torch.ones(16, WIDTH)), LABELS, network
        )

    Learner(_SetsHead([]), _Looks(log), SIZES, 0).refresh(TrainProgress(0, 1), look)
    assert torch.equal(log[0], torch.zeros(16, CLASSES))


def test_what_remembers_says_so() -> None:
    found = {
        (name, weights): Learner(make_method(name), make_weighting(weights), SIZES, 0).remembers
        for name in ("warmpot", "ba3us", "arpm") for weights in ("uniform", "plan", "class_share", "capped")
    }  # fmt: skip
    assert [pair for pair, remembers in found.items() if not remembers] == [("warmpot", "uniform"), ("warmpot", "plan")]
    dataset = make_weighting("plan", {"scope": "dataset"})
    assert Learner(make_method("warmpot"), dataset, SIZES, 0).remembers


def test_without_a_weighting_the_method_weighs() -> None:
    log: list[Any] = []
    learner = Learner(_Told(log), None, SIZES, 0)
    learner.step(make_view())
    assert log[0].weights is None
    assert not learner.remembers
    assert learner.expected_share == SourceOnly().expected_share
    assert isinstance(learner.of_weighting, nn.Module)
