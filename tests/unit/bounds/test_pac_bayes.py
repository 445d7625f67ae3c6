"""The PAC-Bayes lemma and corollaries: closed forms, bookkeeping, bad input."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.bounds import feature_bound, head_lipschitz, joint_bound
from warmpot.bounds._gaussian import GaussianHead, gaussian_kl
from warmpot.bounds.intervals import mean_upper_bound
from warmpot.bounds.pac_bayes import lambda_grid, pac_bayes_bound, pac_bayes_penalty
from warmpot.errors import InputError
from warmpot.transport import round_to_feasible

TINY = 1e-12
"""A posterior so narrow that every head drawn is its centre."""


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.as_tensor(logits), dim=1).numpy()


def task(seed: int = 0, n_s: int = 60, n_t: int = 40, spread: float = 0.05) -> dict[str, Any]:
    """Three classes on the axes, far apart in units of the head; the target is short of the last one."""
    rng, d, classes = np.random.default_rng(seed), 3, 3
    labels = rng.integers(0, classes, n_s)
    hidden = rng.integers(0, classes - 1, n_t)
    source = np.eye(classes, d)[labels] + spread * rng.standard_normal((n_s, d)) + 4.0
    target = np.eye(classes, d)[hidden] + spread * rng.standard_normal((n_t, d)) + 4.0
    weight = 3.0 * np.eye(classes, d) + 0.1 * rng.standard_normal((classes, d))
    return {
        "source": source,
        "labels": labels,
        "target": target,
        "weight": weight,
        "bias": rng.standard_normal(classes),
    }


def test_divergence_is_that_of_torch_distributions() -> None:
    rng = np.random.default_rng(0)
    m, m0 = rng.standard_normal((2, 7))
    for s, s0 in [(0.3, 0.3), (0.1, 2.0), (1.5, 0.4), (1.0, 1.0 + 1e-9)]:
        posterior = torch.distributions.Normal(torch.as_tensor(m), s)
        prior = torch.distributions.Normal(torch.as_tensor(m0), s0)
        expected = float(torch.distributions.kl_divergence(posterior, prior).sum())
        assert gaussian_kl(float(np.square(m - m0).sum()), 7, s, s0) == pytest.approx(expected, rel=1e-9)
    assert gaussian_kl(0.0, 10**6, 0.7, 0.7) == 0.0


def test_divergence_is_the_mean_of_log_density_ratios() -> None:
    rng = np.random.default_rng(1)
    m, m0, s, s0 = np.array([0.5, -1.0]), np.array([0.0, 0.2]), 0.6, 0.9
    x = m + s * rng.standard_normal((400_000, 2))
    log_ratio = -np.square((x - m) / s).sum(1) / 2 + np.square((x - m0) / s0).sum(1) / 2 - 2 * math.log(s / s0)
    error = log_ratio.std() / math.sqrt(len(x))
    assert abs(log_ratio.mean() - gaussian_kl(float(np.square(m - m0).sum()), 2, s, s0)) < 4 * error


def test_what_all_classes_share_costs_nothing() -> None:
    """The divergence of what softmax sees: marginals on the differences to the first class."""
    rng = np.random.default_rng(2)
    a, b = (GaussianHead(rng.standard_normal((3, 2)), rng.standard_normal(3)) for _ in range(2))
    shifted = GaussianHead(a.weight + np.array([5.0, -1.0]), a.bias + 7.0)
    assert shifted.square_from(a) == pytest.approx(0.0, abs=1e-20)
    assert shifted.square_from(b) == pytest.approx(a.square_from(b), rel=1e-12)
    contrast = torch.tensor([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]).double()
    s, s0, expected = 0.4, 0.7, 0.0
    for change in np.column_stack([a.weight - b.weight, a.bias - b.bias]).T:
        normal = torch.distributions.MultivariateNormal
        posterior = normal(contrast @ torch.as_tensor(change), s**2 * contrast @ contrast.T)
        prior = normal(torch.zeros(2).double(), s0**2 * contrast @ contrast.T)
        expected += float(torch.distributions.kl_divergence(posterior, prior))
    assert gaussian_kl(a.square_from(b), a.size, s, s0) == pytest.approx(expected, rel=1e-10)


def test_penalty_is_the_lemma_at_the_best_lambda() -> None:
    kl, n_t, delta, grid = 3.0, 70, 0.1, [5.0, 30.0, 50.0, 900.0]
    by_hand = [lam / (8 * n_t) + (kl + math.log(len(grid) / delta)) / lam for lam in grid]
    found = pac_bayes_penalty(kl, n_t, delta, grid)
    assert found.total == pytest.approx(min(by_hand), rel=1e-12)
    assert found.lam == grid[int(np.argmin(by_hand))]
    assert found.complexity == pytest.approx(kl / found.lam, rel=1e-12)


def test_a_grid_of_lambdas_pays_for_itself() -> None:
    one, twice = pac_bayes_penalty(1.0, 100, 0.05, [60.0]), pac_bayes_penalty(1.0, 100, 0.05, [60.0, 60.0])
    assert twice.total - one.total == pytest.approx(math.log(2) / 60, rel=1e-9)


@pytest.mark.parametrize("n_t", [1, 10, 200, 1811, 10**6])
def test_default_grid_is_close_to_the_best_lambda(n_t: int) -> None:
    grid = lambda_grid(n_t)
    for K in np.geomspace(1.0, 2.0 * n_t, 50):
        at_best = math.sqrt(K / (2 * n_t))
        on_grid = (K / grid + grid / (8 * n_t)).min()
        assert at_best * (1 - 1e-12) <= on_grid <= 1.03 * at_best


@pytest.mark.parametrize("kind", ["joint", "features"])
@pytest.mark.parametrize("form", ["paper", "mixed", "sharp"])
@pytest.mark.parametrize("loss", ["tv", "euclidean"])
def test_a_narrow_posterior_gives_the_terms_of_the_theorem(kind: str, form: str, loss: str) -> None:
    data = task()
    settings: dict[str, Any] = {"alpha": 0.8, "beta": 0.5, "loss": loss, "form": form}
    report = pac_bayes_bound(**data, kind=kind, posterior_scales=TINY, draws=3, **settings)
    head = data.pop("weight"), data.pop("bias")
    proba = [softmax(data[side] @ head[0].T + head[1]) for side in ("source", "target")]
    gamma = head_lipschitz(head[0], loss)
    if kind == "joint":
        expected = joint_bound(*data.values(), *proba, gamma=gamma, **settings)
    else:
        expected = feature_bound(*data.values(), proba[0], gamma=gamma, **settings)
    for term in expected.terms:
        if term.computable:
            assert report[term.name].value == pytest.approx(term.value, rel=1e-7, abs=1e-9)
        else:
            assert report[term.name] == term
    assert (report.plan.kind, report.plan.status) == (expected.plan.kind, expected.plan.status)
    assert report.theorem == f"PAC-Bayes, {expected.theorem}"


@pytest.mark.parametrize("kind", ["joint", "features"])
def test_terms_are_the_means_over_drawn_heads(kind: str) -> None:
    """Against the theorems, head by head, with the plan held fixed and the draws repeated here."""
    data, seed, scale, draws = task(1), 5, 0.3, 4
    plan = np.full((60, 40), 0.9 / 2400)
    report = pac_bayes_bound(
        **data, kind=kind, alpha=0.9, beta=0.8, plan=plan, posterior_scales=scale, draws=draws, seed=seed
    )
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[1])
    source, labels, target, weight, bias = data.values()
    origin, found = source.mean(axis=0), []
    for _ in range(draws):
        W = weight + scale * rng.standard_normal(weight.shape)
        b = bias + weight @ origin + scale * rng.standard_normal(bias.shape)
        proba = [softmax((x - origin) @ W.T + b) for x in (source, target)]
        shared: dict[str, Any] = {"alpha": 0.9, "beta": 0.8, "plan": plan}
        if kind == "joint":
            one = joint_bound(source, labels, target, *proba, gamma=head_lipschitz(W, "euclidean"), **shared)
        else:
            one = feature_bound(source, labels, target, proba[0], gamma=head_lipschitz(W, "tv"), **shared)
        found.append([term.value for term in one.terms if term.computable])
    assert report.vacuous  # so its terms are not cut
    means = np.mean(found, axis=0)
    np.testing.assert_allclose([t.value for t in report.terms if t.computable][: len(means)], means, rtol=1e-10)


def easy(**changes: Any) -> dict[str, Any]:
    """A bound far below 1: few features, a large target sample, a prior at the head."""
    data = task(3, n_s=60, n_t=400, spread=0.01)
    data["weight"], data["bias"] = data["weight"] * 2.0, data["bias"] * 0.1
    data["prior"] = (data["weight"], data["bias"])
    return {**data, "beta": 0.5, "prior_scales": [0.05, 0.5], "posterior_scales": [0.05, 0.5], "draws": 60, **changes}


def test_terms_add_up_and_are_not_negative() -> None:
    for changes in ({}, {"kind": "features"}, {"alpha": 0.7}, {"prior": "zero"}, {"posterior_scales": 3.0}):
        report = pac_bayes_bound(**easy(**changes))
        values = [term.value for term in report.terms if term.computable]
        assert all(value is not None and value >= 0 and math.isfinite(value) for value in values)
        assert report.total == pytest.approx(sum(values))
        assert report.confidence == pytest.approx(0.95)
        assert report.total_with_labels is None


def test_heads_above_one_count_as_one() -> None:
    """Wide draws: some heads have a bound above 1, the cut mean enters, and the report says so."""
    data = easy(posterior_scales=3.0, prior_scales=3.0, draws=100)
    report = pac_bayes_bound(**data)
    assert not report.vacuous
    (note,) = [note for note in report.notes if "count as 1" in note]
    before = float(note.split("mean before ")[1].rstrip(")"))
    penalty = sum(report[name].value or 0 for name in ("complexity", "confidence", "Monte Carlo"))
    assert report.total - penalty < before
    assert sum(report[name].value or 0 for name in ("source loss", "transport, features")) < 1


def test_source_prior_beats_the_one_at_zero_and_a_larger_target_sample_helps() -> None:
    near, zero = pac_bayes_bound(**easy()), pac_bayes_bound(**easy(prior="zero"))
    assert near["complexity"].value == 0
    assert zero["complexity"].value > 0
    assert near.total < zero.total
    data = easy(prior="zero")
    fewer = {**data, "target": data["target"][:100]}
    assert pac_bayes_bound(**fewer)["confidence"].value > pac_bayes_bound(**data)["confidence"].value
    repeated = {**data, "target": np.tile(data["target"], (4, 1)), "posterior_scales": 0.05}
    assert pac_bayes_bound(**repeated).total < pac_bayes_bound(**{**data, "posterior_scales": 0.05}).total


def test_prior_scales_pay_and_posterior_scales_do_not() -> None:
    fixed = {"lambdas": [100.0], "posterior_scales": 0.05}
    one = pac_bayes_bound(**easy(**fixed, prior_scales=[0.05]))
    two = pac_bayes_bound(**easy(**fixed, prior_scales=[0.05, 1e9]))
    assert two["confidence"].value - one["confidence"].value == pytest.approx(math.log(2) / 100)  # type: ignore[operator]
    assert "1 lambdas and 2 prior scales" in two.union_bound
    many = pac_bayes_bound(**easy(**{**fixed, "posterior_scales": [1e9, 0.05]}, prior_scales=[0.05]))
    assert many["confidence"] == one["confidence"]
    assert many.total == one.total  # the pilot does not touch the draws that count


def test_same_seed_same_bound() -> None:
    assert pac_bayes_bound(**easy()) == pac_bayes_bound(**easy())
    assert pac_bayes_bound(**easy()) != pac_bayes_bound(**easy(seed=1))


def test_coordinates_do_not_matter() -> None:
    """Moving all features, or all logits, changes neither heads nor distances."""
    data = easy(posterior_scales=0.05)
    moved = {**data, "source": data["source"] + 2.0, "target": data["target"] + 2.0}
    moved["bias"] = data["bias"] - 2.0 * data["weight"].sum(axis=1) + 11.0
    moved["prior"] = (moved["weight"], moved["bias"] + 5.0)
    assert pac_bayes_bound(**moved).total == pytest.approx(pac_bayes_bound(**data).total, rel=1e-9)


def test_torch_and_no_bias() -> None:
    data = easy(bias=None, prior="zero")
    tensors = {k: torch.as_tensor(v) if isinstance(v, np.ndarray) else v for k, v in data.items()}
    tensors["weight"] = tensors["weight"].requires_grad_()
    zeros = {**data, "bias": np.zeros(3)}
    assert pac_bayes_bound(**tensors).total == pac_bayes_bound(**data).total == pac_bayes_bound(**zeros).total


def test_features_that_saw_the_target_are_called_out() -> None:
    assert any("NOT A CERTIFICATE" in note for note in pac_bayes_bound(**easy()).notes)
    assert not any("CERTIFICATE" in note for note in pac_bayes_bound(**easy(features_saw_target=False)).notes)


def test_there_is_no_room_for_target_labels() -> None:
    names = set(inspect.signature(pac_bayes_bound).parameters)
    assert {name for name in names if "label" in name} == {"labels"}


def test_infeasible_plan_is_refused_and_its_rounding_taken() -> None:
    plan = np.full((60, 40), 1.1 / 2400)
    with pytest.raises(InputError, match="round_to_feasible"):
        pac_bayes_bound(**task(), plan=plan, draws=2)
    rounded = round_to_feasible(plan, np.full(60, 1 / 60), None, 1.0)
    assert pac_bayes_bound(**task(), plan=rounded, draws=2).plan.status == "GIVEN"


def test_entropic_plan_is_rounded() -> None:
    report = pac_bayes_bound(**task(), eps=0.05, draws=2)
    assert "entropic" in report.plan.kind
    assert report.plan.residual <= 1e-12


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 0.6, "delta_mc": 0.4}, "delta_mc"),
        ({"draws": 0}, "draws"),
        ({"seed": -1}, "seed"),
        ({"kind": "both"}, "kind"),
        ({"loss": "cross_entropy"}, "loss"),
        ({"form": "best"}, "form"),
        ({"alpha": 0.0}, "alpha"),
        ({"beta": 2.0}, "beta"),
        ({"prior": "target"}, "prior"),
        ({"prior": (np.zeros((4, 3)), None)}, "prior"),
        ({"prior": (np.zeros((3, 3)), np.zeros(2))}, "bias of prior"),
        ({"prior_scales": [0.1, 0.0]}, "prior_scales"),
        ({"posterior_scales": []}, "posterior_scales"),
        ({"posterior_scales": math.nan}, "posterior_scales"),
        ({"lambdas": [-1.0]}, "lambdas"),
        ({"weight": np.zeros((3, 4))}, "weight"),
        ({"weight": np.full((3, 3), 1e40)}, "weight"),
        ({"bias": np.zeros(2)}, "bias"),
        ({"labels": np.full(60, 3)}, "labels"),
        ({"target": np.full((40, 3), np.nan)}, "target"),
    ],
)
def test_bad_input_is_named(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        pac_bayes_bound(**{**task(), "draws": 2, **changes})


def test_bad_input_of_the_lemma_is_named() -> None:
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="kl"):
            pac_bayes_penalty(bad, 10, 0.05)
    with pytest.raises(InputError, match="n_t"):
        pac_bayes_penalty(1.0, 0, 0.05)


def test_extreme_numbers_stay_numbers() -> None:
    data = task()
    for factor, scales in [(1e20, 1e-40), (1e-20, 1e40), (1e15, 1e40)]:
        moved = {**data, "source": data["source"] * factor, "target": data["target"] * factor}
        report = pac_bayes_bound(**moved, prior_scales=scales, posterior_scales=[1e-40, 1e40], draws=3)
        assert math.isfinite(report.total)


def test_confidence_bound_of_a_mean_at_the_edges() -> None:
    assert mean_upper_bound(np.ones(50), 0.05) == 1.0
    assert mean_upper_bound(np.array([0.3]), 0.05) < 1.0
    # All zeros: no method can do better than 1 - delta**(1/m); spreading the bets costs little on top.
    assert 1 - 0.05 ** (1 / 200) <= mean_upper_bound(np.zeros(200), 0.05) <= 1 - (0.05 / 64) ** (1 / 200)
