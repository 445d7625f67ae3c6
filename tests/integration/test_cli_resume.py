"""``warmpot fit`` as its own process: killed or interrupted, then resumed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

MODEL = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv", "metrics.jsonl")
PROGRAM = "from warmpot.cli import main; main()"
STEPS = 40
FLAGS = ["--preset", "official", "--set", f"minibatch.steps={STEPS}", "--set", "minibatch.checkpoint_every=10",
         "--set", "minibatch.log_every=10", "--accelerator", "cpu", "--no-report"]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nursery: Any) -> Path:
    """A folder with two files and an unbroken run."""
    folder = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(0)
    ys, yt = np.arange(60) % 4, np.arange(40) % 2
    centres = 2 * rng.normal(size=(4, 6))
    np.savez(folder / "s.npz", X=centres[ys] + rng.normal(size=(60, 6)), y=ys)
    np.savez(folder / "t.npz", X=centres[yt] + rng.normal(size=(40, 6)))
    code, _, said = nursery.run(PROGRAM, "fit", "s.npz", "t.npz", *FLAGS, "--out", "whole", folder=folder)
    assert code == 0, said
    return folder


def stopped(nursery: Any, folder: Path, out: str, number: signal.Signals) -> tuple[int, str]:
    """Run with a signal right after the first checkpoint; return exit code and standard error."""
    point, words = "warmpot.train.run_folder:RunFolder.save", ["fit", "s.npz", "t.npz", *FLAGS, "--out", out]
    code, _, said = nursery.run_until(number, point, *words, folder=folder)
    assert any(folder.glob(f"{out}/checkpoints/step-*"))
    return code, said


def same(folder: Path, out: str) -> None:
    for name in MODEL:
        assert (folder / out / name).read_bytes() == (folder / "whole" / name).read_bytes(), name


def test_a_killed_run_goes_on_to_the_same_bits(folder: Path, nursery: Any) -> None:
    code, _ = stopped(nursery, folder, "killed", signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (folder / "killed" / "model.safetensors").exists()
    code, _, said = nursery.run(PROGRAM, "fit", "--resume", "killed", "--no-report", folder=folder)
    assert code == 0, said
    same(folder, "killed")


def test_an_interrupted_run_says_how_to_go_on(folder: Path, nursery: Any) -> None:
    out = "run interrupted"  # SIGTERM does the same: test_interrupt.py
    code, said = stopped(nursery, folder, out, signal.SIGINT)
    assert code == 130, said
    assert "Traceback" not in said
    assert said.splitlines()[-1] == f"interrupted; resume with: warmpot fit --resume '{out}'"
    last = max(path.name for path in (folder / out / "checkpoints").iterdir())
    assert re.fullmatch(r"step-\d{8}", last)
    assert not list((folder / out).rglob(".warmpot-*")), "a draft was left behind"
    code, _, said = nursery.run(PROGRAM, "fit", "--resume", out, "--no-report", folder=folder)
    assert code == 0, said
    same(folder, out)
    code, said, _ = nursery.run(PROGRAM, "fit", "--resume", out, "--no-report", folder=folder)
    assert (code, "nothing is left to do" in said) == (0, True)
    same(folder, out)


def test_errors_of_the_process_are_one_line(folder: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, "fit", "s.npz", "none.npz", "--out", "never", "--quiet"]
    refused = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert re.fullmatch(r"error: none\.npz: got No such file.*\n", refused.stderr)
    assert not (folder / "never").exists()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pseudo-terminal of Linux")
def test_on_a_terminal_there_is_a_bar_and_a_summary(folder: Path, nursery: Any) -> None:
    import pty

    head, tail = pty.openpty()
    words = ["fit", "s.npz", "t.npz", *FLAGS, "--out", "shown"]
    child = nursery.start(PROGRAM, *words, folder=folder, screen=os.ttyname(tail), TERM="xterm")
    said = b""
    while child.poll() is None or select.select([head], [], [], 0)[0]:
        if select.select([head], [], [], 0.05)[0]:
            said += os.read(head, 65536)
    os.close(head)
    os.close(tail)
    assert child.code == 0
    assert "━".encode() in said
    assert b"Classes estimated to be present" in said
