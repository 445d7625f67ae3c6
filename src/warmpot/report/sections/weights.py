"""How much each source sample counted in training, and which target samples the plan leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warmpot._run_files import SOURCE_WEIGHTS
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Block, Cell, Details, Section, Table, Text, Value
from warmpot.report.run_view import RunView
from warmpot.report.sections.figures import weight_histograms, weights_by_class
from warmpot.report.sections.wording import MOST_OPEN, MOST_ROWS, class_cell, percent, value_cell
from warmpot.report.thumbs import opener, samples

__all__ = ["left_out_section", "weights_section"]

MOST_EXTREME = 6
"""Samples shown with the most, and with the least, weight."""
MOST_LEFT_OUT = 12
"""Samples shown that the plan leaves out."""
MOST_CLASSES = 8
"""Classes named of the samples that the plan leaves out."""


def weights_section(view: RunView) -> Section | None:
    """Show the training weights, and the plan weights where they exist; None without the file of weights."""
    if not view.run.n_source:
        return None
    title = "Which source samples count"
    if not view.has_weight.any():
        return Section(title, [Text("The training weights are unknown: none of them is a finite number.")])
    if not view.weighted:
        method = ": source-only does not weight them" if view.run.setting("method") == "source-only" else ""
        return Section(title, [Text(f"All source samples have the same training weight{method}.")])
    blocks: list[Block] = list(weight_histograms(view))
    if view.classes:
        table = _class_table(view)
        blocks.append(weights_by_class(view))
        blocks += [Details("Weights by class", [table])] if len(table.rows) > MOST_OPEN else [table]
    return Section(title, [*blocks, *_extreme_samples(view)], lead=_lead(view))


def _lead(view: RunView) -> str:
    text = "Training weights: how much each source sample counted in training, relative to the others. "
    text += f"The effective share of the source is {view.effective_share:.0%}."
    capped, plan = float(view.at_cap.mean()), view.run.plan_weights
    if capped > 0.01:
        text += f" {capped:.0%} of the samples have the largest {'weight' if plan is None else 'plan weight'}, the cap."
    if view.classes and view.absent and view.present:
        weight, count = float(view.weight_shares[view.absent].sum()), float(view.source_shares[view.absent].sum())
        text += f" Classes estimated absent have {count:.0%} of the samples and {weight:.1%} of the training weight."
    if plan is not None:
        text += f" Plan weights are the row sums of the last plan; they sum to alpha, here {np.nansum(plan):.3g}."
    return text


def _class_table(view: RunView) -> Table:
    order = np.argsort(-view.weight_shares, kind="stable")
    plan = view.run.plan_weights
    plan_shares = None if plan is None else view.weight_shares_of(np.nan_to_num(plan) / (np.nansum(plan) or 1.0))
    rows: list[list[Value]] = []
    for k in order[:MOST_ROWS].tolist():
        planned = [] if plan_shares is None else [percent(plan_shares[k], 2)]
        rows.append([
            class_cell(view, k), int(view.source_counts[k]), percent(view.source_shares[k]),
            percent(view.weight_shares[k], 2), *planned, percent(view.capped_shares[k], 0), percent(view.shares[k]),
        ])  # fmt: skip
    head = ["class", "samples", "share of samples", "share of training weight"]
    head += [*([] if plan_shares is None else ["share of plan weight"]), "at the cap", "predicted share"]
    more = len(order) - len(rows)
    note = (
        f"The {len(rows)} classes with the most training weight; {more} more are in {SOURCE_WEIGHTS}." if more else ""
    )
    return Table(head, rows, "Weights by class", note=note)


def _extreme_samples(view: RunView) -> Iterator[Block]:
    """Yield the samples with the most and the least training weight, in random order among equal weights."""
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(view.has_weight))
    order = shuffled[np.argsort(-view.relative_weights[shuffled], kind="stable")]
    open_row = opener(view, "source")

    def cells(row: int) -> list[Cell]:
        weight = float(view.relative_weights[row])
        return [value_cell(view, view.labels, row), Cell(f"{weight:.2f}", sort=weight)]

    blocks = []
    for title, rows in {"Most": order[:MOST_EXTREME], "Least": order[::-1][:MOST_EXTREME]}.items():
        caption = f"{title} training weight, relative to the largest{_ties(view.relative_weights, rows)}."
        blocks.append(samples(view, "source", rows.tolist(), open_row, ["label", "weight"], cells, caption))
    if any(isinstance(block, Table) for block in blocks):
        yield Details("Source samples with the most and the least weight", blocks)
    else:
        yield from blocks


def _ties(relative: FloatArray, rows: IntArray) -> str:
    """Return how many samples have the weight of those shown, if there are more."""
    equal = int((np.abs(relative - float(relative[rows[-1]])) < 1e-3).sum())
    return f" ({len(rows)} of {equal:,} with this weight, at random)" if equal > len(rows) else ""


def left_out_section(view: RunView) -> Section | None:
    """Show the target samples that the plan leaves out; None without a plan."""
    if not view.has_plan:
        return None
    title, lead, left_out = "What the plan leaves out", _why_left_out(view), view.left_out
    if not len(left_out):
        return Section(title, [Text("Every target sample is matched, at least in part.")], lead=lead)
    rows = left_out[:MOST_LEFT_OUT].tolist()
    lead += f" {len(left_out):,} of {view.run.n_target:,} samples are left out, completely or nearly."

    def cells(row: int) -> list[Cell]:
        confidence = [percent(view.confidence[row], 0)] if view.classes else []
        return [value_cell(view, view.predicted, row), *confidence, percent(view.matched[row], 0)]

    head = ["predicted", *(["confidence"] if view.classes else []), "matched"]
    part = f": {len(rows)} of {len(left_out):,}" if len(left_out) > len(rows) else ""
    caption = f"Left out, the least confident first{part}."
    blocks: list[Block] = [samples(view, "target", rows, opener(view, "target"), head, cells, caption)]
    blocks += [_left_out_classes(view)] if view.classes else []
    return Section(title, blocks, lead=lead)


def _left_out_classes(view: RunView) -> Text:
    counts = np.bincount(view.predicted[view.left_out], minlength=len(view.classes))
    used = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k]]
    top, others = used[:MOST_CLASSES], used[MOST_CLASSES:]
    named = ", ".join(
        f"{class_cell(view, k).text} ({counts[k]:,}{' samples' if k == top[0] and counts[k] > 1 else ''})" for k in top
    )
    classes = "classes" if len(others) > 1 else "class"
    more = f" and {len(others)} more {classes} ({counts[others].sum():,} samples in total)" if others else ""
    return Text(f"They are predicted as {named}{more}.")


def _why_left_out(view: RunView) -> str:
    """Explain that the mass alpha makes the plan leave samples out, whatever the samples are."""
    mass, setting = float(np.nanmean(view.matched)), view.run.params.get("alpha")
    fixed = isinstance(setting, int | float)
    alpha = float(setting) if fixed else view.run.logged("alpha")  # type: ignore[arg-type]
    if setting is None or alpha is None or alpha >= 1:
        return f"The plan leaves out {1 - mass:.0%} of the target's mass: the samples that cost most to match."
    how = "set" if fixed else "estimated"
    return (
        f"alpha = {alpha:.2g} ({how}) makes the plan leave out {1 - mass:.0%} of the target's mass, however well the "
        "samples fit. It leaves out those that cost most to match, which may still belong to a class of the source."
    )
