"""Comparison with the target labels: confusion matrix, accuracy per class."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from warmpot._tables import ResultTable, TableValue
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import EVALUATION, Block, Details, Section, make_table
from warmpot.report.run_view import RunView
from warmpot.report.sections.parts import MAX_ROWS, Drawn, class_cell, fold_if_long, percent, picture
from warmpot.report.style import COLOURS, GRID, INK, WIDTH, heat, label, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_confusion", "draw_true_values", "evaluation_section"]

MAX_PAIRS = 20
"""Confused pairs in the table."""
MAX_MARKS = 1000
MAX_CELLS = 40
"""Largest number of rows and columns of a confusion matrix that is plotted."""
MANY, MAX_NUMBERED = 12, 25
"""Columns above which its cells are smaller, and above which they have no numbers."""


def evaluation_section(view: RunView) -> Section | None:
    """Compare with the target labels; None without any."""
    accuracy = view.accuracy
    if view.truth is None or accuracy is None:
        return None
    title = "Compared with the target labels"
    if not view.classes:
        lead = f"Mean absolute error {accuracy:.4g}, {EVALUATION}."
        return Section(title, [picture("values", lambda axes: draw_true_values(axes, view), 4.2)], lead=lead)
    pairs, n_classes = _pairs(view), len(view.classes)
    totals = np.bincount(pairs.true, pairs.samples, minlength=n_classes).astype(np.int64)
    hits = pairs.samples * (pairs.true == pairs.predicted)
    correct = np.bincount(pairs.true, hits, minlength=n_classes).astype(np.int64)
    rows, columns = np.flatnonzero(totals), np.unique(pairs.predicted)
    blocks: list[Block] = []
    if max(len(rows), len(columns)) <= MAX_CELLS:
        side = 0.42 if len(columns) <= MANY else 0.34 if len(columns) <= MAX_NUMBERED else 0.24  # inches
        sizes = 1.9 + side * len(rows), max(2.3 + side * len(columns), WIDTH)
        blocks.append(picture("confusion", lambda axes: draw_confusion(axes, view), *sizes))
    order = np.argsort(-pairs.samples, kind="stable")  # the most frequent first
    order = order[(pairs.true != pairs.predicted)[order]]
    errors = _Pairs(*(column[order] for column in pairs))
    mean = float((correct[rows] / totals[rows]).mean())
    lead = f"Accuracy {accuracy:.1%}; mean over the classes {mean:.1%}; {EVALUATION}."
    confused = _pairs_table(view, totals, errors)
    folded = [Details("Most confused pairs", [confused])] if blocks else [confused]
    blocks.append(fold_if_long(_class_table(view, totals, correct, errors), "Accuracy by class"))
    blocks += folded if confused.rows else []
    return Section(title, blocks, lead=lead)


class _Pairs(NamedTuple):
    """Pairs of true and predicted class that occur; far fewer than all pairs of classes. The counts are `samples`."""

    true: IntArray
    predicted: IntArray
    samples: IntArray


def _pairs(view: RunView) -> _Pairs:
    assert view.truth is not None
    truth, n_classes = np.asarray(view.truth.yt, np.int64), len(view.classes)
    codes, samples = np.unique((truth * n_classes + view.predicted)[truth >= 0], return_counts=True)
    return _Pairs(*np.divmod(codes, n_classes), samples)


def _class_table(view: RunView, totals: IntArray, correct: IntArray, errors: _Pairs) -> ResultTable:
    rows = np.flatnonzero(totals)
    order = rows[np.argsort(correct[rows] / totals[rows], kind="stable")][:MAX_ROWS]
    true, first = np.unique(errors.true, return_index=True)
    confused_with = dict(zip(true.tolist(), errors.predicted[first].tolist(), strict=True))
    cells: list[list[TableValue]] = [
        [class_cell(view, k), int(totals[k]), percent(correct[k] / totals[k]),
         class_cell(view, confused_with[k]) if k in confused_with else None]
        for k in order.tolist()
    ]  # fmt: skip
    note = f"The {len(order)} worst of {len(rows)} classes." if len(rows) > len(order) else ""
    head = ["class", "samples", "accuracy", "most confused with"]
    return make_table(head, cells, "Accuracy by class, the worst first", note)


def _pairs_table(view: RunView, totals: IntArray, errors: _Pairs) -> ResultTable:
    pairs = zip(errors.true.tolist(), errors.predicted.tolist(), errors.samples.tolist(), strict=True)
    rows: list[list[TableValue]] = [
        [class_cell(view, k), class_cell(view, m), count, percent(count / totals[k])]
        for k, m, count in islice(pairs, MAX_PAIRS)
    ]
    return make_table(["true", "predicted", "samples", "share of the class"], rows, "Most confused pairs")


def draw_true_values(axes: Axes, view: RunView) -> Drawn:
    """Draw predicted against true values."""
    assert view.truth is not None
    truth = view.truth.yt
    rows = np.random.default_rng(0).permutation(len(view.predicted))[:MAX_MARKS]
    marks = axes.scatter(truth[rows], view.predicted[rows], s=14, color=COLOURS["blue"], alpha=0.6, linewidths=0)
    marks.set_gid("tip-values")
    tips = [f"target {k}: predicted {view.predicted[k]:.4g}, true {truth[k]:.4g}" for k in rows.tolist()]
    ends = [float(truth.min()), float(truth.max())]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true", ylabel="predicted")
    alt = "Scatter plot of predicted against true values; on the dashed line they agree"
    return Drawn(alt, "On the dashed line, predicted and true values agree.", {"values": tips})


def draw_confusion(axes: Axes, view: RunView) -> Drawn:
    """Draw the confusion matrix of the classes that occur."""
    pairs = _pairs(view)
    rows, columns = np.unique(pairs.true), np.unique(pairs.predicted)
    part = np.zeros((len(rows), len(columns)), np.int64)
    part[np.searchsorted(rows, pairs.true), np.searchsorted(columns, pairs.predicted)] = pairs.samples
    shares: FloatArray = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    heat(axes, shares, low=0, high=1).set_gid("tip-cells")
    tips = [
        f"{label(view.classes[k], 40)} predicted as {label(view.classes[m], 40)}: {part[i, j]} ({shares[i, j]:.0%})"
        for i, k in enumerate(rows) for j, m in enumerate(columns)
    ]  # fmt: skip
    for i, j in np.argwhere(part > 0) if len(columns) <= MAX_NUMBERED else ():
        axes.text(j + 0.5, i + 0.5, str(part[i, j]), ha="center", va="center")
    ticks(axes.yaxis, [view.classes[k] for k in rows], most=20)
    ticks(axes.xaxis, [view.classes[k] for k in columns], most=20)
    long = max(len(label(view.classes[k], 20)) for k in columns)
    axes.tick_params(axis="x", rotation=90 if long > (4 if len(columns) <= MANY else 2) else 0)
    axes.set(xlabel="predicted", ylabel="true")
    axes.hlines(np.arange(1, len(rows)), 0, len(columns), color=GRID, linewidth=0.4)
    alt = f"Confusion matrix of {len(rows)} true and {len(columns)} predicted classes; the table below has the numbers"
    return Drawn(alt, "Samples by true and predicted class; colour: share of the row.", {"cells": tips})
