"""What holds of validators on any candidate: names of classes and order of samples do not matter, ranges are kept."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpot.select import VALIDATORS, Candidate, choose, explain_collapse, make_validator

seeds = st.integers(0, 2**32 - 1)


def random_evidence(seed: int) -> Candidate:
    """Candidate with everything in it; features are continuous, so no two distances tie."""
    rng = np.random.default_rng(seed)
    c, d, n_s, n_t, n_h = rng.integers([2, 1, 8, 2, 4], [6, 5, 30, 30, 12])
    head = rng.normal(size=(c, d)), rng.normal(size=c)
    sharp = 10.0 ** rng.uniform(-2, 2)

    def side(n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(n, d)) + shift
        return x, sharp * (x @ head[0].T + head[1])

    source, target, held = side(n_s, 0.0), side(n_t, rng.normal()), side(n_h, 0.0)
    inputs = [rng.normal(size=(n, d + 1)) for n in (n_s, n_t, n_h)] if rng.random() < 0.5 else [None] * 3
    return Candidate(
        *source, rng.integers(c, size=n_s), *target, *held, rng.integers(c, size=n_h), *inputs,
        source_weights=rng.random(n_s), transport=float(rng.random()), head=(sharp * head[0], sharp * head[1]),
    )  # fmt: skip


RANGES = {
    "source": lambda e: (0.0, 1.0),
    "dev": lambda e: (-math.inf, math.inf),
    "entropy": lambda e: (-math.log(e.n_classes), 0.0),
    "infomax": lambda e: (0.0, math.log(e.n_classes)),
    "nuclear": lambda e: (1 / math.sqrt(e.n_classes * len(e.target_logits)),
                          math.sqrt(min(e.target_logits.shape) / len(e.target_logits))),
    "confusion": lambda e: (-1.0, 0.0),
    "snd": lambda e: (0.0, math.log(max(len(e.target_logits) - 1, 1))),
    "neighbours": lambda e: (-math.inf, 1.0),
    "clusters": lambda e: (-math.inf, math.inf),
    "reverse": lambda e: (-1.0, 1.0),
    "plan": lambda e: (-math.inf, 0.0),
    "transport": lambda e: (-math.inf, 0.0),
    "bound": lambda e: (-math.inf, 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", VALIDATORS)
@settings(max_examples=15)
@given(seed=seeds)
def test_scores_are_finite_and_in_range(name: str, seed: int) -> None:
    e = random_evidence(seed)
    score = make_validator(name).score(e)
    low, high = RANGES[name](e)
    assert math.isfinite(score)
    assert low - 1e-9 <= score <= high + 1e-9


CASES = [(name, {}) for name in VALIDATORS] + [("neighbours", {"space": "features"}), ("reverse", {"space": "inputs"})]


@pytest.mark.parametrize(("name", "params"), CASES)
@settings(max_examples=15)
@given(seed=seeds)
def test_names_of_classes_and_order_of_samples_do_not_matter(name: str, params: dict[str, str], seed: int) -> None:
    e, rng = random_evidence(seed), np.random.default_rng(seed + 1)
    relabel = rng.permutation(e.n_classes)
    place = np.argsort(relabel)  # column k of the new logits is the old class place[k]
    fields = {}
    for side in ("source", "target", "held"):
        order = rng.permutation(len(getattr(e, f"{side}_features")))
        for kind in ("features", "inputs", "logits", "labels", "weights"):
            value = getattr(e, f"{side}_{kind}", None)
            if value is not None:
                value = value[order]
                value = value[:, place] if kind == "logits" else relabel[value] if kind == "labels" else value
                fields[f"{side}_{kind}"] = value
    assert e.head is not None
    moved = dataclasses.replace(e, **fields, head=(e.head[0][place], e.head[1][place]))
    validator = make_validator(name, params)
    # the logistic regression of dev stops at its own tolerance; its order of summation may differ
    assert validator.score(moved) == pytest.approx(validator.score(e), rel=1e-6, abs=1e-4 if name == "dev" else 1e-8)


@settings(max_examples=50)
@given(seed=seeds)
def test_confusion_is_that_of_a_naive_loop(seed: int) -> None:
    e = random_evidence(seed)
    z = e.target_logits / 2.5
    y = np.exp(z - z.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    n, c = y.shape
    weight = np.array([1 + math.exp(sum(p * math.log(p) for p in row if p > 0)) for row in y])
    weight *= n / weight.sum()
    total = 0.0
    for j in range(c):
        row = [sum(weight[i] * y[i, j] * y[i, k] for i in range(n)) for k in range(c)]
        total += sum(row[k] for k in range(c) if k != j) / sum(row)
    assert make_validator("confusion").score(e) == pytest.approx(-total / c, rel=1e-9, abs=1e-12)


@settings(max_examples=50)
@given(seed=seeds)
def test_nuclear_norm_is_the_trace_of_the_root(seed: int) -> None:
    e = random_evidence(seed)
    eigenvalues = np.linalg.eigvalsh(e.target_proba.T @ e.target_proba)
    expected = np.sqrt(np.maximum(eigenvalues, 0.0)).sum() / len(e.target_proba)
    assert make_validator("nuclear").score(e) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50)
@given(seeds=st.lists(seeds, min_size=1, max_size=4), base=seeds)
def test_the_winner_is_the_best_that_is_not_degenerate(seeds: list[int], base: int) -> None:
    rng = np.random.default_rng(base)
    reference = random_evidence(base)
    candidates = [
        dataclasses.replace(reference, target_logits=reference.target_logits * (seed % 7) + rng.normal(size=(
            1, reference.n_classes)) * (seed % 11)) for seed in seeds
    ]  # fmt: skip
    choice = choose(candidates, make_validator("entropy"), reference)
    sound = [k for k, e in enumerate(candidates) if explain_collapse(e, reference) is None]
    assert set(choice.refusals) == set(range(len(candidates))) - set(sound)
    if sound:
        assert choice.index in sound
        assert choice.scores[choice.index] == max(choice.scores[k] for k in sound)
    else:
        assert choice.index is None
