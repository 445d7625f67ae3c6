"""Bounds: closed forms, plans that are refused, what the report says, and who may see target labels."""

from __future__ import annotations

import inspect
import json
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import csr_array

import warmpot.bounds
from warmpot.bounds import (
    BoundProblem,
    Lipschitz,
    PlanRecord,
    Term,
    feature_bound,
    head_lipschitz,
    joint_bound,
    module_lipschitz,
    tightest_bound,
    with_labels,
)
from warmpot.bounds.losses import get_bound_loss
from warmpot.bounds.oracle import _Heads
from warmpot.bounds.theorems import ALPHAS
from warmpot.errors import InputError
from warmpot.transport import round_to_feasible, solve_partial

Maker = Callable[[Any], Any]


def softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def task(seed: int = 0, n: int = 30, m: int = 20) -> dict[str, Any]:
    """Three classes in the plane, the target lacks one; a linear head that knows the class means."""
    rng = np.random.default_rng(seed)
    means = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    ys, yt = rng.integers(0, 3, n), rng.integers(0, 2, m)
    xs, xt = means[ys] + 0.3 * rng.normal(size=(n, 2)), means[yt] + 0.2 + 0.3 * rng.normal(size=(m, 2))
    return {
        "source": xs, "labels": ys, "target": xt, "weight": means, "target_labels": yt,
        "source_proba": softmax(xs @ means.T), "target_proba": softmax(xt @ means.T),
    }  # fmt: skip


def inputs(data: dict[str, Any], kind: str) -> list[Any]:
    names = ["source", "labels", "target", "source_proba"] + (["target_proba"] if kind == "joint" else [])
    return [data[name] for name in names]


BOUNDS: dict[str, Any] = {"features": feature_bound, "joint": joint_bound}
GAMMA = 1.0  # a constant of the head of `task`, whose rows are at most 4 apart
SETTINGS: dict[str, Any] = {"gamma": GAMMA, "alpha": 0.7, "beta": 0.5}


def test_joint_bound_in_closed_form() -> None:
    """One source sample, one target sample: the only plan of mass 1."""
    proba, target_proba = np.array([[0.8, 0.2]]), np.array([[0.6, 0.4]])
    report = joint_bound(
        np.zeros((1, 2)), np.array([0]), np.array([[3.0, 4.0]]), proba, target_proba, gamma=0.1, loss="euclidean"
    )
    assert report["source loss"].value == pytest.approx(0.2)  # ||(.2, .2)|| / sqrt 2
    assert report["transport, features"].value == pytest.approx(0.5)
    assert report["transport, labels"].value == pytest.approx(0.4)
    assert report["target left out"].value == 0
    assert report.total == pytest.approx(1.1)
    assert report.vacuous
    assert report.dominant.name == "transport, features"


def test_tightest_plan_takes_the_source_sample_that_is_well_predicted() -> None:
    """Two source samples at almost one distance: the nearer one is wrong, the other right."""
    source, target = np.array([[0.0], [1.0]]), np.array([[0.45]])
    proba = np.array([[0.1, 0.9], [0.9, 0.1]])
    args = (source, np.array([0, 0]), target, proba)
    tightest, paper = (feature_bound(*args, gamma=0.8, beta=0.5, plan=plan) for plan in ("tightest", "paper"))
    assert (tightest["source loss"].value, paper["source loss"].value) == pytest.approx((0.1, 0.9))
    assert (tightest["transport"].value, paper["transport"].value) == pytest.approx((0.88, 0.72))


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
@pytest.mark.parametrize("plan", ["tightest", "paper"])
@pytest.mark.parametrize("kind", ["features", "joint"])
def test_plan_is_that_of_the_linear_program(kind: str, plan: str, loss: str) -> None:
    data = task(1, 9, 7)
    alpha, beta, gamma = 0.7, 0.6, GAMMA
    report = BOUNDS[kind](*inputs(data, kind), gamma=gamma, alpha=alpha, beta=beta, plan=plan, loss=loss)
    xs, xt, n, m = data["source"], data["target"], 9, 7
    C = gamma * np.sqrt(((xs[:, None] - xt[None]) ** 2).sum(axis=2))
    corners = np.eye(3)[data["labels"]]
    order, size = (1, 2.0) if loss == "tv" else (2, 2**0.5)
    if kind == "joint":
        C += np.linalg.norm(corners[:, None] - data["target_proba"][None], ord=order, axis=2) / size
    losses = np.linalg.norm(corners - data["source_proba"], ord=order, axis=1) / size
    k = 2 if kind == "features" else 1
    cost = k * C + losses[:, None] if plan == "tightest" else C
    rows, cols = np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))
    found = linprog(
        cost.ravel(),
        A_ub=np.concatenate([rows, cols]), b_ub=[1 / (beta * n)] * n + [1 / m] * m,
        A_eq=np.ones((1, n * m)), b_eq=[alpha],
    )  # fmt: skip
    assert report.p is not None
    transport = sum(term.value or 0.0 for term in report.terms if term.name.startswith("transport"))
    source = report["source loss"].value or 0.0
    assert source == pytest.approx(report.p @ losses / alpha)
    reached = alpha * (transport + source) if plan == "tightest" else alpha * transport / k
    assert reached == pytest.approx(found.fun, abs=1e-6)
    assert report.plan.status == "OPTIMAL"
    assert report.plan.gap == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_a_plan_of_your_own(kind: str) -> None:
    data = task()
    n, m = 30, 20
    a = np.full(n, 1 / (0.5 * n))
    solution = solve_partial(np.random.default_rng(0).random((n, m)), a, mass=0.7, eps=0.1)
    wanted = BOUNDS[kind](*inputs(data, kind), **SETTINGS, plan=solution.plan)
    assert wanted.plan == PlanRecord("given", "GIVEN", None, wanted.plan.residual)
    single = torch.as_tensor(solution.plan, dtype=torch.float32)
    for plan in (solution, csr_array(solution.plan), torch.as_tensor(solution.plan), single):
        report = BOUNDS[kind](*inputs(data, kind), **SETTINGS, plan=plan)
        assert report.total == pytest.approx(wanted.total, rel=1e-5 if plan is single else 1e-12)
        assert report.plan.residual <= 1e-12
    best = BOUNDS[kind](*inputs(data, kind), **SETTINGS)
    assert best.total < wanted.total


def test_an_infeasible_plan_is_refused_and_the_remedy_works() -> None:
    data = task()
    args = inputs(data, "features")
    a, b = np.full(30, 1 / 15), np.full(20, 1 / 20)
    good = solve_partial(np.random.default_rng(0).random((30, 20)), a, mass=0.7).plan
    row, column = good.copy(), good.copy()
    row[0] += 0.01
    column[:, 0] += 0.01
    negative = good.copy()
    negative[0, 0] -= 1e-9
    for bad in (0.99 * good, row, column, negative, csr_array(1.001 * good)):
        with pytest.raises(InputError, match="round_to_feasible"):
            feature_bound(*args, **SETTINGS, plan=bad)
    with pytest.raises(InputError, match="round_to_feasible"):  # feasible, but for another beta
        feature_bound(*args, gamma=GAMMA, alpha=0.7, beta=1.0, plan=np.outer(a, b) * 0 + good)
    fixed = round_to_feasible(row, a, b, 0.7)
    assert np.isfinite(feature_bound(*args, **SETTINGS, plan=fixed).total)
    with pytest.raises(InputError, match="Rows are source"):
        feature_bound(*args, **SETTINGS, plan=good.T)
    with pytest.raises(InputError, match="finite"):
        feature_bound(*args, **SETTINGS, plan=np.full((30, 20), np.nan))


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_any_library_and_dtype(kind: str, make: Maker) -> None:
    data = task()
    arrays = inputs(data, kind)
    given = [make(x) if x.dtype.kind == "f" else torch.as_tensor(x) for x in arrays]
    report = BOUNDS[kind](*given, **SETTINGS)
    assert report.total == pytest.approx(BOUNDS[kind](*arrays, **SETTINGS).total, rel=1e-5)
    assert isinstance(report.total, float)


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_report_for_people_and_machines(kind: str) -> None:
    data = task()
    report = BOUNDS[kind](*inputs(data, kind), **{**SETTINGS, "gamma": head_lipschitz(data["weight"], "tv")}, loss="tv")
    text = str(report)
    for term in report.terms:
        assert term.name in text
        assert term.meaning in text
    assert "unknown" in text
    assert "union bound: none to pay" in text
    assert "max ||w_k - w_l|| / 4" in text
    assert report.total_with_labels is None
    full = with_labels(report, *inputs(data, "joint"), data["target_labels"])
    assert "true target loss" in str(full)
    assert "unknown" not in str(full)
    back = json.loads(json.dumps(full.to_dict()))
    assert back["total"] == pytest.approx(sum(t["value"] for t in back["terms"] if t["computable"]))
    assert back["total_with_labels"] == pytest.approx(back["total"] + back["ideal"])
    assert back["lipschitz"]["origin"] == "linear head: max ||w_k - w_l|| / 4"
    assert back["plan"]["status"] == "OPTIMAL"
    with pytest.raises(KeyError, match="nonsense"):
        report["nonsense"]
    certain = replace(report, confidence=0.95, terms=(Term("complexity", 2.0, "KL"),))
    assert "holds with probability 0.95" in str(certain)
    assert (certain.total, certain.ideal, certain.vacuous) == (2.0, 0, True)


def test_entropic_plan_costs_more_and_says_how_much() -> None:
    data = task()
    exact = joint_bound(*inputs(data, "joint"), **SETTINGS, form="mixed")
    entropic = joint_bound(*inputs(data, "joint"), **SETTINGS, form="mixed", eps=0.1)
    assert entropic.plan.gap is not None
    assert 0 < entropic.total - exact.total <= entropic.plan.gap + 1e-9
    assert "entropic" in entropic.plan.kind
    assert entropic.plan.residual <= 1e-12


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_search_is_the_best_of_single_bounds(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    real = warmpot.bounds.theorems.PairCosts
    monkeypatch.setattr(warmpot.bounds.theorems, "PairCosts", lambda *x: built.append(1) or real(*x))
    data = task()
    alphas, betas = (0.5, 0.8, 1.0), (0.4, 1.0)
    found = tightest_bound(kind, *inputs(data, "joint"), gamma=GAMMA, alphas=alphas, betas=betas, loss="tv")
    assert built == [1]
    assert [(r.beta, r.alpha) for r in found.curve] == [(b, a) for b in betas for a in alphas]
    for report in found.curve:
        single = BOUNDS[kind](*inputs(data, kind), gamma=GAMMA, alpha=report.alpha, beta=report.beta, loss="tv")
        assert report.total == pytest.approx(single.total)
        assert found.best.total <= report.total
    assert found.best in found.curve
    table = str(found).splitlines()
    assert len(table) == 7
    assert sum(line.endswith("<") for line in table) == 1
    rows = json.loads(json.dumps(found.to_dict()))["curve"]
    assert [row["total"] for row in rows] == [r.total for r in found.curve]


def test_search_defaults() -> None:
    data = task()
    joint = tightest_bound("joint", *inputs(data, "joint"), gamma=GAMMA)
    assert {r.loss for r in joint.curve} == {"euclidean"}
    # The predictions on the target use two of three classes, about equally.
    low, high = sorted({r.beta for r in joint.curve})
    assert high == 1
    assert low == pytest.approx(2 / 3, abs=0.1)
    features = tightest_bound("features", *inputs(data, "features"), gamma=GAMMA)
    assert {(r.loss, r.beta) for r in features.curve} == {("tv", 1.0)}
    sharp = tightest_bound("joint", *inputs(data, "joint"), gamma=GAMMA, form="sharp")
    assert len(sharp.curve) > len(joint.curve)
    assert sharp.best.total < min(1.0, joint.best.total)
    assert sharp.best.alpha not in ALPHAS


def test_oracle_finds_a_good_head_where_there_is_one() -> None:
    data = task()
    gamma = head_lipschitz(3 * data["weight"], "tv")
    for kind in ("features", "joint"):
        report = BOUNDS[kind](*inputs(data, kind), gamma=gamma, loss="tv")
        full = with_labels(report, *inputs(data, "joint"), data["target_labels"])
        assert full.ideal is not None
        assert full.ideal < 0.02
    poor = replace(report, lipschitz=Lipschitz(0.0, "given"))  # only constant heads: nobody does well
    none = with_labels(poor, *inputs(data, "joint"), data["target_labels"], iterations=0)
    assert none.ideal is not None
    weak = with_labels(
        replace(poor, lipschitz=Lipschitz(1e-9, "given")),
        *inputs(data, "joint")[:3], *[np.full((k, 3), 1 / 3) for k in (30, 20)], data["target_labels"],
    )  # fmt: skip
    assert weak.ideal is not None
    assert weak.ideal > 0.5


def test_refined_bound_is_reached() -> None:
    """Source and target on one point, of one class, and a head that is wrong there: only the label part is left."""
    point, label, proba = np.zeros((1, 1)), np.array([0]), np.array([[0.3, 0.7]])
    report = joint_bound(point, label, point, proba, proba, gamma=1.0, loss="tv")
    full = with_labels(report, point, label, point, proba, proba, label)
    assert full.total == pytest.approx(1.4)
    assert full.target_loss == pytest.approx(0.7)
    assert full.total_refined == pytest.approx(0.7, abs=0.01)


def test_oracle_refuses_other_reports() -> None:
    data = task()
    report = replace(feature_bound(*inputs(data, "features"), **SETTINGS), theorem="PAC-Bayes")
    with pytest.raises(InputError, match="feature_bound or joint_bound"):
        with_labels(report, *inputs(data, "joint"), data["target_labels"])


def test_target_labels_can_reach_the_oracle_only() -> None:
    allowed = {"source", "labels", "target", "source_proba", "target_proba"}
    for function in (feature_bound, joint_bound, tightest_bound, BoundProblem.__init__):
        parameters = inspect.signature(function).parameters
        given = {name for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY} - {"self", "kind"}
        assert given <= allowed
        assert not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())
    seen = []
    for info in pkgutil.iter_modules(warmpot.bounds.__path__, "warmpot.bounds."):
        for name, member in vars(import_module(info.name)).items():
            if inspect.isfunction(member) and member.__module__ == info.name:
                words = set(inspect.signature(member).parameters)
                seen += [(info.name, name)] if words & {"target_labels", "yt", "y_target", "truth", "y"} else []
    assert {module for module, _ in seen} == {"warmpot.bounds.oracle"}
    assert ("warmpot.bounds.oracle", "with_labels") in seen


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source_proba": np.zeros((30, 3))}, "softmax of the logits"),
        ({"source_proba": np.full((29, 3), 1 / 3)}, "One row per sample"),
        ({"labels": np.full(30, 3)}, "3 at 0"),
        ({"labels": np.full(30, 0.5)}, "whole numbers"),
        ({"labels": np.zeros((30, 1))}, "shape"),
        ({"labels": np.array(["a"] * 30)}, "class codes"),
        ({"target": np.zeros((20, 5))}, "2 columns"),
        ({"target": np.full((20, 2), np.inf)}, "finite"),
        ({"gamma": -1.0}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 1.1}, "alpha"),
        ({"beta": 0.0}, "beta"),
        ({"eps": 0.0}, "eps"),
        ({"plan": "best"}, "'tightest' or 'paper'"),
        ({"form": "best"}, "'paper' or 'mixed' or 'sharp'"),
        ({"loss": "cross_entropy"}, "metric with values in"),
        ({"loss": 1}, "'tv' or 'euclidean'"),
    ],
)
def test_bad_input_is_named(change: dict[str, Any], message: str) -> None:
    data = task()
    arguments = {name: data[name] for name in ("source", "labels", "target", "source_proba")} | SETTINGS | change
    with pytest.raises(InputError, match=message):
        feature_bound(**arguments)


def test_other_bad_input() -> None:
    data = task()
    with pytest.raises(InputError, match="target_proba"):
        tightest_bound("joint", *inputs(data, "features"), gamma=GAMMA)
    with pytest.raises(InputError, match="'features' or 'joint'"):
        tightest_bound("both", *inputs(data, "features"), gamma=GAMMA)
    with pytest.raises(InputError, match="alphas"):
        tightest_bound("features", *inputs(data, "features"), gamma=GAMMA, alphas=())
    with pytest.raises(InputError, match="Pass gamma as a number"):
        module_lipschitz(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Softmax(dim=1)), "tv")
    with pytest.raises(InputError, match="Pass gamma as a number"):
        module_lipschitz(torch.nn.BatchNorm1d(3, track_running_stats=False), "tv")
    with pytest.raises(InputError, match="squared"):
        get_bound_loss("squared")
    report = feature_bound(*inputs(data, "features"), **SETTINGS)
    with pytest.raises(InputError, match="target_labels"):
        with_labels(report, *inputs(data, "joint"), data["target_labels"] + 7)


def test_a_constant_of_another_loss_is_refused() -> None:
    data = task()
    with pytest.raises(InputError, match="gamma: got the constant of the loss 'tv'"):
        joint_bound(*inputs(data, "joint"), gamma=head_lipschitz(np.eye(3), "tv"))
    with pytest.raises(InputError, match="gamma"):
        Lipschitz(-1.0, "given")


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
@pytest.mark.parametrize("gamma", [1e-3, 0.05, 0.5])
def test_heads_fitted_to_labels_stay_in_the_set(loss: str, gamma: float) -> None:
    """A head beyond gamma would understate the term that needs labels."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.integers(3, size=30)
    heads = _Heads(x, y, np.full(30, 1 / 30), 3, gamma, get_bound_loss(loss))
    for head in heads._fitted(20, worst=True):
        wild = np.asarray(head, np.float64) * 50.0
        for given in (np.asarray(head, np.float64), wild):
            assert head_lipschitz(heads._allowed(given)[:, :-1], loss).value <= heads.gamma
    assert min(found.max() for found in heads.losses(20, worst=True)) > 0.5 - 5 * gamma  # nobody this flat is sure


def test_the_best_alpha_may_be_less_than_one_target_sample() -> None:
    """Ten source samples, one target sample, one cheap pair: only a tenth of it can go there."""
    source, target = np.r_[[[0.0]], np.full((9, 1), 100.0)], np.array([[0.0]])
    proba = np.tile([0.9, 0.1], (10, 1))
    found = tightest_bound("features", source, np.zeros(10, int), target, proba, gamma=1.0, form="sharp")
    assert found.best.alpha == pytest.approx(0.1)
    assert found.best.total < 1.0


def test_labels_of_other_samples_are_refused() -> None:
    data = task()
    report = joint_bound(*inputs(data, "joint"), gamma=GAMMA)
    source, labels, target, *proba = inputs(data, "joint")
    hidden = np.zeros(len(target), int)
    with pytest.raises(InputError, match=r"target: got .* rows"):
        with_labels(report, source, labels, target[:-1], *proba, target_labels=hidden)
    with pytest.raises(InputError, match="target"):
        with_labels(report, source, labels, target[:, :1], *proba, target_labels=hidden)


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
@pytest.mark.parametrize("kind", ["features", "joint"])
def test_a_constant_below_the_slope_of_the_head_is_refused(kind: str, loss: str) -> None:
    data, metric = task(), get_bound_loss(loss)
    args = inputs(data, "joint")
    pairs = np.array([metric.between(p, data["target_proba"]) for p in data["source_proba"]])
    far = np.linalg.norm(data["source"][:, None] - data["target"], axis=2)
    least = ((pairs - 1e-6) / far).max()
    for settings in ({}, {"alpha": 0.7, "beta": 0.5}, {"form": "sharp"}):
        with pytest.raises(InputError, match=r"gamma: got 0\.001; allowed: at least .*head_lipschitz") as caught:
            BOUNDS[kind](*args, gamma=0.001, loss=loss, **settings)
        named = float(str(caught.value.allowed).split()[2].rstrip(","))
        assert named == pytest.approx(least, rel=1e-4)
        report = BOUNDS[kind](*args, gamma=named, loss=loss, **settings)
        full = with_labels(report, *args, target_labels=data["target_labels"])
        assert full.target_loss is not None
        assert sum(term.value or 0.0 for term in full.terms) >= full.target_loss
    with pytest.raises(InputError, match=r"gamma: got 0\.001"):
        tightest_bound(kind, *args, gamma=0.001, loss=loss)
    # a constant that is enough for the matched pairs proves the bound
    still = args.copy()
    still[2], still[4] = data["source"][:20], data["source_proba"][:20]
    identity = np.eye(30, 20) / 30
    report = BOUNDS[kind](*still, gamma=0.0, loss=loss, alpha=20 / 30, plan=identity)
    assert report.lipschitz.value == 0


def test_too_small_a_constant_proved_a_loss_that_is_exceeded() -> None:
    """The head is right on the source and wrong on the target; a constant head is right on both."""
    args = (np.zeros((1, 1)), np.array([0]), np.ones((1, 1)), np.array([[0.95, 0.05]]), np.array([[0.05, 0.95]]))
    with pytest.raises(InputError, match=r"gamma: got 0\.01; allowed: at least 0\.9"):
        feature_bound(*args, gamma=0.01)
    valid = feature_bound(*args, gamma=0.9)
    assert with_labels(valid, *args, target_labels=np.array([0])).total_refined >= 0.95
    with pytest.raises(InputError, match=r"gamma: got 0\.01; allowed: at least 0\.9"):  # computed, of another head
        BoundProblem("features", *args, gamma=Lipschitz(0.01, "of another head", "tv"), loss="tv").report()


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_probabilities_of_another_temperature_than_the_constant_are_refused(kind: str) -> None:
    """Calibrated probabilities are those of a steeper or flatter head than its weights say."""
    weight, xs, xt = np.array([[-1.0], [1.0]]), np.array([[-0.1], [2.0]]), np.array([[0.1], [1.9]])
    gamma = head_lipschitz(weight, "tv")
    for factor, refused in ((0.5, False), (6.0, True)):
        hot = [softmax(factor * x @ weight.T) for x in (xs, xt)]
        problem = BoundProblem(kind, xs, np.array([0, 1]), xt, *hot, gamma=gamma, loss="tv")
        if refused:
            with pytest.raises(InputError, match=r"gamma: got .*; allowed: at least"):
                problem.report()
        else:
            assert problem.report().notes == ()


def test_below_one_is_undecided_without_the_ideal_term() -> None:
    """Swapped labels: the computable part is the same, the true loss near 1."""
    data = task()
    gamma = head_lipschitz(3 * data["weight"], "tv")
    steep = {f"{side}_proba": softmax(3 * data[side] @ data["weight"].T) for side in ("source", "target")}
    data |= steep
    report = joint_bound(*inputs(data, "joint"), gamma=gamma, loss="tv", beta=0.5, form="sharp")
    if report.total >= 1:
        report = tightest_bound("joint", *inputs(data, "joint"), gamma=gamma, loss="tv", form="sharp").best
    assert report.total < 1
    assert (report.vacuous, report.verdict) == (None, "undecided")
    assert "undecided" in str(report)
    assert report.to_dict()["vacuous"] is None
    swapped = with_labels(report, *inputs(data, "joint"), 1 - data["target_labels"])
    assert swapped.target_loss is not None
    assert swapped.target_loss > 0.9
    assert swapped.verdict == "vacuous"
    assert with_labels(report, *inputs(data, "joint"), data["target_labels"]).vacuous is not None


def test_a_bound_that_contains_the_true_loss_says_so() -> None:
    data = task()
    gamma = head_lipschitz(data["weight"], "tv")
    report = joint_bound(*inputs(data, "joint"), gamma=gamma, loss="tv")
    own = with_labels(report, *inputs(data, "joint"), data["target_labels"], iterations=0)
    assert any("contains the true loss" in note for note in own.notes)
    wrong = {
        **data,
        "target_proba": data["target_proba"][:, [1, 0, 2]],
        "source_proba": data["source_proba"][:, [1, 0, 2]],
    }
    report = joint_bound(*inputs(wrong, "joint"), gamma=gamma, loss="tv")
    other = with_labels(report, *inputs(wrong, "joint"), data["target_labels"])
    assert not any("contains the true loss" in note for note in other.notes)


def test_a_given_constant_that_cannot_be_checked_is_noted() -> None:
    data = task()
    assert "not checked on the target" in feature_bound(*inputs(data, "features"), **SETTINGS).notes[0]
    assert feature_bound(*inputs(data, "joint"), **SETTINGS).notes == ()


def test_a_constant_is_checked_on_the_source_if_the_target_is_not_predicted() -> None:
    data = task()
    with pytest.raises(InputError, match=r"gamma: got 0\.1; allowed: at least"):
        feature_bound(*inputs(data, "features"), gamma=0.1)
    same = np.zeros((2, 1))
    with pytest.raises(InputError, match="equal features and different probabilities; allowed: probabilities of one"):
        feature_bound(same, np.array([0, 1]), same, np.array([[0.9, 0.1], [0.2, 0.8]]), gamma=9.0)
