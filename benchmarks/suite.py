"""The development suite: presets on many partial tasks, and constants chosen without the domain they are judged on.

python benchmarks/suite.py [--presets NAME ...] [--only REGEX] [--extractor lite0] [--known-classes] [--jobs N]
python benchmarks/suite.py --name wide --set full.width=512     # a variant of `full`
python benchmarks/suite.py --choose full wide ...               # the best variant, chosen on the other domains
python benchmarks/suite.py --tables                             # write the summary of docs/engines.md

Tasks: every ordered pair of domains of a data set (at most six pairs of the sets of other kinds), with the standard
classes or half of them, 1 to 40 drawn classes, all classes, a skewed and a small target; and halves of one domain,
where nothing shifted. Names are like office31/amazon-webcam/size-5.0. Accuracy is of the last iterate. Target labels
make the tasks and are read again after training; only `--known-classes`, an oracle that is given the target's classes,
uses them for training. Every finished run is kept, so an interrupted bench can be continued. A variant keeps its name
and settings.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import re
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _domains import CACHE, data_folder, part, rows_of
from _jobs import ROOT, between, read, run_all
from _suite_tables import choice_table, family_table, summary_table
from _suite_tasks import DOMAINS, EXTRACTED, SHARED, Spec, load, shared_specs, specs, target_classes

RESULTS = ROOT / "benchmarks" / "results" / "suite.jsonl"
PRESETS = ("source-only", "full")
LOST = 0.1
"""A present class with a smaller recall counts as lost."""


class Variant(NamedTuple):
    """What is measured, under a name."""

    name: str
    preset: str
    changes: dict[str, Any]
    known_classes: bool


def presence_scores(present: np.ndarray, shares: np.ndarray, presence: Any) -> dict[str, float | None]:
    """Compare the estimate of which classes the target has, and the predicted shares, with the truth."""
    from sklearn.metrics import roc_auc_score

    partial = not present.all()  # otherwise there is nothing to tell apart
    scores = {"share_auc": float(roc_auc_score(present, shares)) if partial else None}
    if presence is not None:
        chance = np.asarray(presence.probability, dtype=float)
        scores["presence_auc"] = float(roc_auc_score(present, chance)) if partial else None
        scores["presence_brier"] = float(np.mean((chance - present) ** 2))
        scores["presence_count"] = float(chance.sum())
    return scores


def scores_of(outputs: np.ndarray, yt: np.ndarray, presence: Any) -> dict[str, Any]:
    """Compare predictions with the truth."""
    from warmpot.weights import predicted_shares

    predicted, shares = outputs.argmax(axis=1), predicted_shares(outputs)
    sizes = np.bincount(yt, minlength=outputs.shape[1])
    present = sizes > 0
    recall = np.bincount(yt[predicted == yt], minlength=len(sizes))[present] / sizes[present]
    return {
        "accuracy": float(np.mean(predicted == yt)), "lost": int(np.sum(recall < LOST)),
        "absent_share": float(shares[~present].sum()), "present": int(present.sum()), "classes": len(present),
        **presence_scores(present, shares, presence),
    }  # fmt: skip


def trust_of(outputs: np.ndarray, yt: np.ndarray, fitted: Any) -> dict[str, Any]:
    """Return what a run says of itself without labels, and how many of its errors it marks for review."""
    wrong, review = outputs.argmax(axis=1) != yt, fitted.predictor.review(outputs)
    numbers = {"confidence": outputs.max(axis=1).mean(), "review": review.mean()}
    numbers["caught"] = (wrong & review).sum() / max(wrong.sum(), 1)
    if fitted.unadapted is not None:
        numbers["unadapted"] = np.mean(fitted.unadapted == yt)
    verdict = fitted.verdict
    said = {} if verdict is None else {"verdict": verdict.state, "consensus": verdict.consensus}
    return {name: float(value) for name, value in numbers.items()} | said


def reset_peak() -> None:
    """Let the peak memory of this process count from now on: it serves several runs (Linux only)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def measure(spec: Spec, variant: Variant, folder: Path) -> dict[str, Any]:
    """Train once, then compare with the truth."""
    from warmpot.data import make_task
    from warmpot.train import fit, load_config

    gc.collect()
    reset_peak()
    source, target = load(spec, folder)
    if variant.known_classes:
        present = sorted({target.classes[code] for code in target.y})
        classes = present if spec.family in SHARED else target_classes(spec, source.classes)
        source = part(source, rows_of(source, classes))
    task, truth = make_task(source, target)
    start = time.perf_counter()
    fitted = fit(task, load_config(variant.preset, changes={"seed": 0, **variant.changes}), progress_bar=False)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert truth is not None
    outputs, yt = np.asarray(fitted.outputs), np.asarray(truth.yt)
    scores = scores_of(outputs, yt, fitted.presence) | trust_of(outputs, yt, fitted)
    return {**scores, "seconds": seconds, "peak_gib": peak}


def run(spec: Spec, variant: Variant, code: str, folder: Path) -> dict[str, Any]:
    """Measure on one thread; a run that fails is a result, too, and is tried again next time."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    record = {
        "task": spec.name,
        "group": spec.group,
        "domains": sorted(spec.domains),
        **variant._asdict(),
        "code": code,
    }
    try:
        return {**record, **measure(spec, variant, folder)}
    except Exception as error:
        return {**record, "error": f"{type(error).__name__}: {error}"}


def describe(record: dict[str, Any]) -> str:
    what = f"{record['task']} {record['name']}: "
    if "error" in record:
        return what + record["error"]
    lost = f", {record['lost']} of {record['present']} classes lost" if record["lost"] else ""
    return what + f"{100 * record['accuracy']:.1f} %{lost} in {record['seconds']:.0f} s"


def code_version() -> str:
    """Return a fingerprint of the package, so that results of different versions can be distinguished."""
    files = sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in (".py", ".yaml"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in files)).hexdigest()[:10]


def extract_lite0(folder: Path) -> None:
    """Extract the features of images once, with the package's own command."""
    for family, domains in EXTRACTED.items():
        for domain in domains:
            out = CACHE / family / f"{domain}.npz"
            if out.exists():
                continue
            out.parent.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "warmpot", "extract", str(folder / "office31_images" / domain)]
            command += ["--out", str(out), "--backbone", "tf_efficientnet_lite0"]
            command += ["--backbone-weights", str(folder / "weights" / "tf_efficientnet_lite0.safetensors")]
            subprocess.run(command, check=True)


def variants(args: argparse.Namespace) -> list[Variant]:
    """Read the variants from the arguments; one that was changed or named is of a single preset."""
    from warmpot.cli._data_files import nested_changes

    changed = bool(args.set or args.name)
    presets = args.presets or (("full",) if changed or args.known_classes else PRESETS)
    if changed and len(presets) > 1:
        raise SystemExit("--set and --name are for one preset: name it with --presets.")
    changes = nested_changes(args.set, {})
    suffix = " known-classes" if args.known_classes else ""
    names = [args.name or " ".join([preset, *args.set]) for preset in presets]
    return [
        Variant(name + suffix, preset, changes, args.known_classes) for name, preset in zip(names, presets, strict=True)
    ]


def check_names(records: list[dict[str, Any]], wanted: list[Variant], code: str) -> None:
    """Refuse a name that stands for other settings; say when finished runs are of other code."""
    for variant in wanted:
        same_name = [r for r in records if r["name"] == variant.name]
        if any((r["preset"], r["changes"], r["known_classes"]) != variant[1:] for r in same_name):
            raise SystemExit(f"{variant.name!r} has results with other settings: choose another --name.")
        if other := sum(r["code"] != code for r in same_name):
            print(f"{other} finished runs of {variant.name!r} are of other code and are not repeated", flush=True)


def measure_all(args: argparse.Namespace) -> int:
    """Run what is missing and print the summary; return how many runs failed."""
    if args.extractor == "lite0":
        extract_lite0(args.data)
    tasks = specs(EXTRACTED) if args.extractor == "lite0" else [*specs(DOMAINS), *shared_specs()]
    tasks = [spec for spec in tasks if re.search(args.only, spec.name)]
    wanted, records, code = variants(args), read(args.out), code_version()
    check_names(records, wanted, code)
    done = {(r["task"], r["name"]) for r in records if "error" not in r}
    todo = [
        (spec, variant, code, args.data)
        for spec in tasks
        for variant in wanted
        # an oracle that is given one class has nothing to learn
        if (spec.name, variant.name) not in done and not (variant.known_classes and spec.kind == "size-1")
    ]
    # to start a process takes longer than most runs; the first run of each includes compiling
    run_all(run, todo, args.out, args.jobs, describe, fresh=False)
    finished = [r for r in read(args.out) if re.search(args.only, r["task"])]
    for variant in wanted:
        if variant.name != "source-only":
            print(f"\n{summary_table(finished, variant.name.removesuffix(' known-classes'))}")
    names = {(spec.name, variant.name) for spec, variant, *_ in todo}
    return len(names - {(r["task"], r["name"]) for r in finished if "error" not in r})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", metavar="NAME", help="[default: source-only full]")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of the variant")
    parser.add_argument("--name", help="of the variant [default: preset and settings]")
    parser.add_argument("--known-classes", action="store_true", help="oracle: train with the target's classes only")
    parser.add_argument("--extractor", choices=("resnet50", "lite0"), default="resnet50")
    parser.add_argument("--only", default="", metavar="REGEX", help="tasks whose name matches")
    parser.add_argument(
        "--choose", nargs="+", metavar="NAME", help="compare measured variants; the first is the default"
    )
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    records = [r for r in read(args.out) if re.search(args.only, r["task"])]
    if args.choose:
        print(choice_table(records, args.choose))
        return 0
    if args.tables:
        total = len(specs({**DOMAINS, **EXTRACTED})) + len(shared_specs())
        page = ROOT / "docs" / "engines.md"
        between(page, "suite", summary_table(records, "full", total=total))
        between(page, "families", family_table(records, "full"))
        return 0
    return 1 if measure_all(args) else 0


if __name__ == "__main__":
    raise SystemExit(main())
