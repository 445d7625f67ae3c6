"""The first section: what the target contains according to the predictions, with all warnings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import numpy as np

from warmpot._run_files import PREDICTIONS
from warmpot.report.page import Block, Cell, Details, Notice, Section, Table, Text, Tiles, Value
from warmpot.report.run_view import RunView
from warmpot.report.sections.figures import predicted_classes, predicted_values
from warmpot.report.sections.warnings import MOST_SUSPECTS, problem_notices, run_warnings, suspicious_classes
from warmpot.report.sections.wording import MOST_OPEN, MOST_ROWS, class_cell, class_names, measured, percent
from warmpot.report.style import ABSENT, label
from warmpot.report.thumbs import opener, samples

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
    n_classes, n_present, suspects = len(view.classes), len(view.present), suspicious_classes(view)
    doubtful = f", {len(suspects)} doubtful" if suspects else ""
    confidence = percent(view.mean_confidence, 0).text
    tiles = [
        (f"{view.run.n_target:,}", "target samples", ""),
        (f"{n_present} of {n_classes}{doubtful}", "classes estimated present", f"{n_classes - n_present} seem absent"),
        (confidence, "mean confidence", "not recorded" if confidence == ABSENT else "of the model, not calibrated"),
        measured(view),
    ]
    table = _class_table(view)
    blocks: list[Block] = [Tiles(tiles), *notices, *_suspicious_samples(view, list(suspects)), predicted_classes(view)]
    blocks += [Details(f"All {len(table.rows)} predicted classes", [table])] if len(table.rows) > MOST_OPEN else [table]
    absent = f"Estimated absent: {class_names(view, view.absent, MOST_ABSENT)}." if view.absent else "No class of the "
    absent += "" if view.absent else "source seems absent."
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
    open_row = opener(view, "target")

    def cells(row: int) -> list[Cell]:
        return [class_cell(view, int(view.predicted[row])), percent(view.confidence[row], 0)]

    for k in suspects[:MOST_SUSPECTS]:
        rows, count = view.least_confident([k])[:MOST_SAMPLES].tolist(), int(view.counts[k])
        part = f"{len(rows)} of {count:,}, " if count > len(rows) else ""
        caption = f"Predicted as {label(view.classes[k], 40)}: {part}the least confident first."
        block = samples(view, "target", rows, open_row, ["predicted", "confidence"], cells, caption)
        yield Details(f"Samples predicted as {label(view.classes[k], 40)}", [block])


def _class_table(view: RunView) -> Table:
    order = [int(k) for k in np.argsort(-view.shares, kind="stable") if view.shares[k] > 0]
    present, suspects = set(view.present), suspicious_classes(view)
    rows: list[list[Value]] = []
    for k in order[:MOST_ROWS]:
        mark = Cell("present", tone="good") if k in present else Cell("stray", tone="muted")
        mark = Cell("doubtful", tone="warning") if k in suspects else mark
        numbers = [percent(part[k]) for part in (view.shares, view.class_confidence, view.source_shares)]
        rows.append([class_cell(view, k), int(view.counts[k]), *numbers, mark])
    head = ["class", "samples", "share", "confidence", "share of the source", "estimate"]
    more = len(order) - len(rows)
    note = f"The {len(rows)} largest; {more} more are in {PREDICTIONS}." if more else ""
    return Table(head, rows, "Predicted classes", note=note)


def _value_answer(view: RunView, notices: list[Block]) -> Section:
    known = view.predicted[np.isfinite(view.predicted)]
    tiles = [(f"{view.run.n_target:,}", "target samples", "")]
    if not len(known):
        return Section(TITLE, [Tiles(tiles), *notices])
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    tiles += [
        (f"{middle:.4g}", "median prediction", f"90% are between {low:.4g} and {high:.4g}"),
        measured(view),
    ]
    lead = f"A number is predicted for each of the {view.run.n_target:,} target samples."
    return Section(TITLE, [Tiles(tiles), *notices, predicted_values(view)], lead=lead)
