"""The results of a bench: ``results.jsonl``, one JSON object a line, only ever added to."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmpot.errors import InputError, WarmpotError

__all__ = ["BINS", "DONE", "FAILED", "LAST", "ORACLE", "RESULTS", "Record", "append", "read_store"]

RESULTS = "results.jsonl"
BINS = 50
"""Of a histogram of weights."""
DONE, FAILED = "done", "failed"
LAST, ORACLE = "last", "oracle"
"""The choices that every cell has: no choice, and the best by target labels."""


@dataclass(frozen=True)
class Record:
    """What one cell came to.

    Attributes
    ----------
    key : str
        Of the training: the same in every grid that has it.
    dataset, task, row : str
        Where it stands in the tables of its grid.
    method, weights, preset : str
        What the row trains.
    seed : int
        With `any_seed` the result stands for every seed: nothing is drawn.
    point : mapping of str to float
        Of the settings that the grid varies; empty otherwise.
    setting : str
        How it was made, as the grid has it.
    content : str
        Of its files (`warmpot.bench.data.content`); empty when that is not known.
    status : "done" or "failed"
    accuracy : mapping of str to float
        In [0, 1]: "last", every label-free rule of the grid, and "oracle", the best iterate by target labels.
    steps : mapping of str to int
        The iterate that each of them is.
    scores : mapping of str to float
        Score of the last iterate by every label-free rule; what can choose among rows.
    per_class : mapping of str to float
        Accuracy of the last iterate by class of the target.
    outlier_weight, outlier_samples : float or None
        Share of the source's weight, and of its samples, on classes that the target lacks.
    histogram : mapping of str to list of int
        "shared" and "outlier": source samples in 50 equal bins of [0, 1] by weight over its cap
        (`cell.weight_cap`), or over the largest weight.
    capped : bool or None
        Which of these; None when an older version wrote it.
    collapsed : bool
        Whether the last iterate lost most of the classes that the first one predicted.
    seconds : float
        Of the training, on one thread.
    finished : str
        UTC, ISO 8601.
    versions : mapping of str to str
    error, trace : str
        Of a failed cell: its error in one line, and its traceback.
    """

    key: str = ""
    dataset: str = ""
    task: str = ""
    row: str = ""
    method: str = ""
    weights: str = ""
    preset: str = ""
    seed: int = 0
    any_seed: bool = False
    point: Mapping[str, float] = field(default_factory=dict)
    setting: str = ""
    content: str = ""
    status: str = DONE
    accuracy: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    per_class: Mapping[str, float] = field(default_factory=dict)
    outlier_weight: float | None = None
    outlier_samples: float | None = None
    histogram: Mapping[str, list[int]] = field(default_factory=dict)
    capped: bool | None = None
    collapsed: bool = False
    seconds: float = 0.0
    finished: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    trace: str = ""

    @property
    def done(self) -> bool:
        """Whether it was trained to its end."""
        return self.status == DONE

    @property
    def place(self) -> tuple[str, str, str, tuple[tuple[str, float], ...], int]:
        """Data set, task, row, point and seed: what a table knows a cell by."""
        return self.dataset, self.task, self.row, tuple(sorted(self.point.items())), self.seed

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Record:
        """Undo `to_dict`; what another version wrote beside is left out, what it lacks is at its default."""
        names = {each.name for each in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in found.items() if name in names})


def append(folder: Path | str, record: Record) -> None:
    """Add a record to the store of a folder; it is on disk when this returns."""
    file = Path(folder) / RESULTS
    line = json.dumps(record.to_dict(), allow_nan=False) + "\n"
    try:
        with open(file, "ab+") as stream:
            if stream.tell() and not _ends_whole(stream):  # torn by a crash: what is added must not join it
                line = "\n" + line
            stream.write(line.encode())
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        remedy = "Free some space and run it again: what is finished is kept."
        raise WarmpotError(str(file), got=error.strerror or error, allowed="a file to add to", remedy=remedy) from error


def _ends_whole(stream: Any) -> bool:
    stream.seek(-1, os.SEEK_END)
    return bool(stream.read(1) == b"\n")


def read_store(folder: Path | str) -> list[Record]:
    """Read what a folder holds: of every place in the tables the last record, in the order of the first ones.

    A line that a crash tore is left out, and so is its cell.
    """
    file = Path(folder) / RESULTS
    try:
        lines = file.read_bytes().splitlines() if file.exists() else []
    except OSError as error:
        remedy = "Name the folder of a bench."
        raise InputError(str(file), got=error.strerror, allowed="a file to read", remedy=remedy) from error
    return list({record.place: record for record in _records(lines)}.values())


def _records(lines: Iterable[bytes]) -> Iterable[Record]:
    for line in lines:
        try:
            record = Record.from_dict(json.loads(line))
            hash(record.place)  # a line that nobody here wrote may have no place
            yield record
        except (ValueError, TypeError, AttributeError):  # noqa: PERF203
            continue
