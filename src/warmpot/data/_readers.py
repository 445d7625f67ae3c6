"""Readers of single files: features, and the labels beside them when asked for. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot.data._lists import refusal
from warmpot.errors import InputError, MissingExtraError, MissingLabelsError, WarmpotError, listing

__all__ = ["LABEL_NAMES", "Content", "read"]

LABEL_NAMES = ("label", "y", "class", "target")
"""Columns taken for labels when none is named, in any case."""


@dataclass(frozen=True)
class Content:
    """What a file holds: features, labels, names of classes and of the features' columns, unchecked.

    Names that cannot be read are an `InputError`, to be raised by who has no use for the labels without them.
    """

    x: Any
    y: Any = None
    classes: Any = None
    columns: tuple[str, ...] = ()


def read(path: str | os.PathLike[str], label: str | None = "") -> Content:
    """Read a file, or raise an `InputError` that says what is wrong with it.

    Parameters
    ----------
    path : str or path
        A file of a suffix we know.
    label : str or None
        The column or key of labels; "" for features only, None for the usual names.
    """
    path = _checked(path)
    try:
        return _READERS[path.suffix.lower()](path, label)
    except WarmpotError:
        raise
    except Exception as error:  # a damaged file makes these parsers raise almost anything
        got = f"{type(error).__name__}: {' '.join(str(error).split(';')[0].split())}".rstrip(".: ")
        raise refusal(path, got, f"a readable {path.suffix.lower()} file", "If damaged, save it again.") from error


def _checked(path: str | os.PathLike[str]) -> Path:
    """Refuse what is not a file with something in it and a suffix we know."""
    try:
        path = Path(path)
        size = path.stat().st_size
    except (OSError, TypeError, ValueError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise refusal(path, got, "a file you may read", "Check spelling, folder and permissions.") from error
    if path.is_dir():
        remedy = (
            "Name one file; folders of images are read by warmpot.data.load_images, and by `warmpot fit` and `extract`."
        )
        raise refusal(path, "a directory", "a file", remedy)
    if not path.is_file():
        raise refusal(path, "a device", "a file", "Name one file.")
    if path.suffix.lower() not in _READERS:
        raise refusal(path, f"suffix {path.suffix!r}", " or ".join(_READERS), "Save as numpy.savez(path, X=features).")
    if size == 0:
        raise refusal(path, "an empty file", "at least one row of numbers", "Write it again.")
    return path


def _label_column(path: Path, names: Sequence[str], label: str | None) -> int | None:
    """Find the column of labels among the names of all columns."""
    if label == "":
        return None
    names = [name.strip() for name in names]
    found = [j for j, name in enumerate(names) if (name.lower() in LABEL_NAMES if label is None else name == label)]
    if len(found) > 1:
        got = f"{len(found)} columns for labels: {listing([names[j] for j in found])}"
        raise refusal(path, got, "one", "Choose one with `label=`, and drop the other: it may give the label away.")
    if label is not None and not found:
        got = f"columns {listing(names)}" if names else "no names of columns"
        remedy = "Check the spelling of the label column."
        raise MissingLabelsError(str(path), got=got, allowed=f"a column {label!r}", remedy=remedy)
    return found[0] if found else None


def _read_numpy(path: Path, label: str | None) -> Content:
    with open(path, "rb") as stream:  # ours to close: numpy leaves it open when the file is damaged
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            y, classes = (None, None) if label == "" else _npz_labels(path, loaded, label)
            return Content(_npz_table(path, loaded), y, classes)
        if label:
            got, remedy = "features only, as every .npy", "Save both in one .npz (X, y)."
            raise MissingLabelsError(str(path), got=got, allowed=f"labels {label!r}", remedy=remedy)
        return Content(loaded)


def _npz_table(path: Path, loaded: Any) -> Any:
    if "X" in loaded.files:
        return loaded["X"]
    tables = []
    for key in loaded.files:
        with suppress(ValueError):  # an array of objects is a pickle: it stays closed
            tables.append(loaded[key])
    tables = [table for table in tables if np.ndim(table) == 2 and table.dtype.kind in "biuf"]
    if len(tables) == 1:
        return tables[0]
    got = f"keys {', '.join(loaded.files)}" if loaded.files else "no arrays"
    raise refusal(path, got, "X, or only one 2-d array of numbers", "Save with numpy.savez(path, X=features).")


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
        raise refusal(path, f"a pickle under {key!r}", "arrays of numbers or texts", remedy) from error


def _read_text(path: Path, label: str | None) -> Content:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    skip, names, at = _text_columns(path, delimiter, label)
    columns = tuple(name.strip() for j, name in enumerate(names) if j != at) if skip else ()
    try:
        if at is not None:
            return replace(_split_text(path, delimiter, skip, at), columns=columns)
        x = np.loadtxt(path, delimiter=delimiter, skiprows=skip, ndmin=2, encoding="utf-8-sig", quotechar='"')
        return Content(x, columns=columns)
    except ValueError:
        # Slow to find, but the file is of no use until its owner knows where to look.
        pairs = (zip(names, row, strict=False) for _, row in islice(_rows(path, delimiter), int(skip > 0), None))
        texts = {name: repr(cell) for row in pairs for name, cell in row if not _is_number(cell)}
        if at is not None:
            texts.pop(names[at], None)
        if texts:
            raise _no_features(path, texts) from None
        raise


def _text_columns(path: Path, delimiter: str, label: str | None) -> tuple[int, list[str], int | None]:
    """Find the lines of the header (0: none), the names of the columns and which one holds the labels."""
    (line, first), (_, second) = [*islice(_rows(path, delimiter), 2), (0, []), (0, [])][:2]
    if not second and not (first and all(map(_is_number, first))):
        raise refusal(path, "no row of numbers", "at least one", "Write one sample a line.")
    named = [cell for cell in first if cell]
    counts = [cell for cell in named if label == "" or cell.strip().lower() not in LABEL_NAMES]
    counted = len(counts) > 2 and counts == [str(j) for j in range(len(counts))]
    # Only a row without any number is a header: a sample with a hole in it must not pass for one. But a label column
    # that the caller names is in the header, whatever else is there, and one beside column numbers tells it too.
    header = not any(map(_is_number, first)) and any(map(_is_number, second))
    header |= bool(label) or (counted and len(counts) < len(named))
    if (counted and not header) or (header and (not first[0] or len(first) != len(second))):
        got = f"a first line {delimiter.join(first[:4])!r}: an index or column numbers, as pandas writes them"
        raise refusal(path, got, "features only", "Write it with index=False, and names in the header.")
    if not header:
        return 0, [f"column {j + 1}" for j in range(len(first))], None
    return line, first, _label_column(path, first, label)


def _split_text(path: Path, delimiter: str, skip: int, at: int) -> Content:
    """Read numbers and, from column `at`, texts in one pass."""
    codes: dict[str, int] = {}
    with open(path, encoding="utf-8-sig", newline=None) as stream:
        # A "#" starts a comment at the head of a line only: a class may be called C#.
        lines = (line for line in islice(stream, skip, None) if not line.startswith("#"))
        table = np.loadtxt(
            lines,
            delimiter=delimiter,
            comments=None,
            ndmin=2,
            quotechar='"',
            converters={at: lambda cell: codes.setdefault(cell.strip(), len(codes))},
            encoding=None,
        )
    y = np.array(list(codes))[table[:, at].astype(np.int64)]
    for dtype in (np.int64, np.float64):  # numbers stay texts only where a label is none
        with suppress(ValueError, OverflowError):
            return Content(np.delete(table, at, axis=1), y.astype(dtype))
    return Content(np.delete(table, at, axis=1), y)


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


def _no_features(path: Path, columns: dict[str, str]) -> InputError:
    """Name the columns that hold no numbers, each with what it holds."""
    shown = ", ".join(f"{name!r} ({what})" for name, what in islice(columns.items(), 5))
    shown += f" and {len(columns) - 5} more" if len(columns) > 5 else ""
    return refusal(path, f"columns that are no features: {shown}", "columns of numbers", "Drop or encode them.")


def _read_parquet(path: Path, label: str | None) -> Content:
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
    # pandas keeps an index that is not a plain count as a column of such a name
    wrong = {f.name: "an index" for f in table.schema if f.name.startswith("__index_level_")}
    numeric = (is_integer, is_floating, is_boolean)
    wrong |= {f.name: str(f.type) for f in table.schema if not any(test(f.type) for test in numeric)}
    if wrong:
        raise _no_features(path, wrong)
    narrow = all(is_floating(f.type) and f.type.bit_width <= 32 for f in table.schema)
    columns = tuple(name.strip() for name in table.schema.names)
    return Content(_stacked(table, np.float32 if narrow else np.float64), y, columns=columns)


def _stacked(table: Any, dtype: type) -> NDArray[Any]:
    # A missing value becomes NaN, which is refused with its place.
    return np.column_stack([np.asarray(column.to_numpy(), dtype) for column in table.columns])


_READERS = {".npz": _read_numpy, ".npy": _read_numpy, ".csv": _read_text, ".tsv": _read_text, ".parquet": _read_parquet}
