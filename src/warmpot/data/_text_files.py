"""Text files of features, such as ``.csv``: one sample per line, read whole or some rows after the other."""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot.data._columns import LABEL_NAMES, FileColumns, FileContent, IdColumns, Roles, assign_columns
from warmpot.data._image_lists import path_error
from warmpot.errors import InputError

__all__ = ["DELIMITERS", "label_values", "not_numeric", "read_text_file"]

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SHOWN = 5  # columns that a message lists
NO_VALUE = ("", "na", "n/a", "null", "none")  # cells of a number that is missing, in lower case


def read_text_file(path: Path, roles: Roles, rows: int | None) -> Iterator[FileContent]:
    """Yield so many rows after the others, or all of them at once; labels as they are written."""
    delimiter = DELIMITERS[path.suffix.lower()]
    skip, columns, first = _text_columns(path, delimiter, roles)
    ids = IdColumns(path, columns, roles)
    # loadtxt reads 3 and 3.0 as the same number; how the first row is written tells integers from fractions
    integers = np.array([first[j].strip().lstrip("+-").isdigit() for j in columns.features], dtype=bool)
    try:
        for content in _read_cells(path, delimiter, skip, columns, rows):
            ids.add(content.x, (integers & (content.x == np.rint(content.x)).all(axis=0)).tolist())
            yield content._replace(columns=columns.feature_names) if skip else content
    except ValueError:
        # A second, slow pass: without the names of the bad columns nobody can repair the file.
        if (problem := _bad_cells(path, delimiter, skip, columns)) is not None:
            raise problem from None
        raise
    ids.refuse()


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


def _read_cells(path: Path, delimiter: str, skip: int, columns: FileColumns, rows: int | None) -> Iterator[FileContent]:
    """Read numbers and, from the columns of labels and ids, strings in one pass."""
    options: dict[str, Any] = {"delimiter": delimiter, "ndmin": 2, "quotechar": '"'}
    texts = [j for j in (columns.label, columns.ids) if j is not None]
    if rows is None and not texts and not columns.extra:
        x = np.loadtxt(path, skiprows=skip, encoding="utf-8-sig", **options)  # faster than line by line
        yield FileContent(_columns_of(x, columns.features))
        return
    with open(path, encoding="utf-8-sig", newline=None) as stream:
        lines: Iterator[str] = islice(stream, skip, None)
        if texts or columns.extra:
            # A "#" starts a comment only at the beginning of a line: a class may be called C#.
            options["comments"], lines = None, (line for line in lines if not line.startswith("#"))
        while (line := next(lines, None)) is not None:
            codes: dict[int, dict[str, int]] = {j: {} for j in texts}
            # Columns that are ignored are parsed too, as 0: a row with too many cells is still found.
            ignored = {j: lambda _: 0.0 for j in columns.extra}
            options["converters"] = {**ignored, **{j: _encoder(code_of) for j, code_of in codes.items()}} or None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of blank lines, which are no rows
                table = np.loadtxt(chain([line], lines), max_rows=rows, encoding=None, **options)
            if not len(table):
                break  # blank lines at the end
            if table.shape[1] != len(columns.names):
                raise ValueError(f"{table.shape[1]} columns instead of {len(columns.names)}")
            cells = {j: np.array(list(code_of))[table[:, j].astype(np.int64)] for j, code_of in codes.items()}
            for j in {*texts} & {*columns.features}:  # a run may have been trained on what are the labels or ids here
                table[:, j] = cells[j].astype(np.float64)
            names = cells[columns.ids].tolist() if columns.ids is not None else ()
            y = cells[columns.label] if columns.label is not None else None
            share = os.lseek(stream.fileno(), 0, os.SEEK_CUR) / path.stat().st_size
            yield FileContent(_columns_of(table, columns.features), y, names=names, share=share)


def _encoder(code_of: dict[str, int]) -> Callable[[str], float]:
    return lambda cell: code_of.setdefault(cell.strip(), len(code_of))


def _columns_of(table: NDArray[Any], features: Sequence[int]) -> NDArray[Any]:
    """Return these columns in their order, without a copy if that is all of them."""
    return table if list(features) == list(range(table.shape[1])) else table[:, features]


def _bad_cells(path: Path, delimiter: str, skip: int, columns: FileColumns) -> InputError | None:
    """Describe columns of features that hold texts or, without any, the first empty cell or the first odd row."""
    texts: dict[str, str] = {}
    empty, odd, width = _Places(), "", len(columns.names)
    for row, line, cells in _samples(path, delimiter, skip):
        if len(cells) != width and not odd:
            odd = f"a number of columns changed from {width} to {len(cells)} in row {row} (line {line})"
        for name, cell in ((columns.names[j], cells[j]) for j in columns.features if j < len(cells)):
            if cell.strip().lower() in NO_VALUE:
                empty.add(repr(cell.strip()) if cell.strip() else "an empty cell", row, line, name)
            elif not _is_number(cell):
                texts[name] = repr(cell)
    if texts:
        return not_numeric(path, texts)
    if empty.count:
        return empty.error(path, "a number in every cell")
    remedy = "Write every row with the same cells; rows are counted from 0."
    return path_error(path, odd, f"{width} cells in every row", remedy) if odd else None


def label_values(path: Path, cells: NDArray[Any], roles: Roles) -> NDArray[Any]:
    """Return labels as numbers if all of them are, else as texts; refuse empty ones, with their places in the file."""
    for dtype in (np.int64, np.float64):
        with suppress(ValueError, OverflowError):
            return cells.astype(dtype)
    if (cells != "").all():
        return cells
    delimiter = DELIMITERS[path.suffix.lower()]
    skip, columns, _ = _text_columns(path, delimiter, roles)
    j = columns.label
    assert j is not None, "the labels are from a column"
    empty = _Places()
    for row, line, sample in _samples(path, delimiter, skip):
        if not sample[j].strip():
            empty.add("an empty label", row, line, columns.names[j])
    raise empty.error(path, "a label in every row")


class _Places:
    """The first of several cells that should not be empty, and their number."""

    def __init__(self) -> None:
        self.first, self.count = "", 0

    def add(self, what: str, row: int, line: int, column: str) -> None:
        self.first = self.first or f"{what} in row {row} (line {line}), column {column!r}"
        self.count += 1

    def error(self, path: Path, allowed: str) -> InputError:
        got = self.first + (f" and {self.count - 1} more" if self.count > 1 else "")
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
    return cell.strip().isascii() and "_" not in cell  # Python has more ways to write a number than files of numbers


def not_numeric(path: Path, columns: dict[str, str]) -> InputError:
    """Return an error about columns, by name, with an example of what they hold."""
    shown = ", ".join(f"{name!r} ({what})" for name, what in islice(columns.items(), SHOWN))
    shown += f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    remedy = "Drop or encode them; `label=` names the column of labels, `ids=` that of ids."
    return path_error(path, f"columns that are not numeric: {shown}", "columns of numbers", remedy)
