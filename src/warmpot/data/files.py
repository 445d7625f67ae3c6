"""Tables of features from files: one sample per row, one feature per column. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warmpot._checks import check_choice, check_matrix
from warmpot._files import check_file
from warmpot._typing import FloatArray
from warmpot.data._image_lists import path_error
from warmpot.data.shards import is_shard_folder, read_shards
from warmpot.data.table import TASKS, Table, as_table
from warmpot.errors import InputError, MissingExtraError, MissingLabelsError, WarmpotError, listing

__all__ = ["load_features", "load_table"]

LABEL_NAMES = ("label", "y", "class", "target")
"""Columns that hold the labels when no column is named; upper and lower case are the same."""
SHOWN = 5  # columns that a message lists


class _FileContent(NamedTuple):
    """Unchecked content of a file. `classes` is an `InputError` if it cannot be read, to be raised if it is needed."""

    x: Any
    y: Any = None
    classes: Any = None
    columns: tuple[str, ...] = ()


def load_features(path: str | os.PathLike[str]) -> FloatArray:
    """Read a table of features as a float64 array (n, d), not empty, every entry finite.

    Parameters
    ----------
    path : str or path
        As for `load_table`. A ``.npz`` without ``X`` may have another array, if it is its only 2-d array of numbers; a
        text file needs no row of column names.
    """
    return check_matrix(str(path), read_shards(path).x[:] if is_shard_folder(path) else _read_file(path).x)


def load_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
) -> Table:
    """Read features and labels from a file; an `InputError` explains why it cannot be read.

    The table is named after the file, and unlabelled when the file has no labels. Its `columns` are the names in the
    file.

    Parameters
    ----------
    path : str or path
        A ``.npz`` with ``X`` and optionally ``y`` and ``classes`` (the names that whole numbers in ``y`` index into),
        a ``.npy`` of features, or a ``.csv``, ``.tsv`` or ``.parquet`` (extra ``parquet``) file with a row of column
        names; or a folder written by `warmpot extract`, whose rows are loaded on demand. Nothing is ever unpickled.
    label : str, optional
        The column (or key of a ``.npz``) with the labels, strings or numbers. Default: ``y`` of a ``.npz``, and in
        other files a column called label, y, class or target, in any case, if there is one. "" reads no labels.
    classes, task
        As for `as_table`; default of `classes`: those in the file.
    """
    check_choice("task", task, TASKS)
    if is_shard_folder(path):
        return read_shards(path, label, classes, task)
    content = _read_file(path, label)
    if classes is None and task == "classification":
        if isinstance(content.classes, InputError):
            raise content.classes
        classes = content.classes
    table = as_table(content.x, content.y, classes=classes, name=str(Path(path)), task=task)
    return replace(table, columns=content.columns)


def _read_file(path: str | os.PathLike[str], label: str | None = "") -> _FileContent:
    """Read a file; `label` is the column or key of the labels, "" for features only, None for the usual names."""
    path = _checked(path)
    try:
        return _READERS[path.suffix.lower()](path, label)
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


def _label_column(path: Path, names: Sequence[str], label: str | None) -> int | None:
    """Find the column of labels among all column names."""
    if label == "":
        return None
    names = [name.strip() for name in names]
    matches = [j for j, name in enumerate(names) if (name.lower() in LABEL_NAMES if label is None else name == label)]
    if len(matches) > 1:
        got = f"{len(matches)} columns for labels: {listing([names[j] for j in matches])}"
        raise path_error(path, got, "one", "Choose one with `label=`, and drop the other: it may give the label away.")
    if label is not None and not matches:
        got, allowed = f"columns {listing(names)}" if names else "no names of columns", f"a column {label!r}"
        raise MissingLabelsError(str(path), got=got, allowed=allowed, remedy="Check the spelling of the label column.")
    return matches[0] if matches else None


def _read_numpy(path: Path, label: str | None) -> _FileContent:
    with open(path, "rb") as stream:  # opened here, because numpy leaves a damaged file open
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            y, classes = (None, None) if label == "" else _npz_labels(path, loaded, label)
            return _FileContent(_npz_features(path, loaded), y, classes)
        if label:
            got, remedy = "features only, as every .npy", "Save both in one .npz (X, y)."
            raise MissingLabelsError(str(path), got=got, allowed=f"labels {label!r}", remedy=remedy)
        return _FileContent(loaded)


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


def _read_text(path: Path, label: str | None) -> _FileContent:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    skip, names, at = _text_columns(path, delimiter, label)
    columns = tuple(name.strip() for j, name in enumerate(names) if j != at) if skip else ()
    try:
        if at is not None:
            return _features_and_labels(path, delimiter, skip, at)._replace(columns=columns)
        x = np.loadtxt(path, delimiter=delimiter, skiprows=skip, ndmin=2, encoding="utf-8-sig", quotechar='"')
        return _FileContent(x, columns=columns)
    except ValueError:
        # A second, slow pass: without the names of the bad columns nobody can repair the file.
        pairs = (zip(names, row, strict=False) for _, row in islice(_rows(path, delimiter), int(skip > 0), None))
        texts = {name: repr(cell) for row in pairs for name, cell in row if not _is_number(cell)}
        if at is not None:
            texts.pop(names[at], None)
        if texts:
            raise _not_numeric(path, texts) from None
        raise


def _text_columns(path: Path, delimiter: str, label: str | None) -> tuple[int, list[str], int | None]:
    """Return the number of header lines (0: none), the column names, and which column holds the labels."""
    (line, first), (_, second) = [*islice(_rows(path, delimiter), 2), (0, []), (0, [])][:2]
    if not second and not (first and all(map(_is_number, first))):
        raise path_error(path, "no row of numbers", "at least one", "Write one sample per line.")
    named = [cell for cell in first if cell]
    features = [cell for cell in named if label == "" or cell.strip().lower() not in LABEL_NAMES]
    numbered = len(features) > 2 and features == [str(j) for j in range(len(features))]
    # Only a row without any number is a header: a sample with a missing value must not pass for one. There are two
    # exceptions: a label column that the caller names is in the header, and so is one next to column numbers.
    header = not any(map(_is_number, first)) and any(map(_is_number, second))
    header |= bool(label) or (numbered and len(features) < len(named))
    if (numbered and not header) or (header and (not first[0] or len(first) != len(second))):
        got = f"a first line {delimiter.join(first[:4])!r}: an index or column numbers, as pandas writes them"
        raise path_error(path, got, "features only", "Write it with index=False, and names in the header.")
    if not header:
        return 0, [f"column {j + 1}" for j in range(len(first))], None
    return line, first, _label_column(path, first, label)


def _features_and_labels(path: Path, delimiter: str, skip: int, at: int) -> _FileContent:
    """Read numbers and, from column `at`, strings in one pass."""
    codes: dict[str, int] = {}
    with open(path, encoding="utf-8-sig", newline=None) as stream:
        # A "#" starts a comment only at the beginning of a line: a class may be called C#.
        lines = (line for line in islice(stream, skip, None) if not line.startswith("#"))
        options: dict[str, Any] = {"comments": None, "ndmin": 2, "quotechar": '"', "encoding": None}
        options["converters"] = {at: lambda cell: codes.setdefault(cell.strip(), len(codes))}
        table = np.loadtxt(lines, delimiter=delimiter, **options)
    x, y = np.delete(table, at, axis=1), np.array(list(codes))[table[:, at].astype(np.int64)]
    for dtype in (np.int64, np.float64):  # labels stay strings unless all of them are numbers
        with suppress(ValueError, OverflowError):
            return _FileContent(x, y.astype(dtype))
    return _FileContent(x, y)


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
    return path_error(path, f"columns that are not numeric: {shown}", "columns of numbers", "Drop or encode them.")


def _read_parquet(path: Path, label: str | None) -> _FileContent:
    try:
        import pyarrow.parquet
        from pyarrow.types import is_boolean, is_floating, is_integer
    except ImportError as error:
        remedy = "Run: pip install 'warmpot[parquet]'"
        raise MissingExtraError(str(path), got="no pyarrow", allowed="pyarrow", remedy=remedy) from error
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    y = None
    if (at := _label_column(path, table.schema.names, label)) is not None:
        y = table.column(at).to_pylist()
        table = table.remove_column(at)
    # pandas stores an index that is not a plain count in a column of such a name
    wrong = {f.name: "an index" for f in table.schema if f.name.startswith("__index_level_")}
    numeric = (is_integer, is_floating, is_boolean)
    wrong |= {f.name: str(f.type) for f in table.schema if not any(test(f.type) for test in numeric)}
    if wrong:
        raise _not_numeric(path, wrong)
    narrow = all(is_floating(f.type) and f.type.bit_width <= 32 for f in table.schema)
    dtype = np.float32 if narrow else np.float64
    x = np.column_stack([np.asarray(column.to_numpy(), dtype) for column in table.columns])  # a missing value is NaN
    return _FileContent(x, y, columns=tuple(name.strip() for name in table.schema.names))


_READERS = {".npz": _read_numpy, ".npy": _read_numpy, ".csv": _read_text, ".tsv": _read_text, ".parquet": _read_parquet}
