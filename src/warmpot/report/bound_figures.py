"""Figures of bounds: terms as stacked bars, and the total as a function of alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._files import atomic_write
from warmpot.bounds import BoundReport
from warmpot.report.style import COLOURS, INK, MUTED, PAPER, new_figure, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars_figure", "curves_figure", "draw_bounds"]

TERMS = {
    "source loss": COLOURS["blue"],
    "transport, features": COLOURS["orange"],
    "transport, labels": COLOURS["brown"],
    "target left out": COLOURS["teal"],
    "complexity": COLOURS["purple"],
    "confidence": COLOURS["pink"],
    "Monte Carlo": COLOURS["red"],
}
SAME = {"transport": "transport, features"}  # the only transport term of Theorem 3.2
LABELS, TRUTH = "needs target labels", "true target loss"
WIDEST = 8.0
"""Bars longer than this are cut, so that the short ones can be read; a loss is at most 1."""


def draw_bounds(
    reports: Mapping[str, BoundReport],
    path: Path,
    *,
    curves: Mapping[str, Sequence[BoundReport]] | None = None,
    remarks: Mapping[str, str] | None = None,
) -> None:
    """Plot one bar per bound: its terms, the largest possible loss, and the true loss if it is known.

    Parameters
    ----------
    reports : mapping of str to BoundReport
        The bounds by the names of their bars.
    path : path
        ``.png``, ``.pdf`` or ``.svg``; an existing file is replaced.
    curves : mapping of str to sequence of BoundReport, optional
        Bounds on a grid of (alpha, beta), plotted as totals against alpha in a second panel.
    remarks : mapping of str to str, optional
        Text after the number of a bar; such a bar is drawn pale.
    """
    figure = new_figure(12.5 if curves else 8.5, 2.0 + 0.55 * len(reports))
    panels = figure.subplots(1, 2 if curves else 1, width_ratios=[2, 1] if curves else [1], squeeze=False)[0]
    _legend(figure, _bars(panels[0], reports, remarks or {}))
    if curves:
        _curves(panels[1], curves)
    with atomic_write(path) as draft:
        figure.savefig(draft, format=path.suffix.lstrip(".") or "png", dpi=150, facecolor=PAPER)


def bars_figure(reports: Mapping[str, BoundReport], remarks: Mapping[str, str] | None = None) -> Figure:
    """Return the bars of `draw_bounds` alone; the tip of a term has the id ``ROW-NAME``."""
    figure = new_figure(7.6, 1.5 + 0.62 * len(reports))
    _legend(figure, _bars(figure.add_subplot(), reports, remarks or {}))
    return figure


def curves_figure(curves: Mapping[str, Sequence[BoundReport]]) -> Figure:
    """Return the totals of `draw_bounds` against alpha alone."""
    figure = new_figure(5.2, 3.2)
    _curves(figure.add_subplot(), curves)
    return figure


def _legend(figure: Figure, shown: Mapping[str, Any]) -> None:
    names = sorted(shown, key=[*TERMS, LABELS, TRUTH].index)
    figure.legend([shown[name] for name in names], names, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


def _bars(axes: Any, reports: Mapping[str, BoundReport], remarks: Mapping[str, str]) -> dict[str, Any]:
    """Plot the bars; return the entries of the legend."""
    end = min(max(1.1, *(report.total_with_labels or report.total for report in reports.values())), WIDEST)
    shown: dict[str, Any] = {}
    for row, (label, report) in enumerate(reports.items()):
        left, pale = 0.0, 0.35 if label in remarks else 1.0
        for term in report.terms:
            if not term.value:
                continue
            name = SAME.get(term.name, term.name) if term.computable else LABELS
            style = {"facecolor": TERMS[name]} if term.computable else {"facecolor": "none", "hatch": "////"}
            edge = PAPER if term.computable else MUTED
            bar = axes.barh(row, max(min(term.value, end - left), 0.0), left=left, height=0.6, edgecolor=edge,
                            linewidth=0.8, alpha=pale, **style)  # fmt: skip
            bar[0].set_gid(f"tip-{row}-{term.name}")
            shown.setdefault(name, bar)
            left = min(left + term.value, end)
        cut = "" if (report.total_with_labels or report.total) <= end else "→ "
        text = f"{cut}{report.total:.2f}"
        if report.total_with_labels is not None:
            text += f" ({report.total_with_labels:.2f} with labels"
            text += f", {report.total_refined:.2f} refined)" if report.total_refined is not None else ")"
        text += f"  {remarks[label]}" if label in remarks else ""
        axes.text(left + 0.015 * end, row, text, va="center", fontsize=8, zorder=3, color=INK,
                  bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5})  # fmt: skip
        if report.target_loss is not None:
            mark = axes.plot([report.target_loss] * 2, [row - 0.38, row + 0.38], color=INK, linewidth=2.2)
            shown.setdefault(TRUTH, mark[0])
    axes.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlim=(0, 1.45 * end), ylim=(len(reports) - 0.45, -0.55), xlabel="bound of the target loss",
             title="terms of the bounds; vacuous beyond the dashed line")  # fmt: skip
    axes.title.set_fontsize(9)
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(reports)), [f"{name}\nalpha {r.alpha:.3g}, {r.loss}" for name, r in reports.items()])
    axes.tick_params(axis="y", labelsize=8, left=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
    return shown


def _curves(axes: Any, curves: Mapping[str, Sequence[BoundReport]]) -> None:
    for index, (name, reports) in enumerate(curves.items()):
        for style, beta in zip(("-", "--", ":", "-."), sorted({report.beta for report in reports}), strict=False):
            line = sorted((report.alpha, report.total) for report in reports if report.beta == beta)
            axes.plot(*zip(*line, strict=True), style, color=series(index), marker="o", markersize=3.5,
                      label=f"{name}, beta {beta:.2g}")  # fmt: skip
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlabel="alpha", ylim=(0, None), title="computable total against alpha")
    axes.title.set_fontsize(9)
    axes.legend(fontsize=7.5, frameon=False)
