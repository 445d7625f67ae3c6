"""Training one cell of a grid: every iterate is evaluated, and the result becomes a record."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmpot.bench.grid import Cell
from warmpot.bench.grid_data import GridData
from warmpot.bench.presence import presence_scores
from warmpot.bench.store import BINS, LAST, ORACLE, Record
from warmpot.data import Task, Truth
from warmpot.methods import OWN
from warmpot.select import make_validator
from warmpot.select.best_iterate import ValidatorChooser
from warmpot.select.candidate import collapse_reason
from warmpot.select.oracle import keep_target_classes
from warmpot.train import Fitted, RunConfig, fit
from warmpot.train.fitting import with_holdout
from warmpot.train.health import effective_classes
from warmpot.train.run_folder import versions
from warmpot.train.snapshots import Snapshot

__all__ = ["IterateRecorder", "make_record", "train_cell", "weight_cap"]

CLOCK = time.perf_counter if torch.cuda.is_available() or torch.backends.mps.is_available() else time.process_time
"""A cell on a CPU has one thread: its CPU time is the time on an idle machine, also while others use this one."""

UNKNOWN = "not in the source"
"""Name of the class of target samples whose class the source does not have."""


class IterateRecorder:
    """Evaluates every iterate of a run; the last iterate remains the run's result.

    Each label-free rule selects the iterate that a run with ``choose`` set to this rule would return. Accuracies are
    only recorded; the most accurate iterate is the *oracle*. No rule gets the truth.
    """

    def __init__(self, rules: tuple[str, ...], task: Task, truth: Truth) -> None:
        self._choosers = {rule: ValidatorChooser(make_validator(rule), task, None) for rule in rules}
        self._truth = truth
        self._iterates: list[tuple[int, float]] = []  # (step, accuracy)
        self._selected: dict[str, tuple[int, float]] = {}
        self.scores: dict[str, float] = {}
        self.effective_classes: list[float] = []
        self.seconds = 0.0

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Offer the iterate to every rule and record its accuracy."""
        start = CLOCK()
        logits = snapshot.target.logits
        iterate = snapshot.step, self._truth.accuracy(logits.numpy())
        for rule, chooser in self._choosers.items():
            better, line = chooser.offer(snapshot)
            if better:
                self._selected[rule] = iterate
            if "score" in line:
                self.scores[rule] = line["score"]
        self.effective_classes.append(effective_classes(torch.softmax(logits.double(), dim=1)))
        self._iterates.append(iterate)
        self.seconds += CLOCK() - start
        return False, {}

    def state(self) -> dict[str, Any]:
        """Return nothing: the training of a cell is never resumed."""
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Restore nothing, as `state`."""

    def selected(self, last: tuple[int, float]) -> dict[str, tuple[int, float]]:
        """Return step and accuracy of the iterate of every rule; among equal ones the oracle takes the latest."""
        oracle = max([*self._iterates, last], key=lambda iterate: (iterate[1], iterate[0]))
        return {LAST: last, **{rule: self._selected.get(rule, last) for rule in self._choosers}, ORACLE: oracle}


def train_cell(data: GridData, cell: Cell) -> Record:
    """Train a cell and evaluate it."""
    with _quiet():
        content = data.content(cell.data, cell.task)
        task, truth = data.load(cell.data, cell.task, cell.seed, cell.config.images)
        if cell.known_classes:
            task, truth = keep_target_classes(task, truth)
        task = with_holdout(task, cell.config)
        truth = truth if task.held_out is None else truth.of_rows(task.held_out.kept)
        recorder = IterateRecorder(cell.choose, task, truth)
        start = CLOCK()
        fitted = fit(task, cell.config, progress_bar=False, chooser=recorder)
        seconds = CLOCK() - start - recorder.seconds
    selected = recorder.selected((fitted.step, truth.accuracy(fitted.outputs)))
    outlier = ~np.isin(task.ys, truth.yt)
    first, last = recorder.effective_classes[0], recorder.effective_classes[-1]
    return make_record(
        cell,
        content=content,
        accuracy={rule: accuracy for rule, (_, accuracy) in selected.items()},
        steps={rule: step for rule, (step, _) in selected.items()},
        scores=recorder.scores,
        per_class=_class_accuracies(fitted, truth),
        outlier_weight=float(fitted.source_weights[outlier].sum() / fitted.source_weights.sum()),
        outlier_samples=float(outlier.mean()),
        histogram=_histograms(fitted, outlier),
        **presence_scores(fitted.outputs, truth, fitted.presence),
        capped=weight_cap(fitted.config, len(task.ys)) is not None,
        collapsed=collapse_reason(last, first) is not None,
        seconds=seconds,
    )


def make_record(cell: Cell, **results: Any) -> Record:
    """Combine a cell's position in the grid with its results."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Record(
        key=cell.key, method=cell.config.method, weights=str(cell.config.weights), finished=now, versions=versions(),
        **cell.record_fields, **results,
    )  # fmt: skip


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings and log lines of one training among many; its errors are in its record."""
    interrupt = logging.getLogger("warmpot.train.interrupt")  # the answer to Ctrl-C must appear
    loggers = {logging.root: logging.ERROR, logging.getLogger("warmpot"): logging.ERROR, interrupt: logging.WARNING}
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        disabled = logging.root.manager.disable
        stack.callback(logging.disable, disabled)
        logging.disable(max(disabled, logging.INFO))
        for logger, level in loggers.items():
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(level)
        yield


def _class_accuracies(fitted: Fitted, truth: Truth) -> dict[str, float]:
    accuracies = {}
    for k in np.unique(truth.yt).astype(int).tolist():
        rows = truth.yt == k
        name = truth.classes[k] if k >= 0 else UNKNOWN
        accuracies[name] = Truth(truth.yt[rows], truth.classes).accuracy(fitted.outputs[rows])
    return accuracies


def weight_cap(config: RunConfig, n_source: int) -> float | None:
    """Return the largest possible weight of a source sample, or None if the settings do not determine it.

    Row sums of a plan are at most 1 / (beta n) and sum to alpha (Theorem 3.2); the weighting `plan` scales them to sum
    to 1. The paper's histograms show the weight divided by this cap.
    """
    params: Mapping[str, Any] = config.params if config.weights == OWN else config.weight_params
    beta = params.get("beta")
    mass = params.get("alpha") if config.weights == "plan" else 1.0
    if not isinstance(beta, float) or not isinstance(mass, float):
        return None
    return 1.0 / (beta * mass * n_source)


def _histograms(fitted: Fitted, outlier: NDArray[np.bool_]) -> dict[str, list[int]]:
    """Count source samples by weight relative to its cap, or to the largest weight if there is no cap."""
    weights = fitted.source_weights
    cap = weight_cap(fitted.config, len(weights)) or float(weights.max()) or 1.0
    relative = np.clip(weights / cap, 0.0, 1.0)
    parts = {"shared": ~outlier, "outlier": outlier}
    return {name: np.histogram(relative[part], BINS, (0.0, 1.0))[0].tolist() for name, part in parts.items()}
