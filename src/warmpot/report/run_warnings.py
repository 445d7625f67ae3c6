"""Signs that a run is not what it seems, each with what to do about it; none of them needs target labels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from warmpot.report.page import Notice
from warmpot.report.seen import Seen
from warmpot.report.style import label
from warmpot.select.guard import collapsed
from warmpot.train.health import LONE, SPREAD

__all__ = ["named", "warnings_of"]

FEW = 0.5
"""A believed class with less than this part of the median believed share is suspicious."""
UNSURE = 0.7
"""So is one whose samples are predicted with less confidence on average, where others are not."""
APART, AT_LEAST = 2.0, 0.02
"""So is one whose shares of predictions and of source weight differ by this factor and this much."""
MOST_SUSPECTS = 4
"""Suspicious classes with a notice of their own."""
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
    found = [*_training(seen), *(_classes(seen) if seen.classes and seen.shares.any() else ()), *_weights(seen)]
    levels = ("bad", "warning", "info", "good")
    return sorted(found, key=lambda notice: levels.index(notice.level))


def _training(seen: Seen) -> Iterator[Notice]:
    """Yield collapse, drift, and plans that were not solved."""
    run = seen.run
    lines = [line for line in run.history if line.get("effective_classes") is not None]
    upto = [line for line in lines if line["step"] <= run.step] or lines
    if upto:
        first, last = upto[0]["effective_classes"], upto[-1]["effective_classes"]
        fewest = min(line["effective_classes"] for line in upto[len(upto) // 2 :])
        if why := collapsed(last, first):
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
        text = f"{run.config['choose']} scores every iterate the same: it could not choose."
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
        yield Notice("warning", text, "Look at some of these samples; is the class that frequent?")
    stray = [k for k in seen.absent if shares[k] > 0]
    lost = float(shares[stray].sum())
    if lost > STRAY:
        text = f"{lost:.1%} of the target is predicted as classes believed absent: {named(seen, stray)}."
        yield Notice("warning", text, "Look at these samples: strays, or classes that are rare.")
    yield from _suspects(seen)
    if seen.weighted:
        away = float(seen.weight_shares[seen.absent].sum())
        if away > ELSEWHERE:
            text = f"{away:.0%} of the source weight lies on classes believed absent."
            yield Notice("warning", text, "Lower beta (--beta 0.35), or leave it at auto; a lower alpha helps too.")


def _suspects(seen: Seen) -> Iterator[Notice]:
    """Yield believed classes that may not be there."""
    middle = float(np.median(seen.shares[seen.present])) if seen.present else 0.0
    overall = float(seen.confidence.mean())
    if overall < UNSURE:  # of all classes at once: then it says little of any
        text = f"The model is unsure of its predictions: their mean confidence is {overall:.0%}."
        yield Notice("warning", text, "Another preset may adapt better: compare some with `warmpot sweep`.")
    found: list[tuple[int, str]] = []
    for k in seen.present:
        share, weight = float(seen.shares[k]), float(seen.weight_shares[k])
        why: list[str] = []
        if len(seen.present) > 2 and share < FEW * middle:
            why.append(f"predicted for {share:.1%} of the target only, where others have {middle:.1%}")
        if (sure := seen.class_confidence(k)) < UNSURE <= overall:
            why.append(f"with a mean confidence of {sure:.0%}")
        low, high = sorted((share, weight))
        if seen.weighted and high > APART * low and high - low > AT_LEAST:
            why.append(f"with {weight:.1%} of the source weight against {share:.1%} of the predictions")
        if why:
            found.append((k, ", ".join(why)))
    for k, reasons in found[:MOST_SUSPECTS]:
        text = f"Suspicious class {label(seen.classes[k], 40)}: {reasons}."
        yield Notice("warning", text, "It may be absent: look at some of the samples predicted as it.")
    if further := [k for k, _ in found[MOST_SUSPECTS:]]:
        text = f"{len(further)} more suspicious classes, with few or unsure predictions: {named(seen, further)}."
        yield Notice("warning", text, "The table of predicted classes has their numbers.")


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
        now = seen.run.config["params"].get("beta")
        remedy = "A lower beta lets each of them count for more" + (f": --beta, now {now}." if now else ".")
        yield Notice("info", text, remedy)
