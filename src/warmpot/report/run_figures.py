"""The figures of a run: predicted classes, weights of the source, training, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Picture
from warmpot.report.seen import Seen
from warmpot.report.style import COLOURS, GRID, INK, MUTED, heat, label, new_figure, series, ticks

__all__ = [
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
    "weights": ("source in effect", {"effective_weights": "share that carries the weight"}),
    "score": ("score", {"score": "by the validator that chooses"}),
}
"""Panels of the training: title, and lines by the names that the engines log; all other numbers are losses."""
NO_LOSS = ("step", "gap", "plan_ok", "mean_cost")


def predicted_classes(seen: Seen) -> Picture:
    """Draw the share of the target predicted as each class; those believed absent in grey."""
    order = np.argsort(-seen.shares, kind="stable")
    order = order[seen.shares[order] > 0][:MOST_BARS]
    figure = new_figure(4.6, 0.9 + 0.27 * len(order))
    axes, believed = figure.add_subplot(), set(seen.present)
    colours = [COLOURS["blue"] if k in believed else COLOURS["grey"] for k in order]
    bars = axes.barh(np.arange(len(order)) + 0.5, 100 * seen.shares[order], height=0.72, color=colours)
    tips = {}
    for place, (k, bar) in enumerate(zip(order, bars, strict=True)):
        bar.set_gid(f"tip-share{place}")
        count = int((seen.predicted == k).sum())
        tips[f"share{place}"] = f"{label(seen.classes[k], 60)}: {count} samples, {seen.shares[k]:.1%}"
        axes.text(100 * seen.shares[k], place + 0.5, f" {seen.shares[k]:.1%}", va="center", fontsize=8.5, color=MUTED)
    ticks(axes.yaxis, [seen.classes[k] for k in order], most=24)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="% of the target samples", xlim=(0, 118 * seen.shares.max()))
    used = int((seen.shares > 0).sum())
    more = f" The {len(order)} largest of {used}." if used > len(order) else ""
    grey = " Grey: stray predictions, of classes believed absent." if any(k not in believed for k in order) else ""
    alt = "Bars: " + ", ".join(f"{label(seen.classes[k])} {seen.shares[k]:.1%}" for k in order)
    return Picture("predicted-classes", figure, alt, f"What the target is predicted to hold.{grey}{more}", tips)


def predicted_values(seen: Seen) -> Picture:
    """Draw the predictions of a regression beside the labels of the source, as it is weighted."""
    figure = new_figure(5.2, 3.0)
    axes = figure.add_subplot()
    parts = [part for part in (seen.predicted, seen.labels) if len(part)]
    low, high = min(part.min() for part in parts), max(part.max() for part in parts)
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    heights = np.histogram(seen.predicted, edges)[0] / max(len(seen.predicted), 1)
    axes.stairs(100 * heights, edges, fill=True, color=COLOURS["blue"], alpha=0.75, label="target, as predicted")
    if len(seen.labels):
        weighted = np.histogram(seen.labels, edges, weights=seen.weights)[0]
        axes.stairs(100 * weighted, edges, color=COLOURS["orange"], linewidth=1.6, label="source labels, as weighted")
    axes.set(xlabel="value", ylabel="% of the samples")
    axes.legend(frameon=False)
    alt = f"Histogram of predictions from {seen.predicted.min():.4g} to {seen.predicted.max():.4g}"
    return Picture("predicted-values", figure, alt, "What is predicted for the target, beside what the source holds.")


def _groups(seen: Seen) -> dict[str, Any]:
    """Masks of the panels: by the target's labels when they are known, else by what is believed of them."""
    everything = np.ones(len(seen.weights), bool)
    if not seen.classes:
        return {"all": everything}
    known = seen.truly_present
    inside = np.isin(seen.labels, seen.present if known is None else known)
    names = ("believed present", "believed absent") if known is None else ("shared", "outlier")
    return {"all": everything, names[0]: inside, names[1]: ~inside}


def histograms(seen: Seen) -> Picture:
    """Draw the paper's histograms of source weights, over the largest: all, shared, outlier classes."""
    groups = _groups(seen)
    figure = new_figure(3.1 * len(groups) + 0.4, 2.7)
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    edges, said = np.linspace(0, 1, BINS + 1), []
    for axes, (name, mask), colour in zip(panels, groups.items(), ("blue", "green", "orange"), strict=False):
        counts = np.histogram(seen.relative[mask], edges)[0]
        axes.stairs(counts, edges, fill=True, color=COLOURS[colour])
        samples, share = int(mask.sum()), float(seen.weights[mask].sum())
        heading = f"{name}: {samples:,} samples" if name == "all" else f"{name}: {100 * share:.2f} % of the weight"
        axes.set_title(heading, fontsize=9.5)
        axes.set(xlabel="weight / largest weight", xlim=(0, 1), ylim=(0, 1.05 * max(counts.max(initial=0), 1)))
        axes.grid(visible=False, axis="x")
        said.append(f"{name}: {samples} samples with {share:.1%} of the weight, {counts[0]} of them in the lowest bin")
    panels[0].set_ylabel("source samples")
    how = " Shared and outlier by target labels, evaluation only." if "outlier" in groups else ""
    caption = f"Weights of the source samples in {BINS} bins.{how}"
    return Picture("weight-histograms", figure, "Histograms of source weights. " + "; ".join(said), caption)


def weights_by_class(seen: Seen) -> Picture:
    """Draw the share of weight of each class beside its share of samples."""
    order = np.argsort(-seen.weight_shares, kind="stable")[:MOST_BARS]
    figure = new_figure(4.6, 1.2 + 0.27 * len(order))
    axes, places, believed = figure.add_subplot(), np.arange(len(order)) + 0.5, set(seen.present)
    colours = [COLOURS["blue"] if k in believed else COLOURS["grey"] for k in order]
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
    caption = f"Bar: share of the weight, blue where the class is believed present. Stroke: share of the samples.{more}"
    alt = "Bars: " + ", ".join(f"{label(seen.classes[k])} {seen.weight_shares[k]:.1%} of the weight" for k in order)
    return Picture("weights-by-class", figure, alt, caption, tips)


def curves(seen: Seen) -> list[Picture]:
    """Draw what was logged in training, with the iterate that is the result marked."""
    lines = [dict(line) for line in seen.run.history]
    for line in lines:
        if line.get("transport") is not None and line.get("alpha"):
            line["per_mass"] = line["transport"] / line["alpha"]
    unit = "round" if seen.run.config["engine"] == "full" else "step"
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
        axes.plot(steps, values, color=series(place), label=name, marker="o" if few else "", markersize=4)
        if few:  # marks of their own, to be asked one by one
            marks = axes.scatter(steps, values, s=16, color=series(place))
            marks.set_gid(f"tip-{panel}{place}")
            tips[f"{panel}{place}"] = [f"{unit} {s}: {name} {v:.4g}" for s, v in points]
        said.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    last = max(points[-1][0] for points in lines.values())
    if seen.run.step != last or seen.run.config["choose"] != "last":
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


def confusion(seen: Seen, counts: IntArray, rows: IntArray, columns: IntArray) -> Picture | None:
    """Draw the confusion matrix of the classes that occur; None when they are too many.

    Parameters
    ----------
    seen : Seen
    counts : (C, C) array
        Samples by true and predicted class.
    rows, columns : array of int
        Classes that occur, and that are predicted.
    """
    if max(len(rows), len(columns)) > MOST_CELLS:
        return None
    part = counts[np.ix_(rows, columns)]
    shares: FloatArray = part / np.maximum(counts[rows].sum(axis=1, keepdims=True), 1)
    side = 0.24 if len(columns) > 12 else 0.4
    figure = new_figure(2.0 + side * len(columns), 1.9 + side * len(rows))
    axes = figure.add_subplot()
    mesh = heat(axes, shares, low=0, high=1)
    mesh.set_gid("tip-cells")
    tips = [
        f"{label(seen.classes[k], 40)} predicted as {label(seen.classes[m], 40)}: {counts[k, m]} ({shares[i, j]:.0%})"
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
