"""Pages to look at: of a run and of a bench whose names are as bad as names get; and a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.bench import Grid, Record, append
from warmpot.report.grid_page import write_grid_page

HOSTILE = (
    "<script>alert(1)</script>",
    "$x_1$ ${",
    '"><img src=x onerror=alert(2)>',
    "line\nbreak",
    "שלום 😀 日本",
    "_{{ 7 * 7 }}",
)
"""Names of classes and rows: HTML, formulas, two lines, other scripts, templates."""
PLAIN = ("source-only", "uniform", "class-level", "plan")


@pytest.fixture(scope="session")
def hostile() -> tuple[str, ...]:
    return HOSTILE


@pytest.fixture(scope="session")
def make_bench() -> Callable[..., Path]:
    """Return a function that writes the folder of a bench with made-up results."""
    return _make_bench


def _make_bench(folder: Path, rows: tuple[str, ...] = PLAIN, figure: str = "table", holes: bool = True) -> Path:
    folder.mkdir(parents=True)
    tasks = [f"{a} -> {b}" for a, b in (("Art", "Product"), ("Product", "Art"), ("Art", "Clipart"))]
    vary = [{"params.alpha": [0.1, 0.4, 1.0]}, {"params.alpha": [0.1, 0.4, 1.0], "params.beta": [0.35, 1.0]}]
    grid = Grid.load(
        {
            "title": f"Weights of {rows[0]}",
            "figure": figure,
            "setting": "frozen features",
            "data": [
                {"name": "Office-Home", "features": "{domain}.npz", "tasks": tasks, "classes": "office-home"},
                {"name": "digits", "digits": "{domain}.npz", "tasks": ["mnist -> usps", "usps -> mnist"]},
            ],
            "rows": [{"name": name, "preset": "frozen"} for name in rows],
            "vary": vary if figure == "sensitivity" else None,
            "choose": ["neighbours"],
            "baseline": rows[0],
        }
    )
    (folder / "grid.yaml").write_text(grid.dump(), encoding="utf-8")
    rng = np.random.default_rng(0)
    for data, task, row, point, seed in _cells(grid):
        at = rows.index(row)
        known: dict[str, Any] = {"dataset": data, "task": task, "row": row, "point": point, "seed": seed}
        if holes and (at, task, seed) == (1, tasks[0], 2):
            append(folder, Record(**known, status="failed", error=f"DivergedError: {row}", trace=f"Traceback\n {row}"))
        elif not holes or (at, task, seed) != (2, tasks[1], 1):
            last = 0.6 + 0.05 * at + 0.01 * rng.normal() - sum(abs(value - 0.4) for value in point.values()) / 10
            counts = {kind: rng.integers(0, 40, 50).tolist() for kind in ("shared", "outlier")}
            known |= {"accuracy": {"last": last, "neighbours": last + 0.01, "oracle": last + 0.03}, "histogram": counts}
            known |= {"outlier_weight": 0.3 / (1 + at), "outlier_samples": 0.58, "seconds": 2.0 + at**4}
            append(folder, Record(**known, versions={"warmpot": "0.1"}, finished="2026-01-01T00:00:00+00:00"))
    return folder


def _cells(grid: Grid) -> Iterator[tuple[str, str, str, dict[str, float], int]]:
    for data in grid.data:
        for task in data.tasks:
            for row in grid.rows:
                for point in grid.points():
                    for seed in grid.seeds:
                        yield data.name, task, row.name, point, seed


@pytest.fixture(scope="session")
def bench_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_grid_page(_make_bench(tmp_path_factory.mktemp("pages") / "bench", HOSTILE, "histogram"), files=False)


@pytest.fixture(scope="session")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on classes with those names, as a user does."""
    from warmpot.cli import app

    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    names, centres = np.array(HOSTILE), 3 * rng.normal(size=(len(HOSTILE), 5))
    for file, labels in (("source", np.arange(72) % 6), ("target", np.arange(36) % 3)):
        np.savez(folder / f"{file}.npz", X=centres[labels] + rng.normal(size=(len(labels), 5)), y=names[labels])
    words = ["fit", folder / "source.npz", folder / "target.npz", "--quiet", "--out", folder / "run"]
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return folder / "run" / "report.html"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no chromium on this machine: apt install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"], timeout=0)
        yield browser
        browser.close()
