"""Warnings about a run, each with a remedy; none of them needs target labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warmpot.report.page import Notice
from warmpot.report.run_commands import repeat_command
from warmpot.report.run_view import RunView
from warmpot.report.sections.wording import class_names
from warmpot.report.style import label
from warmpot.select.candidate import collapse_reason
from warmpot.train.health import LONE, SPREAD

__all__ = ["MOST_SUSPECTS", "problem_notices", "run_warnings", "suspicious_classes"]

FEW = 0.5
"""A class with less than this share of the median share of present classes is suspicious."""
UNSURE = 0.7
"""So is one whose mean confidence is lower, if the overall mean is not."""
APART, AT_LEAST = 2.0, 0.02
"""So is one whose shares of the predictions and of the weight differ by this factor and this much."""
MOST_SUSPECTS = 3
"""Suspicious classes that get a warning of their own, and a list of samples."""
MOST_NAMED = 8
"""Samples named in a warning."""
STRAY = 0.03
"""Share of predictions on absent classes that is worth a warning."""
DOMINANT = 0.5
"""Share of a single class that is worth a warning, if there are others."""
CAPPED, EXCEEDS = 0.95, 1.2
"""The cap limits a class with this share of its samples at the cap, and this ratio of predictions to weight."""
ELSEWHERE = 0.2
"""Share of the weight on absent classes that is worth a warning."""
THIN = 0.05
"""Effective share of the source below which there is a warning."""
LOOSE = 1e-3
"""Gap of a plan, relative to its value, that is worth a warning."""
FAILED = 0.02
"""Share of plans that did not converge that is worth a warning."""
ANOTHER = "Try a lower alpha (--alpha 0.5), another preset, or better features; compare them with `warmpot sweep`."


def run_warnings(view: RunView) -> list[Notice]:
    """Return the warnings, the most serious first."""
    notices = [*_damage(view), *problem_notices(view), *_training(view)]
    notices += [*(_classes(view) if view.classes and view.shares.any() else ()), *_weights(view)]
    levels = ("bad", "warning", "info", "good")
    return sorted(notices, key=lambda notice: levels.index(notice.level))


def _damage(view: RunView) -> Iterator[Notice]:
    """Warn about values that are not finite."""
    for what, count in view.damaged.items():
        text = f"{what.capitalize()} that are not finite: {count:,}. They are left out of this page."
        yield Notice("warning", text, "The run diverged, or its files were edited: train again before you rely on it.")


def problem_notices(view: RunView) -> list[Notice]:
    """Return a notice about missing or damaged files of the run."""
    problems = "; ".join(view.run.problems)
    return [Notice("info", f"Parts of this page are left out or incomplete: {problems}.")] if problems else []


def _training(view: RunView) -> Iterator[Notice]:
    """Warn about collapse, drift, and plans that were not solved."""
    run = view.run
    lines = [line for line in run.history if line.get("effective_classes") is not None]
    upto = [line for line in lines if line["step"] <= run.step] or lines
    if upto:
        first, last = upto[0]["effective_classes"], upto[-1]["effective_classes"]
        fewest = min(line["effective_classes"] for line in upto[len(upto) // 2 :])
        if why := collapse_reason(last, first):
            text = f"Collapse: {why.replace('those of the reference', 'at the start')}."
            yield Notice("bad", text, ANOTHER)
        elif last < LONE:
            text = f"The predictions use {last:.2f} effective classes: nearly every sample gets the same class."
            yield Notice("warning", text, f"If the target contains more than one class, this is a collapse. {ANOTHER}")
        elif last > SPREAD * fewest:
            text = f"Drift: the predictions spread again over {last:.1f} effective classes, after {fewest:.1f}."
            yield Notice("warning", text, "Use the best iterate instead of the last: --choose neighbours.")
    scores = [line for line in run.history if line.get("score") is not None]
    if len(scores) > 2 and len({line["score"] for line in scores}) == 1:
        text = f"{run.setting('choose')} gives every iterate the same score: it could not choose."
        yield Notice("info", text, "Use another validator; `warmpot methods` lists them.")
    plans = [line["plan_ok"] for line in run.history if line.get("plan_ok") is not None]
    if plans and 1 - np.mean(plans) > FAILED:
        text = f"{1 - np.mean(plans):.0%} of the logged plans did not converge."
        yield Notice("warning", text, "Raise params.eps, or set it to auto.")
    line = run.last_line
    gap, value = line.get("gap"), line.get("transport")
    if gap is not None and value is not None and gap > LOOSE * max(abs(value), 1e-12):
        text = f"The last plan is only proven to be within {gap:.2g} of the optimum; its cost is {value:.2g}."
        yield Notice("warning", text, "Its weights may be inaccurate; warmpot.transport can solve it more accurately.")


def _classes(view: RunView) -> Iterator[Notice]:
    """Warn about the predicted classes."""
    present, shares = view.present, view.shares
    if len(present) == 1:
        text = f"All or nearly all samples are predicted as {class_names(view, present)}."
        yield Notice("warning", text, f"If the target contains more than one class, this is a collapse. {ANOTHER}")
    elif present and shares[present[0]] > DOMINANT and len(present) > 2:
        text = f"{label(view.classes[present[0]], 40)} is predicted for {shares[present[0]]:.0%} of the target."
        remedy = f"Look at some of these samples: is the class that frequent? {_rows(view, present[:1])}"
        yield Notice("warning", text, remedy)
    stray = [k for k in view.absent if shares[k] > 0]
    lost = float(shares[stray].sum())
    if lost > STRAY:
        text = f"{lost:.1%} of the target is predicted as classes estimated absent: {class_names(view, stray)}."
        remedy = f"Look at these samples: they are errors, or their classes are rare. {_rows(view, stray)}"
        yield Notice("warning", text, remedy)
    yield from _suspects(view)
    if view.weighted:
        away = float(view.weight_shares[view.absent].sum())
        if away > ELSEWHERE:
            text = f"{away:.0%} of the training weight is on classes estimated absent."
            yield Notice("warning", text, "Lower beta (--beta 0.35), or leave it at auto; a lower alpha also helps.")


def _rows(view: RunView, codes: list[int]) -> str:
    """List samples predicted as some classes, the least confident first."""
    rows = view.least_confident(codes)
    shown = [label(view.name("target", row), 40) if view.name("target", row) else str(row) for row in rows[:MOST_NAMED]]
    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    return f"The least confident target rows: {', '.join(shown)}{more}."


def suspicious_classes(view: RunView) -> dict[int, str]:
    """Return classes estimated present that may be absent, each with the reason, the largest first."""
    if not view.present:
        return {}
    middle, overall = float(np.median(view.shares[view.present])), view.mean_confidence
    reasons: dict[int, str] = {}
    for k in view.present:
        share, weight = float(view.shares[k]), float(view.weight_shares[k])
        reason: list[str] = []
        if len(view.present) > 2 and share < FEW * middle:
            reason.append(f"predicted for only {share:.1%} of the target; the median class has {middle:.1%}")
        if (sure := float(view.class_confidence[k])) < UNSURE <= overall:
            reason.append(f"with a mean confidence of {sure:.0%}")
        low, high = sorted((share, weight))
        if view.weighted and high > APART * low and high - low > AT_LEAST:
            reason.append(f"with {weight:.1%} of the training weight but {share:.1%} of the predictions")
        if reason:
            reasons[k] = ", ".join(reason)
    return reasons


def _suspects(view: RunView) -> Iterator[Notice]:
    """Warn about classes estimated present that may be absent."""
    overall, reasons = view.mean_confidence, suspicious_classes(view)
    if overall < UNSURE:  # low for all classes alike: it distinguishes none
        text = f"The model is not confident: the mean confidence is {overall:.0%}."
        yield Notice("warning", text, "Another preset may adapt better: compare several with `warmpot sweep`.")
    for k in list(reasons)[:MOST_SUSPECTS]:
        text = f"Suspicious class {label(view.classes[k], 40)}: {reasons[k]}."
        yield Notice("warning", text, "It may be absent: look at the samples predicted as this class, listed below.")
    if further := list(reasons)[MOST_SUSPECTS:]:
        text = f"{len(further)} more suspicious classes (few or uncertain predictions): {class_names(view, further)}."
        yield Notice("warning", text, "The table of predicted classes has their numbers.")


def _weights(view: RunView) -> Iterator[Notice]:
    """Warn about the training weights."""
    if not view.weighted:
        return
    if view.effective_share < THIN:
        text = f"The training weight is on {view.effective_share:.1%} of the source: very few samples count."
        yield Notice("warning", text, "Raise beta (--beta 0.5), or alpha.")
    if not view.classes or not view.shares.any():
        return
    limited = [
        k for k in view.present
        if view.capped_shares[k] >= CAPPED and view.shares[k] > EXCEEDS * view.weight_shares[k]
    ]  # fmt: skip
    if limited:
        text = f"Limited by the cap: nearly all source samples of {class_names(view, limited)} have the largest "
        text += "possible weight, and still less than their share of the predictions."
        remedy, setting = "A lower beta lets each of them count for more", view.run.params.get("beta")
        beta, how = view.run.logged("beta"), "estimated"
        if isinstance(setting, int | float):
            beta, how = float(setting), "now"
        if beta is not None:
            command = f"{repeat_command(view.run, full_paths=True)} --beta {max(0.7 * beta, 0.01):.2g}"
            remedy += f" ({how} {beta:.2g}): {command}"
        yield Notice("info", text, remedy if beta is not None else f"{remedy}.")
