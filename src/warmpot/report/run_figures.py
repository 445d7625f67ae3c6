"""The figures of a run: predicted classes, weights of the source, training, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Picture
from warmpot.report.run_warnings import suspects
from warmpot.report.seen import Seen
from warmpot.report.style import COLOURS, GRID, INK, MUTED, heat, label, new_figure, series, ticks

__all__ = [
    "MOST_CELLS",
    "confusion",
    "curves",
    "histograms",
    "predicted_classes",
    "predicted_values",
    "values_against",
    "weights_by_class",
]

MOST_BARS = 15
BINS = 50
"""As in the paper's histograms."""
MOST_MARKS = 1000
MOST_CELLS = 40
"""Rows and columns of a confusion matrix that is drawn."""
CURVES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "transport": (
        "transport value",
        {"transport": "cost of the plan", "per_mass": "per unit of mass", "bound": "bound that is descended"},
    ),
    "mass": ("mass", {"alpha": "share of the target matched", "beta": "share of the source", "rho": "rho"}),
    "effective": ("classes in effect", {"effective_classes": "classes in effect"}),
    "weights": ("weight share", {"effective_weights": "of the source, in effect"}),
    "score": ("score", {"score": "by the validator that chooses"}),
}
"""Panels of the training: title, and lines by the names that the engines log; all other numbers are losses."""
NO_LOSS = ("step", "gap", "plan_ok", "mean_cost")


def predicted_classes(seen: Seen) -> Picture:
    """Draw the share of the target predicted as each class; those believed absent in grey."""
    order = np.argsort(-seen.shares, kind="stable")
    order = order[seen.shares[order] > 0][:MOST_BARS]
    figure = new_figure(4.6, 0.9 + 0.27 * len(order))
    axes, (colours, said) = figure.add_subplot(), _tones(seen, order)
    bars = axes.barh(np.arange(len(order)) + 0.5, 100 * seen.shares[order], height=0.72, color=colours)
    tips = {}
    for place, (k, bar) in enumerate(zip(order, bars, strict=True)):
        bar.set_gid(f"tip-share{place}")
        tips[f"share{place}"] = f"{label(seen.classes[k], 60)}: {seen.counts[k]:,} samples, {seen.shares[k]:.1%}"
        axes.text(100 * seen.shares[k], place + 0.5, f" {seen.shares[k]:.1%}", va="center", fontsize=8.5, color=MUTED)
    ticks(axes.yaxis, [seen.classes[k] for k in order], most=24)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="% of the target samples", xlim=(0, 118 * seen.shares.max()))
    used = int((seen.shares > 0).sum())
    more = f" The {len(order)} largest of {used}." if used > len(order) else ""
    alt = "Share of the target: " + ", ".join(f"{label(seen.classes[k])} ({seen.shares[k]:.1%})" for k in order)
    return Picture("predicted-classes", figure, alt, f"What the target is predicted to hold.{said}{more}", tips)


def _tones(seen: Seen, order: IntArray) -> tuple[list[str], str]:
    """Return the colours of classes by what is believed of them, and what those beside blue mean."""
    believed, doubtful = set(seen.present), suspects(seen)
    tones = ["orange" if k in doubtful else "blue" if k in believed else "grey" for k in order.tolist()]
    words = {"orange": "doubtful, see the warnings", "grey": "believed absent"}
    said = "".join(f" {tone.capitalize()}: {text}." for tone, text in words.items() if tone in tones)
    return [COLOURS[tone] for tone in tones], said


def predicted_values(seen: Seen) -> Picture:
    """Draw the predictions of a regression beside the labels of the source, as it is weighted."""
    figure = new_figure(5.2, 3.0)
    axes = figure.add_subplot()
    parts = [part[np.isfinite(part)] for part in (seen.predicted, seen.labels)]
    parts = [part for part in parts if len(part)]
    low, high = min(part.min() for part in parts), max(part.max() for part in parts)
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    heights = np.histogram(seen.predicted, edges)[0] / max(len(seen.predicted), 1)
    axes.stairs(100 * heights, edges, fill=True, color=COLOURS["blue"], alpha=0.75, label="target, as predicted")
    if len(seen.labels):
        weighted = np.histogram(seen.labels, edges, weights=seen.weights)[0]
        axes.stairs(100 * weighted, edges, color=COLOURS["orange"], linewidth=1.6, label="source labels, as weighted")
    axes.set(xlabel="value", ylabel="% of the samples")
    axes.legend(frameon=False)
    alt = f"Histogram of predictions from {np.nanmin(seen.predicted):.4g} to {np.nanmax(seen.predicted):.4g}"
    return Picture("predicted-values", figure, alt, "What is predicted for the target, beside what the source holds.")


def _groups(seen: Seen) -> dict[str, Any]:
    """Masks of the panels: by the target's labels when they are known, else by what is believed of them."""
    everything = seen.weighed
    if not seen.classes:
        return {"all": everything}
    known = seen.truly_present
    inside = np.isin(seen.labels, seen.present if known is None else known)
    names = ("believed present", "believed absent") if known is None else ("shared", "outlier")
    return {"all": everything, names[0]: everything & inside, names[1]: everything & ~inside}


def histograms(seen: Seen) -> list[Picture]:
    """Draw the paper's histograms of source weights, over the largest: all, shared, outlier classes."""
    groups, edges, found = _groups(seen), np.linspace(0, 1, BINS + 1), []
    for (name, mask), colour in zip(groups.items(), ("blue", "green", "orange"), strict=False):
        figure = new_figure(4.6, 2.5)
        axes = figure.add_subplot()
        counts = np.histogram(seen.relative[mask], edges)[0]
        axes.stairs(counts, edges, fill=True, color=COLOURS[colour])
        samples, share = int(mask.sum()), float(seen.weights[mask].sum())
        heading = f"{name}: {samples:,} samples" if name == "all" else f"{name}: {100 * share:.2f}% of the weight"
        axes.set_title(heading, fontsize=9.5)
        axes.set(xlabel="weight / largest weight", ylabel="source samples", xlim=(0, 1),
                 ylim=(0, 1.05 * max(counts.max(initial=0), 1)))  # fmt: skip
        axes.grid(visible=False, axis="x")
        alt = f"Histogram of source weights, {name}: {samples} samples with {share:.1%} of the weight"
        how = {"all": f"In {BINS} bins.", "outlier": "By target labels, evaluation only."}
        how["shared"] = how["outlier"]
        alt += f", {counts[0]} of them in the lowest bin"
        found.append(Picture(f"weights-{name.replace(' ', '-')}", figure, alt, how.get(name, "")))
    return found


def weights_by_class(seen: Seen) -> Picture:
    """Draw the share of weight of each class beside its share of samples."""
    order = np.argsort(-seen.weight_shares, kind="stable")[:MOST_BARS]
    figure = new_figure(4.6, 1.2 + 0.27 * len(order))
    axes, places, (colours, said) = figure.add_subplot(), np.arange(len(order)) + 0.5, _tones(seen, order)
    bars = axes.barh(places, 100 * seen.weight_shares[order], height=0.72, color=colours)
    marks = axes.scatter(100 * seen.source_shares[order], places, s=70, marker="|", color=INK, linewidths=2, zorder=3)
    marks.set_gid("tip-samples")
    tips: dict[str, str | Sequence[str]] = {
        "samples": [f"{label(seen.classes[k], 60)}: {seen.source_shares[k]:.1%} of the source samples" for k in order]
    }
    for place, (k, bar) in enumerate(zip(order, bars, strict=True)):
        bar.set_gid(f"tip-weight{place}")
        tips[f"weight{place}"] = f"{label(seen.classes[k], 60)}: {seen.weight_shares[k]:.1%} of the weight"
    ticks(axes.yaxis, [seen.classes[k] for k in order], most=24)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="% of the source weight", xlim=(0, None))
    more = f" The {len(order)} heaviest of {len(seen.classes)} classes." if len(seen.classes) > len(order) else ""
    caption = "Bar: share of the weight, blue where the class is believed present. Stroke: share of the samples."
    caption += said + more
    alt = "Share of the weight: " + ", ".join(f"{label(seen.classes[k])} ({seen.weight_shares[k]:.1%})" for k in order)
    return Picture("weights-by-class", figure, alt, caption, tips)


def curves(seen: Seen) -> list[Picture]:
    """Draw what was logged in training, with the iterate that is the result marked."""
    lines = [dict(line) for line in seen.run.history]
    for line in lines:
        if line.get("transport") is not None and line.get("alpha"):
            line["per_mass"] = line["transport"] / line["alpha"]
    unit = seen.run.unit
    others = {name for _, names in CURVES.values() for name in names} | set(NO_LOSS)
    losses = dict.fromkeys(name for line in lines for name in line if name not in others)
    found = []
    for panel, (title, names) in {"losses": ("losses", {name: name for name in losses}), **CURVES}.items():
        drawn = {name: [(line["step"], line[name]) for line in lines if _finite(line.get(name))] for name in names}
        drawn = {name: points for name, points in drawn.items() if points}
        if drawn:
            titled = {names[name].replace("_", " "): points for name, points in drawn.items()}
            found.append(_curve(panel, title, titled, unit, seen))
    return found


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _curve(panel: str, title: str, lines: Mapping[str, Sequence[tuple[int, float]]], unit: str, seen: Seen) -> Picture:
    figure = new_figure(4.6, 2.5)
    axes, tips, said = figure.add_subplot(), {}, []
    few = max(len(points) for points in lines.values()) <= 60
    for place, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, color=series(place), label=name)
        if few:  # marks of their own, to be asked one by one
            marks = axes.scatter(steps, values, s=16, color=series(place))
            marks.set_gid(f"tip-{panel}{place}")
            tips[f"{panel}{place}"] = [f"{unit} {s}: {name} {v:.4g}" for s, v in points]
        said.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    last = max(points[-1][0] for points in lines.values())
    if seen.run.step != last or seen.run.setting("choose") != "last":
        axes.axvline(
            seen.run.step, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"result: {unit} {seen.run.step}"
        )
    every = [value for points in lines.values() for _, value in points]
    if min(every) >= 0 and panel != "score":
        axes.set_ylim(0, 1.08 * max(every) or 1.0)
    axes.set(xlabel=unit, title=title)
    axes.locator_params(axis="x", integer=True)
    handles = axes.get_legend_handles_labels()[0]
    if len(handles) > 1:
        axes.legend(fontsize=8, frameon=False)
    elif next(iter(lines)) != title:
        axes.set_title(f"{title}: {next(iter(lines))}", fontsize=9.5)
    return Picture(f"training-{panel}", figure, f"{title}: " + "; ".join(said), tips=tips or None)


def values_against(seen: Seen) -> Picture:
    """Draw predicted against true numbers."""
    assert seen.truth is not None
    figure = new_figure(4.6, 4.2)
    axes, rows = figure.add_subplot(), np.random.default_rng(0).permutation(len(seen.predicted))[:MOST_MARKS]
    marks = axes.scatter(seen.truth[rows], seen.predicted[rows], s=14, color=COLOURS["blue"], alpha=0.6, linewidths=0)
    marks.set_gid("tip-values")
    tips = [f"target {k}: predicted {seen.predicted[k]:.4g}, true {seen.truth[k]:.4g}" for k in rows.tolist()]
    ends = [float(seen.truth.min()), float(seen.truth.max())]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true", ylabel="predicted")
    alt = "Scatter plot of predicted against true values; on the dashed line they agree"
    return Picture("values", figure, alt, "On the dashed line both agree.", {"values": tips})


def confusion(seen: Seen, part: IntArray, rows: IntArray, columns: IntArray) -> Picture:
    """Draw the confusion matrix of the classes that occur, at most `MOST_CELLS`.

    Parameters
    ----------
    seen : Seen
    part : (rows, columns) array
        Samples by true and predicted class.
    rows, columns : array of int
        Classes that occur, and that are predicted.
    """
    shares: FloatArray = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    side = 0.24 if len(columns) > 12 else 0.4
    figure = new_figure(2.0 + side * len(columns), 1.9 + side * len(rows))
    axes = figure.add_subplot()
    mesh = heat(axes, shares, low=0, high=1)
    mesh.set_gid("tip-cells")
    tips = [
        f"{label(seen.classes[k], 40)} predicted as {label(seen.classes[m], 40)}: {part[i, j]} ({shares[i, j]:.0%})"
        for i, k in enumerate(rows) for j, m in enumerate(columns)
    ]  # fmt: skip
    for i, j in np.argwhere(part > 0) if len(columns) <= 25 else ():
        axes.text(j + 0.5, i + 0.5, str(part[i, j]), ha="center", va="center", fontsize=7 if len(columns) > 12 else 8.5)
    ticks(axes.yaxis, [seen.classes[k] for k in rows], most=20)
    ticks(axes.xaxis, [seen.classes[k] for k in columns], most=20)
    long = max(len(label(seen.classes[k], 20)) for k in columns)
    axes.tick_params(axis="x", rotation=90 if long > (4 if len(columns) <= 12 else 2) else 0)
    axes.set(xlabel="predicted", ylabel="true")
    axes.hlines(np.arange(1, len(rows)), 0, len(columns), color=GRID, linewidth=0.4)
    alt = f"Confusion matrix of {len(rows)} true and {len(columns)} predicted classes; the table below has the numbers"
    return Picture("confusion", figure, alt, "Samples by true and by predicted class; tint: share of the row.",
                   {"cells": tips})  # fmt: skip
