"""The training curves, and both domains in a plane, before and after the network."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Block, Picture, Section, Text
from warmpot.report.run_view import RunView, cost_per_mass
from warmpot.report.sections.parts import chosen_iterate
from warmpot.report.style import COLOURS, INK, MUTED, PAPER, label, new_axes, series
from warmpot.weights.axes import principal_axes, with_signs

__all__ = ["EMBEDDINGS", "embed", "embedding_section", "training_curves", "training_section"]

logger = logging.getLogger(__name__)

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
EMBEDDINGS = ("pca", "tsne")
MAX_POINTS = 1500
"""Points per domain: each has a marker and a text, in two figures, and the page must stay small."""
MAX_COLOURS = 8
SIZES = ((0.0, 3.0), (0.34, 7.0), (0.67, 11.0), (1.01, 16.0))
"""Largest relative weight and area of each size of source markers. SVG stores a marker once per size, so few sizes."""
TRIANGLE_AREA = 15.0
MAX_EXACT = 256
"""Dimensions up to which principal axes are computed exactly."""
ITERATIONS = 5
"""Subspace iterations above that; enough for a picture."""


def training_section(view: RunView) -> Section | None:
    """Plot the log; None if nothing was logged."""
    curves = training_curves(view)
    lead = f"The result is {view.run.unit} {view.run.step}, {chosen_iterate(view.run)}."
    return Section("Training", list(curves), lead=lead) if curves else None


def training_curves(view: RunView) -> list[Picture]:
    """Plot the log of the training, with the final iterate marked."""
    lines = [dict(line) for line in view.run.history]
    for line in lines:
        if (cost := cost_per_mass(line)) is not None:
            line["per_mass"] = cost
    others = {name for _, names in CURVES.values() for name in names} | set(NOT_LOSSES)
    losses = {name: name for line in lines for name in line if name not in others}
    plots = []
    for panel, (title, names) in {"losses": ("losses", losses), **CURVES}.items():
        drawn = {
            text.replace("_", " "): points for name, text in names.items()
            if (points := [(line["step"], line[name]) for line in lines if _finite(line.get(name))])
        }  # fmt: skip
        plots += [_curve(view, panel, title, drawn)] if drawn else []
    return plots


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def _curve(view: RunView, panel: str, title: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Picture:
    figure, axes = new_axes(4.6, 2.5)
    tips, ranges, unit = {}, [], view.run.unit
    few = max(len(points) for points in lines.values()) <= 60
    for index, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, color=series(index), label=name)
        if few:  # few enough for a tip each
            axes.scatter(steps, values, s=16, color=series(index), gid=f"tip-{panel}{index}")
            tips[f"{panel}{index}"] = [f"{unit} {s}: {name} {v:.4g}" for s, v in points]
        ranges.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    last = max(points[-1][0] for points in lines.values())
    if view.run.step != last or view.run.setting("choose") != "last":
        text = f"result: {unit} {view.run.step}"
        axes.axvline(view.run.step, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=text)
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


def embedding_section(view: RunView, how: str) -> Section | None:
    """Plot both domains in a plane by "pca" or "tsne"; None without data."""
    plots = _scatters(view, how)
    if not plots:
        return None
    methods = {
        "pca": "The first two principal components of both domains together.",
        "tsne": "t-SNE of both domains together: close samples are similar; distances between groups mean little.",
    }
    colours = "class of a source sample, predicted class of a target sample" if view.classes else "value"
    sizes = " Larger source samples have a larger training weight." if view.weighted else ""
    blocks: list[Block] = list(plots)
    if len(plots) == 1:
        blocks.append(Text("For images there is only the plot after the network: the inputs are pixels, not features."))
    lead = f"{methods[how]} Colour: {colours}.{sizes} Point at or tap a sample to see which one it is."
    return Section("Source and target in a plane", blocks, lead=lead)


def embed(source: FloatArray, target: FloatArray, how: str, seed: int = 0) -> tuple[FloatArray, list[str]]:
    """Embed both domains together in two dimensions; return the points and the labels of the two axes.

    `how` is "pca", the principal axes of both domains together, or "tsne", initialised with them.

    Examples
    --------
    >>> points, axes = embed(np.zeros((2, 1)), np.ones((3, 1)), "pca")
    >>> points.shape, axes[0]
    ((5, 2), 'axis 1 (100% of the variance)')
    """
    check_choice("embedding", how, EMBEDDINGS)
    both = np.concatenate([source, target])
    both -= both.mean(axis=0, dtype=np.float64)
    total = float(np.vdot(both, both))
    if total == 0.0:
        return np.zeros((len(both), 2)), ["axis 1", "axis 2"]
    projected = both @ _main_axes(both, min(2 if how == "pca" else 50, *both.shape), seed)
    if how == "tsne" and len(both) > 4:
        from sklearn.manifold import TSNE

        perplexity = min(30.0, (len(both) - 1) / 3)
        init = "random"
        if projected.shape[1] > 1:
            init = projected[:, :2] / projected[:, 0].std() * 1e-4  # the scale that scikit-learn uses
        tsne = TSNE(2, perplexity=perplexity, init=init, random_state=seed)
        return np.asarray(tsne.fit_transform(projected)), ["", ""]
    points = np.column_stack([projected[:, :2], np.zeros((len(both), max(2 - projected.shape[1], 0)))])
    shares = (points**2).sum(axis=0) / total
    return points, [f"axis {k + 1} ({100 * shares[k]:.0f}% of the variance)" for k in range(2)]


def _main_axes(centred: FloatArray, count: int, seed: int) -> FloatArray:
    """Return the first principal axes as columns: exact in few dimensions, by subspace iteration in many."""
    if centred.shape[1] <= MAX_EXACT:
        return principal_axes(centred.astype(np.float64, copy=False), count)[1]
    single = centred.astype(np.float32, copy=False)  # a picture needs no more digits
    basis = np.random.default_rng(seed).normal(size=(single.shape[1], count + 8)).astype(np.float32)
    for _ in range(ITERATIONS):
        basis = np.linalg.qr(single.T @ (single @ basis))[0]
    return with_signs(basis @ np.linalg.svd(single @ basis, full_matrices=False)[2][:count].T)


def _scatters(view: RunView, how: str) -> list[Picture]:
    """Draw both domains before and after the network; no pictures without data."""
    source, target, plots = view.source, view.target, []
    if source is None or target is None:
        return []
    shown = [slice(None, None, -(-len(points.rows) // MAX_POINTS)) for points in (source, target)]  # views, not copies
    rows = source.rows[shown[0]], target.rows[shown[1]]
    for name, xs, xt in (("before", source.before, target.before), ("after", source.after, target.after)):
        if xs is not None and xt is not None:
            if how == "tsne":
                logger.info("t-SNE of %d samples, %s the network", sum(map(len, rows)), name)
            plots.append(_scatter(view, name, *rows, *embed(xs[shown[0]], xt[shown[1]], how)))
    return plots


def _colours(view: RunView, rows_s: IntArray, rows_t: IntArray) -> tuple[IntArray, IntArray, list[str]]:
    """Return the colour indices of the source and target points, and the meaning of each colour; the last is "others".

    The most frequently predicted classes have colours; in a regression, the fifths of labels and predictions.
    """
    labels, predicted = view.labels[rows_s], view.predicted[rows_t]
    if view.classes:
        shown = [*view.present, *np.argsort(-view.shares, kind="stable").tolist(), *range(len(view.classes))]
        shown = list(dict.fromkeys(shown))[:MAX_COLOURS]
        colour_of = np.full(len(view.classes), len(shown))
        colour_of[shown] = np.arange(len(shown))
        return colour_of[labels], colour_of[predicted], [*(label(view.classes[k], 20) for k in shown), "others"]
    both = np.concatenate([view.labels, view.predicted])
    edges = np.quantile(both[np.isfinite(both)], [0.2, 0.4, 0.6, 0.8])
    names = [*(f"up to {edge:.3g}" for edge in edges), f"above {edges[-1]:.3g}", "others"]
    return np.searchsorted(edges, labels), np.searchsorted(edges, predicted), names


def _scatter(
    view: RunView, name: str, rows_s: IntArray, rows_t: IntArray, points: FloatArray, axes_names: list[str]
) -> Picture:
    figure, axes = new_axes(4.7, 4.7)
    cs, ct, names = _colours(view, rows_s, rows_t)
    colours = [series(k) for k in range(len(names) - 1)] + [COLOURS["grey"]]
    relative = view.relative_weights[rows_s] if view.weighted else np.ones(len(rows_s))
    size = np.searchsorted([limit for limit, _ in SIZES[:-1]], relative, side="left")
    tips: dict[str, list[str]] = {}

    def draw(group: str, side: str, chosen: IntArray, **style: Any) -> None:
        if len(chosen):
            x, y = points[chosen + (len(rows_s) if side == "target" else 0)].T
            axes.scatter(x, y, **style).set_gid(f"tip-{group}")
            rows = rows_t if side == "target" else rows_s
            tips[group] = [_tip(view, side, int(rows[i])) for i in chosen]

    # Grey first and heavy samples last, so that what matters is on top.
    for k in reversed(range(len(names))):
        for bucket, (_, area) in enumerate(SIZES):
            chosen = np.flatnonzero((cs == k) & (size == bucket))
            draw(f"s{k}-{bucket}", "source", chosen, s=area, color=colours[k], alpha=0.55, linewidths=0)
    for k in reversed(range(len(names))):
        style = {"s": TRIANGLE_AREA, "marker": "^", "color": colours[k], "edgecolors": PAPER, "linewidths": 0.4}
        draw(f"t{k}", "target", np.flatnonzero(ct == k), **style)
    used = [k for k in range(len(names)) if (cs == k).any() or (ct == k).any()]
    handles = [axes.scatter([], [], s=30, marker="s", color=colours[k], label=names[k]) for k in used]
    handles += [axes.scatter([], [], s=22, color=MUTED, label="source"),
                axes.scatter([], [], s=22, marker="^", color=MUTED, label="target")]  # fmt: skip
    longest = max(len(names[k]) for k in used)
    columns = 4 if longest <= 9 else 3 if longest <= 13 else 2
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5, frameon=False)
    axes.set(xticks=[], yticks=[], xlabel=axes_names[0], ylabel=axes_names[1])
    axes.set_title({"before": "before: inputs, as scaled", "after": "after: features of the network"}[name])
    axes.grid(visible=False)
    counts = f"{len(rows_s)} source and {len(rows_t)} target samples"
    subset = len(rows_s) < len(view.weights) or len(rows_t) < len(view.predicted)
    caption = f"A random subset of {counts}." if subset else ""
    alt = f"Scatter plot of {counts} in two dimensions, {name} the network"
    return Picture(f"embedding-{name}", figure, alt, caption, tips)


def _tip(view: RunView, side: str, row: int) -> str:
    name = label(view.name(side, row), 40) if view.name(side, row) else f"{side} {row}"
    value = (view.labels if side == "source" else view.predicted)[row]
    text = label(view.classes[value], 30) if view.classes else f"{value:.4g}"
    if side == "source":
        weight = f", weight {view.relative_weights[row]:.2g}" if view.weighted and view.has_weight[row] else ""
        return f"{name}: {text}{weight}"
    sure = f" ({view.confidence[row]:.0%})" if view.classes and np.isfinite(view.confidence[row]) else ""
    known = view.classes and view.has_plan and np.isfinite(view.matched[row])
    return f"{name}: predicted {text}{sure}" + (f", matched {view.matched[row]:.0%}" if known else "")
