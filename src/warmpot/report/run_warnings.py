"""Signs that a run is not what it seems, each with what to do about it; none of them needs target labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warmpot.report._run import repeat_command
from warmpot.report.page import Notice
from warmpot.report.seen import Seen
from warmpot.report.style import label
from warmpot.select.choice import collapse_reason
from warmpot.train.health import LONE, SPREAD
from warmpot.weights import estimate_beta

__all__ = ["MOST_SUSPECTS", "named", "suspects", "warnings_of"]

FEW = 0.5
"""A believed class with less than this part of the median believed share is suspicious."""
UNSURE = 0.7
"""So is one whose samples are predicted with less confidence on average, where others are not."""
APART, AT_LEAST = 2.0, 0.02
"""So is one whose shares of predictions and of source weight differ by this factor and this much."""
MOST_SUSPECTS = 3
"""Suspicious classes with a notice of their own, and samples to look at."""
MOST_NAMED = 8
"""Samples that a notice names."""
MOST_COUNTED = 2000
"""Predictions that beta is read off again."""
STRAY = 0.03
"""Share of predictions on classes believed absent that is worth a warning."""
DOMINANT = 0.5
"""A class with more of the target than this is too large, if another is believed present."""
BOUND_CLASS, SHORT = 0.95, 1.2
"""A class with so many samples at the cap, and predicted so many times its weight, is held back by the cap."""
ELSEWHERE = 0.2
"""Weight on classes believed absent that is worth a warning."""
THIN = 0.05
"""Weights that sit on a smaller part of the source than this."""
LOOSE = 1e-3
"""Gap of a plan, as a part of its value, that is worth a warning."""
FAILED = 0.02
"""Part of the batches' plans that did not converge which is worth a warning."""
ANOTHER = "Try a lower alpha (--alpha 0.5), another preset, or better features; compare them with `warmpot sweep`."


def named(seen: Seen, codes: list[int], most: int = 12) -> str:
    """Name classes, on one line."""
    more = f" and {len(codes) - most} more" if len(codes) > most else ""
    return ", ".join(label(seen.classes[k], 40) for k in codes[:most]) + more


def warnings_of(seen: Seen) -> list[Notice]:
    """Return what is odd about a run, the worst first."""
    found = [*_damage(seen), *_training(seen)]
    found += [*(_classes(seen) if seen.classes and seen.shares.any() else ()), *_weights(seen)]
    levels = ("bad", "warning", "info", "good")
    return sorted(found, key=lambda notice: levels.index(notice.level))


def _damage(seen: Seen) -> Iterator[Notice]:
    """Yield what the folder does not say, and numbers that are none."""
    for what, count in seen.damaged.items():
        text = f"{what.capitalize()} that are no finite numbers: {count:,}. They are left out of this page."
        yield Notice(
            "warning", text, "The run diverged, or its files were changed: train it anew before you rely on it."
        )
    if seen.run.gaps:
        yield Notice("info", f"Parts of this page are left out: {'; '.join(seen.run.gaps)}.")


def _training(seen: Seen) -> Iterator[Notice]:
    """Yield collapse, drift, and plans that were not solved."""
    run = seen.run
    lines = [line for line in run.history if line.get("effective_classes") is not None]
    upto = [line for line in lines if line["step"] <= run.step] or lines
    if upto:
        first, last = upto[0]["effective_classes"], upto[-1]["effective_classes"]
        fewest = min(line["effective_classes"] for line in upto[len(upto) // 2 :])
        if why := collapse_reason(last, first):
            text = f"Collapse: {why.replace('those of the reference', 'at the start')}."
            yield Notice("bad", text, ANOTHER)
        elif last < LONE:
            text = f"The predictions use {last:.2f} classes in effect: nearly every sample is given the same one."
            yield Notice("warning", text, f"If the target holds more than one class, this is a collapse. {ANOTHER}")
        elif last > SPREAD * fewest:
            text = f"Drift: predictions spread over {last:.1f} classes in effect again, after {fewest:.1f}."
            yield Notice("warning", text, "Keep the best iterate in place of the last: --choose neighbours.")
    scores = [line for line in run.history if line.get("score") is not None]
    if len(scores) > 2 and len({line["score"] for line in scores}) == 1:
        text = f"{run.setting('choose')} scores every iterate the same: it could not choose."
        yield Notice("info", text, "Choose by another validator; `warmpot methods` lists them.")
    plans = [line["plan_ok"] for line in run.history if line.get("plan_ok") is not None]
    if plans and 1 - np.mean(plans) > FAILED:
        text = f"{1 - np.mean(plans):.0%} of the logged plans did not converge."
        yield Notice("warning", text, "Raise params.eps, or set it to auto.")
    line = run.signs
    gap, value = line.get("gap"), line.get("transport")
    if gap is not None and value is not None and gap > LOOSE * max(abs(value), 1e-12):
        text = f"The last plan is only proven to be within {gap:.2g} of the best one, of cost {value:.2g}."
        yield Notice(
            "warning", text, "Read its weights with care; warmpot.transport solves it further, with more time."
        )


def _classes(seen: Seen) -> Iterator[Notice]:
    """Yield what is odd about the predicted classes."""
    present, shares = seen.present, seen.shares
    if len(present) == 1:
        text = f"Every sample, or nearly, is predicted as {named(seen, present)}."
        yield Notice("warning", text, f"If the target holds more than one class, this is a collapse. {ANOTHER}")
    elif present and shares[present[0]] > DOMINANT and len(present) > 2:
        text = f"{label(seen.classes[present[0]], 40)} is predicted for {shares[present[0]]:.0%} of the target."
        remedy = f"Look at some of these samples; is the class that frequent? {_rows(seen, present[:1])}"
        yield Notice("warning", text, remedy)
    stray = [k for k in seen.absent if shares[k] > 0]
    lost = float(shares[stray].sum())
    if lost > STRAY:
        text = f"{lost:.1%} of the target is predicted as classes believed absent: {named(seen, stray)}."
        remedy = f"Look at these samples: strays, or classes that are rare. {_rows(seen, stray)}"
        yield Notice("warning", text, remedy)
    yield from _suspects(seen)
    if seen.weighted:
        away = float(seen.weight_shares[seen.absent].sum())
        if away > ELSEWHERE:
            text = f"{away:.0%} of the source weight lies on classes believed absent."
            yield Notice("warning", text, "Lower beta (--beta 0.35), or leave it at auto; a lower alpha helps too.")


def _rows(seen: Seen, codes: list[int]) -> str:
    """Name samples predicted as some classes, the least sure first."""
    rows = np.flatnonzero(np.isin(seen.predicted, codes))
    rows = rows[np.argsort(seen.confidence[rows], kind="stable")]
    known = [label(seen.name("target", row), 40) if seen.name("target", row) else str(row) for row in rows[:MOST_NAMED]]
    more = f" and {len(rows) - MOST_NAMED:,} more" if len(rows) > MOST_NAMED else ""
    return f"The least sure are the target rows {', '.join(known)}{more}."


def suspects(seen: Seen) -> dict[int, str]:
    """Return classes believed present that may not be there, and why, the largest first."""
    if not seen.present:
        return {}
    middle, overall = float(np.median(seen.shares[seen.present])), seen.mean_confidence
    found: dict[int, str] = {}
    for k in seen.present:
        share, weight = float(seen.shares[k]), float(seen.weight_shares[k])
        why: list[str] = []
        if len(seen.present) > 2 and share < FEW * middle:
            why.append(f"predicted for {share:.1%} of the target only, where others have {middle:.1%}")
        if (sure := float(seen.class_confidence[k])) < UNSURE <= overall:
            why.append(f"with a mean confidence of {sure:.0%}")
        low, high = sorted((share, weight))
        if seen.weighted and high > APART * low and high - low > AT_LEAST:
            why.append(f"with {weight:.1%} of the source weight against {share:.1%} of the predictions")
        if why:
            found[k] = ", ".join(why)
    return found


def _suspects(seen: Seen) -> Iterator[Notice]:
    """Yield believed classes that may not be there."""
    overall, found = seen.mean_confidence, suspects(seen)
    if overall < UNSURE:  # of all classes at once: then it says little of any
        text = f"The model is unsure of its predictions: their mean confidence is {overall:.0%}."
        yield Notice("warning", text, "Another preset may adapt better: compare some with `warmpot sweep`.")
    for k in list(found)[:MOST_SUSPECTS]:
        text = f"Suspicious class {label(seen.classes[k], 40)}: {found[k]}."
        yield Notice("warning", text, "It may be absent: look at the samples predicted as it, which are listed below.")
    if further := list(found)[MOST_SUSPECTS:]:
        text = f"{len(further)} more suspicious classes, with few or unsure predictions: {named(seen, further)}."
        yield Notice("warning", text, "The table of predicted classes has their numbers.")


def _beta(seen: Seen) -> tuple[float | None, str]:
    """Return beta of the run and how it came about; "auto" is read off the predictions again if it was not logged."""
    said = seen.run.params.get("beta")
    if isinstance(said, int | float):
        return float(said), f"now {said:g}"
    if said != "auto":
        return None, ""
    logged = [line["beta"] for line in seen.run.history if line["step"] <= seen.run.step and line.get("beta")]
    drawn = np.random.default_rng(0).permutation(seen.predicted)[:MOST_COUNTED]
    found = float(logged[-1] if logged else estimate_beta(np.eye(len(seen.classes))[drawn], seen.labels))
    return found, f"auto gave {found:.2g}"


def _weights(seen: Seen) -> Iterator[Notice]:
    """Yield what is odd about the weights of the source."""
    if not seen.weighted:
        return
    if seen.effective < THIN:
        text = f"The weights sit on {seen.effective:.1%} of the source: a few samples stand for all of it."
        yield Notice("warning", text, "Raise beta (--beta 0.5), or alpha.")
    if not seen.classes or not seen.shares.any():
        return
    full = np.bincount(seen.labels, seen.at_cap, minlength=len(seen.classes)) / np.maximum(
        np.bincount(seen.labels, minlength=len(seen.classes)), 1
    )
    held = [k for k in seen.present if full[k] >= BOUND_CLASS and seen.shares[k] > SHORT * seen.weight_shares[k]]
    if held:
        text = (
            f"Held back by the cap: nearly all source samples of {named(seen, held)} have the largest weight there is,"
        )
        text += " and still less than their share of the predictions."
        now, how = _beta(seen)
        remedy = "A lower beta lets each of them count for more."
        if now is not None:
            command = f"{repeat_command(seen.run, whole=True)} --beta {max(0.7 * now, 0.01):.2g}"
            remedy = f"A lower beta ({how}) lets each of them count for more: {command}"
        yield Notice("info", text, remedy)
