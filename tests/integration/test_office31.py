"""The solvers on real features."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from warmpot.transport import solve_partial_points


def test_plan_finds_the_shared_classes(shared_data: Path) -> None:
    source = np.load(shared_data / "office31" / "amazon.npz", allow_pickle=True)
    target = np.load(shared_data / "office31" / "webcam.npz", allow_pickle=True)
    shared = {
        "back_pack", "bike", "calculator", "headphones", "keyboard",
        "laptop_computer", "monitor", "mouse", "mug", "projector",
    }  # fmt: skip
    names = np.array([str(name) for name in source["classes"]]) if "classes" in source else None
    if names is None:
        pytest.skip("this copy of Office-31 does not name its classes")
    present = np.isin(names, sorted(shared))
    xs, xt = source["X"].astype(float), target["X"].astype(float)
    xt = xt[present[target["y"]]]
    xs, xt = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (xs, xt))
    solution = solve_partial_points(xs, xt, beta=0.35, mass=0.8)
    assert solution.gap <= 1e-9 * solution.value
    on_shared = solution.p[present[source["y"]]].sum() / solution.p.sum()
    assert on_shared > 1.5 * present[source["y"]].mean()  # uniform weights would put their share there
