"""Training on the bound: the value of `joint_bound`, its slope, that it never rises, and what it buys."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from warmpot.bounds import head_lipschitz, joint_bound
from warmpot.bounds.losses import LOSSES
from warmpot.data import Task, as_table, digits_task, make_task
from warmpot.errors import InputError
from warmpot.methods import refit
from warmpot.methods.alternation import Alternation
from warmpot.methods.refit import PlannedBound, descend, mapped, tightest_plan
from warmpot.nets import Outputs
from warmpot.train import fit, load_config
from warmpot.train.config import FullSettings
from warmpot.transport import solve_partial

MODEL = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv", "metrics.jsonl")


def config(**full: Any) -> Any:
    return load_config("bound", changes={"full": full})


def tables(width: int = 10) -> Any:
    """Five Gaussian classes; the target has two of them, moved."""
    rng = np.random.default_rng(1)
    centres = 2.0 * rng.normal(size=(5, width))
    ys, yt = np.repeat(np.arange(5), 16), np.repeat(np.arange(2), 20)
    xs = centres[ys] + rng.normal(size=(len(ys), width))
    xt = centres[yt] + rng.normal(size=(len(yt), width)) + 0.3 * rng.normal(size=width)
    return xs, ys, xt, yt


def small_task(width: int = 10) -> Task:
    xs, ys, xt, _ = tables(width)
    return make_task(as_table(xs, ys), as_table(xt))[0]


@pytest.fixture(params=[True, False], ids=["unit", "plain"])
def instance(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Random data, head and metric."""
    rng = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(n, 4, generator=rng, dtype=torch.float64) for n in (9, 7))
    head, metric = (torch.randn(n, m, generator=rng, dtype=torch.float64) for n, m in ((5, 3), (4, 4)))
    return {
        "xs": xs, "labels": torch.arange(9) % 3, "xt": xt, "head": head, "metric": metric, "unit": request.param,
    }  # fmt: skip


def outputs(instance: dict[str, Any]) -> tuple[Outputs, Outputs]:
    features = [mapped(instance[name], instance["metric"], instance["unit"]) for name in ("xs", "xt")]
    source, target = (Outputs(f, f @ instance["head"][:-1] + instance["head"][-1]) for f in features)
    return source, target


def planned(instance: dict[str, Any], plan: Any) -> PlannedBound:
    return PlannedBound(instance["xs"], instance["labels"], instance["xt"], csr_array(plan), unit=instance["unit"])


def certificate(instance: dict[str, Any], **keywords: Any) -> Any:
    source, target = outputs(instance)
    gamma = head_lipschitz(instance["head"][:-1].T, "euclidean")
    proba = [torch.softmax(part.logits, dim=1) for part in (source, target)]
    return joint_bound(source.features, instance["labels"], target.features, *proba, gamma=gamma, **keywords)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 0.4), (0.6, 0.8)])
def test_any_plan_has_the_bound_of_the_theorem(instance: dict[str, Any], alpha: float, beta: float) -> None:
    cost = np.random.default_rng(0).random((9, 7))
    plan = solve_partial(cost, a=np.full(9, 1 / (9 * beta)), mass=alpha).plan
    bound, report = planned(instance, plan), certificate(instance, alpha=alpha, beta=beta, plan=plan)
    terms = [*bound.terms(instance["head"], instance["metric"]).tolist(), bound.left_out]
    np.testing.assert_allclose(terms, [term.value for term in report.terms if term.computable], atol=1e-12)
    assert bound.total(instance["head"], instance["metric"]) == pytest.approx(report.total, abs=1e-12)


def test_the_plan_is_the_tightest(instance: dict[str, Any]) -> None:
    source, target = outputs(instance)
    found, record = tightest_plan(source, instance["labels"], target, instance["head"][:-1], beta=0.4)
    total = planned(instance, found).total(instance["head"], instance["metric"])
    assert total == pytest.approx(certificate(instance, beta=0.4).total, abs=1e-6)
    assert record.gap is not None
    assert record.gap < 1e-9
    free, _ = tightest_plan(source, instance["labels"], target, instance["head"][:-1], beta=0.4, feature_weight=1e-9)
    assert planned(instance, free).total(instance["head"], instance["metric"]) > total + 1e-3


def test_the_slope_is_that_of_finite_differences(instance: dict[str, Any]) -> None:
    source, target = outputs(instance)
    plan, _ = tightest_plan(source, instance["labels"], target, instance["head"][:-1], beta=0.4)
    unknowns = tuple(instance[name].clone().requires_grad_() for name in ("head", "metric"))
    assert torch.autograd.gradcheck(planned(instance, plan).terms, unknowns)


def test_points_that_coincide_have_a_finite_slope() -> None:
    x, labels = torch.eye(2, dtype=torch.float64), torch.arange(2)
    bound = PlannedBound(x, labels, x, csr_array(np.eye(2) / 2), unit=True)
    head, metric = (1e3 * torch.eye(3, 2, dtype=torch.float64)).requires_grad_(), torch.eye(2, dtype=torch.float64)
    bound.terms(head, metric).sum().backward()
    assert head.grad is not None
    assert bool(head.grad.isfinite().all())


def test_a_descent_never_ends_above_its_start(instance: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = outputs(instance)
    plan, _ = tightest_plan(source, instance["labels"], target, instance["head"][:-1], beta=0.4)
    bound, start = planned(instance, plan), (instance["head"], instance["metric"])
    keywords: dict[str, Any] = {"iterations": 30, "feature_weight": 1.0}
    assert bound.total(*descend(bound, *start, **keywords)) < bound.total(*start) - 0.1

    def upwards(self: torch.optim.LBFGS, closure: Any) -> None:
        with torch.no_grad():
            self.param_groups[0]["params"][0] *= 1e3

    monkeypatch.setattr(refit._LBFGS, "step", upwards)
    assert all(map(torch.equal, descend(bound, *start, **keywords), start))


def test_the_scale_of_the_metric_does_not_stop_the_descent() -> None:
    """Features of length 1 do not depend on it, but its slope does: a large one looked like a minimum."""
    rng = torch.Generator().manual_seed(0)
    xs, xt = (torch.randn(n, 4, generator=rng, dtype=torch.float64) for n in (9, 7))
    head, metric = (torch.randn(n, m, generator=rng, dtype=torch.float64) for n, m in ((5, 3), (4, 4)))
    case = {"xs": xs, "labels": torch.arange(9) % 3, "xt": xt, "head": head, "metric": metric, "unit": True}
    plan, _ = tightest_plan(*outputs(case)[:1], case["labels"], outputs(case)[1], head[:-1], beta=0.4)
    bound = planned(case, plan)
    ends = [bound.total(*descend(bound, head, s * metric, iterations=30, feature_weight=1.0)) for s in (1.0, 1e9)]
    assert ends[1] == pytest.approx(ends[0], rel=1e-6)


@pytest.mark.parametrize(("width", "start", "settled"), [(10, 1.0, 0), (80, 0.1, 2)])
def test_the_bound_does_not_rise_over_rounds(width: int, start: float, settled: int) -> None:
    changes = {"rounds": 3, "bound_rounds": 5, "feature_start": start}
    settings = FullSettings(objective="bound", **changes)
    weights = [settings.feature_weight(k) for k in range(1, 6)]
    assert weights == sorted(weights)
    assert weights[0] == start
    assert weights[settled:] == [1.0] * (5 - settled)
    fitted = fit(small_task(width), config(**changes))
    assert [line["step"] for line in fitted.history] == list(range(1, len(fitted.history) + 1))
    assert ["bound" in line for line in fitted.history[-6:]] == [False] + [True] * 5
    bounds = [line["bound"] for line in fitted.history[-5:]]
    assert np.all(np.diff(bounds[settled:]) <= 1e-6)
    assert bounds[-1] < bounds[settled]
    assert all(np.isfinite(list(line.values())).all() for line in fitted.history)


def test_printed_digits_certify_handwritten_ones() -> None:
    """The certificate of the bounds room, from the saved classifier alone, is far below 1 with and without labels."""
    task, truth = make_task(*digits_task(n_source=1000))
    assert truth is not None
    plain, fitted = fit(task, load_config("full")), fit(task, config())
    totals = []
    for found in (plain, fitted):
        source, target = found.predictor.outputs(task.xs, source=True), found.predictor.outputs(task.xt)
        proba = [torch.softmax(part.logits, dim=1) for part in (source, target)]
        gamma = head_lipschitz(found.predictor.network.head.weight, "euclidean")
        report = joint_bound(source.features, task.ys, target.features, *proba, gamma=gamma, beta=0.1)
        totals.append(report.total)
    assert totals[0] > 1.0  # vacuous
    assert totals[1] <= fitted.history[-1]["bound"] + 1e-4
    of_target = LOSSES["euclidean"].of_labels(fitted.outputs, truth.yt).mean()
    # L^_f is at most the target loss of the classifier itself.
    assert totals[1] + of_target < 0.7
    accuracy = [float((found.outputs.argmax(axis=1) == truth.yt).mean()) for found in (plain, fitted)]
    assert accuracy[1] > accuracy[0] - 0.03


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("pressed_in", [2, 4, 7])
def test_an_interrupted_run_goes_on_bit_for_bit(tmp_path: Path, pressed_in: int) -> None:
    work, changes = Alternation.round, {"rounds": 2, "bound_rounds": 4}

    def pressing(self: Alternation, number: int) -> Any:
        if number == pressed_in:
            os.kill(os.getpid(), signal.SIGINT)
        return work(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alternation, "round", pressing)
        with pytest.raises(KeyboardInterrupt):
            fit(small_task(), config(**changes), out=tmp_path / "run")
    resumed = fit(small_task(), config(**changes), out=tmp_path / "run", resume=True)
    whole = fit(small_task(), config(**changes), out=tmp_path / "whole")
    assert len(whole.history) > pressed_in
    assert resumed.history == whole.history
    for name in MODEL:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_target_labels_change_nothing() -> None:
    xs, ys, xt, yt = tables()
    one, two = (make_task(as_table(xs, ys), as_table(xt, labels))[0] for labels in (yt, 1 - yt))
    changes = {"rounds": 2, "bound_rounds": 2}
    first, second = (fit(task, config(**changes)) for task in (one, two))
    np.testing.assert_array_equal(first.outputs, second.outputs)
    assert first.history == second.history


def test_what_has_no_such_bound_is_refused(tmp_path: Path) -> None:
    xs, ys, xt, _ = tables()
    task = make_task(as_table(xs, ys.astype(float), task="regression"), as_table(xt))[0]
    changes = {"loss": "absolute", "full": {"objective": "bound"}}
    with pytest.raises(InputError, match=r'full\.objective "bound": got continuous targets'):
        fit(task, load_config("full", changes=changes), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="does not see the target"):
        fit(small_task(), load_config("source-only", changes={"full": {"objective": "bound"}}))
    with pytest.raises(InputError, match="objective"):
        config(objective="bounds")
    with pytest.raises(InputError, match="bound_beta"):
        config(bound_beta=0.0)


def test_beta_is_at_most_half_of_the_shared_classes() -> None:
    """Forty source samples, of which two classes with 2 % of them are shared: .1 would force matches across classes."""
    rng = np.random.default_rng(0)
    centres = 8.0 * rng.normal(size=(6, 10))
    ys, yt = np.repeat(np.arange(6), [4, 4, 100, 100, 100, 92]), np.repeat(np.arange(2), 30)
    xs, xt = (centres[y] + rng.normal(size=(len(y), 10)) for y in (ys, yt))
    rare = make_task(as_table(xs, ys), as_table(xt))[0]
    changes = {"rounds": 2, "bound_rounds": 2, "iterations": 5}
    few = {line["beta"] for line in fit(rare, config(**changes)).history if "bound" in line}
    assert len(few) == 1
    assert 1 / 400 <= few.pop() <= 0.03
    assert {line["beta"] for line in fit(small_task(), config(**changes)).history if "bound" in line} == {0.1}
