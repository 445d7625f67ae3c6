"""Confidences of `full`: calibration error before and after the temperature, and what `review` is worth.

python benchmarks/calibration.py [--only REGEX] [--jobs N]

Tasks are those of the development suite: the standard classes, all classes, and five drawn ones. Target labels are read
after training, for these figures only. Every finished task is kept in benchmarks/results/calibration.jsonl.
"""

from __future__ import annotations

import argparse
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _domains import data_folder
from _jobs import ROOT, read, run_all
from _suite_tasks import DOMAINS, Spec, load, specs

RESULTS = ROOT / "benchmarks" / "results" / "calibration.jsonl"
TASKS = r"/(standard|all|size-5\.1)$"
BINS = 15


def calibration_error(confidence: np.ndarray, correct: np.ndarray) -> float:
    """Return the expected calibration error: mean distance of confidence and accuracy over bins of equal width."""
    which = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(which, weights=confidence - correct, minlength=BINS)
    return float(np.abs(gaps).sum() / len(confidence))


def measure(spec: Spec, folder: Path) -> dict[str, Any]:
    """Fit once, on one thread, then compare with the truth."""
    import torch

    from warmpot.data import make_task
    from warmpot.train import fit, load_config
    from warmpot.weights.calibration import ACCEPT

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = make_task(*load(spec, folder))
    fitted = fit(task, load_config("full", changes={"seed": 0}), progress_bar=False)
    assert truth is not None
    after = np.asarray(fitted.outputs)
    before = np.maximum(after, 1e-300) ** fitted.predictor.temperature  # the temperature undone
    correct = after.argmax(axis=1) == np.asarray(truth.yt)
    sure = {"before": (before / before.sum(axis=1, keepdims=True)).max(axis=1), "after": after.max(axis=1)}
    accepted = sure["after"] >= ACCEPT
    return {
        "task": spec.name, "family": spec.family, "temperature": fitted.predictor.temperature,
        "accuracy": float(correct.mean()), "accepted": float(accepted.mean()),
        "accepted_accuracy": float(correct[accepted].mean()) if accepted.any() else None,
        "review_accuracy": float(correct[~accepted].mean()) if not accepted.all() else None,
        **{f"ece_{name}": calibration_error(c, correct) for name, c in sure.items()},
        **{f"confidence_{name}": float(c.mean()) for name, c in sure.items()},
    }  # fmt: skip


def describe(record: dict[str, Any]) -> str:
    return f"{record['task']}: calibration error {record['ece_before']:.3f} -> {record['ece_after']:.3f}"


def table(records: list[dict[str, Any]]) -> str:
    """Return means by family, and of all tasks."""
    families = [*dict.fromkeys(r["family"] for r in records), ""]
    lines = ["| | tasks | before | after | better on | off before | off after | accepted | correct | correct, review |"]
    lines.append("|---" * 10 + "|")
    for family in families:
        runs = [r for r in records if family in ("", r["family"])]
        off = [np.mean([abs(r[f"confidence_{name}"] - r["accuracy"]) for r in runs]) for name in ("before", "after")]
        ece = [np.mean([r[f"ece_{name}"] for r in runs]) for name in ("before", "after")]
        better = sum(r["ece_after"] < r["ece_before"] for r in runs)
        right = [
            np.mean([r[key] for r in runs if r[key] is not None]) for key in ("accepted_accuracy", "review_accuracy")
        ]
        numbers = [*(f"{x:.3f}" for x in ece), f"{better}", *(f"{x:.3f}" for x in off)]
        numbers += [f"{100 * x:.1f}" for x in (np.mean([r["accepted"] for r in runs]), *right)]
        lines.append(f"| {family or 'all'} | {len(runs)} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="tasks whose name matches")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=data_folder())
    args = parser.parse_args()
    done = {r["task"] for r in read(RESULTS)}
    tasks = [s for s in specs(DOMAINS) if re.search(TASKS, s.name) and re.search(args.only, s.name)]
    todo = [(spec, args.data) for spec in tasks if spec.name not in done]
    run_all(measure, todo, RESULTS, args.jobs, describe, fresh=False)
    print(table([r for r in read(RESULTS) if re.search(args.only, r["task"])]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
