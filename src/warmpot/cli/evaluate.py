"""``warmpot evaluate``: the accuracy of a finished run from a few labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from warmpot._files import read_csv, write_csv, write_text
from warmpot._run_files import EVALUATION, PREDICTIONS, TO_LABEL
from warmpot.cli import _flags
from warmpot.cli._shared import check_out_file, quoted, show, table_grid
from warmpot.errors import InputError

__all__ = ["evaluate"]

STRATUM = "stratum"
"""The column of to_label.csv that says that its samples were not drawn evenly."""
FORM = "CSV file with the columns row (as in predictions.csv) or name, and label. [default: write to_label.csv]"
LABEL = Annotated[str, Option(metavar="COLUMN", help="Labels in LABELS.")]
IDS = Annotated[str | None, Option("--id", metavar="COLUMN", help="Ids in LABELS. [default: row or name]")]
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
    file as LABELS. Any other file must hold a random part of the target: then there is also an interval for new
    samples. Writes evaluation.json.
    """
    import numpy as np

    from warmpot.select.few_labels import accuracy_intervals, draw_to_label, less_certain

    target = _predictions(run)
    confidence = np.array(target["confidence"], np.float64)
    file = out or run / (TO_LABEL if labels is None else EVALUATION)
    check_out_file(file, labels, own=run / file.name if out is None else None)
    if labels is None:
        rows = draw_to_label(confidence, number, seed)
        columns: dict[str, Any] = {name: [column[k] for k in rows] for name, column in target.items()}
        columns[STRATUM] = np.where(less_certain(confidence)[rows], "less certain", "more certain").tolist()
        write_csv(file, [*columns, "label"], zip(*columns.values(), [""] * len(rows), strict=True))
        if not quiet:
            show(f"Wrote {file}: {len(rows)} samples. Fill in the column label, then run:")
            show(f"warmpot evaluate {quoted(run)} {quoted(file)}")
        return
    rows, correct, evenly = _labelled(labels, target, label, ids)
    found = accuracy_intervals(confidence, rows, correct, delta=delta, evenly=evenly)
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
    show(f"{len(rows)} labels of {len(confidence)} target samples; each interval holds with probability {1 - delta:g}:")
    show(table_grid(columns_shown, cells, left=("interval", "about")), f"Wrote {file}")


def _predictions(run: Path) -> dict[str, tuple[str, ...]]:
    """Return row, name (if any), prediction and confidence of the target samples of a run."""
    from warmpot.train.run_folder import check_finished

    check_finished(run)
    head, *rows = read_csv(run / PREDICTIONS, errors="surrogateescape")
    columns = dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else {}
    if "confidence" not in columns:
        got, remedy = "a run without confidences", "Regression has no accuracy; see `warmpot bound`."
        raise InputError(str(run), got=got, allowed="a run on classes", remedy=remedy)
    return {name: columns[name] for name in ("row", "name", "prediction", "confidence") if name in columns}


def _labelled(file: Path, target: dict[str, tuple[str, ...]], label: str, ids: str | None) -> tuple[Any, Any, bool]:
    """Return positions of the labelled samples, whether their predictions are correct, and if any was as likely."""
    import numpy as np

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
    known = [line for line in known if line[label].strip()]
    position = {name: k for k, name in enumerate(target[column])}
    unknown = [line[key] for line in known if line[key] not in position]
    if unknown or not known:
        got = f"{key} {unknown[0]}" if unknown else "no label"
        allowed = f"samples of {PREDICTIONS}"
        raise InputError(str(file), got=got, allowed=allowed, remedy="Label samples that the run predicted.")

    rows = np.array([position[line[key]] for line in known])
    correct = np.array([target["prediction"][k] == line[label].strip() for k, line in zip(rows, known, strict=True)])
    return rows, correct, not drawn
