"""Comparison with the target labels: confusion matrix, accuracy per class."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np

from warmpot._typing import IntArray
from warmpot.report.page import Block, Details, Section, Table, Value
from warmpot.report.run_view import RunView
from warmpot.report.sections.figures import MOST_CELLS, confusion_matrix, values_scatter
from warmpot.report.sections.wording import EVALUATION, MOST_OPEN, MOST_ROWS, class_cell, percent

__all__ = ["evaluation_section"]

MOST_PAIRS = 20
"""Confused pairs in the table."""


def evaluation_section(view: RunView) -> Section | None:
    """Compare with the target labels; None without any."""
    accuracy = view.accuracy
    if view.truth is None or accuracy is None:
        return None
    title = "Compared with the target labels"
    if not view.classes:
        lead = f"Mean absolute error {accuracy:.4g}, {EVALUATION}."
        return Section(title, [values_scatter(view)], lead=lead)
    pairs = _count_pairs(view)
    totals = np.bincount(pairs.true, pairs.count, minlength=len(view.classes)).astype(np.int64)
    hits = pairs.count * (pairs.true == pairs.predicted)
    correct = np.bincount(pairs.true, hits, minlength=len(view.classes)).astype(np.int64)
    rows, columns = np.flatnonzero(totals), np.unique(pairs.predicted)
    picture = None
    if max(len(rows), len(columns)) <= MOST_CELLS:
        part = np.zeros((len(rows), len(columns)), np.int64)
        part[np.searchsorted(rows, pairs.true), np.searchsorted(columns, pairs.predicted)] = pairs.count
        picture = confusion_matrix(view, part, rows, columns)
    errors = pairs.errors()
    table = _class_table(view, totals, correct, errors)
    mean = float((correct[rows] / totals[rows]).mean())
    lead = f"Accuracy {accuracy:.1%}; mean over the classes {mean:.1%}; {EVALUATION}."
    blocks: list[Block] = [] if picture is None else [picture]
    blocks += [Details("Accuracy by class", [table])] if len(table.rows) > MOST_OPEN else [table]
    confused = _pairs_table(view, totals, errors)
    if confused.rows:
        blocks.append(confused if picture is None else Details("Most confused pairs", [confused]))
    return Section(title, blocks, lead=lead)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of true and predicted class that occur, with their counts; far fewer than all pairs of classes."""

    true: IntArray
    predicted: IntArray
    count: IntArray

    def errors(self) -> _Pairs:
        """Return the pairs of different classes, the most frequent first."""
        order = np.argsort(-self.count, kind="stable")
        order = order[(self.true != self.predicted)[order]]
        return _Pairs(self.true[order], self.predicted[order], self.count[order])


def _count_pairs(view: RunView) -> _Pairs:
    assert view.truth is not None
    truth: IntArray = np.asarray(view.truth.yt, np.int64)
    known = truth >= 0
    codes, count = np.unique(truth[known] * len(view.classes) + view.predicted[known], return_counts=True)
    return _Pairs(*np.divmod(codes, len(view.classes)), count)


def _class_table(view: RunView, totals: IntArray, correct: IntArray, errors: _Pairs) -> Table:
    rows = np.flatnonzero(totals)
    order = rows[np.argsort(correct[rows] / totals[rows], kind="stable")][:MOST_ROWS]
    true, first = np.unique(errors.true, return_index=True)
    confused_with = dict(zip(true.tolist(), errors.predicted[first].tolist(), strict=True))
    cells: list[list[Value]] = [
        [class_cell(view, k), int(totals[k]), percent(correct[k] / totals[k]),
         class_cell(view, confused_with[k]) if k in confused_with else None]
        for k in order.tolist()
    ]  # fmt: skip
    note = f"The {len(order)} worst of {len(rows)} classes." if len(rows) > len(order) else ""
    head, sides = ["class", "samples", "accuracy", "most confused with"], ["left", "right", "right", "left"]
    return Table(head, cells, "Accuracy by class, the worst first", align=sides, note=note)


def _pairs_table(view: RunView, totals: IntArray, errors: _Pairs) -> Table:
    pairs = zip(errors.true.tolist(), errors.predicted.tolist(), errors.count.tolist(), strict=True)
    rows: list[list[Value]] = [
        [class_cell(view, k), class_cell(view, m), count, percent(count / totals[k])]
        for k, m, count in islice(pairs, MOST_PAIRS)
    ]
    return Table(["true", "predicted", "samples", "share of the class"], rows, "Most confused pairs")
