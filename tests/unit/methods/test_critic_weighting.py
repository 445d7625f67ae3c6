"""Weights by a critic: what it learns, when, what is remembered, and that a resumed run goes on exactly."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from warmpot._settings import from_mapping
from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, NamedBatch, Setup, TrainProgress
from warmpot.methods.critic_weighting import (
    Capped,
    Chi2Ball,
    CriticSettings,
    CriticWeighting,
    CriticWeightMemory,
    adjusted_rho,
)
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train.recipes import read_preset

WIDTH, N_SOURCE, N_TARGET = 6, 120, 70
SMALL = CriticSettings(hidden=24, steps=150, batch=24)
OF_AR = dataclasses.replace(SMALL, spectral=False, penalty=100.0, dropout=0.5, slope=0.0, fresh=True)
DUE, CLOCK_STEPS = 10, 60
BOTH = [Chi2Ball(rho=1.0, critic=SMALL), Capped(beta=0.5, critic=SMALL)]


def _whole(seed: int = 0) -> DatasetPass:
    """Return a source of two far clusters, half and half, and a target of the first only."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N_SOURCE) % 2
    centres = 4.0 * np.eye(2, WIDTH)
    source = torch.tensor(centres[labels] + rng.normal(size=(N_SOURCE, WIDTH)), dtype=torch.float32)
    target = torch.tensor(centres[0] + rng.normal(size=(N_TARGET, WIDTH)), dtype=torch.float32)
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, 2, seed=0)
    with torch.no_grad():
        return DatasetPass(network(source), network(target), torch.as_tensor(labels), network)


def _memory(weighting: CriticWeighting, seed: int = 3) -> CriticWeightMemory:
    memory = weighting.make_memory(Setup(N_SOURCE, N_TARGET, 2, WIDTH, WIDTH)._replace(seed=seed))
    assert isinstance(memory, CriticWeightMemory)
    return memory


def _scores(memory: CriticWeightMemory, x: torch.Tensor) -> np.ndarray:
    assert memory.critic is not None
    with torch.no_grad():
        return np.asarray(memory.critic(x).double())


@pytest.mark.parametrize(("early", "expected"), [(0.0, [3, 6]), (1 / 9, [1, 3, 6])], ids=["periods", "early"])
def test_looks_only_when_a_stretch_begins_and_weights_are_equal_before(early: float, expected: list[int]) -> None:
    looked: list[DatasetPass] = []
    weighting = dataclasses.replace(BOTH[0], critic=dataclasses.replace(SMALL, steps=1), periods=3, early=early)
    assert weighting.first_refresh == expected[0] / 9
    memory = _memory(weighting)

    def look() -> DatasetPass:
        looked.append(_whole())
        return looked[-1]

    steps = []
    for step in range(9):
        before = len(looked)
        weighting.refresh(memory, TrainProgress(step, 9), look)
        steps += [step] * (len(looked) - before)
        if not looked:
            assert torch.equal(memory.weights, torch.ones(N_SOURCE))
    assert steps == expected
    assert not torch.equal(memory.weights, torch.ones(N_SOURCE))


@pytest.mark.parametrize("weighting", BOTH, ids=lambda w: w.name)
def test_the_weight_goes_to_what_looks_like_the_target(weighting: CriticWeighting) -> None:
    memory, whole = _memory(weighting), _whole()
    weighting.refresh(memory, TrainProgress(DUE, CLOCK_STEPS), lambda: whole)
    w = memory.weights.double().numpy()
    assert w.sum() == pytest.approx(N_SOURCE, rel=1e-5)
    assert w[np.asarray(whole.labels) == 1].sum() / w.sum() < 0.05
    d = _scores(memory, whole.source.features)
    assert d.mean() > _scores(memory, whole.target.features).mean() + 1  # high on the source
    ranked = w[np.argsort(d, kind="stable")]
    assert (np.diff(ranked) <= 1e-6).all()  # a smaller score never has a smaller weight


def test_the_weights_are_in_their_sets_and_the_sets_bind() -> None:
    whole = _whole()
    ball, cap = (_memory(weighting) for weighting in BOTH)
    for weighting, memory in zip(BOTH, (ball, cap), strict=True):
        weighting.refresh(memory, TrainProgress(DUE, CLOCK_STEPS), lambda: whole)
    w = ball.weights.double().numpy()
    assert ((w - 1) ** 2).sum() == pytest.approx(1.0 * N_SOURCE, rel=1e-5)
    assert w.min() >= 0
    assert sorted(set(cap.weights.tolist())) == [0.0, 2.0]
    assert int((cap.weights > 0).sum()) == N_SOURCE // 2


def test_weigh_looks_rows_up() -> None:
    weighting = BOTH[0]
    memory, whole = _memory(weighting), _whole()
    memory.weights.copy_(torch.arange(N_SOURCE))
    rows = torch.tensor([5, 0, 7])
    source = Outputs(whole.source.features[rows], whole.source.logits[rows])
    samples = NamedBatch(source, rows, whole.labels[rows])
    got = weighting.weigh(memory, samples, BatchContext(source, samples.labels, whole.target, TrainProgress(0, 1)))
    assert got.tolist() == [5.0, 0.0, 7.0]
    assert torch.equal(weighting.current_weights(memory, whole.labels), memory.weights)


def _norms(critic: Any, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(x).sum(), x)
    return gradient.norm(dim=1)


def test_spectral_normalisation_and_penalty_bound_the_slope() -> None:
    whole, free = _whole(), dataclasses.replace(SMALL, spectral=False, steps=120, lr=3e-3)
    slopes = {}
    for name, settings in {
        "free": free,
        "spectral": dataclasses.replace(free, spectral=True),
        "penalty": dataclasses.replace(free, penalty=100.0),
    }.items():
        critic = _memory(Chi2Ball(critic=settings)).trained_critic(
            settings, whole.source.features, whole.target.features, 0
        )
        slopes[name] = _norms(critic, whole.source.features)
    assert slopes["spectral"].max() < 1.05
    assert slopes["free"].max() > 3
    assert (slopes["penalty"] - 1).abs().mean() < 0.3  # two-sided


def test_the_penalty_ramps_from_nothing() -> None:
    """One step has the weight 0: the critic is that without penalty."""
    whole, once = _whole(), dataclasses.replace(SMALL, steps=1, spectral=False)
    found = []
    for penalty in (0.0, 100.0):
        settings = dataclasses.replace(once, penalty=penalty)
        memory = _memory(Chi2Ball(critic=settings))
        memory.trained_critic(settings, whole.source.features, whole.target.features, 0)
        found.append(_scores(memory, whole.source.features))
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_one_step_is_adam_on_the_difference_of_means() -> None:
    """Every row alike within a domain: whatever is drawn, the batch is known."""
    settings = dataclasses.replace(SMALL, steps=1)
    memory = _memory(Chi2Ball(critic=settings))
    source, target = torch.full((9, WIDTH), 0.5), torch.linspace(-1, 1, WIDTH).repeat(4, 1)
    twin, _ = settings.build(WIDTH, 3)
    loss = twin(target[:1]).sum() - twin(source[:1]).sum()  # minimised
    gradients = torch.autograd.grad(loss, list(twin.parameters()))
    before = [parameter.detach().clone() for parameter in memory.critic.parameters()]  # type: ignore[union-attr]
    memory.trained_critic(settings, source, target, 0)
    moved = 0
    for old, new, gradient in zip(before, memory.critic.parameters(), gradients, strict=True):  # type: ignore[union-attr]
        clear = gradient.abs() > 1e-4  # Adam's first step is lr times the sign
        torch.testing.assert_close((new - old)[clear], -1e-3 * gradient.sign()[clear], atol=2e-5, rtol=0)
        moved += int(clear.sum())
    assert moved > 50


@pytest.mark.parametrize("noisy", [False, True])
def test_dropout_is_off_when_scoring_unless_asked_for(noisy: bool) -> None:
    settings = dataclasses.replace(OF_AR, fresh=False, steps=3, noisy_scores=noisy)
    memory, whole = _memory(Chi2Ball(critic=settings)), _whole()
    memory.trained_critic(settings, whole.source.features, whole.target.features, 0)
    first, second = (_scores(memory, whole.source.features) for _ in range(2))
    assert np.array_equal(first, second) != noisy


def test_a_fresh_critic_is_not_remembered_and_starts_from_the_same_weights() -> None:
    weighting, whole = Chi2Ball(critic=dataclasses.replace(OF_AR, steps=5)), _whole()
    memory = _memory(weighting)
    assert set(memory.state_dict()) == {"weights", "seed"}
    assert memory.optimizers() == {}
    found = []
    for _ in range(2):
        torch.manual_seed(0)  # of dropout
        weighting.refresh(memory, TrainProgress(DUE, CLOCK_STEPS), lambda: whole)
        found.append(memory.weights.clone())
    assert torch.equal(*found)


def test_a_lasting_critic_goes_on() -> None:
    weighting, whole = Chi2Ball(critic=dataclasses.replace(SMALL, steps=5)), _whole()
    memory = _memory(weighting)
    for step in (10, 20):
        weighting.refresh(memory, TrainProgress(step, CLOCK_STEPS), lambda: whole)
    steps = {int(state["step"]) for state in memory.optimizers()["critic"].state_dict()["state"].values()}
    assert steps == {10}


@pytest.mark.parametrize("weighting", BOTH, ids=lambda w: w.name)
def test_resumes_bit_for_bit_and_draws_from_no_global_generator(weighting: CriticWeighting) -> None:
    short = dataclasses.replace(weighting, critic=dataclasses.replace(SMALL, steps=20))
    state, whole = torch.get_rng_state(), _whole()
    memory = _memory(short)
    short.refresh(memory, TrainProgress(10, CLOCK_STEPS), lambda: whole)
    assert torch.equal(torch.get_rng_state(), state)
    resumed = _memory(short, seed=99)  # everything must come from the state, the seed too
    kept = copy.deepcopy((memory.state_dict(), memory.optimizers()["critic"].state_dict()))
    resumed.load_state_dict(kept[0])
    resumed.optimizers()["critic"].load_state_dict(kept[1])
    for each in (memory, resumed):
        short.refresh(each, TrainProgress(20, CLOCK_STEPS), lambda: whole)
    for mine, theirs in zip(memory.state_dict().values(), resumed.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_draws_depend_on_the_step() -> None:
    whole, settings = _whole(), dataclasses.replace(SMALL, steps=2, fresh=True)
    found = []
    for step in (10, 20):
        memory = _memory(Chi2Ball(critic=settings))
        Chi2Ball(critic=settings).refresh(memory, TrainProgress(step, CLOCK_STEPS), lambda: whole)
        found.append(memory.weights.clone())
    assert not torch.equal(*found)


def test_fewer_rows_than_a_batch_will_do() -> None:
    weighting = Capped(beta=0.5, critic=dataclasses.replace(SMALL, steps=2))
    memory = weighting.make_memory(Setup(3, 2, 2, WIDTH, WIDTH)._replace(seed=0))
    whole = _whole()
    few = DatasetPass(
        Outputs(whole.source.features[:3], whole.source.logits[:3]),
        Outputs(whole.target.features[:2], whole.target.logits[:2]),
        whole.labels[:3],
        whole.network,
    )
    weighting.refresh(memory, TrainProgress(1, 6), lambda: few)
    assert float(weighting.current_weights(memory, few.labels).sum()) == pytest.approx(3.0)


# With scores 0 and 20, half and half, and rho = c^2 <= 1, the weights are 1 + c and 1 - c: a mean score of 10 (1 - c).
HALVES = np.repeat([0.0, 20.0], 8)


@pytest.mark.parametrize(
    ("of_target", "rho", "moves"),
    [
        (5.0, 0.25, 0),  # mean 5: no gap
        (0.1, 0.25, 0),  # gap 4.9
        (-1.5, 0.25, 3),  # wants 10 (1 - c) <= 3.5, rho >= .4225; .25 * 1.2^3 = .432 is the first
        (9.5, 0.81, -6),  # gap -8.5; wants 10 (1 - c) >= 4.5, rho <= .3025; .81 / 1.2^6 = .271 is the first
    ],
)
def test_rho_moves_until_the_gap_is_in_the_band(of_target: float, rho: float, moves: int) -> None:
    assert adjusted_rho(HALVES, of_target, rho) == pytest.approx(rho * 1.2**moves, rel=1e-12)


@pytest.mark.parametrize("of_target", [-100.0, 100.0])
def test_rho_gives_up_where_no_ball_will_do(of_target: float) -> None:
    found = adjusted_rho(HALVES, of_target, 5.0)
    assert found >= 15 if of_target < 0 else found <= 1e-3


def test_expected_shares() -> None:
    assert Chi2Ball(rho=4.0).expected_share == pytest.approx(0.2)
    assert Capped(beta=0.25).expected_share == 0.25
    assert Chi2Ball(adjust=True).expected_share < 0.2


@pytest.mark.parametrize(
    ("cls", "params", "named"),
    [
        (Chi2Ball, {"rho": -1.0}, "rho"),
        (Chi2Ball, {"periods": 0}, "periods"),
        (Capped, {"beta": 0.0}, "beta"),
        (Capped, {"critic": {"steps": 0}}, "steps"),
        (Capped, {"critic": {"hiden": 8}}, "hiden"),
        (Capped, {"critic": {"dropout": 1.0}}, "dropout"),
    ],
)
def test_bad_parameters_are_refused_by_name(cls: type[Any], params: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        from_mapping(cls, params, "weight_params")


@pytest.mark.parametrize("variant", ["", "-imagenet", "-frozen"])
def test_recipes_name_settings_that_exist(variant: str) -> None:
    ball = from_mapping(Chi2Ball, read_preset(f"arpm{variant}")["weight_params"], "weight_params")
    cap = from_mapping(Capped, read_preset(f"arpm-warmpot{variant}")["weight_params"], "weight_params")
    assert (ball.critic, ball.periods, ball.rho) == (cap.critic, cap.periods, 5.0)
    assert cap.beta == pytest.approx(1 / 3, abs=1e-6)
    of_ar = from_mapping(Chi2Ball, read_preset(f"ar{variant}")["weight_params"], "weight_params")
    assert of_ar.adjust
    assert of_ar.critic.fresh
    if not variant:
        assert (ball.critic.hidden, ball.critic.steps, ball.critic.batch) == (1024, 15000, 36)


@pytest.mark.parametrize("weighting", BOTH, ids=lambda w: w.name)
def test_a_subset_is_all_that_passes_and_is_weighted(weighting: CriticWeighting) -> None:
    whole, asked = _whole(), []

    def of_source(rows: torch.Tensor | None = None) -> Outputs:
        assert rows is not None, "the whole source passed"
        asked.append(rows.clone())
        return Outputs.of(features=whole.source.features[rows])

    weighting = dataclasses.replace(weighting, subset=40)
    memory = _memory(weighting)
    assert weighting.source_rows(memory) is None  # all, until the first refresh
    for step in (DUE, 2 * DUE):
        lazy = DatasetPass(of_source, whole.target, whole.labels, whole.network)
        weighting.refresh(memory, TrainProgress(step, CLOCK_STEPS), lambda data=lazy: data)
    first, rows = asked
    assert not torch.equal(first, rows)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert len(rows) == 40
    assert torch.equal(weighting.source_rows(memory), rows)  # type: ignore[arg-type]
    others = torch.ones(N_SOURCE, dtype=torch.bool).index_fill(0, rows, False)
    assert not memory.weights[others].any()
    assert float(memory.weights[rows].mean()) == pytest.approx(1.0, rel=1e-5)
    outliers = memory.weights[whole.labels == 1].sum() / memory.weights.sum()
    assert float(outliers) < 0.1
    resumed = _memory(weighting)
    resumed.load_state_dict(copy.deepcopy(memory.state_dict()))
    assert torch.equal(weighting.source_rows(resumed), rows)  # type: ignore[arg-type]


def test_a_subset_of_all_is_the_whole_source() -> None:
    found = []
    for subset in (None, N_SOURCE, 2 * N_SOURCE):
        weighting = dataclasses.replace(BOTH[0], subset=subset)
        memory = _memory(weighting)
        weighting.refresh(memory, TrainProgress(DUE, CLOCK_STEPS), _whole)
        assert weighting.source_rows(memory) is None
        found.append(memory.weights)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    with pytest.raises(InputError, match="subset"):
        Chi2Ball(subset=0)
