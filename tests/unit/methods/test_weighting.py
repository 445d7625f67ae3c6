"""Weightings: what they promise of scale, sums and refreshes, and the closed forms behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from warmpot.errors import InputError
from warmpot.methods import (
    WEIGHTINGS,
    BatchContext,
    DatasetPass,
    Memory,
    NamedBatch,
    Setup,
    TrainProgress,
    make_weighting,
)
from warmpot.methods.critic_weighting import BAND, GROWTH, adjusted_rho
from warmpot.methods.weighting import Weighting
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.weights import chi2_ball_weights, estimate_presence

CLASSES, SHARED, WIDTH = 5, 2, 6
SIZES = Setup(50, 30, CLASSES, WIDTH, WIDTH)
CRITIC = {"hidden": 16, "steps": 120, "batch": 16}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in WEIGHTINGS),
    ("class_share", {"hard": True, "from_start": True}),
    ("chi2_ball", {"adjust": True, "critic": {"penalty": 10.0, "spectral": False, "dropout": 0.5, "fresh": True}}),
    ("plan", {"scope": "dataset"}),
]
every = pytest.mark.parametrize(("name", "params"), VARIANTS, ids=lambda part: str(part) if part else "default")


def made(name: str, params: dict[str, Any]) -> Weighting:
    if hasattr(make_weighting(name, params), "critic"):
        params = {**params, "critic": {**CRITIC, **params.get("critic", {})}}
    return make_weighting(name, params)


def whole(seed: int = 0, far: float = 6.0) -> DatasetPass:
    """Classes on axes of their own, of which the target has the first two; a head that knows them."""
    rng = torch.Generator().manual_seed(seed)
    labels, truth = torch.arange(SIZES.n_source) % CLASSES, torch.arange(SIZES.n_target) % SHARED
    outputs = []
    for codes in (labels, truth):
        features = far * torch.eye(WIDTH)[codes] + torch.randn(len(codes), WIDTH, generator=rng)
        outputs.append(Outputs(features, features[:, :CLASSES], features))
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)
    return DatasetPass(*outputs, labels, network)


def _changed(seen: DatasetPass, **parts: Any) -> DatasetPass:
    names = ("source", "target", "labels", "network", "loss")
    return DatasetPass(**{name: parts.get(name, getattr(seen, name)) for name in names})


def weigh(scheme: Weighting, memory: Memory, seen: DatasetPass, rows: Tensor, clock: TrainProgress) -> Tensor:
    source = Outputs(*(part[rows] for part in seen.source if part is not None))
    context = BatchContext(source, seen.labels[rows], seen.target, clock, seen.loss, rows)
    return scheme.weigh(memory, NamedBatch(source, rows, context.labels), context)


def shares(scheme: Weighting, memory: Memory, seen: DatasetPass) -> Tensor:
    """Return the weights of all samples after a training, or those of a batch of all."""
    weights = scheme.current_weights(memory, seen.labels)
    if weights is None:
        weights = weigh(scheme, memory, seen, torch.arange(SIZES.n_source), TrainProgress(11, 12))
    return weights.double() / weights.double().sum()


def looks(scheme: Weighting, memory: Memory, steps: int) -> list[int]:
    """Run through the refreshes of a training; return the steps that looked."""
    seen: list[int] = []
    for step in range(steps):
        scheme.refresh(memory, TrainProgress(step, steps), lambda step=step: seen.append(step) or whole())  # type: ignore[misc]
    return seen


@every
def test_weights_are_shares_of_the_source(name: str, params: dict[str, Any]) -> None:
    scheme, everything = made(name, params), torch.arange(SIZES.n_source)
    memory = scheme.make_memory(SIZES._replace(seed=0))
    looks(scheme, memory, 12)
    clock = TrainProgress(11, 12)
    found = weigh(scheme, memory, whole(), everything, clock)
    assert found.shape == (SIZES.n_source,)
    assert not found.requires_grad
    assert torch.isfinite(found).all()
    assert found.min() >= 0
    assert found.max() > 0
    final = shares(scheme, memory, whole())
    assert final.dtype == torch.float64
    assert float(final.sum()) == pytest.approx(1.0)
    assert final.min() >= 0
    if name != "plan" or params:  # a batch plan is entropic, the one at the end exact
        torch.testing.assert_close(found.double() / found.double().sum(), final, rtol=1e-4, atol=1e-6)
        halves = [weigh(scheme, memory, whole(), part, clock) for part in everything.split(20)]
        torch.testing.assert_close(torch.cat(halves), found)  # the scale does not depend on the batch


@every
def test_outliers_lose_weight(name: str, params: dict[str, Any]) -> None:
    scheme = made(name, params)
    memory = scheme.make_memory(SIZES._replace(seed=0))
    looks(scheme, memory, 12)
    final, outlier = shares(scheme, memory, whole()), whole().labels >= SHARED
    share = float(final[outlier].sum())
    if name == "uniform":
        assert share == pytest.approx(1 - SHARED / CLASSES)
    else:
        assert share < 0.5 * (1 - SHARED / CLASSES)
    drawn = weigh(scheme, memory, whole(), torch.arange(SIZES.n_source), TrainProgress(11, 12)).double()
    assert float(drawn[outlier].sum() / drawn.sum()) == pytest.approx(share, abs=0.1)


@every
def test_weights_are_equal_until_the_first_refresh(name: str, params: dict[str, Any]) -> None:
    scheme = made(name, params)
    memory = scheme.make_memory(SIZES._replace(seed=0))
    periods = getattr(scheme, "periods", 0)
    remembers = bool(sum(len(part.flatten()) for part in memory.state_dict().values()))
    seen = looks(scheme, scheme.make_memory(SIZES._replace(seed=0)), 4 * periods) if periods else []
    start = [0] if getattr(scheme, "from_start", name == "presence") else []
    assert seen == (start + list(range(4, 4 * periods, 4)) if remembers else [])
    if remembers:
        before = weigh(scheme, memory, whole(), torch.arange(SIZES.n_source), TrainProgress(0, 40))
        assert torch.equal(before, torch.ones(SIZES.n_source))


@every
def test_no_global_generator_is_touched_and_the_seed_decides(name: str, params: dict[str, Any]) -> None:
    scheme = made(name, params)
    before = torch.get_rng_state()
    one, two = scheme.make_memory(SIZES._replace(seed=4)), scheme.make_memory(SIZES._replace(seed=4))
    assert torch.equal(torch.get_rng_state(), before)
    for key, part in one.state_dict().items():
        assert torch.equal(part, two.state_dict()[key]), key


@every
@pytest.mark.parametrize("case", ["constant", "one target sample", "far"])
def test_odd_features_give_finite_weights(name: str, params: dict[str, Any], case: str) -> None:
    scheme, seen = made(name, params), whole()
    if case == "constant":
        still = Outputs(*(torch.ones_like(part) for part in seen.source if part is not None))
        seen = _changed(seen, source=still, target=Outputs(*(part[:30] for part in still if part is not None)))
    elif case == "one target sample":
        seen = _changed(seen, target=Outputs(*(part[:1] for part in seen.target if part is not None)))
    else:
        seen = _changed(seen, target=Outputs(*(1e4 * part for part in seen.target if part is not None)))
    memory = scheme.make_memory(SIZES._replace(seed=0))
    for step in range(12):
        scheme.refresh(memory, TrainProgress(step, 12), lambda: seen)
    drawn = weigh(scheme, memory, seen, torch.arange(SIZES.n_source), TrainProgress(11, 12))
    for weights in (drawn, shares(scheme, memory, seen)):
        assert torch.isfinite(weights).all()
        assert weights.min() >= 0
        assert weights.sum() > 0


# ------------------------------------------------------------------------------------------------------ closed forms


@pytest.mark.parametrize("hard", [False, True])
def test_class_shares_are_means_of_predictions(hard: bool) -> None:
    scheme, seen = make_weighting("class_share", {"hard": hard}), whole(far=1.0)
    memory = scheme.make_memory(SIZES._replace(seed=0))
    scheme.refresh(memory, TrainProgress(10, 20), lambda: seen)
    p = seen.target.logits.double().softmax(dim=1)
    p = torch.nn.functional.one_hot(p.argmax(dim=1), CLASSES).double() if hard else p
    found = weigh(scheme, memory, seen, torch.arange(50), TrainProgress(10, 20))
    torch.testing.assert_close(found.double(), p.mean(dim=0)[seen.labels], atol=1e-6, rtol=0)


def test_presence_is_that_of_the_estimate_and_known_from_the_first_step() -> None:
    scheme, seen = make_weighting("presence"), whole()
    memory = scheme.make_memory(SIZES)
    scheme.refresh(memory, TrainProgress(0, 20), lambda: seen)
    xs, xt = (part.pooled for part in (seen.source, seen.target))
    expected = estimate_presence(xs, seen.labels, xt, n_classes=CLASSES, unit=False).factors
    found = weigh(scheme, memory, seen, torch.arange(50), TrainProgress(0, 20))
    np.testing.assert_allclose(found, expected[seen.labels], rtol=1e-6)
    assert (found[seen.labels >= SHARED] < 0.5).all()
    assert looks(make_weighting("presence", {"periods": 3}), memory, 12) == [0, 4, 8]


def test_shares_of_classes_that_the_source_lacks_leave_equal_weights() -> None:
    scheme, seen = make_weighting("class_share", {"hard": True}), whole()
    seen = _changed(seen, labels=torch.full((50,), 4))
    memory = scheme.make_memory(SIZES)
    scheme.refresh(memory, TrainProgress(10, 20), lambda: seen)
    np.testing.assert_allclose(shares(scheme, memory, seen), 1 / 50)


@pytest.mark.parametrize("beta", [0.1, 1 / 3, 0.35, 1.0])
def test_capped_weights_are_a_knapsack(beta: float) -> None:
    scheme = made("capped", {"beta": beta})
    memory = scheme.make_memory(SIZES._replace(seed=0))
    looks(scheme, memory, 12)
    found = np.sort(weigh(scheme, memory, whole(), torch.arange(50), TrainProgress(11, 12)).double().numpy())[::-1]
    full = int(beta * 50 + 1e-9)
    np.testing.assert_allclose(found[:full], 1 / beta, rtol=1e-5)
    np.testing.assert_allclose(found[full + 1 :], 0.0, atol=1e-6)
    assert found.mean() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("rho", [0.0, 0.5, 5.0])
def test_the_ball_is_kept(rho: float) -> None:
    scheme = made("chi2_ball", {"rho": rho})
    memory = scheme.make_memory(SIZES._replace(seed=0))
    looks(scheme, memory, 12)
    found = weigh(scheme, memory, whole(), torch.arange(50), TrainProgress(11, 12)).double()
    assert float(found.mean()) == pytest.approx(1.0, rel=1e-5)
    assert float((found - 1).square().mean()) == pytest.approx(rho, rel=1e-3, abs=1e-6)


def test_the_plan_over_the_data_solves_appendix_h() -> None:
    """With mass 1 and no labels the weights are at most 1 / (beta n), and cost no more than those of the truth."""
    seen, beta = whole(), 0.4  # the two shared of five classes
    params = {"scope": "dataset", "alpha": 1.0, "beta": beta, "eta1": 1.0, "eta2": 0.0}
    scheme = make_weighting("plan", params)
    final = scheme.final_plan(seen).solution.p
    assert final.max() <= 1 / (beta * 50) + 1e-12
    np.testing.assert_allclose(final, np.where(seen.labels < SHARED, 1 / 20, 0.0), atol=1e-9)


@given(
    st.lists(st.floats(-50, 50), min_size=2, max_size=30),
    st.floats(-80, 80),
    st.floats(0.01, 20),
)
def test_adjusted_rho_is_the_first_of_its_series_in_the_band(scores: list[float], of_target: float, rho: float) -> None:
    d = np.asarray(scores)

    def gap(rho: float) -> float:
        return float(chi2_ball_weights(d, rho) @ d) - of_target

    found = adjusted_rho(d, of_target, rho)
    count = round(np.log(found / rho) / np.log(GROWTH))
    assert found == pytest.approx(rho * GROWTH**count)
    if abs(gap(rho)) <= BAND:
        assert found == rho
    elif gap(rho) > BAND:
        assert count >= 0
        assert gap(found) <= BAND or found >= len(d) - 1
    else:
        assert count <= 0
        assert gap(found) >= -BAND or found <= 1e-3


@pytest.mark.parametrize(
    ("name", "params", "word"),
    [
        ("class_share", {"periods": 0}, "periods"),
        ("chi2_ball", {"rho": -1.0}, "rho"),
        ("chi2_ball", {"critic": {"steps": 0}}, "steps"),
        ("chi2_ball", {"critic": {"dropout": 1.0}}, "dropout"),
        ("capped", {"beta": 0.0}, "beta"),
        ("plan", {"scope": "all"}, "scope"),
        ("plan", {"alpha": 2.0}, "alpha"),
        ("plans", {}, "plan"),
        ("capped", {"betta": 0.5}, "beta"),
    ],
)
def test_bad_parameters_are_named(name: str, params: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        make_weighting(name, params)
