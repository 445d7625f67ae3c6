"""The command ``warmpot methods``."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from warmpot.cli import app
from warmpot.cli.methods import LISTING, listing
from warmpot.methods import METHODS, WEIGHTINGS
from warmpot.train import load_config, preset_names
from warmpot.train.recipes import preset_for, presets_of


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def test_every_method_weighting_and_preset_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    lines = [line.rstrip() for line in done("methods", "--all").stdout.splitlines()]
    width = max(map(len, METHODS))
    for name, cls in METHODS.items():
        at = lines.index(f"{name:<{width}}  {cls.summary}")
        assert ("interpretation" in lines[at + 1]) == cls.status.startswith("interpretation")
        assert lines[at + 1].strip().endswith(cls.reference)
        assert all(tag in lines[at + 1] for tag in cls.tags)
        default = re.compile(rf"{name} +{re.escape(preset_for(name))} \(default\)")
        presets = next(line for line in lines if default.match(line))
        assert {word.strip(",") for word in presets.split()} >= set(presets_of(name))
    assert {f"{name:<11}  {cls.summary}" for name, cls in WEIGHTINGS.items()} <= set(lines)
    own = next(line for line in lines if line.startswith("own "))
    assert "such as row sums of its plan (warmpot, " in own
    assert "iwan" in own
    assert "dann" not in own


def test_the_stored_listing_is_that_of_the_classes() -> None:
    remedy = 'python -c "from warmpot.cli.methods import write_listing; write_listing()"'
    assert json.loads(LISTING.read_text(encoding="utf-8")) == listing(), f"write it again: {remedy}"


def test_they_are_listed_without_torch() -> None:
    code = "import sys; from warmpot.cli import main\ntry: main()\nfinally: print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code, "methods", "--all"], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert not {"torch", "numpy", "scipy"} & set(process.stdout.splitlines()[-1].split())


def test_what_to_use_first_comes_first_and_presets_on_request() -> None:
    short, complete = (done("methods", *words).stdout for words in ([], ["--all"]))
    assert short.startswith("Start here")
    assert short.index("warmpot fit SOURCE TARGET") < short.index("Methods")
    for name in re.findall(r"--preset (\S+)", short.partition("Methods")[0]):
        assert name in preset_names()
    assert "\nPresets  " not in short
    assert "\nPresets  " in complete


@pytest.mark.parametrize("columns", [80, 120])
def test_lines_fit_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
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
        row = re.search(rf"^{preset} +((full|minibatch): )?[A-Z]", said, flags=re.MULTILINE)
        assert (row is not None) == (name in (config.method, config.weights)), preset
    notes = (kind.__doc__ or "").partition("Deviations")[2]
    assert ("Deviations" in said) == bool(notes)
    assert not re.search(r"``|\]_|----", said)


def test_a_description_explains_each_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    lines = [" ".join(line.split()) for line in done("methods", "arpm").stdout.splitlines()]
    assert "label_smooth 0.1 Label smoothing." in lines
    at = next(i for i, line in enumerate(lines) if line.startswith("power 6 Exponent"))
    assert lines[at + 1] == "power_weight 0.3"  # of the same entry
    assert any(line.startswith("pca_head true Start the head from principal axes of the target") for line in lines)
    assert "- While pooled features do not change (frozen features), neighbours are searched once." in lines
    lines = [" ".join(line.split()) for line in done("methods", "capped").stdout.splitlines()]
    assert "critic.spectral true Keep it 1-Lipschitz by spectral normalisation." in lines
    assert any(line.startswith("periods 6 The critic is trained") for line in lines)


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_is_printed_as_a_file_that_can_be_loaded(preset: str, tmp_path: Path) -> None:
    said = done("methods", "--preset", preset).stdout
    if preset not in METHODS:
        assert done("methods", preset).stdout == said
    assert yaml.safe_load(said)["preset"] == preset
    (tmp_path / "run.yaml").write_text(said)
    assert load_config(file=tmp_path / "run.yaml") == load_config(preset)


def test_the_closest_name_is_suggested() -> None:
    result = run("methods", "offical")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Did you mean 'official'?" in result.stderr
    assert "Did you mean 'class_share'?" in run("methods", "class_shares").stderr
    assert "Did you mean 'official'?" in run("methods", "--preset", "offical").stderr
    assert "NAME --preset: got both" in run("methods", "full", "--preset", "full").stderr


def test_the_default_validator_is_marked_and_needs_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    lines = done("methods").stdout.splitlines()
    ends = {"neighbours (default)": "beyond chance", "dev": "towards the target", "plan": "within one run only"}
    needs = {"dev": "needs a held-out part of the source", "plan": "needs a plan"}
    for name, end in ends.items():
        at = next(i for i, line in enumerate(lines) if re.match(rf"{re.escape(name)} .*{end} *$", line))
        assert name not in needs or lines[at + 1].strip() == needs[name]
