"""Tables of features from files: one sample a row, one feature a column."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from warmpot._checks import check_matrix
from warmpot._typing import FloatArray
from warmpot.errors import InputError, MissingExtraError, WarmpotError, explain

__all__ = ["load_features"]


def load_features(path: str | os.PathLike[str]) -> FloatArray:
    """Read a table of features; an `InputError` says what is wrong with a file that holds none.

    Parameters
    ----------
    path : str or path
        A ``.npz`` (the array ``X``, else the only 2-d array of numbers), ``.npy``, ``.csv``, ``.tsv`` or ``.parquet``
        (extra ``parquet``) file. A text file may start with a row of column names. Nothing is ever unpickled.

    Returns
    -------
    (n, d) float64 array
        One sample a row; not empty, every entry finite.
    """
    path = _checked(path)
    try:
        found = _READERS[path.suffix.lower()](path)
    except WarmpotError:
        raise
    except Exception as error:  # a damaged file makes these parsers raise almost anything
        got = f"{type(error).__name__}: {' '.join(str(error).split(';')[0].split())}".rstrip(".: ")
        raise _refusal(path, got, f"a readable {path.suffix.lower()} file", "If damaged, save it again.") from error
    return check_matrix(str(path), found)


def _refusal(path: object, got: str, allowed: str, remedy: str) -> InputError:
    return InputError(explain(str(path), got=got, allowed=allowed, remedy=remedy))


def _checked(path: str | os.PathLike[str]) -> Path:
    """Refuse what is not a file with something in it and a suffix we know."""
    try:
        path = Path(path)
        size = path.stat().st_size
    except (OSError, TypeError, ValueError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise _refusal(path, got, "a file you may read", "Check spelling, folder and permissions.") from error
    if not path.is_file():
        raise _refusal(path, "a directory" if path.is_dir() else "a device", "a file", "Name one file.")
    if path.suffix.lower() not in _READERS:
        raise _refusal(path, f"suffix {path.suffix!r}", " or ".join(_READERS), "Save as numpy.savez(path, X=features).")
    if size == 0:
        raise _refusal(path, "an empty file", "at least one row of numbers", "Write it again.")
    return path


def _read_numpy(path: Path) -> object:
    with open(path, "rb") as stream:  # ours to close: numpy leaves it open when the file is damaged
        loaded = np.load(stream, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            return loaded
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
    raise _refusal(path, got, "X, or only one 2-d array of numbers", "Save with numpy.savez(path, X=features).")


def _read_text(path: Path) -> FloatArray:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    (line, first), (_, second) = [*islice(_rows(path, delimiter), 2), (0, []), (0, [])][:2]
    if not second and not (first and all(map(_is_number, first))):
        raise _refusal(path, "no row of numbers", "at least one", "Write one sample a line.")
    # Only a row without any number is a header: a sample with a hole in it must not pass for one.
    header = not any(map(_is_number, first)) and any(map(_is_number, second))
    named = [cell for cell in first if cell]
    counted = len(named) > 2 and named == [str(j) for j in range(len(named))]
    if counted or (header and (not first[0] or len(first) != len(second))):
        got = f"a first line {delimiter.join(first[:4])!r}: an index or column numbers, as pandas writes them"
        raise _refusal(path, got, "features only", "Write it with index=False, and names in the header.")
    skip, names = (line, first) if header else (0, [f"column {j + 1}" for j in range(len(first))])
    try:
        return np.loadtxt(path, delimiter=delimiter, skiprows=skip, ndmin=2, encoding="utf-8-sig", quotechar='"')
    except ValueError:
        # Slow to find, but the file is of no use until its owner knows where to look.
        pairs = (zip(names, row, strict=False) for _, row in islice(_rows(path, delimiter), int(header), None))
        if texts := {name: repr(cell) for row in pairs for name, cell in row if not _is_number(cell)}:
            raise _no_features(path, texts) from None
        raise


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
    return _refusal(path, f"columns that are no features: {shown}", "columns of numbers", "Drop or encode them.")


def _read_parquet(path: Path) -> FloatArray:
    try:
        import pyarrow.parquet
        from pyarrow.types import is_boolean, is_floating, is_integer
    except ImportError as error:
        text = explain(str(path), got="no pyarrow", allowed="pyarrow", remedy="Run: pip install 'warmpot[parquet]'")
        raise MissingExtraError(text) from error
    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    # pandas keeps an index that is not a plain count as a column of such a name
    wrong = {f.name: "an index" for f in table.schema if f.name.startswith("__index_level_")}
    numeric = (is_integer, is_floating, is_boolean)
    wrong |= {f.name: str(f.type) for f in table.schema if not any(test(f.type) for test in numeric)}
    if wrong:
        raise _no_features(path, wrong)
    # A missing value becomes NaN, which is refused with its place.
    return np.column_stack([np.asarray(column.to_numpy(), float) for column in table.columns])


_READERS = {".npz": _read_numpy, ".npy": _read_numpy, ".csv": _read_text, ".tsv": _read_text, ".parquet": _read_parquet}
