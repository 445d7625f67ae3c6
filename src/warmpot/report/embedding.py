"""Source and target in a plane, before and after the network."""

from __future__ import annotations

import logging

import numpy as np

from warmpot._checks import check_choice
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Picture
from warmpot.report.run_view import Points, RunView
from warmpot.report.style import COLOURS, MUTED, PAPER, label, new_figure, series

__all__ = ["EMBEDDINGS", "embedded", "pictures"]

logger = logging.getLogger(__name__)

EMBEDDINGS = ("pca", "tsne")
MOST_POINTS = 1500
"""Points of a side: each has a mark and a text to show, twice."""
MOST_COLOURS = 8
SIZES = ((0.0, 3.0), (0.34, 7.0), (0.67, 11.0), (1.01, 16.0))
"""Relative weight below which a source sample has which area: few sizes, so that a mark is written once."""
TRIANGLE = 15.0
MOST_EXACT, PASSES = 256, 5
"""Dimensions up to which principal axes are computed exactly; above, passes over the data until they stand."""


def embedded(source: FloatArray, target: FloatArray, how: str, seed: int = 0) -> tuple[FloatArray, list[str]]:
    """Put both domains into one plane.

    Parameters
    ----------
    source, target : (n_s, d) and (n_t, d) arrays
    how : "pca" or "tsne"
        Principal axes of both domains together; or t-SNE, started from these.
    seed : int

    Returns
    -------
    points : (n_s + n_t, 2) array
    axes : list of str
        What the two axes are.

    Examples
    --------
    >>> points, axes = embedded(np.zeros((2, 1)), np.ones((3, 1)), "pca")
    >>> points.shape, axes[0]
    ((5, 2), 'axis 1 (100% of the variance)')
    """
    check_choice("embedding", how, EMBEDDINGS)
    both = np.concatenate([source, target])
    both = both - both.mean(axis=0)
    total = float((both**2).sum())
    if total == 0.0:
        return np.zeros((len(both), 2)), ["axis 1", "axis 2"]
    found = both @ _main_axes(both, min(2 if how == "pca" else 50, *both.shape), seed)
    if how == "tsne" and len(both) > 4:
        from sklearn.manifold import TSNE

        near = min(30.0, (len(both) - 1) / 3)
        start = found[:, :2] if found.shape[1] > 1 else "random"
        start = start / start[:, 0].std() * 1e-4 if isinstance(start, np.ndarray) else start
        return np.asarray(TSNE(2, perplexity=near, init=start, random_state=seed).fit_transform(found)), ["", ""]
    found = np.column_stack([found[:, :2], np.zeros((len(both), max(2 - found.shape[1], 0)))])
    shares = (found**2).sum(axis=0) / total
    return found, [f"axis {k + 1} ({100 * shares[k]:.0f}% of the variance)" for k in range(2)]


def _main_axes(centred: FloatArray, count: int, seed: int) -> FloatArray:
    """Return the first principal axes as columns: exact in few dimensions, by subspace iteration in many."""
    if centred.shape[1] <= MOST_EXACT:
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :count]
    else:
        narrow = centred.astype(np.float32)  # a picture needs no more digits
        basis = np.random.default_rng(seed).normal(size=(narrow.shape[1], count + 8)).astype(np.float32)
        for _ in range(PASSES):
            basis = np.linalg.qr(narrow.T @ (narrow @ basis))[0]
        axes = basis @ np.linalg.svd(narrow @ basis, full_matrices=False)[2][:count].T
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])]
    found: FloatArray = (axes * np.where(largest < 0, -1.0, 1.0)).astype(np.float64)  # else the sign is chance
    return found


def pictures(seen: RunView, how: str) -> list[Picture]:
    """Draw both domains as the network gets them, and as it sees them; nothing without data."""
    if seen.source is None or seen.target is None:
        return []
    found = []
    spaces = {"before": (seen.source.before, seen.target.before), "after": (seen.source.after, seen.target.after)}
    for name, (source, target) in spaces.items():
        if source is not None and target is not None:
            if how == "tsne":
                n = len(source[:MOST_POINTS]) + len(target[:MOST_POINTS])
                logger.info("t-SNE of %d samples, %s the network", n, name)
            points, axes = embedded(source[:MOST_POINTS], target[:MOST_POINTS], how)
            found.append(_scatter(seen, name, points, axes))
    return found


def _colours(seen: RunView, source: Points, target: Points) -> tuple[IntArray, IntArray, list[str]]:
    """Return the number of the colour of every point, and what each colour is; the last one is the rest.

    Classes: the most predicted ones. Numbers: fifths of the range of the source's labels and the predictions.
    """
    s, t = source.rows[:MOST_POINTS], target.rows[:MOST_POINTS]
    if seen.classes:
        shown = [*seen.present, *np.argsort(-seen.shares, kind="stable").tolist(), *range(len(seen.classes))]
        shown = list(dict.fromkeys(shown))[:MOST_COLOURS]
        place = np.full(len(seen.classes), len(shown))
        place[shown] = np.arange(len(shown))
        names = [label(seen.classes[k], 20) for k in shown]
        return place[seen.labels[s]], place[seen.predicted[t]], [*names, "others"]
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
    # grey first, heavy last: what matters lies on top
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
        there = points[len(rows_s) + chosen]
        marks = axes.scatter(there[:, 0], there[:, 1], s=TRIANGLE, marker="^", color=colours[k],
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
    drawn = len(rows_s) < len(seen.weights) or len(rows_t) < len(seen.predicted)
    draw = f" A draw of {len(rows_s)} source and {len(rows_t)} target samples." if drawn else ""
    alt = f"Scatter plot of {len(rows_s)} source and {len(rows_t)} target samples in the plane, {name} the network"
    return Picture(f"embedding-{name}", figure, alt, draw.strip(), tips)


def _source_tip(seen: RunView, row: int) -> str:
    name = label(seen.name("source", row), 40) if seen.name("source", row) else f"source {row}"
    said = label(seen.classes[seen.labels[row]], 30) if seen.classes else f"{seen.labels[row]:.4g}"
    return f"{name}: {said}" + (
        f", weight {seen.relative_weights[row]:.2g}" if seen.weighted and seen.has_weight[row] else ""
    )


def _target_tip(seen: RunView, row: int) -> str:
    name = label(seen.name("target", row), 40) if seen.name("target", row) else f"target {row}"
    if not seen.classes:
        return f"{name}: predicted {seen.predicted[row]:.4g}"
    said = f"{name}: predicted {label(seen.classes[seen.predicted[row]], 30)}"
    said += f" ({seen.confidence[row]:.0%})" if np.isfinite(seen.confidence[row]) else ""
    return said + (f", matched {seen.matched[row]:.0%}" if seen.has_plan and np.isfinite(seen.matched[row]) else "")
