"""``warmpot fit`` as its own process: killed or interrupted, then resumed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

MODEL = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv", "metrics.jsonl")
PROGRAM = [sys.executable, "-c", "from warmpot.cli import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
STEPS = 300
FLAGS = ["--preset", "official", "--set", f"minibatch.steps={STEPS}", "--set", "minibatch.checkpoint_every=10",
         "--set", "minibatch.log_every=10", "--accelerator", "cpu"]  # fmt: skip
DEADLINE = 180.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files and an unbroken run."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    ys, yt = np.arange(60) % 4, np.arange(40) % 2
    centres = 2 * rng.normal(size=(4, 6))
    np.savez(folder / "s.npz", X=centres[ys] + rng.normal(size=(60, 6)), y=ys)
    np.savez(folder / "t.npz", X=centres[yt] + rng.normal(size=(40, 6)))
    finished = call(folder, "fit", "s.npz", "t.npz", *FLAGS, "--out", "whole")
    assert finished.returncode == 0, finished.stderr
    return folder


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=DEADLINE, check=False
    )


def stopped(folder: Path, out: str, number: signal.Signals, *flags: str) -> tuple[int, str]:
    """Start a run, send the signal as soon as the first checkpoint is there, return exit code and standard error."""
    command = [*PROGRAM, "fit", "s.npz", "t.npz", *flags, "--out", out]
    with subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        try:
            limit = time.monotonic() + DEADLINE
            while not any(folder.glob(f"{out}/checkpoints/step-*")):
                assert process.poll() is None, "the run ended before its first checkpoint"
                assert time.monotonic() < limit, "no checkpoint in time"
                time.sleep(0.005)
            process.send_signal(number)
            _, said = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
    return process.returncode, said


def same(folder: Path, out: str) -> None:
    for name in MODEL:
        assert (folder / out / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_a_killed_run_goes_on_to_the_same_bits(folder: Path) -> None:
    code, _ = stopped(folder, "killed", signal.SIGKILL, *FLAGS)
    assert code == -signal.SIGKILL
    assert not (folder / "killed" / "model.safetensors").exists()
    resumed = call(folder, "fit", "--resume", "killed")
    assert resumed.returncode == 0, resumed.stderr
    same(folder, "killed")


def test_an_interrupted_run_says_how_to_go_on(folder: Path) -> None:
    out = "run interrupted"  # SIGTERM does the same: tests/unit/test_image_training.py
    code, said = stopped(folder, out, signal.SIGINT, *FLAGS)
    assert code == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == f"interrupted; go on with: warmpot fit --resume '{out}'"
    last = max(path.name for path in (folder / out / "checkpoints").iterdir())
    assert re.fullmatch(r"step-\d{8}", last)
    assert not list((folder / out).rglob(".warmpot-*")), "a draft was left behind"
    resumed = call(folder, "fit", "--resume", out)
    assert resumed.returncode == 0, resumed.stderr
    same(folder, out)
    again = call(folder, "fit", "--resume", out)
    assert (again.returncode, "nothing is left to do" in again.stdout) == (0, True)
    same(folder, out)


def test_errors_of_the_process_are_one_line(folder: Path) -> None:
    refused = call(folder, "fit", "s.npz", "none.npz", "--out", "never", "--quiet")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"error: none\.npz: got No such file.*\n", refused.stderr)
    assert not (folder / "never").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pseudo-terminal of Linux")
def test_on_a_terminal_there_is_a_bar_and_a_summary(folder: Path) -> None:
    import pty

    head, tail = pty.openpty()
    command = [*PROGRAM, "fit", "s.npz", "t.npz", *FLAGS, "--set", "minibatch.steps=40", "--out", "shown"]
    with subprocess.Popen(
        command, cwd=folder, env={**ENVIRONMENT, "TERM": "xterm"}, stdout=tail, stderr=tail
    ) as process:
        os.close(tail)
        said = b""
        while True:
            try:
                part = os.read(head, 65536)
            except OSError:  # Linux says so when the other end is closed
                break
            if not part:
                break
            said += part
    os.close(head)
    assert process.returncode == 0
    assert "━".encode() in said
    assert b"Believed present" in said
