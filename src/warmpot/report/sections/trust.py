"""How far the predictions can be trusted: what is proven, what validators report, what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from warmpot.bounds import BoundReport
from warmpot.report.page import Block, Facts, Section, Text
from warmpot.report.run_view import RunView
from warmpot.report.sections.wording import VALIDATORS, measured, validator_name
from warmpot.train.finished_run import UNKNOWN

__all__ = ["trust_section"]


def trust_section(view: RunView, bounds: Mapping[str, BoundReport], baselines: Mapping[str, RunView]) -> Section:
    """Show what is proven, what validators report and what was measured; `baselines` are runs on the same data."""
    rows = [("proven", *_proven(view, bounds))] if view.classes else []
    scores = view.scores(*VALIDATORS)
    for name, score in scores.items():
        others = {baseline: other.scores(name) for baseline, other in baselines.items()}
        compared = [f"{baseline}: {other[name]:.2f}" for baseline, other in others.items() if name in other]
        rows.append((validator_name(name), f"{score:.2f}", "; ".join([VALIDATORS[name][1], *compared])))
    rows += _choosing_score(view)
    if view.classes and len(view.known_confidence):
        share = f"{(view.known_confidence >= 0.9).mean():.0%}"
        rows.append(("confident predictions", share, "of the target have a confidence of 90% or more; not calibrated"))
    rows.append(("measured", *_measured(view)))
    blocks: list[Block] = [Facts(rows)]
    if view.classes and not scores:
        blocks.append(Text("Validators need the data of the run, which was not available for this page."))
    lead = "Without target labels, the accuracy on the target is unknown. What is known instead:"
    return Section("How far to trust it", blocks, lead=lead)


def _proven(view: RunView, bounds: Mapping[str, BoundReport]) -> tuple[str, str]:
    """Return what the best valid bound proves."""
    valid = {name: bound for name, bound in bounds.items() if bound.confidence is None or not view.run.adapted}
    if not valid:
        return "not computed", "the section What can be proven shows the command"
    name = min(valid, key=lambda which: valid[which].total)
    total = valid[name].total
    if total >= 1:
        return "nothing", f"the computable part of the best bound ({name}) is {total:.2f}, but a loss is at most 1"
    text = f"({name}, loss {valid[name].loss}), plus a term that cannot be computed without target labels"
    return f"target loss at most {total:.2f}", text


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
