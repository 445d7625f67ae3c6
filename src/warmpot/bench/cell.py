"""One cell of a grid: a training that is looked at along the way, and compared with the truth in the end."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmpot.bench.data import content, load
from warmpot.bench.grid import Cell
from warmpot.bench.store import BINS, LAST, ORACLE, Record
from warmpot.data import Task, Truth
from warmpot.methods import OWN
from warmpot.select import make_validator
from warmpot.select.best_iterate import ValidatorChooser
from warmpot.select.choice import collapse_reason
from warmpot.train import Fitted, RunConfig, fit
from warmpot.train.health import effective_classes
from warmpot.train.iterates import Snapshot
from warmpot.train.rundir import versions

__all__ = ["RecordingChooser", "record_of", "run_cell", "weight_cap"]

UNKNOWN = "not in the source"
"""Class of the target samples that no source class is."""


class RecordingChooser:
    """Looks at every iterate of a run, and lets the last one be the result.

    Every rule says what it would have kept, without labels, exactly as a run with ``choose`` set to it. Accuracies go
    to the tables, and the best of them by these, the *oracle*, is a column of its own.

    Parameters
    ----------
    rules : sequence of str
        Validators.
    task : Task
    truth : Truth
        Evaluation only: no rule gets it.
    """

    def __init__(self, rules: tuple[str, ...], task: Task, truth: Truth) -> None:
        self._rules = {rule: ValidatorChooser(make_validator(rule), task, None) for rule in rules}
        self._truth = truth
        self.seen: list[tuple[int, float]] = []
        self.kept: dict[str, tuple[int, float]] = {}
        self.scores: dict[str, float] = {}
        self.classes: list[float] = []
        self.seconds = 0.0

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Ask every rule, note the accuracy."""
        start = time.perf_counter()
        logits = snapshot.target.logits
        found = snapshot.step, _accuracy(logits.numpy(), self._truth)
        for rule, judge in self._rules.items():
            better, line = judge.offer(snapshot)
            if better:
                self.kept[rule] = found
            if "score" in line:
                self.scores[rule] = line["score"]
        self.classes.append(effective_classes(torch.softmax(logits.double(), dim=1)))
        self.seen.append(found)
        self.seconds += time.perf_counter() - start
        return False, {}

    def state(self) -> dict[str, Any]:
        """Nothing: a cell is trained in one go."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""

    def accuracies(self, last: tuple[int, float]) -> dict[str, tuple[int, float]]:
        """Return the iterate of every choice with its accuracy; of equals the oracle takes the last."""
        best = max([*self.seen, last], key=lambda found: (found[1], found[0]))
        return {LAST: last, **{rule: self.kept.get(rule, last) for rule in self._rules}, ORACLE: best}


def _accuracy(outputs: NDArray[Any], truth: Truth) -> float:
    return float((outputs.argmax(axis=1) == truth.yt).mean())


def run_cell(folder: Path | str, cell: Cell) -> Record:
    """Train a cell and compare with the truth; `folder` is where its data is."""
    with _silence():
        told = content(cell.data, cell.task, Path(folder))
        task, truth = load(cell.data, cell.task, cell.seed, folder, cell.config.images)
        witness = RecordingChooser(cell.choose, task, truth)
        start = time.perf_counter()
        fitted = fit(task, cell.config, progress_bar=False, chooser=witness)
        seconds = time.perf_counter() - start - witness.seconds
    accuracies = witness.accuracies((fitted.step, _accuracy(fitted.outputs, truth)))
    outlier = ~np.isin(task.ys, truth.yt)
    first, last = witness.classes[0], witness.classes[-1]
    return record_of(
        cell,
        content=told,
        accuracy={rule: accuracy for rule, (_, accuracy) in accuracies.items()},
        steps={rule: step for rule, (step, _) in accuracies.items()},
        scores=witness.scores,
        per_class=_by_class(fitted, truth),
        outlier_weight=float(fitted.source_weights[outlier].sum() / fitted.source_weights.sum()),
        outlier_samples=float(outlier.mean()),
        histogram=_histograms(fitted, outlier),
        capped=weight_cap(fitted.config, len(task.ys)) is not None,
        collapsed=collapse_reason(last, first) is not None,
        seconds=seconds,
    )


def record_of(cell: Cell, **found: Any) -> Record:
    """Make the record of a cell: its place in the grid, and what was found."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    config = cell.config
    return Record(
        key=cell.key, dataset=cell.data.name, task=cell.task, row=cell.row.name, method=config.method,
        weights=str(config.weights), preset=config.preset, seed=cell.seed, any_seed=cell.any_seed,
        point=dict(cell.point), setting=cell.setting, finished=now, versions=versions(), **found,
    )  # fmt: skip


@contextmanager
def _silence() -> Iterator[None]:
    """Let one training of many not speak; what went wrong is in its record."""
    heard = logging.getLogger("warmpot.train.interrupt")  # what Ctrl-C does is said at once
    loggers = [(logging.root, logging.ERROR), (logging.getLogger("warmpot"), logging.ERROR), (heard, logging.WARNING)]
    before, levels = logging.root.manager.disable, [logger.level for logger, _ in loggers]
    logging.disable(max(before, logging.INFO))
    for logger, level in loggers:
        logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        for (logger, _), level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _by_class(fitted: Fitted, truth: Truth) -> dict[str, float]:
    right = fitted.outputs.argmax(axis=1) == truth.yt
    codes = np.unique(truth.yt).astype(int).tolist()
    return {truth.classes[k] if k >= 0 else UNKNOWN: float(right[truth.yt == k].mean()) for k in codes}


def weight_cap(config: RunConfig, n_source: int) -> float | None:
    """Return the largest weight that a source sample can have, as far as the settings tell; None if they do not.

    Row sums of a plan have at most 1 / (beta n), and sum to alpha (Theorem 3.2); the weighting `plan` scales them to
    sum to 1. The paper's histograms are of the weight over this cap.
    """
    part: Mapping[str, Any] = config.params if config.weights == OWN else config.weight_params
    beta = part.get("beta")
    share = part.get("alpha") if config.weights == "plan" else 1.0
    numbers = [value for value in (beta, share) if isinstance(value, float)]
    return 1.0 / (numbers[0] * numbers[1] * n_source) if len(numbers) == 2 else None


def _histograms(fitted: Fitted, outlier: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Count the source samples by weight over its cap, else over the largest: shared and outlier classes apart."""
    weights = fitted.source_weights
    cap = weight_cap(fitted.config, len(weights)) or float(weights.max()) or 1.0
    relative = np.clip(weights / cap, 0.0, 1.0)
    parts = {"shared": ~outlier, "outlier": outlier}
    return {name: np.histogram(relative[part], BINS, (0.0, 1.0))[0].tolist() for name, part in parts.items()}
