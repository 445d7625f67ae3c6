"""Choices without target labels, and the bounds, on real partial tasks.

python benchmarks/selection.py [--tasks NAME ...] [--pool NAME ...] [--seeds N] [--jobs N] [--data DIR] [--out FILE]
python benchmarks/selection.py --overlap     # accuracy against the number of target classes of Office-Home
python benchmarks/selection.py --tables      # write the tables and figures of docs/selection.md from the results

Every iterate of every candidate of the pool is scored by every validator, and apart from that measured by target
labels ("oracle"). A seed draws the fifth of the source that is held out and, for digits, the samples.
Every finished run is kept, so an interrupted bench goes on where it stopped; remove the file to start anew.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder
from _jobs import ROOT, between, read, run_all
from adaptation import TASKS, load

RESULTS = ROOT / "benchmarks" / "results" / "selection.jsonl"
OVERLAP = ROOT / "benchmarks" / "results" / "overlap.jsonl"
HELD = 0.2
FIXED = {"alpha": 0.8, "beta": 0.35}

# What `warmpot sweep` tries by default, and the paper's alpha and beta.
POOL: dict[str, tuple[str, dict[str, Any]]] = {
    "source-only": ("source-only", {}),
    "full": ("full", {}),
    "frozen": ("frozen", {"minibatch": {"checkpoint_every": 500}}),
    "bound": ("bound", {}),
    "full (.8, .35)": ("full", {"params": FIXED}),
}


# Accuracy against the number of target classes: without adaptation, with the paper's numbers, with our defaults.
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "source-only": ("source-only", {}),
    "fixed (.8, .35)": ("full", {"params": FIXED}),
    "auto": ("full", {}),
}
STYLES = [{"color": "#888888", "marker": "o"}, {"color": "#ee8866", "marker": "s"}, {"color": "#4477aa", "marker": "D"}]
PAIRS = ("Art-Product", "Product-RealWorld", "RealWorld-Art")
PRESENT = (5, 10, 15, 25, 40, 50, 65)


class Recorder:
    """A `Chooser` that keeps the last iterate and writes down what every validator says of all of them."""

    def __init__(self, task: Any, truth: Any, held: Any, keep: Path | None) -> None:
        self.task, self.truth, self.held, self.keep = task, truth, held, keep
        self.rows: list[dict[str, Any]] = []
        self.probabilities: list[np.ndarray] = []

    def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
        """Score it."""
        from warmpot.select import VALIDATORS, make_validator
        from warmpot.select.best_iterate import candidate_from_snapshot
        from warmpot.select.candidate import effective_target_classes

        candidate = candidate_from_snapshot(snapshot, self.task, self.held)
        scores, seconds = {}, {}
        for name in VALIDATORS:
            validator = make_validator(name)
            if "transport" not in validator.needs or candidate.transport is not None:
                start = time.perf_counter()
                scores[name] = validator.score(candidate)
                seconds[name] = time.perf_counter() - start
        accuracy = float((candidate.target_predictions == self.truth.yt).mean())
        self.rows.append({"step": snapshot.step, "accuracy": accuracy, "classes": effective_target_classes(candidate),
                          "scores": scores, "seconds": seconds})  # fmt: skip
        if self.keep is not None:
            self.probabilities.append(candidate.target_proba.astype(np.float16))
        self.last = candidate
        return True, {}

    def state(self) -> dict[str, Any]:
        """Nothing to go on with: a bench repeats a run that was stopped."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""


def run(name: str, candidate: str, seed: int, folder: Path, keep: Path | None) -> dict[str, Any]:
    """Train once on one thread, and score every iterate."""
    import torch

    from warmpot.select.best_iterate import hold_out
    from warmpot.train import fit, load_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = load(name, seed, folder)
    task, held = hold_out(task, HELD, seed)
    recorder = Recorder(task, truth, held, keep)
    preset, changes = POOL[candidate]
    start = time.perf_counter()
    fit(task, load_config(preset, changes={**changes, "seed": seed}), chooser=recorder, progress_bar=False)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        file = keep / f"{name.replace('/', '_')}-{candidate.replace(' ', '_')}-{seed}.npz"
        np.savez_compressed(file, p=np.stack(recorder.probabilities), y=truth.yt)
    return {"task": name, "candidate": candidate, "seed": seed, "seconds": time.perf_counter() - start,
            "iterates": recorder.rows}  # fmt: skip


def overlap(pair: str, present: int, seed: int, setting: str, folder: Path) -> dict[str, Any]:
    """Train on Office-Home with so many classes in the target: the first by name, or drawn by a seed above 0."""
    import torch

    from warmpot.data import as_table, load_table, make_task
    from warmpot.train import fit, load_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    source, target = (load_table(folder / "office_home" / f"{name}.npz") for name in pair.split("-"))
    names = sorted(target.classes)
    order = names if seed == 0 else list(np.random.default_rng(seed).permutation(names))
    keep = np.isin(np.array(target.classes)[target.y], order[:present])
    task, truth = make_task(source, as_table(target.x[keep], target.y[keep], classes=target.classes, name=target.name))
    preset, changes = SETTINGS[setting]
    fitted = fit(task, load_config(preset, changes=changes), progress_bar=False)
    accuracy = float((fitted.outputs.argmax(axis=1) == truth.yt).mean())
    return {"pair": pair, "present": present, "seed": seed, "setting": setting, "accuracy": accuracy}


def bench_overlap(args: argparse.Namespace) -> None:
    done = {(r["pair"], r["present"], r["seed"], r["setting"]) for r in read(OVERLAP)}
    jobs = [
        (pair, present, seed, setting)
        for seed in range(args.seeds)
        for pair in PAIRS
        for present in PRESENT
        for setting in SETTINGS
        if (pair, present, seed, setting) not in done
    ]
    run_all(overlap, [(*job, args.data) for job in jobs], OVERLAP, args.jobs, lambda found: (
        f"{found['pair']} {found['present']} classes, {found['setting']}, seed {found['seed']}: "
        f"{100 * found['accuracy']:.1f} %"
    ))  # fmt: skip


def bench(args: argparse.Namespace) -> None:
    done = {(r["task"], r["candidate"], r["seed"]) for r in read(args.out)}
    jobs = [
        (task, candidate, seed)
        for seed in range(args.seeds)
        for candidate in args.pool
        for task in args.tasks
        if (task, candidate, seed) not in done
    ]
    run_all(run, [(*job, args.data, args.keep) for job in jobs], args.out, args.jobs, lambda found: (
        f"{found['task']} {found['candidate']} seed {found['seed']}: "
        f"{100 * found['iterates'][-1]['accuracy']:.1f} % in {found['seconds']:.0f} s"
    ))  # fmt: skip


def groups(results: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, list[dict[str, Any]]]]:
    """Return the iterates of all candidates by task and seed, of the seeds that have the whole pool on every task."""
    found: dict[tuple[str, int], dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for result in results:
        found[result["task"], result["seed"]][result["candidate"]] = result["iterates"]
    whole = {key: pool for key, pool in sorted(found.items()) if set(POOL) <= set(pool)}
    return {(task, seed): pool for (task, seed), pool in whole.items() if all((t, seed) in whole for t in TASKS)}


def picked(iterates: list[dict[str, Any]], validator: str, before: float) -> dict[str, Any]:
    """Return the best by a validator among those that are no collapse, as the library does."""
    from warmpot.select.candidate import collapse_reason

    fit = [it for it in iterates if validator in it["scores"] and not collapse_reason(it["classes"], before)]
    return max(fit, key=lambda it: it["scores"][validator], default=iterates[0])


def judged(pools: dict[Any, dict[str, list[dict[str, Any]]]], validator: str) -> dict[str, Any]:
    """How well a validator chooses among the last iterates of the pool, and within the runs of each candidate."""
    from scipy.stats import spearmanr

    chosen, regrets, ranks, within, tasks = [], [], [], [], []
    for (task, _), pool in pools.items():
        reference = pool["source-only"][-1]
        last = [iterates[-1] for iterates in pool.values()]
        best = max(it["accuracy"] for it in last)
        pick = picked([reference, *last], validator, reference["classes"])
        chosen.append(pick["accuracy"])
        regrets.append(best - pick["accuracy"])
        tasks.append((task, pick["accuracy"] < reference["accuracy"] - 1e-9))
        scored = [it for it in last if validator in it["scores"]]
        if len(scored) > 2:
            ranks.append(spearmanr([it["scores"][validator] for it in scored], [it["accuracy"] for it in scored])[0])
        for name, iterates in pool.items():
            if len(iterates) > 1:
                found = picked(iterates, validator, iterates[0]["classes"])
                within.append((name, found["accuracy"] - iterates[-1]["accuracy"]))
    return {
        "accuracy": np.mean(chosen), "regret": np.mean(regrets), "worst": np.max(regrets),
        "rank": np.nanmean(ranks) if ranks else np.nan, "below": sum(below for _, below in tasks),
        "within": np.mean([gain for _, gain in within]), "within_worst": np.min([gain for _, gain in within]),
        "per_task": {task: np.mean([c for c, (t, _) in zip(chosen, tasks, strict=True) if t == task])
                     for task in dict.fromkeys(t for t, _ in tasks)},
    }  # fmt: skip


def tables(args: argparse.Namespace) -> None:
    """Write the tables and the figure of docs/selection.md."""
    from warmpot.select import VALIDATORS

    pools = groups(read(args.out))
    found = {name: judged(pools, name) for name in VALIDATORS if name != "plan"}
    order = sorted(found, key=lambda name: found[name]["regret"])
    lines = [
        "| validator | accuracy | regret | worst | rank correlation | below source-only | within a run (worst) |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in order:
        f = found[name]
        within = f"{100 * f['within']:+.1f} ({100 * f['within_worst']:+.1f})"
        lines.append(f"| `{name}` | {100 * f['accuracy']:.1f} | {100 * f['regret']:.1f} | {100 * f['worst']:.1f} | "
                     f"{f['rank']:+.2f} | {f['below']} | {within} |")  # fmt: skip
    for name in POOL:
        last = [pool[name][-1]["accuracy"] for pool in pools.values()]
        regret = [max(i[-1]["accuracy"] for i in pool.values()) - pool[name][-1]["accuracy"] for pool in pools.values()]
        below = sum(pool[name][-1]["accuracy"] < pool["source-only"][-1]["accuracy"] - 1e-9 for pool in pools.values())
        lines.append(f"| always {name} | {100 * np.mean(last):.1f} | {100 * np.mean(regret):.1f} | "
                     f"{100 * np.max(regret):.1f} | | {below} | |")  # fmt: skip
    best = np.mean([max(i[-1]["accuracy"] for i in pool.values()) for pool in pools.values()])
    lines.append(f"| **oracle** (target labels) | {100 * best:.1f} | 0.0 | 0.0 | | 0 | |")
    counts = f"{len(pools)} choices: {len({t for t, _ in pools})} tasks, seeds {sorted({s for _, s in pools})}."
    page = ROOT / "docs" / "selection.md"
    between(page, "validators", "\n".join([*lines, "", counts]))
    between(page, "tasks", per_task(pools, found, order[:3]))
    curves(read(OVERLAP), page)


def per_task(pools: dict[Any, Any], found: dict[str, Any], names: list[str]) -> str:
    """Accuracy on every task: the pool's last iterates, and what some validators choose."""
    candidates = ["source-only", "full", "frozen", "bound"]
    heads = [*candidates, *(f"by `{name}`" for name in names), "oracle"]
    lines = ["| task | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for task in [task for task in TASKS if any(t == task for t, _ in pools)]:
        mine = [pool for (t, _), pool in pools.items() if t == task]
        cells = [[pool[name][-1]["accuracy"] for pool in mine] for name in candidates]
        cells += [[found[name]["per_task"][task]] for name in names]
        cells += [[max(i[-1]["accuracy"] for i in pool.values()) for pool in mine]]
        lines.append(f"| {task} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    mean = f"{100 * np.mean(values):.1f}"
    return f"{mean} ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 and np.ptp(values) > 0 else mean


def curves(results: list[dict[str, Any]], page: Path) -> None:
    """Accuracy against the number of target classes: a table and docs/overlap.png."""
    from matplotlib.figure import Figure

    if not results:
        return
    means = {
        (setting, present): [r["accuracy"] for r in results if (r["setting"], r["present"]) == (setting, present)]
        for setting in SETTINGS
        for present in PRESENT
    }
    lines = ["| target classes | " + " | ".join(map(str, PRESENT)) + " | mean |", "|---|" + "---|" * (len(PRESENT) + 1)]
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for setting, style in zip(SETTINGS, STYLES, strict=True):
        row = [100 * float(np.mean(means[setting, present])) for present in PRESENT]
        lines.append(f"| {setting} | " + " | ".join(f"{v:.1f}" for v in row) + f" | {np.mean(row):.1f} |")
        axes.plot(PRESENT, row, **style, label=setting)
    worse = sum(
        r["accuracy"] < next(s["accuracy"] for s in results if s["setting"] == "source-only"
                             and all(s[k] == r[k] for k in ("pair", "present", "seed"))) - 1e-9
        for r in results if r["setting"] == "auto"
    )  # fmt: skip
    runs = sum(r["setting"] == "auto" for r in results)
    axes.set(xlabel="classes in the target, of 65", ylabel="accuracy on the target, %", xticks=PRESENT)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(ROOT / "docs" / "overlap.png", dpi=150)
    seeds = len({r["seed"] for r in results})
    text = f"Means over {', '.join(PAIRS)} and {seeds} draws of the classes. "
    text += f"`auto` is below source-only in {worse} of {runs} runs."
    between(page, "overlap", "\n".join([*lines, "", text]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="NAME")
    parser.add_argument("--pool", nargs="+", default=list(POOL), choices=list(POOL), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--keep", type=Path, help="folder for the probabilities of all iterates")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        tables(args)
    else:
        (bench_overlap if args.overlap else bench)(args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
