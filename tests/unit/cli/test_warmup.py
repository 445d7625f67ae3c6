"""``warmpot warmup``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from warmpot.cli import app
from warmpot.costs import nearest_rows
from warmpot.transport import (
    partial_path,
    solve_partial,
    solve_partial_batch,
    solve_partial_points,
    solve_unbalanced,
    warmup,
)

IN_FLOAT32 = {"lower_bounds_from_products", "row_minima"}


def test_it_compiles_all_that_ordinary_problems_use() -> None:
    rng = np.random.default_rng(0)
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in ("exact", "entropic", "unbalanced", "kept in"))
    before = {name: list(kernel.signatures) for name, kernel in warmup.kernels().items()}
    assert {name.rsplit(".", 1)[1] for name, signatures in before.items() if not signatures} <= IN_FLOAT32

    cost = rng.random((30, 20))
    cost[rng.random(cost.shape) < 0.5] = np.inf
    for eps in (None, 0.1, 1e-4):
        solve_partial(cost, mass=0.5, eps=eps)
        solve_partial(torch.rand(30, 20), mass=0.5, eps=eps)
        solve_partial_batch(rng.random((3, 30, 20)), beta=0.5, mass=0.9, eps=eps)
    solve_unbalanced(rng.random((20, 30)), tau=1e-3, eps=1e-3)
    partial_path(cost, beta=0.7)
    solve_partial_points(rng.random((50, 4)).astype(np.float32), rng.random((20, 4)), beta=0.5, mass=0.5)
    nearest_rows(rng.random((30, 4)), 3)
    assert {name: list(kernel.signatures) for name, kernel in warmup.kernels().items()} == before


def test_without_a_folder_to_keep_them_it_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "cache_folder", lambda: None)
    result = CliRunner().invoke(app, ["warmup"])
    assert result.exit_code == 2
    assert "NUMBA_CACHE_DIR" in result.stderr
