"""Bounds on target samples that were seen and on fresh ones, the true loss, and whether bounds rank runs correctly.

python benchmarks/bounds.py [--tasks NAME ...] [--candidates NAME ...] [--jobs N] [--data DIR]
python benchmarks/bounds.py --tables         # write the tables and the figure of docs/bounds.md from the results

Half of the target is held out. The bounds are Theorem 3.3 in its sharp form at the best alpha and the plan-label form,
on the half that was trained on and, with probability .95, on the other half. Target labels are read after training, for
the true loss, the accuracy and the terms that need them. Finished runs are kept; to start again, remove the file.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder
from _jobs import ROOT, between, read, run_all
from adaptation import TASKS, load

RESULTS = ROOT / "benchmarks" / "results" / "bounds.jsonl"
CANDIDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "bound": ("bound", {}), "full": ("full", {}), "full, 1 round": ("full", {"full": {"rounds": 1}}),
    "source-only": ("source-only", {}), "frozen": ("frozen", {}), "arpm-frozen": ("arpm-frozen", {}),
}  # fmt: skip
"""Presets and changes."""
HOLDOUT, BETA = 0.5, 0.1


def run(name: str, candidate: str, folder: Path) -> dict[str, Any]:
    """Train on half of the target; bound both halves."""
    import torch

    from warmpot.bounds import fresh_bounds, plan_label_bound, with_labels, with_plan_labels
    from warmpot.select.validators import make_validator
    from warmpot.train import bound_inputs, fit, load_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = load(name, 0, folder)
    preset, changes = CANDIDATES[candidate]
    fitted = fit(task, load_config(preset, changes={"holdout": HOLDOUT, **changes}), progress_bar=False)
    assert fitted.task is not None
    assert fitted.task.held_out is not None
    held = fitted.task.held_out
    labels, new_labels = (truth.of_rows(rows).yt for rows in (held.kept, held.rows))
    seen = bound_inputs(fitted.predictor, fitted.task)
    fresh = seen.with_target(fitted.predictor, held.x)
    beta = min(BETA, fitted.history[-1].get("beta", BETA)) if fitted.history else BETA
    problem = seen.problem()
    report = problem.report(problem.best_alpha(beta), beta, form="sharp")
    plan, _ = problem.planned(1.0, beta, form="sharp")
    whole = plan_label_bound(problem, plan, problem.report(1.0, beta, plan=plan, form="sharp"))
    found = {
        "seen, joint": with_labels(report, *seen.points, target_labels=labels),
        "seen, labels": with_plan_labels(whole, problem, plan, labels),
    }
    new = fresh_bounds(problem, fresh.target, fresh.target_proba, beta=beta)
    joint, outputs = new.joint, seen.problem(level="outputs")
    found["fresh, joint"] = joint if joint.p is None else with_labels(joint, *fresh.points, target_labels=new_labels)
    found["fresh, labels"] = with_plan_labels(new.labels, new.problem, new.label_plan, new_labels)
    found["fresh, outputs"] = fresh_bounds(
        outputs, fresh.target_proba, fresh.target_proba, beta=beta, unseen=True
    ).joint
    neighbours = make_validator("neighbours").score(_candidate(fitted))
    accuracy = float((fresh.target_proba.argmax(axis=1) == new_labels).mean())
    return {
        "task": name, "candidate": candidate, "accuracy": accuracy, "n": len(new_labels), "beta": beta,
        "neighbours": neighbours,
        "bounds": {
            kind: {key: getattr(one, key) for key in ("total", "ideal", "total_with_labels", "target_loss", "alpha")}
            for kind, one in found.items()
        },
    }  # fmt: skip


def _candidate(fitted: Any) -> Any:
    """Return what a validator may see of a run: nothing of the half that was held out."""
    from warmpot.select.best_iterate import candidate_from_snapshot
    from warmpot.train.predictor import apply_network
    from warmpot.train.snapshots import Snapshot

    network, task = fitted.predictor.network, fitted.task
    source, target = apply_network(network.for_source(), task.xs), apply_network(network, task.xt)
    return candidate_from_snapshot(Snapshot(fitted.step, network, source, target, None), task)


def bench(args: argparse.Namespace) -> None:
    done = {(r["task"], r["candidate"]) for r in read(RESULTS)}
    jobs = [(task, name, args.data) for name in args.candidates for task in args.tasks if (task, name) not in done]
    run_all(run, jobs, RESULTS, args.jobs, lambda found: (
        f"{found['task']} {found['candidate']}: {100 * found['accuracy']:.1f} %, "
        + ", ".join(f"{kind} {bound['total']:.3f}" for kind, bound in found["bounds"].items())
    ), fresh=False)  # fmt: skip


SCORES: dict[str, Callable[[dict[str, Any]], float]] = {
    "neighbours": lambda r: r["neighbours"],
    "plan labels, new samples": lambda r: -r["bounds"]["fresh, labels"]["total"],
    "Theorem 3.3 on outputs, new samples": lambda r: -r["bounds"]["fresh, outputs"]["total"],
    "Theorem 3.3, new samples": lambda r: -r["bounds"]["fresh, joint"]["total"],
    "plan labels, seen samples": lambda r: -r["bounds"]["seen, labels"]["total"],
    "Theorem 3.3, seen samples": lambda r: -r["bounds"]["seen, joint"]["total"],
}
"""Larger is better; without target labels."""


def tables() -> None:
    results = read(RESULTS)
    heads = ["task", "n", "new", "+ ideal", "plan labels, new", "+ M", "true loss", "accuracy", "seen",
             "plan labels, seen"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---|" * (len(heads) - 1)]
    runs = {r["task"]: r for r in results if r["candidate"] == "bound"}
    lines += [f"| {task} | " + " | ".join(_numbers(runs[task])) + " |" for task in TASKS if task in runs]
    between(ROOT / "docs" / "bounds.md", "bounds", "\n".join(lines))
    between(ROOT / "docs" / "bounds.md", "ranks", "\n".join(ranks(results)))
    figure(results)


def _numbers(r: dict[str, Any]) -> list[str]:
    seen, new, seen_labels, labels = (
        r["bounds"][k] for k in ("seen, joint", "fresh, joint", "seen, labels", "fresh, labels")
    )
    parts = [new["total"], new["total_with_labels"], labels["total"], labels["total_with_labels"], new["target_loss"]]
    texts = [f"{value:.3f}" for value in (*parts, seen["total"], seen_labels["total"])]
    return [str(r["n"]), *texts[:5], f"{100 * r['accuracy']:.1f}", *texts[5:]]


def ranks(results: list[dict[str, Any]]) -> list[str]:
    """Rank correlation with the accuracy on the held-out half among candidates, and regret of the best-scored one."""
    from scipy.stats import spearmanr

    tasks = [t for t in TASKS if {r["candidate"] for r in results if r["task"] == t} >= set(CANDIDATES)]
    lines = [f"{len(CANDIDATES)} candidates ({'; '.join(CANDIDATES)}) on {len(tasks)} tasks, one seed; mean and "
             "standard error over the tasks:", "", "| score | rank correlation | regret, points | best-scored |",
             "|---|---|---|---|"]  # fmt: skip
    fixed = {
        f"none: always `{name}`": (lambda r, name=name: float(r["candidate"] == name)) for name in ("full", "bound")
    }
    for name, score in (SCORES | fixed).items():
        correlations, regrets, chosen = [], [], Counter()
        for task in tasks:
            mine = [r for r in results if r["task"] == task]
            accuracies, scores = np.array([r["accuracy"] for r in mine]), np.array([score(r) for r in mine])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # equal scores have no correlation
                correlations.append(np.nan_to_num(spearmanr(scores, accuracies)[0]))
            regrets.append(100 * (accuracies.max() - accuracies[scores.argmax()]))
            chosen[mine[scores.argmax()]["candidate"]] += 1
        picks = ", ".join(f"{one} {count}" for one, count in chosen.most_common())
        correlation = "" if name in fixed else _mean(correlations, 2)
        lines.append(f"| {name} | {correlation} | {_mean(regrets, 1)} | {picks} |")
    return lines


def _mean(values: list[float], digits: int) -> str:
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.{digits}f}"


def figure(results: list[dict[str, Any]]) -> None:
    """Draw the bounds for new samples and the true loss of the preset bound: docs/bounds.png."""
    from matplotlib.figure import Figure

    runs = [r for task in TASKS for r in results if (r["task"], r["candidate"]) == (task, "bound")]
    page = Figure(figsize=(8.0, 0.6 + 0.36 * len(runs)), layout="constrained")
    axes = page.subplots()
    for row, r in enumerate(runs):
        labels, joint = r["bounds"]["fresh, labels"], r["bounds"]["fresh, joint"]
        known, whole = labels["total"], labels["total_with_labels"]
        axes.barh(row, known, height=0.5, color="#4477aa", label=None if row else "plan labels, with probability .95")
        axes.barh(row, whole - known, left=known, height=0.5, facecolor="none", edgecolor="#4477aa", hatch="////",
                  label=None if row else "M (needs labels)")  # fmt: skip
        marks = {"color": "#ee8866", "marker": "D", "s": 22}
        axes.scatter([joint["total"]], [row], **marks, label=None if row else "Theorem 3.3, computable part")
        axes.plot([labels["target_loss"]] * 2, [row - 0.4, row + 0.4], color="black", linewidth=2.0,
                  label=None if row else "true loss on the held-out half")  # fmt: skip
    axes.set(xlim=(0, 1), ylim=(len(runs) - 0.4, -0.6), xlabel="loss on new target samples")
    axes.set_yticks(range(len(runs)), [r["task"] for r in runs], fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    page.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    page.savefig(ROOT / "docs" / "bounds.png", dpi=130)


def line() -> None:
    """Draw the plan-label bound of the built-in digits over M: docs/bound-mismatch.png."""
    from warmpot.data import digits_task, make_task
    from warmpot.report.sections.bounds import draw_mismatch
    from warmpot.train import bound_inputs, fit, load_config
    from warmpot.train.run_bounds import bound_run
    from warmpot.train.target_use import TargetUse

    task, truth = make_task(*digits_task())
    fitted = fit(task, load_config("bound", changes={"holdout": 0.3}), progress_bar=False)
    assert truth is not None
    assert fitted.task is not None
    assert fitted.task.held_out is not None
    assert fitted.presence is not None
    held, seen = fitted.task.held_out, bound_inputs(fitted.predictor, fitted.task)
    found = bound_run(
        seen, seen.with_target(fitted.predictor, held.x), use=TargetUse(features=True, iterate=False),
        classes=task.classes, trained_beta=fitted.history[-1]["beta"], presence=fitted.presence.probability,
        truth=truth.of_rows(held.kept).yt, fresh_truth=truth.of_rows(held.rows).yt,
    )  # fmt: skip
    draw_mismatch(found.reports).savefig(ROOT / "docs" / "bound-mismatch.png", dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="NAME")
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        tables()
        line()
    else:
        bench(args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
