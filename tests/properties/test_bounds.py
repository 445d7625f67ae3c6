"""Theorems 3.2 and 3.3 on random finite instances, where every term is known by enumeration."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpot.bounds import BoundProblem, BoundReport, head_lipschitz, module_lipschitz, with_labels
from warmpot.bounds.losses import LOSSES
from warmpot.bounds.theorems import FORMS

INSTANCES = 500
"""For each theorem and each loss."""


def softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


class Instance(NamedTuple):
    """A finite set of heads on a few points; head 0 is the learnt one."""

    n: int
    x: np.ndarray
    y: np.ndarray
    proba: np.ndarray  # (heads, points, classes)
    losses: np.ndarray  # (heads, points)
    gamma: float
    alpha: float
    beta: float

    def problem(self, kind: str, loss: str) -> BoundProblem:
        n, learnt = self.n, self.proba[0]
        target_proba = learnt[n:] if kind == "joint" else None
        return BoundProblem(
            kind, self.x[:n], self.y[:n], self.x[n:], learnt[:n], target_proba, gamma=self.gamma, loss=loss
        )

    def ideal(self, kind: str, report: BoundReport) -> float:
        """2 L_f or L^_f by enumeration over the heads."""
        factor = 1.0 if report.form == "paper" else report.alpha
        if kind == "features":
            return factor * 2 * float(self.losses.max(axis=1).min())
        assert report.p is not None
        assert report.q is not None
        S = self.losses[:, : self.n] @ report.p / report.alpha
        T = self.losses[:, self.n :] @ report.q / report.alpha
        xi = (S + T).min() - S.min() - T.min()
        return factor * float(T.min() + xi)


def instance(rng: np.random.Generator, loss: str) -> Instance:
    """Heads of all steepnesses, alike or not; labels from one of them, some flipped; targets near or far."""
    n, m, d, C, heads = rng.integers(2, 7), rng.integers(2, 6), rng.integers(1, 3), rng.integers(2, 4), 4
    shift = rng.choice([0.0, 1.0]) * rng.normal(size=d)
    x = np.concatenate([rng.normal(size=(n, d)), rng.normal(size=(m, d)) * rng.choice([0.3, 1.0]) + shift])
    W = rng.normal(size=(heads, C, d)) * np.exp(rng.uniform(-2, 3))
    W[1:] = W[0] + rng.choice([0.05, 0.3, 1.0]) * (W[1:] - W[0])
    b = rng.normal(size=(heads, 1, C)) * rng.choice([0.0, 1.0, 3.0])
    proba = softmax(np.einsum("kcd,nd->knc", W, x) + b)
    y = proba[1].argmax(axis=1)
    flipped = rng.random(n + m) < rng.choice([0.0, 0.2])
    y[flipped] = rng.integers(0, C, flipped.sum())
    metric = LOSSES[loss]
    # The least constant that is true on these points: any smaller one would not be a constant.
    distances = np.linalg.norm(x[:, None] - x[None], axis=2) + np.eye(n + m)
    gamma = max(float((metric.between(g[:, None], g[None]) / distances).max()) for g in proba)
    alpha, beta = float(rng.choice([1.0, rng.uniform(0.05, 1)])), float(rng.choice([1.0, rng.uniform(0.2, 1)]))
    losses = np.stack([metric.of_labels(g, y) for g in proba])
    return Instance(int(n), x, y, proba, losses, gamma, alpha, beta)


def any_plan(rng: np.random.Generator, n: int, m: int, alpha: float, beta: float) -> Any:
    """Some feasible plan, far from any optimum."""
    from warmpot.transport import round_to_feasible

    return round_to_feasible(rng.random((n, m)) ** 4, np.full(n, 1 / (beta * n)), np.full(m, 1 / m), alpha)


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
@pytest.mark.parametrize("kind", ["features", "joint"])
def test_theorem_holds_by_brute_force(kind: str, loss: str) -> None:
    rng = np.random.default_rng([kind == "joint", loss == "tv"])
    needed: Counter[str] = Counter()
    for k in range(INSTANCES):
        case = instance(rng, loss)
        n, m = case.n, len(case.x) - case.n
        plan, eps = [("tightest", None), ("paper", None), ("tightest", 0.05), (None, None)][k % 4]
        chosen = any_plan(rng, n, m, case.alpha, case.beta) if plan is None else plan
        form = FORMS[k // 4 % 3]
        report = case.problem(kind, loss).report(case.alpha, case.beta, plan=chosen, eps=eps, form=form)
        truth = float(case.losses[0, n:].mean())
        bound = report.total + case.ideal(kind, report)
        assert truth <= bound + 1e-9, (kind, loss, k)
        assert report.plan.residual <= 1e-12
        for term in report.terms:
            assert term.value is None or term.value >= 0
            needed[term.name.removeprefix("alpha * ")] += truth > bound + 1e-9 - (
                bound - report.total if term.value is None else term.value
            )
    # The instances are hard enough to tell: without any one of these terms the bound would be false.
    parts = ["source loss", "transport", "2 L_f"] if kind == "features" else ["transport, features", "L^_f"]
    assert all(needed[name] for name in [*parts, "target left out"]), needed


def reached(
    kind: str, form: str, x: list[float], labels: list[int], slopes: list[float], offsets: list[float], alpha: float
) -> Any:
    """Truth and bound for one source point on a line and heads ``sigmoid(slope x + offset)`` for class 1 of two."""
    points, y = np.array(x)[:, None], np.array(labels)
    right = 1 / (1 + np.exp(-(np.array(slopes)[:, None] * np.array(x) + np.array(offsets)[:, None])))
    proba = np.stack([1 - right, right], axis=2)
    losses = np.stack([LOSSES["tv"].of_labels(g, y) for g in proba])
    distances = np.abs(points - points.T) + np.eye(len(x))
    gamma = max(float((LOSSES["tv"].between(g[:, None], g[None]) / distances).max()) for g in proba)
    case = Instance(1, points, y, proba, losses, gamma, alpha, 1.0)
    report = case.problem(kind, "tv").report(alpha, form=form)
    return losses[0, 1:].mean(), report.total + case.ideal(kind, report)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["features", "joint"])
def test_bounds_are_reached(kind: str, form: str) -> None:
    """Where a bound is an equality no coefficient in it could be smaller."""
    # The second target is wrong and left out; the first sits on the source.
    truth, bound = reached(
        kind, form, [0.0, 1e-9, 9.0], [0, 0, 1], slopes=[0.0, 9.0], offsets=[-30.0, -40.0], alpha=0.5
    )
    assert truth == pytest.approx(0.5)
    assert bound == pytest.approx(truth, abs=1e-6)
    # The head moves away from the true class as fast as it may; another one is right everywhere.
    truth, bound = reached("features", "sharp", [0.0, 1.0], [0, 0], slopes=[2.0, 0.0], offsets=[-3.0, -40.0], alpha=1.0)
    assert truth > 0.2
    assert bound == pytest.approx(truth)
    # The labels differ, the head says the source's label everywhere, the best head changes as fast as it may.
    for theorem, shape in (("joint", form), ("features", "sharp")):
        truth, bound = reached(theorem, shape, [0.0, 1.0], [0, 1], slopes=[0.0, 2.0], offsets=[-40.0, -1.0], alpha=1.0)
        assert truth == pytest.approx(1)
        assert bound == pytest.approx(truth)


@pytest.mark.parametrize("kind", ["features", "joint"])
def test_oracle_never_understates(kind: str) -> None:
    """Bound, refined bound and ideal term from found heads, where a perfect head of the same constant may exist."""
    rng = np.random.default_rng(5)
    for k in range(20):
        loss, form = ("tv", "euclidean")[k % 2], FORMS[k // 2 % 3]
        case = instance(rng, loss)
        n = case.n
        report = case.problem(kind, loss).report(case.alpha, case.beta, form=form)
        assert report.total_with_labels is None
        full = with_labels(
            report, case.x[:n], case.y[:n], case.x[n:], case.proba[0, :n], case.proba[0, n:], case.y[n:], iterations=5
        )
        assert full.target_loss == pytest.approx(case.losses[0, n:].mean())
        assert full.total == report.total
        assert full.ideal is not None
        assert full.total_with_labels is not None
        assert full.total_refined is not None
        assert full.target_loss <= full.total_refined + 1e-9
        assert full.total_refined <= full.total_with_labels + 1e-9
        learnt = case._replace(losses=case.losses[:1])  # the learnt head alone: S + T - min S with min S >= 0
        cap = learnt.ideal(kind, report)
        if kind == "joint":
            assert report.p is not None
            cap += (1 if form == "paper" else case.alpha) * float(case.losses[0, :n] @ report.p) / case.alpha
        assert full.ideal <= cap + 1e-9


@st.composite
def problems(draw: st.DrawFn) -> tuple[Instance, str, str]:
    loss = draw(st.sampled_from(["tv", "euclidean"]))
    case = instance(np.random.default_rng(draw(st.integers(0, 2**32))), loss)
    return case, draw(st.sampled_from(["features", "joint"])), loss


@given(problem=problems())
@settings(max_examples=60)
def test_facts_about_the_terms(problem: tuple[Instance, str, str]) -> None:
    case, kind, loss = problem
    ready = case.problem(kind, loss)
    whole = ready.report(1.0, case.beta)
    assert whole["target left out"].value == pytest.approx(0, abs=1e-12)
    part = ready.report(case.alpha, case.beta)
    assert 0 <= (part["target left out"].value or 0.0) <= 1 - case.alpha + 1e-12
    mixed = ready.report(case.alpha, case.beta, form="mixed")
    assert mixed["source loss"].value == pytest.approx(case.alpha * (part["source loss"].value or 0.0), abs=1e-12)
    assert mixed["target left out"].value == 1 - case.alpha
    sharp = ready.report(case.alpha, case.beta, form="sharp")
    assert sharp.total <= mixed.total + 1e-7
    paper = ready.report(case.alpha, case.beta, plan="paper")
    left = ("target left out",)

    def moved(report: BoundReport) -> float:
        return sum(term.value or 0.0 for term in report.terms if term.name not in left)

    def transport(report: BoundReport) -> float:
        return sum(term.value or 0.0 for term in report.terms if term.name.startswith("transport"))

    assert moved(part) <= moved(paper) + 1e-7
    assert transport(paper) <= transport(part) + 1e-7
    # A smaller beta only loosens constraints.
    assert moved(ready.report(case.alpha, case.beta / 2)) <= moved(part) + 1e-7
    assert moved(ready.report(case.alpha, case.beta, eps=0.1)) >= moved(part) - 1e-7


@given(problem=problems(), form=st.sampled_from(["mixed", "sharp"]))
@settings(max_examples=40)
def test_best_alpha_is_the_best(problem: tuple[Instance, str, str], form: str) -> None:
    case, kind, loss = problem
    ready, m = case.problem(kind, loss), len(case.x) - case.n
    best = ready.report(ready.best_alpha(case.beta, form=form), case.beta, form=form)
    for alpha in (*np.linspace(1 / m, 1, 7), case.alpha):
        assert alpha < 1 / m or best.total <= ready.report(float(alpha), case.beta, form=form).total + 1e-6


@given(problem=problems(), scale=st.sampled_from([1e-3, 10.0]), seed=st.integers(0, 99))
@settings(max_examples=40)
def test_units_order_and_place_of_the_features_do_not_matter(
    problem: tuple[Instance, str, str], scale: float, seed: int
) -> None:
    case, kind, loss = problem
    rng = np.random.default_rng(seed)
    n = case.n
    order = np.concatenate([rng.permutation(n), n + rng.permutation(len(case.x) - n)])
    moved = scale * (case.x[order] + rng.normal(size=case.x.shape[1]))
    other = case._replace(x=moved, y=case.y[order], proba=case.proba[:, order], gamma=case.gamma / scale)
    first = case.problem(kind, loss).report(case.alpha, case.beta)
    second = other.problem(kind, loss).report(case.alpha, case.beta)
    # Among plans of equal cost either may be taken: compare what all of them share.
    assert first.total - (first["target left out"].value or 0.0) == pytest.approx(
        second.total - (second["target left out"].value or 0.0), rel=1e-6, abs=1e-6
    )


def worst_directions(W: np.ndarray, loss: str) -> tuple[np.ndarray, np.ndarray]:  # noqa: N803
    """Return the direction and the bias at which the constant of a linear head is nearly reached."""
    centred = W - W.mean(axis=0)
    if loss == "tv":
        gaps = np.linalg.norm(W[:, None] - W[None], axis=2)
        k, other = np.unravel_index(gaps.argmax(), gaps.shape)
        h, bias = W[k] - W[other], np.full(len(W), -60.0)
        bias[[k, other]] = 0.0
        return h / np.linalg.norm(h), bias
    return np.linalg.svd(centred)[2][0], np.zeros(len(W))


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
def test_constant_of_a_linear_head(loss: str) -> None:
    rng = np.random.default_rng(3)
    metric, reached = LOSSES[loss], []
    for _ in range(60):
        C, d = rng.integers(2, 7), rng.integers(1, 5)
        W = rng.normal(size=(C, d)) * np.exp(rng.uniform(-2, 2))
        gamma = head_lipschitz(W + 5 * rng.normal(size=d), loss).value  # a shift common to all rows is not seen
        assert gamma == pytest.approx(head_lipschitz(W, loss).value)
        u = rng.normal(size=(200, d)) * 2
        v = u + rng.normal(size=(200, d)) * np.exp(rng.uniform(-6, 1, (200, 1)))
        bias = rng.normal(size=C)
        change = metric.between(softmax(u @ W.T + bias), softmax(v @ W.T + bias))
        assert (change <= gamma * np.linalg.norm(u - v, axis=1) * (1 + 1e-9) + 1e-13).all()
        h, bias = worst_directions(W, loss)
        step = 1e-4 / np.linalg.norm(W) * h
        near = metric.between(softmax(W @ step + bias), softmax(-W @ step + bias)) / (2 * np.linalg.norm(step))
        assert near <= gamma * (1 + 1e-6)
        reached.append(near / gamma)
    # For total variation the constant is reached between two classes; the Euclidean one is, with two classes alone.
    assert max(reached) > 0.999
    assert loss == "euclidean" or min(reached) > 0.999


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
def test_constant_of_a_network(loss: str) -> None:
    torch.manual_seed(0)
    nn = torch.nn
    norm = nn.BatchNorm1d(6)
    norm.running_var = torch.rand(6) + 0.2
    nn.init.normal_(norm.weight)
    network = nn.Sequential(
        nn.Sequential(nn.Linear(4, 6), norm, nn.GELU()),
        nn.Dropout(0.5), nn.Linear(6, 6), nn.LeakyReLU(1.5), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3),
    ).double().eval()  # fmt: skip
    bare = nn.Sequential(*network, nn.Sigmoid())
    u = torch.randn(4000, 4, dtype=torch.float64)
    v = u + torch.randn_like(u) * torch.logspace(-4, 0, 4000, dtype=torch.float64)[:, None]
    for module in (network, bare, nn.Sequential(network, nn.Identity(), nn.ReLU()), network[-1]):
        gamma = module_lipschitz(module, loss).value
        a, b = (u, v) if module is not network[-1] else (torch.randn(4000, 5).double(), torch.randn(4000, 5).double())
        with torch.no_grad():
            change = LOSSES[loss].between(*(torch.softmax(module(x), dim=1).numpy() for x in (a, b)))
        assert 0 < (change / (a - b).norm(dim=1).numpy()).max() <= gamma
    assert module_lipschitz(network[-1], loss) == head_lipschitz(network[-1].weight, loss)
    assert module_lipschitz(bare, loss).value < module_lipschitz(nn.Sequential(*network, nn.ReLU()), loss).value
