"""Samples in parts, for files that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_matrix
from warmpot._typing import IntArray
from warmpot.data._columns import FileContent, Roles
from warmpot.data._text_files import DELIMITERS
from warmpot.data.files import labelled_table, read_file
from warmpot.data.inputs import present_roles, read_samples
from warmpot.data.table import Table
from warmpot.data.task import Truth, match_labels, warn_of_repeated_names
from warmpot.errors import InputError, MissingColumnError

__all__ = ["Part", "SampleParts", "read_parts", "whole_table"]

IN_PARTS = (".npy", ".parquet", *DELIMITERS)
"""Suffixes of files that are read in parts; others are read whole."""


Labels: TypeAlias = "Sequence[Any] | NDArray[Any]"


class Part(NamedTuple):
    """Some rows: features and names, labels as they are written, and how much of the samples has been read by now."""

    table: Table
    labels: Labels | None
    share: float = 1.0


@dataclass(frozen=True)
class SampleParts:
    """Samples of one domain, some rows after the others; each iteration reads them from the start.

    `encode` turns labels of some of its rows into a table of these labels.
    """

    read: Callable[[], Iterator[Part]]
    encode: Callable[[Labels], Table]

    def __iter__(self) -> Iterator[Part]:
        return self.read()

    def truth(self, labels: Labels, classes: tuple[str, ...]) -> Truth:
        """Encode labels, such as the different ones of all rows, in the order of a run's classes."""
        try:
            table = self.encode(labels)
        except InputError:
            every = [label for part in self if part.labels is not None for label in part.labels]
            self.encode(every)  # raises too, with the row
            raise
        truth = match_labels(table, classes, "run")
        assert truth is not None, "the table has labels"
        return truth

    def warn_of_repeated_names(self, hashes: IntArray) -> None:
        """Warn if several samples have the same name; `hashes` are those of all names (`hash`)."""
        values, counts = np.unique(hashes, return_counts=True)
        if len(values) < len(hashes):
            several, names = set(values[counts > 1].tolist()), []
            for part in self:
                names += [name for name in part.table.names if hash(name) in several]
            warn_of_repeated_names(replace(part.table, names=tuple(names)))


def whole_table(table: Table) -> SampleParts:
    """Return a table as one part."""

    def encode(labels: Labels) -> Table:
        return replace(table, x=np.zeros((len(labels), 1)), y=np.asarray(labels), columns=(), names=())

    return SampleParts(lambda: iter([Part(replace(table, y=None), table.y)]), encode)


def read_parts(
    path: Path,
    rows: int,
    roles: Roles,
    *,
    needs_label: bool = False,
    needs_ids: bool = False,
    task: str = "classification",
) -> SampleParts:
    """Read so many rows of a file at a time; files and folders that are not read in parts are one.

    Parameters
    ----------
    path : path
    rows : int
    roles : Roles
        As the arguments of `load_table`.
    needs_label, needs_ids, task
        As for `read_samples`.
    """
    needs: dict[str, Any] = {"needs_label": needs_label, "needs_ids": needs_ids}
    if path.suffix.lower() not in IN_PARTS or path.is_dir():
        return whole_table(read_samples(path, **roles._asdict(), **needs, task=task))

    def read() -> Iterator[Part]:
        nonlocal roles
        start, first = 0, None
        while first is None:
            contents = read_file(path, roles, rows)
            try:
                first = next(contents)
            except MissingColumnError as error:
                roles = present_roles(error, roles, **needs)
        for content in chain([first], contents):
            x = check_matrix(str(path), content.x, columns=content.columns, first_row=start)
            names = tuple(str(name).strip() for name in content.names)
            yield Part(Table(x, None, (), str(path), content.columns, names), content.y, content.share)
            start += len(x)

    def encode(labels: Labels) -> Table:
        y = np.array(labels, dtype=str) if path.suffix.lower() in DELIMITERS else labels
        return labelled_table(path, FileContent(np.zeros((len(labels), 1)), y), roles, task=task)

    return SampleParts(read, encode)
