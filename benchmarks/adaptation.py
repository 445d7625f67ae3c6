"""Accuracy of the presets on real partial tasks, and the speed and memory of the engines.

python benchmarks/adaptation.py [--tasks NAME ...] [--presets NAME ...] [--seeds N] [--jobs N] [--data DIR] [--out FILE]
python benchmarks/adaptation.py --speed      # steps per second compared with POT's log-domain solver; memory of `full`
python benchmarks/adaptation.py --tables     # write the tables of docs/engines.md and README.md from the results

Accuracy is of the last iterate, on all target samples; target labels are read after training, for this number only.
Every finished run is kept, so an interrupted bench can be continued; remove the file to start again.
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
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from _domains import DIGITS, OFFICE, data_folder, part, read_domain, rows_of, standard_classes
from _jobs import ROOT, between, read, run_all

RESULTS = ROOT / "benchmarks" / "results" / "adaptation.jsonl"
SPEED = ROOT / "benchmarks" / "results" / "adaptation-speed.json"
PRESETS = ("source-only", "official", "frozen", "full", "bound")
TASKS = [f"{family}/{s}-{t}" for family, names in OFFICE.items() for s in names for t in names if s != t]
TASKS += ["digits/mnist-usps", "digits/usps-mnist", "built-in/fonts-handwritten"]


def load(name: str, seed: int, folder: Path) -> Any:
    """Return the task and its truth."""
    from warmpot.data import digits_task, make_task

    family, pair = name.split("/")
    if family == "built-in":
        return make_task(*digits_task(seed=seed))
    xs, xt = (read_domain(family, domain, folder) for domain in pair.split("-"))
    keep = rows_of(xt, standard_classes(family, xt.classes))
    if family == "digits":  # drawn with the seed of the run
        rng = np.random.default_rng(seed)
        xs, keep = part(xs, rng.permutation(np.arange(xs.n))[:DIGITS]), rng.permutation(keep)[:DIGITS]
    return make_task(xs, part(xt, keep))


def run(name: str, preset: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train once on one thread, then compare with the truth."""
    import torch

    from warmpot.train import fit, load_config

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    task, truth = load(name, seed, folder)
    start = time.perf_counter()
    fitted = fit(task, load_config(preset, changes={"seed": seed}), progress_bar=False)
    seconds = time.perf_counter() - start
    accuracy = truth.accuracy(fitted.outputs)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"task": name, "preset": preset, "seed": seed, "accuracy": accuracy, "seconds": seconds, "peak_gib": peak}


def is_deterministic(task: str, preset: str) -> bool:
    """Whether the seed has no effect: the full engine draws nothing, and these data sets are not sampled."""
    return preset in ("source-only", "full", "bound") and task.startswith("office")


def accuracies(args: argparse.Namespace) -> None:
    done = {(r["task"], r["preset"], r["seed"]) for r in read(args.out)}
    todo = [
        (task, preset, seed)
        for preset in args.presets
        for seed in range(args.seeds)
        for task in args.tasks
        if (task, preset, seed) not in done and not (seed and is_deterministic(task, preset))
    ]
    jobs = [(*job, args.data) for job in todo]
    run_all(run, jobs, args.out, args.jobs, lambda result: (
        f"{result['task']} {result['preset']} seed {result['seed']}: "
        f"{100 * result['accuracy']:.1f} % in {result['seconds']:.0f} s"
    ))  # fmt: skip


def steps_per_second(peer: bool, steps: int, folder: Path) -> float:
    """Time the official preset on Art -> Product; with POT's solver instead of ours if `peer`."""
    import ot
    import torch

    from warmpot.methods import warmpot as method
    from warmpot.train import load_config
    from warmpot.train.batch_engine import train_in_batches
    from warmpot.train.hardware import make_fabric

    torch.set_num_threads(1)

    class Answer:
        def __init__(self, plan: Any) -> None:
            self.plan, self.status = plan, type("Ok", (), {"ok": True})

    def by_pot(cost: Any, a: Any, *, mass: float, eps: float) -> Any:
        b = np.full(cost.shape[1], 1.0 / cost.shape[1])
        values = cost.double().numpy()
        plan = ot.partial.entropic_partial_wasserstein_logscale(a, b, values, reg=eps, m=mass)
        return Answer(torch.from_numpy(plan).to(cost.dtype))

    task, _ = load("office_home/Art-Product", 0, folder)
    config = load_config("official", changes={"minibatch": {"steps": steps}})
    fabric, ours = make_fabric(config.minibatch.hardware), method.step_plan
    method.step_plan = by_pot if peer else ours
    try:
        train_in_batches(task, load_config("official", changes={"minibatch": {"steps": 2}}), fabric,
                         run=None, start=None, report=lambda *_: None)  # fmt: skip
        start = time.perf_counter()
        train_in_batches(task, config, fabric, run=None, start=None, report=lambda *_: None)
        return steps / (time.perf_counter() - start)
    finally:
        method.step_plan = ours


def speed(args: argparse.Namespace) -> int:
    warnings.simplefilter("ignore")
    ours, peer = steps_per_second(False, 300, args.data), steps_per_second(True, 15, args.data)
    code = (
        f"import sys, json; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path;"
        "import adaptation;"
        f"print(json.dumps(adaptation.run('office_home/Product-RealWorld', 'full', 0, Path({str(args.data)!r}))))"
    )
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    results = {
        "steps_per_second": ours, "with_pot_log": peer, "ratio": ours / peer, "full": json.loads(alone),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, one thread",
    }  # fmt: skip
    SPEED.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))
    return 0 if results["ratio"] >= 20 else 1


def cell(results: list[dict[str, Any]], task: str, preset: str) -> tuple[float, str] | None:
    """Return the mean and its text, with the standard deviation over seeds if there are several."""
    values = [100 * r["accuracy"] for r in results if (r["task"], r["preset"]) == (task, preset)]
    if not values:
        return None
    mean = float(np.mean(values))
    return mean, f"{mean:.1f} ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else f"{mean:.1f}"


def tables(args: argparse.Namespace) -> None:
    """Put the results between the markers of docs/engines.md and README.md."""
    results = read(args.out)
    presets = [preset for preset in PRESETS if any(r["preset"] == preset for r in results)]
    lines = ["| task | " + " | ".join(presets) + " |", "|---|" + "---|" * len(presets)]
    summary = ["| tasks | " + " | ".join(presets) + " |", lines[1]]
    families: dict[str, list[str]] = {}
    for task in TASKS:
        families.setdefault(task.split("/")[0], []).append(task)
    for family, names in families.items():
        for task in names:
            cells = [cell(results, task, preset) for preset in presets]
            lines.append(f"| {task} | {' | '.join(c[1] if c else '' for c in cells)} |")
        means = [[c[0] for t in names if (c := cell(results, t, p))] for p in presets]
        row = " | ".join(f"{np.mean(m):.1f}" if len(m) == len(names) else "" for m in means)
        summary.append(f"| {family} ({len(names)}) | {row} |")
        lines.append(f"| **{family}, mean** | {row} |")
    text = "\n".join(lines) + (
        "\n\n± is the standard deviation over the seeds 0, 1, 2. Where it is missing there is one run: `source-only`, "
        "`full` and `bound` use no random numbers, so on a fixed data set the seed changes nothing."
    )
    runs = {preset: {(r["task"], r["seed"]) for r in results if r["preset"] == preset} for preset in presets}
    for preset, finished in runs.items():
        if missing := sum(
            (t, s) not in finished for t in TASKS for s in range(3) if not (s and is_deterministic(t, preset))
        ):
            text += f" {missing} runs of `{preset}` are missing."
    if SPEED.exists():
        measured = json.loads(SPEED.read_text())
        alone = measured["full"]
        text += (
            f"\n\nMini-batch training on Office-Home features: {measured['steps_per_second']:.0f} steps per second, "
            f"{measured['ratio']:.0f} times as many as the same loop with POT's log-domain solver "
            f"({measured['with_pot_log']:.2f}). "
            f"`full` on Product -> RealWorld: {alone['seconds']:.0f} s, peak {alone['peak_gib']:.1f} GiB "
            f"({measured['machine']})."
        )
    between(ROOT / "docs" / "engines.md", "adaptation", text)
    between(ROOT / "README.md", "adaptation-summary", "\n".join(summary))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS, metavar="NAME")
    parser.add_argument("--presets", nargs="+", default=PRESETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--tables", action="store_true")
    args = parser.parse_args()
    if args.tables:
        tables(args)
    elif args.speed:
        return speed(args)
    else:
        accuracies(args)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
