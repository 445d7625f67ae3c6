"""The first section: what the target contains according to the predictions, and warnings that need no labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from warmpot._run_files import PREDICTIONS
from warmpot._tables import ABSENT, ResultTable, TableCell, TableValue
from warmpot.report.page import (
    EVALUATION,
    Block,
    Details,
    Facts,
    Notice,
    Pair,
    Picture,
    Section,
    Text,
    Tiles,
    make_table,
)
from warmpot.report.run_view import UNSURE, RunView
from warmpot.report.sections import parts
from warmpot.report.sections.provenance import repeat_command
from warmpot.report.style import COLOURS, MUTED, label
from warmpot.select.candidate import collapse_reason
from warmpot.train.health import LONE, SPREAD
from warmpot.weights.calibration import ACCEPT
from warmpot.weights.presence import STATES
from warmpot.weights.verdict import NOT_SUPPORTED, SUPPORTED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["answer_section", "draw_classes", "run_warnings"]

TITLE = "The answer"
MAX_NAMES = 40
"""Classes that are named per state."""
MAX_SAMPLES = 12
"""Samples shown per suspicious class."""
NO_BASELINE = "This run has no baseline without adaptation: compare with `warmpot fit ... --preset source-only`."
CHECK_BEFORE_USE = "Look at the classes below, and label some samples (`warmpot evaluate`) before you rely on it."
ALWAYS_A_CLASS = "Every target sample is assigned one of the source's classes, even if it belongs to none of them."
NO_WARNINGS = "There are no warnings. They detect some failures; without them a run can still be wrong."
MAX_SUSPECTS = 3
"""Suspicious classes that get a warning of their own, and a list of samples."""
MAX_NAMED = 8
"""Samples named in a warning."""
MIN_ABSENT_SHARE = 0.03
"""Share of predictions on absent classes that is worth a warning."""
DOMINANT_SHARE = 0.5
"""Share of a single class that is worth a warning, if there are others."""
CAPPED, EXCEEDS = 0.95, 1.2
"""The cap limits a class with this share of its samples at the cap, and this ratio of predictions to weight."""
MIN_ABSENT_WEIGHT = 0.2
"""Share of the weight on absent classes that is worth a warning."""
LOW_EFFECTIVE_SHARE = 0.05
"""Effective share of the source below which there is a warning."""
LARGE_RELATIVE_GAP = 1e-3
"""Gap of a plan, relative to its value, that is worth a warning."""
MIN_UNCONVERGED = 0.02
"""Share of plans that did not converge that is worth a warning."""
RETRY = "Try a lower alpha (--alpha 0.5), another preset, or better features; label some samples to compare them."


def answer_section(view: RunView) -> Section:
    """Show what the target contains, and what looks wrong."""
    if not view.run.n_target:
        remedy = f"Predict again: warmpot predict {view.run.shown_folder} DATA --out FILE"
        return Section(TITLE, [Notice("bad", f"{PREDICTIONS} is missing.", remedy), *_problems(view)])
    notices: list[Block] = list(run_warnings(view)) or [Notice("info", NO_WARNINGS)]
    if view.missing:
        remedy = f"Name the files: {view.command} SOURCE TARGET"
        notices.append(Notice("info", f"Parts of this page are left out: {view.missing}.", remedy))
    return _class_answer(view, notices) if view.classes else _value_answer(view, notices)


def _class_answer(view: RunView, notices: list[Block]) -> Section:
    counts = [(state, view.class_states.count(state)) for state in STATES]
    numbers = ", ".join(f"{count} {state}" for state, count in counts[1:])
    review_note = f"of {view.run.n_target:,}: confidence times probability of the class is below {ACCEPT:.0%}"
    tiles = [
        parts.measured(view),
        *_gain_tile(view),
        *_verdict_tile(view),
        _confidence_tile(view),
        (f"{len(view.to_review):,}", "predictions to review", review_note),
        (f"{counts[0][1]} of {len(view.classes)}", "classes estimated present", numbers),
    ]
    table, suspects = _class_table(view), list(view.suspects)
    blocks: list[Block] = [Tiles(tiles), _states(view), *notices, *_suspicious_samples(view, suspects)]
    folded = parts.fold_if_long(table, f"All {len(table.rows)} predicted classes")
    height = 0.9 + 0.27 * min(int((view.shares > 0).sum()), parts.MAX_BARS)
    shares = parts.picture("predicted-classes", lambda axes: draw_classes(axes, view), height)
    blocks += [Pair([shares, folded]), Text(ALWAYS_A_CLASS)]
    return Section(TITLE, blocks, lead=_lead(view))


def _verdict_warning(view: RunView) -> Iterator[Notice]:
    """Warn if the adaptation is not supported, or doubtful."""
    verdict = view.run.verdict
    if verdict is None or verdict.state == SUPPORTED:
        return
    text = f"Adaptation is {verdict.state}: {verdict.reason}."
    yield Notice("warning" if verdict.state == NOT_SUPPORTED else "info", text, CHECK_BEFORE_USE)


def _lead(view: RunView) -> str:
    """Say what adaptation gained, as far as that is known."""
    after, before = view.accuracy, view.unadapted_accuracy
    changed = "" if view.changed is None else f"Adaptation changed the prediction of {view.changed:.0%} of the samples"
    if after is not None and before is not None:
        gain = f"{100 * abs(after - before):.1f} points {'more' if after >= before else 'less'} than {before:.1%}"
        return f"Accuracy {after:.1%}, {gain} without adaptation; {EVALUATION}. {changed}."
    if after is not None:
        return f"Accuracy {after:.1%}; {EVALUATION}. {NO_BASELINE if view.run.adapted else ''}"
    unknown = "Without target labels the accuracy is unknown"
    if view.estimated_accuracy is not None:
        unknown += f"; it is estimated as {view.estimated_accuracy:.0%}, the mean of the calibrated confidences"
    return f"{unknown}. {changed}." if changed else f"{unknown}. {NO_BASELINE if view.run.adapted else ''}"


def _confidence_tile(view: RunView) -> tuple[str, str, str]:
    if view.estimated_accuracy is not None:
        return f"{view.estimated_accuracy:.0%}", "estimated accuracy", "without labels: the mean calibrated confidence"
    confidence = parts.percent(view.mean_confidence, 0).text
    return (
        confidence,
        "mean confidence",
        "not recorded" if confidence == ABSENT else "of the model, not changed by calibration",
    )


def _verdict_tile(view: RunView) -> Iterator[tuple[str, str, str]]:
    if (verdict := view.run.verdict) is not None:
        yield verdict.state, "adaptation", f"{verdict.reason}; no target label is used"


def _gain_tile(view: RunView) -> Iterator[tuple[str, str, str]]:
    """Yield the gain over no adaptation; without labels, how many predictions changed."""
    if view.accuracy is not None and view.unadapted_accuracy is not None:
        before = f"{view.unadapted_accuracy:.1%} without; {EVALUATION}"
        yield f"{100 * (view.accuracy - view.unadapted_accuracy):+.1f} points", "gain by adaptation", before
    elif view.changed is not None:
        yield f"{view.changed:.0%}", "predictions changed", "compared with no adaptation"


def _states(view: RunView) -> Facts:
    """List the classes by state, the most probable first."""
    presence = view.run.presence
    chance = view.shares if presence is None else presence.probability
    rows = []
    for state in STATES:
        codes = [int(k) for k in np.argsort(-chance, kind="stable") if view.class_states[k] == state]
        shown = ", ".join(
            label(view.classes[k], 40) + ("" if presence is None else f" {probability_text(chance[k])}")
            for k in codes[:MAX_NAMES]
        )
        more = f" and {len(codes) - MAX_NAMES} more" if len(codes) > MAX_NAMES else ""
        rows.append((f"{state}: {len(codes)}", f"{shown}{more}" or "none", ""))
    name, _, _ = rows[0]
    note = "" if presence is None else "with the probability to be in the target"
    return Facts([(name, rows[0][1], note), *rows[1:]])


def probability_text(value: float) -> str:
    """Write a probability in per cent; one that is not certain is never 0% or 100%.

    Examples
    --------
    >>> probability_text(0.5), probability_text(0.9999), probability_text(0.0)
    ('50%', '>99%', '<1%')
    """
    return "<1%" if value < 0.01 else ">99%" if value > 0.99 else f"{value:.0%}"


def _suspicious_samples(view: RunView, suspects: list[int]) -> Iterator[Block]:
    """Yield samples of the classes that a warning asks to check."""
    open_row = parts.opener(view, "target")

    def cells(row: int) -> list[TableCell]:
        return [parts.class_cell(view, int(view.predicted[row])), parts.percent(view.confidence[row], 0)]

    for k in suspects[:MAX_SUSPECTS]:
        rows, count = view.least_confident([k])[:MAX_SAMPLES].tolist(), int(view.counts[k])
        part = f"{len(rows)} of {count:,}, " if count > len(rows) else ""
        caption = f"Predicted as {label(view.classes[k], 40)}: {part}the least confident first."
        block = parts.samples(view, "target", rows, open_row, ["predicted", "confidence"], cells, caption)
        yield Details(f"Samples predicted as {label(view.classes[k], 40)}", [block])


def draw_classes(axes: Axes, view: RunView) -> parts.Drawn:
    """Draw the predicted shares of the classes, the largest first."""
    order = np.argsort(-view.shares, kind="stable")
    order = order[view.shares[order] > 0][: parts.MAX_BARS]
    texts = [f"{view.counts[k]:,} samples, {view.shares[k]:.1%}" for k in order]
    drawn = parts.class_bars(axes, view, "target", view.shares, order, texts)
    for index, k in enumerate(order):
        axes.text(100 * view.shares[k], index + 0.5, f" {view.shares[k]:.1%}", va="center", color=MUTED)
    axes.set(xlabel="% of the target samples", xlim=(0, 136 * max(view.shares.max(initial=0.0), 1e-9)))
    used = int((view.shares > 0).sum())
    more = f" The {len(order)} largest of {used}." if used > len(order) else ""
    return drawn._replace(caption=f"Predicted content of the target.{drawn.caption}{more}")


def _class_table(view: RunView) -> ResultTable:
    order = [int(k) for k in np.argsort(-view.shares, kind="stable") if view.shares[k] > 0]
    rows: list[list[TableValue]] = []
    for k in order[: parts.MAX_ROWS]:
        mark = view.class_states[k]
        tone = {"present": "good", "doubtful": "warning", "absent": "muted"}[mark]
        numbers = [parts.percent(part[k]) for part in (view.shares, view.class_confidence)]
        chance = [] if view.run.presence is None else [parts.percent(view.run.presence.probability[k])]
        rows.append([parts.class_cell(view, k), int(view.counts[k]), *numbers, *chance, TableCell(mark, tone=tone)])
    chance_head = [] if view.run.presence is None else ["probability"]
    head = ["class", "samples", "share", "confidence", *chance_head, "estimate"]
    more = len(order) - len(rows)
    note = f"The {len(rows)} largest; {more} more are in {PREDICTIONS}." if more else ""
    return make_table(head, rows, "Predicted classes", note)


def _value_answer(view: RunView, notices: list[Block]) -> Section:
    known = view.predicted[np.isfinite(view.predicted)]
    tiles = [(f"{view.run.n_target:,}", "target samples", "")]
    if not len(known):
        return Section(TITLE, [Tiles(tiles), *notices])
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    tiles += [(f"{middle:.4g}", "median prediction", f"90% are between {low:.4g} and {high:.4g}"), parts.measured(view)]
    lead = f"A number is predicted for each of the {view.run.n_target:,} target samples."
    if view.accuracy is not None and view.unadapted_accuracy is not None:
        both = f"{view.accuracy:.4g}, and {view.unadapted_accuracy:.4g} without adaptation; {EVALUATION}."
        lead = f"Mean absolute error {both} {lead}"
    return Section(TITLE, [Tiles(tiles), *notices, _values_histogram(view)], lead=lead)


def _values_histogram(view: RunView) -> Picture:
    """Plot the predictions of a regression next to the weighted source labels."""
    return parts.picture("predicted-values", lambda axes: draw_values(axes, view), 3.2)


def draw_values(axes: Axes, view: RunView) -> parts.Drawn:
    """Draw the histogram of predicted values."""
    values = np.concatenate([view.predicted, view.labels])
    values = values[np.isfinite(values)]
    low, high = values.min(), values.max()
    edges = np.linspace(low, high if high > low else low + 1.0, 41)
    heights = np.histogram(view.predicted, edges)[0] / max(len(view.predicted), 1)
    axes.stairs(100 * heights, edges, fill=True, color=COLOURS["blue"], alpha=0.75, label="target predictions")
    if len(view.labels):
        weighted = np.histogram(view.labels, edges, weights=view.weights)[0]
        axes.stairs(100 * weighted, edges, color=COLOURS["orange"], linewidth=1.6, label="weighted source labels")
    axes.set(xlabel="value", ylabel="% of the samples")
    alt = f"Histogram of predictions from {np.nanmin(view.predicted):.4g} to {np.nanmax(view.predicted):.4g}"
    return parts.Drawn(alt, "Target predictions, compared with the weighted source labels.")


def run_warnings(view: RunView) -> list[Notice]:
    """Return the warnings, the most serious first."""
    notices = [*_damage(view), *_problems(view), *_training_warnings(view)]
    notices += [
        *_verdict_warning(view),
        *(_class_warnings(view) if view.classes and view.shares.any() else ()),
        *_weight_warnings(view),
    ]
    levels = ("bad", "warning", "info")
    return sorted(notices, key=lambda notice: levels.index(notice.level))


def _damage(view: RunView) -> Iterator[Notice]:
    for what, count in view.damaged.items():
        text = f"{what.capitalize()} that are not finite: {count:,}. They are left out of this page."
        yield Notice("warning", text, "The run diverged, or its files were edited: train again before you rely on it.")


def _problems(view: RunView) -> list[Notice]:
    """Return a notice about missing or damaged files of the run."""
    problems = "; ".join(view.run.problems)
    return [Notice("info", f"Parts of this page are left out or incomplete: {problems}.")] if problems else []


def _training_warnings(view: RunView) -> Iterator[Notice]:
    """Warn about collapse, drift, and plans that were not solved."""
    run = view.run
    lines = [line for line in run.history if line.get("effective_classes") is not None]
    upto = [line for line in lines if line["step"] <= run.step] or lines
    if upto:
        first, last = upto[0]["effective_classes"], upto[-1]["effective_classes"]
        fewest = min(line["effective_classes"] for line in upto[len(upto) // 2 :])
        if why := collapse_reason(last, first, "at the start"):
            text = f"Collapse: {why}."
            yield Notice("bad", text, RETRY)
        elif last < LONE:
            text = f"The predictions use {last:.2f} effective classes: nearly every sample gets the same class."
            yield Notice("warning", text, f"If the target contains more than one class, this is a collapse. {RETRY}")
        elif last > SPREAD * fewest:
            text = f"Drift: the predictions spread again over {last:.1f} effective classes, up from {fewest:.1f}."
            yield Notice("warning", text, "Use the best iterate instead of the last: --choose neighbours.")
    scores = [line for line in run.history if line.get("score") is not None]
    if len(scores) > 2 and len({line["score"] for line in scores}) == 1:
        text = f"{run.setting('choose')} gives every iterate the same score: it could not choose."
        yield Notice("info", text, "Use another validator; `warmpot methods` lists them.")
    plans = [line["plan_ok"] for line in run.history if line.get("plan_ok") is not None]
    if plans and 1 - np.mean(plans) > MIN_UNCONVERGED:
        text = f"{1 - np.mean(plans):.0%} of the logged plans did not converge."
        yield Notice("warning", text, "Raise params.eps, or set it to auto.")
    line = run.last_line
    gap, value = line.get("gap"), line.get("transport")
    if gap is not None and value is not None and gap > LARGE_RELATIVE_GAP * max(abs(value), 1e-12):
        text = f"The last plan is only proven to be within {gap:.2g} of the optimum; its cost is {value:.2g}."
        yield Notice("warning", text, "Its weights may be inaccurate; warmpot.transport can solve it more accurately.")


def _class_warnings(view: RunView) -> Iterator[Notice]:
    present, shares = view.present, view.shares
    if len(present) == 1:
        text = f"All or nearly all samples are predicted as {parts.class_names(view, present)}."
        yield Notice("warning", text, f"If the target contains more than one class, this is a collapse. {RETRY}")
    elif present and shares[present[0]] > DOMINANT_SHARE and len(present) > 2:
        text = f"{label(view.classes[present[0]], 40)} is predicted for {shares[present[0]]:.0%} of the target."
        remedy = f"Look at some of these samples: is the class that frequent? {_rows(view, present[:1])}"
        yield Notice("warning", text, remedy)
    stray = [k for k in view.absent if shares[k] > 0]
    lost = float(shares[stray].sum())
    if lost > MIN_ABSENT_SHARE:
        text = f"{lost:.1%} of the target is predicted as classes estimated absent: {parts.class_names(view, stray)}."
        remedy = f"Look at these samples: they are errors, or their classes are rare. {_rows(view, stray)}"
        yield Notice("warning", text, remedy)
    yield from _suspects(view)
    if view.weighted:
        states = view.class_states
        away = float(view.weight_shares[[k for k in view.absent if states[k] == "absent"]].sum())
        if away > MIN_ABSENT_WEIGHT:
            text = f"{away:.0%} of the training weight is on classes estimated absent."
            lower = "Lower beta (--beta 0.35), or leave it at auto; " if view.run_parameter("beta")[1] else ""
            yield Notice("warning", text, f"{lower}a lower alpha (--alpha 0.5) helps.".capitalize())


def _rows(view: RunView, codes: list[int]) -> str:
    """List samples predicted as some classes, the least confident first."""
    rows = view.least_confident(codes)
    named = [(view.name("target", row), view.row_in_data("target", row)) for row in rows[:MAX_NAMED]]
    shown = [label(name, 40) if name else str(row) for name, row in named]
    more = f" and {len(rows) - MAX_NAMED:,} more" if len(rows) > MAX_NAMED else ""
    return f"The least confident target rows: {', '.join(shown)}{more}."


def _suspects(view: RunView) -> Iterator[Notice]:
    overall, reasons = view.mean_confidence, view.suspects
    if overall < UNSURE:  # low for all classes alike: it distinguishes none
        text = f"The model is not confident: the mean confidence is {overall:.0%}."
        yield Notice("warning", text, "Another preset may adapt better: label some samples to compare them.")
    for k in list(reasons)[:MAX_SUSPECTS]:
        text = f"Suspicious class {label(view.classes[k], 40)}: {reasons[k]}."
        yield Notice("warning", text, "It may be absent: look at the samples predicted as this class, listed below.")
    if further := list(reasons)[MAX_SUSPECTS:]:
        names = parts.class_names(view, further)
        text = f"{len(further)} more suspicious classes (few or uncertain predictions): {names}."
        yield Notice("warning", text, "The table of predicted classes has their numbers.")


def _weight_warnings(view: RunView) -> Iterator[Notice]:
    if not view.weighted:
        return
    if view.effective_share < LOW_EFFECTIVE_SHARE:
        text = f"The training weight is on {view.effective_share:.1%} of the source: very few samples count."
        yield Notice("warning", text, "Raise beta (--beta 0.5), or alpha.")
    if not view.classes or not view.shares.any():
        return
    limited = [
        k for k in view.present
        if view.capped_shares[k] >= CAPPED and view.shares[k] > EXCEEDS * view.weight_shares[k]
    ]  # fmt: skip
    if limited:
        text = f"Limited by the cap: nearly all source samples of {parts.class_names(view, limited)} have the largest "
        text += "possible weight, and still less than their share of the predictions."
        remedy, (beta, fixed) = "A lower beta lets each of them count for more", view.run_parameter("beta")
        if beta is not None:
            command = f"{repeat_command(view.run)} --beta {max(0.7 * beta, 0.01):.2g}"
            remedy += f" ({'now' if fixed else 'estimated'} {beta:.2g}): {command}"
        yield Notice("info", text, remedy if beta is not None else f"{remedy}.")
