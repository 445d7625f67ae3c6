"""Tables of features from files: one sample a row, one feature a column."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from warmpot._checks import check_choice, check_matrix
from warmpot._typing import FloatArray
from warmpot.data._readers import read
from warmpot.data.shards import is_shards, read_shards
from warmpot.data.table import TASKS, Table, as_table
from warmpot.errors import InputError

__all__ = ["load_features", "load_table"]


def load_features(path: str | os.PathLike[str]) -> FloatArray:
    """Read a table of features; an `InputError` says what is wrong with a file that holds none.

    Parameters
    ----------
    path : str or path
        A ``.npz`` (the array ``X``, else the only 2-d array of numbers), ``.npy``, ``.csv``, ``.tsv`` or ``.parquet``
        (extra ``parquet``) file, or a folder that `extract` wrote. A text file may start with a row of column names.
        Nothing is ever unpickled.

    Returns
    -------
    (n, d) float64 array
        One sample a row; not empty, every entry finite.
    """
    return check_matrix(str(path), read_shards(path).x[:] if is_shards(path) else read(path).x)


def load_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
) -> Table:
    """Read features and labels from a file; an `InputError` says what is wrong with it.

    Parameters
    ----------
    path : str or path
        A ``.npz`` with ``X`` and optionally ``y`` and ``classes`` (the names that whole numbers in ``y`` index into),
        a ``.npy`` of features, or a ``.csv``, ``.tsv`` or ``.parquet`` (extra ``parquet``) file with a row of column
        names; or a folder that `extract` wrote, whose rows are then read when they are asked for. Nothing is ever
        unpickled.
    label : str, optional
        The column (or key of a ``.npz``) that holds the labels, texts or numbers. By default ``y`` of a ``.npz``, and
        of the others a column called label, y, class or target, in any case, when there is one. "" reads none.
    classes : sequence of str, optional
        Names of the classes, in place of those in the file; see `as_table`.
    task : {"classification", "regression"}
        With "regression" the labels are real numbers.

    Returns
    -------
    Table
        Called by the name of the file; unlabelled when the file holds no labels. Its `columns` are the names in the
        file, if there are any.
    """
    check_choice("task", task, TASKS)
    if is_shards(path):
        return read_shards(path, label, classes, task)
    found = read(path, label)
    if classes is None and task == "classification":
        if isinstance(found.classes, InputError):
            raise found.classes
        classes = found.classes
    table = as_table(found.x, found.y, classes=classes, name=str(Path(path)), task=task)
    return replace(table, columns=found.columns)
