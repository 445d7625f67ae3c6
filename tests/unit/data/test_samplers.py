"""Samplers: the public constructors, refused arguments, and the batches of the paper."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.data import ClassBalanced, Shuffled, make_sampler
from warmpot.errors import InputError

LABELS = np.repeat([4, 7, 9], [1, 5, 20])


def test_an_epoch_is_a_permutation_given_by_seed_and_epoch() -> None:
    sampler = Shuffled(6, batch=4, seed=3)
    orders = [np.random.default_rng([3, e]).permutation(6) for e in range(2)]
    batches = [sampler.batch(step) for step in range(3)]
    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(orders))


def test_fewer_samples_than_a_batch() -> None:
    for sampler in (Shuffled(3, 10), ClassBalanced([0, 1, 1], 10)):
        batch = sampler.batch(5)
        assert batch.shape == (10,)
        assert batch.dtype == np.int64
        assert set(batch.tolist()) <= {0, 1, 2}
    counts = np.bincount(Shuffled(3, 10).batch(0))
    assert counts.max() - counts.min() <= 1


def test_the_paper_s_batch_has_one_sample_per_class() -> None:
    labels = np.repeat(np.arange(65), 4)
    batch = ClassBalanced(labels, batch=65, seed=1).batch(123)
    assert sorted(labels[batch].tolist()) == list(range(65))


def test_a_batch_smaller_than_the_number_of_classes_takes_turns() -> None:
    labels = np.repeat(np.arange(65), 3)
    sampler = ClassBalanced(labels, batch=36)
    drawn = [labels[sampler.batch(step)] for step in range(65)]
    assert all(len(set(batch.tolist())) == 36 for batch in drawn)  # never a class twice
    assert np.bincount(np.concatenate(drawn)).tolist() == [36] * 65


def test_the_order_of_classes_changes() -> None:
    labels = np.arange(6)
    sampler = ClassBalanced(labels, batch=3)
    assert len({tuple(sorted(sampler.batch(step).tolist())) for step in range(40)}) > 5


def test_labels_may_be_a_tensor() -> None:
    np.testing.assert_array_equal(ClassBalanced(torch.tensor(LABELS), 7).batch(3), ClassBalanced(LABELS, 7).batch(3))


def test_make_sampler() -> None:
    assert isinstance(make_sampler("shuffled", 4, n=9), Shuffled)
    assert make_sampler("shuffled", 4, labels=LABELS).n == len(LABELS)
    balanced = make_sampler("balanced", 4, 9, labels=LABELS)
    assert isinstance(balanced, ClassBalanced)
    assert (balanced.n, balanced.size, balanced.seed) == (len(LABELS), 4, 9)


def test_samplers_can_be_pickled() -> None:
    for sampler in (Shuffled(9, 4), ClassBalanced(LABELS, 4)):
        expected = sampler.batch(11)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(sampler)).batch(11), expected)


def test_a_distant_step_needs_no_steps_before_it() -> None:
    for sampler in (Shuffled(1000, 65), ClassBalanced(LABELS, 65)):
        assert sampler.batch(10**9).shape == (65,)  # would take hours if it counted up


BAD: dict[str, tuple[Any, str]] = {
    "no samples": (lambda: Shuffled(0, 4), "n: got 0"),
    "no batch": (lambda: Shuffled(4, 0), "batch: got 0"),
    "seed": (lambda: Shuffled(4, 4, seed=-1), "seed: got -1"),
    "step": (lambda: Shuffled(4, 4).batch(-1), "step: got -1"),
    "step of a balanced one": (lambda: ClassBalanced(LABELS, 4).batch(-1), "step: got -1"),
    "fractional step": (lambda: Shuffled(4, 4).batch(0.5), "step: got 0.5"),  # type: ignore[arg-type]
    "continuous targets": (lambda: ClassBalanced([0.5, 1.0], 4), r"labels: got shape \(2,\) of float64.*shuffled"),
    "no labels": (lambda: ClassBalanced([], 4), r"labels: got shape \(0,\)"),
    "two-dimensional labels": (lambda: ClassBalanced(np.eye(3, dtype=int), 4), r"shape \(3, 3\)"),
    "kind": (lambda: make_sampler("random", 4), "kind: got 'random'; allowed: 'balanced' or 'shuffled'"),
    "balanced without labels": (lambda: make_sampler("balanced", 4), "labels: got None"),
    "shuffled without a number": (lambda: make_sampler("shuffled", 4), "n: got None"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused(case: str) -> None:
    call, message = BAD[case]
    with pytest.raises(InputError, match=message):
        call()
