"""Samples to look at: small images where the data are images, rows of a table otherwise."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot.data.pixels import Pixels, as_rgb, open_image
from warmpot.report.page import Block, Cell, Table, Thumb, Thumbnails
from warmpot.report.run_view import RunView
from warmpot.report.style import label

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Opener", "opener", "samples", "short"]

SIDE = 96
"""Pixels of the longer side of a small image."""
PICTURE = "picture"
"""The fact of a run whose features are the pixels of small grey images: their height and width."""

HOVER = 80
"""Letters of a name that is shown on hover."""

Opener = Callable[[int], "Image | None"]


def opener(seen: RunView, side: str) -> Opener:
    """Return what makes a small image of a row of the "source" or the "target"; it returns None when there is none."""
    task = seen.task
    if task is None:
        return lambda _: None
    x, names = (task.xs, task.source_names) if side == "source" else (task.xt, task.target_names)
    shape = seen.run.facts.get(PICTURE)
    if isinstance(x, Pixels):
        pixels = x
        return lambda row: _tried(lambda: pixels.open(pixels.items[row]))
    if isinstance(x, np.ndarray) and _is_shape(shape, x.shape[1]):
        rows, top = x, float(np.abs(x[:2000]).max()) or 1.0
        return lambda row: _grey(rows[row].reshape(shape) / top)
    place = Path(str(seen.run.facts.get(side) or ""))
    if seen.run.images is None or not names or not place.exists():
        return lambda _: None
    root = place if place.is_dir() else Path(seen.run.facts.get("root") or place.parent)
    return lambda row: _tried(lambda: open_image(root / names[row]))


def _is_shape(shape: Any, width: int) -> bool:
    return isinstance(shape, list) and len(shape) == 2 and shape[0] * shape[1] == width


def _tried(opened: Callable[[], Image]) -> Image | None:
    try:
        with opened() as image:
            return as_rgb(image)
    except Exception:  # gone or damaged: decoders raise almost anything, and the page is worth more than one image
        return None


def _grey(values: Any) -> Image:
    """Draw dark ink on light paper, large enough to be seen."""
    from PIL import Image

    image = Image.fromarray(np.clip(255 * (1 - np.clip(values, 0, 1)), 0, 255).astype(np.uint8))
    times = max(SIDE // 2 // max(image.size), 1)
    return image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)


def _encoded(image: Image) -> bytes:
    stream = io.BytesIO()
    if image.mode == "L":
        image.save(stream, "PNG", optimize=True)
    else:
        image.thumbnail((SIDE, SIDE))
        image.save(stream, "JPEG", quality=72, optimize=True)
    return stream.getvalue()


def short(text: str, most: int = 40) -> Cell:
    """Write a name; more of it on hover, if it is cut."""
    shown = label(text, most)
    return Cell(shown, title="" if shown == text else label(text, HOVER))


def samples(
    seen: RunView, side: str, rows: Sequence[int], open_row: Opener, head: Sequence[str], cells: Any, caption: str
) -> Block:
    """Show samples: as images, or as a table when there are none.

    Parameters
    ----------
    seen : RunView
    side : "source" or "target"
    rows : sequence of int
    open_row : Opener
    head : sequence of str
        What is told of each.
    cells : callable
        Returns that of a row, a `Cell` each.
    caption : str
    """
    images = [open_row(row) for row in rows]
    if rows and all(image is not None for image in images):
        items = []
        for row, image in zip(rows, images, strict=True):
            assert image is not None
            said = [cell.text for cell in cells(row)]
            where = label(seen.name(side, row), HOVER) if seen.name(side, row) else f"row {row}"
            text = ", ".join(f"{name} {value}" for name, value in zip(head, said, strict=True))
            items.append(Thumb(_encoded(image), f"{where}: {text}", f"{label(said[0], 18)} · {said[-1]}"))
        return Thumbnails(items, f"{caption} Below each: {head[0]} · {head[-1]}.")
    named = any(seen.name(side, row) for row in rows)
    table = []
    for row in rows:
        name = seen.name(side, row)
        first = [row, *([short(name, 48)] if named else [])]
        table.append([*first, *cells(row)])
    return Table(["row", *(["name"] if named else []), *head], table, caption)
