"""Images on a machine without a GPU: Office-31, amazon and webcam, 31 -> 10 classes, with EfficientNet-lite0.

python benchmarks/images.py [--tasks NAME ...] [--block NAME] [--runs NAME ...] [--seeds N] [--steps N]
python benchmarks/images.py --views 1 2 5 10 [--tasks NAME ...]     # full on features averaged over several crops
python benchmarks/images.py --development --block blocks.5.3 --runs features/full cache/deep [--seeds N] [--steps N]
python benchmarks/images.py --tables     # write the tables and the figure of docs/images.md from the results

Features once and an engine on them; or the last blocks trained by mini-batches, from activations on disk or from the
images. Accuracy is of the last iterate, on all target images; target labels are read after training, for this number
and the learning curves only. Every finished run is kept, so an interrupted bench can be continued.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from _domains import CACHE, data_folder
from _image_tasks import DEVELOPMENT, STANDARD, load_pair
from _jobs import ROOT, between, read

if TYPE_CHECKING:
    from warmpot.data import Task, Truth
    from warmpot.train.snapshots import Snapshot

RESULTS = ROOT / "benchmarks" / "results" / "images.jsonl"
BLOCK = "blocks.6"
"""The last block of EfficientNet-lite0; with it the last convolution is trained."""
FEATURES = ("source-only", "full", "frozen")
TUNED = ("source-only-official", "official", "source-only-tuned", "tuned", "deep")
TIMED = {"timed": 40, "live": 12}
"""Steps of runs from the cache and from the images themselves: enough to time a step, not to judge it."""
CURVE = 5
"""Points of a learning curve besides its start."""
SCORES = ("neighbours", "snd", "entropy", "infomax", "transport", "reverse")
"""Validators whose scores are recorded with a learning curve: their choices can be compared with the truth."""


def settings(kind: str, block: str, data: Path) -> dict[str, Any]:
    """Return the settings of images for a kind of run."""
    backbone = {"name": "tf_efficientnet_lite0", "weights": str(data / "weights" / "tf_efficientnet_lite0.safetensors")}
    if kind != "features":
        backbone["train_from"] = block
    return {"backbone": backbone, "cache": kind in ("cache", "timed")}


class Curve:
    """A chooser that keeps the last iterate, and records of every one what it predicts and its validators' scores.

    `kept`: whether the default of `deep` would prefer it to those before.
    """

    def __init__(self, task: Task) -> None:
        from warmpot.select.best_iterate import ValidatorChooser
        from warmpot.select.validators import make_validator

        self.task = task
        self.default = ValidatorChooser(make_validator("neighbours"), task, None)
        self.points: list[tuple[int, float, np.ndarray, dict[str, float]]] = []
        self.spent = 0.0

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Record; the latest is always the best."""
        from warmpot.select.best_iterate import candidate_from_snapshot
        from warmpot.select.validators import make_validator

        start = time.process_time()
        candidate = candidate_from_snapshot(snapshot, self.task)
        scores = {name: make_validator(name).score(candidate) for name in SCORES}
        alone = replace(candidate, source_inputs=None, target_inputs=None)
        scores["neighbours (own features)"] = make_validator("neighbours").score(alone)
        scores["kept"] = self.default.offer(snapshot)[0]
        self.points.append((snapshot.step, start - self.spent, snapshot.target.logits.numpy().copy(), scores))
        self.spent += time.process_time() - start
        return True, {}

    def state(self) -> dict[str, Any]:
        """Return nothing: these runs are not resumed."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore nothing."""

    def compared(self, truth: Truth, start: float, snapshots: list[tuple[float, float]]) -> list[dict[str, Any]]:
        """Return the curve, with accuracies and seconds since the start."""
        rows = []
        for number, (step, at, logits, scores) in enumerate(self.points, 1):  # one snapshot for every point
            seconds = at - start - seconds_of(snapshots[:number])
            rows.append({"step": step, "seconds": seconds, "accuracy": 100 * truth.accuracy(logits), **scores})
        return rows


@contextmanager
def timed(owner: type, name: str) -> Iterator[list[tuple[float, float]]]:
    """Yield a list that gets the begin and end of every call of a method, in seconds of the processor."""
    plain, spans = getattr(owner, name), []

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        try:
            return plain(*args, **kwargs)
        finally:
            spans.append((start, time.process_time()))

    setattr(owner, name, call)
    try:
        yield spans
    finally:
        setattr(owner, name, plain)


def seconds_of(spans: list[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in spans)


def run(
    pair: str, block: str, kind: str, preset: str, seed: int, steps: int | None, precision: str, cache_views: int,
    data: Path, cache: Path | None,
) -> dict[str, Any]:  # fmt: skip
    """Train once, then compare with the truth."""
    from warmpot.data import make_task
    from warmpot.methods.deep import Deep
    from warmpot.methods.warmpot import Warmpot
    from warmpot.train import fit, load_config
    from warmpot.train.batch_engine import _Trainer
    from warmpot.train.health import Health
    from warmpot.train.images import prepare

    changes: dict[str, Any] = {"seed": seed, "choose": "last", "images": settings(kind, block, data)}
    if kind == "cache":
        changes["images"]["cache_views"] = cache_views
    if steps is not None:
        changes["minibatch"] = {
            "steps": steps, "log_every": 10, "checkpoint_every": max(steps // CURVE, 1),
            "hardware": {"accelerator": "cpu", "precision": precision},
        }  # fmt: skip
    config = load_config(preset, changes=changes)
    tables = load_pair(pair, data, CACHE)
    start = time.process_time()
    prepared = prepare(*tables, settings=config.images, cache=cache)
    seconds_before = time.process_time() - start
    task, truth = make_task(*prepared)
    assert truth is not None, "the images are in folders of their classes"
    curve = Curve(task) if kind == "cache" and (seed == 0 or preset == "deep") else None
    start = time.process_time()
    with (
        timed(Warmpot, "batch_plan") as batch_plans,  # one per step
        timed(Warmpot, "plan") as plans,  # over all pairs
        timed(Deep, "_solve") as rounds,
        timed(_Trainer, "snapshot") as snapshots,  # for the curve only
        timed(Health, "see") as checks,  # one per step
    ):
        fitted = fit(task, config, chooser=curve)
    seconds = time.process_time() - start - (curve.spent if curve else 0.0) - seconds_of(snapshots)
    # the first steps compile; the middle one is what a long run pays
    step = float(np.median(np.diff([begin for begin, _ in checks]))) if steps is not None else None
    plan = float(np.median([end - begin for begin, end in batch_plans])) if batch_plans else None
    row = {
        "task": pair, "block": block, "kind": kind, "preset": preset, "seed": seed, "steps": steps,
        "precision": precision, "cache_views": cache_views, "accuracy": 100 * truth.accuracy(fitted.outputs),
        "seconds": seconds, "seconds_before": seconds_before, "seconds_a_step": step, "seconds_a_plan": plan,
        "clock": "cpu",
    }  # fmt: skip
    if preset == "deep":
        row |= {"seconds_of_rounds": seconds_of(rounds), "rounds": len(rounds), "seconds_of_plans": seconds_of(plans)}
    return row | ({"curve": curve.compared(truth, start, snapshots)} if curve else {})


def run_views(pair: str, views: int, data: Path, cache: Path) -> dict[str, Any]:
    """Train `full` on features averaged over views, as ``warmpot extract --views`` does; each view is stored once."""
    from warmpot.data import Table, make_task
    from warmpot.data.benchmarks import benchmark_task
    from warmpot.nets import BackboneSettings, build_backbone
    from warmpot.train import fit, load_config
    from warmpot.train.extract import extract

    name = settings("features", BLOCK, data)["backbone"]
    stem = build_backbone(BackboneSettings(**name)).eval().stem
    start = time.process_time()

    def features(table: Table, view: int) -> np.ndarray:
        pixels = replace(table.x, draw=view) if view else table.x  # the random views that `extract` averages
        plain = replace(table, x=pixels, y=None, classes=())
        out = cache / f"{pair}-{table.name}-{view}"
        extracted = extract(plain, stem, out, made_from={"backbone": name["name"]}, progress_bar=False)
        assert extracted is not None
        return extracted.x[:]

    tables = benchmark_task("office-31", data / "office31_images", *pair.split("-"))
    averaged = [replace(table, x=np.mean([features(table, k) for k in range(views)], axis=0)) for table in tables]
    seconds_before = time.process_time() - start
    task, truth = make_task(*averaged)
    assert truth is not None
    start = time.process_time()
    fitted = fit(task, load_config("full"), progress_bar=False)
    return {
        "task": pair, "kind": "views", "preset": "full", "seed": 0, "steps": None, "views": views,
        "accuracy": 100 * truth.accuracy(fitted.outputs), "seconds": time.process_time() - start,
        "seconds_before": seconds_before, "images": task.n_source + task.n_target, "clock": "cpu",
    }  # fmt: skip


def wanted(names: list[str] | None, seeds: int) -> list[tuple[str, str, int]]:
    """List the runs: what draws nothing runs once."""
    grid = [("features", preset, seed) for preset in FEATURES for seed in range(seeds if preset == "frozen" else 1)]
    grid += [("cache", preset, seed) for seed in range(seeds) for preset in TUNED]
    grid += [("timed", preset, 0) for preset in TUNED] + [("live", "official", 0)]  # on a machine that is idle
    return [cell for cell in grid if not names or f"{cell[0]}/{cell[1]}" in names]


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a run; the first rows have no task, block and precision."""
    trained = row.get("block", BLOCK), row.get("precision", "32-true"), row.get("cache_views", 0)
    cell = tuple(row[name] for name in ("kind", "preset", "seed", "steps"))
    return row.get("task", STANDARD[0]), row.get("views"), *(("", "", 0) if row["steps"] is None else trained), *cell


def summary(values: list[float]) -> str:
    """Return the mean, with the standard deviation where there are several."""
    return f"{np.mean(values):.1f}" + (f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else "")


def chosen(curve: list[dict[str, float]]) -> float:
    """Return the accuracy of the iterate that the default of `deep` chooses."""
    return [point["accuracy"] for point in curve if point["kept"]][-1]


def max_views(rows: list[dict[str, Any]], pair: str) -> int:
    return max(row["views"] for row in rows if row["task"] == pair)


def tables() -> None:
    """Write the tables of docs/images.md, and the figure."""
    results = read(RESULTS)
    heads = ("task", "trained", "preset", "steps", "accuracy", "chosen", "CPU s", "s per step", "plans")
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in results:
        if "clock" not in row or row["task"] not in STANDARD:  # those without are older
            continue
        if row["kind"] in ("cache", "features") or row.get("views") == 1:
            block = row["block"] if row["kind"] == "cache" else ""
            identity = (row["task"], row["preset"], row["steps"], block, row.get("cache_views", 0))
            groups.setdefault(identity, []).append(row)
    for (pair, preset, steps, block, views), group in sorted(
        groups.items(), key=lambda item: (item[0][0], *item[0][3:])
    ):
        rows = list({row["seed"]: row for row in group}.values())
        curves = [row["curve"] for row in rows if "kept" in row.get("curve", [{}])[0]]  # earlier ones: another rule
        plans = [row["seconds_of_plans"] / row["seconds"] for row in rows if "seconds_of_plans" in row]
        plans += [row["seconds_a_plan"] / row["seconds_a_step"] for row in rows if row.get("seconds_a_plan")]
        trained = f"from `{block}` on" + f", {views} random views" * (views > 0) if block else "features once"
        cells = [
            pair.replace("-", " to "), trained, f"`{preset}`", f"{steps or ''}",
            summary([row["accuracy"] for row in rows]),
            summary([chosen(curve) for curve in curves]) if preset == "deep" and curves else "",
            f"{np.mean([row['seconds'] for row in rows]):.0f}",
            f"{np.mean([row['seconds_a_step'] for row in rows]):.2f}" if steps else "",
            f"{np.mean(plans):.1%}" if plans else "",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    between(ROOT / "docs" / "images.md", "images", "\n".join(lines))
    views = sorted({row["views"] for row in results if row["kind"] == "views"})
    lines = [f"| views | {' | '.join(map(str, views))} |", "|" + "---|" * (len(views) + 1)]
    for pair in dict.fromkeys(row["task"] for row in results if row["kind"] == "views"):
        rows = {row["views"]: row for row in results if row["kind"] == "views" and row["task"] == pair}
        marks = [f"{rows[number]['accuracy']:.1f}" if number in rows else "" for number in views]
        lines.append(f"| {pair.replace('-', ' to ')} | {' | '.join(marks)} |")
    rows = [row for row in results if row["kind"] == "views"]  # a view that is stored is not computed again
    seen = sum(row["images"] * row["views"] for row in rows if row["views"] == max_views(rows, row["task"]))
    second = sum(row["seconds_before"] for row in rows) / max(seen, 1)
    times = [f"{1000 * number * second:.0f}" for number in views]
    lines.append(f"| seconds of one core for 1000 images | {' | '.join(times)} |")
    between(ROOT / "docs" / "images.md", "views", "\n".join(lines))
    between(ROOT / "docs" / "images.md", "development", development_table(results))
    curves = [row for row in results if "curve" in row and row["seed"] == row.get("cache_views", 0) == 0]
    draw_curves([row for row in curves if row["task"] in STANDARD])


def development_table(results: list[dict[str, Any]]) -> str:
    """Return frozen features compared with fine-tuning on the development tasks, and the means over them."""
    lines = ["| task | `full` | `deep`, step 0 | last step | chosen | chosen steps |", "|" + "---|" * 6]
    means = []
    for pair in DEVELOPMENT:
        rows = [row for row in results if row.get("task") == pair]
        frozen = [row["accuracy"] for row in rows if row["preset"] == "full"]
        tuned = [row for row in rows if row["preset"] == "deep"]
        if not frozen or not tuned:
            continue
        columns = (
            frozen,
            [row["curve"][0]["accuracy"] for row in tuned],
            [row["accuracy"] for row in tuned],
            [chosen(row["curve"]) for row in tuned],
        )
        steps = [next(int(point["step"]) for point in reversed(row["curve"]) if point["kept"]) for row in tuned]
        source, target, size = pair.split("-")
        cells = [f"{source} to {target}, {size} classes", *map(summary, columns), str(steps)[1:-1]]
        lines.append(f"| {' | '.join(cells)} |")
        means.append([np.mean(values) for values in columns])
    if means:
        lines.append(f"| mean | {' | '.join(f'{mean:.1f}' for mean in np.mean(means, axis=0))} | |")
    return "\n".join(lines)


def draw_curves(rows: list[dict[str, Any]]) -> None:
    """Draw accuracy against seconds, a panel for each task."""
    import matplotlib.pyplot as plt

    pairs = list(dict.fromkeys(row["task"] for row in rows))
    figure, panels = plt.subplots(1, len(pairs), figsize=(4.5 * len(pairs), 3.2), squeeze=False)
    full = {
        row["task"]: row["accuracy"]
        for row in read(RESULTS)
        if row["preset"] == "full" and "clock" in row and row.get("views", 1) == 1
    }
    for axes, pair in zip(panels[0], pairs, strict=True):
        for row in (row for row in rows if row["task"] == pair):
            points = [(point["seconds"], point["accuracy"]) for point in row["curve"]]
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=row["preset"])
        if pair in full:
            axes.axhline(full[pair], color="grey", linestyle="--", label="full, frozen features")
        axes.set(title=pair.replace("-", " to "), xlabel="seconds of one core", ylabel="accuracy (%)")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "img" / "fine-tuning.png", dpi=110)


def keep(row: dict[str, Any]) -> None:
    with open(RESULTS, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="*", choices=(*STANDARD, *DEVELOPMENT), default=STANDARD[:1])
    parser.add_argument("--block", default=BLOCK, help="the first trained part")
    parser.add_argument("--runs", nargs="*", metavar="KIND/PRESET")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--cache-views", type=int, default=0, help="random views of every image in the cache")
    parser.add_argument("--precision", default="32-true", help="as Lightning Fabric takes it, such as bf16-mixed")
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--cache", type=Path, default=None, help="[default: the user's cache folder]")
    parser.add_argument("--views", type=int, nargs="*", default=[])
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--development", action="store_true", help="the tasks with other classes and filtered images")
    arguments = parser.parse_args()
    arguments.tasks = DEVELOPMENT if arguments.development else arguments.tasks
    if arguments.tables:
        tables()
        return
    warnings.simplefilter("ignore")
    done = set(map(key, read(RESULTS)))
    for pair, number in itertools.product(arguments.tasks, arguments.views):
        cell = {"task": pair, "kind": "views", "preset": "full", "seed": 0, "steps": None, "views": number}
        if key(cell) not in done:
            keep(run_views(pair, number, arguments.data, arguments.cache or CACHE))
    for kind, preset, seed in wanted(arguments.runs, arguments.seeds) if not arguments.views else ():
        for pair in arguments.tasks:
            steps = {"features": None, **TIMED}.get(kind, arguments.steps)
            cell = pair, arguments.block, kind, preset, seed, steps, arguments.precision, arguments.cache_views
            names = ("task", "block", "kind", "preset", "seed", "steps", "precision", "cache_views")
            if key(dict(zip(names, cell, strict=True))) not in done:
                keep(run(*cell, arguments.data, arguments.cache))


if __name__ == "__main__":
    main()
