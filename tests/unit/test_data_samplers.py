"""Samplers: their front door, their refusals, and the batches of the paper."""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.data import ClassBalanced, Shuffled, Weighted, make_sampler
from warmpot.errors import InputError

LABELS = np.repeat([4, 7, 9], [1, 5, 20])


def test_epochs_are_permutations_of_the_seed_and_their_number() -> None:
    sampler = Shuffled(6, batch=4, seed=3)
    orders = [np.random.default_rng([3, e]).permutation(6) for e in range(2)]
    found = [sampler.batch(step) for step in range(3)]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(orders))


def test_fewer_samples_than_a_batch() -> None:
    for sampler in (Shuffled(3, 10), ClassBalanced([0, 1, 1], 10), Weighted([1.0, 2.0, 3.0], 10)):
        batch = sampler.batch(5)
        assert batch.shape == (10,)
        assert batch.dtype == np.int64
        assert set(batch.tolist()) <= {0, 1, 2}
    counts = np.bincount(Shuffled(3, 10).batch(0))
    assert counts.max() - counts.min() <= 1


def test_the_preset_of_the_paper() -> None:
    labels = np.repeat(np.arange(65), 4)
    batch = ClassBalanced(labels, batch=65, seed=1).batch(123)
    assert sorted(labels[batch].tolist()) == list(range(65))


def test_fewer_places_than_classes_go_round() -> None:
    labels = np.repeat(np.arange(65), 3)
    sampler = ClassBalanced(labels, batch=36)
    drawn = [labels[sampler.batch(step)] for step in range(65)]
    assert all(len(set(batch.tolist())) == 36 for batch in drawn)  # never a class twice
    assert np.bincount(np.concatenate(drawn)).tolist() == [36] * 65


def test_the_order_of_classes_changes() -> None:
    labels = np.arange(6)
    sampler = ClassBalanced(labels, batch=3)
    assert len({tuple(sorted(sampler.batch(step).tolist())) for step in range(40)}) > 5


def test_weights_are_probabilities() -> None:
    weights = np.array([0.0, 1.0, 3.0, 0.0, 4.0, 0.0])
    sampler = Weighted(weights, batch=50)
    counts = np.bincount(np.concatenate([sampler.batch(step) for step in range(400)]), minlength=6)
    np.testing.assert_allclose(counts / counts.sum(), weights / weights.sum(), atol=0.015)
    assert counts[weights == 0].tolist() == [0, 0, 0]


def test_tensors_are_welcome() -> None:
    np.testing.assert_array_equal(ClassBalanced(torch.tensor(LABELS), 7).batch(3), ClassBalanced(LABELS, 7).batch(3))
    np.testing.assert_array_equal(Weighted(torch.ones(5), 7).batch(3), Weighted(np.ones(5), 7).batch(3))


def test_make_sampler() -> None:
    assert isinstance(make_sampler("shuffled", 4, n=9), Shuffled)
    assert make_sampler("shuffled", 4, labels=LABELS).n == len(LABELS)
    assert make_sampler("shuffled", 4, weights=np.ones(8)).n == 8
    assert isinstance(make_sampler("balanced", 4, labels=LABELS), ClassBalanced)
    weighted = make_sampler("weighted", 4, 9, weights=[1.0, 2.0])
    assert isinstance(weighted, Weighted)
    assert (weighted.n, weighted.size, weighted.seed) == (2, 4, 9)


def test_samplers_travel_to_other_processes() -> None:
    for sampler in (Shuffled(9, 4), ClassBalanced(LABELS, 4), Weighted(np.ones(9), 4)):
        expected = sampler.batch(11)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(sampler)).batch(11), expected)


def test_a_far_step_costs_no_more_than_the_first() -> None:
    begun = time.perf_counter()
    for sampler in (Shuffled(1000, 65), ClassBalanced(LABELS, 65), Weighted(np.ones(1000), 65)):
        assert sampler.batch(10**9).shape == (65,)
    assert time.perf_counter() - begun < 1


BAD: dict[str, tuple[Any, str]] = {
    "no samples": (lambda: Shuffled(0, 4), "n: got 0"),
    "no batch": (lambda: Shuffled(4, 0), "batch: got 0"),
    "seed": (lambda: Shuffled(4, 4, seed=-1), "seed: got -1"),
    "step": (lambda: Shuffled(4, 4).batch(-1), "step: got -1"),
    "step of a balanced one": (lambda: ClassBalanced(LABELS, 4).batch(-1), "step: got -1"),
    "fractional step": (lambda: Weighted([1.0], 4).batch(0.5), "step: got 0.5"),  # type: ignore[arg-type]
    "real labels": (lambda: ClassBalanced([0.5, 1.0], 4), r"labels: got shape \(2,\) of float64.*shuffled"),
    "no labels": (lambda: ClassBalanced([], 4), r"labels: got shape \(0,\)"),
    "two-dimensional labels": (lambda: ClassBalanced(np.eye(3, dtype=int), 4), r"shape \(3, 3\)"),
    "negative weights": (lambda: Weighted([1.0, -1.0], 4), "weights: got 1 negative entries"),
    "zero weights": (lambda: Weighted([0.0, 0.0], 4), "weights: got total 0"),
    "NaN weights": (lambda: Weighted([1.0, np.nan], 4), "weights: got 1 non-finite"),
    "empty weights": (lambda: Weighted([], 4), r"weights: got shape \(0,\)"),
    "one weight": (lambda: Weighted(1.0, 4), "weights: got float"),
    "no weights": (lambda: Weighted(None, 4), "weights: got NoneType"),
    "two-dimensional weights": (lambda: Weighted(np.ones((2, 2)), 4), r"shape \(2, 2\)"),
    "kind": (lambda: make_sampler("random", 4), "kind: got 'random'; allowed: 'balanced' or 'shuffled' or 'weighted'"),
    "balanced without labels": (lambda: make_sampler("balanced", 4), "labels: got None"),
    "weighted without weights": (lambda: make_sampler("weighted", 4), "weights: got None"),
    "shuffled without a number": (lambda: make_sampler("shuffled", 4), "n: got None"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(InputError, match=message):
        call()
