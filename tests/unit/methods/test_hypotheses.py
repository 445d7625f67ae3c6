"""Hypotheses about the number of classes: which are tried, their weights, and their place in the full engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from warmpot.data import Task, Truth, as_table, make_task
from warmpot.methods.alternation import Alternation
from warmpot.methods.hypotheses import Hypotheses, class_numbers, support
from warmpot.select import fit_chosen
from warmpot.train import fit, load_config
from warmpot.weights import ClassPresence
from warmpot.weights.evidence import Evidence, LabelEvidence


def small(present: tuple[int, ...] = (0, 1), classes: int = 6, n: int = 20, shift: float = 0.5) -> tuple[Task, Truth]:
    rng = np.random.default_rng(0)
    centres = 4 * rng.normal(size=(classes, 8))
    ys, yt = np.repeat(np.arange(classes), n), np.repeat(present, n)
    xs, xt = centres[ys] + rng.normal(size=(len(ys), 8)), centres[yt] + rng.normal(size=(len(yt), 8)) + shift
    task, truth = make_task(as_table(xs, ys), as_table(xt, yt, classes=[str(c) for c in range(classes)]))
    assert truth is not None
    return task, truth


def hypotheses(task: Task, probability: Any) -> Hypotheses:
    probability = np.asarray(probability, float)
    evidence = LabelEvidence(task.xs, np.asarray(task.ys), task.xt, task.n_classes)
    return Hypotheses(ClassPresence(probability, probability / probability.sum(), {}), evidence, task.n_target)


@given(st.floats(0.1, 300), st.integers(1, 200))
def test_one_class_all_classes_and_the_estimate_are_tried(expected: float, possible: int) -> None:
    numbers = class_numbers(expected, possible)
    assert numbers[0] == 1
    assert numbers[-1] == possible
    assert min(max(round(expected), 1), possible) in numbers
    assert list(numbers) == sorted(set(numbers))
    assert len(numbers) <= 5


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=30), st.floats(0.5, 1.5))
def test_odds_move_together_until_the_probabilities_sum_to_the_number(chances: list[float], part: float) -> None:
    probability = np.array([*chances, 0.0])
    estimate = ClassPresence(probability, np.full(len(probability), 1 / len(probability)), {})
    number = min(max(part * estimate.expected_number, 0.1), len(chances) - 1e-3)
    moved = estimate.with_number(number).probability
    assert moved.sum() == pytest.approx(number, rel=1e-6)
    assert moved[-1] == 0  # a class without a source sample
    odds = np.log(moved[:-1] / (1 - moved[:-1])) - np.log(probability[:-1] / (1 - probability[:-1]))
    np.testing.assert_allclose(odds, odds[0], atol=1e-5)
    np.testing.assert_array_equal(estimate.with_number(len(probability)).probability, probability > 0)


def test_more_evidence_is_more_support_and_so_is_a_number_near_the_estimate() -> None:
    base = Evidence(0.0, 0.0)
    for name in base._fields:
        assert support(3, 3.0, base._replace(**{name: 1.0})) > support(3, 3.0, base)
    assert support(3, 3.0, base) > support(6, 3.0, base) == pytest.approx(support(3, 6.0, base))
    assert support(1, 0.2, base) == support(1, 1.0, base)  # a target has a class


def test_probabilities_of_classes_are_averaged_with_the_weights_and_the_best_is_the_result() -> None:
    task, truth = small()
    tried = hypotheses(task, [0.9, 0.8, 0.2, 0.1, 0.1, 0.0])
    assert not tried.tried
    right = tried.numbers.index(2)
    for k in range(len(tried.numbers)):
        logged = tried.judge(k, torch.as_tensor(truth.yt if k == right else (truth.yt + k) % 5))
        assert logged["support"] == tried.supports[k]
    assert tried.tried
    np.testing.assert_array_equal(tried.best.probability, tried.presence(right).probability)
    weights = softmax(tried.supports.numpy())
    presence = sum(w * tried.presence(k).probability for k, w in enumerate(weights))
    np.testing.assert_allclose(tried.combined_presence().probability, presence)
    agree = [1.0 if k == right else np.mean((truth.yt + k) % 5 == truth.yt) for k in range(len(weights))]
    flat = softmax(tried.supports.numpy() / 4)
    assert tried.consensus(torch.as_tensor(truth.yt)) == pytest.approx(flat @ agree)
    # names of clusters do not matter
    assert tried.clusters_gain(truth.yt, (truth.yt + 1) % 5) == pytest.approx(0.0, abs=1e-12)
    assert tried.clusters_gain(truth.yt, np.arange(len(truth.yt)) % 2) > 0.1


@pytest.mark.parametrize("present", [(2,), (0, 3), (0, 1, 2, 3, 4, 5)])
def test_the_full_engine_finds_few_many_and_all_classes(present: tuple[int, ...]) -> None:
    task, truth = small(present)
    fitted = fit(task, load_config("full"))
    assert truth.accuracy(fitted.outputs) > 0.99
    tried = [line for line in fitted.history if "support" in line]
    assert max(tried, key=lambda line: line["support"])["classes"] == len(present) == fitted.history[-1]["classes"]
    assert fitted.presence is not None
    assert set(np.flatnonzero(fitted.presence.probability >= 0.5)) == set(present)


def test_a_wrong_and_certain_estimate_can_be_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of probability .001 had no weight and no capacity from the first round on."""
    task, truth = small((0, 1, 2))
    wrong = np.array([0.98, 0.001, 0.001, 0.0005, 0.0005, 0.0005])
    estimate = ClassPresence(wrong, wrong / wrong.sum(), {})
    monkeypatch.setattr("warmpot.methods.alternation.estimate_presence", lambda *_, **__: estimate)
    assert truth.accuracy(fit(task, load_config("full")).outputs) == 1.0


def test_a_run_that_stops_between_hypotheses_goes_on_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, work = small()[0], Alternation.round
    whole = fit(task, load_config("full"), out=tmp_path / "whole")
    for number in range(2, len(whole.history) + 1):
        folder = tmp_path / str(number)

        def stopped(self: Alternation, current: int, at: int = number) -> Any:
            if current == at:
                raise KeyboardInterrupt
            return work(self, current)

        with monkeypatch.context() as patch:
            patch.setattr(Alternation, "round", stopped)
            with pytest.raises(KeyboardInterrupt):
                fit(task, load_config("full"), out=folder)
        resumed = fit(task, load_config("full"), out=folder, resume=True)
        np.testing.assert_array_equal(whole.outputs, resumed.outputs)
        assert whole.history == resumed.history


@pytest.mark.parametrize("width", [8, 80], ids=["narrow", "wide"])
def test_the_order_of_the_samples_does_not_matter(width: int) -> None:
    """Draws of rows depended on where the samples are, and sums were rounded otherwise."""
    rng = np.random.default_rng(1)
    ys, yt = np.repeat(np.arange(5), 110), np.repeat(np.arange(3), 40)  # enough to split a class into groups
    centres = 1.2 * rng.normal(size=(5, width)) * (8 / width) ** 0.25
    xs, xt = centres[ys] + rng.normal(size=(len(ys), width)), centres[yt] + rng.normal(size=(len(yt), width)) + 0.3
    scale = 10.0 ** np.arange(width % 7 + 1).repeat(width)[:width]
    xs, xt = (np.hstack([scale * x, np.full((len(x), 1), 1.7e12)]) for x in (xs, xt))  # a time of 1970 in milliseconds
    one = fit(make_task(as_table(xs, ys), as_table(xt))[0], load_config("full"))
    for _ in range(2):
        rows, targets = rng.permutation(len(xs)), rng.permutation(len(xt))
        other = fit(make_task(as_table(xs[rows], ys[rows]), as_table(xt[targets]))[0], load_config("full"))
        assert other.history == one.history
        for name in ("outputs", "target_weights", "unadapted", "unknown"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name)[targets], err_msg=name)
        for name in ("plan_weights", "training_weights"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name)[rows], err_msg=name)
        np.testing.assert_array_equal(other.presence.probability, one.presence.probability)
        first, second = one.solution, other.solution
        np.testing.assert_array_equal(second.plan.toarray(), first.plan.toarray()[rows][:, targets])
        np.testing.assert_array_equal(second.potentials.u, first.potentials.u[rows])
        np.testing.assert_array_equal(second.potentials.v, first.potentials.v[targets])


def test_the_order_of_the_samples_does_not_matter_in_regression_or_with_a_validator() -> None:
    rng = np.random.default_rng(2)
    xs, xt = rng.normal(size=(80, 6)), rng.normal(size=(50, 6)) + 0.3
    values, classes = xs @ rng.normal(size=6), np.arange(80) % 3
    rows, targets = rng.permutation(80), rng.permutation(50)
    for ys, changes in ((values, {"loss": "absolute"}), (classes, {"choose": "neighbours"})):
        config = load_config("full", changes=changes)
        kind: Any = "regression" if "loss" in changes else "classification"
        one, other = (
            fit_chosen(make_task(as_table(x, y, task=kind), as_table(t))[0], config)
            for x, y, t in ((xs, ys, xt), (xs[rows], ys[rows], xt[targets]))
        )
        np.testing.assert_array_equal(other.outputs, one.outputs[targets])
        np.testing.assert_array_equal(other.training_weights, one.training_weights[rows])
