"""Shared by the benchmarks of speed: rows of a table, each with a peer measured in the same run, and their program.

A ratio below its floor is marked and makes the exit code 1. Only a full run writes the default file; a partial one
(--cases, --quick) writes where --out says, if anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from _jobs import ROOT


@dataclass
class Row:
    """One line of the table; seconds, and what must hold."""

    case: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    floor: float | None = None
    notes: str = ""
    passed: bool = True
    ratio: float | None = field(init=False)

    def __post_init__(self) -> None:
        self.ratio = None if self.peer is None else self.peer / self.ours
        if self.floor is not None and self.ratio is not None:
            self.passed = self.passed and self.ratio >= self.floor


Outcome = tuple[list[Row], dict[str, Any] | None]


class Inputs(Protocol):
    """What cases are given: where the data are, and whether cases that take minutes are left out."""

    data: Path
    quick: bool

    @property
    def name(self) -> str: ...


def timed(call: Callable[..., Any], *args: Any, repeats: int = 1) -> tuple[float, Any]:
    """Median seconds of a call, and its last result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call(*args)
        times.append(time.perf_counter() - start)
    return float(np.median(times)), result


def in_subprocess(worker: str, **environment: str) -> dict[str, Any]:
    """Return what a worker of the running benchmark returns in a process of its own."""
    command = [sys.executable, sys.argv[0], "--worker", worker]
    return dict(json.loads(subprocess.check_output(command, env={**os.environ, **environment}, text=True)))


def peak_bytes() -> int:
    """Peak resident memory of this program.

    On Linux `getrusage` also counts the parent's peak (it survives exec), so the kernel's VmHWM is read instead.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    cores, load, threads = os.cpu_count() or 1, os.getloadavg()[0], os.environ.get("OPENBLAS_NUM_THREADS", "default")
    packages = ("warmpot", "POT", "numpy", "scipy", "numba", "scikit-learn")
    versions = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    if load > cores / 4:  # threaded BLAS then waits for the scheduler: POT suffers most, and ratios flatter us
        print(f"Warning: load {load:.1f}. Times are unreliable; wait, or set OPENBLAS_NUM_THREADS=1.", file=sys.stderr)
    return {"cpu": model, "cores": cores, "versions": versions, "blas_threads": threads, "load_before": load}


def readable(duration: float) -> str:
    return f"{duration:.3g} s" if duration >= 1 else f"{duration * 1e3:.3g} ms"


def show(rows: list[Row], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for name in ("case", "warmpot", "peer", "ratio", "floor", "", "notes"):
        table.add_column(name, justify="left" if name in ("case", "notes", "") else "right")
    for row in rows:
        digits = ",.0f" if (row.ratio or 0.0) >= 10 else ".2g"
        theirs = ("", "") if row.peer is None else (readable(row.peer), f"{row.ratio:{digits}}")
        floor = "" if row.floor is None else f"{row.floor:,.0f}"
        mark = "[green]ok[/]" if row.passed else "[bold red]BELOW[/]"
        table.add_row(row.case, readable(row.ours), *theirs, floor, mark, row.notes)
    Console(width=max(Console().width, 150)).print(table)


def fallen(rows: list[Row], committed: dict[str, Any]) -> list[str]:
    """Say which ratios are below half of the committed ones; a case without a ratio on either side is not compared."""
    before = {row["case"]: row["ratio"] for row in committed["rows"] if row["ratio"] is not None}
    pairs = [(row, before[row.case]) for row in rows if row.ratio is not None and row.case in before]
    return [f"{row.case}: {row.ratio:.3g}, was {was:.3g}" for row, was in pairs if (row.ratio or 0.0) < 0.5 * was]


def run(
    description: str,
    cases: Mapping[str, Callable[[Any], Outcome]],
    inputs_of: Callable[[Path, bool], Inputs],
    results: Path,
    workers: Mapping[str, Callable[[], dict[str, Any]]],
) -> int:
    """Measure the cases that the command line names, show and write them; returns the exit code."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=cases, metavar="NAME", help=", ".join(cases))
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with office_home/")
    parser.add_argument("--out", type=Path, help=f"JSON file; a full run writes {results.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is below half of the committed one")
    parser.add_argument("--worker", choices=workers, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(workers[options.worker]()))
        return 0
    facts, inputs = machine(), inputs_of(options.data, options.quick)
    partly = options.cases or options.quick or options.check
    out = options.out or (None if partly else results)
    rows: list[Row] = []
    records: dict[str, Any] = {}
    for name in options.cases or cases:
        print(f"{name} ...", file=sys.stderr, flush=True)
        new_rows, record = cases[name](inputs)
        rows += new_rows
        if record is not None:
            records[name] = record
    show(rows, f"{inputs.name}; {facts['cpu']}, {facts['cores']} cores")
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        result = {"machine": facts, "inputs": inputs.name, "rows": [asdict(row) for row in rows], "records": records}
        out.write_text(json.dumps(result, indent=1) + "\n")
    if options.check:
        lost = fallen(rows, json.loads(results.read_text()))
        print("\n".join(lost) or "No ratio fell by half.")
        return 1 if lost else 0
    return 0 if all(row.passed for row in rows) else 1
