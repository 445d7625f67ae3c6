"""Tables of features from files: one sample per row, one feature per column. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import check_choice, check_matrix
from warmpot._files import check_file
from warmpot._typing import FloatArray
from warmpot.data._columns import LABEL_NAMES, FileColumns, Roles, assign_columns, refuse_ids
from warmpot.data._image_lists import path_error
from warmpot.data.shards import is_shard_folder, read_shards
from warmpot.data.table import TASKS, Table, as_table
from warmpot.errors import (
    InputError,
    MissingColumnError,
    MissingExtraError,
    MissingLabelsError,
    WarmpotError,
)

__all__ = ["load_features", "load_table", "map_features"]

PATHS = "path"  # key of a .npz with names of samples, as `warmpot extract` writes it
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SHOWN = 5  # columns that a message lists
NO_VALUE = ("", "na", "n/a", "null", "none")  # cells of a number that is missing, in lower case


class _FileContent(NamedTuple):
    """Unchecked content of a file. `classes` is an `InputError` if it cannot be read, to be raised if it is needed."""

    x: Any
    y: Any = None
    classes: Any = None
    columns: tuple[str, ...] = ()
    names: Sequence[Any] = ()


def load_features(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    ids: str | None = None,
    features: Sequence[str] | None = (),
) -> FloatArray:
    """Read a table of features as a float64 array (n, d), not empty, every entry finite.

    Parameters
    ----------
    path : str or path
        As for `load_table`. A ``.npz`` without ``X`` may have another array, if it is its only 2-d array of numbers; a
        text file needs no row of column names.
    label, ids, features
        As for `load_table`: labels and ids are not features. The labels are left out unchecked.
    """
    table = load_table(path, label=label, ids=ids, features=features, labelled=False)
    return check_matrix(str(path), table.x[:])


def load_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    ids: str | None = None,
    features: Sequence[str] | None = (),
    columns: Sequence[str] = (),
    labelled: bool = True,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
) -> Table:
    """Read features and labels from a file; an `InputError` explains why it cannot be read.

    The table is named after the file, and unlabelled when the file has no labels. Its `columns` are the names in the
    file. A column of numbers that looks like an id is refused: one called id, or integers that only rise or only fall
    in 10 rows or more, or that are all different where drawn ones would not be.

    Parameters
    ----------
    path : str or path
        A ``.npz`` with ``X`` and optionally ``y`` and ``classes`` (the names that whole numbers in ``y`` index into),
        a ``.npy`` of features, or a ``.csv``, ``.tsv`` or ``.parquet`` (extra ``parquet``) file with a row of column
        names; or a folder written by `warmpot extract`, whose rows are loaded on demand. Nothing is ever unpickled.
    label : str, optional
        The column (or key of a ``.npz``) with the labels, strings or numbers. Default: ``y`` of a ``.npz``, and in
        other files a column called label, y, class or target, in any case, if there is one. "": there is none, all
        columns are features.
    ids : str, optional
        The column (or key of a ``.npz``) with the ids of the samples, strings or numbers: they become the `names` of
        the table. Default: ``path`` of a ``.npz``, if it has one text or integer per sample, as ``warmpot extract``
        writes it.
    features : sequence of str or None
        Columns that are features although they look like ids. None: all of them.
    columns : sequence of str, optional
        The columns that are the features, in their order; others are ignored. Without column names in the file, all
        features are read.
    labelled : bool
        False: leave the labels out, unchecked.
    classes, task
        As for `as_table`; default of `classes`: those in the file.
    """
    check_choice("task", task, TASKS)
    if is_shard_folder(path):
        return read_shards(path, label if labelled else "", classes, task, ids)
    content = _read_file(path, Roles(label, ids, features, columns))
    names = [str(name).strip() for name in content.names]
    options: dict[str, Any] = {"name": str(Path(path)), "task": task, "columns": content.columns, "names": names}
    if not labelled:
        return as_table(content.x, **options)
    if isinstance(content.y, np.ndarray) and content.y.dtype.kind == "U" and Path(path).suffix.lower() in DELIMITERS:
        _check_label_cells(Path(path), content.y, Roles(label, ids, features, columns))
    if classes is None and task == "classification":
        if isinstance(content.classes, InputError):
            raise content.classes
        classes = content.classes
    return as_table(content.x, content.y, classes=classes, **options)


def map_features(path: str | os.PathLike[str]) -> Table:
    """Return the features of a ``.npy`` file as an unlabelled table that is read from disk on demand, unchecked."""
    path = _checked(path)
    try:
        x = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:  # damaged, or a pickle
        raise path_error(path, str(error), "a readable .npy file", "If damaged, save it again.") from error
    if x.ndim != 2 or x.size == 0:
        raise path_error(path, f"shape {x.shape}", "a non-empty 2-d array", "Save one sample per row.")
    return Table(x, None, (), str(path))


def _read_file(path: str | os.PathLike[str], roles: Roles) -> _FileContent:
    path = _checked(path)
    try:
        return _READERS[path.suffix.lower()](path, roles)
    except WarmpotError:
        raise
    except Exception as error:  # a damaged file makes these parsers raise almost anything
        got = f"{type(error).__name__}: {' '.join(str(error).split(';')[0].split())}".rstrip(".: ")
        raise path_error(path, got, f"a readable {path.suffix.lower()} file", "If damaged, save it again.") from error


def _checked(path: str | os.PathLike[str]) -> Path:
    """Return the path of a non-empty file with a supported suffix; refuse everything else."""
    if isinstance(path, (str, os.PathLike)) and os.path.isdir(path):
        remedy = "Name one file; folders of images are read by warmpot.data.load_images, and by `warmpot fit` and "
        raise path_error(path, "a directory", "a file", remedy + "`extract`.")
    path = check_file(path, "a file you may read")
    if path.suffix.lower() not in _READERS:
        remedy = "Save as numpy.savez(path, X=features)."
        raise path_error(path, f"suffix {path.suffix!r}", " or ".join(_READERS), remedy)
    if path.stat().st_size == 0:
        raise path_error(path, "an empty file", "at least one row of numbers", "Write it again.")
    return path


def _read_numpy(path: Path, roles: Roles) -> _FileContent:
    label, ids = roles.label, roles.ids
    with open(path, "rb") as stream:  # opened here, because numpy leaves a damaged file open
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            y, classes = (None, None) if label == "" else _npz_labels(path, loaded, label)
            x = _npz_features(path, loaded)
            names = _npz_paths(loaded, x, label) if ids is None else _npz_ids(path, loaded, ids)
            return _FileContent(x, y, classes, names=names)
        got, remedy = "features only, as every .npy", "Save both in one .npz."
        if label:
            raise MissingLabelsError(str(path), got=got, allowed=f"labels {label!r}", remedy=remedy)
        if ids is not None:
            raise MissingColumnError(str(path), got=got, allowed=f"ids {ids!r}", remedy=remedy)
        return _FileContent(loaded)


def _npz_paths(loaded: Any, x: Any, label: str | None) -> Sequence[Any]:
    """Return the names that `warmpot extract` writes. Nobody asked for them: what is not one per sample is ignored."""
    if PATHS not in loaded.files or label == PATHS:
        return ()
    names: Any = np.empty(0)
    with suppress(ValueError):  # an array of objects is a pickle, which is never loaded
        names = loaded[PATHS]
    listed: list[Any] = names.tolist() if names.shape == np.shape(x)[:1] and names.dtype.kind in "Uiu" else []
    return listed


def _npz_ids(path: Path, loaded: Any, ids: str) -> Sequence[Any]:
    if ids not in loaded.files:
        got, remedy = f"keys {', '.join(loaded.files)}", "Check the spelling of the key."
        raise MissingColumnError(str(path), got=got, allowed=f"a key {ids!r} for ids", remedy=remedy)
    names = _npz_entry(path, loaded, ids)
    if names.ndim != 1:
        remedy = "Save one id per sample."
        raise path_error(path, f"shape {names.shape} under {ids!r}", "a 1-d array of ids", remedy)
    listed: list[Any] = names.tolist()
    return listed


def _npz_features(path: Path, loaded: Any) -> Any:
    if "X" in loaded.files:
        return loaded["X"]
    tables = []
    for key in loaded.files:
        with suppress(ValueError):  # an array of objects is a pickle, which is never loaded
            tables.append(loaded[key])
    tables = [table for table in tables if np.ndim(table) == 2 and table.dtype.kind in "biuf"]
    if len(tables) == 1:
        return tables[0]
    got = f"keys {', '.join(loaded.files)}" if loaded.files else "no arrays"
    raise path_error(path, got, "X, or only one 2-d array of numbers", "Save with numpy.savez(path, X=features).")


def _npz_labels(path: Path, loaded: Any, label: str | None) -> tuple[Any, Any]:
    key = "y" if label is None else label
    if key not in loaded.files:
        if label is None:
            return None, None
        got, remedy = f"keys {', '.join(loaded.files)}", "Check the spelling of the key."
        raise MissingLabelsError(str(path), got=got, allowed=f"a key {label!r}", remedy=remedy)
    try:
        classes = _npz_entry(path, loaded, "classes") if "classes" in loaded.files else None
    except InputError as error:
        classes = error
    return _npz_entry(path, loaded, key), classes


def _npz_entry(path: Path, loaded: Any, key: str) -> Any:
    try:
        return loaded[key]
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise  # damaged
        remedy = "Save texts as numpy.array(names, dtype=str)."
        raise path_error(path, f"a pickle under {key!r}", "arrays of numbers or texts", remedy) from error


def _read_text(path: Path, roles: Roles) -> _FileContent:
    delimiter = DELIMITERS[path.suffix.lower()]
    skip, columns, first = _text_columns(path, delimiter, roles)
    try:
        content = _read_cells(path, delimiter, skip, columns)
    except ValueError:
        # A second, slow pass: without the names of the bad columns nobody can repair the file.
        if (problem := _bad_cells(path, delimiter, skip, columns)) is not None:
            raise problem from None
        raise
    # loadtxt reads 3 and 3.0 as the same number; how the first row is written tells integers from fractions
    whole = (content.x == np.rint(content.x)).all(axis=0).tolist()
    integers = [first[j].strip().lstrip("+-").isdigit() for j in columns.features]
    refuse_ids(path, content.x, columns, [a and b for a, b in zip(whole, integers, strict=True)], roles)
    return content._replace(columns=columns.feature_names) if skip else content


def _text_columns(path: Path, delimiter: str, roles: Roles) -> tuple[int, FileColumns, list[str]]:
    """Return the number of header lines (0: none), what the columns are used for, and the first row of cells."""
    label = roles.label
    (line, first), (_, second) = [*islice(_rows(path, delimiter), 2), (0, []), (0, [])][:2]
    if not second and not (first and all(map(_is_number, first))):
        raise path_error(path, "no row of numbers", "at least one", "Write one sample per line.")
    named = [cell for cell in first if cell]
    features = [cell for cell in named if label == "" or cell.strip().lower() not in LABEL_NAMES]
    numbered = len(features) > 2 and features == [str(j) for j in range(len(features))]
    # Only a row without any number is a header: a sample with a missing value must not pass for one. There are two
    # exceptions: a column of labels or ids that the caller names is in the header, and so is one of labels next to
    # column numbers.
    header = not any(map(_is_number, first)) and any(map(_is_number, second))
    header |= bool(label) or (numbered and len(features) < len(named)) or roles.ids in [cell.strip() for cell in first]
    if delimiter == "," and header and len(first) < 2 <= first[0].count(";"):
        remedy = "Write it with commas between the cells and points in numbers (pandas: sep=',', decimal='.')."
        raise path_error(
            path, f"a first line {first[0][:40]!r}, cells that ';' separates", "cells that ',' separates", remedy
        )
    if (numbered and not header) or (header and (not first[0] or len(first) != len(second))):
        got = f"a first line {delimiter.join(first[:4])!r}: an index or column numbers, as pandas writes them"
        raise path_error(path, got, "features only", "Write it with index=False, and names in the header.")
    if not header:
        return 0, assign_columns(path, [f"column {j + 1}" for j in range(len(first))], roles, header=False), first
    return line, assign_columns(path, first, roles), second


def _read_cells(path: Path, delimiter: str, skip: int, columns: FileColumns) -> _FileContent:
    """Read numbers and, from the columns of labels and ids, strings in one pass."""
    texts = [j for j in (columns.label, columns.ids) if j is not None]
    if not texts and not columns.extra:
        x = np.loadtxt(path, delimiter=delimiter, skiprows=skip, ndmin=2, encoding="utf-8-sig", quotechar='"')
        return _FileContent(x[:, columns.features])
    codes: dict[int, dict[str, int]] = {j: {} for j in texts}

    def encoder(code_of: dict[str, int]) -> Callable[[str], float]:
        return lambda cell: code_of.setdefault(cell.strip(), len(code_of))

    with open(path, encoding="utf-8-sig", newline=None) as stream:
        # A "#" starts a comment only at the beginning of a line: a class may be called C#.
        lines = (line for line in islice(stream, skip, None) if not line.startswith("#"))
        options: dict[str, Any] = {"comments": None, "ndmin": 2, "quotechar": '"', "encoding": None}
        # Columns that are ignored are parsed too, as 0: a row with too many cells is still found.
        ignored = {j: lambda _: 0.0 for j in columns.extra}
        options["converters"] = {**ignored, **{j: encoder(code_of) for j, code_of in codes.items()}}
        table = np.loadtxt(lines, delimiter=delimiter, **options)
    cells = {j: np.array(list(code_of))[table[:, j].astype(np.int64)] for j, code_of in codes.items()}
    names = cells[columns.ids].tolist() if columns.ids is not None else ()
    y = cells[columns.label] if columns.label is not None else None
    for dtype in (np.int64, np.float64):  # labels stay strings unless all of them are numbers
        with suppress(ValueError, OverflowError):
            y = y if y is None or y.dtype.kind != "U" else y.astype(dtype)
    return _FileContent(table[:, columns.features], y, names=names)


def _bad_cells(path: Path, delimiter: str, skip: int, columns: FileColumns) -> InputError | None:
    """Describe columns of features that hold texts or, without any, the first empty cell."""
    texts: dict[str, str] = {}
    empty: list[str] = []
    for row, line, cells in _samples(path, delimiter, skip):
        for name, cell in ((columns.names[j], cells[j]) for j in columns.features if j < len(cells)):
            if cell.strip().lower() in NO_VALUE:
                what = repr(cell.strip()) if cell.strip() else "an empty cell"
                empty.append(_place(what, row, line, name))
            elif not _is_number(cell):
                texts[name] = repr(cell)
    if texts:
        return _not_numeric(path, texts)
    return _empty_error(path, empty, "a number in every cell") if empty else None


def _check_label_cells(path: Path, y: Any, roles: Roles) -> None:
    """Refuse empty labels, with their places in the file."""
    if (y != "").all():
        return
    delimiter = DELIMITERS[path.suffix.lower()]
    skip, columns, _ = _text_columns(path, delimiter, roles)
    j = columns.label
    assert j is not None, "the labels are from a column"
    rows = _samples(path, delimiter, skip)
    empty = [_place("an empty label", row, line, columns.names[j]) for row, line, cells in rows if not cells[j].strip()]
    raise _empty_error(path, empty, "a label in every row")


def _place(what: str, row: int, line: int, column: str) -> str:
    return f"{what} in row {row} (line {line}), column {column!r}"


def _empty_error(path: Path, places: Sequence[str], allowed: str) -> InputError:
    got = places[0] + (f" and {len(places) - 1} more" if len(places) > 1 else "")
    return path_error(path, got, allowed, "Fill it in, or drop the row; rows are counted from 0.")


def _samples(path: Path, delimiter: str, skip: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the row, the line and the cells of every sample."""
    for row, (line, cells) in enumerate(islice(_rows(path, delimiter), int(skip > 0), None)):
        yield row, line, cells


def _rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every row that is not blank or a comment, with the number of lines read so far."""
    with open(path, encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        yield from ((reader.line_num, row) for row in reader if row and not row[0].startswith("#"))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _not_numeric(path: Path, columns: dict[str, str]) -> InputError:
    shown = ", ".join(f"{name!r} ({what})" for name, what in islice(columns.items(), SHOWN))
    shown += f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    remedy = "Drop or encode them; `label=` names the column of labels, `ids=` that of ids."
    return path_error(path, f"columns that are not numeric: {shown}", "columns of numbers", remedy)


def _read_parquet(path: Path, roles: Roles) -> _FileContent:
    try:
        import pyarrow.parquet
        from pyarrow.types import is_boolean, is_floating, is_integer
    except ImportError as error:
        remedy = "Run: pip install 'warmpot[parquet]'"
        raise MissingExtraError(str(path), got="no pyarrow", allowed="pyarrow", remedy=remedy) from error
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    columns = assign_columns(path, table.schema.names, roles)
    y = None if columns.label is None else table.column(columns.label).to_pylist()
    names = () if columns.ids is None else table.column(columns.ids).to_pylist()
    table = table.select(columns.features)
    # pandas stores an index that is not a plain count in a column of such a name
    wrong = {f.name: "an index" for f in table.schema if f.name.startswith("__index_level_")}
    numeric = (is_integer, is_floating, is_boolean)
    wrong |= {f.name: str(f.type) for f in table.schema if not any(test(f.type) for test in numeric)}
    if wrong:
        raise _not_numeric(path, wrong)
    narrow = all(is_floating(f.type) and f.type.bit_width <= 32 for f in table.schema)
    dtype = np.float32 if narrow else np.float64
    x = np.column_stack([np.asarray(column.to_numpy(), dtype) for column in table.columns])  # a missing value is NaN
    refuse_ids(path, x, columns, [is_integer(f.type) for f in table.schema], roles)
    return _FileContent(x, y, columns=columns.feature_names, names=names)


_READERS = {".npz": _read_numpy, ".npy": _read_numpy, ".csv": _read_text, ".tsv": _read_text, ".parquet": _read_parquet}
