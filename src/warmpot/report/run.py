"""The page of one run: ``warmpot report RUN``, and what fit, demo and sweep write at their end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warmpot._checks import check_choice
from warmpot.data import Task, Truth
from warmpot.errors import InputError
from warmpot.report._run import read_run
from warmpot.report.embedding import EMBEDDINGS, pictures
from warmpot.report.page import Block, Cell, Section, Table, Text, Value, write_page
from warmpot.report.run_figures import curves
from warmpot.report.run_made import made
from warmpot.report.run_measured import bounds_of, evaluated, proven
from warmpot.report.run_weights import left_out, weights
from warmpot.report.run_words import EVALUATION, WORDS, accuracy, answer, chosen, percent, trust
from warmpot.report.seen import Seen, look

__all__ = ["PAGE", "Reported", "report_run", "reported"]

PAGE, FIGURES = "report.html", "figures"
MOST_CANDIDATES = 30


@dataclass(frozen=True)
class Reported:
    """Which run a folder stands for.

    Attributes
    ----------
    run : Path
        The run that the page is about.
    home : Path
        Where the page goes.
    beside : mapping of str to Path
        Runs on the same data to compare it with.
    """

    run: Path
    home: Path
    beside: Mapping[str, Path] = field(default_factory=dict)


def reported(folder: Path | str) -> Reported:
    """Say which run the folder of a fit, a demo or a sweep stands for."""
    folder = Path(folder)
    if (folder / "demo.json").is_file():
        try:
            names = list(json.loads((folder / "demo.json").read_text(encoding="utf-8"))["accuracy"])
            *others, last = [name for name in names if (folder / name).is_dir()]
        except (OSError, ValueError, KeyError, TypeError) as error:
            got, remedy = "a demo that did not finish", "Run it again: warmpot demo"
            raise InputError(str(folder), got=got, allowed="a finished demo", remedy=remedy) from error
        return Reported(folder / last, folder, {name: folder / name for name in others})
    if (folder / "study.json").is_file():
        return Reported(folder / "best", folder)
    return Reported(folder, folder)


def report_run(
    run: Path | str,
    task: Task | None = None,
    truth: Truth | None = None,
    *,
    out: Path | str | None = None,
    embedding: str = "pca",
    figures: bool = True,
    missing: str = "",
) -> Path:
    """Write the page of a run: one HTML file that needs nothing else.

    Parameters
    ----------
    run : path
        Folder that `warmpot fit`, `demo` or `sweep` wrote; of a bench, its own page is written.
    task : Task, optional
        What it was trained on. Without it, or with other data, the page holds what the folder holds, and says so.
    truth : Truth, optional
        Labels of the target, for evaluation only: accuracy, confusion, which classes are truly shared.
    out : path, optional
        The file. Default: ``report.html`` in the folder.
    embedding : "pca" or "tsne"
        How features are drawn.
    figures : bool
        Write every figure as PNG and SVG into the folder ``figures`` beside the page, too.
    missing : str
        Why there is no task, for the page to say.

    Returns
    -------
    Path
        The file.
    """
    check_choice("embedding", embedding, EMBEDDINGS)
    if (Path(run) / "results.jsonl").is_file():
        from warmpot.report.grid_page import write_grid_page

        return Path(write_grid_page(Path(run), files=figures))
    place = reported(run)
    file = place.home / PAGE if out is None else Path(out)
    again = f"warmpot report {shlex.quote(str(place.home))}" + (
        "" if out is None else f" --out {shlex.quote(str(out))}"
    )
    seen = replace(look(read_run(place.run), task, truth, missing), again=again)
    beside = {name: look(read_run(folder), task, truth) for name, folder in place.beside.items()}
    bounds = bounds_of(seen)
    sections = [
        answer(seen),
        trust(seen, bounds[0], beside),
        *([_compared(seen, beside)] if beside else []),
        *([_candidates(place.home)] if (place.home / "study.json").is_file() else []),
        weights(seen),
        left_out(seen),
        _training(seen),
        _embedding(seen, embedding),
        evaluated(seen),
        proven(seen, bounds),
        made(seen),
    ]
    title = str(seen.run.facts.get("title") or f"{seen.run.file('source')} -> {seen.run.file('target')}")
    title = title.replace(" -> ", " \N{RIGHTWARDS ARROW} ")
    subtitle = f"{seen.run.setting('method')}, preset {seen.run.setting('preset')}, seed {seen.run.seed}"
    folder = file.parent / FIGURES if figures else None
    write_page(file, title=title, subtitle=subtitle, sections=[part for part in sections if part], figures=folder)
    return file


def _training(seen: Seen) -> Section | None:
    """Draw what was logged."""
    drawn = curves(seen)
    if not drawn:
        return None
    lead = f"The result is {seen.run.unit} {seen.run.step}, {chosen(seen.run)}."
    return Section("Training", list(drawn), lead=lead)


def _embedding(seen: Seen, how: str) -> Section | None:
    """Draw both domains in a plane."""
    title, drawn = "Source and target in a plane", pictures(seen, how)
    if not drawn:
        return None
    ways = {
        "pca": "The two main axes of both domains together.",
        "tsne": "t-SNE of both domains together: who is near is near; distances between groups mean little.",
    }
    words = (
        "Colours: class of a source sample, predicted class of a target sample." if seen.classes else "Colours: value."
    )
    sizes = " The larger a source sample, the more it counts." if seen.weighted else ""
    blocks: list[Block] = list(drawn)
    if len(drawn) == 1:
        blocks.append(Text("Of images there is no picture before the network: it is all there is."))
    return Section(title, blocks, lead=f"{ways[how]} {words}{sizes} Point at or tap a sample to see which it is.")


def _compared(seen: Seen, beside: Mapping[str, Seen]) -> Section:
    """Set the run beside others on the same data."""
    runs = {**beside, seen.run.setting("preset"): seen}
    labelled = seen.truth is not None
    head = ["preset", "method", *(["accuracy", "gain"] if labelled else []), "classes believed present"]
    head += [what for what, _ in WORDS.values()]
    first = accuracy(next(iter(runs.values())))
    rows: list[list[Value]] = []
    for name, one in runs.items():
        found, scores = accuracy(one), one.scores(*WORDS)
        measured: list[Any] = []
        if labelled and found is not None and first is not None:
            gain = Cell(f"{100 * (found - first):+.1f}", sort=found - first) if rows else None
            measured = [percent(found), gain]
        numbers = [Cell(f"{scores[which]:.3f}", sort=scores[which]) if which in scores else None for which in WORDS]
        rows.append([Cell(name, bold=one is seen), one.run.setting("method"), *measured, len(one.present), *numbers])
    note = f"Accuracy: {EVALUATION}. " if labelled else ""
    names = " and ".join(what for what, _ in WORDS.values())
    note += f"{names.capitalize()}: validators, without labels; 0 is chance, 1 the most."
    return Section("Beside no adaptation", [Table(head, rows, "Runs on the same data", note=note)])


def _candidates(home: Path) -> Section | None:
    """List what a sweep tried."""
    from warmpot.select.space import Space

    try:
        study = json.loads((home / "study.json").read_text(encoding="utf-8"))
        lines = (home / "trials.jsonl").read_text(encoding="utf-8").splitlines()
        trials, places = [json.loads(line) for line in lines], Space(study["space"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    trials.sort(key=lambda trial: (trial["problem"] is not None, -(trial["score"] or 0.0)))
    rows = [
        [places.name(trial["point"]), trial["score"], trial["classes"], trial["step"], trial["seconds"],
         Cell(trial["problem"] or "", tone="warning")]
        for trial in trials[:MOST_CANDIDATES]
    ]  # fmt: skip
    more = f"{len(trials) - len(rows)} more are in trials.jsonl." if len(trials) > len(rows) else ""
    head = ["candidate", str(study.get("validator", "score")), "classes in effect", "iterate", "seconds", "cannot win"]
    lead = f"{len(trials)} candidates were tried; {study.get('validator')} chose, without target labels."
    return Section("What the sweep tried", [Table(head, rows, note=more)], lead=lead)
