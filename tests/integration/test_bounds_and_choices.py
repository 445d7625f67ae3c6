"""Certificates and choices on real features: Office-31, DSLR to ten classes of Webcam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.bounds import head_lipschitz, joint_bound, with_labels
from warmpot.data import as_table, load_table, make_task
from warmpot.select import sweep
from warmpot.train import fit, load_config

SHARED = ("back_pack", "bike", "calculator", "headphones", "keyboard", "laptop_computer", "monitor", "mouse", "mug",
          "projector")  # fmt: skip


@pytest.fixture(scope="module")
def domains(shared_data: Path) -> Any:
    source, target = (load_table(shared_data / "office31" / f"{name}.npz") for name in ("dslr", "webcam"))
    assert target.y is not None
    keep = np.isin(np.array(target.classes)[target.y], SHARED)
    return make_task(source, as_table(target.x[keep], target.y[keep], classes=target.classes))


def certified(domains: Any, preset: str) -> Any:
    task, truth = domains
    predictor = fit(task, load_config(preset), progress_bar=False).predictor
    source, target = predictor.outputs(task.xs, source=True), predictor.outputs(task.xt)
    points = (
        source.features, task.ys, target.features, torch.softmax(source.logits, 1), torch.softmax(target.logits, 1)
    )  # fmt: skip
    gamma = head_lipschitz(predictor.network.head.weight.detach().double(), "euclidean")
    return with_labels(joint_bound(*points, gamma=gamma, beta=0.1), *points, target_labels=truth.yt)


def test_training_for_the_bound_proves_something(domains: Any) -> None:
    plain, trained = certified(domains, "full"), certified(domains, "bound")
    for report in (plain, trained):
        assert report.target_loss <= report.total_refined
    assert plain.total > 1.5 * trained.total
    assert trained.total < 0.5
    assert trained.total_refined < 0.5  # with all that needs labels


def test_a_sweep_is_not_below_source_only(domains: Any, tmp_path: Path) -> None:
    task, truth = domains
    space = [{"preset": "full"}, {"preset": "full", "params.alpha": 1.0, "params.beta": 1.0}]
    found = sweep(task, out=tmp_path / "sweep", space=space, progress_bar=False)
    alone = fit(task, load_config("source-only"), progress_bar=False)
    chosen, baseline = ((run.outputs.argmax(axis=1) == truth.yt).mean() for run in (found.fitted, alone))
    assert chosen >= baseline
    assert found.config.params["alpha"] == "auto"  # the other drags the target onto all 31 classes
