"""All methods and weightings on frozen features: the comparison and the ablation of docs/methods.md.

    python benchmarks/methods.py [--tasks NAME ...] [--rows NAME ...] [--seeds 3]   # append to results/methods.jsonl
    python benchmarks/methods.py --tables                                          # into docs/methods.md

Every run tells three accuracies: of the last iterate; of the iterate that the validator `neighbours` prefers among
those of every 500 steps, without target labels; and of the best of these by target labels, the *oracle*. Target labels
reach nothing else. Every finished run is kept, so an interrupted bench goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _jobs import ROOT, between, read, run_all
from adaptation import TASKS, data_folder, load

RESULTS = ROOT / "benchmarks" / "results" / "methods.jsonl"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "source-only": ("source-only-frozen", {}),
    "source-only, full": ("source-only", {}),
    "mpot": ("mpot-frozen", {}),
    "jumbot": ("jumbot-frozen", {}),
    "ba3us": ("ba3us-frozen", {}),
    "pwan": ("pwan-frozen", {}),
    "ar": ("ar-frozen", {}),
    "arpm": ("arpm-frozen", {}),
    "arpm + warmpot (A)": ("arpm-warmpot-frozen", {}),
    "arpm + warmpot (B)": ("arpm-plan-frozen", {}),
    "warmpot": ("frozen", {}),
    "warmpot, full": ("full", {}),
}
ABLATION: dict[str, tuple[str, dict[str, Any]]] = {
    "uniform": ("frozen", {"weights": "uniform"}),
    "class share": ("frozen", {"weights": "class_share"}),
    "chi2 ball": ("frozen", {"weights": "chi2_ball", "weight_params": {"periods": 10}}),
    "plan, batch": ("frozen", {}),
    "plan, data set": (
        "frozen",
        {
            "weights": "plan",
            "weight_params": {"scope": "dataset", "alpha": 0.7, "beta": 0.35, "eta1": 0.5, "eta2": 7.0},
        },
    ),
}
ROWS = METHODS | {f"weights: {name}": entry for name, entry in ABLATION.items() if name != "plan, batch"}
SAME = {"weights: plan, batch": "warmpot"}
FAMILIES = {"office31": "Office-31", "office_home": "Office-Home", "digits": "MNIST/USPS", "built-in": "built-in"}
PAPER_ROWS = {
    "mpot": "MPOT", "jumbot": "JUMBOT", "ba3us": "BA3US", "pwan": "PWAN", "ar": "AR", "arpm": "ARPM",
    "arpm + warmpot (A)": "ARPM+our-weights", "warmpot": "WARMPOT", "source-only": "ResNet-50",
}  # fmt: skip


class Witness:
    """Looks at every iterate of a run: the label-free score for the choice, the accuracy for the tables only."""

    def __init__(self, task: Any, truth: Any) -> None:
        from warmpot.select import make_validator

        self.task, self.truth, self.validator = task, truth, make_validator("neighbours")
        self.seen: list[tuple[float, float]] = []
        self.seconds = 0.0

    def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
        """Note the score and the accuracy; the result of the run stays the last iterate."""
        from warmpot.select.within import evidence_of

        start = time.perf_counter()
        accuracy = float((snapshot.target.logits.numpy().argmax(axis=1) == self.truth.yt).mean())
        self.seen.append((self.validator.score(evidence_of(snapshot, self.task)), accuracy))
        self.seconds += time.perf_counter() - start
        return False, {}

    def state(self) -> dict[str, Any]:
        """Nothing: the bench does not resume within a run."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""


def run(name: str, row: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train once on one thread, then compare with the truth."""
    import torch

    from warmpot.train import fit, load_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = load(name, seed, folder)
    preset, changes = ROWS[row]
    config, witness = load_config(preset, changes={"seed": seed, **changes}), Witness(task, truth)
    start = time.perf_counter()
    fitted = fit(task, config, progress_bar=False, chooser=witness)
    seconds = time.perf_counter() - start - witness.seconds
    scores, accuracies = (list(part) for part in zip(*witness.seen, strict=True))
    # the last of equals, as the library chooses
    chosen = max(range(len(scores)), key=lambda k: (scores[k], k))
    outlier = ~np.isin(task.ys, truth.yt)
    return {
        "task": name, "row": row, "seed": seed, "seconds": seconds,
        "last": float((fitted.outputs.argmax(axis=1) == truth.yt).mean()),
        "chosen": accuracies[chosen], "oracle": max(accuracies), "score": scores[-1],
        "outlier_weight": float(fitted.source_weights[outlier].sum() / fitted.source_weights.sum()),
        "outlier_samples": float(outlier.mean()),
    }  # fmt: skip


def draws_nothing(task: str, row: str) -> bool:
    """Whether a seed changes nothing: the full engine draws nothing, and these data sets are taken whole."""
    return ROWS[row][0] in ("full", "source-only") and task.startswith("office")


def paper_numbers(folder: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Mean of the paper's fine-tuned accuracies over the six Office-Home tasks that we have: methods, weightings."""
    short = {"A": "Art", "P": "Product", "R": "RealWorld"}
    found: list[dict[str, float]] = []
    for name in ("office_home_methods.csv", "office_home_weighting.csv"):
        values: dict[str, list[float]] = {}
        with open(folder.parent / "paper" / name, encoding="utf-8", newline="") as stream:
            for line in csv.DictReader(stream):
                if set(line["task"].split("->")) <= set(short) and line["accuracy"]:
                    values.setdefault(line["method"], []).append(float(line["accuracy"]))
        found.append({method: float(np.mean(numbers)) for method, numbers in values.items() if len(numbers) == 6})
    return found[0], found[1]


class Results:
    """What the finished runs say; a mean over tasks is one over whole seeds."""

    def __init__(self, path: Path) -> None:
        self.runs = {(r["row"], r["task"], r["seed"]): r for r in read(path)}

    def seeds(self, row: str, tasks: list[str]) -> list[int]:
        """Seeds for which all tasks are done."""
        found = {seed for _, _, seed in self.runs}
        return [seed for seed in sorted(found) if all(self._run(row, task, seed) for task in tasks)]

    def _run(self, row: str, task: str, seed: int) -> dict[str, Any] | None:
        row = SAME.get(row, row)
        return self.runs.get((row, task, 0 if draws_nothing(task, row) else seed))

    def means(self, row: str, tasks: list[str], what: str) -> list[float]:
        """Mean over tasks, a number a seed."""
        return [
            float(np.mean([found[what] for task in tasks if (found := self._run(row, task, seed))]))
            for seed in self.seeds(row, tasks)
        ]

    def cell(self, row: str, tasks: list[str], what: str = "last") -> str:
        """Mean over seeds with the standard deviation of the seeds' means, in per cent."""
        found = [100 * mean for mean in self.means(row, tasks, what)]
        if not found:
            return ""
        spread = f" ± {np.std(found, ddof=1):.1f}" if len(found) > 1 else ""
        return f"{np.mean(found):.1f}{spread}"

    def below(self, row: str, tasks: list[str], baseline: str) -> int:
        """Tasks whose mean over seeds is below the baseline's."""
        pairs = [(self.means(row, [task], "last"), self.means(baseline, [task], "last")) for task in tasks]
        return sum(bool(a and b) and float(np.mean(a)) < float(np.mean(b)) - 1e-9 for a, b in pairs)


def families() -> dict[str, list[str]]:
    return {family: [task for task in TASKS if task.startswith(family)] for family in FAMILIES}


def comparison(results: Results, paper: dict[str, float]) -> str:
    """Return the tables of the methods."""
    groups = families()
    head = " | ".join(f"{FAMILIES[family]} ({len(tasks)})" for family, tasks in groups.items())
    lines = [f"| method | {head} | the paper, fine-tuned |", "|---|" + "---|" * (len(groups) + 1)]
    for row in METHODS:
        cells = [results.cell(row, tasks) for tasks in groups.values()]
        printed = paper.get(PAPER_ROWS.get(row, ""))
        lines.append(f"| {row} | {' | '.join(cells)} | {f'{printed:.1f}' if printed else ''} |")
    lines += [
        "",
        "| method | last | chosen | oracle | below source-only | weight on outliers | seconds a run | seeds |",
    ]
    lines.append("|---|" + "---|" * 7)
    for row in METHODS:
        baseline = "source-only, full" if row.endswith("full") else "source-only"
        done = len(results.seeds(row, TASKS))
        compared = done and row != baseline
        below = f"{results.below(row, TASKS, baseline)} of {len(TASKS)}" if compared else ""
        spent = results.means(row, TASKS, "seconds")
        cells = [results.cell(row, TASKS, what) for what in ("last", "chosen", "oracle")]
        cells += [
            below,
            results.cell(row, TASKS, "outlier_weight"),
            f"{np.mean(spent):.0f}" if spent else "",
            f"{done}",
        ]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ablation(results: Results, paper: dict[str, float]) -> str:
    """Return the table of the weightings under WARMPOT's alignment."""
    groups = families()
    head = " | ".join(f"{FAMILIES[family]} ({len(tasks)})" for family, tasks in groups.items())
    lines = [f"| weights | {head} | weight on outliers | the paper, fine-tuned |", "|---|" + "---|" * (len(groups) + 2)]
    printed = {"uniform": "MPOT weights", "class share": "BA3US weights", "chi2 ball": "ARPM weights",
               "plan, batch": "WARMPOT"}  # fmt: skip
    for name in ABLATION:
        row = f"weights: {name}"
        cells = [results.cell(row, tasks) for tasks in groups.values()] + [results.cell(row, TASKS, "outlier_weight")]
        known = paper.get(printed.get(name, ""))
        lines.append(f"| {name} | {' | '.join(cells)} | {f'{known:.1f}' if known else ''} |")
    return "\n".join(lines)


def by_task(results: Results) -> str:
    """Return the last iterates task by task."""
    rows = [*METHODS, *(f"weights: {name}" for name in ABLATION if name != "plan, batch")]
    lines = ["| task | " + " | ".join(rows) + " |", "|---|" + "---|" * len(rows)]
    for task in TASKS:
        cells = [results.cell(row, [task]).replace(" ± ", "±") for row in rows]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def choice(results: Results) -> str:
    """Return what comes of choosing among all rows, task by task, without target labels."""
    rows = [row for row in METHODS if not row.startswith("source-only, full")]
    found: list[tuple[float, float, float, str]] = []
    for task in TASKS:
        for seed in {seed for _, _, seed in results.runs}:
            runs = [run for row in rows if (run := results._run(row, task, seed))]
            if len(runs) == len(rows):
                best = max(runs, key=lambda run: run["score"])
                base = next(run["last"] for run in runs if run["row"] == "source-only")
                found.append((best["last"], max(run["last"] for run in runs), base, best["row"]))
    if not found:
        return ""
    chosen, top, base = (100 * np.array([line[k] for line in found], float) for k in range(3))
    names = [line[3] for line in found]
    often = ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names), key=names.count, reverse=True))
    return (
        f"One method for each task, chosen among the last iterates of these {len(rows)} rows by `neighbours`, without "
        f"target labels: {chosen.mean():.1f} on average over {len(found)} tasks and seeds, {(top - chosen).mean():.1f} "
        f"below the best by target labels (oracle; worst {(top - chosen).max():.1f}), below source-only in "
        f"{int((chosen < base - 1e-9).sum())}. Chosen: {often}."
    )


def draw(results: Results, path: Path) -> None:
    """Draw, task by task, what each method gains over source-only, and where its weight goes."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    colours = dict(zip(FAMILIES, ("#2468b4", "#e07b20", "#2e9a5c", "#8e5bb5"), strict=True))
    rows = [row for row in METHODS if not row.startswith("source-only")]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.4), sharey=True, width_ratios=(3, 2))
    for place, row in enumerate(reversed(rows)):
        baseline = "source-only, full" if row.endswith("full") else "source-only"
        gains: list[float] = []
        for family, tasks in families().items():
            for number, task in enumerate(tasks):
                ours, theirs = (results.means(name, [task], "last") for name in (row, baseline))
                if not ours or not theirs:
                    continue
                gains.append(100 * float(np.mean(ours) - np.mean(theirs)))
                height = place + 0.05 * (number - (len(tasks) - 1) / 2)
                dot = {"color": colours[family], "s": 16, "alpha": 0.8, "linewidths": 0}
                left.scatter(gains[-1], height, **dot)
                weight, share = (results.means(row, [task], f"outlier_{what}") for what in ("weight", "samples"))
                right.scatter(float(np.mean(weight)) / float(np.mean(share)), height, **dot)
        if gains:
            left.plot([np.mean(gains)] * 2, [place - 0.32, place + 0.32], color="black", linewidth=1.6)
    left.set_yticks(range(len(rows)), list(reversed(rows)))
    left.axvline(0.0, color="#999999", linewidth=0.8, zorder=0)
    right.axvline(1.0, color="#999999", linewidth=0.8, zorder=0)
    left.set_xlabel("points above source-only, last iterate (bar: mean)")
    right.set_xlabel("weight on outlier classes / their share")
    right.set_xlim(left=-0.03)
    for family, name in FAMILIES.items():
        left.scatter([], [], color=colours[family], s=16, label=name)
    figure.legend(frameon=False, fontsize=8, loc="upper center", ncols=len(FAMILIES))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(rect=(0.0, 0.0, 1.0, 0.95))
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def tables(args: argparse.Namespace) -> None:
    """Put the results between the markers of docs/methods.md, and draw them."""
    results = Results(args.out)
    methods, weightings = paper_numbers(args.data)
    page = ROOT / "docs" / "methods.md"
    between(page, "methods", comparison(results, methods) + "\n\n" + choice(results))
    between(page, "ablation", ablation(results, weightings))
    between(page, "by-task", by_task(results))
    draw(results, ROOT / "docs" / "img" / "methods.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="NAME")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        tables(args)
        return 0
    done = {(r["task"], r["row"], r["seed"]) for r in read(args.out)}
    jobs = [
        (task, row, seed, args.data)
        for seed in range(args.seeds)
        for family in sorted({task.split("/")[0] for task in args.tasks})
        for row in args.rows
        for task in args.tasks
        if task.startswith(family) and (task, row, seed) not in done and not (seed and draws_nothing(task, row))
    ]
    run_all(run, jobs, args.out, args.jobs, lambda r: (
        f"{r['task']} {r['row']} seed {r['seed']}: {100 * r['last']:.1f} last, {100 * r['chosen']:.1f} chosen, "
        f"{100 * r['oracle']:.1f} oracle, {100 * r['outlier_weight']:.0f} % on outliers, {r['seconds']:.0f} s"
    ), fresh=False)  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
