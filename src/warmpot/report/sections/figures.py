"""The figures of a run: predicted classes, weights of the source, training, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Picture
from warmpot.report.run_view import RunView, cost_per_mass
from warmpot.report.sections.warnings import suspicious_classes
from warmpot.report.style import COLOURS, GRID, INK, MUTED, heat, label, new_figure, series, ticks

__all__ = [
    "MOST_CELLS",
    "confusion_matrix",
    "predicted_classes",
    "predicted_values",
    "training_curves",
    "values_scatter",
    "weight_histograms",
    "weights_by_class",
]

MOST_BARS = 15
BINS = 50
"""As in the paper's histograms."""
MOST_MARKS = 1000
MOST_CELLS = 40
"""Largest number of rows and columns of a confusion matrix that is plotted."""
CURVES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "transport": (
        "transport value",
        {"transport": "cost of the plan", "per_mass": "cost per unit of mass", "bound": "bound that is minimised"},
    ),
    "mass": ("mass", {"alpha": "alpha: share of the target", "beta": "beta: share of the source", "rho": "rho"}),
    "effective": ("effective classes", {"effective_classes": "effective classes"}),
    "weights": ("effective share of the source", {"effective_weights": "effective share of the source"}),
    "score": ("score", {"score": "of the validator that chooses"}),
}
"""Panels of the training: title, and names of lines by their names in the log; other numbers are losses."""
NOT_LOSSES = ("step", "gap", "plan_ok", "mean_cost")


def predicted_classes(view: RunView) -> Picture:
    """Plot the share of the target predicted as each class; classes estimated absent are grey."""
    order = np.argsort(-view.shares, kind="stable")
    order = order[view.shares[order] > 0][:MOST_BARS]
    figure = new_figure(4.6, 0.9 + 0.27 * len(order))
    axes, (colours, legend) = figure.add_subplot(), _class_colours(view, order)
    bars = axes.barh(np.arange(len(order)) + 0.5, 100 * view.shares[order], height=0.72, color=colours)
    tips = {}
    for index, (k, bar) in enumerate(zip(order, bars, strict=True)):
        bar.set_gid(f"tip-share{index}")
        tips[f"share{index}"] = f"{label(view.classes[k], 60)}: {view.counts[k]:,} samples, {view.shares[k]:.1%}"
        axes.text(100 * view.shares[k], index + 0.5, f" {view.shares[k]:.1%}", va="center", fontsize=8.5, color=MUTED)
    ticks(axes.yaxis, [view.classes[k] for k in order], most=24)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="% of the target samples", xlim=(0, 118 * view.shares.max()))
    used = int((view.shares > 0).sum())
    more = f" The {len(order)} largest of {used}." if used > len(order) else ""
    alt = "Share of the target: " + ", ".join(f"{label(view.classes[k])} ({view.shares[k]:.1%})" for k in order)
    return Picture("predicted-classes", figure, alt, f"Predicted content of the target.{legend}{more}", tips)


def _class_colours(view: RunView, order: IntArray) -> tuple[list[str], str]:
    """Return the colours of classes by whether they are estimated present, and the meaning of orange and grey."""
    present, suspects = set(view.present), suspicious_classes(view)
    tones = ["orange" if k in suspects else "blue" if k in present else "grey" for k in order.tolist()]
    meanings = {"orange": "doubtful, see the warnings", "grey": "estimated absent"}
    legend = "".join(f" {tone.capitalize()}: {text}." for tone, text in meanings.items() if tone in tones)
    return [COLOURS[tone] for tone in tones], legend


def predicted_values(view: RunView) -> Picture:
    """Plot the predictions of a regression next to the weighted source labels."""
    figure = new_figure(5.2, 3.0)
    axes = figure.add_subplot()
    parts = [part[np.isfinite(part)] for part in (view.predicted, view.labels)]
    parts = [part for part in parts if len(part)]
    low, high = min(part.min() for part in parts), max(part.max() for part in parts)
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


def _groups(view: RunView) -> dict[str, Any]:
    """Return a mask of source samples per panel, by the target labels if they are known, else by the estimate."""
    everything = view.has_weight
    if not view.classes:
        return {"all": everything}
    known = view.truly_present
    inside = np.isin(view.labels, view.present if known is None else known)
    names = ("estimated present", "estimated absent") if known is None else ("shared", "outlier")
    return {"all": everything, names[0]: everything & inside, names[1]: everything & ~inside}


def weight_histograms(view: RunView) -> list[Picture]:
    """Plot the paper's histograms of training weights relative to the largest: all, shared, outlier classes."""
    groups, edges, plots = _groups(view), np.linspace(0, 1, BINS + 1), []
    for (name, mask), colour in zip(groups.items(), ("blue", "green", "orange"), strict=False):
        figure = new_figure(4.6, 2.5)
        axes = figure.add_subplot()
        counts = np.histogram(view.relative_weights[mask], edges)[0]
        axes.stairs(counts, edges, fill=True, color=COLOURS[colour])
        samples, share = int(mask.sum()), float(view.weights[mask].sum())
        heading = f"{name}: {samples:,} samples" if name == "all" else f"{name}: {100 * share:.2f}% of the weight"
        axes.set_title(heading, fontsize=9.5)
        axes.set(xlabel="training weight / largest", ylabel="source samples", xlim=(0, 1),
                 ylim=(0, 1.05 * max(counts.max(initial=0), 1)))  # fmt: skip
        axes.grid(visible=False, axis="x")
        alt = f"Histogram of training weights, {name}: {samples} samples with {share:.1%} of the weight"
        how = {"all": f"In {BINS} bins.", "outlier": "From target labels, for evaluation only."}
        how["shared"] = how["outlier"]
        alt += f", {counts[0]} of them in the lowest bin"
        plots.append(Picture(f"weights-{name.replace(' ', '-')}", figure, alt, how.get(name, "")))
    return plots


def weights_by_class(view: RunView) -> Picture:
    """Plot the share of each class in the training weight and in the samples."""
    order = np.argsort(-view.weight_shares, kind="stable")[:MOST_BARS]
    figure = new_figure(4.6, 1.2 + 0.27 * len(order))
    axes, places, (colours, legend) = figure.add_subplot(), np.arange(len(order)) + 0.5, _class_colours(view, order)
    bars = axes.barh(places, 100 * view.weight_shares[order], height=0.72, color=colours)
    marks = axes.scatter(100 * view.source_shares[order], places, s=70, marker="|", color=INK, linewidths=2, zorder=3)
    marks.set_gid("tip-samples")
    tips: dict[str, str | Sequence[str]] = {
        "samples": [f"{label(view.classes[k], 60)}: {view.source_shares[k]:.1%} of the source samples" for k in order]
    }
    for index, (k, bar) in enumerate(zip(order, bars, strict=True)):
        bar.set_gid(f"tip-weight{index}")
        tips[f"weight{index}"] = f"{label(view.classes[k], 60)}: {view.weight_shares[k]:.1%} of the training weight"
    ticks(axes.yaxis, [view.classes[k] for k in order], most=24)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="% of the training weight", xlim=(0, None))
    more = (
        f" The {len(order)} classes with the most weight, of {len(view.classes)}."
        if len(view.classes) > len(order)
        else ""
    )
    caption = "Bar: share of the training weight, blue if the class is estimated present. Line: share of the samples."
    caption += legend + more
    alt = "Share of the training weight: " + ", ".join(
        f"{label(view.classes[k])} ({view.weight_shares[k]:.1%})" for k in order
    )
    return Picture("weights-by-class", figure, alt, caption, tips)


def training_curves(view: RunView) -> list[Picture]:
    """Plot the log of the training, with the final iterate marked."""
    lines = [dict(line) for line in view.run.history]
    for line in lines:
        if (cost := cost_per_mass(line)) is not None:
            line["per_mass"] = cost
    unit = view.run.unit
    others = {name for _, names in CURVES.values() for name in names} | set(NOT_LOSSES)
    losses = dict.fromkeys(name for line in lines for name in line if name not in others)
    plots = []
    for panel, (title, names) in {"losses": ("losses", {name: name for name in losses}), **CURVES}.items():
        drawn = {name: [(line["step"], line[name]) for line in lines if _finite(line.get(name))] for name in names}
        drawn = {name: points for name, points in drawn.items() if points}
        if drawn:
            titled = {names[name].replace("_", " "): points for name, points in drawn.items()}
            plots.append(_curve(panel, title, titled, unit, view))
    return plots


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _curve(
    panel: str, title: str, lines: Mapping[str, Sequence[tuple[int, float]]], unit: str, view: RunView
) -> Picture:
    figure = new_figure(4.6, 2.5)
    axes, tips, ranges = figure.add_subplot(), {}, []
    few = max(len(points) for points in lines.values()) <= 60
    for index, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, color=series(index), label=name)
        if few:  # few enough for a tip each
            marks = axes.scatter(steps, values, s=16, color=series(index))
            marks.set_gid(f"tip-{panel}{index}")
            tips[f"{panel}{index}"] = [f"{unit} {s}: {name} {v:.4g}" for s, v in points]
        ranges.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    last = max(points[-1][0] for points in lines.values())
    if view.run.step != last or view.run.setting("choose") != "last":
        axes.axvline(
            view.run.step, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"result: {unit} {view.run.step}"
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
    return Picture(f"training-{panel}", figure, f"{title}: " + "; ".join(ranges), tips=tips or None)


def values_scatter(view: RunView) -> Picture:
    """Plot predicted against true values."""
    assert view.truth is not None
    truth = view.truth.yt
    figure = new_figure(4.6, 4.2)
    axes, rows = figure.add_subplot(), np.random.default_rng(0).permutation(len(view.predicted))[:MOST_MARKS]
    marks = axes.scatter(truth[rows], view.predicted[rows], s=14, color=COLOURS["blue"], alpha=0.6, linewidths=0)
    marks.set_gid("tip-values")
    tips = [f"target {k}: predicted {view.predicted[k]:.4g}, true {truth[k]:.4g}" for k in rows.tolist()]
    ends = [float(truth.min()), float(truth.max())]
    axes.plot(ends, ends, color=INK, linewidth=1, linestyle=(0, (4, 3)))
    axes.set(xlabel="true", ylabel="predicted")
    alt = "Scatter plot of predicted against true values; on the dashed line they agree"
    return Picture("values", figure, alt, "On the dashed line, predicted and true values agree.", {"values": tips})


def confusion_matrix(view: RunView, part: IntArray, rows: IntArray, columns: IntArray) -> Picture:
    """Plot the confusion matrix of the classes that occur, at most `MOST_CELLS`.

    Parameters
    ----------
    view : RunView
    part : (rows, columns) array
        Samples by true and predicted class.
    rows, columns : array of int
        Classes that occur, and classes that are predicted.
    """
    shares: FloatArray = part / np.maximum(part.sum(axis=1, keepdims=True), 1)
    side = 0.24 if len(columns) > 12 else 0.4
    figure = new_figure(2.0 + side * len(columns), 1.9 + side * len(rows))
    axes = figure.add_subplot()
    mesh = heat(axes, shares, low=0, high=1)
    mesh.set_gid("tip-cells")
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
