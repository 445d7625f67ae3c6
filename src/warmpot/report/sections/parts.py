"""What several sections use: words, cells, bars by class, and single samples as thumbnails or tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warmpot._tables import ABSENT, ResultTable, TableCell
from warmpot._typing import FloatArray, IntArray
from warmpot.report.page import EVALUATION, Block, Details, Picture, Thumb, Thumbnails, make_table
from warmpot.report.run_view import VALIDATORS, RunView
from warmpot.report.style import COLOURS, WIDTH, label, legend, new_axes, ticks
from warmpot.report.svg import Tips
from warmpot.train.config import LAST
from warmpot.train.finished_run import UNKNOWN, FinishedRun
from warmpot.train.sample_images import Opener, encode_thumbnail, image_opener

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "MAX_BARS", "MAX_ROWS", "Drawn", "calibration_words", "chosen_iterate", "class_bars", "class_cell", "class_names",
    "fold_if_long", "measured", "opener", "percent", "picture", "samples", "validator_name", "value_cell",
]  # fmt: skip

MAX_ROWS = 100
"""Classes in a table; the files of the run have all."""
MAX_OPEN = 12
"""Rows above which a table is folded."""
MAX_BARS = 15
TONES = {"present": "blue", "doubtful": "orange", "absent": "grey"}
"""Colours of classes by their state."""
HOVER_LENGTH = 80
"""Characters of a name that is shown on hover."""


class Drawn(NamedTuple):
    """What a page says about a drawing on axes: a text for screen readers, a caption, texts that are shown on hover."""

    alt: str
    caption: str = ""
    tips: Tips | None = None


def picture(name: str, draw: Callable[[Axes], Drawn], height: float, width: float = WIDTH) -> Picture:
    """Make a figure of a page from a function that draws on axes; a legend of several entries is above the axes.

    `warmpot.report.plots` uses the same functions.
    """
    figure, axes = new_axes(width, height)
    drawn = draw(axes)
    handles, names = axes.get_legend_handles_labels()
    if len(handles) > 1:
        legend(figure, handles, names)
    return Picture(name, figure, *drawn)


def percent(share: float, digits: int = 1) -> TableCell:
    """Return a share as a cell that is sorted as a number; a dash if it is not finite."""
    if not math.isfinite(share):
        return TableCell(ABSENT, value=math.nan, tone="muted")
    return TableCell(f"{share:.{digits}%}", value=float(share))


def class_cell(view: RunView, k: int) -> TableCell:
    """Return the name of a class as a cell."""
    return _short(view.classes[k])


def _short(text: str, most: int = 40) -> TableCell:
    """Return a cell with a shortened name that shows more of it on hover."""
    shown = label(text, most)
    return TableCell(shown, title="" if shown == text else label(text, HOVER_LENGTH))


def value_cell(view: RunView, values: Any, row: int) -> TableCell:
    """Return the class or the number of a sample as a cell."""
    value = values[row]
    return class_cell(view, int(value)) if view.classes else TableCell(f"{value:.4g}", value=float(value))


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


def calibration_words(run: FinishedRun) -> str:
    """Return whether the confidences of a run are calibrated."""
    calibrated = f"calibrated without labels, by a temperature of {run.temperature:.2f}"
    return "not changed by calibration" if run.temperature == 1.0 else calibrated


def measured(view: RunView) -> tuple[str, str, str]:
    """Return accuracy or error, its name, and how it was measured."""
    value, name = view.accuracy, "accuracy" if view.classes else "mean absolute error"
    if value is None:
        return "not measured", name, "no target labels were given"
    return f"{value:.1%}" if view.classes else f"{value:.4g}", name, EVALUATION


def fold_if_long(table: ResultTable, title: str) -> ResultTable | Details:
    """Fold a table of many rows under a title."""
    return Details(title, [table]) if len(table.rows) > MAX_OPEN else table


def class_bars(axes: Axes, view: RunView, what: str, shares: FloatArray, order: IntArray, texts: list[str]) -> Drawn:
    """Draw shares of classes as bars with these texts as tips; the caption explains orange and grey bars."""
    tones = [TONES[view.class_states[k]] for k in order.tolist()]
    colours = [COLOURS[tone] for tone in tones]
    bars = axes.barh(np.arange(len(order)) + 0.5, 100 * shares[order], height=0.72, color=colours)
    for index, bar in enumerate(bars):
        bar.set_gid(f"tip-bar{index}")
    ticks(axes.yaxis, [view.classes[k] for k in order], most=20)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    alt = f"Share of the {what}: " + ", ".join(f"{label(view.classes[k])} ({shares[k]:.1%})" for k in order)
    meanings = {"orange": "doubtful", "grey": "estimated absent"}
    caption = "".join(f" {tone.capitalize()}: {text}." for tone, text in meanings.items() if tone in tones)
    tips = [f"{label(view.classes[k], 60)}: {text}" for k, text in zip(order, texts, strict=True)]
    return Drawn(alt, caption, {f"bar{index}": tip for index, tip in enumerate(tips)})


def opener(view: RunView, side: str) -> Opener:
    """Return a function that opens the image of a row of the "source" or "target", or returns None without one."""
    task = view.task
    if task is None:
        return lambda _: None
    x, names = (task.xs, task.source_names) if side == "source" else (task.xt, task.target_names)
    return image_opener(view.run, side, x, names)


def samples(
    view: RunView, side: str, rows: Sequence[int], open_row: Opener, head: Sequence[str], cells: Any, caption: str
) -> Block:
    """Show samples as thumbnails, or as a table if one has no image; `cells` returns the cells of a row."""
    images = [image for row in rows if (image := open_row(row)) is not None]
    names = [view.name(side, row) for row in rows]
    if rows and len(images) == len(rows):
        items = []
        for row, name, image in zip(rows, names, images, strict=True):
            texts = [cell.text for cell in cells(row)]
            title = label(name, HOVER_LENGTH) if name else f"row {view.row_in_data(side, row)}"
            facts = ", ".join(f"{column} {text}" for column, text in zip(head, texts, strict=True))
            items.append(Thumb(encode_thumbnail(image), f"{title}: {facts}", f"{label(texts[0], 18)} · {texts[-1]}"))
        return Thumbnails(items, f"{caption} Below each: {head[0]} · {head[-1]}.")
    named = any(names)
    table = [
        [view.row_in_data(side, row), *([_short(name, 48)] if named else []), *cells(row)]
        for row, name in zip(rows, names, strict=True)
    ]
    return make_table(["row", *(["name"] if named else []), *head], table, caption)
