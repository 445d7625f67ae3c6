"""SPL and SCS-LP: whole runs against a recomputation with explicit matrices and loops; their parts; their networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from typer.testing import CliRunner

from warmpot.cli import app
from warmpot.data import Task, as_table, make_task
from warmpot.errors import InputError
from warmpot.methods import FullSettings
from warmpot.methods.locality import FAR, class_centres, locality_axes, uncentred_axes
from warmpot.methods.scs_lp import ScsLp, propagated
from warmpot.methods.spl import Spl, clusters_from, selected
from warmpot.train import Predictor, bound_inputs, fit, load_config

CLASSES = 5


def shifted(width: int = 70, present: int = CLASSES, seed: int = 0) -> tuple[Task, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = 1.2 * rng.normal(size=(CLASSES, width))
    ys, yt = np.arange(60) % CLASSES, np.arange(45) % present
    xs = centres[ys] + rng.normal(size=(60, width))
    xt = centres[yt] + rng.normal(size=(45, width)) + rng.normal(size=width)
    return make_task(as_table(xs, ys), as_table(xt))[0], yt


def unit(x: np.ndarray) -> np.ndarray:
    return np.array([row / np.linalg.norm(row) for row in x])


def brute_projection(x: np.ndarray, labels: np.ndarray, width: int) -> np.ndarray:
    """The graph, its Laplacian and the general solver, as the paper prints them."""
    graph = np.array([[float(a == b and a >= 0) for b in labels] for a in labels])
    degree = np.diag(graph.sum(axis=1))
    below = x.T @ (degree - graph) @ x + np.eye(x.shape[1])
    values, vectors = scipy.linalg.eig(x.T @ degree @ x, below)
    order = np.argsort(-values.real)[:width]
    vectors = vectors[:, order].real
    return vectors / np.sqrt(np.einsum("ik,ij,jk->k", vectors, below, vectors))


def brute_means(x: np.ndarray, start: np.ndarray) -> np.ndarray:
    """K-means by loops; None stands for the origin."""
    centres, last = [row.copy() for row in start], np.inf
    for _ in range(100):
        distances = [[((row - centre) ** 2).sum() for centre in centres] for row in x]
        nearest = [int(np.argmin(row)) for row in distances]
        groups = [[row for row, k in zip(x, nearest, strict=True) if k == c] for c in range(len(centres))]
        centres = [np.mean(group, axis=0) if group else np.zeros(x.shape[1]) for group in groups]
        error = sum(min(row) for row in distances)
        if last - error < 2.3e-16:
            break
        last = error
    return np.array(centres)


def brute_run(task: Task, axes: int, width: int, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Predictions and selection of the last iteration."""
    both = unit(np.concatenate([task.xs, task.xt]).astype(float))
    covariance = np.cov(both.T)
    principal = np.linalg.eigh(covariance)[1][:, ::-1][:, :axes]
    both = unit(both @ principal)
    n = len(task.ys)
    pseudo = np.full(len(both) - n, -1)
    for k in range(1, iterations + 1):
        projection = brute_projection(both, np.r_[task.ys, pseudo], width)
        z = both @ projection
        z = unit(z - z.mean(axis=0))
        source, target = z[:n], z[n:]
        means = unit(np.array([source[task.ys == c].mean(axis=0) for c in range(CLASSES)]))
        chances = []
        for centres in (means, brute_means(target, means)):
            if (np.abs(centres).sum(axis=1) == 0).any():
                continue
            distances = np.array([[np.linalg.norm(row - centre) for centre in unit(centres)] for row in target])
            likely = np.exp(-distances)
            chances.append(likely / likely.sum(axis=1, keepdims=True))
        probabilities = np.max(chances, axis=0)
        predicted, certainty = probabilities.argmax(axis=1), probabilities.max(axis=1)
        pseudo = np.full(len(target), -1)
        for c in range(CLASSES):
            own = np.flatnonzero(predicted == c)
            ranked = own[np.argsort(certainty[own])]
            left_out = int(np.floor(len(own) * max(1 - k / (iterations - 1), 0)))
            pseudo[ranked[left_out + 1 :]] = c  # the comparison is strict
    return probabilities, pseudo


@pytest.mark.parametrize("axes", [12, 69])
def test_a_run_is_the_published_one(axes: int) -> None:
    task, _ = shifted(present=3)
    rounds = Spl(axes=axes, width=8, iterations=5).rounds(task, FullSettings(), None, 0)  # type: ignore[arg-type]
    rounds.start()
    results = [rounds.round(number) for number in range(1, 6)]
    probabilities, pseudo = brute_run(task, axes, 8, 5)
    logits = rounds.outputs()[1].logits
    np.testing.assert_allclose(logits.exp().numpy(), probabilities, atol=1e-9)
    assert rounds.pseudo.tolist() == pseudo.tolist()
    assert [result.metrics["selected"] for result in results] == sorted(r.metrics["selected"] for r in results)
    assert results[-1].metrics["selected"] == (45 - len(np.unique(probabilities.argmax(axis=1)))) / 45


def test_the_projection_solves_its_problem() -> None:
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(30, 6)), np.arange(30) % 4
    axes, brute = locality_axes(x, labels, 4, 3), brute_projection(x, labels, 3)
    np.testing.assert_allclose(np.abs(axes), np.abs(brute), atol=1e-9)
    assert locality_axes(x, labels, 4, 99).shape == (6, 6)


def test_principal_axes_without_variance_are_left_out() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)) @ np.random.default_rng(1).normal(size=(3, 8))
    assert uncentred_axes(x, 6).shape == (8, 3)
    assert uncentred_axes(np.ones((5, 4)), 4).shape == (4, 1)


def test_an_empty_cluster_moves_to_the_origin_and_voids_the_clusters() -> None:
    x = np.array([[1.0, 0.0], [0.99, 0.1], [0.0, 1.0]])
    near, away = np.array([1.0, 0.05]), np.array([0.0, -1.0])
    assert clusters_from(x, np.array([near, away, [0.0, 1.0]])) is None
    np.testing.assert_allclose(
        clusters_from(x, np.array([near, [0.0, 1.0]])), unit(np.array([x[:2].mean(axis=0), x[2]]))
    )
    # From the origin it gains the sample that is farther than 1 from all other centres.
    spread = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [-0.5, 0.8]])
    found = clusters_from(spread, np.array([[1.0, 0.0], [0.0, -9.0]]))
    np.testing.assert_allclose(found, unit(np.array([[1.0, 0.0], [-0.5, 0.8]])))


def test_the_least_certain_of_a_class_is_never_selected() -> None:
    certainty, predicted = np.array([0.5, 0.9, 0.7, 0.6, 0.8]), np.array([0, 0, 0, 0, 2])
    assert selected(certainty, predicted, 0.5).tolist() == [False, True, False, False, False]
    assert selected(certainty, predicted, 0.0).tolist() == [False, True, True, True, False]


def test_a_class_without_samples_is_far_away() -> None:
    centres = class_centres(np.array([[2.0, 0.0], [0.0, 2.0]]), np.array([0, 0]), 2)
    np.testing.assert_allclose(centres, [[0.5**0.5, 0.5**0.5], [FAR, 0.0]])


def test_the_network_predicts_what_the_run_reports(tmp_path: Path) -> None:
    """On features, and on a narrow table, whose columns are standardised."""
    for width in (70, 10):
        task, truth = shifted(width)
        out = tmp_path / str(width)
        fitted = fit(task, load_config("spl", changes={"params": {"axes": 40}}), out=out, progress_bar=False)
        probabilities = Predictor.load(out).probabilities(task.xt)
        np.testing.assert_allclose(probabilities, fitted.outputs, atol=1e-7)
        assert (probabilities.argmax(axis=1) == truth).mean() > 0.9
        assert fitted.training_weights == pytest.approx(np.full(60, 1 / 60))
        assert fitted.solution is None


def test_there_is_no_certificate_for_class_centres(tmp_path: Path) -> None:
    task, _ = shifted()
    fitted = fit(task, load_config("spl"), progress_bar=False)
    with pytest.raises(InputError, match="linear head"):
        bound_inputs(fitted.predictor, task)
    for side, x, y in (("source", task.xs, task.ys), ("target", task.xt, None)):
        np.savez(tmp_path / f"{side}.npz", X=x, **({} if y is None else {"y": y}))
    files = [str(tmp_path / f"{side}.npz") for side in ("source", "target")]
    run = str(tmp_path / "run")
    done = CliRunner().invoke(app, ["fit", *files, "--method", "spl", "--out", run, "--quiet"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["report", run])
    assert done.exit_code == 0, done.output
    assert "known for linear heads" in next((tmp_path / "run").glob("*.html")).read_text()


@pytest.mark.parametrize("bad", [{"axes": -1}, {"width": 0}, {"iterations": 1}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Spl(**bad)


def test_the_recipes_are_the_official_ones() -> None:
    assert load_config("spl").params == {"axes": 1024, "width": 128, "iterations": 11}
    assert load_config("spl-office31").params == {"axes": 512, "width": 128, "iterations": 11}
    assert load_config(changes={"method": "spl"}).preset == "spl"


def test_continuous_targets_are_refused() -> None:
    x = np.random.default_rng(0).normal(size=(20, 4))
    task = make_task(as_table(x, x[:, 0], task="regression"), as_table(x))[0]
    assert task.for_regression
    with pytest.raises(InputError):
        fit(task, load_config("spl", changes={"loss": "squared"}), progress_bar=False)


def test_rounds_do_not_touch_the_global_generator() -> None:
    task, _ = shifted()
    before = torch.random.get_rng_state()
    fit(task, load_config("spl"), progress_bar=False)
    assert torch.equal(before, torch.random.get_rng_state())


# --------------------------------------------------------------------------------------------------------- SCS-LP


def brute_scores(centres: np.ndarray, x: np.ndarray, neighbours: int, scale: float) -> np.ndarray:
    nodes, k = np.concatenate([centres, x]), len(centres)
    n = len(nodes)
    near = [set(sorted((j for j in range(n) if j != i), key=lambda j: np.linalg.norm(nodes[i] - nodes[j]))[:neighbours])
            for i in range(n)]  # fmt: skip
    scores = [[float(i == c) for c in range(k)] for i in range(n)]
    for _ in range(1000):
        moved = [list(row) for row in scores]
        for i in range(k, n):
            joined = [j for j in range(n) if j in near[i] or i in near[j]]
            similar = [np.exp(-((np.linalg.norm(nodes[i] - nodes[j]) / scale) ** 2)) for j in joined]
            for c in range(k):
                moved[i][c] = sum(s * scores[j][c] for s, j in zip(similar, joined, strict=True)) / sum(similar)
        change = np.abs(np.subtract(moved, scores)).max()
        scores = moved
        if change < 1e-3:
            break
    return np.array(scores[k:])


def test_the_propagation_is_that_of_loops() -> None:
    rng = np.random.default_rng(0)
    centres, x = rng.normal(size=(3, 2)), rng.normal(size=(17, 2))
    for neighbours, scale in ((4, 1.0), (2, 0.5), (50, 2.0)):
        count = min(neighbours, 19)
        np.testing.assert_allclose(
            propagated(centres, x, neighbours, scale), brute_scores(centres, x, count, scale), atol=1e-12
        )


def test_the_propagation_nears_the_harmonic_solution() -> None:
    """The mean of the neighbours at every sample: a linear system."""
    rng = np.random.default_rng(1)
    centres, x = rng.normal(size=(2, 2)), rng.normal(size=(6, 2))
    nodes = np.concatenate([centres, x])
    similar = np.exp(-((nodes[:, None] - nodes) ** 2).sum(axis=2)) * (1 - np.eye(8))
    walk = similar / similar.sum(axis=1, keepdims=True)
    harmonic = np.linalg.solve(np.eye(6) - walk[2:, 2:], walk[2:, :2])
    np.testing.assert_allclose(propagated(centres, x, 7, 1.0), harmonic, atol=0.01)


def test_a_sample_without_a_path_has_no_score() -> None:
    centres, x = np.array([[0.0, 0.0], [0.1, 0.0]]), np.array([[0.05, 0.0], [9.0, 0.0], [9.1, 0.0]])
    scores = propagated(centres, x, 1, 1.0)
    assert scores[1:].tolist() == [[0, 0], [0, 0]]
    assert scores[0].sum() > 0.9


def brute_partial_run(
    task: Task, axes: int, width: int, iterations: int, neighbours: int
) -> tuple[np.ndarray, list[int]]:
    """Scores of the last iteration, and how many classes are left after each."""
    both = unit(np.concatenate([task.xs, task.xt]).astype(float))
    if axes:
        both = unit(both @ np.linalg.eigh(np.cov(both.T))[1][:, ::-1][:, :axes])
    labels, left = np.asarray(task.ys), []
    xs, xt = both[: len(labels)], both[len(labels) :]
    pseudo = np.full(len(xt), -1)
    for _ in range(iterations):
        projection = brute_projection(np.concatenate([xs, xt]), np.r_[labels, pseudo], width)
        z = np.concatenate([xs, xt]) @ projection
        z = unit(z - z.mean(axis=0))
        classes = sorted(set(labels.tolist()))
        means = unit(np.array([z[: len(xs)][labels == c].mean(axis=0) for c in classes]))
        scores = np.zeros((len(xt), CLASSES))
        scores[:, classes] = brute_scores(means, z[len(xs) :], neighbours, 1.0)
        pseudo = scores.argmax(axis=1)
        kept = np.array([c in pseudo for c in labels])
        xs, labels = xs[kept], labels[kept]
        left.append(len(set(labels.tolist())))
    return scores, left


@pytest.mark.parametrize("axes", [0, 12])
def test_a_partial_run_is_the_published_one(axes: int) -> None:
    task, truth = shifted(present=3)
    rounds = ScsLp(axes=axes, width=8, iterations=3, neighbours=6).rounds(task, FullSettings(), None, 0)  # type: ignore[arg-type]
    rounds.start()
    left = [rounds.round(number).metrics["classes"] for number in range(1, 4)]
    scores, brute_left = brute_partial_run(task, axes, 8, 3, 6)
    np.testing.assert_allclose(rounds.outputs()[1].logits.exp().numpy(), scores, atol=1e-6)
    assert left == brute_left
    assert left[-1] == 3  # the outlier classes are gone
    assert (scores.argmax(axis=1) == truth).mean() > 0.9
    weights = rounds.training_weights.numpy()
    assert weights[task.ys >= 3].sum() == 0
    assert weights.sum() == pytest.approx(1)


def test_new_samples_are_labelled_by_means_and_clusters_of_the_classes_that_are_left() -> None:
    task, truth = shifted(present=3)
    fitted = fit(task, load_config("scs-lp", changes={"params": {"axes": 30}}), progress_bar=False)
    probabilities = fitted.predictor.probabilities(task.xt)
    assert (probabilities.argmax(axis=1) == truth).mean() > 0.9
    assert probabilities[:, 3:].max() == 0


@pytest.mark.parametrize("bad", [{"axes": -1}, {"neighbours": 0}, {"scale": 0.0}])
def test_bad_parameters_of_scs_lp_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ScsLp(**bad)


def test_the_recipes_of_scs_lp_are_the_official_ones() -> None:
    common = {"width": 128, "iterations": 10, "scale": 1.0}
    assert load_config("scs-lp").params == {"axes": 512, "neighbours": 15, **common}
    assert load_config("scs-lp-office31").params == {"axes": 0, "neighbours": 10, **common}
