"""IDSP: the Laplacian by loops, the minimiser by its gradient, what smoothness is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from warmpot.costs import nearest_rows
from warmpot.data import Task, as_table, make_task
from warmpot.errors import InputError
from warmpot.methods import FullSettings
from warmpot.methods.idsp import Idsp, roughness
from warmpot.train import Predictor, bound_inputs, fit, load_config


def brute_laplacian(x: np.ndarray, neighbours: int) -> np.ndarray:
    n = len(x)
    cosine = np.array([[a @ b / np.linalg.norm(a) / np.linalg.norm(b) for b in x] for a in x])
    near = [sorted((j for j in range(n) if j != i), key=lambda j: -cosine[i, j])[:neighbours] for i in range(n)]
    weight = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i in near[j] or j in near[i]:
                weight[i, j] = max(cosine[i, j], 0)
    degree = weight.sum(axis=1)
    laplacian = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if degree[i] > 0 and degree[j] > 0:
                laplacian[i, j] = float(i == j) - weight[i, j] / np.sqrt(degree[i] * degree[j])
    return laplacian


def shifted(width: int = 70) -> tuple[Task, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = 1.2 * rng.normal(size=(5, width))
    ys, yt = np.arange(60) % 5, np.arange(45) % 3
    xs = centres[ys] + rng.normal(size=(60, width))
    xt = centres[yt] + rng.normal(size=(45, width)) + rng.normal(size=width)
    return make_task(as_table(xs, ys), as_table(xt))[0], yt


def test_the_roughness_is_that_of_loops() -> None:
    x = np.random.default_rng(0).normal(size=(14, 3))
    for neighbours in (1, 4, 13):
        np.testing.assert_allclose(roughness(x, neighbours), x.T @ brute_laplacian(x, neighbours) @ x, atol=1e-12)
    assert np.linalg.eigvalsh(roughness(x, 4)).min() > -1e-12


def test_samples_without_neighbours_have_no_part() -> None:
    assert not roughness(np.zeros((4, 2)), 2).any()
    assert not roughness(np.array([[1.0, 0.0], [-1.0, 0.0]]), 1).any()  # a negative cosine joins nothing


def test_nearest_rows_do_not_contain_the_row_itself() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4))
    for i, row in enumerate(nearest_rows(x, 3)):
        order = sorted(range(30), key=lambda j: np.linalg.norm(x[i] - x[j]))
        assert set(row.tolist()) == set(order[1:4])


def test_the_objective_has_no_gradient_at_the_solution() -> None:
    """The formula of the docstring, differentiated by torch."""
    task, _ = shifted()
    method = Idsp(ridge=0.3, smoothness=2.0, neighbours=4)
    rounds = method.rounds(task, FullSettings(), None, 0)  # type: ignore[arg-type]
    rounds.start()
    before = rounds.head.clone()
    metrics = rounds.round(1).metrics
    xs, xt = (torch.nn.functional.normalize(torch.as_tensor(x).double(), dim=1) for x in (task.xs, task.xt))
    laplacians = [torch.from_numpy(brute_laplacian((x - x.mean(dim=0)).numpy(), 4)) for x in (xs, xt)]
    one_hot = torch.eye(5, dtype=torch.float64)[torch.as_tensor(task.ys)]

    def value(head: torch.Tensor, smoothness: float) -> torch.Tensor:
        weight, bias = head[:-1], head[-1]
        total = (xs @ weight + bias - one_hot).square().sum() + 0.3 * weight.square().sum()
        for x, laplacian in zip((xs, xt), laplacians, strict=True):
            out = (x - x.mean(dim=0)) @ weight
            total = total + smoothness * torch.trace(out.T @ laplacian @ out)
        return total

    for head, smoothness in ((before, 0.0), (rounds.head, 2.0)):
        unknown = head.clone().requires_grad_()
        value(unknown, smoothness).backward()
        assert unknown.grad is not None
        assert unknown.grad.abs().max() < 1e-5  # inputs are scaled in float32
    assert metrics["roughness"] < metrics["roughness_before"]


def test_the_network_predicts_what_the_run_reports(tmp_path: Any) -> None:
    task, truth = shifted()
    fitted = fit(task, load_config("idsp"), out=tmp_path, progress_bar=False)
    probabilities = Predictor.load(tmp_path).probabilities(task.xt)
    np.testing.assert_allclose(probabilities, fitted.outputs, atol=1e-7)
    assert (probabilities.argmax(axis=1) == truth).mean() > 0.9
    assert bound_inputs(fitted.predictor, task).weight.shape == (5, 70)


@pytest.mark.parametrize("bad", [{"ridge": 0.0}, {"smoothness": -1.0}, {"neighbours": 0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Idsp(**bad)


def test_it_is_called_an_interpretation() -> None:
    assert Idsp.status.startswith("interpretation: ")
    assert load_config("idsp").params == {"ridge": 0.1, "smoothness": 1.0, "neighbours": 10}
