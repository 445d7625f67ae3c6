"""PAC-Bayes with a random bottleneck: agreement with the theorem, and simulated target samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warmpot.bounds import BoundProblem, head_lipschitz, random_feature_bound
from warmpot.errors import InputError


def softmax(z: np.ndarray) -> np.ndarray:
    z = np.exp(z - z.max(axis=-1, keepdims=True))
    return z / z.sum(axis=-1, keepdims=True)


def easy(n_t: int = 400, seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Two clusters on a line of a plane; the bottleneck takes the line."""
    rng = np.random.default_rng(seed)
    labels, hidden = np.repeat([0, 1], 30), rng.integers(0, 2, n_t)
    source, target = (
        np.column_stack([2.0 * y - 1, 0 * y]) + 0.05 * rng.normal(size=(len(y), 2)) for y in (labels, hidden)
    )
    return {
        "source": source, "labels": labels, "target": target, "bottleneck": np.array([[1.0, 0.0]]),
        "weight": np.array([[-1.5], [1.5]]), "bias": np.zeros(2), "beta": 0.5, "inputs_saw_target": False,
        "draws": 60, "delta_mc": 0.05, **changes,
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["joint", "features"])
def test_little_noise_gives_the_terms_of_the_theorem(kind: str) -> None:
    data = easy(kind=kind, noise=[1e-7])
    report = random_feature_bound(**data)
    xs, xt = (data[name] @ data["bottleneck"].T for name in ("source", "target"))
    loss = "euclidean" if kind == "joint" else "tv"
    proba = [softmax(x @ data["weight"].T) for x in (xs, xt)]
    gamma = head_lipschitz(data["weight"], loss)
    problem = BoundProblem(kind, xs, data["labels"], xt, *proba, gamma=gamma, loss=loss)
    wanted = problem.report(1.0, 0.5, form="sharp")
    for term in wanted.terms:
        if term.value is not None:
            assert report[term.name].value == pytest.approx(term.value, abs=1e-5)
    assert report["complexity"].value > 1e6  # type: ignore[operator]


def test_adapted_features_have_a_certificate() -> None:
    """A prior around the source-only bottleneck, a posterior that moved: not vacuous, and paid for."""
    prior = np.array([[1.0, 0.1]]), np.array([[-1.4], [1.4]]), np.zeros(2)
    report = random_feature_bound(**easy(prior=prior))
    assert report.total < 0.9
    assert not any("NOT A CERTIFICATE" in note for note in report.notes)
    assert report.needs_fixed_features  # with respect to the inputs
    further = random_feature_bound(**easy(prior=(np.array([[-1.0, 3.0]]), *prior[1:])))
    assert further["complexity"].value > report["complexity"].value  # type: ignore[operator]
    assert any("NOT A CERTIFICATE" in note for note in random_feature_bound(**easy(inputs_saw_target=True)).notes)


def test_it_holds_in_simulated_samples() -> None:
    """The ideal term is 0: far clusters, heads of slope above 1/2. Bottleneck and head follow the sample."""
    prior = np.array([[1.0, 0.0]]), np.array([[-1.5], [1.5]]), np.zeros(2)
    fails, runs = 0, 25
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        data = easy(n_t=60, seed=seed, prior=prior, noise=[0.1], delta=0.3, draws=20)
        tilt = 0.1 * rng.normal(size=(1, 2))
        data["bottleneck"] = data["bottleneck"] + tilt
        report = random_feature_bound(**data)
        new = easy(n_t=2000, seed=seed + 1000)["target"]
        hidden = (new[:, 0] > 0).astype(int)
        logits = (new - data["source"].mean(axis=0)) @ data["bottleneck"].T @ data["weight"].T
        loss = 1 - softmax(logits)[np.arange(2000), hidden].mean()
        fails += loss > report.total
    assert fails <= 0.35 * runs


def test_shapes_are_checked() -> None:
    with pytest.raises(InputError, match="bottleneck"):
        random_feature_bound(**easy(bottleneck=np.ones((1, 3))))
    with pytest.raises(InputError, match="prior"):
        random_feature_bound(**easy(prior=(np.ones((2, 2)), np.ones((2, 2)), None)))
