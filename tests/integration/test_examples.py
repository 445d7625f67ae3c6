"""The examples run as a user would run them, and their outputs say what they should."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import warmpot
from warmpot.methods import METHODS

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
GALLERY = EXAMPLES.parent / "docs" / "gallery.py"


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    return folder / "transport-demo", run_example("partial_transport.py", cwd=folder)


def table_of(report: str) -> dict[str, dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}


def masked(text: str) -> str:
    """Leave out numbers: the last digits, and with them the width of columns, differ between machines."""
    return " ".join(re.sub(r"\d+(\.\d+)?", "#", text).split())


def percent(cell: str) -> float:
    return float(cell.rstrip("%"))


def test_prints_a_table_and_where_the_files_are(demo: tuple[Path, str]) -> None:
    _, printed = demo
    for words in ("full transport", "part of both", "Certificate: the plan is feasible", "report.md"):
        assert words in printed


def test_report_moves_the_weight_to_the_shared_classes(demo: tuple[Path, str]) -> None:
    rows = table_of((demo[0] / "report.md").read_text())
    full, partial = rows["full transport"], rows["part of both"]
    assert percent(full["weight on shared"]) == pytest.approx(50.0)
    assert percent(partial["weight on shared"]) > 90
    assert percent(partial["outliers left out"]) > 90
    assert float(partial["value"]) < float(rows["part of the source"]["value"]) < float(full["value"])


def test_report_holds_a_certificate(demo: tuple[Path, str]) -> None:
    report = (demo[0] / "report.md").read_text()
    found = re.search(
        r"is feasible \(largest violation (\S+) of the mass\); its value (\S+) is at most (\S+) above", report
    )
    assert found is not None
    violation, value, gap = map(float, found.groups())
    assert violation <= 1e-12
    assert 0 <= gap <= 1e-9 * value


def test_draws_a_figure(demo: tuple[Path, str]) -> None:
    pytest.importorskip("matplotlib")
    picture = (demo[0] / "plan.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert 10_000 < len(picture) < 500_000


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run an example in this process, in an empty folder, and return what it prints; the gallery must show the same."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with mock.patch.dict(METHODS):
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        found = capsys.readouterr().out
        if not arguments:
            check_gallery(name, found)
        return found

    return run


def check_gallery(name: str, printed: str) -> None:
    gallery = runpy.run_path(str(GALLERY))
    example = next(example for example in gallery["GALLERY"] if f"{example.name}.py" == name)
    page = (GALLERY.parent / "gallery.md").read_text()
    assert example.varies or masked(gallery["section"](example, printed)) in masked(page), "run: make gallery"
    assert Path(example.picture).read_bytes().startswith(b"\x89PNG")
    assert (GALLERY.parent / "img" / f"gallery-{example.name}.png").exists()


def test_every_example_is_tested() -> None:
    tests = Path(__file__).read_text()
    assert all(f'"{example.name}"' in tests for example in EXAMPLES.glob("*.py"))


def test_out_folder_can_be_chosen(printed: Callable[..., str], tmp_path: Path) -> None:
    printed("partial_transport.py", "--out", "elsewhere/deep", "--mass", "0.5")
    report = (tmp_path / "elsewhere" / "deep" / "report.md").read_text()
    assert table_of(report)["part of both"]["mass"] == "0.5"


def test_quickstart_adapts_and_leaves_absent_digits_out(printed: Callable[..., str]) -> None:
    found = printed("quickstart.py")
    alone, adapted = (int(share) for share in re.findall(r"on the target (\d+)%", found))
    assert adapted > alone
    rows = re.findall(r"^ +(\d) +(\d+)% +(\d+)%(.*)$", found, re.MULTILINE)
    absent = [int(weight) for _, weight, _, mark in rows if "does not occur" in mark]
    assert len(absent) == 5
    assert sum(absent) < 20


def test_weights_help_other_models(printed: Callable[..., str]) -> None:
    found = printed("weights_for_any_model.py")
    errors = re.findall(r"^(?:Ridge|DecisionTree)\S* +(\S+) +(\S+)$", found, re.MULTILINE)
    assert len(errors) == 2
    assert all(float(weighted) < float(plain) for plain, weighted in errors)
    assert "is refused: estimator: got KNeighborsRegressor" in found


def test_certified_plan_proves_itself(printed: Callable[..., str]) -> None:
    found = printed("certified_plan.py")
    assert "outliers that the plan uses: 0 of 12" in found
    assert "feasible True" in found
    value = float(re.search(r"^value (\S+);", found)[1])  # type: ignore[index]
    assert float(re.search(r"along the gradient: (\S+)", found)[1]) < value  # type: ignore[index]


def test_own_method_gains_by_weights(printed: Callable[..., str]) -> None:
    found = printed("own_method.py")
    uniform, by_class = (int(share) for share in re.findall(r"on the target (\d+)%", found))
    assert by_class > uniform


def test_bound_says_something_when_trained_for_it(printed: Callable[..., str]) -> None:
    found = printed("bound_of_a_run.py")
    totals = {name: float(total) for name, total in re.findall(r"^(\S+): total (\S+) ", found, re.MULTILINE)}
    assert totals["bound"] < 1 < totals["full"] < totals["source-only"]


def test_report_is_one_file(printed: Callable[..., str], tmp_path: Path) -> None:
    assert "Open it in a browser" in printed("report_of_a_run.py", "here")
    page = (tmp_path / "here" / "report.html").read_text()
    assert page.lower().lstrip().startswith("<!doctype html>")
    assert len(page) < 3_000_000


def test_bench_grid_is_not_trained_twice(printed: Callable[..., str], tmp_path: Path) -> None:
    first = printed("bench_grid.py")
    assert first.count("source-only ") == first.count("full  ") == 2
    store = (tmp_path / "bench-demo" / "results.jsonl").read_text()
    assert printed("bench_grid.py") == first
    assert (tmp_path / "bench-demo" / "results.jsonl").read_text() == store


def test_served_predictions_are_those_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    rng = np.random.default_rng(0)
    centres, y = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]), np.repeat([0, 1, 2], 20)
    x = centres[y] + rng.normal(size=(60, 2)) / 2
    x_target = centres[[0, 1] * 15] + rng.normal(size=(30, 2)) / 2 + 0.5
    result = warmpot.fit((x, np.array(["ant", "bee", "cat"])[y]), x_target, progress_bar=False)
    run = result.save(tmp_path / "run")
    client = TestClient(runpy.run_path(str(EXAMPLES / "serve.py"))["make_app"](run))
    assert client.get("/").json() == {"classes": ["ant", "bee", "cat"], "features": 2, "columns": []}
    answer = client.post("/predict", json={"samples": x_target.tolist()})
    assert answer.status_code == 200
    assert [row["label"] for row in answer.json()] == result.predict(x_target).tolist()
    np.testing.assert_allclose([row["confidence"] for row in answer.json()], result.predictions["confidence"])
    refused = client.post("/predict", json={"samples": [[1.0, 2.0, 3.0]]})
    assert refused.status_code == 422
    assert "samples: got 3 columns; allowed: 2 columns" in refused.json()["detail"]


def test_every_example_is_in_the_gallery() -> None:
    gallery = runpy.run_path(str(GALLERY))
    assert {example.name for example in gallery["GALLERY"]} == {path.stem for path in EXAMPLES.glob("*.py")} - {"serve"}


def test_notebook_runs_and_has_its_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    cells = json.loads((EXAMPLES / "quickstart.ipynb").read_text())["cells"]
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        body = ast.parse("".join(cell["source"])).body
        last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(io.StringIO()) as stream:
            exec(compile(ast.Module(body, []), cell["id"], "exec"), namespace)
            value = None if last is None else eval(compile(last, cell["id"], "eval"), namespace)
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                assert masked("".join(output["text"])) == masked(stream.getvalue())
            elif output["output_type"] == "execute_result":
                assert masked("".join(output["data"]["text/plain"])) == masked(repr(value))
        assert cell["outputs"], f"{cell['id']}: run jupyter execute --inplace examples/quickstart.ipynb"
    namespace["plt"].close("all")
