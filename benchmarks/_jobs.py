"""Shared by the benchmarks: jobs in processes, whose results are appended to a file, and text between markers."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_all(
    function: Callable[..., dict[str, Any]],
    todo: Sequence[tuple[Any, ...]],
    out: Path,
    workers: int,
    describe: Callable[[dict[str, Any]], str],
    *,
    fresh: bool = True,
) -> None:
    """Run jobs in single-threaded processes, each in a `fresh` one; finished results survive an interruption."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    out.parent.mkdir(exist_ok=True)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, max_tasks_per_child=1 if fresh else None, mp_context=spawn) as pool:
        waiting = [pool.submit(function, *job) for job in todo]
        for count, future in enumerate(as_completed(waiting), 1):
            result = future.result()
            with open(out, "a", encoding="utf-8") as stream:
                stream.write(json.dumps(result) + "\n")
            print(f"{count}/{len(todo)} {describe(result)}", flush=True)


def between(path: Path, marker: str, text: str) -> None:
    """Put text between two markers of a page."""
    start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
    page = path.read_text(encoding="utf-8")
    head, rest = page.split(start)
    path.write_text(f"{head}{start}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
