"""The run compared with others: baselines on the same data, and the candidates of a sweep."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmpot._run_files import STUDY, TRIALS
from warmpot.report.page import Cell, Section, Table, Value
from warmpot.report.run_view import RunView
from warmpot.report.sections.wording import EVALUATION, VALIDATORS, percent

__all__ = ["baselines_section", "candidates_section"]

MOST_CANDIDATES = 30


def baselines_section(view: RunView, baselines: Mapping[str, RunView]) -> Section | None:
    """Compare the run with runs on the same data, given by name, the first of which is without adaptation."""
    if not baselines:
        return None
    runs = {**baselines, view.run.setting("preset"): view}
    labelled = view.truth is not None
    first = next(iter(runs.values())).accuracy
    rows: list[list[Value]] = []
    for name, one in runs.items():
        scores = one.scores(*VALIDATORS)
        measured: list[Any] = []
        if labelled:
            gain = None if one.accuracy is None or first is None else one.accuracy - first
            measured = [None if one.accuracy is None else percent(one.accuracy)]
            measured.append(None if gain is None or not rows else Cell(f"{100 * gain:+.1f}", sort=gain))
        numbers = [Cell(f"{scores[key]:.3f}", sort=scores[key]) if key in scores else None for key in VALIDATORS]
        rows.append([Cell(name, bold=one is view), one.run.setting("method"), *measured, len(one.present), *numbers])
    names = [name for name, _ in VALIDATORS.values()]
    head = ["preset", "method", *(["accuracy", "gain"] if labelled else []), "classes estimated present", *names]
    note = f"Accuracy: {EVALUATION}. " if labelled else ""
    note += f"{' and '.join(names).capitalize()}: validators, computed without labels; 0 is chance, 1 the maximum."
    return Section(f"Compared with {' and '.join(baselines)}", [Table(head, rows, "Runs on the same data", note=note)])


def candidates_section(folder: Path | None) -> Section | None:
    """List the candidates of the sweep in a folder; None if there is no sweep in it."""
    from warmpot.select.space import Space

    if folder is None:
        return None
    try:
        study = json.loads((folder / STUDY).read_text(encoding="utf-8"))
        lines = (folder / TRIALS).read_text(encoding="utf-8").splitlines()
        trials, space = [json.loads(line) for line in lines], Space(study["space"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    trials.sort(key=lambda trial: (trial["problem"] is not None, -(trial["score"] or 0.0)))
    rows = [
        [space.name(trial["point"]), trial["score"], trial["classes"], trial["step"], trial["seconds"],
         Cell(trial["problem"] or "", tone="warning")]
        for trial in trials[:MOST_CANDIDATES]
    ]  # fmt: skip
    more = f"{len(trials) - len(rows)} more are in {TRIALS}." if len(trials) > len(rows) else ""
    validator = str(study.get("validator", "score"))
    head = ["candidate", validator, "effective classes", "iterate", "seconds", "excluded because"]
    lead = f"{len(trials)} candidates were tried; {validator} chose one, without target labels."
    return Section("What the sweep tried", [Table(head, rows, note=more)], lead=lead)
