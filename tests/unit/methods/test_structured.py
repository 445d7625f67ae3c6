"""Structured prediction: its parts against brute force, what it is for, and its place in the full engine."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import vstack

from warmpot.data import Task, as_table, make_task
from warmpot.methods import Warmpot
from warmpot.methods.alternation import Alternation
from warmpot.methods.structured import _clusters, _labelled_in_steps, _most_certain, _Scatter, structured_probabilities
from warmpot.train import fit, load_config
from warmpot.weights import ClassPresence
from warmpot.weights.axes import indicators
from warmpot.weights.presence import discriminant_axes, unit_rows


def presence_of(probability: Any) -> ClassPresence:
    probability = np.asarray(probability, float)
    return ClassPresence(probability, probability / probability.sum(), {})


def blobs(present: int = 6, classes: int = 9, width: int = 70, shift: float = 1.0) -> tuple[Any, Any, Any, Any]:
    """Gaussian classes in so many columns that the engine takes them as embeddings; the target has the first ones."""
    rng = np.random.default_rng(3)
    centres = 1.5 * rng.normal(size=(classes, width))
    ys, yt = np.repeat(np.arange(classes), 12), np.repeat(np.arange(present), 15)
    xs = centres[ys] + rng.normal(size=(len(ys), width))
    xt = centres[yt] + rng.normal(size=(len(yt), width)) + shift * rng.normal(size=width)
    return xs, ys, xt, yt


def blob_task(**settings: Any) -> Task:
    xs, ys, xt, _ = blobs(**settings)
    return make_task(as_table(xs, ys), as_table(xt))[0]


@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), min_size=1, max_size=40),
    st.sampled_from([0.1, 0.5, 0.9, 1.0]),
)
def test_the_most_certain_of_each_class_are_chosen(samples: list[tuple[float, int]], share: float) -> None:
    certainty, predicted = (np.array(column) for column in zip(*samples, strict=True))
    chosen = _most_certain(certainty, predicted, share)
    for c in np.unique(predicted):
        own = predicted == c
        # as many as lie below the share of the class, and at least one
        count = sum(rank < max(share * own.sum(), 1) for rank in range(own.sum()))
        assert chosen[own].sum() == count
        assert certainty[own & (chosen > 0)].min() >= certainty[own & (chosen == 0)].max(initial=-1.0)


def test_clusters_are_a_fixed_point_and_empty_ones_stay() -> None:
    rng = np.random.default_rng(0)
    x = unit_rows(rng.normal(size=(60, 5)) + np.array([4.0, 0, 0, 0, 0]))
    start = unit_rows(np.vstack([np.eye(5)[0], x[0], -np.eye(5)[0]]))
    centres = _clusters(x, start)
    nearest = (x @ centres.T).argmax(axis=1)
    assert set(nearest) == {0, 1}
    for c in (0, 1):
        np.testing.assert_allclose(centres[c], unit_rows(x[nearest == c].mean(axis=0)[None])[0], atol=1e-12)
    np.testing.assert_array_equal(centres[2], start[2])


def test_clusters_follow_a_shift_that_nearest_means_do_not() -> None:
    """One of four classes is turned by half of the angle to the next: by the nearest mean, half of it is lost."""
    rng = np.random.default_rng(1)
    labels = np.repeat(np.arange(4), 40)

    def drawn(turned: float) -> Any:
        angles = np.deg2rad(90.0 * labels + turned * (labels == 0)) + 0.1 * rng.normal(size=len(labels))
        return np.stack([np.cos(angles), np.sin(angles), 0.05 * rng.normal(size=len(labels))], axis=1)

    xs, xt = drawn(0.0), drawn(45.0)
    means = np.stack([xs[labels == c].mean(axis=0) for c in range(4)])
    assert (unit_rows(xt) @ unit_rows(means).T).argmax(axis=1)[:40].mean() > 0.3
    found = _labelled_in_steps(np.concatenate([xs, xt]), indicators(labels, 4))
    np.testing.assert_array_equal(found.argmax(axis=1), labels)


def test_rows_sum_to_one_and_impossible_classes_get_nothing() -> None:
    xs, ys, xt, yt = blobs()
    probability = np.array([0.9, 1, 1, 0.8, 1, 1, 0.6, 0, 0])
    found = structured_probabilities(xs, ys, xt, presence_of(probability))
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert not found[:, 7:].any()
    assert (found.argmax(axis=1) == yt).mean() > 0.9


def test_one_possible_class_gets_everything() -> None:
    xs, ys, xt, _ = blobs()
    found = structured_probabilities(xs, ys, xt, presence_of(np.eye(9)[4]))
    np.testing.assert_array_equal(found, np.tile(np.eye(9)[4], (len(xt), 1)))


def test_it_is_averaged_in_for_embeddings_with_enough_classes() -> None:
    def used(number: int, **settings: Any) -> bool:
        config = load_config("full")
        rounds = Alternation(config.built_method, blob_task(**settings), config.full, config.label_loss, 0)
        return rounds._structured(presence_of([1.0] * number + [0.0] * (9 - number))) is not None

    assert used(6)
    assert not used(4)  # one class too many would split the cluster of another
    assert not used(6, width=10)  # measurements, not embeddings


def test_an_interrupted_run_with_it_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, work = load_config("full"), Alternation.round

    def stopped(self: Alternation, number: int) -> Any:
        if number == 4:
            raise KeyboardInterrupt
        return work(self, number)

    whole = fit(blob_task(), config, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Alternation, "round", stopped)
        with pytest.raises(KeyboardInterrupt):
            fit(blob_task(), config, out=tmp_path / "stopped")
    resumed = fit(blob_task(), config, out=tmp_path / "stopped", resume=True)
    np.testing.assert_array_equal(whole.outputs, resumed.outputs)
    assert whole.history == resumed.history


def test_a_class_can_supply_twice_its_part() -> None:
    labels, outputs = torch.arange(8).repeat(5), torch.zeros(10, 8)
    method, presence = Warmpot(alpha=0.5, beta="auto"), np.array([1.0, 1, 0.5, 0, 0, 0, 0, 0])
    beta, supply = method.supply(outputs, labels, presence)
    np.testing.assert_allclose(supply / 8 / beta, 2 * presence / 2.5)


def test_plans_see_the_average_first_and_the_classifier_alone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, plan = list[torch.Tensor](), Warmpot.plan

    def recorded(self: Warmpot, costs: Any, labels: Any, outputs: torch.Tensor, *rest: Any) -> Any:
        seen.append(outputs)
        return plan(self, costs, labels, outputs, *rest)

    monkeypatch.setattr(Warmpot, "plan", recorded)
    config = load_config("full", changes={"full": {"rounds": 2}})
    rounds = config.built_method.rounds(blob_task(), config.full, config.label_loss, 0)
    assert isinstance(rounds, Alternation)
    monkeypatch.setattr(Alternation, "_structured", lambda self, _: torch.full_like(self.outputs()[1].logits, 1 / 9))
    rounds.start()
    first = rounds.outputs()[1].logits
    rounds.round(2)  # of more than one class
    assert len(seen) == 4
    torch.testing.assert_close(seen[0], (0.5 * (first.double().softmax(dim=1) + 1 / 9) + 1e-4).log())
    spread = [outputs.softmax(dim=1).min() for outputs in seen]
    assert min(spread[:2]) > 0.05 > max(spread[2:])  # half of it is equal shares, then none


def test_many_classes_need_no_matrix_of_classes_by_classes() -> None:
    rng = np.random.default_rng(0)
    x, centres = unit_rows(rng.normal(size=(50, 8))), unit_rows(rng.normal(size=(3000, 8)))
    labels = indicators(rng.permutation(3000)[:50], 3000)
    tracemalloc.start()
    try:
        _clusters(x, centres)
        _labelled_in_steps(np.concatenate([x, x]), labels)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20e6  # 3000 x 3000 numbers are 72 MB


def test_the_discriminant_of_growing_samples_is_that_of_all_of_them() -> None:
    rng = np.random.default_rng(2)
    labels, predicted = rng.integers(4, size=60), rng.integers(4, size=50)
    xs, xt = rng.normal(size=(60, 9)) + labels[:, None], rng.normal(size=(50, 9)) + predicted[:, None]
    one_hot = indicators(labels, 4)
    scatter = _Scatter(xs, one_hot, xt)
    for share in (0.0, 0.3, 0.2, 1.0):
        chosen = (rng.uniform(size=50) < share).astype(float)
        predicted = rng.permutation(predicted)
        whole = vstack([one_hot, indicators(predicted, 4)], "csr")
        expected = discriminant_axes(np.concatenate([xs, xt]), whole, np.concatenate([np.ones(60), chosen]))
        np.testing.assert_allclose(scatter.axes(chosen, indicators(predicted, 4)), expected, rtol=1e-9, atol=1e-9)
