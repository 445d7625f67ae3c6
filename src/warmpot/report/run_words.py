"""What the page of a run says first: what the target holds, and how far that can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from warmpot.bounds import BoundReport
from warmpot.report._run import UNKNOWN, Run
from warmpot.report.page import Block, Cell, Details, Facts, Notice, Section, Table, Text, Tiles, Value
from warmpot.report.run_figures import predicted_classes, predicted_values
from warmpot.report.run_warnings import MOST_SUSPECTS, named, suspects, warnings_of
from warmpot.report.seen import Seen
from warmpot.report.style import ABSENT, label
from warmpot.report.thumbs import opener, samples, short
from warmpot.train.config import LAST

__all__ = ["EVALUATION", "WORDS", "accuracy", "answer", "chosen", "class_cell", "percent", "trust"]

EVALUATION = "by target labels, evaluation only"
MOST_ROWS = 100
"""Classes in a table; the files of the run have all."""
MOST_OPEN = 12
"""Rows of a table that is not folded."""
MOST_NAMED = 60
WORDS = {
    "neighbours": ("near samples agree", "whether near target samples are predicted alike: 0 chance, 1 always"),
    "reverse": (
        "the way back",
        "whether a classifier learned from the predictions finds the source again: 0 chance, 1 always",
    ),
}
"""Validators that are asked: what a person calls them, and what they say."""
SAMPLES = 12
"""Samples of a suspicious class that are shown."""
NEEDS_NO_CLASSES = "A target sample is always given one of the source's classes, also when it belongs to none."


def percent(share: float, digits: int = 1) -> Cell:
    """Write a share, to be sorted as a number; a sign in place of one that is not known."""
    if not math.isfinite(share):
        return Cell(ABSENT, sort=math.nan, tone="muted")
    return Cell(f"{share:.{digits}%}", sort=float(share))


def class_cell(seen: Seen, k: int) -> Cell:
    """Name a class."""
    return short(seen.classes[k])


def called(validator: str) -> str:
    """Call a validator as a person does, with the name that `--choose` takes."""
    return f"{WORDS[validator][0]} ({validator})" if validator in WORDS else validator


def chosen(run: Run) -> str:
    """Say which iterate the result is."""
    name = run.setting("choose")
    if name == UNKNOWN:
        return "how it was chosen is not recorded"
    return "the last" if name == LAST else f"the best by {called(name)}, without target labels"


def accuracy(seen: Seen) -> float | None:
    """Share of the target predicted rightly, as `warmpot fit` prints it; None without labels. Evaluation only."""
    if seen.truth is None:
        return None
    if not seen.classes:
        return float(np.abs(seen.predicted - seen.truth).mean())
    return float((seen.predicted == seen.truth).mean())


def measured(seen: Seen) -> tuple[str, str, str]:
    """Return the tile of what the target's labels say."""
    found, what = accuracy(seen), "accuracy" if seen.classes else "mean absolute error"
    if found is None:
        return "not measured", what, "no target labels were given"
    return f"{found:.1%}" if seen.classes else f"{found:.4g}", what, EVALUATION


def answer(seen: Seen) -> Section:
    """Say what the target holds, and what is odd."""
    if not seen.run.n_target:
        text = "The file predictions.csv of the run is gone."
        remedy = f"Predict again: warmpot predict {seen.run.shell_folder} DATA --out FILE"
        gaps = (
            [Notice("info", f"Parts of this page are left out: {'; '.join(seen.run.gaps)}.")] if seen.run.gaps else []
        )
        return Section("The answer", [Notice("bad", text, remedy), *gaps])
    warnings = warnings_of(seen)
    notices: list[Block] = list(warnings) or [
        Notice("good", "Nothing looks odd. That is no proof: these signs show some failures, never success.")
    ]
    if seen.missing:
        remedy = f"Name the files: {seen.again} SOURCE TARGET"
        notices.append(Notice("info", f"Parts of this page are left out: {seen.missing}.", remedy))
    if not seen.classes:
        return _answer_of_values(seen, notices)
    known, believed, doubtful = len(seen.classes), len(seen.present), suspects(seen)
    doubts = f", {len(doubtful)} doubtful" if doubtful else ""
    sure = percent(seen.mean_confidence, 0).text
    tiles = [
        (f"{seen.run.n_target:,}", "target samples", ""),
        (f"{believed} of {known}{doubts}", "classes believed present", f"{known - believed} seem absent"),
        (sure, "mean confidence", "the model's own word, not calibrated" if sure != ABSENT else "not recorded"),
        measured(seen),
    ]
    table = _classes_table(seen)
    blocks: list[Block] = [Tiles(tiles), *notices, *_looked_at(seen, list(doubtful)), predicted_classes(seen)]
    blocks += [Details(f"All {len(table.rows)} predicted classes", [table])] if len(table.rows) > MOST_OPEN else [table]
    blocks.append(Text(_absent(seen)))
    return Section("The answer", blocks, lead=_lead(seen))


def _looked_at(seen: Seen, doubtful: list[int]) -> Iterator[Block]:
    """Yield samples of the classes that a warning tells to look at."""
    open_row = opener(seen, "target")

    def cells(row: int) -> list[Cell]:
        return [class_cell(seen, int(seen.predicted[row])), percent(seen.confidence[row], 0)]

    for k in doubtful[:MOST_SUSPECTS]:
        rows, count = seen.least_sure(k, SAMPLES), int(seen.counts[k])
        part = f"{len(rows)} of {count:,}, " if count > len(rows) else ""
        caption = f"Predicted as {label(seen.classes[k], 40)}: {part}the least sure first."
        block = samples(seen, "target", rows, open_row, ["predicted", "confidence"], cells, caption)
        yield Details(f"Look at the samples predicted as {label(seen.classes[k], 40)}", [block])


def _lead(seen: Seen) -> str:
    top = seen.present[:3]
    largest = ", ".join(f"{label(seen.classes[k], 40)} ({seen.shares[k]:.0%})" for k in top)
    text = f"Each of the {seen.run.n_target:,} target samples is given one of {len(seen.classes)} classes."
    if len(seen.present) == 1:
        return f"{text} Only {largest} is believed present."
    return f"{text} {len(seen.present)} of them are believed present, most of all {largest}."


def _answer_of_values(seen: Seen, notices: list[Block]) -> Section:
    known = seen.predicted[np.isfinite(seen.predicted)]
    if not len(known):
        return Section("The answer", [Tiles([(f"{seen.run.n_target:,}", "target samples", "")]), *notices])
    low, middle, high = np.quantile(known, [0.05, 0.5, 0.95])
    tiles = [
        (f"{seen.run.n_target:,}", "target samples", ""),
        (f"{middle:.4g}", "median prediction", f"nine in ten between {low:.4g} and {high:.4g}"),
        measured(seen),
    ]
    lead = f"A number is predicted for each of the {seen.run.n_target:,} target samples."
    return Section("The answer", [Tiles(tiles), *notices, predicted_values(seen)], lead=lead)


def _classes_table(seen: Seen) -> Table:
    order = [int(k) for k in np.argsort(-seen.shares, kind="stable") if seen.shares[k] > 0]
    believed, doubtful = set(seen.present), suspects(seen)
    rows: list[list[Value]] = []
    for k in order[:MOST_ROWS]:
        mark = Cell("present", tone="good") if k in believed else Cell("stray", tone="muted")
        mark = Cell("doubtful", tone="warning") if k in doubtful else mark
        numbers = [percent(part[k]) for part in (seen.shares, seen.class_confidence, seen.source_shares)]
        rows.append([class_cell(seen, k), int(seen.counts[k]), *numbers, mark])
    head = ["class", "samples", "share", "confidence", "share of the source", "believed"]
    more = len(order) - len(rows)
    note = f"The {len(rows)} largest; {more} more are in predictions.csv." if more else ""
    return Table(head, rows, "Predicted classes", note=note)


def _absent(seen: Seen) -> str:
    if not seen.absent:
        return f"No class of the source seems absent. {NEEDS_NO_CLASSES}"
    return f"Seem absent: {named(seen, seen.absent, MOST_NAMED)}. {NEEDS_NO_CLASSES}"


def trust(seen: Seen, reports: Mapping[str, BoundReport], beside: Mapping[str, Seen]) -> Section:
    """Say what can be proven, what validators say, and what was measured."""
    rows = [("proven", *_proven(seen, reports))] if seen.classes else []
    scores = seen.scores(*WORDS)
    for name, value in scores.items():
        meaning = WORDS[name][1]
        others = {which: other.scores(*WORDS) for which, other in beside.items()}
        against = [f"{which} has {other[name]:.2f}" for which, other in others.items() if name in other]
        rows.append((called(name), f"{value:.2f}", "; ".join([meaning, *against])))
    rows += _scored(seen)
    if seen.classes and seen.run.n_target:
        known = seen.confidence[np.isfinite(seen.confidence)]
        if len(known):
            sure = f"{(known >= 0.9).mean():.0%}"
            rows.append(("sure predictions", sure, "of the target, with a confidence of 90% or more; not calibrated"))
    rows.append(("measured", *_measured_words(seen)))
    lead = "Without target labels nobody knows how well a run does there. What is known:"
    blocks: list[Block] = [Facts(rows)]
    if seen.classes and not scores:
        blocks.append(Text("Validators need the data of the run, which this page was made without."))
    return Section("How far to trust it", blocks, lead=lead)


def _proven(seen: Seen, reports: Mapping[str, BoundReport]) -> tuple[str, str]:
    """Say what the best bound proves, if anything."""
    valid = {name: report for name, report in reports.items() if report.confidence is None or not seen.run.adapted}
    if not valid:
        return "not computed", "What can be proven, below, has the command"
    name = min(valid, key=lambda which: valid[which].total)
    total = valid[name].total
    if total >= 1:
        return "nothing", f"the known part of the best bound ({name}) is {total:.2f}; a loss is never above 1 anyway"
    text = f"({name}, loss {valid[name].loss}), plus a term that only target labels could tell"
    return f"target loss at most {total:.2f}", text


def _scored(seen: Seen) -> Iterator[tuple[str, str, str]]:
    """Yield what the validator that chose the iterate says of it against the first one."""
    lines = [line for line in seen.run.history if line.get("score") is not None]
    if not lines:
        return
    first, result = lines[0], next((line for line in lines if line["step"] == seen.run.step), lines[-1])
    better = "no better than" if result["score"] <= first["score"] else "better than"
    note = f"at {result['step']}, {better} {first['score']:.3g} at {first['step']}, the first; within this run only"
    name = seen.run.setting("choose")
    yield f"{'validator' if name == UNKNOWN else called(name)} (chose the iterate)", f"{result['score']:.3g}", note


def _measured_words(seen: Seen) -> tuple[str, str]:
    value, what, note = measured(seen)
    if seen.truth is None:
        return value, f"{note}: label some samples of the target and measure, before you rely on it"
    if not seen.classes:
        return value, f"{what}, {note}"
    known = seen.truth >= 0
    note = f"{what}, {note}"
    if not known.all():
        right = float((seen.predicted[known] == seen.truth[known]).mean())
        lacks = int((~known).sum())
        note += f"; {lacks} samples have no label that the source knows and count as wrong, without them {right:.1%}"
    return value, note
