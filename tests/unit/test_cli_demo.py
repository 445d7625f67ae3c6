"""The verbs ``warmpot demo`` and ``warmpot methods``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import warmpot.data
from warmpot.cli import app
from warmpot.methods import METHODS
from warmpot.train import load_config, preset_names


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with fewer digits."""
    monkeypatch.chdir(tmp_path)
    real = warmpot.data.digits_task
    monkeypatch.setattr(warmpot.data, "digits_task", lambda seed=0: real(200, seed))


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def test_demo_sets_source_only_beside_the_method_and_leaves_runs_that_work() -> None:
    said = done("demo").stdout
    found = dict(re.findall(r"^([\w-]+) +[\w-]+ +(\d+\.\d)%", said, flags=re.MULTILINE))
    assert set(found) == {"source-only", "full"}
    gain = float(re.findall(r"([+-]\d+\.\d) ", said)[0])
    assert gain == pytest.approx(float(found["full"]) - float(found["source-only"]), abs=0.11)
    assert re.search(r"^full believes present: \d \d+%", said, flags=re.MULTILINE)
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
def test_a_mark_that_was_tampered_with_deletes_nothing(mark: str) -> None:
    for kept in ("keep", "d/mine"):
        Path(kept).mkdir(parents=True)
    Path("d/demo.json").write_text(mark)
    done("demo", "--out", "d", "--preset", "source-only", "--quiet")
    assert Path("keep").is_dir()
    assert Path("d/mine").is_dir()


def test_demo_refuses_what_is_no_demo_and_bad_settings() -> None:
    Path("demo").mkdir()
    done("demo", "--preset", "source-only", "--quiet")  # an empty folder will do
    Path("used").mkdir()
    Path("used/mine").write_text("mine")
    for words, message in (
        (["--out", "used"], "--out used: got something that is no demo"),
        (["--out", "used/mine"], "--out used/mine: got something that is no demo"),
        (["--out", "used/mine/x"], "Not a directory"),
        (["--preset", "ful", "--out", "x"], "Did you mean 'full'"),
        (["--seed", "-1", "--out", "x"], "seed: got -1"),
    ):
        result = run("demo", *words, "--quiet")
        assert (result.exit_code, result.stdout) == (2, "")
        assert re.fullmatch(rf"error: .*{message}.*\n", result.stderr)
    assert [path.name for path in Path("used").iterdir()] == ["mine"]
    assert not Path("x").exists()


def test_methods_lists_every_method_parameter_and_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    said = done("methods").stdout
    for name, cls in METHODS.items():
        assert re.search(rf"^{name} +{re.escape(cls.summary)} ", said, flags=re.MULTILINE)
    for name in preset_names():
        config = load_config(name)
        assert re.search(rf"^{name} +{config.engine} +{config.method} +\w", said, flags=re.MULTILINE)
    assert "eps 7.0" in said
    assert "refit of the classifier, a plan ..." in said  # an ellipsis ends no sentence
    assert "No adaptation: the full engine's head, fitted on the source alone\n" in re.sub(" +\n", "\n", said)


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_is_printed_as_a_file_that_gives_it_again(preset: str, tmp_path: Path) -> None:
    said = done("methods", preset).stdout
    assert yaml.safe_load(said)["preset"] == preset
    (tmp_path / "run.yaml").write_text(said)
    assert load_config(file=tmp_path / "run.yaml") == load_config(preset)


def test_an_unknown_preset_gets_the_nearest() -> None:
    result = run("methods", "offical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean 'official'?" in result.stderr
