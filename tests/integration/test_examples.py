"""The examples run as a user would run them, and their outputs say what they should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("demo")
    return folder / "transport-demo", run_example("partial_transport.py", cwd=folder)


def table_of(report: str) -> dict[str, dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in report.splitlines() if line[:1] == "|"]
    return {row[0]: dict(zip(lines[0], row, strict=True)) for row in lines[2:]}


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
    assert percent(partial["strays left out"]) > 90
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


def test_out_folder_can_be_chosen(tmp_path: Path) -> None:
    run_example("partial_transport.py", "--out", "elsewhere/deep", "--mass", "0.5", cwd=tmp_path)
    report = (tmp_path / "elsewhere" / "deep" / "report.md").read_text()
    assert table_of(report)["part of both"]["mass"] == "0.5"
