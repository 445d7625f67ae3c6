"""``warmpot predict``: apply a finished run to new data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._files import write_csv
from warmpot._run_files import ACCEPT
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, read_table, recorded_data, remembered_flags
from warmpot.cli._shared import (
    check_out_file,
    class_summary,
    default_out,
    facts_grid,
    heavy_imports,
    messages,
    score,
    show,
)
from warmpot.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warmpot.data import Table
    from warmpot.train import Predictor

__all__ = ["load_finished", "predict"]

DATA = Annotated[Path, Argument(metavar="DATA", help="File of samples, or images: a folder, a list, or one.")]

FILE = "CSV file; an existing file is replaced. [default: RUN/predictions-DATA.csv]"
OUT = Annotated[Path | None, Option("--out", "-o", help=FILE)]


def predict(
    run: _flags.RUN,
    data: DATA,
    out: OUT = None,
    proba: Annotated[bool, Option("--proba", help="Add the probability of every class.")] = False,
    label: _flags.RUN_LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    root: _flags.ROOT = None,
    classes: _flags.CLASSES = None,
    corrupt: _flags.CORRUPT_FILES = "raise",
    quiet: _flags.QUIET = False,
) -> None:
    """Predict the labels of DATA with a finished RUN.

    The CSV file has one line per row of DATA: row (counted from 0), prediction, confidence (the probability of the
    predicted class), review (whether that is too low to accept it unseen) and, of runs of the full engine, unknown (a
    score for samples of no source class, from 0 to 1). In regression it has row and prediction.
    Columns are matched by name if RUN and DATA have column names: their order does not matter, and columns that RUN was
    not trained on are ignored. A run on images takes images, or features of its backbone. Names of images, and ids
    (--id, by default the column that RUN had), are added to the CSV file as name.
    """
    from warmpot._checks import check_choice
    from warmpot.data import read_samples
    from warmpot.data.files import map_features
    from warmpot.data.inputs import of_images
    from warmpot.data.task import match_labels, warn_of_repeated_names

    with heavy_imports():
        from warmpot.train.images import CORRUPT, check_decodable
        from warmpot.train.run_folder import read_facts

    out = out or default_out("predictions", data, suffix=".csv", folder=run)
    check_out_file(out, data, classes, *recorded_data(run))
    with messages(not quiet):
        predictor = load_finished(run)
        regression = not predictor.classes
        if proba and regression:
            got, remedy = "a run on continuous targets", "Leave --proba out."
            raise InputError("--proba", got=got, allowed="a run on classes", remedy=remedy)
        if of_images(data):
            check_choice("--corrupt", corrupt, CORRUPT)
            table = read_samples(data, root=root, classes=classes)
            if corrupt == "skip" and predictor.images:
                table = check_decodable(table, predictor.images.processes)
        else:
            needs: dict[str, Any] = {"needs_label": label is not None, "needs_ids": ids is not None}
            # not the columns of the run that look like ids: those that it was trained on are matched by name
            default = replace(remembered_flags(read_facts(run)), features=())
            flags = ColumnFlags(label, ids, features or ()).over(default)
            mapped = data.suffix.lower() == ".npy" and not any(needs.values())
            read = {"regression": regression, "columns": predictor.columns, **needs}
            table = map_features(data) if mapped else read_table(data, flags, **read)
        warn_of_repeated_names(table)
        truth = match_labels(table, predictor.classes, "run")
        predictions = _Predictions(predictor, table, proba)
        write_csv(out, predictions.header, predictions.rows())
    if quiet:
        return
    facts = [("run", str(run)), ("samples", f"{table.n}")]
    if not regression:
        facts.append(("predicted", class_summary(predictor.class_shares(predictions.best))))
        facts.append(("to review", f"{predictions.unsure} of {table.n}, with a confidence below {ACCEPT}"))
    facts += [(name, value) for name, value, _ in score(predictions.best, truth)]
    show(facts_grid(facts), "", f"Wrote {out}")


def load_finished(run: Path) -> Predictor:
    """Read the model of a finished run."""
    from warmpot.train import Predictor
    from warmpot.train.run_folder import check_finished

    check_finished(run)
    return Predictor.load(run)


class _Predictions:
    """The lines of the CSV file, predicted while they are written, and what the summary needs of them.

    `best` are class codes, or the values of a regressor; `unsure` is the number of samples to review.
    """

    def __init__(self, predictor: Predictor, table: Table, proba: bool) -> None:
        self.predictor, self.table, self.proba = predictor, table, proba
        self.parts: list[NDArray[Any]] = []
        self.unsure = 0

    @property
    def header(self) -> list[str]:
        header = ["row", "name", "prediction"] if self.table.names else ["row", "prediction"]
        header += ["confidence", "review"] if self.predictor.classes else []
        header += ["unknown"] if self.predictor.scores_unknown else []
        # with a prefix, because a class may be called "row"
        return header + [f"proba_{name}" for name in self.predictor.classes if self.proba]

    @property
    def best(self) -> NDArray[Any]:
        import numpy as np

        return np.concatenate(self.parts)

    def rows(self) -> Iterator[tuple[Any, ...]]:
        start, names = 0, self.table.names
        for outputs, unknown in self.predictor.in_parts(self.table):
            stop = start + len(outputs)
            known = [names[start:stop]] if names else []
            yield from zip(range(start, stop), *known, *self._columns(outputs, unknown), strict=True)
            start = stop

    def _columns(self, outputs: NDArray[Any], unknown: NDArray[Any] | None) -> list[Sequence[Any]]:
        if not self.predictor.classes:
            self.parts.append(outputs)
            return [outputs.tolist()]
        best, confidence = outputs.argmax(axis=1), outputs.max(axis=1)
        review = confidence < ACCEPT
        self.parts.append(best.astype("int32"))
        self.unsure += int(review.sum())
        columns: list[Sequence[Any]] = [[self.predictor.classes[k] for k in best], confidence.tolist(), review.tolist()]
        columns += [] if unknown is None else [unknown.tolist()]
        return columns + (outputs.T.tolist() if self.proba else [])
