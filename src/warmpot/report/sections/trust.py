"""How far the predictions can be trusted: proofs, validators, measurements, baselines, candidates of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from warmpot._files import parse_json, read_json, read_text
from warmpot._run_files import PREDICTIONS, STUDY, TRIALS
from warmpot._tables import TableCell, TableValue
from warmpot.bounds import BoundReport
from warmpot.report.page import EVALUATION, Block, Facts, Section, Text, make_table
from warmpot.report.run_view import VALIDATORS, RunView
from warmpot.report.sections.bounds import headline
from warmpot.report.sections.parts import calibration_words, measured, percent, validator_name
from warmpot.train.finished_run import UNKNOWN
from warmpot.train.run_bounds import FRESH_LABELS, LABELS
from warmpot.weights.calibration import ACCEPT

__all__ = ["baselines_section", "candidates_section", "trust_section"]

MAX_CANDIDATES = 30


def trust_section(view: RunView, bounds: Mapping[str, BoundReport], baselines: Mapping[str, RunView]) -> Section:
    """Show what is proven, what validators report and what was measured; `baselines` are runs on the same data."""
    rows = [("proven", *_proven(view, bounds))] if view.classes else []
    for name, score in view.scores.items():
        compared = [f"{baseline}: {b.scores[name]:.2f}" for baseline, b in baselines.items() if name in b.scores]
        rows.append((validator_name(name), f"{score:.2f}", "; ".join([VALIDATORS[name][1], *compared])))
    rows += _choosing_score(view)
    if view.classes and len(view.known_confidence):
        share = f"{1 - len(view.to_review) / view.run.n_target:.0%}"
        note = f"of the predictions: confidence times probability of the class is {ACCEPT:.0%} or more; "
        note += f"{calibration_words(view.run)}. "
        rows.append(("to accept", share, f"{note}The others are marked in the column review of {PREDICTIONS}"))
    rows.append(("measured", *_measured(view)))
    blocks: list[Block] = [Facts(rows)]
    if view.classes and not view.scores:
        blocks.append(Text("Validators need the data of the run, which was not available for this page."))
    lead = "Without target labels, the accuracy on the target is unknown. What is known instead:"
    if view.truth is not None:
        lead = "What is known without target labels, and the accuracy that they give:"
    return Section("How far to trust it", blocks, lead=lead)


def _proven(view: RunView, bounds: Mapping[str, BoundReport]) -> tuple[str, str]:
    valid = {name: bound for name, bound in bounds.items() if not bound.needs_fixed_features or not view.run.adapted}
    if not valid:
        return "not computed", "the section What can be proven shows the command"
    name = headline(valid) or min(valid, key=lambda which: valid[which].total)
    total = valid[name].total
    if total >= 1:
        return "nothing", f"the computable part of the best bound ({name}) is {total:.2f}, but a loss is at most 1"
    by_labels, new = name in (FRESH_LABELS, LABELS), valid[name].confidence is not None
    meaning = "M is the share of samples matched with another class" if by_labels else "that term needs target labels"
    text = f"on {'new' if new else 'these'} target samples ({name}, loss {valid[name].loss}); {meaning}"
    sure = f", with probability {valid[name].confidence:g}" if new else ""
    return f"target loss at most {total:.2f} + {'M' if by_labels else 'an unknown term'}{sure}", text


def _choosing_score(view: RunView) -> Iterator[tuple[str, str, str]]:
    """Yield the score of the validator that chose the iterate, compared with the first iterate."""
    lines = [line for line in view.run.history if line.get("score") is not None]
    if not lines:
        return
    first, unit = lines[0], view.run.unit
    result = next((line for line in lines if line["step"] == view.run.step), lines[-1])
    better = "not better than" if result["score"] <= first["score"] else "better than"
    note = f"{unit} {result['step']}, {better} {first['score']:.3g} at {unit} {first['step']}, the first; "
    note += "comparable within this run only"
    name = view.run.setting("choose")
    name = "validator" if name == UNKNOWN else validator_name(name)
    yield f"{name} (chose the iterate)", f"{result['score']:.3g}", note


def _measured(view: RunView) -> tuple[str, str]:
    value, name, note = measured(view)
    if view.truth is None:
        return value, f"{note}: label some target samples and measure the accuracy before you rely on it"
    note, known = f"{name}, {note}", view.truth.known
    if not known.all():
        correct = float((view.predicted[known] == view.truth.yt[known]).mean())
        note += f"; {int((~known).sum())} samples have no label, or one that the source does not have, and count as "
        note += f"errors: without them {correct:.1%}"
    return value, note


def baselines_section(view: RunView, baselines: Mapping[str, RunView]) -> Section | None:
    """Compare the run with runs on the same data, given by name, the first of which is without adaptation."""
    if not baselines:
        return None
    runs = {**baselines, view.run.setting("preset"): view}
    labelled = view.truth is not None
    first = next(iter(runs.values())).accuracy
    rows: list[list[TableValue]] = []
    for name, one in runs.items():
        numbers: list[TableValue] = [None if one.accuracy is None else percent(one.accuracy), None] if labelled else []
        if labelled and rows and one.accuracy is not None and first is not None:
            gain = one.accuracy - first
            numbers[1] = TableCell(f"{100 * gain:+.1f}", value=gain)
        scores = [one.scores.get(key) for key in VALIDATORS]
        numbers += [len(one.present), *(None if s is None else TableCell(f"{s:.3f}", value=s) for s in scores)]
        rows.append([TableCell(name, bold=one is view), one.run.setting("method"), *numbers])
    names = [name for name, _ in VALIDATORS.values()]
    head = ["preset", "method", *(["accuracy", "gain"] if labelled else []), "classes estimated present", *names]
    note = f"Accuracy: {EVALUATION}. " if labelled else ""
    note += f"{' and '.join(names).capitalize()}: validators, computed without labels; 0 is chance, 1 the maximum."
    return Section(f"Compared with {' and '.join(baselines)}", [make_table(head, rows, "Runs on the same data", note)])


def candidates_section(folder: Path | None) -> Section | None:
    """Show what the sweep in a folder chose, and by how much, among its candidates; None if there is no sweep in it."""
    from warmpot.select.space import Space

    if folder is None:
        return None
    try:
        study = read_json(folder / STUDY)
        trials = [parse_json(line) for line in read_text(folder / TRIALS).splitlines()]
        space = Space(study["space"])
        trials.sort(key=lambda trial: (trial["problem"] is not None, -(trial["score"] or 0.0), not trial["point"]))
        scored = [trial for trial in trials if trial["problem"] is None and trial["score"] is not None]
        excluded, best = len(scored) < len(trials), scored[0]["score"] if scored else None
        rows = [
            [TableCell(space.name(trial["point"]), bold=scored[:1] == [trial]), *_score_cells(trial["score"], best),
             trial["classes"], trial["step"], trial["seconds"],
             *([TableCell(trial["problem"] or "", tone="warning")] if excluded else [])]
            for trial in trials[:MAX_CANDIDATES]
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    more = f" {len(trials) - len(rows)} more are in {TRIALS}." if len(trials) > len(rows) else ""
    validator = str(study.get("validator", "score"))
    head = ["candidate", validator, "less than the best", "effective classes", "iterate", "seconds"]
    head += ["excluded because"] if excluded else []
    note = f"{VALIDATORS[validator][0].capitalize()}: {VALIDATORS[validator][1]}." if validator in VALIDATORS else ""
    lead = _chosen([(space.name(trial["point"]), trial["score"]) for trial in scored], validator, len(trials))
    return Section("What the sweep chose", [make_table(head, rows, note=f"{note}{more}".strip())], lead=lead)


def _score_cells(score: float | None, best: float | None) -> list[TableValue]:
    """Return the cells of a score, and of its distance from the best."""
    if score is None:
        return [None, None]
    less = TableCell(f"{best - score:.3f}", value=best - score) if best is not None and score < best else None
    return [TableCell(f"{score:.3f}", value=score), less]


def _chosen(ranked: Sequence[tuple[str, float]], validator: str, tried: int) -> str:
    """Say what was chosen, and by how much, from names and scores, the best first."""
    from warmpot.select.study import describe_lead

    if not ranked:
        return f"None of the {tried} candidates could be chosen."
    name, best = ranked[0]
    lead = f"Chosen: {name}, by {validator} ({best:.3f}), from {tried} candidates, without target labels."
    return f"{lead} {describe_lead(ranked)}".strip()
