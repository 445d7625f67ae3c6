"""Tables that need target labels to explain a result: trainings with known classes, and scores of presence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from warmpot._tables import ResultTable, TableCell, TableColumn
from warmpot.bench.store import KNOWN_CLASSES, LAST
from warmpot.bench.summary import (
    ABSENT,
    Columns,
    Summary,
    TaskKey,
    Variant,
    format_points,
    join_columns,
    mean_cell,
    text_column,
)

__all__ = ["KNOWN_CLASSES_NOTE", "known_classes_by_task", "known_classes_columns", "presence_table"]

KNOWN_CLASSES_NOTE = (
    f"{KNOWN_CLASSES.capitalize()}: last iterate of the same training, on the source samples of the classes that occur "
    "in the target. It needs target labels, and is never chosen, ranked or tested. The gap is what the other classes "
    "cost."
)
PRESENCE = (
    ("share AUC", "share_auc", 3),
    ("presence AUC", "presence_auc", 3),
    ("Brier", "presence_brier", 3),
    ("lost classes", "lost_classes", 1),
)
"""Head, quantity and digits."""


def known_classes_columns(summary: Summary) -> Columns:
    """Return the mean of the trainings with known classes, and the gap to it; nothing if the grid has none."""
    if not summary.grid.known_classes:
        return []
    known_classes = [summary.mean(replace(variant, known_classes=True), LAST) for variant in summary.variants]
    gaps = [_gap_cell(summary, variant, summary.finished_tasks) for variant in summary.variants]
    # not bold: no row is better than another for what it reaches with target labels
    return [
        (TableColumn(KNOWN_CLASSES), [TableCell(score.text, value=score.mean) for score in known_classes]),
        (TableColumn("gap, points"), gaps),
    ]


def known_classes_by_task(summary: Summary, dataset: str) -> ResultTable | None:
    """Return the gap of every task of a data set with several tasks."""
    tasks = [task for task in summary.tasks if task[0] == dataset]
    if not summary.grid.known_classes or len(tasks) == 1:
        return None
    columns: Columns = [text_column("row", (variant.label for variant in summary.variants))]
    for task in tasks:
        columns.append((TableColumn(task[1]), [_gap_cell(summary, variant, [task]) for variant in summary.variants]))
    finished = [task for task in summary.finished_tasks if task[0] == dataset]
    means = [_gap_cell(summary, variant, finished) for variant in summary.variants]
    columns.append((TableColumn(f"mean ({summary.task_count(dataset)})"), means))
    return join_columns(
        f"known-classes-{dataset}", f"{dataset}, {KNOWN_CLASSES}, gap in points", columns, [KNOWN_CLASSES_NOTE]
    )


def _gap_cell(summary: Summary, variant: Variant, tasks: Sequence[TaskKey]) -> TableCell:
    score = summary.known_classes_gap(variant, tasks)
    if score.mean is None:
        return TableCell(ABSENT)
    few = "" if len(score.values) == score.requested else f", {len(score.values)} of {score.requested} seeds"
    return TableCell(f"{format_points(score.mean)}{few}", value=score.mean)


def presence_table(summary: Summary) -> ResultTable | None:
    """Return how well the rows separate the classes that the target has from the others; None without such results."""
    columns: Columns = [text_column("row", (variant.label for variant in summary.variants))]
    for head, quantity, digits in PRESENCE:
        cells = [mean_cell(summary, variant, quantity, digits) for variant in summary.variants]
        if any(cell.value is not None for cell in cells):
            columns.append((TableColumn(head), cells))
    if len(columns) == 1:
        return None
    notes = [
        "Means over tasks and seeds, last iterate; measured with target labels, for evaluation only.",
        "Share AUC: area under the ROC curve of the predicted class shares, as scores for whether a source class "
        "occurs in the target; 1 is best, 0.5 is chance. Undefined for a target with all classes of the source.",
        "Lost classes: classes of the target with an accuracy below 10 %.",
    ]
    if any(head.name in ("presence AUC", "Brier") for head, _ in columns):
        notes.insert(
            2, "Presence AUC and Brier score: of the estimated probabilities that a class occurs; Brier: 0 is best."
        )
    table = join_columns("presence", "Which classes are there", columns)
    dash = ["-: no result, or a row without such an estimate."] if table.notes else []
    return replace(table, notes=[*notes, *dash])
