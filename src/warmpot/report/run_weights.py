"""The weights of a run: how they are spread, on which classes, on which samples, and what the plan leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Block, Cell, Details, Section, Table, Text, Value
from warmpot.report.run_figures import histograms, weights_by_class
from warmpot.report.run_words import MOST_OPEN, MOST_ROWS, class_cell, percent
from warmpot.report.seen import Seen
from warmpot.report.thumbs import opener, samples

__all__ = ["left_out", "weights"]

EXTREMES = 6
"""Samples with most, and with least, weight that are shown."""
SHOWN = 12
"""Samples that are left out which are shown."""
MOST_CLASSES = 8
"""Classes of these that are named."""


def weights(seen: Seen) -> Section | None:
    """Show how much which source samples count; None when nobody knows any more."""
    if not seen.run.n_source:
        return None
    title = "Which source samples count"
    if not seen.weighed.any():
        return Section(
            title, [Text("The weights of the source samples are not known: none of them is a finite number.")]
        )
    if not seen.weighted:
        text = "All source samples count the same"
        method = ": source-only has no weights" if seen.run.setting("method") == "source-only" else ""
        return Section(title, [Text(f"{text}{method}. There is nothing to choose between.")])
    blocks: list[Block] = list(histograms(seen))
    if seen.classes:
        table = _table(seen)
        blocks.append(weights_by_class(seen))
        blocks += [Details("Weights by class", [table])] if len(table.rows) > MOST_OPEN else [table]
    return Section(title, [*blocks, *_extremes(seen)], lead=_lead(seen))


def _lead(seen: Seen) -> str:
    text = f"Weight share: {seen.effective:.0%} of the source carries the weight, in effect."
    capped = float(seen.at_cap.mean())
    if capped > 0.01:
        text += f" {capped:.0%} of the samples have the largest weight there is, the cap."
    if not seen.classes or not seen.absent or not seen.present:
        return text
    away, held = float(seen.weight_shares[seen.absent].sum()), float(seen.source_shares[seen.absent].sum())
    return f"{text} Classes believed absent hold {held:.0%} of the samples and {away:.1%} of the weight."


def _table(seen: Seen) -> Table:
    order = np.argsort(-seen.weight_shares, kind="stable")
    counts = np.bincount(seen.labels, minlength=len(seen.classes))
    capped = np.bincount(seen.labels, seen.at_cap, minlength=len(seen.classes)) / np.maximum(counts, 1)
    rows: list[list[Value]] = [
        [class_cell(seen, int(k)), int(counts[k]), percent(seen.source_shares[k]), percent(seen.weight_shares[k], 2),
         percent(capped[k], 0), percent(seen.shares[k])]
        for k in order[:MOST_ROWS]
    ]  # fmt: skip
    head = ["class", "samples", "share of samples", "share of weight", "at the cap", "predicted share"]
    more = len(order) - len(rows)
    note = f"The {len(rows)} heaviest; {more} more are in source_weights.csv." if more else ""
    return Table(head, rows, "Weights by class", note=note)


def _extremes(seen: Seen) -> Iterator[Block]:
    """Yield the samples of most and of least weight; of equals a draw."""
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(seen.weighed))
    order = shuffled[np.argsort(-seen.relative[shuffled], kind="stable")]
    open_row = opener(seen, "source")

    def cells(row: int) -> list[Cell]:
        weight = float(seen.relative[row])
        return [_label(seen, seen.labels, row), Cell(f"{weight:.2f}", sort=weight)]

    ends = {"Most weight": order[:EXTREMES], "Least weight": order[::-1][:EXTREMES]}
    found = []
    for title, rows in ends.items():
        caption = f"{title}{_equals(seen.relative, rows)}."
        found.append((title, samples(seen, "source", rows.tolist(), open_row, ["label", "weight"], cells, caption)))
    if any(isinstance(block, Table) for _, block in found):
        yield Details("Source samples with most and with least weight", [block for _, block in found])
    else:
        yield from (block for _, block in found)


def _label(seen: Seen, values: Any, row: int) -> Cell:
    return class_cell(seen, int(values[row])) if seen.classes else Cell(f"{values[row]:.4g}", sort=float(values[row]))


def _equals(relative: FloatArray, rows: IntArray) -> str:
    """Say how many samples have the same weight as those shown."""
    last = float(relative[rows[-1]])
    alike = int((np.abs(relative - last) < 1e-3).sum())
    return f" (a draw of {alike:,} that have it)" if alike > len(rows) else ""


def left_out(seen: Seen) -> Section | None:
    """Show the target samples that the plan leaves out; None without a plan."""
    if not seen.planned:
        return None
    title, n = "What the plan leaves out", seen.run.n_target
    lead = _why_left_out(seen)
    if not len(seen.left_out):
        return Section(title, [Text("Every target sample is matched, at least in part.")], lead=lead)
    rows = seen.left_out[:SHOWN].tolist()
    lead += f" {len(seen.left_out):,} of {n:,} samples are left out wholly, or nearly."
    head = ["predicted", *(["confidence"] if seen.classes else []), "matched"]

    def cells(row: int) -> list[Cell]:
        sure = [percent(seen.confidence[row], 0)] if seen.classes else []
        return [_label(seen, seen.predicted, row), *sure, percent(seen.matched[row], 0)]

    more = len(seen.left_out) > len(rows)
    caption = f"Left out, the least sure first{f': {len(rows)} of {len(seen.left_out):,}' if more else ''}."
    blocks: list[Block] = [samples(seen, "target", rows, opener(seen, "target"), head, cells, caption)]
    if seen.classes:
        counts = np.bincount(seen.predicted[seen.left_out], minlength=len(seen.classes))
        used = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k]]
        top, others = used[:MOST_CLASSES], used[MOST_CLASSES:]
        said = [f"{counts[k]:,} samples" if k == top[0] and counts[k] > 1 else f"{counts[k]:,}" for k in top]
        named = ", ".join(f"{class_cell(seen, k).text} ({count})" for k, count in zip(top, said, strict=True))
        many = "classes" if len(others) > 1 else "class"
        rest = f" and {len(others)} more {many} ({counts[others].sum():,} samples in all)" if others else ""
        blocks.append(Text(f"They are predicted as {named}{rest}."))
    return Section(title, blocks, lead=lead)


def _why_left_out(seen: Seen) -> str:
    """Say what the mass alpha forces the plan to do, which says nothing of the samples."""
    mass, said = float(np.nanmean(seen.matched)), seen.run.params.get("alpha")
    if isinstance(said, int | float):
        alpha, how = float(said), "set"
    else:
        lines = [line["alpha"] for line in seen.run.history if line["step"] <= seen.run.step and line.get("alpha")]
        alpha, how = float(lines[-1]) if lines else mass, "from the data" if said == "auto" else "as logged"
    if said is None or alpha >= 1:
        return f"The plan leaves {1 - mass:.0%} of the target's mass out: what costs most to match."
    return (
        f"alpha = {alpha:.2g} ({how}) makes the plan leave {1 - mass:.0%} of the target's mass out, however well the "
        "samples fit. It leaves out those that cost most to match: to be here does not mean to be foreign."
    )
