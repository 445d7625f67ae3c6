"""Names of the files in a run folder, and in the folders of a sweep and a demo, which hold runs.

`warmpot.train.run_folder` writes a run folder, `warmpot.train.run_reader` reads it.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

__all__ = ["BEST_CONFIG", "BEST_RUN", "BOUNDS", "BOUNDS_FIGURE", "CHECKPOINTS", "CLASSES", "CONFIG", "DEMO",
           "EVALUATION", "FIGURES", "GRID", "HOLDOUT", "METRICS", "MODEL_FACTS", "MODEL_TENSORS", "PAGE", "PLAN",
           "PREDICTIONS", "RECORD", "RESULTS", "SHARDS", "SOURCE_WEIGHTS", "STORE", "STUDY", "TENSORBOARD", "TO_LABEL",
           "TRIALS", "is_run_file"]  # fmt: skip

CONFIG = "config.yaml"
"""Every setting."""
RECORD = "run.json"
"""Seed, versions, fingerprint of the data, and facts such as the paths of the data."""
METRICS = "metrics.jsonl"
"""One line per round, or per so many steps."""
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"
MODEL_TENSORS, MODEL_FACTS = "model.safetensors", "model.json"
PREDICTIONS = "predictions.csv"
"""Columns row, name (optional), prediction, confidence and review (of classes), weight (the share that the plan
matches); and of the full engine's fit on the source alone, unknown (its entropy) and unadapted (its prediction).
Version 0.1.0 has neither review, unknown nor unadapted."""
HOLDOUT = "holdout.csv"
"""Columns row, name (optional), prediction and confidence (of classes) of the target samples that were held out."""
SOURCE_WEIGHTS = "source_weights.csv"
"""Columns row, name (optional), label, plan_weight (with a plan) and training_weight; in 0.1.0 weight instead."""
PLAN = "plan.npz"
"""The plan of the final iterate, source x target samples, as scipy stores a sparse matrix; absent without a plan."""
CLASSES = "classes.csv"
"""Columns class, probability (of the class to be in the target), share (of the target, expected) and estimate."""
BOUNDS, BOUNDS_FIGURE = "bound.json", "bound.png"
TO_LABEL, EVALUATION = "to_label.csv", "evaluation.json"
"""Which samples to label, and the accuracy from such labels."""
PAGE, FIGURES = "report.html", "figures"

RESULTS = (MODEL_TENSORS, MODEL_FACTS, PREDICTIONS, SOURCE_WEIGHTS)
"""Files that the end of a run writes."""

STUDY, TRIALS, BEST_CONFIG, BEST_RUN = "study.json", "trials.jsonl", "best.yaml", "best"
"""Of a sweep: what is tried, one line per candidate, the settings that won, and the run with these settings."""
DEMO = "demo.json"
"""Of a demo: the accuracy of each run by its preset."""

GRID, STORE = "grid.yaml", "results.jsonl"
"""Of a bench: the grid, and one line per finished cell."""
SHARDS = "shards.json"
"""Of features that `warmpot extract` wrote into a folder."""

MARKS = (RECORD, MODEL_FACTS, STUDY, DEMO, GRID, SHARDS)
"""A folder with one of these belongs to warmpot: a run, an export, a sweep, a demo, a bench or features."""
OWNED = (CONFIG, RECORD, METRICS, CHECKPOINTS, TENSORBOARD, MODEL_TENSORS, MODEL_FACTS, PREDICTIONS, HOLDOUT,
         SOURCE_WEIGHTS, PLAN, CLASSES, BOUNDS, BOUNDS_FIGURE, PAGE, FIGURES, STUDY, TRIALS, BEST_CONFIG, BEST_RUN,
         DEMO, GRID, SHARDS, TO_LABEL, EVALUATION, "results.*", "tables.*", "shard-*", "index.csv",
         "model.onnx", "README.md")  # fmt: skip
"""Patterns of the names of files and folders in such a folder."""


def figures_folder(page: Path) -> Path:
    """Return the folder for the figures of a page; of a page with a name of its own, nobody else's folder."""
    return page.with_name(FIGURES if page.name == PAGE else f"{page.stem}-{FIGURES}")


def is_run_file(path: Path) -> bool:
    """Whether a path, which need not exist yet, has the name of a file in a folder that belongs to warmpot."""
    path = path.resolve()
    folders = (folder for folder in path.parents if any((folder / mark).is_file() for mark in MARKS))
    first = (path.relative_to(folder).parts[0] for folder in folders)
    return any(fnmatchcase(name, pattern) for name in first for pattern in OWNED)
