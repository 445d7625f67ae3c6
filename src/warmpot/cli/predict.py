"""``warmpot predict``: what a finished run says of a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot._files import write_csv
from warmpot.cli._image_flags import CLASSES, CORRUPT_FILES, ROOT
from warmpot.cli._shared import (
    check_out_file,
    class_summary,
    facts_grid,
    messages,
    read_side,
    recorded,
    score,
    show,
)
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.train import Predictor

__all__ = ["load_finished", "predict"]


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `warmpot fit` wrote.")],
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="File of samples, folder or list of images; labels only measure.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write; an old one is replaced.")],
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every class.")] = False,
    label: Annotated[
        str | None, typer.Option(help="Column (or key of a .npz) of labels, if any; default: as in the run.")
    ] = None,
    root: ROOT = None,
    classes: CLASSES = None,
    corrupt: CORRUPT_FILES = "raise",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Predict the labels of DATA with a finished RUN.

    The CSV has a line per row of the file: row (counted from 0), prediction and confidence, the probability of the
    predicted class. Of real-valued labels it has row and prediction. Columns are matched by name, if RUN and DATA
    have names. A run on images takes images, and writes their names too; or the features of its backbone.
    """
    from warmpot.data.images import EXTENSIONS, is_images, load_images
    from warmpot.data.task import in_order, recoded

    check_out_file(out, data)
    if data.suffix.lower() in EXTENSIONS:
        remedy = "Put it into a folder, or into a list: a file with a path a line."
        raise InputError(str(data), got="an image", allowed="a folder or list of images", remedy=remedy)
    with messages(not quiet):
        predictor = load_finished(run)
        regression = not predictor.classes
        if proba and regression:
            remedy = "Leave --proba out."
            raise InputError("--proba", got="a run on real labels", allowed="a run on classes", remedy=remedy)
        wanted = label if label is not None else recorded(run).get("label")
        if is_images(data):
            table = _images(predictor, load_images(data, root=root, classes=classes), corrupt)
        else:
            table = read_side(data, wanted, regression=regression, needed=label is not None)
        table = in_order(table, predictor.columns, f"the columns that {run} was trained on")
        if regression:
            outputs = predictor.values(table.x, str(data))
            header, columns = ["prediction"], [outputs.tolist()]
        else:
            outputs = predictor.probabilities(table.x, str(data))
            header, columns = _class_columns(predictor, outputs, proba)
        truth = recoded(table, predictor.classes, "run")
        if table.names:
            header, columns = ["name", *header], [table.names, *columns]
        write_csv(out, ["row", *header], zip(range(table.n), *columns, strict=True))
    if quiet:
        return
    facts = [("run", str(run)), ("samples", f"{table.n}")]
    if not regression:
        facts.append(("predicted", class_summary(predictor.class_shares(outputs))))
    if truth is not None and truth.known.any():  # else there is nothing to measure by
        facts.append(score(outputs, truth))
    show(facts_grid(facts))
    show("", f"Wrote {out}")


def load_finished(run: Path) -> Predictor:
    """Read the model of a run; an `InputError` says when there is none yet."""
    from warmpot.train import Predictor

    if (run / "study.json").exists():
        got, remedy = "a sweep", f"Its run is {run / 'best'}."
        raise InputError(str(run), got=got, allowed="a finished run", remedy=remedy)
    if recorded(run) and not (run / "model.json").exists():
        got, remedy = "a run that is not finished", f"Finish it first: warmpot fit --resume {run}"
        raise InputError(str(run), got=got, allowed="a finished run", remedy=remedy)
    return Predictor.load(run)


def _images(predictor: Predictor, table: Table, corrupt: str) -> Table:
    """Return images as the run has seen them; those that are broken raise, or are left out."""
    from warmpot._checks import check_choice
    from warmpot.train.images import CORRUPT, decodable

    check_choice("--corrupt", corrupt, CORRUPT)
    return decodable(table, predictor.images.processes) if corrupt == "skip" and predictor.images else table


def _class_columns(predictor: Predictor, outputs: Any, proba: bool) -> tuple[list[str], list[Sequence[Any]]]:
    best = [predictor.classes[k] for k in outputs.argmax(axis=1)]
    columns: list[Sequence[Any]] = [best, outputs.max(axis=1).tolist()]
    header = ["prediction", "confidence"]
    if proba:
        header += [f"proba_{name}" for name in predictor.classes]  # a class may be called "row"
        columns += outputs.T.tolist()
    return header, columns
