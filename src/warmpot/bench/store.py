"""The results of a grid: ``results.jsonl``, one JSON object per line, which is only ever appended to."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warmpot._files import parse_json, read_text, writing
from warmpot._run_files import STORE

__all__ = [
    "BINS",
    "FAILED",
    "KNOWN_CLASSES",
    "LAST",
    "ORACLE",
    "RESULTS",
    "Coordinates",
    "Record",
    "append",
    "read_store",
]

RESULTS = STORE
BINS = 50
"""Bins of a histogram of weights."""
DONE, FAILED = "done", "failed"
LAST, ORACLE = "last", "oracle"
"""The rules that every cell has: the last iterate, and the best iterate by target labels."""
KNOWN_CLASSES = "oracle: known classes"
"""Name of a training whose source has only the classes of the target, which target labels reveal."""
Coordinates = tuple[str, str, str, tuple[tuple[str, float], ...], int, bool]
"""Data set, task, row, point, seed, and whether the classes are known: the position of a cell in its grid."""


def name_training(
    dataset: str, task: str, row: str, point: Mapping[str, float], seed: int | str, known_classes: bool = False
) -> str:
    """Name a training in one line."""
    settings = (f"{name.split('.')[-1]} {value:g}" for name, value in point.items())
    return ", ".join([dataset, task, row, *settings, *[KNOWN_CLASSES] * known_classes, f"seed {seed}"])


@dataclass(frozen=True)
class Record:
    """The result of one cell.

    Attributes
    ----------
    key : str
        Identifies the training; the same in every grid that contains it.
    any_seed : bool
        Whether the result holds for every seed, because nothing is drawn.
    point : mapping of str to float
        Values of the settings that the grid varies.
    setting : str
        How the data were made, from the grid.
    known_classes : bool
        Whether the source was restricted to the classes that occur in the target: an oracle, for comparison only.
    content : str
        Identifies the content of its files (`warmpot.bench.grid_data.GridData.content`); empty if unknown.
    status : "done" or "failed"
    accuracy : mapping of str to float
        In [0, 1]: "last", every label-free rule of the grid, and "oracle", the best iterate by target labels.
    steps : mapping of str to int
        Step of the iterate of each rule.
    scores : mapping of str to float
        Score of the last iterate by every label-free rule, to choose among rows without labels.
    per_class : mapping of str to float
        Accuracy of the last iterate by class of the target.
    outlier_weight, outlier_samples : float or None
        Shares of the source's weight and of its samples that belong to classes which the target does not have.
    share_auc : float or None
        Area under the ROC curve of the predicted class shares (`warmpot.weights.predicted_shares`), as scores for
        whether a source class occurs in the target. None if all classes or none occur, and in older records.
    presence_auc, presence_brier : float or None
        The same area, and the Brier score, of the run's estimated probabilities that a class occurs; None for a run
        without such an estimate.
    lost_classes : int or None
        Number of classes of the target with an accuracy below 10 %; None in older records.
    histogram : mapping of str to list of int
        "shared" and "outlier": counts of source samples in 50 equal bins of [0, 1], by weight divided by its cap
        (`warmpot.bench.training.weight_cap`) or by the largest weight.
    capped : bool or None
        Whether the histogram is relative to the cap; None in records of older versions.
    collapsed : bool
        Whether the last iterate lost most of the classes that the first one predicted.
    seconds : float
        Training time, on one thread; without a GPU, CPU time (wall time in records before 2026-11-18).
    finished : str
        UTC, ISO 8601.
    error, trace : str
        Error of a failed cell in one line, and its traceback.
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
    known_classes: bool = False
    content: str = ""
    status: str = DONE
    accuracy: Mapping[str, float] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    scores: Mapping[str, float] = field(default_factory=dict)
    per_class: Mapping[str, float] = field(default_factory=dict)
    outlier_weight: float | None = None
    outlier_samples: float | None = None
    share_auc: float | None = None
    presence_auc: float | None = None
    presence_brier: float | None = None
    lost_classes: int | None = None
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
        """Whether the training finished without an error."""
        return self.status == DONE

    @property
    def coordinates(self) -> Coordinates:
        """Data set, task, row, point, seed, and whether the classes are known."""
        return self.dataset, self.task, self.row, tuple(sorted(self.point.items())), self.seed, self.known_classes

    @property
    def name(self) -> str:
        """Data set, task, row, point and seed in one line."""
        return name_training(self.dataset, self.task, self.row, self.point, self.seed, self.known_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Record:
        """Undo `to_dict`; unknown fields of other versions are ignored, missing ones have their default."""
        names = {each.name for each in dataclasses.fields(cls)}
        fields = {"known_classes": fields.get("told", False), **fields}  # its old name: an oracle stays an oracle
        return cls(**{name: value for name, value in fields.items() if name in names})


def append(folder: Path | str, record: Record) -> None:
    """Append a record to the results of a folder; it is on disk when this returns."""
    file = Path(folder) / RESULTS
    line = json.dumps(record.to_dict(), allow_nan=False) + "\n"
    remedy = "Free some space and run the command again: finished cells are not lost."
    with writing(file, remedy), open(file, "ab+") as stream:
        if stream.tell():
            stream.seek(-1, os.SEEK_END)
            if stream.read(1) != b"\n":  # a crash left half a line: start a new one
                line = "\n" + line
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())


def read_store(folder: Path | str) -> list[Record]:
    """Read the results of a folder: the latest record of every cell, in the order of the first ones.

    Incomplete lines, which a crash may leave, are skipped.
    """
    file = Path(folder) / RESULTS
    # of a damaged file, the lines that can be read
    lines = read_text(file, "a file that `warmpot bench` wrote", errors="replace").split("\n") if file.exists() else []
    latest: dict[Coordinates, Record] = {}
    for line in lines:
        # a line of another program may have other types, and coordinates that cannot be hashed
        with suppress(ValueError, TypeError, AttributeError):
            record = Record.from_dict(parse_json(line))
            latest[record.coordinates] = record
    return list(latest.values())
