"""How much each source sample counted in training, and which target samples the plan leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from warmpot._run_files import SOURCE_WEIGHTS
from warmpot._tables import ResultTable, TableCell, TableValue
from warmpot.report.page import EVALUATION, Block, Details, Section, Text, make_table
from warmpot.report.run_view import RunView
from warmpot.report.sections import parts
from warmpot.report.style import COLOURS, INK, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_class_weights", "draw_weights", "left_out_section", "weights_section"]

BINS = 50
"""As in the paper's histograms."""
MAX_EXTREME = 6
"""Samples shown with the most, and with the least, weight."""
MAX_LEFT_OUT = 12
"""Samples shown that the plan leaves out."""
MAX_CLASSES = 8
"""Classes named of the samples that the plan leaves out."""


def weights_section(view: RunView) -> Section | None:
    """Show the training weights, and the plan weights where they exist; None without the file of weights."""
    if not view.run.n_source:
        return None
    title = "Which source samples count"
    if not view.has_weight.any():
        return Section(title, [Text("The training weights are unknown: none of them is a finite number.")])
    if not view.weighted:
        method = view.run.method
        reason = f": {view.run.setting('method')} does not weight them" if method and not method.uses_target else ""
        return Section(title, [Text(f"All source samples have the same training weight{reason}.")])
    blocks: list[Block] = [parts.picture("weights-histogram", lambda axes: draw_weights(axes, view), 3.1)]
    if view.classes:
        height = 1.0 + 0.27 * min(len(view.classes), parts.MAX_BARS)
        blocks += [parts.picture("weights-by-class", lambda axes: draw_class_weights(axes, view), height)]
        blocks += [parts.fold_if_long(_class_table(view), "Weights by class")]
    return Section(title, [*blocks, *_extreme_samples(view)], lead=_lead(view))


def draw_weights(axes: Axes, view: RunView) -> parts.Drawn:
    """Draw the paper's histograms of training weights relative to the largest, shared and outlier classes stacked."""
    groups, note = {"all samples": view.has_weight}, ""
    if view.classes:  # by the target labels if they are known, else by the estimate
        known = view.truly_present
        inside = np.isin(view.labels, view.present if known is None else known)
        names = ("estimated present", "estimated absent") if known is None else ("shared", "outlier")
        groups = {names[0]: view.has_weight & inside, names[1]: view.has_weight & ~inside}
        note = "" if known is None else f" Shared and outlier classes: {EVALUATION}."
    edges = np.linspace(0, 1, BINS + 1)
    floor, texts = np.zeros(BINS), []
    for (name, mask), colour in zip(groups.items(), ("blue", "orange"), strict=False):
        counts = np.histogram(view.relative_weights[mask], edges)[0]
        share = 100 * float(view.weights[mask].sum())
        text = f"{name}: {share:.1f}% of the weight"
        axes.stairs(floor + counts, edges, baseline=floor, fill=True, color=COLOURS[colour], label=text)
        floor = floor + counts
        texts.append(
            f"{name}: {int(mask.sum()):,} samples, {share:.2f}% of the weight, {counts[0]:,} samples in the lowest bin"
        )
    axes.set(
        xlabel="training weight / largest", ylabel="source samples", xlim=(0, 1), ylim=(0, 1.05 * max(floor.max(), 1))
    )
    axes.grid(visible=False, axis="x")
    alt = f"Stacked histogram of training weights; {'; '.join(texts)}"
    return parts.Drawn(alt, f"Training weights in {BINS} bins.{note}")


def draw_class_weights(axes: Axes, view: RunView) -> parts.Drawn:
    """Draw the share of the training weight of each class, next to its share of the samples."""
    order = np.argsort(-view.weight_shares, kind="stable")[: parts.MAX_BARS]
    texts = [f"{view.weight_shares[k]:.1%} of the training weight" for k in order]
    drawn = parts.class_bars(axes, view, "training weight", view.weight_shares, order, texts)
    places = np.arange(len(order)) + 0.5
    marks = axes.scatter(100 * view.source_shares[order], places, s=70, marker="|", color=INK, linewidths=2, zorder=3)
    marks.set_gid("tip-samples")
    axes.set(xlabel="% of the training weight", xlim=(0, None))
    shares = [f"{label(view.classes[k], 60)}: {view.source_shares[k]:.1%} of the source samples" for k in order]
    caption = "Bar: share of the training weight, blue if the class is estimated present. Line: share of the samples."
    caption += drawn.caption
    if len(view.classes) > len(order):
        caption += f" The {len(order)} classes with the most weight, of {len(view.classes)}."
    return drawn._replace(caption=caption, tips={**(drawn.tips or {}), "samples": shares})


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
        text += " Plan weights are the row sums of the plan at the final iterate; "
        text += f"they sum to alpha, here {np.nansum(plan):.3g}."
    return text


def _class_table(view: RunView) -> ResultTable:
    order, plan, percent = np.argsort(-view.weight_shares, kind="stable"), view.run.plan_weights, parts.percent
    plan_shares = None if plan is None else view.weight_shares_of(np.nan_to_num(plan) / (np.nansum(plan) or 1.0))
    rows: list[list[TableValue]] = []
    for k in order[: parts.MAX_ROWS].tolist():
        planned = [] if plan_shares is None else [percent(plan_shares[k], 2)]
        shares = [percent(view.source_shares[k]), percent(view.weight_shares[k], 2), *planned]
        shares += [percent(view.capped_shares[k], 0), percent(view.shares[k])]
        rows.append([parts.class_cell(view, k), int(view.source_counts[k]), *shares])
    head = ["class", "samples", "share of samples", "share of training weight"]
    head += [*([] if plan_shares is None else ["share of plan weight"]), "at the cap", "predicted share"]
    more = f"; {len(order) - len(rows)} more are in {SOURCE_WEIGHTS}."
    note = f"The {len(rows)} classes with the most training weight{more}" if len(order) > len(rows) else ""
    return make_table(head, rows, "Weights by class", note)


def _extreme_samples(view: RunView) -> Iterator[Block]:
    """Yield the samples with the most and the least training weight, in random order among equal weights."""
    shuffled = np.random.default_rng(0).permutation(np.flatnonzero(view.has_weight))
    order = shuffled[np.argsort(-view.relative_weights[shuffled], kind="stable")]
    open_row = parts.opener(view, "source")

    def cells(row: int) -> list[TableCell]:
        weight = float(view.relative_weights[row])
        return [parts.value_cell(view, view.labels, row), TableCell(f"{weight:.2f}", value=weight)]

    blocks = []
    for title, rows in {"Most": order[:MAX_EXTREME], "Least": order[::-1][:MAX_EXTREME]}.items():
        equal = int((np.abs(view.relative_weights - view.relative_weights[rows[-1]]) < 1e-3).sum())
        ties = f" ({len(rows)} of {equal:,} with this weight, at random)" if equal > len(rows) else ""
        caption = f"{title} training weight, relative to the largest{ties}."
        blocks.append(parts.samples(view, "source", rows.tolist(), open_row, ["label", "weight"], cells, caption))
    if any(isinstance(block, ResultTable) for block in blocks):
        yield Details("Source samples with the most and the least weight", blocks)
    else:
        yield from blocks


def left_out_section(view: RunView) -> Section | None:
    """Show the target samples that the plan leaves out; None without a plan."""
    if not view.has_plan:
        return None
    title, lead, left_out = "What the plan leaves out", _why_left_out(view), view.left_out
    if not len(left_out):
        return Section(title, [Text("Every target sample is matched, at least in part.")], lead=lead)
    rows = left_out[:MAX_LEFT_OUT].tolist()
    lead += f" {len(left_out):,} of {view.run.n_target:,} samples are left out, completely or nearly."

    def cells(row: int) -> list[TableCell]:
        confidence = [parts.percent(view.confidence[row], 0)] if view.classes else []
        return [parts.value_cell(view, view.predicted, row), *confidence, parts.percent(view.matched[row], 0)]

    head = ["predicted", *(["confidence"] if view.classes else []), "matched"]
    part = f": {len(rows)} of {len(left_out):,}" if len(left_out) > len(rows) else ""
    caption = f"Left out, the least confident first{part}."
    blocks: list[Block] = [parts.samples(view, "target", rows, parts.opener(view, "target"), head, cells, caption)]
    blocks += [_left_out_classes(view)] if view.classes else []
    return Section(title, blocks, lead=lead)


def _left_out_classes(view: RunView) -> Text:
    counts = np.bincount(view.predicted[view.left_out], minlength=len(view.classes))
    used = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k]]
    top, others = used[:MAX_CLASSES], used[MAX_CLASSES:]
    named = ", ".join(
        f"{parts.class_cell(view, k).text} ({counts[k]:,}{' samples' if k == top[0] and counts[k] > 1 else ''})"
        for k in top
    )
    classes = "classes" if len(others) > 1 else "class"
    total = int(counts[others].sum())
    samples = f"{total:,} sample{'s' * (total != 1)} in total"
    more = f" and {len(others)} more {classes} ({samples})" if others else ""
    return Text(f"They are predicted as {named}{more}.")


def _why_left_out(view: RunView) -> str:
    """Explain that the mass alpha makes the plan leave samples out, whatever the samples are."""
    mass, (alpha, fixed) = float(np.nanmean(view.matched)), view.run_parameter("alpha")
    if f"{1 - mass:.0%}" == "0%":
        return "The plan matches all of the target's mass, or nearly all."
    if view.run.params.get("alpha") is None or alpha is None or alpha >= 1:
        return f"The plan leaves out {1 - mass:.0%} of the target's mass: the samples that cost most to match."
    cause = f"alpha = {alpha:.2g} (set)" if fixed else f"alpha = {mass:.2g} (estimated)"
    text = f"{cause} makes the plan leave out {1 - mass:.0%} of the "
    text += "target's mass, however well the samples fit. It leaves out those that cost most to match, which may still "
    return f"{text}belong to a class of the source."
