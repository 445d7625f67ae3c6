"""The terms of bounds as stacked bars, and the total as a function of alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._files import atomic_write
from warmpot.bounds import BoundReport
from warmpot.bounds.lipschitz import Lipschitz
from warmpot.bounds.report import PlanRecord, Term
from warmpot.report.style import COLOURS, INK, MUTED, PAPER, new_figure, series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["bars_figure", "curves_figure", "draw_bounds", "read_bounds"]

TERMS = {
    "source loss": COLOURS["blue"],
    "transport, features": COLOURS["orange"],
    "transport, labels": COLOURS["brown"],
    "target left out": COLOURS["teal"],
    "complexity": COLOURS["purple"],
    "confidence": COLOURS["pink"],
    "Monte Carlo": COLOURS["red"],
}
SAME = {"transport": "transport, features"}  # Theorem 3.2 has no other
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
    figure = new_figure(12.5 if curves else 8.5, 2.0 + 0.55 * len(reports))
    panels = figure.subplots(1, 2 if curves else 1, width_ratios=[2, 1] if curves else [1], squeeze=False)[0]
    _legend(figure, _bars(panels[0], reports, remarks or {}))
    if curves:
        _curves(panels[1], curves)
    with atomic_write(path) as draft:
        figure.savefig(draft, format=path.suffix.lstrip(".") or "png", dpi=150, facecolor=PAPER)


def bars_figure(reports: Mapping[str, BoundReport], remarks: Mapping[str, str] | None = None) -> Figure:
    """Draw the bars of `draw_bounds` alone; each term has the gid of a tip, ``ROW-NAME``."""
    figure = new_figure(7.6, 1.5 + 0.62 * len(reports))
    _legend(figure, _bars(figure.add_subplot(), reports, remarks or {}))
    return figure


def curves_figure(curves: Mapping[str, Sequence[BoundReport]]) -> Figure:
    """Draw the totals of `draw_bounds` against alpha alone."""
    figure = new_figure(5.2, 3.2)
    _curves(figure.add_subplot(), curves)
    return figure


def read_bounds(found: Mapping[str, Any]) -> tuple[dict[str, BoundReport], dict[str, tuple[BoundReport, ...]]]:
    """Read what ``warmpot bound`` wrote into ``bound.json``.

    Returns
    -------
    reports : dict of str to BoundReport
    curves : dict of str to tuple of BoundReport
        The grids of alpha and beta, of the bounds that have one.
    """
    reports: dict[str, BoundReport] = {}
    curves: dict[str, tuple[BoundReport, ...]] = {}
    plain = ("theorem", "alpha", "beta", "loss", "form", "union_bound", "confidence", "target_loss", "total_refined")
    for name, said in found.items():
        report = reports[name] = BoundReport(
            terms=tuple(Term(**term) for term in said["terms"]),
            lipschitz=Lipschitz(**said["lipschitz"]),
            plan=PlanRecord(**said["plan"]),
            notes=tuple(said["notes"]),
            **{key: said[key] for key in plain},
        )
        grid = [
            replace(
                report,
                alpha=row["alpha"],
                beta=row["beta"],
                terms=tuple(Term(k, v, "") for k, v in row["terms"].items()),
            )
            for row in said.get("curve", ())
        ]
        curves |= {name: tuple(grid)} if grid else {}
    return reports, curves


def _legend(figure: Figure, shown: Mapping[str, Any]) -> None:
    names = sorted(shown, key=[*TERMS, LABELS, TRUTH].index)
    figure.legend([shown[name] for name in names], names, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


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
    for place, (name, reports) in enumerate(curves.items()):
        for style, beta in zip(("-", "--", ":", "-."), sorted({report.beta for report in reports}), strict=False):
            line = sorted((report.alpha, report.total) for report in reports if report.beta == beta)
            axes.plot(*zip(*line, strict=True), style, color=series(place), marker="o", markersize=3.5,
                      label=f"{name}, beta {beta:.2g}")  # fmt: skip
    axes.axhline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    axes.set(xlabel="alpha", ylim=(0, None), title="computable total against alpha")
    axes.title.set_fontsize(9)
    axes.legend(fontsize=7.5, frameon=False)
