"""The bounds of a run, term by term."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from warmpot.bounds import BoundReport
from warmpot.report.bound_figures import bars_figure, curves_figure
from warmpot.report.page import Block, Code, Details, Picture, Section, Table, Text
from warmpot.report.run_view import RunView
from warmpot.report.sections.wording import EVALUATION
from warmpot.report.style import label

__all__ = ["RunBounds", "bound_section", "run_bounds"]

MOST_PAIRS = 40_000
"""Pairs of samples up to which the bound is computed for the page, in seconds."""
JOINT = {"Theorem 3.3": "paper", "Theorem 3.3, sharp": "sharp"}

RunBounds = tuple[Mapping[str, BoundReport], Mapping[str, Sequence[BoundReport]]]
"""Bounds by name, and the same bounds on a grid of alpha and beta."""


def run_bounds(view: RunView) -> RunBounds:
    """Return the bounds in the run folder; without any, those of Theorem 3.3 if the data is small."""
    if view.run.bounds:
        return view.run.bounds, view.run.bound_curves
    task = view.task
    if task is None or view.source is None or not view.classes or task.n_source * task.n_target > MOST_PAIRS:
        return {}, {}
    if task.xs.ndim > 2:  # all images would have to go through the network again
        return {}, {}
    from warmpot.bounds import head_lipschitz, tightest_bound
    from warmpot.train import bound_inputs

    inputs = bound_inputs(view.run.load_predictor(), task)
    gamma = head_lipschitz(inputs.weight, "euclidean")
    searches = {name: tightest_bound("joint", *inputs.points, gamma=gamma, form=form) for name, form in JOINT.items()}
    return {name: search.best for name, search in searches.items()}, {name: s.curve for name, s in searches.items()}


def bound_section(view: RunView, bounds: RunBounds) -> Section | None:
    """Plot the bounds, term by term; None in regression, which the theorems do not cover."""
    if not view.classes:
        return None
    title, (reports, curves) = "What can be proven", bounds
    if not reports:
        folder = "RUN" if view.run.folder is None else shlex.quote(str(view.run.folder))
        text = "The bound of this run was not computed: with many samples it takes minutes. To compute it:"
        return Section(title, [Text(text), Code(f"warmpot bound {folder}\n{view.command}")])
    invalid = {
        name: "not valid: adapted features" for name, report in reports.items()
        if report.confidence is not None and view.run.adapted
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
    blocks: list[Block] = [
        Picture("bound", bars_figure(reports, invalid), f"Stacked bars of bounds: {totals}", caption, tips)
    ]
    shown = {name: curve for name, curve in curves.items() if name in JOINT} or dict(curves)
    if shown:
        alt = "Total of the bound against alpha: " + "; ".join(
            f"{name} from {min(r.total for r in curve):.2f} to {max(r.total for r in curve):.2f}"
            for name, curve in shown.items()
        )
        text = "The computable part of the bound against the transported mass alpha; the bound holds for every alpha."
        blocks.append(Picture("bound-alpha", curves_figure(shown), alt, text))
    lead = "A bound on the target loss is the sum of computable terms and one term that requires target labels."
    return Section(title, [*blocks, _terms_table(reports)], lead=lead)


def _terms_table(reports: Mapping[str, BoundReport]) -> Details:
    rows = [
        [name, term.name, None if term.value is None else float(term.value), label(term.meaning, 120)]
        for name, report in reports.items()
        for term in report.terms
    ]
    table = Table(["bound", "term", "value", "meaning"], rows, align=["left", "left", "right", "left"])
    return Details("Terms and what they mean", [table])
