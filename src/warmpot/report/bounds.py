"""The terms of bounds as stacked bars."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmpot._files import replacing
from warmpot.bounds import BoundReport

__all__ = ["draw_bounds"]

COLOURS = {
    "source loss": "#4477aa",
    "transport": "#ee8866",
    "transport, features": "#ee8866",
    "transport, labels": "#eedd88",
    "target left out": "#44bb99",
    "complexity": "#aa4499",
    "confidence": "#ddaacc",
    "Monte Carlo": "#dddddd",
}
UNKNOWN = "#bbbbbb"
WIDEST = 8.0
"""Bars longer than this many times the largest loss are cut, so that the short ones can be read."""


def draw_bounds(reports: Mapping[str, BoundReport], path: Path) -> None:
    """Draw one bar a bound: its terms side by side, the end of what a loss can be, the true loss if it is known.

    Parameters
    ----------
    reports : mapping of str to BoundReport
        The bounds, by what to write beside the bar.
    path : path
        ``.png``, ``.pdf`` or ``.svg``; an old file is replaced.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 1.6 + 0.55 * len(reports)), layout="constrained")
    axes = figure.add_subplot()
    end = min(max(1.1, *(r.total_with_labels or r.total for r in reports.values())), WIDEST)
    shown: dict[str, Any] = {}
    for row, report in enumerate(reports.values()):
        left = 0.0
        for term in report.terms:
            if not term.value:
                continue
            colour = COLOURS.get(term.name, UNKNOWN)
            name = term.name if term.computable else "needs target labels"
            bar = axes.barh(row, term.value, left=left, height=0.62, color=colour, edgecolor="white", linewidth=0.8,
                            hatch=None if term.computable else "////")  # fmt: skip
            shown.setdefault(name, bar)
            left += term.value
        total = f"{report.total:.2f}"
        if report.total_with_labels is not None:
            total += f"  ({report.total_with_labels:.2f} with labels)"
        total, paper = (total, "none") if left <= end else (f"→ {total}", "white")  # a cut bar runs behind its number
        box = {"facecolor": paper, "edgecolor": "none", "pad": 2.0}
        axes.text(min(left, end) + 0.015 * end, row, total, va="center", fontsize=8, bbox=box, zorder=3)
        if report.target_loss is not None:
            mark = axes.plot([report.target_loss] * 2, [row - 0.4, row + 0.4], color="black", linewidth=2.2)
            shown.setdefault("true target loss", mark[0])
    axes.axvline(1.0, color="black", linewidth=0.9, linestyle=(0, (4, 3)))
    axes.text(1.0, -0.62, " vacuous from here", fontsize=8, va="bottom")
    axes.set_xlim(0, end * 1.3)
    axes.set_ylim(len(reports) - 0.45, -0.75)
    axes.set_yticks(range(len(reports)), list(reports))
    axes.set_xlabel("bound of the target loss")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    figure.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    with replacing(path) as draft:
        figure.savefig(draft, format=path.suffix.lstrip(".") or "png", dpi=150)
