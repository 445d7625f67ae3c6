"""Evidence for labels of the target: closed forms, what it must prefer, and what must not change it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpot.weights.evidence import STILL, LabelEvidence


def blobs(classes: int = 4, n: int = 20, shift: float = 0.5, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    centres = 8 * np.eye(classes, 6)
    ys, yt = np.repeat(np.arange(classes), n), np.repeat(np.arange(classes - 1), n)
    return centres[ys] + rng.normal(size=(len(ys), 6)), ys, centres[yt] + rng.normal(size=(len(yt), 6)) + shift, yt


def test_the_truth_has_more_of_everything_than_a_split_a_merger_or_a_swap() -> None:
    xs, ys, xt, yt = blobs()
    found = LabelEvidence(xs, ys, xt, 4)
    truth = found.of(yt)
    split, merged = np.where(np.arange(len(yt)) % 2 & (yt == 0), 3, yt), np.where(yt == 2, 1, yt)
    swapped = np.array([1, 0, 2])[yt]
    assert truth.clusters > found.of(split).clusters
    assert truth.clusters > found.of(merged).clusters
    assert truth.move > found.of(swapped).move
    assert found.of(swapped).clusters == pytest.approx(truth.clusters)  # names do not matter to them


def test_numbers_in_closed_form() -> None:
    xs = np.array([[-1.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    xt, labels = np.array([[-1.0, 0.5], [-1.0, -0.5], [2.0, 0.5], [2.0, -0.5]]), np.array([0, 0, 1, 1])
    found = LabelEvidence(xs, labels, xt, 2).of(labels)
    # the first class stays, the second moves by 1, as far as either class is from the mean of both
    assert found.move == pytest.approx(-np.log(0.5 + STILL))
    variance = 4 * 0.25 / 8
    assert found.clusters == pytest.approx(-0.5 * np.log(variance) - np.log(2) / 2 - 0.5 * np.log(4) * 6 / 8)


@given(st.integers(0, 1000), st.floats(0.1, 10.0), st.permutations(range(4)))
def test_it_depends_on_no_order_names_or_units_but_the_penalty(seed: int, scale: float, names: list[int]) -> None:
    xs, ys, xt, yt = blobs(seed=seed)
    order = np.random.default_rng(seed).permutation(len(yt))
    renamed = np.array(names)
    one = LabelEvidence(xs, ys, xt, 4).of(yt)
    other = LabelEvidence(scale * xs, renamed[ys], scale * xt[order], 4).of(renamed[yt[order]])
    assert other.move == pytest.approx(one.move, abs=1e-6)
    assert other.clusters == pytest.approx(one.clusters - np.log(scale), abs=1e-6)


@pytest.mark.parametrize("n", [1, 2, 30])
def test_it_is_finite_for_any_size_and_for_equal_samples(n: int) -> None:
    xs, ys, _, _ = blobs()
    for xt in (np.zeros((n, 6)), np.random.default_rng(0).normal(size=(n, 6))):
        for labels in (np.zeros(n, int), np.arange(n) % 4):
            assert np.isfinite(LabelEvidence(xs, ys, xt, 4).of(labels)).all()
