"""Comparison with the target labels: confusion matrix, accuracy per class."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

import numpy as np

from warmpot._tables import ResultTable, TableValue
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import EVALUATION, Block, Details, Picture, Section, make_table
from warmpot.report.run_view import RunView
from warmpot.report.sections.parts import MAX_ROWS, class_cell, fold_if_long, percent
from warmpot.report.style import COLOURS, GRID, INK, heat, label, new_axes, new_figure, ticks

__all__ = ["evaluation_section"]

MAX_PAIRS = 20
"""Confused pairs in the table."""
MAX_MARKS = 1000
MAX_CELLS = 40
"""Largest number of rows and columns of a confusion matrix that is plotted."""


def evaluation_section(view: RunView) -> Section | None:
    """Compare with the target labels; None without any."""
    accuracy = view.accuracy
    if view.truth is None or accuracy is None:
        return None
    title = "Compared with the target labels"
    if not view.classes:
        lead = f"Mean absolute error {accuracy:.4g}, {EVALUATION}."
        return Section(title, [_values_scatter(view)], lead=lead)
    truth, n_classes = np.asarray(view.truth.yt, np.int64), len(view.classes)
    codes, samples = np.unique((truth * n_classes + view.predicted)[truth >= 0], return_counts=True)
    pairs = _Pairs(*np.divmod(codes, n_classes), samples)
    totals = np.bincount(pairs.true, pairs.samples, minlength=n_classes).astype(np.int64)
    hits = pairs.samples * (pairs.true == pairs.predicted)
    correct = np.bincount(pairs.true, hits, minlength=n_classes).astype(np.int64)
    rows, columns = np.flatnonzero(totals), np.unique(pairs.predicted)
    blocks: list[Block] = []
    if max(len(rows), len(columns)) <= MAX_CELLS:
        part = np.zeros((len(rows), len(columns)), np.int64)
        part[np.searchsorted(rows, pairs.true), np.searchsorted(columns, pairs.predicted)] = pairs.samples
        blocks.append(_confusion_matrix(view, part, rows, columns))
    order = np.argsort(-samples, kind="stable")  # the most frequent first
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


def _values_scatter(view: RunView) -> Picture:
    assert view.truth is not None
    truth = view.truth.yt
    figure = new_figure(4.6, 4.2)
    axes, rows = figure.add_subplot(), np.random.default_rng(0).permutation(len(view.predicted))[:MAX_MARKS]
    marks = axes.scatter(truth[rows], view.predicted[rows], s=14, color=COLOURS["blue"], alpha=0.6, linewidths=0)
    marks.set_gid("tip-values")
    tips = [f"target {k}: predicted {view.predicted[k]:.4g}, true {truth[k]:.4g}" for k in rows.tolist()]
    ends = [float(truth.min()), float(truth.max())]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true", ylabel="predicted")
    alt = "Scatter plot of predicted against true values; on the dashed line they agree"
    return Picture("values", figure, alt, "On the dashed line, predicted and true values agree.", {"values": tips})


def _confusion_matrix(view: RunView, part: IntArray, rows: IntArray, columns: IntArray) -> Picture:
    shares: FloatArray = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    side = 0.24 if len(columns) > 12 else 0.4
    figure, axes = new_axes(2.0 + side * len(columns), 1.9 + side * len(rows))
    heat(axes, shares, low=0, high=1).set_gid("tip-cells")
    tips = [
        f"{label(view.classes[k], 40)} predicted as {label(view.classes[m], 40)}: {part[i, j]} ({shares[i, j]:.0%})"
        for i, k in enumerate(rows) for j, m in enumerate(columns)
    ]  # fmt: skip
    for i, j in np.argwhere(part > 0) if len(columns) <= 25 else ():
        axes.text(j + 0.5, i + 0.5, str(part[i, j]), ha="center", va="center", fontsize=7 if len(columns) > 12 else 8.5)
    ticks(axes.yaxis, [view.classes[k] for k in rows], most=20)
    ticks(axes.xaxis, [view.classes[k] for k in columns], most=20)
    long = max(len(label(view.classes[k], 20)) for k in columns)
    axes.tick_params(axis="x", rotation=90 if long > (4 if len(columns) <= 12 else 2) else 0)
    axes.set(xlabel="predicted", ylabel="true")
    axes.hlines(np.arange(1, len(rows)), 0, len(columns), color=GRID, linewidth=0.4)
    alt = f"Confusion matrix of {len(rows)} true and {len(columns)} predicted classes; the table below has the numbers"
    return Picture("confusion", figure, alt, "Samples by true and predicted class; colour: share of the row.",
                   {"cells": tips})  # fmt: skip
