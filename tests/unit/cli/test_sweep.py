"""`warmpot sweep` as a user sees it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from warmpot.cli import app

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'warmpot[ray]'")
SMALL = ("full.rounds=2", "full.iterations=4", "full.width=8", "full.bound_rounds=2", "minibatch.steps=10")
FEW = [word for setting in SMALL for word in ("--set", setting)]


@pytest.fixture(autouse=True)
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the page of the winner, which tests/unit/test_report.py has."""
    monkeypatch.setattr(sys.modules["warmpot.cli.sweep"], "write_report", lambda *_: None)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(4, 6))
    ys, yt = np.repeat(np.arange(4), 12), np.repeat([0, 1], 15)
    np.savez(tmp_path / "s.npz", X=centres[ys] + rng.normal(size=(48, 6)), y=ys)
    np.savez(tmp_path / "t.npz", X=centres[yt] + rng.normal(size=(30, 6)) + 0.3, y=yt)
    return str(tmp_path / "s.npz"), str(tmp_path / "t.npz")


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["sweep", *words])


def test_a_sweep_writes_the_winner_and_can_be_continued(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("preset: full\nparams.alpha: [0.5, 0.9]\n")
    words = [*files, "--out", str(tmp_path / "out"), "--space", str(space), *FEW]
    first = run(*words)
    assert first.exit_code == 0, first.output
    assert "without target labels" in first.output
    assert "evaluation only" in first.output
    assert "48 source and 30 target samples, 6 features; 4 classes" in first.output
    assert re.search(r"^source-only \(reference\) ", first.output, flags=re.MULTILINE)
    assert "nothing was left to train" not in first.output
    best = tmp_path / "out" / "best"
    assert first.stdout.splitlines()[-1] == f"Use it with: warmpot predict {best} DATA --out predictions.csv"
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [line["preset"] for line in lines] == ["source-only", "full", "full"]
    assert not {"accuracy", "truth"} & set(lines[0])
    assert (tmp_path / "out" / "best" / "model.safetensors").exists()
    assert re.search("^(There is no clear winner: '.*the same score|The score is .* more than)", first.stdout, re.M)
    before = (tmp_path / "out" / "trials.jsonl").read_bytes()
    page, opened = tmp_path / "report.html", []
    monkeypatch.setattr(sys.modules["warmpot.cli.sweep"], "write_report", lambda *_: page)
    monkeypatch.setattr(sys.modules["warmpot.cli.sweep"], "open_page", opened.append)
    again = run(*words, "--open")
    assert again.stdout.splitlines()[-1] == f"Report: {page}"
    assert opened == [page]
    assert again.exit_code == 0, again.output
    assert "nothing was left to train" in again.output
    assert (tmp_path / "out" / "trials.jsonl").read_bytes() == before


def test_target_labels_change_nothing_but_the_line_of_the_accuracy(files: tuple[str, str], tmp_path: Path) -> None:
    source, target = files
    with np.load(target) as stored:
        found = dict(stored)
    np.savez(tmp_path / "plain.npz", X=found["X"])
    np.savez(tmp_path / "wrong.npz", X=found["X"], y=found["y"][::-1])
    scores = []
    for number, file in enumerate((target, str(tmp_path / "plain.npz"), str(tmp_path / "wrong.npz"))):
        out = tmp_path / f"out{number}"
        assert run(source, file, "--out", str(out), "--quiet", *FEW).exit_code == 0
        lines = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
        scores.append([(line["point"], line["score"]) for line in lines])
    assert scores[0] == scores[1] == scores[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--validator", "entropie"], "entropy"),
        (["--validator", "oracle"], "needs target labels; it is only in Python, as warmpot.select.Oracle"),
        (["--validator", "plan"], "plan compares the rounds of one run; use transport"),
        (["--validator", "xyz"], "bound. Choose one of these.\n"),
        (["--trials", "0"], "trials"),
        (["--space", os.devnull], "a device"),
        (["--space", "missing.yaml"], "missing.yaml"),
        (["--set", "full.round=3"], "rounds"),
        (["--jobs", "0"], "--jobs"),
        pytest.param(["--ray-address", "127.0.0.1:1"], "Ray address: got '127.0.0.1:1'", marks=needs_ray),
    ],
)
def test_mistakes_are_reported_in_one_line(
    files: tuple[str, str], tmp_path: Path, words: list[str], message: str
) -> None:
    result = run(*files, "--out", str(tmp_path / "out"), *words)
    assert result.exit_code == 2
    assert message in result.output
    assert not (tmp_path / "out" / "trials.jsonl").exists()


def test_predict_names_the_run_of_a_sweep(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(*files, "--out", str(out), "--quiet", *FEW).exit_code == 0
    words = ["predict", str(out), files[1], "--out", str(tmp_path / "p.csv")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert f"got a sweep; allowed: a finished run. Its run is {out / 'best'}." in result.output
    words[1] = str(out / "best")
    assert CliRunner().invoke(app, words).exit_code == 0


def test_help_names_the_default_space_and_what_needs_optuna() -> None:
    words = " ".join(run("--help").output.split())
    assert "full, bound and frozen, next to source-only" in words
    assert "for ranges or for fewer than all; needs Optuna" in words


STOPPED_AFTER_TWO = """
import os, signal, sys
from warmpot.select import study

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when pytest runs in the background of a script
number, real = int(sys.argv.pop(1)), study._Study.record


def record(self, trial):
    trial = real(self, trial)
    if len(self.trials) == 2:  # the reference, the short one
        os.killpg(0, number)
    return trial


study._Study.record = record
from warmpot.cli import main
main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_workers_at_once_and_the_sweep_can_be_resumed(
    files: tuple[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    """All processes get the signal, as from a terminal: an idle worker, and one whose candidate never ends."""
    from warmpot.data import load_table, make_task
    from warmpot.select import sweep

    small = {"full": {"iterations": 4, "width": 8}}
    space = [{"preset": "full", "full.rounds": [1, 10**8]}]
    (tmp_path / "space.yaml").write_text(json.dumps(space))
    words = [*files, "--out", "out", "--space", "space.yaml", "--jobs", "2"]
    flags = [word for name, value in small["full"].items() for word in ("--set", f"full.{name}={value}")]
    command = [sys.executable, "-c", STOPPED_AFTER_TWO, str(int(number)), "sweep", *words, *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(  # to the end of the pipe: no worker holds it any more
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True, check=False
    )
    assert ended.returncode == 128 + number, ended.stderr
    assert "interrupted; the same command continues in out" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert len((tmp_path / "out" / "trials.jsonl").read_text().splitlines()) == 2
    module = sys.modules[sweep.__module__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module, "_try", lambda shared, config, point: module.Trial(point, "full", None, None, 0, 0.0, "endless")
        )
        task = make_task(load_table(files[0]), load_table(files[1]))[0]
        found = sweep(task, out=tmp_path / "out", space=space, changes=small, progress_bar=False)
    assert [trial.point.get("full.rounds") for trial in found.trials] == [None, 1, 10**8]
    assert [trial.problem for trial in found.trials] == [None, None, "endless"]
    assert (tmp_path / "out" / "best" / "predictions.csv").exists()
