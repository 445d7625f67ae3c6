"""Tables of features from files: one sample per row, one feature per column. Nothing is ever unpickled."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from warmpot._checks import check_choice, check_matrix
from warmpot._files import check_file
from warmpot._typing import FloatArray
from warmpot.data._columns import FileContent, IdColumns, Roles, assign_columns
from warmpot.data._image_lists import path_error
from warmpot.data._text_files import DELIMITERS, label_values, not_numeric, read_text_file
from warmpot.data.shards import is_shard_folder, read_shards
from warmpot.data.table import TASKS, Table, as_table
from warmpot.errors import (
    InputError,
    MissingColumnError,
    MissingExtraError,
    MissingLabelsError,
    WarmpotError,
)

__all__ = ["labelled_table", "load_features", "load_table", "read_file"]

BUFFER = 2**20  # bytes of a column of a .parquet file that are read at a time
PATHS = "path"  # key of a .npz with names of samples, as `warmpot extract` writes it


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
    roles = Roles(label, ids, features, columns)
    (content,) = read_file(path, roles)
    if labelled:
        return labelled_table(path, content, roles, classes=classes, task=task)
    return labelled_table(path, content._replace(y=None), roles, task=task)


def labelled_table(
    path: str | os.PathLike[str],
    content: FileContent,
    roles: Roles,
    *,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
) -> Table:
    """Check what was read from a file, and encode its labels; `classes` and `task` as for `load_table`."""
    y = content.y
    if y is not None and Path(path).suffix.lower() in DELIMITERS:
        y = label_values(Path(path), y, roles)
    if y is not None and classes is None and task == "classification":
        if isinstance(content.classes, InputError):
            raise content.classes
        classes = content.classes
    names = [str(name).strip() for name in content.names]
    options: dict[str, Any] = {"name": str(Path(path)), "columns": content.columns, "names": names}
    return as_table(content.x, y, classes=classes, task=task, **options)


def read_file(path: str | os.PathLike[str], roles: Roles, rows: int | None = None) -> Iterator[FileContent]:
    """Yield the unchecked content of a file: all of it, or so many rows after the others.

    What concerns all rows, such as columns that look like ids, is checked after the last. A ``.npz`` is read whole.
    """
    path = _checked(path)
    try:
        yield from _READERS[path.suffix.lower()](path, roles, rows)
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


def _read_numpy(path: Path, roles: Roles, rows: int | None) -> Iterator[FileContent]:
    label, ids = roles.label, roles.ids
    with open(path, "rb") as stream:  # opened here, because numpy leaves a damaged file open
        single = stream.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
        got, remedy = "features only, as every .npy", "Save both in one .npz."
        if single and label:
            raise MissingLabelsError(str(path), got=got, allowed=f"labels {label!r}", remedy=remedy)
        if single and ids is not None:
            raise MissingColumnError(str(path), got=got, allowed=f"ids {ids!r}", remedy=remedy)
        if single and rows is not None:
            yield from _array_parts(path, rows)
            return
        stream.seek(0)
        loaded = np.load(stream, allow_pickle=False)
        if single:
            yield FileContent(loaded)
            return
        y, classes = (None, None) if label == "" else _npz_labels(path, loaded, label)
        x = _npz_features(path, loaded)
        names = _npz_paths(loaded, x, label) if ids is None else _npz_ids(path, loaded, ids)
        yield FileContent(x, y, classes, names=names)


def _array_parts(path: Path, rows: int) -> Iterator[FileContent]:
    start, n = 0, 1
    while start < n:
        # mapped for every part: pages that were read count as memory of the process until they are unmapped
        mapped = np.lib.format.open_memmap(path, mode="r")
        n = len(mapped) if mapped.ndim == 2 else 0  # anything else is refused by its shape
        x = np.array(mapped[start : start + rows] if n else mapped)
        del mapped
        start += rows
        yield FileContent(x, share=min(start / max(n, 1), 1.0))


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


def _read_parquet(path: Path, roles: Roles, rows: int | None) -> Iterator[FileContent]:
    try:
        import pyarrow.parquet
        from pyarrow.types import is_boolean, is_floating, is_integer, is_nested
    except ImportError as error:
        remedy = "Run: pip install 'warmpot[parquet]'"
        raise MissingExtraError(str(path), got="no pyarrow", allowed="pyarrow", remedy=remedy) from error
    # some of a row group at a time: all of it in memory, decoded by several threads, takes more of it and is no faster
    with pyarrow.parquet.ParquetFile(path, buffer_size=BUFFER if rows else 0, pre_buffer=not rows) as file:
        columns = assign_columns(path, file.schema_arrow.names, roles)
        fields = [file.schema_arrow.field(j) for j in columns.features]
        # pandas stores an index that is not a plain count in a column of such a name
        wrong = {f.name: "an index" for f in fields if f.name.startswith("__index_level_")}
        numeric = (is_integer, is_floating, is_boolean)
        wrong |= {f.name: str(f.type) for f in fields if not any(test(f.type) for test in numeric)}
        if wrong:
            raise not_numeric(path, wrong)
        if columns.label is not None and is_nested(kind := file.schema_arrow.field(columns.label).type):
            raise path_error(path, f"labels of type {kind}", "texts or numbers", "Write one label per sample.")
        narrow = all(is_floating(f.type) and f.type.bit_width <= 32 for f in fields)
        ids, done, n = IdColumns(path, columns, roles), 0, file.metadata.num_rows
        whole = rows is None or not n  # without rows there are no batches
        for batch in [file.read()] if whole else file.iter_batches(rows, use_threads=False):
            table = batch if whole else pyarrow.Table.from_batches([batch])
            values = (table.column(j).to_numpy() for j in columns.features)  # a missing value is NaN
            x = np.column_stack([np.asarray(column, np.float32 if narrow else np.float64) for column in values])
            ids.add(x, [is_integer(f.type) for f in fields])
            y, names = (None if j is None else table.column(j).to_pylist() for j in (columns.label, columns.ids))
            done += len(x)
            yield FileContent(x, y, None, columns.feature_names, names or (), done / max(n, 1))
        ids.refuse()


_READERS = {
    ".npz": _read_numpy, ".npy": _read_numpy, ".csv": read_text_file, ".tsv": read_text_file, ".parquet": _read_parquet,
}  # fmt: skip
