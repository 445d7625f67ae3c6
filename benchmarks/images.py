"""Images on a machine without a GPU: Office-31 amazon -> webcam, 31 -> 10 classes, with EfficientNet-lite0.

python benchmarks/images.py [--runs NAME ...] [--seeds N] [--steps N] [--data DIR] [--cache DIR]
python benchmarks/images.py --tables     # write the tables of docs/images.md from the results

Features once and an engine on them; or the last block trained by mini-batches, from activations on disk or from the
images. Accuracy is of the last iterate, on all target images; target labels are read after training, for this number
only. Every finished run is kept, so an interrupted bench can be continued.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder
from _jobs import ROOT, between, read

RESULTS = ROOT / "benchmarks" / "results" / "images.jsonl"
BLOCK = "blocks.6"
"""The last block of EfficientNet-lite0; with it the last convolution is trained."""
FEATURES = ("source-only", "full", "frozen")
TUNED = ("source-only-official", "official", "source-only-tuned", "tuned", "deep")
TIMED = {"timed": 40, "live": 12}
"""Steps of runs from the cache and from the images themselves: enough to time a step, not to judge it."""
KINDS = {"features": "features once", "cache": f"from {BLOCK} on, from the cache", "live": f"from {BLOCK} on, images"}


def settings(kind: str, data: Path) -> dict[str, Any]:
    """Return the settings of images for a kind of run."""
    backbone = {"name": "tf_efficientnet_lite0", "weights": str(data / "weights" / "tf_efficientnet_lite0.safetensors")}
    if kind != "features":
        backbone["train_from"] = BLOCK
    return {"backbone": backbone, "cache": kind in ("cache", "timed")}


@contextmanager
def timed(owner: type, name: str) -> Iterator[list[tuple[float, float]]]:
    """Yield a list that gets the begin and end of every call of a method."""
    plain, spans = getattr(owner, name), []

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return plain(*args, **kwargs)
        finally:
            spans.append((start, time.perf_counter()))

    setattr(owner, name, call)
    try:
        yield spans
    finally:
        setattr(owner, name, plain)


def run(kind: str, preset: str, seed: int, steps: int | None, data: Path, cache: Path) -> dict[str, Any]:
    """Train once, then compare with the truth."""
    from warmpot.data import make_task
    from warmpot.data.benchmarks import benchmark_task
    from warmpot.methods.warmpot import Warmpot
    from warmpot.train import fit, load_config
    from warmpot.train.health import Health
    from warmpot.train.images import prepare

    changes: dict[str, Any] = {"seed": seed, "images": settings(kind, data)}
    if kind != "features":
        changes["minibatch"] = {"steps": steps, "log_every": 10, "checkpoint_every": steps}
    config = load_config(preset, changes=changes)
    tables = benchmark_task("office-31", data / "office31_images", "amazon", "webcam")
    start = time.perf_counter()
    prepared = prepare(*tables, settings=config.images, cache=cache)
    seconds_before = time.perf_counter() - start
    task, truth = make_task(*prepared)
    start = time.perf_counter()
    with timed(Warmpot, "batch_plan") as plans, timed(Health, "see") as checks:  # one of each per step
        fitted = fit(task, config)
    seconds = time.perf_counter() - start
    # the first steps compile; the middle one is what a long run pays
    step = float(np.median(np.diff([begin for begin, _ in checks]))) if kind != "features" else None
    plan = float(np.median([end - begin for begin, end in plans])) if plans else None
    return {
        "kind": kind, "preset": preset, "seed": seed, "steps": steps,
        "accuracy": 100 * truth.accuracy(fitted.outputs), "seconds": seconds, "seconds_before": seconds_before,
        "seconds_a_step": step, "seconds_a_plan": plan,
    }  # fmt: skip


def wanted(names: list[str] | None, seeds: int) -> list[tuple[str, str, int]]:
    """List the runs: what draws nothing runs once."""
    grid = [("features", preset, seed) for preset in FEATURES for seed in range(seeds if preset == "frozen" else 1)]
    grid += [("cache", preset, seed) for seed in range(seeds) for preset in TUNED]
    grid += [("timed", preset, 0) for preset in TUNED] + [("live", "official", 0)]  # on a machine that is idle
    return [cell for cell in grid if not names or f"{cell[0]}/{cell[1]}" in names]


def tables() -> None:
    lines = ["| trained | preset | accuracy | s per step | of which the plan |", "|---|---|---|---|---|"]
    results = read(RESULTS)
    for kind, words in KINDS.items():
        for preset in dict.fromkeys(row["preset"] for row in results if row["kind"] == kind):
            rows = [row for row in results if (row["kind"], row["preset"]) == (kind, preset)]
            marks = [row["accuracy"] for row in rows]
            accuracy = f"{np.mean(marks):.1f}" + (f" ± {np.std(marks, ddof=1):.1f}" if len(marks) > 1 else "")
            clock = "timed" if kind == "cache" else kind
            timed = next((row for row in results if (row["kind"], row["preset"]) == (clock, preset)), rows[0])
            step, plan = timed["seconds_a_step"], timed["seconds_a_plan"]
            cells = [
                words, f"`{preset}`", "" if kind == "live" else accuracy, f"{step:.2f}" if step else "",
                f"{plan / step:.2%}" if plan and step else "",
            ]  # fmt: skip
            lines.append(f"| {' | '.join(cells)} |")
    between(ROOT / "docs" / "images.md", "images", "\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", nargs="*", metavar="KIND/PRESET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--cache", type=Path, default=None, help="[default: the user's cache folder]")
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if arguments.tables:
        tables()
        return
    warnings.simplefilter("ignore")
    done = {(row["kind"], row["preset"], row["seed"], row["steps"]) for row in read(RESULTS)}
    for kind, preset, seed in wanted(arguments.runs, arguments.seeds):
        steps = {"features": None, **TIMED}.get(kind, arguments.steps)
        if (kind, preset, seed, steps) in done:
            continue
        row = run(kind, preset, seed, steps, arguments.data, arguments.cache)
        with open(RESULTS, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
