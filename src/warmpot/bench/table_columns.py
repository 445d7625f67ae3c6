"""Building the tables of a grid column by column."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warmpot._tables import ResultTable, TableCell, TableColumn
from warmpot.bench.summary import ABSENT, Score, best_indices

__all__ = ["PARTIAL", "Columns", "join_columns", "score_cells", "text_column"]

PARTIAL = "-: not trained yet, or failed. A mean over tasks uses the seeds that have results for all of them."

Columns = list[tuple[TableColumn, Sequence[TableCell]]]
"""Heads and cells, before they become rows."""


def text_column(name: str, texts: Iterable[str]) -> tuple[TableColumn, list[TableCell]]:
    """Make a left-aligned column of texts."""
    return TableColumn(name, numeric=False), [TableCell(text) for text in texts]


def score_cells(scores: Sequence[Score]) -> list[TableCell]:
    """Make cells of scores; the best are bold if there are at least two to compare."""
    means = [score.mean for score in scores]
    best = best_indices(means) if sum(mean is not None for mean in means) > 1 else set()
    return [TableCell(score.text, k in best, score.mean) for k, score in enumerate(scores)]


def join_columns(name: str, title: str, columns: Columns, notes: Iterable[str] = ()) -> ResultTable:
    """Make a table of columns; a note explains the dash where there is one."""
    rows = list(zip(*(cells for _, cells in columns), strict=True))
    dash = [PARTIAL] if any(cell.text == ABSENT for row in rows for cell in row) else []
    return ResultTable([head for head, _ in columns], rows, title, name, [*notes, *dash])
