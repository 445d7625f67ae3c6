"""Names of the files in a run folder, and in the folders of a sweep and a demo, which hold runs.

`warmpot.train.run_folder` writes a run folder, `warmpot.train.finished_run` reads it.
"""

from __future__ import annotations

__all__ = ["BEST_CONFIG", "BEST_RUN", "BOUNDS", "BOUNDS_FIGURE", "CHECKPOINTS", "CLASSES", "CONFIG", "DEMO",
           "FIGURES", "METRICS", "MODEL_FACTS", "MODEL_TENSORS", "PAGE", "PREDICTIONS", "RECORD", "RESULTS",
           "SOURCE_WEIGHTS", "STUDY", "TENSORBOARD", "TRIALS"]  # fmt: skip

CONFIG = "config.yaml"
"""Every setting."""
RECORD = "run.json"
"""Seed, versions, fingerprint of the data, and facts such as the paths of the data."""
METRICS = "metrics.jsonl"
"""One line per round, or per so many steps."""
CHECKPOINTS, TENSORBOARD = "checkpoints", "tensorboard"
MODEL_TENSORS, MODEL_FACTS = "model.safetensors", "model.json"
PREDICTIONS = "predictions.csv"
"""Columns row, name (optional), prediction, confidence (of classes), and weight: the share that the plan matches."""
SOURCE_WEIGHTS = "source_weights.csv"
"""Columns row, name (optional), label, plan_weight (with a plan) and training_weight; in 0.1.0 weight instead."""
CLASSES = "classes.csv"
"""Columns class, probability (of the class to be in the target), share (of the target, expected) and estimate."""
BOUNDS, BOUNDS_FIGURE = "bound.json", "bound.png"
PAGE, FIGURES = "report.html", "figures"

RESULTS = (MODEL_TENSORS, MODEL_FACTS, PREDICTIONS, SOURCE_WEIGHTS)
"""Files that the end of a run writes."""

STUDY, TRIALS, BEST_CONFIG, BEST_RUN = "study.json", "trials.jsonl", "best.yaml", "best"
"""Of a sweep: what is tried, one line per candidate, the settings that won, and the run with these settings."""
DEMO = "demo.json"
"""Of a demo: the accuracy of each run by its preset."""
