"""``warmpot predict``: apply a finished run to new data."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._files import write_csv
from warmpot._progress import ProgressCallback, progress
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, recorded_data, remembered_flags
from warmpot.cli._shared import (
    check_out_file,
    class_summary,
    default_out,
    facts_grid,
    heavy_imports,
    messages,
    show,
)
from warmpot.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warmpot.data import Table
    from warmpot.data.parts import Labels, SampleParts
    from warmpot.train import Predictor

__all__ = ["load_finished", "predict"]

logger = logging.getLogger(__name__)

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
    from warmpot.data._columns import Roles
    from warmpot.data.inputs import of_images
    from warmpot.data.parts import read_parts, whole_table

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
            samples = whole_table(table)
        else:
            # not the columns of the run that look like ids: those that it was trained on are matched by name
            default = replace(remembered_flags(read_facts(run)), features=())
            flags = ColumnFlags(label, ids, features or ()).over(default)
            needs: dict[str, Any] = {"needs_label": label is not None, "needs_ids": ids is not None}
            task = "regression" if regression else "classification"
            roles = Roles(**flags.asdict(), columns=predictor.columns)
            samples = read_parts(data, predictor.rows_per_part(), roles, task=task, **needs)
        predictions = _Predictions(predictor, samples, proba)
        with progress("predict", logger, False if quiet else None) as report:
            lines = predictions.lines(report)
            write_csv(out, next(lines), lines)
    if quiet:
        return
    n = predictions.n
    facts = [("run", str(run)), ("samples", f"{n}")]
    if not regression:
        facts.append(("predicted", class_summary(predictor.class_shares(predictions.counts))))
        facts.append(("to review", f"{predictions.unsure} of {n}, marked in the column review"))
    facts += predictions.score
    show(facts_grid(facts), "", f"Wrote {out}")


def load_finished(run: Path) -> Predictor:
    """Read the model of a finished run."""
    from warmpot.train import Predictor
    from warmpot.train.run_folder import check_finished

    check_finished(run)
    return Predictor.load(run)


class _Predictions:
    """The lines of the CSV file, predicted while they are written, and what the summary needs of them.

    `n` is the number of samples, `counts` that of each predicted class, and `unsure` that of samples to review; `score`
    is the row of the summary about labels. Of samples that have been written, names leave their hashes, labels the
    number of each pair of label and prediction, and nothing else is kept.
    """

    def __init__(self, predictor: Predictor, samples: SampleParts, proba: bool) -> None:
        import numpy as np

        self.predictor, self.samples, self.proba = predictor, samples, proba
        self.n, self.unsure, self.counts = 0, 0, np.zeros(len(predictor.classes), np.int64)
        self.score: list[tuple[str, str]] = []
        self._code_of: dict[Any, int] = {}  # of labels as they are written
        self._pairs: Counter[int] = Counter()
        self._error: float | None = None

    def lines(self, report: ProgressCallback) -> Iterator[Sequence[Any]]:
        """Yield the column names, then one line per sample; with the last, warn about names and labels."""
        import numpy as np

        hashes, before = [], 0.0
        for table, labels, share in self.samples:
            names, start = table.names, self.n
            if not self.n:
                yield self._header(bool(names))
            hashes.append(np.fromiter(map(hash, names), np.int64, len(names)))
            for outputs, unknown in self.predictor.in_parts(replace(table, name=self._name(table))):
                rows = slice(self.n - start, self.n - start + len(outputs))
                best, columns = self._columns(outputs, unknown)
                if labels is not None:
                    self._compare(labels[rows], best)
                known = [names[rows]] if names else []
                yield from zip(range(self.n, self.n + len(outputs)), *known, *columns, strict=True)
                self.n += len(outputs)
                report(before + (share - before) * rows.stop / table.n, f"{self.n:,} samples")
            before = share
        self.samples.warn_of_repeated_names(np.concatenate(hashes))
        self._finish()

    def _name(self, table: Table) -> str:
        """Return the name of a part: what is wrong in it is counted from its first row."""
        return f"{table.name}, from row {self.n}" if self.n else table.name

    def _header(self, named: bool) -> list[str]:
        header = ["row", "name", "prediction"] if named else ["row", "prediction"]
        header += ["confidence", "review"] if self.predictor.classes else []
        header += ["unknown"] if self.predictor.scores_unknown else []
        # with a prefix, because a class may be called "row"
        return header + [f"proba_{name}" for name in self.predictor.classes if self.proba]

    def _columns(self, outputs: NDArray[Any], unknown: NDArray[Any] | None) -> tuple[NDArray[Any], list[Sequence[Any]]]:
        """Return class codes, or the values of a regressor, and what is written of some samples."""
        import numpy as np

        if not self.predictor.classes:
            return outputs, [outputs.tolist()]
        best, confidence = outputs.argmax(axis=1), outputs.max(axis=1)
        review = self.predictor.review(outputs)
        self.counts += np.bincount(best, minlength=len(self.counts))
        self.unsure += int(review.sum())
        columns: list[Sequence[Any]] = [[self.predictor.classes[k] for k in best], confidence.tolist(), review.tolist()]
        columns += [] if unknown is None else [unknown.tolist()]
        return best, columns + (outputs.T.tolist() if self.proba else [])

    def _compare(self, labels: Labels, best: NDArray[Any]) -> None:
        import numpy as np

        if not self.predictor.classes:
            truth = self.samples.truth(labels, ())
            self._error = (self._error or 0.0) + float(abs(best - truth.yt).sum())
            return
        listed = labels.tolist() if isinstance(labels, np.ndarray) else labels
        codes = [self._code_of.setdefault(label, len(self._code_of)) for label in listed]
        pairs, counts = np.unique(np.array(codes) * len(self.counts) + best, return_counts=True)
        self._pairs.update(dict(zip(pairs.tolist(), counts.tolist(), strict=True)))

    def _finish(self) -> None:
        """Encode the labels: whether they are numbers or texts depends on all of them."""
        import numpy as np

        if self._error is not None:
            self.score = [("mean absolute error", f"{self._error / self.n:.4g}")]
        elif self._code_of:
            truth = self.samples.truth(list(self._code_of), self.predictor.classes)
            pairs, counts = (np.array(list(part)) for part in (self._pairs, self._pairs.values()))
            labels, best = np.divmod(pairs, len(self.counts))
            if truth.known.any():
                right = counts[truth.yt[labels] == best].sum() / self.n
                self.score = [("accuracy", f"{right:.1%}")]
