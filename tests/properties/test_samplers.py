"""Batches are pure functions of seed and step, and draw samples evenly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpot.data import ClassBalanced, Sampler, Shuffled

SIZES = st.integers(1, 30)
SEEDS = st.integers(0, 2**40)
LABELS = st.lists(st.integers(0, 6), min_size=1, max_size=30).map(np.array)
STEPS = 25

MAKERS: dict[str, Callable[[np.ndarray, int, int], Sampler]] = {
    "shuffled": lambda labels, batch, seed: Shuffled(len(labels), batch, seed),
    "balanced": lambda labels, batch, seed: ClassBalanced(labels, batch, seed),
}


@pytest.mark.parametrize("kind", MAKERS)
@given(labels=LABELS, batch=SIZES, seed=SEEDS, order=st.permutations(range(STEPS)))
def test_any_step_in_any_order_gives_the_same_batch(
    kind: str, labels: np.ndarray, batch: int, seed: int, order: list[int]
) -> None:
    sampler, other = MAKERS[kind](labels, batch, seed), MAKERS[kind](labels, batch, seed)
    in_turn = [sampler.batch(step) for step in range(STEPS)]
    for step in order:
        np.testing.assert_array_equal(other.batch(step), in_turn[step])
        np.testing.assert_array_equal(MAKERS[kind](labels, batch, seed).batch(step), in_turn[step])


@pytest.mark.parametrize("kind", MAKERS)
@given(labels=LABELS, batch=SIZES, seed=SEEDS, step=st.integers(0, 2**40))
def test_a_batch_is_full_and_in_range(kind: str, labels: np.ndarray, batch: int, seed: int, step: int) -> None:
    rows = MAKERS[kind](labels, batch, seed).batch(step)
    assert rows.shape == (batch,)
    assert rows.dtype == np.int64
    assert rows.min() >= 0
    assert rows.max() < len(labels)


@pytest.mark.parametrize("kind", MAKERS)
@given(seed=SEEDS)
def test_seeds_differ(kind: str, seed: int) -> None:
    labels = np.arange(60) % 3
    first, second = (MAKERS[kind](labels, 60, s).batch(0).tolist() for s in (seed, seed + 1))
    assert first != second


@given(n=SIZES, batch=SIZES, seed=SEEDS)
def test_shuffled_draws_every_sample_equally_often(n: int, batch: int, seed: int) -> None:
    sampler = Shuffled(n, batch, seed)
    counts = np.zeros(n, dtype=int)
    for step in range(STEPS):
        np.add.at(counts, sampler.batch(step), 1)
        assert counts.max() - counts.min() <= 1


@given(labels=LABELS, batch=SIZES, seed=SEEDS)
def test_balanced_draws_classes_and_their_samples_equally_often(labels: np.ndarray, batch: int, seed: int) -> None:
    sampler = ClassBalanced(labels, batch, seed)
    classes, codes = np.unique(labels, return_inverse=True)
    counts = np.zeros(len(labels), dtype=int)
    for step in range(STEPS):
        drawn = sampler.batch(step)
        in_batch = np.bincount(codes[drawn], minlength=len(classes))
        assert set(in_batch.tolist()) <= {batch // len(classes), -(-batch // len(classes))}
        np.add.at(counts, drawn, 1)
        for c in range(len(classes)):
            assert np.ptp(counts[codes == c]) <= 1
        by_class = np.bincount(codes, weights=counts, minlength=len(classes))
        assert np.ptp(by_class) <= 1
        np.testing.assert_array_equal(by_class, sampler._counts_before(step + 1))
