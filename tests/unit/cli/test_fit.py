"""The command ``warmpot fit``."""

from __future__ import annotations

import csv
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

import warmpot.train
from warmpot.cli import app

SMALL = ["--preset", "official", "--set", "minibatch.steps=4", "--set", "minibatch.checkpoint_every=2",
         "--set", "minibatch.log_every=2", "--set", "minibatch.hardware.accelerator=cpu"]  # fmt: skip
FROZEN = ["--preset", "frozen"]
FEW = ["--set", "minibatch.steps=6", "--set", "minibatch.hardware.accelerator=cpu"]
MODEL = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv")

rng = np.random.default_rng(0)
CENTRES = 3 * rng.normal(size=(4, 5))
YS, YT = np.arange(48) % 4, np.arange(24) % 2
XS, XT = CENTRES[YS] + rng.normal(size=(48, 5)), CENTRES[YT] + 0.3 + rng.normal(size=(24, 5))
NAMES = np.array(["ant", "bee", "cat", "dog"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with the two files of a new user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["warmpot.cli.fit"], "write_report", lambda *_: None)  # test_report.py has it
    np.savez("source.npz", X=XS, y=NAMES[YS])
    np.savez("target.npz", X=XT, y=NAMES[YT])
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def done(*words: object) -> Result:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result


def config(folder: str) -> dict[str, Any]:
    return yaml.safe_load(Path(folder, "config.yaml").read_text())


def names(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in folder.rglob("*")}


def write_csv(path: str, x: np.ndarray, labels: Any = None, column: str = "species") -> str:
    header = [f"f{j}" for j in range(x.shape[1])] + ([column] if labels is not None else [])
    rows = x.tolist() if labels is None else [[*row, label] for row, label in zip(x.tolist(), labels, strict=True)]
    with open(path, "w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def test_held_out_samples_are_reported() -> None:
    result = done("fit", "source.npz", "target.npz", "--choose", "source", "--out", "run")
    assert f"{sum(-(-n // 5) for n in np.bincount(YS))} of {len(YS)} source samples are held out" in result.stderr
    refused = run("fit", "source.npz", "target.npz", "--choose", "oracle", "--out", "other")
    assert refused.exit_code == 2
    assert "only in Python" in refused.stderr


def test_two_files_are_enough() -> None:
    result = done("fit", "source.npz", "target.npz")
    made = Path("runs/source-target-full")
    assert {path.name for path in made.iterdir()} >= {*MODEL, "config.yaml", "run.json", "metrics.jsonl"}
    said = result.stdout
    assert re.search(r"^method +warmpot +preset full, seed 0", said, flags=re.MULTILINE)
    assert re.search(r"^time +\d+\.\d s", said, flags=re.MULTILINE)
    assert re.search(r"^target samples +24", said, flags=re.MULTILINE)
    assert re.search(r"^effective classes +\d\.\d of 4", said, flags=re.MULTILINE)
    assert re.search(r"^Classes estimated to be present: (ant|bee) \d+%", said, flags=re.MULTILINE)
    assert re.search(r"^effective source +\d+%", said, flags=re.MULTILINE)
    with open(made / "predictions.csv", newline="") as stream:
        right = np.mean([row["prediction"] == NAMES[y] for row, y in zip(csv.DictReader(stream), YT, strict=True)])
    assert re.search(rf"^accuracy +{right:.1%} +\(target labels, evaluation only\)", said, flags=re.MULTILINE)
    assert f"Wrote {made}: " in said
    assert "48 source and 24 target samples, 5 features; 4 classes -> " in result.stderr


def test_a_number_is_appended_to_a_default_folder_that_exists() -> None:
    for _ in range(3):
        done("fit", "source.npz", "target.npz", "--preset", "source-only", "--quiet")
    assert {path.name for path in Path("runs").iterdir()} == {
        "source-target-source-only", "source-target-source-only-2", "source-target-source-only-3"
    }  # fmt: skip


def test_a_method_selects_its_preset() -> None:
    for method, preset in (("mpot", "mpot-frozen"), ("warmpot", "full"), ("source-only", "source-only")):
        said = done("fit", "source.npz", "target.npz", "--method", method, *FEW).stdout
        assert re.search(rf"^method +{method} +preset {preset}, seed 0", said, flags=re.MULTILINE)
        assert not re.search("^weights ", said, flags=re.MULTILINE)
        assert (config(f"runs/source-target-{preset}")["method"]) == method
    done("fit", "source.npz", "target.npz", "--method", "mpot", "--preset", "mpot", *FEW, "--out", "a")
    assert config("a")["preset"] == "mpot"
    Path("few.yaml").write_text("minibatch: {steps: 5}\nparams: {alpha: 0.5}\n")
    done("fit", "source.npz", "target.npz", "--method", "mpot", "--config", "few.yaml", "--out", "b")
    found = config("b")
    assert (found["preset"], found["minibatch"]["steps"], found["params"]["alpha"]) == ("mpot-frozen", 5, 0.5)
    assert found["params"]["eps"] == 0.5  # of the preset


def test_other_weights_are_reported_and_part_of_the_name() -> None:
    said = done("fit", "source.npz", "target.npz", "--method", "mpot", "--weights", "class_share",
                "--set", "weight_params.hard=true", *FEW).stdout  # fmt: skip
    assert re.search("^weights +class_share +in place of uniform", said, flags=re.MULTILINE)
    found = config("runs/source-target-mpot-frozen-class_share")
    assert (found["weights"], found["weight_params"]["hard"]) == ("class_share", True)
    said = done("fit", "source.npz", "target.npz", *FROZEN, "--weights", "uniform", *FEW).stdout
    assert re.search("^weights +uniform +in place of the row sums of its own plan", said, flags=re.MULTILINE)
    done("fit", "source.npz", "target.npz", "--preset", "official", "--set", "method=jumbot", "--weights", "plan", *FEW)
    made = {path.name.removeprefix("source-target-") for path in Path("runs").iterdir()}
    assert made == {"mpot-frozen-class_share", "frozen-uniform", "official-jumbot-plan"}


def test_weights_of_the_preset_are_reported_but_not_part_of_the_name() -> None:
    said = done("fit", "source.npz", "target.npz", "--preset", "arpm-plan-frozen", "--weights", "plan", *FEW).stdout
    assert re.search("^weights +plan +in place of chi2_ball", said, flags=re.MULTILINE)
    assert Path("runs/source-target-arpm-plan-frozen").is_dir()


@pytest.mark.parametrize("method", ["jumbot", "ba3us"])
def test_a_run_and_the_estimator_are_the_same_bit_for_bit(method: str) -> None:
    from warmpot.estimators import AdaptedClassifier

    done("fit", "source.npz", "target.npz", "--method", method, "--weights", "plan", *FEW, "--seed", 3, "--out", "a")
    told = warmpot.train.Predictor.load(Path("a"))
    few = {"minibatch": {"steps": 6, "hardware": {"accelerator": "cpu"}}}
    model = AdaptedClassifier(method, weights="plan", overrides=few, random_state=3).fit(XS, NAMES[YS], XT)
    np.testing.assert_array_equal(model.predict_proba(XT), told.probabilities(XT))
    assert yaml.safe_load(model.config_.dump()) == config("a")


def test_an_unlabelled_target_gives_the_same_model_and_no_accuracy() -> None:
    np.savez("bare.npz", X=XT)
    done("fit", "source.npz", "target.npz", "--out", "a")
    assert "accuracy" not in done("fit", "source.npz", "bare.npz", "--out", "b").stdout
    for name in MODEL:
        assert Path("a", name).read_bytes() == Path("b", name).read_bytes(), name


def test_flags_override_the_file_and_the_file_the_preset() -> None:
    Path("run.yaml").write_text("seed: 5\nparams: {alpha: 0.6, beta: 0.5}\nminibatch: {steps: 4, log_every: 2}\n")
    done("fit", "source.npz", "target.npz", "--out", "a", "--preset", "official", "--config", "run.yaml",
         "--alpha", 0.7, "--set", "minibatch.optimizer.lr=1e-4", "--set", "params.eps=null",
         "--set", "minibatch.steps=2", "--accelerator", "cpu", "--devices", 1, "--precision", "32-true")  # fmt: skip
    found = config("a")
    assert (found["preset"], found["seed"]) == ("official", 5)
    assert found["params"]["alpha"] == 0.7
    assert found["params"]["beta"] == 0.5
    assert found["params"]["eps"] is None
    assert (found["minibatch"]["steps"], found["minibatch"]["log_every"]) == (2, 2)
    assert found["minibatch"]["optimizer"]["lr"] == 1e-4
    hardware = found["minibatch"]["hardware"]
    assert (hardware["accelerator"], hardware["devices"], hardware["precision"]) == ("cpu", 1, "32-true")
    assert found["minibatch"]["optimizer"]["head"] == 10.0  # of the preset
    done("fit", "source.npz", "target.npz", "--out", "b", "--config", "a/config.yaml", "--seed", 6, "--beta", 0.4)
    assert config("b") == {**found, "seed": 6, "params": {**found["params"], "beta": 0.4}}


def test_a_label_column_may_be_absent_from_the_target() -> None:
    write_csv("s.csv", XS, NAMES[YS])
    write_csv("t.csv", XT)
    np.save("t.npy", XT)
    for target in ("t.csv", "t.npy"):
        assert "accuracy" not in done("fit", "s.csv", target, "--label", "species").stdout
    write_csv("labelled.csv", XT, NAMES[YT])
    assert "accuracy" in done("fit", "s.csv", "labelled.csv", "--label", "species", "--out", "x").stdout
    result = run("fit", "s.csv", "t.csv", "--label", "kind")
    assert (result.exit_code, "a column 'kind'" in result.stderr) == (2, True)


def test_regression_and_its_predictions() -> None:
    slope = rng.normal(size=5)
    np.savez("s.npz", X=XS, y=XS @ slope)
    np.savez("t.npz", X=XT, y=XT @ slope)
    result = run("fit", "s.npz", "t.npz")
    assert result.exit_code == 2
    assert re.fullmatch("error: .*--regression.*\n", result.stderr.splitlines(keepends=True)[-1])
    result = done("fit", "s.npz", "t.npz", "--regression", "--out", "a")
    assert config("a")["loss"] == "squared"
    assert re.search(r"^mean absolute error +\d", result.stdout, flags=re.MULTILINE)
    assert "classes" not in result.stdout
    done("fit", "s.npz", "t.npz", "--regression", "--out", "b", "--set", "loss=absolute")
    assert config("b")["loss"] == "absolute"
    result = done("predict", "a", "t.npz", "--out", "p.csv")
    assert "mean absolute error" in result.stdout
    with open("p.csv", newline="") as stream, open("a/predictions.csv", newline="") as told:
        rows, expected = list(csv.DictReader(stream)), list(csv.DictReader(told))
    assert list(rows[0]) == ["row", "prediction"]
    np.testing.assert_allclose([float(row["prediction"]) for row in rows],
                               [float(row["prediction"]) for row in expected], atol=1e-4)  # fmt: skip
    assert run("predict", "a", "t.npz", "--out", "q.csv", "--proba").exit_code == 2
    assert not Path("q.csv").exists()


def test_settings_without_effect_are_reported() -> None:
    flags = ["--set", "full.rounds=1", "--set", "minibatch.steps=7", "--out", "idle"]
    told = "settings of the engine minibatch have no effect: the preset full runs the engine full"
    assert told in done("fit", "source.npz", "target.npz", *flags).stderr
    assert "no effect" not in done("fit", "source.npz", "target.npz", *flags[:2], "--out", "busy").stderr


def test_warnings_are_plain_lines_on_stderr() -> None:
    labels = NAMES[YS].copy()
    labels[0] = "elk"
    np.savez("source.npz", X=XS, y=labels)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        shown = warnings.showwarning
        result = done("fit", "source.npz", "target.npz", "--preset", "source-only")
        assert warnings.showwarning is shown
    lines = [line for line in result.stderr.splitlines() if "elk" in line]
    assert len(lines) == 1
    assert re.fullmatch(r"warning: source.npz: got classes with one sample: 'elk'; .*", lines[0])
    assert "WarmpotWarning" not in result.stderr


@pytest.mark.parametrize("flag", ["--quiet", "-q"])
def test_quiet_prints_nothing(flag: str) -> None:
    np.savez("source.npz", X=XS, y=np.where(np.arange(48) == 0, "elk", NAMES[YS]))  # would warn
    assert done("fit", "source.npz", "target.npz", "--out", "a", flag).output == ""
    assert done("predict", "a", "target.npz", "--out", "p.csv", flag).output == ""
    assert done("fit", "--resume", "a", flag).output == ""


def test_logging_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warmpot._progress.LINE_EVERY_SECONDS", 0.0)
    logger = logging.getLogger("warmpot")
    before = (logger.level, list(logger.handlers))
    assert "step 4, loss" in done("fit", "source.npz", "target.npz", *SMALL).stderr
    assert (logger.level, logger.handlers) == before


def spoil(path: str, **arrays: Any) -> list[object]:
    np.savez(path, **arrays)
    return []


BAD: dict[str, tuple[Callable[[], object], list[object], str]] = {
    "no target": (lambda: None, ["source.npz"], "SOURCE TARGET: got no target"),
    "missing": (lambda: None, ["none.npz", "target.npz"], "none.npz: got No such file"),
    "NaN": (lambda: spoil("n.npz", X=XS * np.nan, y=YS), ["n.npz", "target.npz"], "n.npz: got 240 non-finite"),
    "widths": (lambda: spoil("w.npz", X=XT[:, :2]), ["source.npz", "w.npz"], "w.npz: got 2 columns; allowed: 5"),
    "one class": (lambda: spoil("o.npz", X=XS, y=YS * 0), ["o.npz", "target.npz"], "o.npz: got one class only"),
    "no labels": (lambda: spoil("u.npz", X=XS), ["u.npz", "target.npz"], "u.npz: got no labels"),
    "preset": (lambda: None, ["source.npz", "target.npz", "--preset", "ful"], "preset: .*Did you mean 'full'"),
    "set key": (lambda: None, ["source.npz", "target.npz", "--set", "minibatch.step=3"], "Did you mean 'steps'"),
    "set value": (lambda: None, ["source.npz", "target.npz", "--set", "minibatch.steps=many"], "got 'many'"),
    "method": (lambda: None, ["source.npz", "target.npz", "--method", "arpmm"], "method: .*Did you mean 'arpm'"),
    "method and preset": (
        lambda: None,
        ["source.npz", "target.npz", "--method", "ar", "--preset", "frozen"],
        "preset: got 'frozen', which is for 'warmpot', with the method 'ar'; allowed: ar, ar-frozen, ar-imagenet",
    ),
    "method and file": (
        lambda: Path("c.yaml").write_text("preset: frozen"),
        ["source.npz", "target.npz", "--method", "mpot", "--config", "c.yaml"],
        "preset: got 'frozen', which is for 'warmpot', with the method 'mpot'",
    ),
    "set method": (
        lambda: None,
        ["source.npz", "target.npz", "--preset", "full", "--set", "method=pwan"],
        "its presets: .*pwan-frozen",
    ),
    "weights": (lambda: None, ["source.npz", "target.npz", *FROZEN, "--weights", "plans"], "Did you mean 'plan'"),
    "weights, full": (lambda: None, ["source.npz", "target.npz", "--weights", "uniform"], "with the full engine"),
    "weights, source-only": (
        lambda: None,
        ["source.npz", "target.npz", "--method", "source-only", "--weights", "plan"],
        "weights: got 'plan' with the method 'source-only'; allowed: 'uniform'",
    ),
    "weights, no plan": (
        lambda: None,
        ["source.npz", "target.npz", "--method", "ba3us", "--weights", "own"],
        "weights: got 'own' with the method 'ba3us'; .*It has no plan of its own",
    ),
    "weight_params": (
        lambda: None,
        ["source.npz", "target.npz", "--method", "arpm", "--set", "weight_params.roh=3"],
        "weight_params.roh: .*Did you mean 'rho'",
    ),
    "weight_params, own": (
        lambda: None,
        ["source.npz", "target.npz", *FROZEN, "--set", "weight_params.rho=3"],
        "weight_params: .*none with the weights 'own'",
    ),
    "method, continuous targets": (
        lambda: spoil("r.npz", X=XS, y=XS[:, 0]),
        ["r.npz", "r.npz", "--method", "mpot", "--regression"],
        "'mpot' for continuous targets",
    ),
    "set form": (lambda: None, ["source.npz", "target.npz", "--set", "steps"], "--set: got 'steps'; .*NAME=VALUE"),
    "set nothing": (lambda: None, ["source.npz", "target.npz", "--set", "a..b=1"], "--set: got 'a..b=1'"),
    "set YAML": (lambda: None, ["source.npz", "target.npz", "--set", "seed=["], "whose value is not YAML"),
    "set preset": (lambda: None, ["source.npz", "target.npz", "--set", "preset=paper"], "Use --preset"),
    "alpha": (lambda: None, ["source.npz", "target.npz", "--alpha", 2], r"alpha: got 2\.0"),
    "YAML": (
        lambda: Path("c.yaml").write_text("seed: [1"),
        ["source.npz", "target.npz", "--config", "c.yaml"],
        "c.yaml: got .*expected",
    ),
    "no YAML": (lambda: None, ["source.npz", "target.npz", "--config", "no.yaml"], "no.yaml: got No such file"),
    "devices": (lambda: None, ["source.npz", "target.npz", *SMALL, "--devices", 2], "--out: got none"),
    "accelerator": (lambda: None, ["source.npz", "target.npz", *SMALL, "--accelerator", "abacus"], "abacus"),
    "out is taken": (
        lambda: Path("old").mkdir() or Path("old", "mine").write_text("x"),
        ["source.npz", "target.npz", "--out", "old"],
        "--out old: got a folder or file that is in use; .*--resume",
    ),
    "out is a file": (lambda: None, ["source.npz", "target.npz", "--out", "source.npz"], "--out source.npz: got"),
    "resume nothing": (lambda: None, ["--resume", "none"], "--resume none: got no run"),
    "resume with flags": (lambda: None, ["--resume", "none", "--seed", 3], "--resume: got other settings"),
    "resume with method": (lambda: None, ["--resume", "none", "--method", "ar"], "--resume: got other settings"),
    "resume with out": (lambda: None, ["--resume", "none", "--out", "x"], "--resume: got --out"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_error_is_one_line_and_writes_nothing(folder: Path, case: str) -> None:
    prepare, words, message = BAD[case]
    prepare()
    before = names(folder)
    result = run("fit", *words, "--quiet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.fullmatch(rf"error: .*{message}.*\n", result.stderr)
    assert names(folder) == before


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch, raised: BaseException) -> None:
    """Break the training after some checkpoints."""
    from warmpot.train.run_folder import RunFolder

    real, count = RunFolder.save, 0

    def save(self: RunFolder, checkpoint: Any) -> None:
        nonlocal count
        real(self, checkpoint)
        count += 1
        if count == steps:
            raise raised

    monkeypatch.setattr(RunFolder, "save", save)


@pytest.mark.parametrize("flags", [SMALL, ["--preset", "full"]], ids=["minibatch", "full"])
def test_a_broken_run_is_resumed_to_the_same_model(
    folder: Path, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done("fit", "source.npz", "target.npz", "--out", "whole", *flags)
    with monkeypatch.context() as patched:
        stop_after(1, patched, KeyboardInterrupt())
        result = run("fit", "source.npz", "target.npz", "--out", "my run", *flags, "--quiet")
    assert result.exit_code == 130
    assert result.output.splitlines()[-1] == "interrupted; resume with: warmpot fit --resume 'my run'"
    assert not Path("my run", "model.json").exists()
    monkeypatch.chdir("my run")
    done("fit", "--resume", folder / "my run")  # from another folder
    for name in MODEL:
        assert (folder / "my run" / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_resume_of_a_run_that_is_finished_touches_nothing(folder: Path) -> None:
    done("fit", "source.npz", "target.npz", "--out", "a", *SMALL)
    before = names(folder)
    assert "nothing is left to do" in done("fit", "--resume", "a").stdout
    assert names(folder) == before


def test_resume_finds_moved_data_and_refuses_other_data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        stop_after(1, patched, KeyboardInterrupt())
        assert run("fit", "source.npz", "target.npz", "--out", "a", *SMALL).exit_code == 130
    facts = json.loads(Path("a/run.json").read_text())["facts"]
    assert facts == {"source": str(folder / "source.npz"), "target": str(folder / "target.npz"), "label": None,
                     "ids": None, "features": [], "regression": False}  # fmt: skip
    Path("target.npz").rename("moved.npz")
    result = run("fit", "--resume", "a", "--quiet")
    assert (result.exit_code, "No such file" in result.stderr) == (2, True)
    np.savez("target.npz", X=XT + 1)
    result = run("fit", "--resume", "a", "--quiet")
    assert (result.exit_code, "other data" in result.stderr) == (2, True)
    assert not Path("a/model.json").exists()
    done("fit", "source.npz", "moved.npz", "--resume", "a")
    assert Path("a/model.json").exists()


def test_a_run_made_in_python_is_resumed_when_its_files_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from warmpot.data import load_table, make_task

    task, _ = make_task(load_table("source.npz"), load_table("target.npz"))
    with monkeypatch.context() as patched:
        stop_after(1, patched, KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            warmpot.train.fit(task, warmpot.train.load_config(), out=Path("a"), progress_bar=False)
    result = run("fit", "--resume", "a", "--quiet")
    assert (result.exit_code, "Name the files" in result.stderr) == (2, True)
    done("fit", "source.npz", "target.npz", "--resume", "a")


def test_ctrl_c_before_anything_was_written_offers_no_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("warmpot.select.best_iterate.fit", fit)
    result = run("fit", "source.npz", "target.npz", "--quiet")
    assert (result.exit_code, result.stderr) == (130, "interrupted; the same command starts again\n")


def test_only_the_first_process_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert done("fit", "source.npz", "target.npz", "--preset", "source-only").output == ""


def test_fit_gives_no_accuracy_when_no_label_is_known() -> None:
    np.savez("odd.npz", X=XT, y=np.full(24, "yak"))
    result = done("fit", "source.npz", "odd.npz", *SMALL, "--out", "a")
    assert "accuracy" not in result.stdout
    assert "none of its labels is known" in result.stderr


@pytest.mark.parametrize("words", [["fit"], ["predict"]])
def test_help_is_shown_without_arguments(words: list[str]) -> None:
    assert run(*words).output.startswith("Usage: ")


def test_it_ends_with_the_gain_and_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    page = Path("runs/source-target-full/report.html")
    monkeypatch.setattr(sys.modules["warmpot.cli.fit"], "write_report", lambda *_: page)
    monkeypatch.setattr("webbrowser.open", lambda place: opened.append(place) or True)
    words = ["source.npz", "target.npz", "--set", "full.rounds=1", "--set", "full.iterations=3"]
    said = done("fit", *words, "--open").stdout
    assert said.splitlines()[-1] == f"Report: {page}"
    assert opened == [page.resolve().as_uri()]
    with open("runs/source-target-full/predictions.csv") as stream:
        rows = list(csv.DictReader(stream))
    before, after = (np.array([row[name] for row in rows]) for name in ("unadapted", "prediction"))
    assert re.search(rf"^adaptation +changed {(before != after).sum()} +of 24 predictions", said, flags=re.MULTILINE)
    for title, predictions in (("without adaptation", before), ("accuracy", after)):
        assert re.search(rf"^{title} +{(predictions == NAMES[YT]).mean():.1%} ", said, flags=re.MULTILINE)
    plain = done("fit", *words, "--preset", "source-only").stdout
    assert "adaptation" not in plain  # it is the baseline itself
    assert len(opened) == 1
