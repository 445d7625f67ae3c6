"""Words and table cells that several sections use."""

from __future__ import annotations

import math
from typing import Any

from warmpot.report.page import Cell
from warmpot.report.run_view import RunView
from warmpot.report.style import ABSENT, label
from warmpot.report.thumbs import short
from warmpot.train.config import LAST
from warmpot.train.finished_run import UNKNOWN, FinishedRun

__all__ = [
    "EVALUATION",
    "MOST_OPEN",
    "MOST_ROWS",
    "VALIDATORS",
    "chosen_iterate",
    "class_cell",
    "class_names",
    "measured",
    "percent",
    "validator_name",
    "value_cell",
]

EVALUATION = "computed from target labels, for evaluation only"
MOST_ROWS = 100
"""Classes in a table; the files of the run have all."""
MOST_OPEN = 12
"""Rows above which a table is folded."""
VALIDATORS = {
    "neighbours": (
        "neighbour agreement",
        "whether target samples that are close to each other get the same prediction: 0 chance, 1 always",
    ),
    "reverse": (
        "reverse validation",
        "whether a classifier trained on the predictions recovers the source labels: 0 chance, 1 always",
    ),
}
"""Validators that every page shows: their names in words, and what they measure."""


def percent(share: float, digits: int = 1) -> Cell:
    """Return a share as a cell that is sorted as a number; a dash if it is not finite."""
    if not math.isfinite(share):
        return Cell(ABSENT, sort=math.nan, tone="muted")
    return Cell(f"{share:.{digits}%}", sort=float(share))


def class_cell(view: RunView, k: int) -> Cell:
    """Return the name of a class as a cell."""
    return short(view.classes[k])


def value_cell(view: RunView, values: Any, row: int) -> Cell:
    """Return the class or the number of a sample as a cell."""
    return class_cell(view, int(values[row])) if view.classes else Cell(f"{values[row]:.4g}", sort=float(values[row]))


def class_names(view: RunView, codes: list[int], most: int = 12) -> str:
    """List classes on one line."""
    more = f" and {len(codes) - most} more" if len(codes) > most else ""
    return ", ".join(label(view.classes[k], 40) for k in codes[:most]) + more


def validator_name(name: str) -> str:
    """Return a validator's name in words, with the name that `--choose` takes."""
    return f"{VALIDATORS[name][0]} ({name})" if name in VALIDATORS else name


def chosen_iterate(run: FinishedRun) -> str:
    """Return how the final iterate was chosen."""
    name = run.setting("choose")
    if name == UNKNOWN:
        return "how it was chosen is not recorded"
    return "the last" if name == LAST else f"the best by {validator_name(name)}, without target labels"


def measured(view: RunView) -> tuple[str, str, str]:
    """Return accuracy or error, its name, and how it was measured."""
    value, name = view.accuracy, "accuracy" if view.classes else "mean absolute error"
    if value is None:
        return "not measured", name, "no target labels were given"
    return f"{value:.1%}" if view.classes else f"{value:.4g}", name, EVALUATION
