"""What ``warmpot doctor`` looks at of two files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from warmpot.cli._image_checks import check_copies, check_images, tell_copies
from warmpot.cli._machine import Finding
from warmpot.cli._shared import one_line
from warmpot.errors import WarmpotError, WarmpotWarning

if TYPE_CHECKING:
    from warmpot._typing import FloatArray
    from warmpot.cli._data_files import DataFiles
    from warmpot.data import Table, Task

__all__ = ["check_data"]

UNEVEN = 100.0
"""How many times the spread of the middle feature the largest one may have."""
OTHER_UNITS = 5.0
"""How many times longer the rows of one side may be."""
LONG = 100.0
"""Length of rows above which mini-batch training on features as they are tends to diverge."""


def check_data(data: DataFiles) -> Iterator[Finding]:
    """Look at what a training would be given."""
    tables: list[Table] = []
    try:
        of_images = data.of_images
    except WarmpotError as error:
        yield Finding("fail", "kinds", one_line(error))
        return
    for side in ("source", "target"):
        try:
            table = data.side(side)
        except WarmpotError as error:
            yield Finding("fail", side, one_line(error))
            continue
        if of_images:
            table = yield from check_images(side, table)
        else:
            facts = f"{table.n} samples, {table.width} features, {table.x.dtype}, all finite"
            yield Finding("ok", side, f"{table.name}: {facts}")
        tables.append(table)
    if len(tables) == 2:
        yield from _check_pair(*tables)


def _check_pair(source: Table, target: Table) -> Iterator[Finding]:
    from warmpot.data import make_task

    names = list(_check_names(source, target))
    yield from names
    if any(finding.level == "fail" for finding in names):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WarmpotWarning)
        try:
            task, truth = make_task(source, target)
        except WarmpotError as error:
            yield Finding("fail", "task", one_line(error))
            return
    if task.xs.ndim == 2:
        yield Finding("ok", "widths", f"{task.width} features on both sides")
    if task.classes:
        yield from _check_classes(task)
    for warning in caught:
        yield Finding("warn", "classes", one_line(warning.message))
    if truth is None:
        yield Finding("ok", "target labels", "none, as training expects")
    else:
        yield Finding("ok", "target labels", "present; training ignores them, only the accuracy at the end uses them")
    if task.xs.ndim == 2:
        yield from _check_columns(task)
        yield from _check_duplicates(task)
        yield from _check_scale(task)
    else:
        yield from check_copies(source, target)


def _check_names(source: Table, target: Table) -> Iterator[Finding]:
    """Compare the names of columns; without any there is nothing to say."""
    from warmpot.data.task import in_order

    try:
        in_order(target, source.columns, f"the columns of {source.name}")
    except WarmpotError as error:
        yield Finding("fail", "names", one_line(error))
        return
    if bool(source.columns) != bool(target.columns):
        side = "source" if source.columns else "target"
        text = f"only the {side} names its columns, so they are matched by position. Check that the order is the same"
        yield Finding("warn", "names", text)
    elif source.columns != target.columns:
        text = "the same columns in another order. fit and predict match them by name; reorder them for `weights`"
        yield Finding("warn", "names", text)
    elif source.columns:
        yield Finding("ok", "names", f"the same {len(source.columns)} columns in the same order")


def _check_classes(task: Task) -> Iterator[Finding]:
    import numpy as np

    counts = np.bincount(task.ys, minlength=task.n_classes)
    small, large = int(counts.argmin()), int(counts.argmax())
    text = f"{task.n_classes}; the smallest, {task.classes[small]!r}, has {counts[small]} samples, "
    yield Finding("ok", "classes", f"{text}the largest, {task.classes[large]!r}, {counts[large]}")


def _check_columns(task: Task) -> Iterator[Finding]:
    """Find features that never change, on both sides or on one of them."""
    still = [(x == x[:1]).all(axis=0) for x in task.arrays()]
    both, one = still[0] & still[1], still[0] ^ still[1]
    if both.any():
        yield Finding("warn", "constant", f"{_columns(both)} constant on both sides: they say nothing. Drop them")
    if one.any():
        text = f"{_columns(one)} constant on one side only. Check that both sides were made the same way, or drop them"
        yield Finding("warn", "constant", text)
    if not both.any() and not one.any():
        yield Finding("ok", "constant", "no feature is")


def _columns(which: FloatArray) -> str:
    places = [int(k) for k in which.nonzero()[0]]
    shown = ", ".join(map(str, places[:5])) + (" ..." if len(places) > 5 else "")
    return f"{len(places)} feature(s) (number {shown}, counted from 0)"


def _check_duplicates(task: Task) -> Iterator[Finding]:
    """Count target rows that are source rows, bit for bit."""
    import numpy as np

    # Adding 0 turns -0.0 into 0.0, which is equal but has other bits.
    source, target = ([row.tobytes() for row in np.ascontiguousarray(x + 0.0)] for x in task.arrays())
    yield tell_copies(source, target, "row")


def _check_scale(task: Task) -> Iterator[Finding]:
    """Compare the spread of features, and the length of rows."""
    import numpy as np

    from warmpot.nets.network import NARROW

    spread = np.sqrt(np.mean(np.stack([x.std(axis=0, dtype=np.float64) ** 2 for x in task.arrays()]), axis=0))
    moving = spread[spread > 0]
    ratio = float(moving.max() / np.median(moving)) if len(moving) else 1.0
    if ratio > UNEVEN:
        text = (
            f"feature {int(spread.argmax())} spreads {ratio:.0f} times as wide as the middle one and rules distances."
        )
        remedy = "Standardise columns over both sides, for `weights` and the presets that take features as they are"
        if task.width < NARROW:
            remedy += "; full and frozen do so by themselves (scale auto)"
        yield Finding("warn", "spread", f"{text} {remedy}")
    else:
        yield Finding("ok", "spread", f"the widest feature spreads {ratio:.1f} times as wide as the middle one")
    lengths = [float(np.median(np.linalg.norm(x.astype(np.float64), axis=1))) for x in task.arrays()]
    text = f"median length {lengths[0]:.3g} (source), {lengths[1]:.3g} (target)"
    low, high = sorted(lengths)
    if high > OTHER_UNITS * low:
        yield Finding("warn", "rows", f"{text}: other units? Make both sides the same way")
    elif high > LONG:
        yield Finding(
            "warn",
            "rows",
            f"{text}: use preset full or frozen, which scale features by themselves, or divide by {high:.0f}",
        )
    else:
        yield Finding("ok", "rows", text)
