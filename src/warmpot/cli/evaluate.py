"""``warmpot evaluate``: the accuracy of a finished run from a few labels."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from warmpot._files import read_csv, read_json, write_csv, write_text
from warmpot._run_files import EVALUATION, HOLDOUT, MODEL_FACTS, PREDICTIONS, TO_LABEL
from warmpot.cli import _flags
from warmpot.cli._shared import check_out_file, messages, quoted, show, table_grid
from warmpot.errors import InputError, WarmpotWarning, listing

__all__ = ["evaluate"]

STRATUM = "stratum"
"""The column of to_label.csv that says that its samples were not drawn evenly."""
LESS = "less certain"
FORM = "CSV file with columns row (of predictions.csv or holdout.csv) or name, and label. [default: write to_label.csv]"
LABEL = Annotated[str, Option(metavar="COLUMN", help="Labels in LABELS.")]
IDS = Annotated[
    str | None,
    Option("--id", metavar="COLUMN", help="Ids of the samples, or key of a .npz file. [default: row or name]"),
]
Columns = dict[str, tuple[str, ...]]
LABELS = Annotated[Path | None, Argument(metavar="LABELS", help=FORM)]


def evaluate(
    run: _flags.RUN,
    labels: LABELS = None,
    number: Annotated[int, Option(help="Samples to draw for to_label.csv.")] = 50,
    delta: Annotated[float, Option(help="Probability with which an interval may fail.")] = 0.05,
    seed: Annotated[int, Option(help="Of the draw.")] = 0,
    label: LABEL = "label",
    ids: IDS = None,
    out: Annotated[Path | None, Option("--out", "-o", help="File to write. [default: in RUN]")] = None,
    quiet: _flags.QUIET = False,
) -> None:
    """Estimate the accuracy of a finished RUN from a few LABELS.

    Without LABELS it draws samples to label, and writes them into to_label.csv: fill in the column label, and give that
    file as LABELS. Any other file must hold a random part of the target, or of the samples that were held out
    (holdout.csv): of these there is also an interval for new samples. Writes evaluation.json.
    """
    import numpy as np

    from warmpot.select.few_labels import accuracy_intervals, draw_to_label, less_certain

    target = _predictions(run, PREDICTIONS)
    confidence = np.array(target["confidence"], np.float64)
    file = out or run / (TO_LABEL if labels is None else EVALUATION)
    check_out_file(file, labels, own=run / file.name if out is None else None)
    if labels is None:
        rows = draw_to_label(confidence, number, seed)
        columns: dict[str, Any] = {name: [column[k] for k in rows] for name, column in target.items()}
        names = [LESS if unsure else "more certain" for unsure in less_certain(confidence)[rows]]
        columns[STRATUM] = [f"{name}, {names.count(name)} drawn" for name in names]
        write_csv(file, [*columns, "label"], zip(*columns.values(), [""] * len(rows), strict=True))
        if not quiet:
            show(f"Wrote {file}: {len(rows)} samples. Fill in the column label, then run:")
            show(f"warmpot evaluate {quoted(run)} {quoted(file)}")
        return
    known, column, strata = _read_labels(labels, target, label, ids)
    held = _predictions(run, HOLDOUT) if (run / HOLDOUT).exists() else {}
    held_out = _are_held_out(labels, [name for name, _ in known], column, target, held)
    if held_out:
        target, confidence = held, np.array(held["confidence"], np.float64)
    with messages(not quiet):
        _warn_of_unknown(labels, [given for _, given in known], run)
    position = {name: k for k, name in enumerate(target[column])}
    rows = np.array([position[name] for name, _ in known])
    if strata:
        _check_strata(labels, strata, less_certain(confidence)[rows].tolist(), run)
    correct = np.array([target["prediction"][position[name]] == given for name, given in known])
    found = accuracy_intervals(confidence, rows, correct, delta=delta, evenly=not strata, held_out=held_out)
    record = {
        "labels": len(rows),
        "samples": len(confidence),
        "delta": delta,
        "intervals": [i._asdict() for i in found],
    }
    write_text(file, json.dumps(record, indent=1))
    if quiet:
        return
    cells = [[one.method, f"{one.estimate:.1%}", f"{one.low:.1%}", f"{one.high:.1%}", one.about] for one in found]
    columns_shown = ["interval", "accuracy", "from", "to", "about"]
    of = f"{len(confidence)} {'held-out ' if held_out else ''}target samples"
    show(f"{len(rows)} labels of {of}; each interval holds with probability {1 - delta:g}:")
    show(table_grid(columns_shown, cells, left=("interval", "about")), f"Wrote {file}")


def _predictions(run: Path, file: str) -> Columns:
    """Return row, name (if any), prediction and confidence of the target samples of a run, from one of its files."""
    from warmpot.train.run_folder import check_finished

    check_finished(run)
    head, *rows = read_csv(run / file, errors="surrogateescape")
    columns = dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else {}
    if "confidence" not in columns:
        got, remedy = "a run without confidences", "Regression has no accuracy; see `warmpot bound`."
        raise InputError(str(run), got=got, allowed="a run on classes", remedy=remedy)
    return {name: columns[name] for name in ("row", "name", "prediction", "confidence") if name in columns}


def _read_labels(
    file: Path, target: Columns, label: str, ids: str | None
) -> tuple[list[tuple[str, str]], str, list[str]]:
    """Return ids and labels, the column of the predictions that has the ids, and the strata of `to_label.csv`."""
    head, *lines = read_csv(file, errors="surrogateescape")
    # the column of the file that finds a sample, and the one of the predictions that it is looked for in
    places = (("row", "row"), ("name", "name")) if ids is None else ((ids, "name"),)
    key, column = next(((a, b) for a, b in places if a in head and b in target), (None, ""))
    if key is None or label not in head:
        allowed = f"columns {'row (or name)' if ids is None else ids} and {label}"
        got, remedy = f"columns {', '.join(head)}", "Write them as in to_label.csv, or name them: --id, --label."
        if ids is not None and "name" not in target:
            got, allowed, remedy = "a run without ids", "rows", "Use the column row of predictions.csv."
        raise InputError(str(file), got=got, allowed=allowed, remedy=remedy)
    known = [dict(zip(head, line, strict=True)) for line in lines]
    drawn = STRATUM in head
    if drawn and any(not line[label].strip() for line in known):
        got, allowed = "rows without a label", "a label in every row of to_label.csv"
        raise InputError(str(file), got=got, allowed=allowed, remedy="Label them too: leaving some out is a choice.")
    for name, count in Counter(line[STRATUM] for line in known if drawn).items():
        number = re.search(r"(\d+) drawn$", name)  # older files do not have it
        if number and count != int(number[1]):
            got, allowed = f"{count} samples that are {name}", "all samples of to_label.csv, once"
            raise InputError(str(file), got=got, allowed=allowed, remedy="Put the others back, with their labels.")
    labelled = [line for line in known if line[label].strip()]
    strata = [line[STRATUM] for line in labelled if drawn]
    return [(line[key], line[label].strip()) for line in labelled], column, strata


def _check_strata(file: Path, strata: list[str], unsure: list[bool], run: Path) -> None:
    """Refuse samples that were drawn by the confidences of another run: they are not random within its strata."""
    others = sum(name.startswith(LESS) != less for name, less in zip(strata, unsure, strict=True))
    if others:
        got, allowed = f"{others} samples in the strata of another run", f"{TO_LABEL} of this run"
        remedy = f"Draw for this run: warmpot evaluate {quoted(run)}. For several runs, label a random part."
        raise InputError(str(file), got=got, allowed=allowed, remedy=remedy)


def _are_held_out(file: Path, ids: list[str], column: str, target: Columns, held: Columns) -> bool:
    """Whether the labelled samples are those that were held out; refuse unknown ones, and some of both kinds."""
    kept, apart = set(target[column]), set(held.get(column, ()))
    allowed = f"samples of {PREDICTIONS}" + (f", or of {HOLDOUT}" if held else "")
    unknown = [name for name in ids if name not in kept and name not in apart]
    if unknown or not ids:
        got = f"{column} {unknown[0]}" if unknown else "no label"
        raise InputError(str(file), got=got, allowed=allowed, remedy="Label samples that the run predicted.")
    if not kept.isdisjoint(ids) and not apart.isdisjoint(ids):
        got, remedy = f"samples of both {PREDICTIONS} and {HOLDOUT}", "Evaluate each kind on its own, by its rows."
        raise InputError(str(file), got=got, allowed=allowed, remedy=remedy)
    return kept.isdisjoint(ids)


def _warn_of_unknown(file: Path, labels: list[str], run: Path) -> None:
    """Warn about labels that are not a class of the run."""
    unknown = sorted(set(labels).difference(read_json(run / MODEL_FACTS)["facts"]["classes"]))
    if unknown:
        got, allowed = f"classes the run lacks: {listing(unknown)}", "the run's classes"
        remedy = "Check that they are written as in the source; their samples count as wrong."
        warnings.warn(WarmpotWarning(str(file), got=got, allowed=allowed, remedy=remedy), stacklevel=2)
