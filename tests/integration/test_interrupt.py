"""Ctrl-C and SIGTERM end every command with one line and exit code 130 or 143.

Signals are raised at a known point: when a module is imported, or when a function has returned.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])

BEGIN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when pytest runs in the background of a script
number, point = int(sys.argv.pop(1)), sys.argv.pop(1)
"""
WHILE_IMPORTING = """
class Finder:
    def find_spec(self, name, *_):
        if name == point:
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                if name != "typer":
                    raise ImportError("what numpy makes of it") from None
                raise

sys.meta_path.insert(0, Finder())
from warmpot.cli import main
main()
"""
AT_EXIT = """
import atexit
from warmpot.cli import main
atexit.register(signal.raise_signal, number)
main()
"""
SMALL = ["--set", "full={rounds: 3, iterations: 2, width: 4}"]
AGAIN = "the same command starts again"


@both
@pytest.mark.parametrize(
    ("code", "point", "words", "line"),
    [
        (WHILE_IMPORTING, "typer", ["--help"], ""),
        (WHILE_IMPORTING, "numpy", ["fit", "s.npz", "t.npz"], f"interrupted; {AGAIN}\n"),
        (AT_EXIT, "", ["--version"], ""),
    ],
    ids=["imports of the commands", "imports of a command", "after the command"],
)
def test_before_and_after_the_work(
    number: signal.Signals, code: str, point: str, words: list[str], line: str, tmp_path: Path
) -> None:
    files = {tmp_path / word for word in words if word.endswith(".npz")}
    for file in files:  # missing ones would be reported before anything heavy is imported
        file.touch()
    command = [sys.executable, "-c", BEGIN + code, str(int(number)), point, *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr.splitlines()[-1:]) == (128 + number, line.splitlines())
    assert set(tmp_path.iterdir()) == files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, nursery: Any) -> Path:
    """A folder with data, images, a grid and a finished run."""
    folder, rng = tmp_path_factory.mktemp("interrupt"), np.random.default_rng(0)
    for name, y in (("s", np.repeat(np.arange(3), 8)), ("t", np.repeat([0, 1], 6))):
        np.savez(folder / f"{name}.npz", X=3.0 * np.eye(3)[y] + rng.normal(size=(len(y), 3)), y=y)
        (folder / "images" / name).mkdir(parents=True)
        Image.new("RGB", (40, 40)).save(folder / "images" / name / "0.png")
    changes = {"full": {"rounds": 3, "iterations": 2, "width": 4}}
    grid = {"title": "grid", "data": [{"name": "d", "source": "s.npz", "target": "t.npz"}], "seeds": 2, "set": changes}
    grid["rows"] = [{"name": "row", "preset": "full"}]
    (folder / "grid.yaml").write_text(json.dumps(grid))
    code = "from warmpot.cli import main; main()"
    ended = nursery.run(code, "fit", "s.npz", "t.npz", *SMALL, "--out", "run", "--no-report", folder=folder)
    assert ended[0] == 0, ended
    return folder


BACKBONE = [
    "--backbone", "test_resnet", "--backbone-weights", "none", "--resize", "40", "--crop", "32", "--workers", "0",
]  # fmt: skip


@both
@pytest.mark.parametrize(
    ("point", "words", "line"),
    [
        ("warmpot.train.run_folder:RunFolder.save", ["fit", "s.npz", "t.npz", *SMALL, "--out", "OUT"],
         "resume with: warmpot fit --resume OUT"),
        ("warmpot.cli._data_files:DataFiles.read", ["fit", "s.npz", "t.npz", "--out", "OUT"], AGAIN),
        ("warmpot.train.round_engine:_RoundTrainer.round", ["sweep", "s.npz", "t.npz", *SMALL, "--out", "OUT"],
         "the same command continues in OUT"),
        ("warmpot.select.study:_Study.record", ["sweep", "s.npz", "t.npz", *SMALL, "--out", "OUT"],
         "the same command continues in OUT"),
        ("warmpot.bench.runner:_Results.add", ["bench", "grid.yaml", "--data", ".", "--out", "OUT"],
         "finished cells are stored, the same command continues in OUT"),
        ("warmpot.data.shards:ShardWriter.write", ["extract", "images", *BACKBONE, "--out", "OUT"],
         "finished pieces are kept, and the same command continues from there"),
        ("warmpot.train.predictor:Predictor.assess", ["predict", "run", "t.npz", "--out", "OUT"], AGAIN),
        ("warmpot.bounds:pac_bayes_bound", ["bound", "run", "--alpha", "0.5", "--beta", "0.5"], AGAIN),
        ("warmpot.train:load_config", ["demo", "--out", "OUT"], AGAIN),
    ],
    ids=["fit", "fit, before the training", "sweep, in a training", "sweep", "bench", "extract", "predict", "bound",
         "demo"],
)  # fmt: skip
def test_at_work(
    folder: Path, nursery: Any, number: signal.Signals, point: str, words: list[str], line: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    words = [word.replace("OUT", out) for word in words]
    code, _, error = nursery.run_until(number, point, *words, folder=folder)
    assert code == 128 + number, error
    assert error.splitlines()[-1] == f"interrupted; {line.replace('OUT', out)}"
    assert "Traceback" not in error
    assert not [*folder.rglob(".warmpot-*.tmp"), *tmp_path.rglob(".warmpot-*.tmp")], "a draft was left behind"
