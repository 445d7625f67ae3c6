"""Bounds and the true target loss on real partial tasks, and whether the bound ranks methods correctly.

python benchmarks/bounds.py [--tasks NAME ...] [--presets NAME ...] [--seeds N] [--jobs N] [--data DIR]
python benchmarks/bounds.py --tables         # write the table and the figure of docs/bounds.md from the results

The bound is Theorem 3.3 with the tightest plan at alpha 1 and two beta: the estimated one and .1. Target labels are
read after training, for the true loss and the terms that need them. Finished runs are kept; to start again, remove the
file.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder
from _jobs import ROOT, between, read, run_all
from adaptation import TASKS, load

RESULTS = ROOT / "benchmarks" / "results" / "bounds.jsonl"
PRESETS = ("source-only", "frozen", "full", "bound")
COLOURS = {"source-only": "#888888", "frozen": "#ee8866", "full": "#4477aa", "bound": "#228833"}


def run(name: str, preset: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train, then bound the last iterate."""
    import torch

    from warmpot.bounds import BoundProblem, head_lipschitz, with_labels
    from warmpot.train import fit, load_config
    from warmpot.weights import estimate_beta

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = load(name, seed, folder)
    fitted = fit(task, load_config(preset, changes={"seed": seed}), progress_bar=False)
    source, target = fitted.predictor.outputs(task.xs, source=True), fitted.predictor.outputs(task.xt)
    proba_s, proba_t = (torch.softmax(out.logits, dim=1).numpy() for out in (source, target))
    points = source.features.numpy(), task.ys, target.features.numpy(), proba_s, proba_t
    gamma = head_lipschitz(fitted.predictor.network.head.weight.detach().double().numpy(), "euclidean")
    problem = BoundProblem("joint", *points, gamma=gamma, loss="euclidean")
    bounds = {}
    for kind, beta in (("believed", estimate_beta(proba_t, task.ys)), ("small", 0.1)):  # keys of the stored results
        bounds[kind] = with_labels(problem.report(1.0, beta), *points, target_labels=truth.yt).to_dict()
    accuracy = truth.accuracy(proba_t)
    return {"task": name, "preset": preset, "seed": seed, "accuracy": accuracy, "bounds": bounds}


def bench(args: argparse.Namespace) -> None:
    done = {(r["task"], r["preset"], r["seed"]) for r in read(RESULTS)}
    jobs = [
        (task, preset, seed, args.data)
        for seed in range(args.seeds)
        for preset in args.presets
        for task in args.tasks
        if (task, preset, seed) not in done
    ]
    run_all(run, jobs, RESULTS, args.jobs, lambda found: (
        f"{found['task']} {found['preset']} seed {found['seed']}: {100 * found['accuracy']:.1f} %, "
        + ", ".join(f"{kind} {bound['total']:.3f} / {bound['total_refined']:.3f}"
                    for kind, bound in found["bounds"].items())
    ))  # fmt: skip


def tables() -> None:
    from scipy.stats import spearmanr

    results = read(RESULTS)
    heads = ["task", "preset", "source", "features", "labels", "total", "with labels", "true loss", "accuracy"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---|" * 7]
    for task in TASKS:
        for preset in PRESETS:
            mine = [r for r in results if (r["task"], r["preset"]) == (task, preset)]
            if mine:
                lines.append(f"| {task} | {preset} | " + " | ".join(_numbers(mine)) + " |")
    ranks: dict[str, list[float]] = {"believed": [], "small": []}
    right = {"believed": 0, "small": 0}
    whole = [(t, s) for t, s in {(r["task"], r["seed"]) for r in results}
             if sum((r["task"], r["seed"]) == (t, s) for r in results) == len(PRESETS)]  # fmt: skip
    for task, seed in whole:
        mine = [r for r in results if (r["task"], r["seed"]) == (task, seed)]
        for kind, found in ranks.items():
            totals, losses = ([r["bounds"][kind][key] for r in mine] for key in ("total", "target_loss"))
            found.append(spearmanr(totals, losses)[0])
            right[kind] += int(np.argmin(totals) == np.argmin(losses))
    text = [*lines, ""]
    for kind, words in (("believed", "at the estimated beta"), ("small", "at beta .1")):
        text.append(
            f"Over {len(whole)} tasks and seeds, {words}: the mean rank correlation of the total with the true loss "
            f"among the {len(PRESETS)} presets is {np.nanmean(ranks[kind]):.2f}; the preset with the smallest total is "
            f"the one with the smallest loss in {right[kind]} of them.\n"
        )
    between(ROOT / "docs" / "bounds.md", "bounds", "\n".join(text).rstrip())
    scatter(results)


def _numbers(runs: list[dict[str, Any]]) -> list[str]:
    def mean(value: Any) -> str:
        return f"{np.mean([value(r) for r in runs]):.3f}"

    def term(name: str) -> Any:
        return lambda r: next(t["value"] for t in r["bounds"]["small"]["terms"] if t["name"] == name)

    terms = [mean(term(name)) for name in ("source loss", "transport, features", "transport, labels")]
    totals = [mean(lambda r, key=key: r["bounds"]["small"][key]) for key in ("total", "total_refined", "target_loss")]
    return [*terms, *totals, f"{100 * np.mean([r['accuracy'] for r in runs]):.1f}"]


def scatter(results: list[dict[str, Any]]) -> None:
    """Draw total against true loss, one point per run: docs/bound-scatter.png."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    for axes, (kind, title) in zip(figure.subplots(1, 2, sharey=True), (
        ("small", "beta .1"), ("believed", "estimated beta")
    ), strict=True):  # fmt: skip
        for preset, colour in COLOURS.items():
            mine = [r["bounds"][kind] for r in results if r["preset"] == preset]
            axes.scatter([b["total"] for b in mine], [b["target_loss"] for b in mine], s=26, color=colour, label=preset)
        ends = np.geomspace(0.02, 1.0, 50)
        axes.plot(ends, ends, color="black", linewidth=0.8, linestyle=":", label="bound = loss")
        axes.axvline(1.0, color="black", linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(xscale="log", yscale="log", title=title, xlabel="computable part of Theorem 3.3, alpha 1")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("true target loss")
    figure.axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(ROOT / "docs" / "bound-scatter.png", dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="NAME")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        tables()
    else:
        bench(args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
