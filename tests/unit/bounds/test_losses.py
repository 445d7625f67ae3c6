"""Losses of bounds: metrics with values in [0, 1]."""

from __future__ import annotations

import numpy as np
import pytest

from warmpot.bounds.losses import LOSSES


@pytest.mark.parametrize("loss", ["tv", "euclidean"])
def test_losses_are_metrics_with_values_in_0_1(loss: str) -> None:
    rng = np.random.default_rng(0)
    metric = LOSSES[loss]
    a, b, c = (rng.dirichlet([0.3] * 4, 500) for _ in range(3))
    assert (metric.between(a, c) <= metric.between(a, b) + metric.between(b, c) + 1e-12).all()
    assert metric.between(a, b) == pytest.approx(metric.between(b, a))
    assert metric.between(a, a) == pytest.approx(0)
    corners = np.eye(4)
    assert metric.between(corners[:1], corners[1:2]) == pytest.approx(1)
    labels = rng.integers(0, 4, 500)
    assert metric.of_labels(a, labels) == pytest.approx(metric.between(a, corners[labels]))
    pairs = metric.of_pairs(labels[:5], a[:7])
    assert pairs == pytest.approx(metric.between(corners[labels[:5], None], a[None, :7]))
    assert pairs.max() <= 1
