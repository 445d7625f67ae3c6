"""Time of whole commands and calls, each with what a user would otherwise run, in the same run on this machine.

python benchmarks/commands.py [--cases NAME ...] [--quick] [--check] [--data DIR] [--out FILE]

Commands run in processes of their own and their times are wall times, the start of Python included. Caches are warm:
every command runs once before it is timed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder, part, read_domain, rows_of, standard_classes
from _jobs import ROOT
from _rows import Outcome, Row, in_subprocess, run, timed

RESULTS = ROOT / "benchmarks" / "results" / "commands.json"
WARMPOT = str(Path(sys.executable).with_name("warmpot"))
ANSWER, SMALL_FIT, OFFICE_HOME = 0.3, 3.0, 6.0
"""Seconds that a user should not have to wait longer for: an answer, a small `fit`, `full` on Office-Home."""
PLAIN_FIT = """
import numpy as np
from sklearn.linear_model import LogisticRegression
source, target = np.load("source.npz"), np.load("target.npz")
model = LogisticRegression(max_iter=1000).fit(source["X"], source["y"])
np.savetxt("plain.csv", model.predict(target["X"]), fmt="%s")
"""


@dataclass
class Inputs:
    """Where the data are, and whether long cases are left out."""

    data: Path
    quick: bool
    name: str = "whole commands, wall time"


def command(*words: str, folder: Path | None = None, ok: int = 0) -> float:
    """Median seconds of a command after a first run; `ok` is its exit code."""

    def call() -> None:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode != ok:
            raise RuntimeError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")

    call()
    return timed(call, repeats=5)[0]


def answers(_: Inputs) -> Outcome:
    """Time `--help` and a mistyped flag; the peer is a Python that does nothing."""
    nothing, rows = command(sys.executable, "-c", "pass"), []
    for case, words, ok in (("warmpot --help", ("--help",), 0), ("a mistyped flag", ("fit", "--ot", "run"), 2)):
        seconds = command(WARMPOT, *words, ok=ok)
        rows.append(Row(case, seconds, nothing, "python -c pass", notes="goal 0.3 s", passed=seconds <= ANSWER))
    return rows, None


def fit(_: Inputs) -> Outcome:
    """Time `warmpot fit` on the demo files, report included; the peer is a plain logistic regression."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([WARMPOT, "demo", "--out", name], check=True, capture_output=True)
        seconds = command(WARMPOT, "fit", "source.npz", "target.npz", folder=folder)  # a new run folder each
        plain = command(sys.executable, "-c", PLAIN_FIT, folder=folder)
    notes = "with report; peer: scikit-learn's logistic regression, no adaptation; goal 3 s"
    return [
        Row("warmpot fit, demo files", seconds, plain, "logistic regression", None, notes, seconds <= SMALL_FIT)
    ], None


def full(inputs: Inputs) -> Outcome:
    """Time `full` on Office-Home; the peer is POT's adaptation by exact transport and a logistic regression."""
    if not (inputs.data / "office_home").is_dir():
        return [], None
    records = {name: in_subprocess(name) for name in ("full", "emd")}
    mine, peer = records["full"], records["emd"]
    notes = (
        f"accuracy {mine['accuracy']:.1%}; peer: EMDTransport and logistic regression, {peer['accuracy']:.1%}; goal 6 s"
    )
    case, passed = "full, Product to RealWorld, 4439 x 1811", mine["seconds"] <= OFFICE_HOME
    return [Row(case, mine["seconds"], peer["seconds"], "ot.da.EMDTransport", None, notes, passed)], records


def work_full(peer: bool) -> dict[str, Any]:
    """Adapt Office-Home Product to the first 25 classes of RealWorld; target labels only give the accuracy."""
    import warmpot

    source, whole = (read_domain("office_home", name, data_folder()) for name in ("Product", "RealWorld"))
    target = part(whole, rows_of(whole, standard_classes("office_home", whole.classes)))
    xs, xt = (np.asarray(table.x, np.float64) for table in (source, target))

    def ours() -> Any:
        return warmpot.fit((source.x, source.y), target.x, progress_bar=False).predict(target.x)

    def theirs() -> Any:
        import ot
        from sklearn.linear_model import LogisticRegression

        moved = ot.da.EMDTransport(max_iter=10**8).fit(Xs=xs, Xt=xt).transform(Xs=xs)
        return LogisticRegression(max_iter=1000).fit(moved, source.y).predict(xt)

    seconds, predicted = timed(theirs if peer else ours)
    return {"seconds": seconds, "accuracy": float((np.asarray(predicted) == target.y).mean())}


CASES: dict[str, Callable[[Inputs], Outcome]] = {"answers": answers, "fit": fit, "full": full}
WORKERS: dict[str, Callable[[], dict[str, Any]]] = {"full": partial(work_full, False), "emd": partial(work_full, True)}

if __name__ == "__main__":
    sys.exit(run(__doc__ or "", CASES, Inputs, RESULTS, WORKERS))
