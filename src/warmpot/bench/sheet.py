"""A table before it is written in any format: plain texts, which of them are bold, and notes below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warmpot.bench.summary import ABSENT, Score, best

__all__ = ["Column", "Columns", "Entry", "Sheet", "assembled", "plain", "ranked"]

PARTIAL = "-: not trained yet, or failed. A mean over tasks is of the seeds that have them all."


@dataclass(frozen=True)
class Entry:
    """A cell: its text, whether it is the best of its column, and the number to sort by."""

    text: str
    bold: bool = False
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """The head of a column; columns of the same group stand under a common head. Numbers are set to the right."""

    name: str
    group: str = ""
    number: bool = True


Columns = list[tuple[Column, Sequence[Entry]]]
"""A table as it is put together."""


@dataclass(frozen=True)
class Sheet:
    """A table.

    Attributes
    ----------
    name : str
        Short and unique, for files and anchors.
    title : str
    columns : tuple of Column
    rows : tuple of tuple of Entry
    notes : tuple of str
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    notes: tuple[str, ...] = ()


def plain(texts: Iterable[str]) -> list[Entry]:
    """Make a column of texts."""
    return [Entry(text) for text in texts]


def ranked(scores: Sequence[Score]) -> list[Entry]:
    """Make a column of scores; the best are bold, unless there is nothing to compare."""
    means = [score.mean for score in scores]
    top = best(means) if sum(mean is not None for mean in means) > 1 else set()
    return [Entry(score.text, k in top, score.mean) for k, score in enumerate(scores)]


def assembled(name: str, title: str, columns: Columns, notes: Iterable[str] = ()) -> Sheet:
    """Put columns side by side; a note says what a dash is where there is one."""
    rows = tuple(zip(*(entries for _, entries in columns), strict=True))
    dashed = any(entry.text == ABSENT for row in rows for entry in row)
    return Sheet(name, title, tuple(column for column, _ in columns), rows, (*notes, *((PARTIAL,) if dashed else ())))
