"""Run folders whose files are damaged, full disks, and outputs that would overwrite what must stay."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from warmpot import _files
from warmpot.cli import app
from warmpot.data import Task, make_task
from warmpot.data.table import as_table
from warmpot.errors import InputError, WarmpotError
from warmpot.report.run_page import report_run
from warmpot.train import Predictor, fit, load_config
from warmpot.train.run_folder import Checkpoint, RunFolder, read_config, read_facts
from warmpot.train.run_reader import read_run

rng = np.random.default_rng(0)
YS, YT = np.arange(30) % 3, np.arange(20) % 2
CENTRES = 3 * rng.normal(size=(3, 5))
XS, XT = CENTRES[YS] + rng.normal(size=(30, 5)), CENTRES[YT] + rng.normal(size=(20, 5))
SMALL = {"full": {"rounds": 3, "iterations": 4, "width": 4}}
NEST = "[" * 10_000


def task() -> Task:
    return make_task(as_table(XS, YS), as_table(XT))[0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files, and a run on them."""
    folder = tmp_path_factory.mktemp("made")
    np.savez(folder / "s.npz", X=XS, y=YS)
    np.savez(folder / "t.npz", X=XT)
    facts = {"source": str(folder / "s.npz"), "target": str(folder / "t.npz"), "label": None, "regression": False}
    fit(task(), load_config(changes=SMALL), out=folder / "run", facts=facts, progress_bar=False)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(*words: object) -> str:
    """Run a command that fails in one line; return the line."""
    result = run(*words, "--quiet")
    assert result.exit_code == 2, result.output + repr(result.exception)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def resume(folder: Path) -> None:
    if (folder / "model.json").is_file():
        (folder / "model.json").unlink()
    fit(task(), read_config(folder), out=folder, resume=True, progress_bar=False)


READERS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "run": (read_run, ("predictions", "source", "classes", "run", "model.json", "config", "metrics")),
    "predictor": (Predictor.load, ("model",)),
    "config": (read_config, ("config",)),
    "facts": (read_facts, ("run",)),
    "resume": (resume, ("run", "config", "metrics", "checkpoints")),
}
"""What reads a run, and the beginnings of the names of the files that it reads."""
FILES = ("predictions.csv", "source_weights.csv", "classes.csv", "run.json", "model.json", "model.safetensors",
         "config.yaml", "metrics.jsonl", "checkpoints/step-00000003/state.json",
         "checkpoints/step-00000003/state.safetensors")  # fmt: skip


def written(text: str) -> Callable[[Path], Any]:
    return lambda path: path.write_text(text)


def keyed(value: str) -> Callable[[Path], Any]:
    """Write a value under the names that are read from such files."""
    keys = ("step", "seed", "facts", "params", "network")
    return lambda path: path.write_text(
        "".join(f"{key}: {value}\n" for key in keys)
        if path.suffix == ".yaml"
        else "{" + ", ".join(f'"{key}": {value}' for key in keys) + "}\n"
    )


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "empty": written(""),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 2),
    "a list": written("[1, 2]\n"),
    "nested": keyed(NEST),
    "digits": keyed("9" * 5000),
    "fewer digits": keyed("9" * 400),
    "other types": keyed('{"a": []}'),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_is_our_error_or_left_out(folder: Path, file: str, damage: str) -> None:
    for name, (read, files) in READERS.items():
        if not file.startswith(files):
            continue
        copy = folder / f"{name}-copy"
        shutil.copytree(folder / "run", copy)
        DAMAGES[damage](copy / file)
        try:
            read(copy)
        except WarmpotError as error:
            assert str(copy) in error.what or error.what.startswith("config."), name  # noqa: PT017


def last_checkpoint(folder: Path) -> Path:
    return max((folder / "run" / "checkpoints").glob("step-*"))


def test_a_checkpoint_without_one_of_its_parts_is_named(folder: Path) -> None:
    last = last_checkpoint(folder)
    state = last / "state.safetensors"
    RunFolder(folder / "other").save(Checkpoint(3, {"x": torch.zeros(2)}, {}))
    shutil.copy(folder / "other" / "checkpoints" / "step-00000003" / "state.safetensors", state)
    with pytest.raises(InputError, match=f"{last.name}; the run then continues"):
        resume(folder / "run")
    shutil.rmtree(state.parent)
    resume(folder / "run")  # from the one before


def test_a_folder_in_a_checkpoint_does_not_matter(folder: Path) -> None:
    (last_checkpoint(folder) / "mine").mkdir()
    (folder / "run" / "checkpoints" / "step-00000099").mkdir()
    resume(folder / "run")


def test_a_page_without_predictions_or_weights_says_so(folder: Path) -> None:
    for name in ("predictions.csv", "source_weights.csv"):
        shutil.copytree("run", copy := folder / name)
        (copy / name).unlink()
        assert f"{name} " in report_run(copy, task(), figures=False).read_text("utf-8")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Return a function: the disk is full after so many files; never with None."""
    real, left = os.replace, list[int | None]([None])

    def replace(source: Any, target: Any) -> None:
        if left[0] is not None:
            if left[0] <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left[0] -= 1
        real(source, target)

    monkeypatch.setattr(_files.os, "replace", replace)
    return lambda files: left.__setitem__(0, files)


CHECKPOINTS_FROM = 3  # files: the settings, the record, and the first checkpoint


@pytest.mark.parametrize("files", [0, 1, 2, 3, 4, 6])
def test_a_run_on_a_full_disk_leaves_nothing_or_resumes(folder: Path, files: int, full_disk: Any) -> None:
    out = folder / "new"
    full_disk(files)
    with pytest.raises(WarmpotError, match="No space left on device") as caught:
        fit(task(), load_config(changes=SMALL), out=out, progress_bar=False)
    assert str(out) in caught.value.what
    assert out.exists() == (files >= CHECKPOINTS_FROM)
    full_disk(None)
    fit(task(), load_config(changes=SMALL), out=out, resume=files >= CHECKPOINTS_FROM, progress_bar=False)
    assert (out / "predictions.csv").read_bytes() == (folder / "run" / "predictions.csv").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "s.npz", "t.npz", "--out", "new", "--no-report"),
        ("predict", "run", "t.npz", "--out", "p.csv"),
        ("weights", "--source", "s.npz", "--target", "t.npz", "--out", "w.csv"),
        ("export", "run", "--out", "exported"),
        ("demo", "--out", "shown"),
        ("report", "run", "--out", "new/page.html"),
        ("bound", "run", "--alpha", "0.5", "--beta", "0.5"),
        ("sweep", "s.npz", "t.npz", "--out", "tried"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_names_the_full_disk_in_one_line(folder: Path, words: tuple[str, ...], full_disk: Any) -> None:
    full_disk(0)
    assert "No space left on device" in refused(*words)
    new = [path for path in folder.rglob("*") if path.is_file() and "run" not in path.parts]
    assert sorted(path.name for path in new) == ["s.npz", "t.npz"]


def test_a_checkpoint_that_does_not_fit_is_our_error(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    run_folder, checkpoint = RunFolder(tmp_path), Checkpoint(1, {"x": torch.zeros(10_000)}, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(WarmpotError, match="step-00000001"):
            run_folder.save(checkpoint)
        (tmp_path / "metrics.jsonl").write_text("x" * 999)
        with pytest.raises(WarmpotError, match=r"metrics\.jsonl"):
            run_folder.log({"step": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["model.json", "config.yaml", "predictions.csv", "bound.json", "report.html"])
def test_no_output_replaces_a_file_of_a_run(folder: Path, name: str) -> None:
    (folder / "link.csv").symlink_to(folder / "run" / name)
    before = content(folder)
    commands: list[list[str]] = [["predict", "run", "t.npz"], ["weights", "--source", "s.npz", "--target", "t.npz"]]
    if name != "report.html":
        commands.append(["report", "run", "--no-figures"])
    for out in (f"run/{name}", f"run/../run/{name}", "link.csv"):
        for command in commands:
            assert "--out" in refused(*command, "--out", out)
    assert content(folder) == before


def test_no_output_replaces_an_input_or_another_run(folder: Path) -> None:
    shutil.copytree("run", "other")
    before = content(folder)
    for words in (
        ("report", "run", "s.npz", "t.npz", "--out", "t.npz"),
        ("report", "run", "--out", "other/figures/page.html"),
        ("report", "run", "--out", "other/report.html", "--no-figures"),
        ("bound", "run", "--out", "other"),
        ("predict", "run", "t.npz", "--out", "t.npz"),
        ("export", "run", "--out", "run"),
        ("export", "run", "--out", "other"),
    ):
        refused(*words)
    assert content(folder) == before


def test_no_output_replaces_the_data_of_a_run_and_changes_are_reported(folder: Path) -> None:
    assert run("fit", "s.npz", "t.npz", "--out", "new", "--no-report", "--quiet", *few()).exit_code == 0
    before = content(folder)
    for words in (
        ("predict", "new", "t.npz", "--out", "s.npz"),
        ("report", "new", "--out", "s.npz", "--no-figures"),
    ):
        assert "which is an input" in refused(*words)
    assert content(folder) == before
    assert run("report", "new", "--no-figures", "--quiet").stderr == ""
    np.savez("s.npz", X=XS + 1, y=YS)
    for words in (("report", "new", "--no-figures"), ("bound", "new", "--alpha", "0.5", "--beta", "0.5")):
        result = run(*words, "--quiet")
        assert (result.exit_code, result.stderr.count("\n")) == (0, 1), result.stderr
        assert "warning: the data have changed since this run was trained" in result.stderr


def test_figures_of_another_page_are_left_alone(folder: Path) -> None:
    (folder / "figures").mkdir()
    (folder / "figures" / "weights.png").write_text("mine")
    assert run("report", "run", "s.npz", "t.npz", "--out", "page.html", "--quiet").exit_code == 0
    assert [path.name for path in (folder / "figures").iterdir()] == ["weights.png"]
    assert (folder / "figures" / "weights.png").read_text() == "mine"
    assert any((folder / "page-figures").iterdir())


def test_a_checkpoint_of_another_step_is_damaged(folder: Path) -> None:
    path = last_checkpoint(folder) / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "step": 1e308}))
    with pytest.raises(InputError, match=path.parent.name):
        resume(folder / "run")


def test_a_read_only_place_is_not_called_full(tmp_path: Path) -> None:
    error = OSError(errno.EROFS, os.strerror(errno.EROFS))
    with pytest.raises(WarmpotError) as caught, _files.writing(tmp_path / "x"):
        raise error
    assert "Free some space" not in str(caught.value)


def test_an_error_about_a_long_name_is_short(folder: Path) -> None:
    Path("c.yaml").write_text("a" * 100_000 + ": 1\n")
    assert len(refused("fit", "s.npz", "t.npz", "--config", "c.yaml", "--out", "new")) < 2100


def test_a_new_file_in_a_run_folder_is_fine(folder: Path) -> None:
    for _ in range(2):  # the second replaces the first
        result = run("predict", "run", "t.npz", "--out", "run/more.csv")
        assert result.exit_code == 0, result.output


def test_image_settings_for_features_are_refused_before_anything_is_written(folder: Path) -> None:
    for text in ("images: {}\n", "images: {backbone: {name: resnet18}}\n", "images: [1]\n"):
        (folder / "c.yaml").write_text(text)
        assert "image settings for tables" in refused("fit", "s.npz", "t.npz", "--config", "c.yaml", "--out", "new")
    if importlib.util.find_spec("timm") is None:
        return
    config = load_config(changes={**SMALL, "images": {"backbone": {"name": "test_resnet", "weights": "none"}}})
    with pytest.raises(InputError, match="5 features"):
        fit(task(), config, out="new", progress_bar=False)
    assert not Path("new").exists()


@pytest.mark.parametrize(
    "setting",
    ["minibatch.network.width=10000000000000", "minibatch.source_batch=10000000000000",
     "minibatch.target_batch=4000000000000000000"],
)  # fmt: skip
def test_settings_that_cannot_fit_are_refused_by_arithmetic(folder: Path, setting: str) -> None:
    words = ("fit", "s.npz", "t.npz", "--preset", "frozen", "--set", setting, "--out", "new")
    assert "GiB of memory" in refused(*words)
    assert not Path("new").exists()


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 10)
)


def test_alias_bombs_and_pipes_are_refused_wherever_settings_are_read(folder: Path) -> None:
    (folder / "bomb.yaml").write_text(BOMB)
    os.mkfifo(folder / "pipe.yaml")
    for name in ("bomb.yaml", "pipe.yaml"):
        for words in (
            ("fit", "s.npz", "t.npz", "--config", name, "--out", "new"),
            ("sweep", "s.npz", "t.npz", "--space", name, "--out", "new"),
            ("bench", name, "--data", ".", "--out", "new"),
        ):
            assert "aliases written out" in (line := refused(*words)) or "a pipe" in line
    for words in (
        ("predict", "run", "pipe.npz", "--out", "p.csv"), ("predict", "run", "pipe.txt", "--out", "p.csv"),
        ("fit", "pipe.csv", "t.npz", "--out", "new"),
    ):  # fmt: skip
        os.mkfifo(next(word for word in words if word.startswith("pipe.")))
        assert "a pipe" in refused(*words)
    assert not Path("new").exists()


LONG = "q" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("fit", LONG, "t.npz"), ("fit", "s.npz", "t.npz", "--out", LONG), ("fit", "--resume", LONG),
        ("predict", "run", "t.npz", "--out", LONG), ("predict", LONG, "t.npz", "--out", "p.csv"),
        ("report", LONG), ("report", "run", "--out", f"{LONG}/x.html"), ("bound", LONG), ("export", LONG),
        ("sweep", "s.npz", "t.npz", "--out", LONG), ("bench", f"{LONG}.yaml"), ("extract", LONG, "--out", "x.npz"),
        ("fit", "s.npz", "t.npz", "--config", LONG),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)  # fmt: skip
def test_long_names_are_refused_in_one_line(folder: Path, words: tuple[str, ...]) -> None:
    refused(*words)


MAIN = "import sys; from warmpot.cli import main; sys.argv = ['warmpot', *map(bytes.fromhex, sys.argv[1:])]; "
MAIN += "sys.argv[1:] = [__import__('os').fsdecode(word) for word in sys.argv[1:]]; main()"


@pytest.mark.skipif(os.name != "posix", reason="names are text here")
def test_names_that_are_not_text_work(folder: Path, nursery: Any) -> None:
    shutil.copytree("run", os.fsdecode(b"run\xff"))
    words = [b"predict", b"run\xff", b"t.npz", b"--out", b"\xfe.csv"]
    code, out, err = nursery.run(MAIN, *[word.hex() for word in words], folder=folder)
    assert code == 0, err
    assert "Wrote \\udcfe.csv" in out
    assert len(Path(os.fsdecode(b"\xfe.csv")).read_text().splitlines()) == 1 + len(XT)
    code, _, err = nursery.run(MAIN, *[word.hex() for word in (b"report", b"none\xff")], folder=folder)
    assert (code, err.count("\n")) == (2, 1), err


def test_errors_of_the_file_system_are_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "data/s.npz")

    monkeypatch.setattr("warmpot.data.read_samples", broken)
    line = refused("weights", "--source", "s.npz", "--target", "t.npz", "--out", "w.csv")
    assert line == "error: data/s.npz: Permission denied\n"


@pytest.mark.parametrize("reason", ["", "Unable to allocate 80.0 GiB"])
def test_memory_that_runs_out_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise MemoryError(reason)

    monkeypatch.setattr("warmpot.data.read_samples", broken)
    line = refused("weights", "--source", "s.npz", "--target", "t.npz", "--out", "w.csv")
    assert line.startswith(f"error: out of memory. {reason}".strip())
    assert line.endswith("or use less data.\n")


def test_a_class_name_of_a_hundred_thousand_letters(folder: Path) -> None:
    np.savez("s.npz", X=XS, y=np.array(["a" * 100_000, "b", "c"])[YS])
    result = run("fit", "s.npz", "t.npz", "--out", "new", "--no-report", "--quiet", *few())
    assert result.exit_code == 0, result.output
    assert max(map(len, read_run(folder / "new").classes)) == 100_000
    np.savez("s.npz", X=XS, y=np.array(["a" * 200_000, "b", "c"])[YS])
    assert run("fit", "s.npz", "t.npz", "--out", "more", "--no-report", "--quiet", *few()).exit_code == 0
    with pytest.raises(InputError, match="field larger"):
        read_run(folder / "more")


def few() -> list[str]:
    return [word for name, value in SMALL["full"].items() for word in ("--set", f"full.{name}={value}")]


def test_the_facts_of_a_model_are_checked(folder: Path) -> None:
    path = folder / "run" / "model.json"
    model = json.loads(path.read_text())
    for size in ("n_inputs", "n_outputs"):
        path.write_text(json.dumps({**model, size: 10**15}))
        with pytest.raises(InputError, match=f"{10**15}"):
            Predictor.load(folder / "run")
    for facts in (
        {},
        {"classes": 3},
        {**model["facts"], "classes": ["\x1b[2J", "b", "c"]},
        {**model["facts"], "scale": "x"},
        {**model["facts"], "centre": None},
        [],
        3,
    ):
        path.write_text(json.dumps({**model, "facts": facts}))
        with pytest.raises(InputError):
            Predictor.load(folder / "run")
