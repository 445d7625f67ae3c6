"""The command ``warmpot demo``."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import warmpot.data
from warmpot.cli import app


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with fewer digits."""
    monkeypatch.chdir(tmp_path)
    for verb in ("demo", "fit"):
        monkeypatch.setattr(
            sys.modules[f"warmpot.cli.{verb}"], "write_report", lambda *_: None
        )  # test_report.py has it
    real = warmpot.data.digits_task
    monkeypatch.setattr(warmpot.data, "digits_task", lambda seed=0: real(200, seed))


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def test_the_demo_compares_with_source_only_and_leaves_runs_that_work() -> None:
    said = done("demo").stdout
    found = dict(re.findall(r"^([\w-]+) +[\w-]+ +(\d+\.\d)%", said, flags=re.MULTILINE))
    assert set(found) == {"source-only", "full"}
    gain = float(re.findall(r"([+-]\d+\.\d) ", said)[0])
    assert gain == pytest.approx(float(found["full"]) - float(found["source-only"]), abs=0.11)
    assert re.search(r"^Classes estimated to be present by full: \d \d+%", said, flags=re.MULTILINE)
    assert "evaluation only" in said
    marked = json.loads(Path("demo/demo.json").read_text())["accuracy"]
    assert {name: f"{100 * accuracy:.1f}" for name, accuracy in marked.items()} == found
    assert f"{found['full']}%" in done("predict", "demo/full", "demo/target.npz", "--out", "p.csv").stdout
    assert "nothing is left" in done("fit", "--resume", "demo/full").stdout
    done("fit", "demo/source.npz", "demo/target.npz", "--out", "mine", "--quiet")
    assert Path("mine/predictions.csv").read_bytes() == Path("demo/full/predictions.csv").read_bytes()


def test_an_earlier_demo_is_replaced_and_nothing_else_in_it() -> None:
    done("demo", "--out", "d", "--preset", "source-only", "--quiet")
    Path("d/mine.txt").write_text("mine")
    Path("d/source-only/old").write_text("old")
    first = Path("d/source-only/model.safetensors").read_bytes()
    assert done("demo", "--out", "d", "--preset", "source-only", "--seed", 1, "--quiet").output == ""
    assert Path("d/mine.txt").read_text() == "mine"
    assert not Path("d/source-only/old").exists()
    assert Path("d/source-only/model.safetensors").read_bytes() != first
    assert json.loads(Path("d/source-only/run.json").read_text())["seed"] == 1


@pytest.mark.parametrize("mark", ["not JSON", "{}", '{"accuracy": {"../keep": 1, "mine": 1}}'])
def test_a_changed_mark_deletes_nothing(mark: str) -> None:
    for kept in ("keep", "d/mine"):
        Path(kept).mkdir(parents=True)
    Path("d/demo.json").write_text(mark)
    done("demo", "--out", "d", "--preset", "source-only", "--quiet")
    assert Path("keep").is_dir()
    assert Path("d/mine").is_dir()


def test_folders_that_are_not_a_demo_and_bad_settings_are_refused() -> None:
    Path("demo").mkdir()
    done("demo", "--preset", "source-only", "--quiet")  # an empty folder will do
    Path("used").mkdir()
    Path("used/mine").write_text("mine")
    for words, message in (
        (["--out", "used"], "--out used: got a folder or file that is not a demo"),
        (["--out", "used/mine"], "--out used/mine: got a folder or file that is not a demo"),
        (["--out", "used/mine/x"], "Not a directory"),
        (["--preset", "ful", "--out", "x"], "Did you mean 'full'"),
        (["--seed", "-1", "--out", "x"], "seed: got -1"),
    ):
        result = run("demo", *words, "--quiet")
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.fullmatch(rf"error: .*{message}.*\n", result.stderr)
    assert [path.name for path in Path("used").iterdir()] == ["mine"]
    assert not Path("x").exists()
