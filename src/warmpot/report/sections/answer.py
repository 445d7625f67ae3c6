"""The first section: what the target contains according to the predictions, with all warnings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from warmpot._run_files import PREDICTIONS
from warmpot._tables import ABSENT, ResultTable, TableCell, TableValue
from warmpot.report.page import Block, Details, Notice, Picture, Section, Text, Tiles, make_table
from warmpot.report.run_view import RunView
from warmpot.report.sections import parts
from warmpot.report.sections.warnings import MOST_SUSPECTS, problem_notices, run_warnings
from warmpot.report.style import COLOURS, MUTED, label, new_figure

__all__ = ["answer_section"]

TITLE = "The answer"
MOST_ABSENT = 60
"""Absent classes that are named."""
MOST_SAMPLES = 12
"""Samples shown per suspicious class."""
ALWAYS_A_CLASS = "Every target sample is assigned one of the source's classes, even if it belongs to none of them."


def answer_section(view: RunView) -> Section:
    """Show what the target contains, and what looks wrong."""
    if not view.run.n_target:
        folder = "RUN" if view.run.folder is None else shlex.quote(str(view.run.folder))
        remedy = f"Predict again: warmpot predict {folder} DATA --out FILE"
        return Section(TITLE, [Notice("bad", f"{PREDICTIONS} is missing.", remedy), *problem_notices(view)])
    notices: list[Block] = list(run_warnings(view)) or [
        Notice("good", "No warnings. That is not a proof: warnings detect some failures, but cannot confirm success.")
    ]
    if view.missing:
        remedy = f"Name the files: {view.command} SOURCE TARGET"
        notices.append(Notice("info", f"Parts of this page are left out: {view.missing}.", remedy))
    return _class_answer(view, notices) if view.classes else _value_answer(view, notices)


def _class_answer(view: RunView, notices: list[Block]) -> Section:
    n_classes, n_present, suspects = len(view.classes), len(view.present), view.suspects
    doubtful = f", {len(suspects)} doubtful" if suspects else ""
    confidence = parts.percent(view.mean_confidence, 0).text
    tiles = [
        (f"{view.run.n_target:,}", "target samples", ""),
        (f"{n_present} of {n_classes}{doubtful}", "classes estimated present", f"{n_classes - n_present} seem absent"),
        (confidence, "mean confidence", "not recorded" if confidence == ABSENT else "of the model, not calibrated"),
        parts.measured(view),
    ]
    table, absent = _class_table(view), "No class of the source seems absent."
    if view.absent:
        absent = f"Estimated absent: {parts.class_names(view, view.absent, MOST_ABSENT)}."
    blocks: list[Block] = [Tiles(tiles), *notices, *_suspicious_samples(view, list(suspects)), _class_shares(view)]
    blocks.append(parts.fold_if_long(table, f"All {len(table.rows)} predicted classes"))
    blocks.append(Text(f"{absent} {ALWAYS_A_CLASS}"))
    largest = ", ".join(f"{label(view.classes[k], 40)} ({view.shares[k]:.0%})" for k in view.present[:3])
    lead = f"Each of the {view.run.n_target:,} target samples is assigned one of {n_classes} classes."
    if n_present == 1:
        lead += f" Only {largest} is estimated present."
    else:
        lead += f" {n_present} of them are estimated present; the most frequent: {largest}."
    return Section(TITLE, blocks, lead=lead)


def _suspicious_samples(view: RunView, suspects: list[int]) -> Iterator[Block]:
    """Yield samples of the classes that a warning asks to check."""
    open_row = parts.opener(view, "target")

    def cells(row: int) -> list[TableCell]:
        return [parts.class_cell(view, int(view.predicted[row])), parts.percent(view.confidence[row], 0)]

    for k in suspects[:MOST_SUSPECTS]:
        rows, count = view.least_confident([k])[:MOST_SAMPLES].tolist(), int(view.counts[k])
        part = f"{len(rows)} of {count:,}, " if count > len(rows) else ""
        caption = f"Predicted as {label(view.classes[k], 40)}: {part}the least confident first."
        block = parts.samples(view, "target", rows, open_row, ["predicted", "confidence"], cells, caption)
        yield Details(f"Samples predicted as {label(view.classes[k], 40)}", [block])


def _class_shares(view: RunView) -> Picture:
    order = np.argsort(-view.shares, kind="stable")
    order = order[view.shares[order] > 0][: parts.MOST_BARS]
    texts = [f"{view.counts[k]:,} samples, {view.shares[k]:.1%}" for k in order]
    picture = parts.class_bars(view, "predicted-classes", "target", view.shares, order, texts, margin=0.9)
    axes = picture.figure.axes[0]
    for index, k in enumerate(order):
        axes.text(100 * view.shares[k], index + 0.5, f" {view.shares[k]:.1%}", va="center", fontsize=8.5, color=MUTED)
    axes.set(xlabel="% of the target samples", xlim=(0, 118 * view.shares.max()))
    used = int((view.shares > 0).sum())
    more = f" The {len(order)} largest of {used}." if used > len(order) else ""
    return replace(picture, caption=f"Predicted content of the target.{picture.caption}{more}")


def _class_table(view: RunView) -> ResultTable:
    order = [int(k) for k in np.argsort(-view.shares, kind="stable") if view.shares[k] > 0]
    rows: list[list[TableValue]] = []
    for k in order[: parts.MOST_ROWS]:
        mark, tone = ("present", "good") if k in view.present else ("stray", "muted")
        mark, tone = ("doubtful", "warning") if k in view.suspects else (mark, tone)
        numbers = [parts.percent(part[k]) for part in (view.shares, view.class_confidence, view.source_shares)]
        rows.append([parts.class_cell(view, k), int(view.counts[k]), *numbers, TableCell(mark, tone=tone)])
    head = ["class", "samples", "share", "confidence", "share of the source", "estimate"]
    more = len(order) - len(rows)
    note = f"The {len(rows)} largest; {more} more are in {PREDICTIONS}." if more else ""
    return make_table(head, rows, "Predicted classes", note)


def _value_answer(view: RunView, notices: list[Block]) -> Section:
    known = view.predicted[np.isfinite(view.predicted)]
    tiles = [(f"{view.run.n_target:,}", "target samples", "")]
    if not len(known):
        return Section(TITLE, [Tiles(tiles), *notices])
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    tiles += [(f"{middle:.4g}", "median prediction", f"90% are between {low:.4g} and {high:.4g}"), parts.measured(view)]
    lead = f"A number is predicted for each of the {view.run.n_target:,} target samples."
    return Section(TITLE, [Tiles(tiles), *notices, _values_histogram(view)], lead=lead)


def _values_histogram(view: RunView) -> Picture:
    """Plot the predictions of a regression next to the weighted source labels."""
    figure = new_figure(5.2, 3.0)
    axes, values = figure.add_subplot(), np.concatenate([view.predicted, view.labels])
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    heights = np.histogram(view.predicted, edges)[0] / max(len(view.predicted), 1)
    axes.stairs(100 * heights, edges, fill=True, color=COLOURS["blue"], alpha=0.75, label="target predictions")
    if len(view.labels):
        weighted = np.histogram(view.labels, edges, weights=view.weights)[0]
        axes.stairs(100 * weighted, edges, color=COLOURS["orange"], linewidth=1.6, label="weighted source labels")
    axes.set(xlabel="value", ylabel="% of the samples")
    axes.legend(frameon=False)
    alt = f"Histogram of predictions from {np.nanmin(view.predicted):.4g} to {np.nanmax(view.predicted):.4g}"
    return Picture("predicted-values", figure, alt, "Target predictions, compared with the weighted source labels.")
