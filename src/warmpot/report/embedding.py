"""Scatter plots of source and target in two dimensions, before and after the network."""

from __future__ import annotations

import logging

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Picture
from warmpot.report.run_view import Points, RunView
from warmpot.report.style import COLOURS, MUTED, PAPER, label, new_figure, series

__all__ = ["EMBEDDINGS", "embed", "pictures"]

logger = logging.getLogger(__name__)

EMBEDDINGS = ("pca", "tsne")
MOST_POINTS = 1500
"""Points per domain: each has a marker and a text, in two figures, and the page must stay small."""
MOST_COLOURS = 8
SIZES = ((0.0, 3.0), (0.34, 7.0), (0.67, 11.0), (1.01, 16.0))
"""Largest relative weight and area of each size of source markers. SVG stores a marker once per size, so few sizes."""
TRIANGLE_AREA = 15.0
MOST_EXACT = 256
"""Dimensions up to which principal axes are computed exactly."""
ITERATIONS = 5
"""Subspace iterations above that; enough for a picture."""


def embed(source: FloatArray, target: FloatArray, how: str, seed: int = 0) -> tuple[FloatArray, list[str]]:
    """Embed both domains together in two dimensions.

    Parameters
    ----------
    source, target : (n_s, d) and (n_t, d) arrays
    how : "pca" or "tsne"
        Principal axes of both domains together, or t-SNE initialised with them.
    seed : int

    Returns
    -------
    points : (n_s + n_t, 2) array
    axes : list of str
        Labels of the two axes.

    Examples
    --------
    >>> points, axes = embed(np.zeros((2, 1)), np.ones((3, 1)), "pca")
    >>> points.shape, axes[0]
    ((5, 2), 'axis 1 (100% of the variance)')
    """
    check_choice("embedding", how, EMBEDDINGS)
    both = np.concatenate([source, target])
    both = both - both.mean(axis=0)
    total = float((both**2).sum())
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
    if centred.shape[1] <= MOST_EXACT:
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count]
    else:
        single = centred.astype(np.float32)  # a picture needs no more digits
        basis = np.random.default_rng(seed).normal(size=(single.shape[1], count + 8)).astype(np.float32)
        for _ in range(ITERATIONS):
            basis = np.linalg.qr(single.T @ (single @ basis))[0]
        axes = basis @ np.linalg.svd(single @ basis, full_matrices=False)[2][:count].T
    # The sign of an axis is arbitrary: make its largest entry positive.
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    signed: FloatArray = (axes * np.where(largest < 0, -1.0, 1.0)).astype(np.float64)
    return signed


def pictures(seen: RunView, how: str) -> list[Picture]:
    """Draw both domains before and after the network; no pictures without data."""
    if seen.source is None or seen.target is None:
        return []
    scatters = []
    spaces = {"before": (seen.source.before, seen.target.before), "after": (seen.source.after, seen.target.after)}
    for name, (source, target) in spaces.items():
        if source is not None and target is not None:
            if how == "tsne":
                n = len(source[:MOST_POINTS]) + len(target[:MOST_POINTS])
                logger.info("t-SNE of %d samples, %s the network", n, name)
            points, axes = embed(source[:MOST_POINTS], target[:MOST_POINTS], how)
            scatters.append(_scatter(seen, name, points, axes))
    return scatters


def _colours(seen: RunView, source: Points, target: Points) -> tuple[IntArray, IntArray, list[str]]:
    """Return the colour indices of the source and target points, and the meaning of each colour; the last is "others".

    The most frequently predicted classes have colours; in a regression, the fifths of labels and predictions.
    """
    s, t = source.rows[:MOST_POINTS], target.rows[:MOST_POINTS]
    if seen.classes:
        shown = [*seen.present, *np.argsort(-seen.shares, kind="stable").tolist(), *range(len(seen.classes))]
        shown = list(dict.fromkeys(shown))[:MOST_COLOURS]
        colour_of = np.full(len(seen.classes), len(shown))
        colour_of[shown] = np.arange(len(shown))
        names = [label(seen.classes[k], 20) for k in shown]
        return colour_of[seen.labels[s]], colour_of[seen.predicted[t]], [*names, "others"]
    both = np.concatenate([seen.labels, seen.predicted])
    edges = np.quantile(both[np.isfinite(both)], [0.2, 0.4, 0.6, 0.8])
    names = [f"up to {edge:.3g}" for edge in edges] + [f"above {edges[-1]:.3g}"]
    return np.searchsorted(edges, seen.labels[s]), np.searchsorted(edges, seen.predicted[t]), [*names, "others"]


def _scatter(seen: RunView, name: str, points: FloatArray, axes_names: list[str]) -> Picture:
    assert seen.source is not None
    assert seen.target is not None
    figure = new_figure(4.7, 4.7)
    axes = figure.add_subplot()
    cs, ct, names = _colours(seen, seen.source, seen.target)
    rows_s, rows_t = seen.source.rows[:MOST_POINTS], seen.target.rows[:MOST_POINTS]
    tips: dict[str, list[str]] = {}
    colours = [series(k) for k in range(len(names) - 1)] + [COLOURS["grey"]]
    relative = seen.relative_weights[rows_s] if seen.weighted else np.ones(len(rows_s))
    size = np.searchsorted([limit for limit, _ in SIZES[:-1]], relative, side="left")
    # Grey first and heavy samples last, so that what matters is on top.
    for k in reversed(range(len(names))):
        for bucket, (_, area) in enumerate(SIZES):
            chosen = np.flatnonzero((cs == k) & (size == bucket))
            if not len(chosen):
                continue
            marks = axes.scatter(
                points[chosen, 0], points[chosen, 1], s=area, color=colours[k], alpha=0.55, linewidths=0
            )
            marks.set_gid(f"tip-s{k}-{bucket}")
            tips[f"s{k}-{bucket}"] = [_source_tip(seen, int(rows_s[i])) for i in chosen]
    for k in reversed(range(len(names))):
        chosen = np.flatnonzero(ct == k)
        if not len(chosen):
            continue
        triangles = points[len(rows_s) + chosen]
        marks = axes.scatter(triangles[:, 0], triangles[:, 1], s=TRIANGLE_AREA, marker="^", color=colours[k],
                             edgecolors=PAPER, linewidths=0.4)  # fmt: skip
        marks.set_gid(f"tip-t{k}")
        tips[f"t{k}"] = [_target_tip(seen, int(rows_t[i])) for i in chosen]
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
    subset = len(rows_s) < len(seen.weights) or len(rows_t) < len(seen.predicted)
    caption = f"A random subset of {counts}." if subset else ""
    alt = f"Scatter plot of {counts} in two dimensions, {name} the network"
    return Picture(f"embedding-{name}", figure, alt, caption, tips)


def _source_tip(seen: RunView, row: int) -> str:
    name = label(seen.name("source", row), 40) if seen.name("source", row) else f"source {row}"
    value = label(seen.classes[seen.labels[row]], 30) if seen.classes else f"{seen.labels[row]:.4g}"
    weight = f", weight {seen.relative_weights[row]:.2g}" if seen.weighted and seen.has_weight[row] else ""
    return f"{name}: {value}{weight}"


def _target_tip(seen: RunView, row: int) -> str:
    name = label(seen.name("target", row), 40) if seen.name("target", row) else f"target {row}"
    if not seen.classes:
        return f"{name}: predicted {seen.predicted[row]:.4g}"
    tip = f"{name}: predicted {label(seen.classes[seen.predicted[row]], 30)}"
    tip += f" ({seen.confidence[row]:.0%})" if np.isfinite(seen.confidence[row]) else ""
    return tip + (f", matched {seen.matched[row]:.0%}" if seen.has_plan and np.isfinite(seen.matched[row]) else "")
