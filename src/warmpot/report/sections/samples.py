"""Target samples to look at: by predicted class, and those that may belong to no class of the source."""

from __future__ import annotations

import numpy as np

from warmpot._tables import ResultTable, TableCell
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import Block, Details, Section
from warmpot.report.run_view import RunView
from warmpot.report.sections import parts
from warmpot.report.style import label
from warmpot.train.sample_images import Opener

__all__ = ["samples_section", "telling_columns"]

MAX_CLASSES, PER_CLASS = 12, 6
"""Classes in the gallery, and samples per class."""
MAX_UNKNOWN = 12
MAX_COLUMNS = 3
"""Columns of a table that are shown per sample."""
UNKNOWN_NOTE = (
    "Every sample is given a class of the source. These are the samples for which the classifier fitted to the source "
    "alone is the least sure (unknown: its entropy, from 0 to 1). Samples of no source class are frequent among them. "
    "The score ranks; no value of it proves that a sample is unknown."
)


def samples_section(view: RunView) -> Section | None:
    """Show target samples by predicted class, the least confident first; None without classes or predictions."""
    if not view.classes or not view.run.n_target:
        return None
    open_row = parts.opener(view, "target")
    head, values = _columns(view)

    def cells(row: int) -> list[TableCell]:
        shown = [TableCell(f"{values[row, k]:.4g}", value=float(values[row, k])) for k in range(len(head))]
        return [parts.class_cell(view, int(view.predicted[row])), *shown, parts.percent(view.confidence[row], 0)]

    blocks: list[Block] = []
    order = [int(k) for k in np.argsort(-view.shares, kind="stable") if view.shares[k] > 0]
    for k in order[:MAX_CLASSES]:
        rows = view.least_confident([k])[:PER_CLASS].tolist()
        caption = f"{label(view.classes[k], 40)}: {len(rows)} of {view.counts[k]:,}."
        blocks.append(parts.samples(view, "target", rows, open_row, ["predicted", *head, "confidence"], cells, caption))
    if any(isinstance(block, ResultTable) for block in blocks):
        blocks = [Details("Samples by predicted class", blocks)]
    blocks += _unknown(view, open_row)
    if not blocks:
        return None
    more = f" The {MAX_CLASSES} most frequent of {len(order)} classes." if len(order) > MAX_CLASSES else ""
    lead = f"Target samples by predicted class, the least confident first.{more}"
    if head:
        lead += f" With the columns in which the predicted classes differ most: {', '.join(head)}."
    return Section("Samples to look at", blocks, lead=lead)


def _unknown(view: RunView, open_row: Opener) -> list[Block]:
    unknown = view.run.unknown
    if unknown is None or not np.isfinite(unknown).any():
        return []
    rows = np.argsort(-np.nan_to_num(unknown, nan=-1.0), kind="stable")[:MAX_UNKNOWN].tolist()

    def cells(row: int) -> list[TableCell]:
        score = TableCell(f"{unknown[row]:.2f}", value=float(unknown[row]))
        return [parts.class_cell(view, int(view.predicted[row])), parts.percent(view.confidence[row], 0), score]

    head, caption = ["predicted", "confidence", "unknown"], f"Possibly of no source class. {UNKNOWN_NOTE}"
    block = parts.samples(view, "target", rows, open_row, head, cells, caption)
    return [Details("Samples that may belong to no class of the source", [block])]


def _columns(view: RunView) -> tuple[list[str], FloatArray]:
    """Return the names and values of the columns that tell the predicted classes apart; none for other data."""
    task = view.task
    if task is None or not task.columns or not isinstance(task.xt, np.ndarray) or task.xt.ndim != 2:
        return [], np.zeros((0, 0))
    x = np.asarray(task.xt, np.float64)
    best = telling_columns(x, view.predicted)[:MAX_COLUMNS]
    return [label(task.columns[k], 24) for k in best], x[:, best]


def telling_columns(x: FloatArray, codes: IntArray) -> list[int]:
    """Return the columns in order of the variance between classes over the variance, the largest first.

    Examples
    --------
    >>> telling_columns(np.array([[0.0, 1.0], [1.0, 1.1], [0.0, 5.0], [1.0, 5.1]]), np.array([0, 0, 1, 1]))
    [1, 0]
    """
    _, groups, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    totals = np.zeros((len(sizes), x.shape[1]))
    np.add.at(totals, groups, x)
    between = sizes @ (totals / sizes[:, None] - x.mean(axis=0)) ** 2 / len(x)
    ratio = between / np.maximum(x.var(axis=0), 1e-300)
    return [int(k) for k in np.argsort(-ratio, kind="stable")]
