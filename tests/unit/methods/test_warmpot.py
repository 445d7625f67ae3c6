"""Methods: gradients where they belong, parameters checked, schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from warmpot.errors import InputError
from warmpot.losses import LABEL_LOSSES
from warmpot.methods import METHODS, BatchContext, Memory, SourceOnly, TrainProgress, Warmpot, make_method
from warmpot.methods.base import DatasetPass, Setup
from warmpot.methods.warmpot import ClassMemory, plan_over_all
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train import load_config
from warmpot.transport import BlockCost, Solution, solve_partial_blocks
from warmpot.transport.large import EuclideanBlocks


def context(source: Outputs, labels: torch.Tensor, target: Outputs, progress: float, loss: str) -> BatchContext:
    return BatchContext(source, labels, target, TrainProgress(round(1000 * progress), 1000), LABEL_LOSSES[loss])


def _outputs(n: int, seed: int, *, grad: bool = True) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(n, 6, dtype=torch.float64, generator=rng)
    logits = torch.randn(n, 4, dtype=torch.float64, generator=rng)
    return Outputs(features.requires_grad_(grad), logits.requires_grad_(grad))


LABELS = torch.arange(12) % 4


def test_gradient_reaches_features_and_logits_through_the_cost() -> None:
    source, target = _outputs(12, 0), _outputs(10, 1)
    Warmpot(ramp=0.0).step(context(source, LABELS, target, 0.0, "cross_entropy"), Memory()).loss.backward()
    for part in (*source[:2], *target[:2]):
        assert part.grad is not None
        assert part.grad.abs().sum() > 0


def test_no_gradient_flows_through_plan_or_weights() -> None:
    """With plan and weights frozen to what the step found, the gradient is the same."""
    method = Warmpot(ramp=0.0)
    source, target = _outputs(12, 0), _outputs(10, 1)
    result = method.step(context(source, LABELS, target, 0.0, "cross_entropy"), Memory())
    assert not result.weights.requires_grad
    result.loss.backward()
    again, other = _outputs(12, 0), _outputs(10, 1)
    from warmpot.costs import joint_cost
    from warmpot.transport import solve_partial

    cost = joint_cost(again.features, LABELS, other.features, other.logits, eta1=0.5, eta2=7.0)
    a = torch.full((12,), 1 / (0.35 * 12), dtype=torch.float64)
    frozen = solve_partial(cost.detach(), a=a, mass=0.8, eps=7.0).plan
    own = torch.nn.functional.cross_entropy(again.logits, LABELS, reduction="none")
    (result.weights @ own + 0.25 * (frozen * cost).sum()).backward()
    for mine, theirs in zip((*source[:2], *target[:2]), (*again[:2], *other[:2]), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-12, rtol=0)


def test_source_only_ignores_the_target() -> None:
    source, target = _outputs(12, 0), _outputs(10, 1)
    result = SourceOnly().step(context(source, LABELS, target, 0.0, "cross_entropy"), Memory())
    torch.testing.assert_close(result.loss, torch.nn.functional.cross_entropy(source.logits, LABELS))
    result.loss.backward()
    assert target.logits.grad is None


@example(alpha=0.9203125946726839, start=0.26575817557362386, ramp=0.0, progress=0.0)  # start + (alpha - start) < alpha
@given(alpha=st.floats(0.001, 1.0), start=st.floats(0.001, 1.0), ramp=st.floats(0, 1), progress=st.floats(0, 1))
def test_the_ramp_never_exceeds_alpha(alpha: float, start: float, ramp: float, progress: float) -> None:
    method = Warmpot(alpha=alpha, alpha_start=start, ramp=ramp)
    assert 0 < method.alpha_at(progress, alpha) <= alpha
    assert method.alpha_at(1.0, alpha) == alpha


def test_distances_in_automatic_units_do_not_know_the_units_of_features() -> None:
    source, target = _outputs(12, 0), _outputs(10, 1)
    method = Warmpot(alpha=0.6, beta=0.5, eta1="auto", eta2=0.5, eps="auto", ramp=0)
    far = [Outputs(1000 * out.features, out.logits) for out in (source, target)]
    near, away = (
        method.step(context(s, LABELS, t, 1.0, "cross_entropy"), Memory()) for s, t in ((source, target), far)
    )
    torch.testing.assert_close(near.weights, away.weights)
    torch.testing.assert_close(near.loss, away.loss)
    pairs = torch.cdist(source.features, target.features)
    unit = (2.0 / pairs.square().mean()).sqrt().item()
    given = Warmpot(alpha=0.6, beta=0.5, eta1=unit, eta2=0.5, eps="auto", ramp=0)
    torch.testing.assert_close(
        given.step(context(source, LABELS, target, 1.0, "cross_entropy"), Memory()).loss, near.loss
    )


def test_automatic_eps_of_a_single_pair() -> None:
    source, target = (Outputs(out.features[:1], out.logits[:1]) for out in (_outputs(12, 0), _outputs(10, 1)))
    result = Warmpot(eps="auto", ramp=0).step(context(source, LABELS[:1], target, 1.0, "cross_entropy"), Memory())
    assert torch.isfinite(result.loss)


def test_the_ramp_of_the_code() -> None:
    """As ``i * alpha / 2500 + .01`` for i up to 2500, then alpha; never more than all of the target."""
    steps = (0, 1000, 2499, 2500, 2501, 4000)
    home = Warmpot(ramp_rule="code")
    expected = [0.01 + 0.8 * i / 2500 if i <= 2500 else 0.8 for i in steps]
    assert [home.alpha_at(i / 5000, 0.8) for i in steps] == pytest.approx(expected)
    recipe = load_config("imagenet-caltech", changes={"params": {"ramp_rule": "code"}})
    method, n = recipe.built_method, recipe.minibatch.steps
    assert isinstance(method, Warmpot)
    expected = [0.01 + 0.075946 * i / 2500 if i <= 2500 else 0.075946 for i in steps]
    assert [method.alpha_at(i / n, 0.075946) for i in steps] == pytest.approx(expected)
    assert home.alpha_at(0.5, 0.995) == 1.0
    assert Warmpot(ramp=0.0, ramp_rule="code").alpha_at(0.0, 0.8) == 0.8
    assert Warmpot(ramp=1.0, ramp_rule="code").alpha_at(1.0, 0.8) == 0.8  # after the training
    assert {load_config(name).params["ramp_rule"] for name in ("official", "imagenet-caltech", "paper")} == {"linear"}


def test_the_ramp_is_the_papers() -> None:
    method = Warmpot()
    assert [method.alpha_at(step / 5000, 0.8) for step in (0, 1250, 2500, 4000)] == pytest.approx(
        [0.01, 0.405, 0.8, 0.8]
    )


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"alpha": 1.5}, "alpha"), ({"beta": 0}, "beta"), ({"eps": -1.0}, "eps"), ({"eta1": -0.1}, "eta1"),
        ({"eta1": 0, "eta2": 0}, "eta1"), ({"ramp": 2.0}, "ramp"), ({"ramp_rule": "steep"}, "ramp_rule"),
        ({"alfa": 0.5}, "Did you mean 'alpha'"),
        ({"alpha": "many"}, "alpha"), ({"normalize_weights": 1}, "bool"),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(params: dict[str, object], match: str) -> None:
    with pytest.raises(InputError, match=match):
        make_method("warmpot", params)


def test_every_method_is_a_frozen_dataclass_with_a_story() -> None:
    for name, cls in METHODS.items():
        assert cls.name == name
        assert cls.summary
        assert "eviations" in (cls.__doc__ or ""), f"{name} does not list its deviations"
        assert dataclasses.is_dataclass(cls)
    with pytest.raises(InputError, match="Did you mean 'warmpot'"):
        make_method("warmpott")


def test_regression_losses_reach_the_step() -> None:
    source, target = _outputs(12, 0), _outputs(10, 1)
    labels = torch.linspace(-1, 1, 12, dtype=torch.float64)
    one = Outputs(source.features, source.logits[:, :1]), Outputs(target.features, target.logits[:, :1])
    for loss in ("absolute", "squared"):
        result = Warmpot(ramp=0.0, eta2=1.0).step(context(one[0], labels, one[1], 1.0, loss), Memory())
        assert torch.isfinite(result.loss)


@pytest.mark.parametrize(("large", "error"), [(10**9, 1e-9), (10**5, 1e-3)])
def test_plans_of_large_data_end_within_a_stated_error(
    large: int, error: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[float] = []

    def solve(cost: BlockCost, **settings: Any) -> Solution[Any]:
        used.append(settings["tol"])
        return solve_partial_blocks(cost, **settings)

    monkeypatch.setattr("warmpot.methods.warmpot.LARGE", large)
    monkeypatch.setattr("warmpot.methods.warmpot.solve_partial_blocks", solve)
    rng = np.random.default_rng(1)
    cost = EuclideanBlocks(rng.normal(size=(900, 12)), rng.normal(size=(300, 12)) + 0.5)
    solution = plan_over_all(cost, beta=0.4, mass=0.9).solution
    assert used == [error]
    assert solution.gap <= error * solution.value


def test_an_automatic_beta_takes_capacities_from_the_estimated_classes() -> None:
    """In batches it followed from the predictions, and every class had the same capacity."""
    method, rng = Warmpot(beta="auto", eps=None, alpha=0.9, alpha_start=0.9, ramp=0.0), np.random.default_rng(0)
    centres, ys, yt = 4 * rng.normal(size=(4, 8)), np.arange(120) % 4, np.arange(40) % 2
    xs, xt = (torch.from_numpy(centres[y] + rng.normal(size=(len(y), 8))).float() for y in (ys, yt))
    memory = method.make_memory(Setup(len(ys), len(yt), 4, 8, 8))
    assert isinstance(memory, ClassMemory)
    sides = [Outputs(x, torch.zeros(len(x), 4), x) for x in (xs, xt)]
    data = DatasetPass(*sides, torch.from_numpy(ys), build_network(NetworkSettings(), 8, 4, seed=0))
    for step in range(3):
        method.refresh(memory, TrainProgress(step, 3), lambda: data)
    factors = memory.weights.double().numpy()
    assert factors[:2].min() > 0.9
    assert 0 < factors[2:].max() < 0.5  # no class is ruled out
    solved = method.batch_plan(*sides[:1], torch.from_numpy(ys), sides[1], 1.0, LABEL_LOSSES["cross_entropy"], factors)
    p = np.asarray(solved.solution.plan.sum(axis=1))
    assert (p <= factors[ys] / (solved.beta * len(ys)) + 1e-9).all()
    assert p[ys < 2].sum() > 0.8 * p.sum()
    assert not isinstance(Warmpot(beta=0.35).make_memory(Setup(9, 9, 4, 8, 8)), ClassMemory)
