"""What the page of a run is made from: its folder, and what its model says of the data when that is still there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data import Task, Truth
from warmpot.data.lazy import Rows, sample_shape
from warmpot.errors import WarmpotError
from warmpot.report._run import Run, numbers
from warmpot.select.candidate import Candidate
from warmpot.select.registry import make_validator
from warmpot.weights import effective_share, estimate_present_classes

__all__ = ["Points", "Seen", "look"]

MOST_JUDGED = 2000
"""Samples of a side that validators and the embedding are made from; of more, so many are drawn."""
MOST_DECODED = 100
"""The same of images that must be decoded and passed through the network for it."""
AT_CAP = 0.999
"""A weight of at least this part of the largest one is at the cap."""
LEFT_OUT = 0.05
"""A target sample of which the plan matches less than this part is left out."""


@dataclass(frozen=True, eq=False)
class Points:
    """Samples of one side as the model sees them.

    Attributes
    ----------
    rows : (n,) int array
        Which samples.
    before : (n, d) array or None
        Its scaled inputs; None for images, of which the network is all there is.
    after : (n, d) array
        Features of the network.
    logits : (n, C) array
    """

    rows: IntArray
    before: FloatArray | None
    after: FloatArray
    logits: FloatArray


@dataclass(frozen=True, eq=False)
class Seen:
    """A run, its numbers as arrays, and its data if there is any.

    Attributes
    ----------
    run : Run
    task : Task or None
        Its data; None when it is not there, or is not that of the run.
    missing : str
        Why there is no data; "" when there is.
    truth : (n_t,) array or None
        Labels of the target, for evaluation only: class codes, -1 where the source does not know the class, or numbers.
    source, target : Points or None
        What the model says of (a draw of) both sides.
    evidence : Candidate or None
        The same as validators take it; None in regression.
    again : str
        Command that writes its page anew.
    """

    run: Run
    task: Task | None = None
    missing: str = ""
    truth: IntArray | FloatArray | None = None
    source: Points | None = None
    target: Points | None = None
    evidence: Candidate | None = None
    again: str = "warmpot report RUN"

    @cached_property
    def classes(self) -> list[str]:
        """Class names; none in regression."""
        return self.run.classes

    @cached_property
    def predicted(self) -> Any:
        """Class codes, or numbers, of the target samples."""
        column = self.run.predictions.get("prediction", ())
        return self.run.codes(column) if self.classes else numbers(column)

    @cached_property
    def confidence(self) -> FloatArray:
        """Probability of the predicted class; NaN where it is not known, empty in regression."""
        if not self.classes:
            return np.zeros(0)
        return numbers(self.run.predictions.get("confidence", ("",) * self.run.n_target))

    @cached_property
    def mean_confidence(self) -> float:
        """Mean of the confidences that are known; NaN when none is."""
        known = self.confidence[np.isfinite(self.confidence)]
        return float(known.mean()) if len(known) else np.nan

    @cached_property
    def matched(self) -> FloatArray:
        """Part of each target sample that the plan matches, in [0, 1]; 1 without a plan, NaN where it is not known."""
        return numbers(self.run.predictions.get("weight", ()))

    @cached_property
    def damaged(self) -> dict[str, int]:
        """How many values of which column are no finite numbers; they are left out everywhere."""
        found = {
            "confidences": self.confidence,
            "target weights": self.matched,
            "source weights": self.run.source_weights,
        }
        found |= {} if self.classes else {"predictions": self.predicted, "source labels": self.labels}
        if "confidence" not in self.run.predictions:
            del found["confidences"]  # there is no such column
        return {name: int(n) for name, values in found.items() if (n := (~np.isfinite(values)).sum())}

    @cached_property
    def labels(self) -> Any:
        """Class codes, or numbers, of the source samples."""
        column = self.run.weights.get("label", ())
        return self.run.codes(column) if self.classes else numbers(column)

    @cached_property
    def weighed(self) -> BoolArray:
        """Which source samples have a weight that is known."""
        found: BoolArray = np.isfinite(self.run.source_weights)
        return found

    @cached_property
    def weights(self) -> FloatArray:
        """Weight of every source sample, over their sum; 0 where it is not known."""
        found = np.where(self.weighed, self.run.source_weights, 0.0)
        return found / found.sum() if found.sum() > 0 else found

    @cached_property
    def relative(self) -> FloatArray:
        """Weight of every source sample over the largest, which is the cap of a plan that reaches it."""
        top = self.weights.max(initial=0.0)
        return self.weights / top if top > 0 else self.weights

    @property
    def at_cap(self) -> BoolArray:
        """Which source samples have the largest weight, as far as several have it."""
        found: BoolArray = self.relative >= AT_CAP
        return found if found.sum() > 1 else np.zeros_like(found)

    @property
    def weighted(self) -> bool:
        """Whether source samples count differently."""
        return bool(self.weighed.any()) and float(np.ptp(self.relative[self.weighed])) > 1e-9

    @property
    def planned(self) -> bool:
        """Whether a plan says which target samples are matched."""
        return self.matched.size > 0 and bool((np.abs(self.matched - 1.0) > 1e-6).any())

    @cached_property
    def left_out(self) -> IntArray:
        """Target samples that the plan leaves out, the least matched and least sure first."""
        order = np.lexsort((self.confidence, self.matched)) if self.classes else np.argsort(self.matched, kind="stable")
        found: IntArray = order[self.matched[order] < LEFT_OUT]
        return found if self.planned else found[:0]

    @cached_property
    def effective(self) -> float:
        """Share of the source that carries the weight."""
        return effective_share(self.weights[self.weighed])

    @cached_property
    def counts(self) -> IntArray:
        """Target samples predicted as each class."""
        found: IntArray = np.bincount(self.predicted, minlength=len(self.classes))
        return found

    @cached_property
    def shares(self) -> FloatArray:
        """Share of the target predicted as each class."""
        found: FloatArray = self.counts / max(len(self.predicted), 1)
        return found

    @cached_property
    def present(self) -> list[int]:
        """Classes believed present, the largest first."""
        return list(estimate_present_classes(self.shares)) if self.shares.any() else []

    @cached_property
    def absent(self) -> list[int]:
        """Classes believed absent, in their order."""
        believed = set(self.present)
        return [k for k in range(len(self.classes)) if k not in believed]

    @cached_property
    def source_shares(self) -> FloatArray:
        """Share of the source samples in each class."""
        found: FloatArray = np.bincount(self.labels, minlength=len(self.classes)) / max(len(self.labels), 1)
        return found

    @cached_property
    def weight_shares(self) -> FloatArray:
        """Share of the source weight in each class."""
        found: FloatArray = np.bincount(self.labels, self.weights, minlength=len(self.classes)).astype(np.float64)
        return found

    @cached_property
    def truly_present(self) -> list[int] | None:
        """Classes that the target's labels name; None without labels. Evaluation only."""
        if self.truth is None or not self.classes:
            return None
        return [int(k) for k in np.unique(self.truth) if k >= 0]

    def scores(self, *validators: str) -> dict[str, float]:
        """Return what validators say of it; nothing without data or without classes."""
        if self.evidence is None:
            return {}
        for name in validators:
            if name not in self._scores:
                self._scores[name] = make_validator(name).score(self.evidence)
        return {name: self._scores[name] for name in validators}

    @cached_property
    def _scores(self) -> dict[str, float]:
        return {}

    @cached_property
    def class_confidence(self) -> FloatArray:
        """Mean confidence of the samples predicted as each class; NaN where none is known."""
        known = np.isfinite(self.confidence)
        there, n = self.predicted[known], len(self.classes)
        total = np.bincount(there, self.confidence[known], minlength=n)
        count = np.bincount(there, minlength=n)
        found: FloatArray = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        return found

    def least_sure(self, k: int, most: int) -> list[int]:
        """Return target samples predicted as a class, the least sure first."""
        rows = np.flatnonzero(self.predicted == k)
        found: list[int] = rows[np.argsort(self.confidence[rows], kind="stable")][:most].tolist()
        return found

    def name(self, side: str, row: int) -> str:
        """Name of a sample; "" when it has none."""
        table = self.run.weights if side == "source" else self.run.predictions
        return table["name"][row] if "name" in table else ""


def look(run: Run, task: Task | None, truth: Truth | None, missing: str = "", seed: int = 0) -> Seen:
    """Put a run and its data together; data that is not the run's is left out, and why is said.

    Parameters
    ----------
    run : Run
    task, truth
        The data, if it is there.
    missing : str
        Why it is not.
    seed : int
        Of the draw of samples.
    """
    if task is None:
        return Seen(run, missing=missing or "this page was asked for without data")
    other = _other_data(run, task)
    if other:
        return Seen(run, missing=f"the data given is not that of the run: {other}")
    labels = None if truth is None or not truth.known.any() else truth.yt
    bare = Seen(run, task, truth=labels)
    try:
        source, target, evidence = _said(run, task, np.random.default_rng(seed))
    except (WarmpotError, OSError, ImportError) as error:  # a backbone that is not here, a disk that is gone
        return replace(bare, missing=f"the model could not be applied to the data: {' '.join(str(error).split())}")
    if bare.classes and (bare.predicted[target.rows] != target.logits.argmax(axis=1)).mean() > 0.01:
        return Seen(run, missing="the data given is not that of the run: the model predicts other classes for it")
    return replace(bare, source=source, target=target, evidence=evidence)


def _other_data(run: Run, task: Task) -> str:
    """Say in what the data is not the run's; "" when nothing shows."""
    if list(task.classes) != run.classes:
        return "other classes"
    for side, there, here in (("source", run.n_source, task.n_source), ("target", run.n_target, task.n_target)):
        if there and there != here:
            return f"{here} {side} samples in place of {there}"
    if run.n_source and run.classes and (run.codes(run.weights["label"]) != task.ys).any():
        return "other labels of the source"
    width = run.model.get("n_inputs")
    return f"{sample_shape(task.xs)} in place of {width}" if task.xs.ndim == 2 and width != task.width else ""


def _said(run: Run, task: Task, rng: np.random.Generator) -> tuple[Points, Points, Candidate | None]:
    """Apply the model to (a draw of) both sides."""
    from warmpot.select.best_iterate import candidate_from_snapshot
    from warmpot.train.iterates import Snapshot
    from warmpot.train.predictor import Predictor

    predictor = Predictor.load(run.folder)
    most = MOST_JUDGED if task.xs.ndim == 2 else MOST_DECODED
    draws = [_drawn(rng, n, most) for n in (task.n_source, task.n_target)]
    part = replace(task, xs=_part(task.xs, draws[0]), ys=task.ys[draws[0]], xt=_part(task.xt, draws[1]),
                   source_names=(), target_names=())  # fmt: skip
    source, target = predictor.outputs(part.xs, "source", source=True), predictor.outputs(part.xt, "target")
    line = run.signs
    cost = line["transport"] / line["alpha"] if line.get("transport") is not None and line.get("alpha") else None
    snapshot = Snapshot(run.step, predictor.network, source, target, cost)
    evidence = candidate_from_snapshot(snapshot, part) if task.classes else None
    found = [
        Points(rows, _scaled(predictor, x), said.features.numpy(), said.logits.numpy())
        for rows, x, said in zip(draws, (part.xs, part.xt), (source, target), strict=True)
    ]
    return found[0], found[1], evidence


def _drawn(rng: np.random.Generator, n: int, most: int) -> IntArray:
    found: IntArray = rng.permutation(n)[:most]
    return found


def _part(x: Rows, rows: Sequence[int] | IntArray) -> Rows:
    return x[rows] if isinstance(x, np.ndarray) else x.subset(rows)


def _scaled(predictor: Any, x: Rows) -> FloatArray | None:
    """Return features as the network scales them; None for images."""
    import torch

    if not isinstance(x, np.ndarray):
        return None
    with torch.inference_mode():
        found: FloatArray = predictor.network.scale(torch.from_numpy(np.ascontiguousarray(x))).double().numpy()
    return found
