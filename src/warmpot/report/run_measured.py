"""What labels and theorems say of a run: confusion and accuracy by class, and the bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from warmpot._typing import IntArray
from warmpot.bounds import BoundReport
from warmpot.errors import WarmpotError
from warmpot.report.bounds import bars_figure, curves_figure, read_bounds
from warmpot.report.page import Block, Code, Details, Picture, Section, Table, Text, Value
from warmpot.report.run_figures import confusion, values_against
from warmpot.report.run_words import EVALUATION, MOST_OPEN, MOST_ROWS, accuracy, class_cell, percent
from warmpot.report.seen import Seen
from warmpot.report.style import label

__all__ = ["Bounds", "bounds_of", "evaluated", "proven"]

SMALL = 40_000
"""Pairs of samples up to which the bound is computed for the page."""
PAIRS = 20
"""Most confused pairs in the table."""
JOINT = {"Theorem 2": "paper", "Theorem 2, sharp": "sharp"}

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
    truth: IntArray = np.asarray(seen.truth, np.int64)
    known = truth >= 0
    counts = np.zeros((len(seen.classes),) * 2, np.int64)
    np.add.at(counts, (truth[known], seen.predicted[known]), 1)
    rows = np.flatnonzero(counts.sum(axis=1))
    picture = confusion(seen, counts, rows, np.flatnonzero(counts.sum(axis=0)))
    table = _by_class(seen, counts, rows)
    means = float((np.diag(counts)[rows] / counts[rows].sum(axis=1)).mean())
    lead = f"{found:.1%} of all samples are predicted rightly, {means:.1%} on average over the classes; {EVALUATION}."
    blocks: list[Block] = [] if picture is None else [picture]
    blocks += [Details("Accuracy by class", [table])] if len(table.rows) > MOST_OPEN else [table]
    pairs = _confused(seen, counts)
    blocks += [Details("Most confused pairs", [pairs]) if picture is not None else pairs] if pairs.rows else []
    return Section(title, blocks, lead=lead)


def _by_class(seen: Seen, counts: IntArray, rows: IntArray) -> Table:
    totals, right = counts.sum(axis=1), np.diag(counts)
    order = rows[np.argsort(right[rows] / totals[rows], kind="stable")][:MOST_ROWS]
    cells: list[list[Value]] = []
    for k in order.tolist():
        wrong = counts[k].copy()
        wrong[k] = 0
        often = class_cell(seen, int(wrong.argmax())) if wrong.any() else None
        cells.append([class_cell(seen, k), int(totals[k]), percent(right[k] / totals[k]), often])
    note = f"The {len(order)} worst of {len(rows)} classes." if len(rows) > len(order) else ""
    head, sides = ["class", "samples", "accuracy", "most taken for"], ["left", "right", "right", "left"]
    return Table(head, cells, "Accuracy by class, the worst first", align=sides, note=note)


def _confused(seen: Seen, counts: IntArray) -> Table:
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:PAIRS]
    pairs = [divmod(int(place), len(counts)) for place in order]
    rows: list[list[Value]] = [
        [class_cell(seen, k), class_cell(seen, m), int(wrong[k, m]), percent(wrong[k, m] / counts[k].sum())]
        for k, m in pairs
        if wrong[k, m]
    ]
    return Table(["true", "predicted", "samples", "of the class"], rows, "Most confused pairs")


def bounds_of(seen: Seen) -> Bounds:
    """Read the bounds of the run; compute Theorem 2 when the problem is small, nothing otherwise."""
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
        return Section(
            title, [Text(text), Code(f"warmpot bound {seen.run.shell_folder}\nwarmpot report {seen.run.shell_folder}")]
        )
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
