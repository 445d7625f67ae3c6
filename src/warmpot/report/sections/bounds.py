"""Figures of bounds (terms as stacked bars, the total as a function of alpha), and the section about those of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._files import atomic_write
from warmpot.bounds import BoundReport
from warmpot.report.page import EVALUATION, Block, Code, Details, Picture, Section, Text, make_table
from warmpot.report.style import COLOURS, INK, MUTED, PAPER, label, new_figure, series
from warmpot.train.run_bounds import FRESH, FRESH_LABELS, SHARP
from warmpot.train.run_bounds import LABELS as LABEL_FORM

if TYPE_CHECKING:
    from warmpot.report.run_view import RunView

__all__ = ["RunBounds", "bound_section", "draw_bounds", "draw_mismatch", "headline", "run_bounds"]

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
JOINT = {SHARP: "sharp", "Theorem 3.3": "paper"}

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
    from warmpot.bounds import head_lipschitz, plan_label_bound, tightest_bound
    from warmpot.train import bound_inputs

    inputs = bound_inputs(view.run.load_predictor(), task)
    gamma = head_lipschitz(inputs.weight, "euclidean")
    searches = {name: tightest_bound("joint", *inputs.points, gamma=gamma, form=form) for name, form in JOINT.items()}
    reports = {name: search.best for name, search in searches.items()}
    problem, beta = inputs.problem(), reports[SHARP].beta
    plan, _ = problem.planned(1.0, beta, form="sharp")
    reports[LABEL_FORM] = plan_label_bound(problem, plan, problem.report(1.0, beta, plan=plan, form="sharp"))
    return reports, {name: s.curve for name, s in searches.items()}


def _no_constant(view: RunView) -> bool:
    """Whether the Lipschitz constant of the head is not known: it is that of a linear head."""
    return view.candidate is not None and view.candidate.head is None


def headline(reports: Mapping[str, BoundReport]) -> str | None:
    """Return the name of the bound to quote: about new samples if there is one; None if none is below 1."""
    order = (FRESH_LABELS, FRESH, SHARP, LABEL_FORM, *reports)
    return next((name for name in order if name in reports and reports[name].total < 1), None)


def draw_mismatch(reports: Mapping[str, BoundReport]) -> Any:
    """Plot the plan-label bound as a line over its unknown M, with the estimate and, if it is known, the truth."""
    figure = new_figure(5.2, 3.4)
    axes = figure.add_subplot()
    ends, highest = (0.0, 0.3), 0.0
    shown = {FRESH_LABELS: "new samples", LABEL_FORM: "samples seen in training"}
    names = [name for name in shown if name in reports]
    for index, name in enumerate(names):
        report, colour = reports[name], series(index)
        sure = f", with probability {report.confidence:g}" if report.confidence is not None else ""
        axes.plot(ends, [report.total + end for end in ends], color=colour, label=f"{shown[name]}{sure}")
        highest = max(highest, report.total + ends[1])
        style: dict[str, Any] = {"linestyle": "none", "color": colour}
        if report.guess is not None and report.guess <= ends[1]:
            known = None if index else "matched with classes estimated absent"
            axes.plot([report.guess], [report.total + report.guess], marker="o", markersize=6, label=known, **style)
        if report.ideal is not None and report.target_loss is not None:
            known = "true M and true loss"  # only of the samples seen: of new ones M is not known
            axes.plot([report.ideal], [report.target_loss], marker="x", markersize=7, label=known, **style)
    axes.set(xlim=ends, ylim=(0, min(1.0, 1.05 * highest)), ylabel="target loss is at most",
             xlabel="M: share of samples matched with another class")  # fmt: skip
    axes.legend(fontsize=7, frameon=False, loc="upper left")
    return figure


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _part_tables(tables: Mapping[str, Sequence[Mapping[str, Any]]], new: bool) -> Iterator[Block]:
    """Yield the bounds of parts of the target, and of the levels."""
    whose = "new samples; all rows hold together with the probability of the bound" if new else "the samples seen"
    heads = {"coverage": "The most certain samples", "classes": "Samples by predicted class"}
    for key, title in heads.items():
        if tables.get(key):
            rows = [[label(str(row.get("name")), 60), row.get("n"), *(_number(row.get(k)) for k in ("joint", "labels"))]
                    for row in tables[key]]  # fmt: skip
            yield make_table(
                ["part", "samples", "loss at most, + ideal", "loss at most, + M"], rows, title, f"About {whose}."
            )
    if tables.get("levels"):
        rows = [[row.get("level"), *(_number(row.get(k)) for k in ("total", "price")), label(str(row.get("heads")), 80)]
                for row in tables["levels"]]  # fmt: skip
        note = "The price is the ideal term over the heads of the level; it needs target labels."
        note += " About new samples; each row holds on its own with the probability of the bound." if new else ""
        yield make_table(["distances of", "total", "price", "heads"], rows, "Theorem 3.3, sharp, by level", note)


def bound_section(view: RunView, bounds: RunBounds) -> Section | None:
    """Say what is proven about new samples, then about the samples seen, term by term; None if nothing was computed."""
    title, (reports, curves) = "What can be proven", bounds
    if not view.classes and not reports:
        return None
    if not reports and _no_constant(view):
        text = "Nothing: the theorems need the Lipschitz constant of the head, which is known for linear heads."
        return Section(title, [Text(text)])
    if not reports:
        text = "The bound of this run was not computed: with many samples it takes minutes. To compute it:"
        return Section(title, [Text(text), Code(f"warmpot bound {view.run.shown_folder}\n{view.command}")])
    reason = view.run.target_use.reason
    invalid = {
        name: f"not valid: {reason}" for name, report in reports.items() if report.needs_fixed_features and reason
    }
    valid = {name: report for name, report in reports.items() if name not in invalid}
    details = Details("The bounds, term by term", [*_pictures(reports, curves, invalid),
                                                   *_part_tables(view.run.bound_tables, FRESH in reports)])  # fmt: skip
    if (name := headline(valid)) is None:
        best = min((report.total for report in valid.values()), default=None)
        text = "no bound here is valid for adapted features." if best is None else (
            f"the computable part of the best bound is {best:.2f}, and a loss is at most 1."
        )  # fmt: skip
        return Section(title, [details], lead=f"Nothing: {text}")
    blocks: list[Block] = []
    if any(one in valid for one in (LABEL_FORM, FRESH_LABELS)):
        totals = "; ".join(f"{one}: {valid[one].total:.2f} + M" for one in (FRESH_LABELS, LABEL_FORM) if one in valid)
        text = (
            "The bound for every value of M, the share of target samples that the plan matches with a source sample of "
        )
        text += "another class. It is about as large as the error rate; check it by looking at some matches."
        text += f" Crosses: {EVALUATION}." if any(one.target_loss is not None for one in valid.values()) else ""
        blocks.append(Picture("bound-mismatch", draw_mismatch(valid), f"Bound as a line over M: {totals}", text))
    return Section(title, [*blocks, details], lead=_lead(view, valid, name))


def _lead(view: RunView, valid: Mapping[str, BoundReport], name: str) -> str:
    """Return the headline in words."""
    seen = "Nothing is proven about new samples: hold some out with `warmpot fit --holdout 0.3`."
    unknown = " (M: share of samples matched with another class"
    if FRESH_LABELS in valid and name in (FRESH, FRESH_LABELS):
        labels, joint = valid[FRESH_LABELS], valid.get(FRESH)
        text = (
            f"With probability {labels.confidence:g}, the loss on new target samples is at most {labels.total:.2f} + M"
        )
        text += unknown
        text += f"; {labels.guess:.2f} with classes that seem absent)." if labels.guess is not None else ")."
        if joint is not None and joint.total < 1:
            text += f" Without M, but with what the best head loses on both domains: {joint.total:.2f}."
        return " ".join([text, *(f"Note: {note}." for note in labels.notes)])
    report = valid[name]
    adapted = " They were trained on, so the number is too good for new ones." if view.run.target_use.features else ""
    text = (
        f"For these target samples the computable part of {name} is {report.total:.2f}; the rest needs target labels."
    )
    if name == LABEL_FORM:
        text = f"The loss on these target samples is at most {report.total:.2f} + M{unknown})."
    return f"{text}{adapted} {seen}"


def _pictures(
    reports: Mapping[str, BoundReport], curves: Mapping[str, Sequence[BoundReport]], invalid: Mapping[str, str]
) -> Iterator[Block]:
    """Yield the terms as bars, the totals against alpha, and the meaning of every term."""
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
    yield Picture("bound", figure, f"Stacked bars of bounds: {totals}", caption, tips)
    shown = {name: curve for name, curve in curves.items() if name in JOINT} or dict(curves)
    if shown:
        totals_of = {name: [report.total for report in curve] for name, curve in shown.items()}
        ends = "; ".join(f"{name} from {min(each):.2f} to {max(each):.2f}" for name, each in totals_of.items())
        text = "The computable part of the bound against the transported mass alpha; the bound holds for every alpha."
        figure = new_figure(5.2, 3.2)
        _curves(figure.add_subplot(), shown)
        yield Picture("bound-alpha", figure, f"Total of the bound against alpha: {ends}", text)
    rows = [
        [name, term.name, None if term.value is None else float(term.value), label(term.meaning, 120)]
        for name, report in reports.items()
        for term in report.terms
    ]
    yield Details("Terms and what they mean", [make_table(["bound", "term", "value", "meaning"], rows)])
