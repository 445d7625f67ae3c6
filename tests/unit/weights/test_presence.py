"""Presence of classes: closed cases, calibration on data whose truth is known, and inputs at the edge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.weights import ClassPresence, estimate_presence
from warmpot.weights._logistic import fit_logistic
from warmpot.weights.presence import STATES, discriminant_axes


def blobs(
    present: int, *, classes: int = 20, apart: float = 1.0, shift: float = 0.5, width: int = 30, seed: int = 0,
    sizes: tuple[int, int] = (20, 30),
) -> tuple[FloatArray, IntArray, FloatArray]:  # fmt: skip
    """Gaussian classes; the target has the first ones, each moved on its own."""
    rng = np.random.default_rng(seed)
    centres = apart * rng.normal(size=(classes, width))
    moved = centres + shift * apart * rng.normal(size=(classes, width))
    ys, yt = (np.repeat(np.arange(k), size) for k, size in zip((classes, present), sizes, strict=True))
    noise = [rng.normal(size=(len(y), width)) for y in (ys, yt)]
    return centres[ys] + noise[0], ys, moved[yt] + noise[1]


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("present", [1, 5, 12, 20])
def test_the_number_of_classes_is_found_where_classes_are_apart(present: int, unit: bool) -> None:
    presence = estimate_presence(*blobs(present, apart=2.0, shift=0.3), unit=unit)
    truth = np.arange(20) < present
    assert (presence.probability[truth] > 0.5).all()
    assert (presence.probability[~truth] < 0.5).all()
    assert abs(presence.expected_number - present) < 1.5


@pytest.mark.parametrize("present", [4, 10, 16])
def test_probabilities_are_calibrated_under_a_shift_that_confuses_classes(present: int) -> None:
    truth = np.arange(20) < present
    found = [estimate_presence(*blobs(present, apart=0.5, shift=1.0, seed=seed), unit=False) for seed in range(4)]
    p = np.concatenate([presence.probability for presence in found])
    every = np.tile(truth, 4)
    constant = np.mean((present / 20 - every) ** 2)
    assert np.mean((p - every) ** 2) < 0.8 * constant
    assert roc_auc_score(every, p) > 0.9
    assert abs(p.sum() / 4 - present) < 5


def test_the_number_is_not_overestimated_where_target_classes_are_larger_than_those_of_the_source() -> None:
    """Simulated targets have 5 samples per class there: with a fixed number of neighbours, 11 classes are expected."""
    found = [
        estimate_presence(*blobs(6, apart=0.5, shift=1.0, seed=seed, sizes=(10, 150)), unit=False) for seed in range(5)
    ]
    assert 6 < np.mean([presence.expected_number for presence in found]) < 10


def test_fields_agree_with_each_other() -> None:
    xs, ys, xt = blobs(5)
    presence = estimate_presence(xs, ys, xt, n_classes=22)
    assert presence.share.sum() == pytest.approx(1.0)
    assert (presence.probability[20:] == 0).all()
    assert (presence.share[20:] == 0).all()
    assert set(presence.states) <= set(STATES)
    assert presence.source_share(ys) == pytest.approx(presence.probability[ys].mean())
    again = estimate_presence(xs, ys, xt, n_classes=22)
    assert np.array_equal(presence.probability, again.probability)


def test_states_follow_the_probability() -> None:
    states = ClassPresence(np.array([0.95, 0.5, 0.05]), np.array([0.9, 0.1, 0.0]), {}).states
    assert states == ("present", "doubtful", "absent")


def test_training_ignores_absent_classes_but_never_all() -> None:
    shares = np.full(3, 1 / 3)
    np.testing.assert_array_equal(ClassPresence(np.array([0.97, 0.2, 0.04]), shares, {}).factors, [0.97, 0.2, 0.0])
    np.testing.assert_array_equal(ClassPresence(np.array([0.04, 0.001, 0.0]), shares, {}).factors, [0.04, 0.0, 0.0])
    many = np.full(50, 0.02)  # one class is expected, and nobody knows which
    assert np.count_nonzero(ClassPresence(many, many, {}).factors) == 48


@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_targets_and_constant_features_give_finite_numbers(n: int) -> None:
    xs, ys, xt = blobs(3, classes=4)
    for source, target in ((xs, xt[:n]), (np.ones_like(xs), np.ones_like(xt))):
        presence = estimate_presence(source, ys, target)
        assert np.isfinite(presence.probability).all()
        assert np.isfinite(presence.share).all()


def test_one_class_is_there() -> None:
    xs, _, xt = blobs(1, classes=2)
    presence = estimate_presence(xs, np.zeros(len(xs), int), xt)
    assert presence.probability.tolist() == [1.0]


def test_discriminant_axes_are_scikit_learns() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    xs, ys, _ = blobs(3, classes=4, width=6)
    xs = xs - xs.mean(axis=0)
    ours = xs @ discriminant_axes(xs, np.eye(4)[ys], np.ones(len(ys)), shrinkage=0.0)
    theirs = LinearDiscriminantAnalysis(solver="eigen").fit(xs, ys).transform(xs)
    for k in range(3):
        assert abs(np.corrcoef(ours[:, k], theirs[:, k])[0, 1]) == pytest.approx(1.0, abs=1e-6)


BAD = [({"xt": np.ones((3, 2))}, "xs, xt"), ({"labels": [0.5] * 400}, "labels"), ({"simulations": 0}, "simulations"),
       ({"labels": [0, 1]}, "labels")]  # fmt: skip


@pytest.mark.parametrize(("change", "what"), BAD)
def test_bad_input_is_named(change: dict[str, Any], what: str) -> None:
    xs, ys, xt = blobs(3)
    arguments: dict[str, Any] = {"xs": xs, "labels": ys, "xt": xt} | change
    with pytest.raises(InputError, match=what):
        estimate_presence(**arguments)


def test_an_offset_of_all_samples_changes_no_axis() -> None:
    xs, ys, _ = blobs(3, classes=3, width=6)
    axes = [discriminant_axes(xs + offset, np.eye(3)[ys], np.ones(len(ys))) for offset in (0.0, 100.0)]
    np.testing.assert_allclose(*axes, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_one_sample_per_class_is_not_taken_for_absence(seed: int) -> None:
    xs, ys, _ = blobs(20, apart=2.0, seed=seed)
    presence = estimate_presence(xs, ys, xs[::20] + 0.1, unit=False)
    assert presence.expected_number > 15


def test_a_target_has_at_least_one_class_and_no_evidence_raises_none() -> None:
    xs, ys, xt = blobs(1, classes=10)
    presence = estimate_presence(xs, ys, xt[:1])
    assert presence.expected_number >= 1 - 1e-9
    after = presence.given(np.eye(10)[0], 1)
    assert (after.probability[1:] <= presence.probability[1:] + 1e-12).all()


def test_classes_of_one_source_sample_do_not_spoil_the_calibration() -> None:
    xs, ys, xt = blobs(2, classes=6, apart=2.0, shift=0.1)
    keep = np.r_[np.arange(100), 100]  # the last class has one sample
    presence = estimate_presence(xs[keep], ys[keep], xt, unit=False)
    assert presence.states[:2] == ("present", "present")
    assert set(presence.states[2:5]) == {"absent"}


def test_large_sources_keep_samples_of_rare_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmpot.weights.presence.MOST", 100)
    xs, ys, xt = blobs(20, apart=2.0, shift=0.1)
    keep = np.r_[np.arange(380), 380, 381]  # two samples of the last class
    presence = estimate_presence(xs[keep], ys[keep], xt, unit=False)
    assert presence.probability[19] > 0


@pytest.mark.parametrize(("classes", "width"), [(2, 5), (6, 5), (4, 12)])
def test_discriminant_axes_solve_the_generalised_eigenproblem(classes: int, width: int) -> None:
    from scipy.linalg import eigh

    xs, ys, _ = blobs(classes, classes=classes, width=width)
    weights = np.random.default_rng(1).random(len(xs))
    one_hot = np.eye(classes)[ys]
    axes = discriminant_axes(xs, one_hot, weights)
    x = xs - weights @ xs / weights.sum()
    means = (one_hot * weights[:, None]).T @ x / (weights @ one_hot)[:, None]
    between = means.T @ (means * (weights @ one_hot)[:, None])
    total = x.T @ (x * weights[:, None])
    within = total - between + 0.3 * np.trace(total) / width * np.eye(width)
    separation = eigh(between, within, eigvals_only=True)[::-1][: axes.shape[1]]
    assert np.allclose(axes.T @ within @ axes, np.eye(axes.shape[1]))
    assert np.allclose(axes.T @ between @ axes, np.diag(separation), atol=1e-9 * separation[0])


def test_copies_of_a_sample_share_the_last_place_among_the_neighbours() -> None:
    from warmpot.weights.axes import indicators
    from warmpot.weights.presence import _nearest_class

    xs, ys, xt = blobs(4, classes=4, apart=1.0)
    arguments = xs, np.repeat(xt, 2, axis=0), indicators(ys, 4).T, np.bincount(ys), np.eye(30), xs.mean(axis=0), False
    predicted, consistency = _nearest_class(*arguments)
    x = np.repeat(xt, 2, axis=0) - xt.mean(axis=0)
    distances = np.square(x[:, None] - x[None]).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    counts = np.bincount(predicted)
    k = round(0.25 * counts @ counts / len(x))
    near = np.argsort(distances, axis=1, kind="stable")[:, :k]
    assert np.allclose(consistency, (predicted[near] == predicted[:, None]).mean(axis=1))


@pytest.mark.parametrize(("slope", "offset"), [(0.0, 0.0), (1.0, -3.0), (30.0, 0.0), (500.0, 60.0)])
def test_the_logistic_regression_is_that_of_scikit_learn(slope: float, offset: float) -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=300), np.zeros(300), rng.exponential(size=300)])
    y = rng.random(300) < 1 / (1 + np.exp(-np.clip(slope * x[:, 0] + offset, -50, 50)))
    y[:2] = False, True  # at the ends the classes are nearly, or quite, separated
    coefficients, intercept = fit_logistic(x, y)
    model = LogisticRegression(tol=1e-10, max_iter=10_000).fit(x, y)
    np.testing.assert_allclose([*coefficients, intercept], [*model.coef_[0], *model.intercept_], atol=1e-5)
