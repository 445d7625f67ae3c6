"""The verbs ``warmpot demo`` and ``warmpot methods``."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

import warmpot.data
from warmpot.cli import app
from warmpot.methods import METHODS, WEIGHTINGS
from warmpot.train import load_config, preset_names
from warmpot.train.recipes import preset_for, presets_of


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


def test_demo_sets_source_only_beside_the_method_and_leaves_runs_that_work() -> None:
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


def test_methods_lists_every_method_weighting_and_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = [line.rstrip() for line in done("methods").stdout.splitlines()]
    for name, cls in METHODS.items():
        at = lines.index(f"{name:<11}  {cls.summary}")
        assert lines[at + 1].strip().endswith(cls.reference)
        assert all(tag in lines[at + 1] for tag in cls.tags)
        presets = next(line for line in lines if re.match(rf"{name} +{re.escape(preset_for(name))} \(default\)", line))
        assert {word.strip(",") for word in presets.split()} >= set(presets_of(name))
    assert {f"{name:<11}  {cls.summary}" for name, cls in WEIGHTINGS.items()} <= set(lines)
    assert "own          row sums of the method's own plan (warmpot, mpot)" in lines


@pytest.mark.parametrize("columns", [80, 120])
def test_methods_fits_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in ([], ["arpm"], ["chi2_ball"]):
        assert max(map(len, done("methods", *words).stdout.splitlines())) <= columns, words


@pytest.mark.parametrize("name", [*METHODS, *WEIGHTINGS])
def test_methods_and_weightings_are_described(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    kind = METHODS.get(name) or WEIGHTINGS[name]
    said = done("methods", name).stdout
    assert said.startswith(f"{name}  {kind.summary}\n")
    assert getattr(kind, "reference", "") in said
    for field in dataclasses.fields(kind):
        default = field.default
        shown = f" +{default:g} " if type(default) is float else ""
        assert re.search(rf"^{field.name}[. ]{shown}", said, flags=re.MULTILINE), field.name
    for preset in preset_names():
        config = load_config(preset)
        row = re.search(rf"^{preset} +(full|minibatch)? *[A-Z]", said, flags=re.MULTILINE)
        assert (row is not None) == (name in (config.method, config.weights)), preset
    notes = (kind.__doc__ or "").partition("Deviations")[2]
    assert ("Deviations" in said) == bool(notes)
    assert not re.search(r"``|\]_|(METHODS|SPEC) section|----", said)


def test_a_description_says_what_each_parameter_means(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    lines = [" ".join(line.split()) for line in done("methods", "arpm").stdout.splitlines()]
    assert "label_smooth 0.1 Label smoothing." in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("power 6 Exponent"))
    assert lines[at + 1] == "power_weight 0.3"  # of the same entry
    assert any(line.startswith("pca_head true Start the head from principal axes of the target") for line in lines)
    assert "- While pooled features do not change (frozen features), neighbours are found once." in lines
    lines = [" ".join(line.split()) for line in done("methods", "capped").stdout.splitlines()]
    assert "critic.spectral true Keep it 1-Lipschitz by spectral normalisation." in lines
    assert any(
        line.startswith("periods 6 The critic learns and the source is weighed") for line in lines
    )  # by its name on the command line


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_is_printed_as_a_file_that_gives_it_again(preset: str, tmp_path: Path) -> None:
    said = done("methods", "--preset", preset).stdout
    if preset not in METHODS:
        assert done("methods", preset).stdout == said
    assert yaml.safe_load(said)["preset"] == preset
    (tmp_path / "run.yaml").write_text(said)
    assert load_config(file=tmp_path / "run.yaml") == load_config(preset)


def test_an_unknown_preset_gets_the_nearest() -> None:
    result = run("methods", "offical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean 'official'?" in result.stderr
    assert "Did you mean 'class_share'?" in run("methods", "class_shares").stderr
    assert "Did you mean 'official'?" in run("methods", "--preset", "offical").stderr
    assert "NAME --preset: got both" in run("methods", "full", "--preset", "full").stderr
