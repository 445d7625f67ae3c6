"""What labels and theorems say of a run: confusion and accuracy by class, and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmpot._typing import IntArray
from warmpot.bounds import BoundReport
from warmpot.errors import WarmpotError
from warmpot.report.bounds import bars_figure, curves_figure, read_bounds
from warmpot.report.page import Block, Code, Details, Picture, Section, Table, Text, Value
from warmpot.report.run_figures import MOST_CELLS, confusion, values_against
from warmpot.report.run_words import EVALUATION, MOST_OPEN, MOST_ROWS, accuracy, class_cell, percent
from warmpot.report.seen import Seen
from warmpot.report.style import label

__all__ = ["Bounds", "bounds_of", "evaluated", "proven"]

SMALL = 40_000
"""Pairs of samples up to which the bound is computed for the page."""
PAIRS = 20
"""Most confused pairs in the table."""
JOINT = {"Theorem 3.3": "paper", "Theorem 3.3, sharp": "sharp"}

Bounds = tuple[Mapping[str, BoundReport], Mapping[str, Sequence[BoundReport]]]


def evaluated(seen: Seen) -> Section | None:
    """Compare with the target's labels; None without any."""
    found = accuracy(seen)
    if seen.truth is None or found is None:
        return None
    title = "Against the target labels"
    if not seen.classes:
        lead = f"Mean absolute error {found:.4g}, {EVALUATION}."
        return Section(title, [values_against(seen)], lead=lead)
    pairs = _pairs(seen)
    totals = np.bincount(pairs.true, pairs.count, minlength=len(seen.classes)).astype(np.int64)
    right = np.bincount(pairs.true, pairs.count * (pairs.true == pairs.predicted), minlength=len(seen.classes)).astype(
        np.int64
    )
    rows, columns = np.flatnonzero(totals), np.unique(pairs.predicted)
    picture = None
    if max(len(rows), len(columns)) <= MOST_CELLS:
        part = np.zeros((len(rows), len(columns)), np.int64)
        part[np.searchsorted(rows, pairs.true), np.searchsorted(columns, pairs.predicted)] = pairs.count
        picture = confusion(seen, part, rows, columns)
    wrong = pairs.wrong()
    table = _by_class(seen, totals, right, wrong)
    means = float((right[rows] / totals[rows]).mean())
    lead = f"{found:.1%} of all samples are predicted rightly, {means:.1%} on average over the classes; {EVALUATION}."
    blocks: list[Block] = [] if picture is None else [picture]
    blocks += [Details("Accuracy by class", [table])] if len(table.rows) > MOST_OPEN else [table]
    mixed = _confused(seen, totals, wrong)
    blocks += [Details("Most confused pairs", [mixed]) if picture is not None else mixed] if mixed.rows else []
    return Section(title, blocks, lead=lead)


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of true and predicted class that occur, and how often: few, where all pairs of classes would be many."""

    true: IntArray
    predicted: IntArray
    count: IntArray

    def wrong(self) -> _Pairs:
        """Return those that are wrong, the most frequent first."""
        order = np.argsort(-self.count, kind="stable")
        order = order[(self.true != self.predicted)[order]]
        return _Pairs(self.true[order], self.predicted[order], self.count[order])


def _pairs(seen: Seen) -> _Pairs:
    truth: IntArray = np.asarray(seen.truth, np.int64)
    known = truth >= 0
    found, count = np.unique(truth[known] * len(seen.classes) + seen.predicted[known], return_counts=True)
    return _Pairs(*np.divmod(found, len(seen.classes)), count)


def _by_class(seen: Seen, totals: IntArray, right: IntArray, wrong: _Pairs) -> Table:
    rows = np.flatnonzero(totals)
    order = rows[np.argsort(right[rows] / totals[rows], kind="stable")][:MOST_ROWS]
    taken, first = np.unique(wrong.true, return_index=True)
    often = dict(zip(taken.tolist(), wrong.predicted[first].tolist(), strict=True))
    cells: list[list[Value]] = [
        [class_cell(seen, k), int(totals[k]), percent(right[k] / totals[k]),
         class_cell(seen, often[k]) if k in often else None]
        for k in order.tolist()
    ]  # fmt: skip
    note = f"The {len(order)} worst of {len(rows)} classes." if len(rows) > len(order) else ""
    head, sides = ["class", "samples", "accuracy", "most taken for"], ["left", "right", "right", "left"]
    return Table(head, cells, "Accuracy by class, the worst first", align=sides, note=note)


def _confused(seen: Seen, totals: IntArray, wrong: _Pairs) -> Table:
    pairs = zip(wrong.true[:PAIRS].tolist(), wrong.predicted[:PAIRS].tolist(), wrong.count.tolist(), strict=False)
    rows: list[list[Value]] = [
        [class_cell(seen, k), class_cell(seen, m), count, percent(count / totals[k])] for k, m, count in pairs
    ]
    return Table(["true", "predicted", "samples", "of the class"], rows, "Most confused pairs")


def bounds_of(seen: Seen) -> Bounds:
    """Read the bounds of the run; compute Theorem 3.3 when the problem is small, nothing otherwise."""
    if seen.run.bounds:
        try:
            return read_bounds(seen.run.bounds)
        except (KeyError, TypeError, AttributeError, WarmpotError):  # of another version
            return {}, {}
    task = seen.task
    if task is None or seen.source is None or not seen.classes or task.n_source * task.n_target > SMALL:
        return {}, {}
    if task.xs.ndim > 2:  # images that were trained on: all of them would have to pass through the network again
        return {}, {}
    from warmpot.bounds import head_lipschitz, tightest_bound
    from warmpot.train import Predictor, bound_inputs

    inputs = bound_inputs(Predictor.load(seen.run.folder), task)
    gamma = head_lipschitz(inputs.weight, "euclidean")
    found = {name: tightest_bound("joint", *inputs.points, gamma=gamma, form=form) for name, form in JOINT.items()}
    return {name: search.best for name, search in found.items()}, {name: s.curve for name, s in found.items()}


def proven(seen: Seen, bounds: Bounds) -> Section | None:
    """Draw the bound, term by term; None in regression, of which the theorems say nothing."""
    if not seen.classes:
        return None
    title, (reports, curves) = "What can be proven", bounds
    if not reports:
        text = "The bound of this run was not computed: on many samples it takes minutes."
        return Section(title, [Text(text), Code(f"warmpot bound {seen.run.shell_folder}\n{seen.again}")])
    invalid = {
        name: "not valid: adapted features" for name, report in reports.items()
        if report.confidence is not None and seen.run.adapted
    }  # fmt: skip
    tips = {
        f"{row}-{term.name}": f"{name}: {term.name} {term.value:.3g}, {term.meaning}"
        for row, (name, report) in enumerate(reports.items())
        for term in report.terms
        if term.value
    }
    said = "; ".join(f"{name} {report.total:.2f}" for name, report in reports.items())
    truth = any(report.target_loss is not None for report in reports.values())
    caption = "Terms of each bound; beyond the dashed line it proves nothing, since a loss is never above 1."
    caption += f" Hatched, and the black stroke (the true loss): {EVALUATION}." if truth else ""
    blocks: list[Block] = [
        Picture("bound", bars_figure(reports, invalid), f"Stacked bars of bounds: {said}", caption, tips)
    ]
    shown = {name: curve for name, curve in curves.items() if name in JOINT} or dict(curves)
    if shown:
        alt = "Total of the bound against alpha: " + "; ".join(
            f"{name} from {min(r.total for r in curve):.2f} to {max(r.total for r in curve):.2f}"
            for name, curve in shown.items()
        )
        text = "The known part of the bound against the mass alpha that is moved; any alpha gives a bound that holds."
        blocks.append(Picture("bound-alpha", curves_figure(shown), alt, text))
    lead = "A bound of the target loss is a sum of terms that are known, and of one that only target labels could tell."
    return Section(title, [*blocks, *_meanings(reports)], lead=lead)


def _meanings(reports: Mapping[str, BoundReport]) -> list[Block]:
    rows = [
        [name, term.name, None if term.value is None else float(term.value), label(term.meaning, 120)]
        for name, report in reports.items()
        for term in report.terms
    ]
    table = Table(["bound", "term", "value", "meaning"], rows, align=["left", "left", "right", "left"])
    return [Details("Terms and what they mean", [table])]
