"""What the page of a run shows: the run, its data if available, and the numbers derived from both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot._memory import check_memory
from warmpot._run_files import PREDICTIONS, SOURCE_WEIGHTS
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data import Task, Truth
from warmpot.data.table import Rows, sample_shape
from warmpot.errors import WarmpotError
from warmpot.select.candidate import Candidate
from warmpot.select.validators import make_validator
from warmpot.train.finished_run import FinishedRun
from warmpot.weights import effective_share, estimate_present_classes

if TYPE_CHECKING:
    from warmpot.train.predictor import Predictor

__all__ = ["UNSURE", "VALIDATORS", "Points", "RunView", "cost_per_mass", "view_run"]

MAX_SCORED = 2000
"""Samples per domain that validators and the embedding use; drawn at random from more."""
MAX_DECODED = 100
"""The same for images, which must be decoded and passed through the network."""
AT_CAP = 0.999
"""A weight of at least this share of the largest one counts as being at the cap."""
LEFT_OUT = 0.05
"""A target sample of which the plan matches less than this share counts as left out."""
OTHER_PREDICTIONS = 0.01
"""Above this share of different predictions, the data is not that of the run; rounding explains less."""
REMEDY = "Free memory, or write the page without the data."
FEW = 0.5
"""A class with less than this share of the median share of present classes is suspicious."""
UNSURE = 0.7
"""So is one whose mean confidence is lower, if the overall mean is not."""
APART, AT_LEAST = 2.0, 0.02
"""So is one whose shares of the predictions and of the weight differ by this factor and this much."""
VALIDATORS = {
    "neighbours": (
        "neighbour agreement",
        "whether target samples that are close to each other get the same prediction: 0 chance, 1 always",
    ),
    "reverse": (
        "reverse validation",
        "whether a classifier trained on the predictions recovers the source labels: 0 chance, 1 always",
    ),
}
"""Validators that every page shows: their names in words, and what they measure."""


@dataclass(frozen=True, eq=False)
class Points:
    """Samples of one domain: their row numbers, scaled inputs (None for images), features and logits of the network."""

    rows: IntArray
    before: FloatArray | None
    after: FloatArray
    logits: FloatArray


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, its data if available, and what the page derives from them.

    The task is None if it is missing or not that of the run; `missing` says why. The truth is for evaluation only. The
    source and target are outputs of the model for a random part of both domains, and the candidate the same as input of
    validators (None in regression). The command writes the page again.
    """

    run: FinishedRun
    task: Task | None = None
    missing: str = ""
    truth: Truth | None = None
    source: Points | None = None
    target: Points | None = None
    candidate: Candidate | None = None
    command: str = "warmpot report RUN"

    # Class names (empty in regression); class codes or values; NaN where a number is unknown.
    classes = property(attrgetter("run.classes"))
    predicted = property(attrgetter("run.predictions"))
    labels = property(attrgetter("run.labels"))
    confidence = property(attrgetter("run.confidence"))
    matched = property(attrgetter("run.matched"))

    @cached_property
    def known_confidence(self) -> FloatArray:
        """The confidences that are known."""
        return np.asarray(self.confidence[np.isfinite(self.confidence)])

    @property
    def mean_confidence(self) -> float:
        """Mean of the known confidences; NaN without any."""
        return float(self.known_confidence.mean()) if len(self.known_confidence) else np.nan

    @cached_property
    def damaged(self) -> dict[str, int]:
        """Number of values that are not finite, by what they are; the page leaves these values out."""
        run = self.run
        columns = {"target weights": run.matched, "source weights": run.training_weights}
        if self.classes and len(self.known_confidence):  # without any, there is no such column
            columns["confidences"] = run.confidence
        if not self.classes:
            columns |= {"predictions": self.predicted, "source labels": self.labels}
        return {name: int(n) for name, values in columns.items() if (n := (~np.isfinite(values)).sum())}

    @cached_property
    def has_weight(self) -> BoolArray:
        """Which source samples have a known weight."""
        return np.asarray(np.isfinite(self.run.training_weights))

    @cached_property
    def weights(self) -> FloatArray:
        """Training weights, divided by their sum; 0 where unknown."""
        weights = np.where(self.has_weight, self.run.training_weights, 0.0)
        return weights / weights.sum() if weights.sum() > 0 else weights

    @cached_property
    def relative_weights(self) -> FloatArray:
        """Training weights, divided by the largest."""
        top = self.weights.max(initial=0.0)
        return self.weights / top if top > 0 else self.weights

    @property
    def at_cap(self) -> BoolArray:
        """Which source samples have the largest plan weight (weight, without a plan); none if only one has it."""
        plan = self.run.plan_weights
        weights = self.relative_weights if plan is None else np.nan_to_num(plan)
        at_cap: BoolArray = weights >= AT_CAP * max(weights.max(initial=0.0), 1e-300)
        return at_cap if at_cap.sum() > 1 else np.zeros_like(at_cap)

    @property
    def weighted(self) -> bool:
        """Whether source samples have different weights."""
        return bool(self.has_weight.any()) and float(np.ptp(self.relative_weights[self.has_weight])) > 1e-9

    @property
    def has_plan(self) -> bool:
        """Whether a plan matches some target samples more than others."""
        return self.matched.size > 0 and bool((np.abs(self.matched - 1.0) > 1e-6).any())

    @cached_property
    def left_out(self) -> IntArray:
        """Target samples that the plan leaves out, the least matched and least confident first."""
        order = np.lexsort((self.confidence, self.matched)) if self.classes else np.argsort(self.matched, kind="stable")
        rows: IntArray = order[self.matched[order] < LEFT_OUT]
        return rows if self.has_plan else rows[:0]

    @cached_property
    def effective_share(self) -> float:
        """Effective share of the source samples, by their training weights."""
        return effective_share(self.weights[self.has_weight])

    @cached_property
    def counts(self) -> IntArray:
        """Number of target samples predicted as each class."""
        return np.asarray(np.bincount(self.predicted, minlength=len(self.classes)))

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the target predicted as each class."""
        return np.asarray(self.counts / max(len(self.predicted), 1))

    @cached_property
    def present(self) -> list[int]:
        """Classes estimated present, the largest first; by the predicted shares in a run without probabilities."""
        if self.run.presence is not None:
            return list(self.run.presence.present)
        return list(estimate_present_classes(self.shares)) if self.shares.any() else []

    @cached_property
    def absent(self) -> list[int]:
        """Classes estimated absent, in their order."""
        present = set(self.present)
        return [k for k in range(len(self.classes)) if k not in present]

    @cached_property
    def source_counts(self) -> IntArray:
        """Number of source samples in each class."""
        return np.asarray(np.bincount(self.labels, minlength=len(self.classes)))

    @cached_property
    def source_shares(self) -> FloatArray:
        """Share of the source samples in each class."""
        return np.asarray(self.source_counts / max(len(self.labels), 1))

    def weight_shares_of(self, weights: FloatArray | BoolArray) -> FloatArray:
        """Return the sum of weights in each class."""
        return np.bincount(self.labels, weights, minlength=len(self.classes)).astype(np.float64)

    @cached_property
    def weight_shares(self) -> FloatArray:
        """Share of the training weight in each class."""
        return self.weight_shares_of(self.weights)

    @cached_property
    def capped_shares(self) -> FloatArray:
        """Share of the source samples of each class that are at the cap."""
        return np.asarray(self.weight_shares_of(self.at_cap) / np.maximum(self.source_counts, 1))

    @cached_property
    def truly_present(self) -> list[int] | None:
        """Classes that occur in the target labels; None without labels. Evaluation only."""
        if self.truth is None or not self.classes:
            return None
        return [int(k) for k in np.unique(self.truth.yt) if k >= 0]

    @cached_property
    def accuracy(self) -> float | None:
        """Accuracy, or mean absolute error in regression; None without target labels. Evaluation only."""
        return self._accuracy_of(self.predicted)

    def _accuracy_of(self, predicted: IntArray | FloatArray) -> float | None:
        if self.truth is None:
            return None
        if not self.classes:
            return float(np.abs(predicted - self.truth.yt).mean())
        return self.truth.accuracy(predicted)

    @property
    def unadapted(self) -> IntArray | FloatArray | None:
        """Predictions without adaptation; None if they are not known, or if the run itself does not adapt."""
        method = self.run.method
        return self.run.unadapted if method is None or method.uses_target else None

    @cached_property
    def unadapted_accuracy(self) -> float | None:
        """`accuracy` of the predictions without adaptation; None if either is not known. Evaluation only."""
        return None if self.unadapted is None else self._accuracy_of(self.unadapted)

    @cached_property
    def changed(self) -> float | None:
        """Share of the target whose predicted class the adaptation changed; None if that is not known."""
        if self.unadapted is None or not self.classes:
            return None
        return float((self.predicted != self.unadapted).mean())

    @property
    def estimated_accuracy(self) -> float | None:
        """Mean of the calibrated confidences: an estimate without labels; None if they are not calibrated."""
        return self.mean_confidence if self.run.temperature != 1.0 and len(self.known_confidence) else None

    @cached_property
    def to_review(self) -> IntArray:
        """Target samples whose prediction should be reviewed (`FinishedRun.review`), the least confident first."""
        rows = np.flatnonzero(self.run.review)
        return np.asarray(rows[np.argsort(self.confidence[rows], kind="stable")])

    @cached_property
    def class_states(self) -> list[str]:
        """Per class "present", "doubtful" or "absent": the run's estimate, and doubtful if a warning suspects it."""
        states = ["present" if k in set(self.present) else "absent" for k in range(len(self.classes))]
        states = states if self.run.presence is None else list(self.run.presence.states)
        return ["doubtful" if k in self.suspects else state for k, state in enumerate(states)]

    @cached_property
    def scores(self) -> dict[str, float]:
        """Scores of `VALIDATORS`; empty without data or without classes."""
        candidate = self.candidate
        return {} if candidate is None else {name: make_validator(name).score(candidate) for name in VALIDATORS}

    @cached_property
    def class_confidence(self) -> FloatArray:
        """Mean confidence of the samples predicted as each class; NaN where none is known."""
        known, n = np.isfinite(self.confidence), len(self.classes)
        total = np.bincount(self.predicted[known], self.confidence[known], minlength=n)
        count = np.bincount(self.predicted[known], minlength=n)
        return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))

    @cached_property
    def suspects(self) -> dict[int, str]:
        """Classes estimated present that may be absent, each with the reason, the largest first."""
        middle, overall = float(np.median(self.shares[self.present])) if self.present else 0.0, self.mean_confidence
        reasons: dict[int, str] = {}
        for k in self.present:
            share, weight = float(self.shares[k]), float(self.weight_shares[k])
            reason: list[str] = []
            if (presence := self.run.presence) is not None and presence.states[k] == "doubtful":
                reason.append(f"estimated to be present with a probability of {presence.probability[k]:.0%}")
            if len(self.present) > 2 and share < FEW * middle:
                reason.append(f"predicted for only {share:.1%} of the target (the median class: {middle:.1%})")
            if (sure := float(self.class_confidence[k])) < UNSURE <= overall:
                reason.append(f"with a mean confidence of {sure:.0%}")
            low, high = sorted((share, weight))
            if self.weighted and high > APART * low and high - low > AT_LEAST:
                reason.append(f"with {weight:.1%} of the training weight but {share:.1%} of the predictions")
            if reason:
                reasons[k] = ", ".join(reason)
        return reasons

    def least_confident(self, classes: list[int]) -> IntArray:
        """Return the target samples predicted as one of some classes, the least confident first."""
        rows = np.flatnonzero(np.isin(self.predicted, classes))
        return np.asarray(rows[np.argsort(self.confidence[rows], kind="stable")])

    def run_parameter(self, name: str) -> tuple[float | None, bool]:
        """Return "alpha" or "beta" of the run, estimated if it is not set, and whether it is set."""
        setting = self.run.params.get(name)
        return (float(setting), True) if isinstance(setting, int | float) else (self.run.logged(name), False)

    def name(self, side: str, row: int) -> str:
        """Return the name of a "source" or "target" sample; "" if it has none."""
        names = self.run.source_names if side == "source" else self.run.target_names
        return names[row] if len(names) else ""

    def row_in_data(self, side: str, row: int) -> int:
        """Return the row that a sample has in its file: samples that were held out are only there."""
        return row if side == "source" else int(self.run.target_rows[row])


def view_run(run: FinishedRun, task: Task | None, truth: Truth | None, missing: str = "") -> RunView:
    """Combine a run with its data; data of another run is left out, and `RunView.missing` explains why."""
    if task is None:
        return RunView(run, missing=missing or "the data was not given")
    sizes = {PREDICTIONS: run.n_target, SOURCE_WEIGHTS: run.n_source}
    if absent := [name for name, n in sizes.items() if not n]:  # samples are shown with their results
        return RunView(run, missing=f"{' and '.join(absent)} cannot be read")
    if difference := _difference(run, task):
        return RunView(run, missing=f"the data is not that of the run: {difference}")
    view = RunView(run, task, truth=None if truth is None or not truth.known.any() else truth)
    try:
        source, target, candidate = _apply_model(run, task)
    except (WarmpotError, OSError, ImportError) as error:  # a backbone that is not installed, a disk that is gone
        return replace(view, missing=f"the model could not be applied to the data: {' '.join(str(error).split())}")
    predicted = view.predicted[target.rows] if view.classes and run.n_target else None
    if predicted is not None and (predicted != target.logits.argmax(axis=1)).mean() > OTHER_PREDICTIONS:
        return RunView(run, missing="the data is not that of the run: the model predicts other classes for it")
    return replace(view, source=source, target=target, candidate=candidate)


def _difference(run: FinishedRun, task: Task) -> str:
    """Return how the data differs from that of the run; "" if it does not."""
    if list(task.classes) != run.classes:
        return "other classes"
    for side, expected, given in (("source", run.n_source, task.n_source), ("target", run.n_target, task.n_target)):
        if expected and expected != given:
            return f"{given} {side} samples instead of {expected}"
    if run.n_source and run.classes and (run.labels != task.ys).any():
        return "other source labels"
    width = run.model.get("n_inputs")
    return f"{sample_shape(task.xs)} instead of {width}" if task.xs.ndim == 2 and width != task.width else ""


def _apply_model(run: FinishedRun, task: Task) -> tuple[Points, Points, Candidate | None]:
    """Apply the model to (a random part of) both domains."""
    from warmpot.select.best_iterate import candidate_from_snapshot
    from warmpot.train.snapshots import Snapshot

    predictor = run.load_predictor()
    rng, most = np.random.default_rng(0), MAX_SCORED if task.xs.ndim == 2 else MAX_DECODED
    # few samples are all taken, as they are: a copy of wide ones may be what does not fit into memory
    rows_s, rows_t = (np.arange(n) if n <= most else rng.permutation(n)[:most] for n in (task.n_source, task.n_target))
    part = replace(task, xs=_subset(task.xs, rows_s), ys=task.ys[rows_s], xt=_subset(task.xt, rows_t),
                   source_names=(), target_names=())  # fmt: skip
    if task.xs.ndim == 2:  # scaled inputs for pictures and, in float64, for validators; and the copies of both
        samples = len(rows_s) + len(rows_t)
        check_memory("report", f"{samples:,} samples x {task.width:,} features", 28.0 * samples * task.width, REMEDY)
    source = predictor.outputs(part.unlabelled("source"), "source", source=True)
    target = predictor.outputs(part.unlabelled("target"), "target")
    candidate = None
    if task.classes:
        snapshot = Snapshot(run.step, predictor.network, source, target, cost_per_mass(run.last_line))
        candidate = candidate_from_snapshot(snapshot, part)
    points = [
        Points(rows, _scaled(predictor, x), outputs.features.numpy(), outputs.logits.numpy())
        for rows, x, outputs in ((rows_s, part.xs, source), (rows_t, part.xt, target))
    ]
    return points[0], points[1], candidate


def cost_per_mass(line: Mapping[str, Any]) -> float | None:
    """Return the transport cost per unit of mass in a line of the log; None without a plan."""
    return line["transport"] / line["alpha"] if line.get("transport") is not None and line.get("alpha") else None


def _subset(x: Rows, rows: IntArray) -> Rows:
    if len(rows) == len(x):
        return x
    return x[rows] if isinstance(x, np.ndarray) else x.subset(rows)


def _scaled(predictor: Predictor, x: Rows) -> FloatArray | None:
    """Return features as the network scales them; None for images."""
    import torch

    if not isinstance(x, np.ndarray):
        return None
    with torch.inference_mode():
        scaled: FloatArray = predictor.network.scale(torch.from_numpy(np.ascontiguousarray(x))).numpy()
    return scaled
