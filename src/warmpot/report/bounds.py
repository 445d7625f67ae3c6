"""The terms of bounds as stacked bars, and the total as a function of alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warmpot._files import replacing
from warmpot.bounds import BoundReport

__all__ = ["draw_bounds"]

COLOURS = {
    "source loss": "#4477aa",
    "transport, features": "#ee8866",
    "transport, labels": "#eedd88",
    "target left out": "#44bb99",
    "complexity": "#aa4499",
    "confidence": "#ddaacc",
    "Monte Carlo": "#775577",
}
SAME = {"transport": "transport, features"}  # Theorem 1 has no other
LABELS, TRUTH = "needs target labels", "true target loss"
WIDEST = 8.0
"""Bars longer than this many times the largest loss are cut, so that the short ones can be read."""


def draw_bounds(
    reports: Mapping[str, BoundReport],
    path: Path,
    *,
    curves: Mapping[str, Sequence[BoundReport]] | None = None,
    remarks: Mapping[str, str] | None = None,
) -> None:
    """Draw one bar a bound: its terms side by side, the end of what a loss can be, the true loss if it is known.

    Parameters
    ----------
    reports : mapping of str to BoundReport
        The bounds, by what to write beside the bar.
    path : path
        ``.png``, ``.pdf`` or ``.svg``; an old file is replaced.
    curves : mapping of str to sequence of BoundReport, optional
        Bounds of a grid of (alpha, beta), drawn as totals against alpha in a panel of their own.
    remarks : mapping of str to str, optional
        What to add to the numbers of a bar; the bar is drawn pale.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5 if curves else 8.5, 2.0 + 0.55 * len(reports)), layout="constrained")
    panels = figure.subplots(1, 2 if curves else 1, width_ratios=[2, 1] if curves else [1], squeeze=False)[0]
    shown = _bars(panels[0], reports, remarks or {})
    order = [*COLOURS, LABELS, TRUTH]
    names = sorted(shown, key=order.index)
    figure.legend([shown[name] for name in names], names, loc="outside lower left", ncols=5, frameon=False, fontsize=8)
    if curves:
        _curves(panels[1], curves)
    with replacing(path) as draft:
        figure.savefig(draft, format=path.suffix.lstrip(".") or "png", dpi=150)


def _bars(axes: Any, reports: Mapping[str, BoundReport], remarks: Mapping[str, str]) -> dict[str, Any]:
    """Draw the bars; return what the legend shows."""
    end = min(max(1.1, *(report.total_with_labels or report.total for report in reports.values())), WIDEST)
    shown: dict[str, Any] = {}
    for row, (label, report) in enumerate(reports.items()):
        left, pale = 0.0, 0.35 if label in remarks else 1.0
        for term in report.terms:
            if not term.value:
                continue
            name = SAME.get(term.name, term.name) if term.computable else LABELS
            style = {"color": COLOURS[name]} if term.computable else {"facecolor": "none", "hatch": "////"}
            edge = "white" if term.computable else "#999999"
            bar = axes.barh(row, max(min(term.value, end - left), 0.0), left=left, height=0.6, edgecolor=edge,
                            linewidth=0.8, alpha=pale, **style)  # fmt: skip
            shown.setdefault(name, bar)
            left = min(left + term.value, end)
        cut = "" if (report.total_with_labels or report.total) <= end else "→ "
        text = f"{cut}{report.total:.2f}"
        if report.total_with_labels is not None:
            text += f" ({report.total_with_labels:.2f} with labels"
            text += f", {report.total_refined:.2f} refined)" if report.total_refined is not None else ")"
        text += f"  {remarks[label]}" if label in remarks else ""
        axes.text(left + 0.015 * end, row, text, va="center", fontsize=8, zorder=3,
                  bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})  # fmt: skip
        if report.target_loss is not None:
            mark = axes.plot([report.target_loss] * 2, [row - 0.38, row + 0.38], color="black", linewidth=2.2)
            shown.setdefault(TRUTH, mark[0])
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlim=(0, 1.45 * end), ylim=(len(reports) - 0.45, -0.55), xlabel="bound of the target loss",
             title="terms of the bounds; vacuous beyond the dashed line")  # fmt: skip
    axes.title.set_fontsize(9)
    axes.set_yticks(range(len(reports)), [f"{name}\nalpha {r.alpha:.3g}, {r.loss}" for name, r in reports.items()])
    axes.tick_params(axis="y", labelsize=8, left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return shown


def _curves(axes: Any, curves: Mapping[str, Sequence[BoundReport]]) -> None:
    for style, (name, reports) in zip(("-", "--", ":", "-."), curves.items(), strict=False):
        for marker, beta in zip("os^v", sorted({report.beta for report in reports}), strict=False):
            line = sorted((report.alpha, report.total) for report in reports if report.beta == beta)
            axes.plot(*zip(*line, strict=True), style, marker=marker, markersize=4, label=f"{name}, beta {beta:.2g}")
    axes.axhline(1.0, color="black", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlabel="alpha", ylim=(0, None), title="computable total against alpha")
    axes.title.set_fontsize(9)
    axes.legend(frameon=False, fontsize=7)
    axes.spines[["top", "right"]].set_visible(False)
