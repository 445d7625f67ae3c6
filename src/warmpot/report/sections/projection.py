"""Both domains in a plane, before and after the network."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Block, Picture, Section, Text
from warmpot.report.run_view import RunView
from warmpot.report.sections.parts import Drawn
from warmpot.report.style import COLOURS, MUTED, PAPER, WIDTH, label, legend, new_axes, series
from warmpot.weights.axes import principal_axes, with_signs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["EMBEDDINGS", "Projection", "draw_projection", "embed", "project", "projection_section"]

logger = logging.getLogger(__name__)

EMBEDDINGS = ("auto", "pca", "tsne")
MIN_VARIANCE = 0.2
"""Share of the variance below which "auto" replaces two principal axes by t-SNE."""
MAX_POINTS = 1500
"""Points per domain: each has a marker and a text, in two figures, and the page must stay small."""
MAX_AUTO, AUTO_ITERATIONS = 400, 500
"""Points per domain, and iterations, of a t-SNE that nobody asked for: it takes a few seconds."""
MAX_COLOURS = 8
SIZES = ((0.0, 3.0), (0.34, 7.0), (0.67, 11.0), (1.01, 16.0))
"""Largest relative weight and area of each size of source markers. SVG stores a marker once per size, so few sizes."""
TRIANGLE_AREA = 15.0
MAX_EXACT = 256
"""Dimensions up to which principal axes are computed exactly."""
ITERATIONS = 5
"""Subspace iterations above that; enough for a picture."""
STAGES = {"before": "before: inputs, as scaled", "after": "after: features of the network"}


class Projection(NamedTuple):
    """Samples of both domains in a plane: their rows, the points (the source first), the axes, and how ("pca" ...)."""

    rows_s: IntArray
    rows_t: IntArray
    points: FloatArray
    axes: list[str]
    how: str


def projection_section(view: RunView, how: str) -> Section | None:
    """Plot both domains in a plane by "pca", "tsne" or "auto", see `project`; None without data."""
    stages = project(view, how)
    if not stages:
        return None
    used = next(iter(stages.values())).how
    methods = {
        "pca": "The first two principal components of both domains together.",
        "tsne": "t-SNE of both domains together: close samples are similar; distances between groups mean little.",
    }
    why = f" Two principal components would show less than {MIN_VARIANCE:.0%} of the variance."
    colours = "class of a source sample, predicted class of a target sample" if view.classes else "value"
    sizes = " Larger source samples have a larger training weight." if view.weighted else ""
    blocks: list[Block] = [_picture(view, stage, stages[stage], stage == list(stages)[-1]) for stage in stages]
    if len(stages) == 1:
        blocks.append(Text("For images there is only the plot after the network: the inputs are pixels, not features."))
    lead = f"{methods[used]}{why if used != how and used == 'tsne' else ''} Colour: {colours}.{sizes}"
    return Section(
        "Source and target in a plane", blocks, lead=f"{lead} Point at or tap a sample to see which one it is."
    )


def _picture(view: RunView, stage: str, projection: Projection, last: bool) -> Picture:
    """Draw one stage; the legend, which is the same for all, is below the last."""
    figure, axes = new_axes(WIDTH, WIDTH - 0.2)
    drawn = draw_projection(axes, view, stage, projection)
    if last:
        handles, names = axes.get_legend_handles_labels()
        legend(figure, handles, names, "lower")
    return Picture(f"embedding-{stage}", figure, *drawn)


def project(view: RunView, how: str = "auto") -> dict[str, Projection]:
    """Project (a random part of) both domains to a plane, "before" and "after" the network; empty without data.

    `how` is "pca", "tsne", or "auto": t-SNE of fewer samples if two principal axes show less than 20 % of the variance
    before or after the network, else the principal axes.
    """
    check_choice("embedding", how, EMBEDDINGS)
    source, target = view.source, view.target
    if source is None or target is None:
        return {}
    stages = {
        stage: (xs, xt)
        for stage, xs, xt in (("before", source.before, target.before), ("after", source.after, target.after))
        if xs is not None and xt is not None
    }
    most, iterations = MAX_POINTS, 1000
    if how == "auto":
        shown = [shown_variance(*(_thinned(x, MAX_POINTS) for x in both)) for both in stages.values()]
        how = "tsne" if min(shown) < MIN_VARIANCE else "pca"
        most, iterations = (MAX_AUTO, AUTO_ITERATIONS) if how == "tsne" else (most, iterations)
    rows_s, rows_t = _thinned(source.rows, most), _thinned(target.rows, most)
    projections = {}
    for stage, (xs, xt) in stages.items():
        if how == "tsne":
            logger.info("t-SNE of %d samples, %s the network", len(rows_s) + len(rows_t), stage)
        points, axes = embed(_thinned(xs, most), _thinned(xt, most), how, iterations=iterations)
        projections[stage] = Projection(rows_s, rows_t, points, axes, how)
    return projections


def _thinned(rows: Any, most: int) -> Any:
    """Return at most so many rows, as a view: a copy of wide ones may not fit into memory."""
    return rows[:: -(-len(rows) // most)]


def shown_variance(source: FloatArray, target: FloatArray, seed: int = 0) -> float:
    """Return the share of the variance of both domains together that their first two principal axes show.

    Examples
    --------
    >>> round(shown_variance(np.eye(10), -np.eye(10)), 3)
    0.2
    """
    projected, total = _principal(source, target, 2, seed)
    return float((projected**2).sum() / total) if total else 1.0


def _principal(source: FloatArray, target: FloatArray, count: int, seed: int) -> tuple[FloatArray, float]:
    """Project both domains on their main axes; return the coordinates, and the sum of squares of all."""
    both = np.concatenate([source, target])
    both -= both.mean(axis=0, dtype=np.float64)
    total = float(np.vdot(both, both))
    return both @ _main_axes(both, min(count, *both.shape), seed) if total else np.zeros((len(both), 0)), total


def embed(
    source: FloatArray, target: FloatArray, how: str, seed: int = 0, iterations: int = 1000
) -> tuple[FloatArray, list[str]]:
    """Embed both domains together in two dimensions; return the points and the labels of the two axes.

    `how` is "pca", the principal axes of both domains together, or "tsne", initialised with them.

    Examples
    --------
    >>> points, axes = embed(np.zeros((2, 1)), np.ones((3, 1)), "pca")
    >>> points.shape, axes[0]
    ((5, 2), 'axis 1 (100% of the variance)')
    """
    check_choice("embedding", how, EMBEDDINGS[1:])
    projected, total = _principal(source, target, 2 if how == "pca" else 50, seed)
    n = len(projected)
    if total == 0.0:
        return np.zeros((n, 2)), ["axis 1", "axis 2"]
    if how == "tsne" and n > 4:
        from sklearn.manifold import TSNE

        init: Any = "random"
        if projected.shape[1] > 1:
            init = projected[:, :2] / projected[:, 0].std() * 1e-4  # the scale that scikit-learn uses
        perplexity = min(30.0, (n - 1) / 3)
        tsne = TSNE(2, perplexity=perplexity, init=init, random_state=seed, max_iter=iterations)
        return np.asarray(tsne.fit_transform(projected)), ["", ""]
    points = np.column_stack([projected[:, :2], np.zeros((n, max(2 - projected.shape[1], 0)))])
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


def draw_projection(axes: Axes, view: RunView, stage: str, projection: Projection) -> Drawn:
    """Draw both domains: coloured by class or value, the source as dots by their weight, the target as triangles."""
    rows_s, rows_t, points, axes_names, how = projection
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
    for k in used:
        hidden = names[k].startswith("_")  # matplotlib leaves such names out of legends
        axes.scatter([], [], s=30, marker="s", color=colours[k], label=" " * hidden + names[k])
    axes.scatter([], [], s=22, color=MUTED, label="source")
    axes.scatter([], [], s=22, marker="^", color=MUTED, label="target")
    axes.set(xticks=[], yticks=[], xlabel=axes_names[0], ylabel=axes_names[1])
    axes.set_title(STAGES[stage] + (", t-SNE" if how == "tsne" else ""))
    axes.grid(visible=False)
    counts = f"{len(rows_s)} source and {len(rows_t)} target samples"
    subset = len(rows_s) < len(view.weights) or len(rows_t) < len(view.predicted)
    caption = f"A subset of {counts}." if subset else ""
    alt = f"Scatter plot of {counts} in two dimensions, {stage} the network"
    return Drawn(alt, caption, tips)


def _tip(view: RunView, side: str, row: int) -> str:
    name = label(view.name(side, row), 40) if view.name(side, row) else f"{side} {view.row_in_data(side, row)}"
    value = (view.labels if side == "source" else view.predicted)[row]
    text = label(view.classes[value], 30) if view.classes else f"{value:.4g}"
    if side == "source":
        weight = f", weight {view.relative_weights[row]:.2g}" if view.weighted and view.has_weight[row] else ""
        return f"{name}: {text}{weight}"
    sure = f" ({view.confidence[row]:.0%})" if view.classes and np.isfinite(view.confidence[row]) else ""
    known = view.classes and view.has_plan and np.isfinite(view.matched[row])
    return f"{name}: predicted {text}{sure}" + (f", matched {view.matched[row]:.0%}" if known else "")
