"""Figures of bounds (terms as stacked bars, the total as a function of alpha), and the section about those of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._files import atomic_write
from warmpot.bounds import BoundReport
from warmpot.report.page import EVALUATION, Block, Code, Details, Picture, Section, Text, make_table
from warmpot.report.style import COLOURS, INK, MUTED, PAPER, label, new_figure, series

if TYPE_CHECKING:
    from warmpot.report.run_view import RunView

__all__ = ["RunBounds", "bound_section", "draw_bounds", "run_bounds"]

TERMS = {
    "source loss": COLOURS["blue"], "transport, features": COLOURS["orange"], "transport, labels": COLOURS["brown"],
    "target left out": COLOURS["teal"], "complexity": COLOURS["purple"], "confidence": COLOURS["pink"],
    "Monte Carlo": COLOURS["red"],
}  # fmt: skip
SAME = {"transport": "transport, features"}  # the only transport term of Theorem 3.2
LABELS, TRUTH = "needs target labels", "true target loss"
WIDEST = 8.0
"""Bars longer than this are cut, so that the short ones can be read; a loss is at most 1."""
MAX_PAIRS = 40_000
"""Largest number of pairs for which the page computes the bound itself; this takes seconds."""
JOINT = {"Theorem 3.3": "paper", "Theorem 3.3, sharp": "sharp"}

RunBounds = tuple[Mapping[str, BoundReport], Mapping[str, Sequence[BoundReport]]]
"""Bounds by name, and the same bounds on a grid of alpha and beta."""


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
    _bars(panels[0], reports, remarks or {})
    if curves:
        _curves(panels[1], curves)
    with atomic_write(path) as draft:
        figure.savefig(draft, format=path.suffix.lstrip(".") or "png", dpi=150, facecolor=PAPER)


def _bars(axes: Any, reports: Mapping[str, BoundReport], remarks: Mapping[str, str]) -> None:
    """Plot the bars and a legend below; the tip of a term has the id ``ROW-NAME``."""
    end = min(max(1.1, *(report.total_with_labels or report.total for report in reports.values())), WIDEST)
    shown: dict[str, Any] = {}
    for row, (bound, report) in enumerate(reports.items()):
        left, pale = 0.0, 0.35 if bound in remarks else 1.0
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
        text += f"  {remarks[bound]}" if bound in remarks else ""
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
    names = sorted(shown, key=[*TERMS, LABELS, TRUTH].index)
    handles = [shown[name] for name in names]
    axes.figure.legend(handles, names, loc="outside lower left", ncols=3, fontsize=8, frameon=False)


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


def run_bounds(view: RunView) -> RunBounds:
    """Return the bounds in the run folder; without any, those of Theorem 3.3 if the data is small."""
    if view.run.bounds:
        return view.run.bounds, view.run.bound_curves
    task = view.task
    if task is None or view.source is None or not view.classes or task.n_source * task.n_target > MAX_PAIRS:
        return {}, {}
    if task.xs.ndim > 2 or _no_constant(view):  # all images would have to go through the network again
        return {}, {}
    from warmpot.bounds import head_lipschitz, tightest_bound
    from warmpot.train import bound_inputs

    inputs = bound_inputs(view.run.load_predictor(), task)
    gamma = head_lipschitz(inputs.weight, "euclidean")
    searches = {name: tightest_bound("joint", *inputs.points, gamma=gamma, form=form) for name, form in JOINT.items()}
    return {name: search.best for name, search in searches.items()}, {name: s.curve for name, s in searches.items()}


def _no_constant(view: RunView) -> bool:
    """Whether the Lipschitz constant of the head is not known: it is that of a linear head."""
    return view.candidate is not None and view.candidate.head is None


def bound_section(view: RunView, bounds: RunBounds) -> Section | None:
    """Plot the bounds, term by term; None in regression, which the theorems do not cover."""
    if not view.classes:
        return None
    title, (reports, curves) = "What can be proven", bounds
    if not reports and _no_constant(view):
        text = "Nothing: the theorems need the Lipschitz constant of the head, which is known for linear heads."
        return Section(title, [Text(text)])
    if not reports:
        text = "The bound of this run was not computed: with many samples it takes minutes. To compute it:"
        return Section(title, [Text(text), Code(f"warmpot bound {view.run.shown_folder}\n{view.command}")])
    invalid = {
        name: f"not valid: {view.run.target_use.reason}" for name, report in reports.items()
        if report.needs_fixed_features and view.run.adapted
    }  # fmt: skip
    tips = {
        f"{row}-{term.name}": f"{name}: {term.name} {term.value:.3g}, {term.meaning}"
        for row, (name, report) in enumerate(reports.items())
        for term in report.terms
        if term.value
    }
    totals = "; ".join(f"{name} {report.total:.2f}" for name, report in reports.items())
    labelled = any(report.target_loss is not None for report in reports.values())
    caption = "Terms of each bound. Beyond the dashed line a bound proves nothing, because a loss is at most 1."
    caption += f" Hatched terms, and the black line (the true loss): {EVALUATION}." if labelled else ""
    figure = new_figure(7.6, 1.5 + 0.62 * len(reports))
    _bars(figure.add_subplot(), reports, invalid)
    blocks: list[Block] = [Picture("bound", figure, f"Stacked bars of bounds: {totals}", caption, tips)]
    shown = {name: curve for name, curve in curves.items() if name in JOINT} or dict(curves)
    if shown:
        totals_of = {name: [report.total for report in curve] for name, curve in shown.items()}
        ends = "; ".join(f"{name} from {min(each):.2f} to {max(each):.2f}" for name, each in totals_of.items())
        text = "The computable part of the bound against the transported mass alpha; the bound holds for every alpha."
        figure = new_figure(5.2, 3.2)
        _curves(figure.add_subplot(), shown)
        blocks.append(Picture("bound-alpha", figure, f"Total of the bound against alpha: {ends}", text))
    rows = [
        [name, term.name, None if term.value is None else float(term.value), label(term.meaning, 120)]
        for name, report in reports.items()
        for term in report.terms
    ]
    blocks.append(Details("Terms and what they mean", [make_table(["bound", "term", "value", "meaning"], rows)]))
    best = min((report.total for name, report in reports.items() if name not in invalid), default=None)
    if best is None or best >= 1:
        text = f"Nothing: the computable part of the best bound is {best:.2f}, and a loss is at most 1." if best else ""
        blocks = [Details("The bounds, term by term", blocks)]
        return Section(title, blocks, lead=text or "Nothing: no bound here is valid for adapted features.")
    lead = "A bound on the target loss is the sum of computable terms and one term that requires target labels."
    return Section(title, blocks, lead=lead)
