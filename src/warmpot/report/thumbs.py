"""Single samples in a report: thumbnails if the data are images, a table otherwise."""

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
"""Pixels of the longer side of a thumbnail."""
IMAGE_SHAPE = "picture"
"""Fact of a run whose features are the pixels of small grey images: their height and width."""
HOVER_LENGTH = 80
"""Characters of a name that is shown on hover."""

Opener = Callable[[int], "Image | None"]


def opener(seen: RunView, side: str) -> Opener:
    """Return a function that opens the image of a row of the "source" or "target", or returns None without one."""
    task = seen.task
    if task is None:
        return lambda _: None
    x, names = (task.xs, task.source_names) if side == "source" else (task.xt, task.target_names)
    shape = seen.run.facts.get(IMAGE_SHAPE)
    if isinstance(x, Pixels):
        pixels = x
        return lambda row: _open_or_none(lambda: pixels.open(pixels.items[row]))
    if isinstance(x, np.ndarray) and _is_shape(shape, x.shape[1]):
        rows, largest = x, float(np.abs(x[:2000]).max()) or 1.0  # the first rows suffice for the range
        return lambda row: _grey(rows[row].reshape(shape) / largest)
    data = Path(str(seen.run.facts.get(side) or ""))
    if seen.run.images is None or not names or not data.exists():
        return lambda _: None
    root = data if data.is_dir() else Path(seen.run.facts.get("root") or data.parent)
    return lambda row: _open_or_none(lambda: open_image(root / names[row]))


def _is_shape(shape: Any, width: int) -> bool:
    return isinstance(shape, list) and len(shape) == 2 and shape[0] * shape[1] == width


def _open_or_none(open_image: Callable[[], Image]) -> Image | None:
    try:
        with open_image() as image:
            return as_rgb(image)
    except Exception:  # decoders raise many types for missing or damaged files; the report must not fail on one image
        return None


def _grey(values: Any) -> Image:
    """Make an enlarged image with large values dark."""
    from PIL import Image

    image = Image.fromarray(np.clip(255 * (1 - np.clip(values, 0, 1)), 0, 255).astype(np.uint8))
    factor = max(SIDE // 2 // max(image.size), 1)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def _encoded(image: Image) -> bytes:
    stream = io.BytesIO()
    if image.mode == "L":
        image.save(stream, "PNG", optimize=True)
    else:
        image.thumbnail((SIDE, SIDE))
        image.save(stream, "JPEG", quality=72, optimize=True)
    return stream.getvalue()


def short(text: str, most: int = 40) -> Cell:
    """Return a cell with a shortened name that shows more of it on hover."""
    shown = label(text, most)
    return Cell(shown, title="" if shown == text else label(text, HOVER_LENGTH))


def samples(
    seen: RunView, side: str, rows: Sequence[int], open_row: Opener, head: Sequence[str], cells: Any, caption: str
) -> Block:
    """Show samples as thumbnails, or as a table if one of them has no image.

    Parameters
    ----------
    seen : RunView
    side : "source" or "target"
    rows : sequence of int
    open_row : Opener
    head : sequence of str
        Names of the columns.
    cells : callable
        Returns the cells of a row.
    caption : str
    """
    images = [image for row in rows if (image := open_row(row)) is not None]
    names = [seen.name(side, row) for row in rows]
    if rows and len(images) == len(rows):
        items = []
        for row, name, image in zip(rows, names, images, strict=True):
            texts = [cell.text for cell in cells(row)]
            title = label(name, HOVER_LENGTH) if name else f"row {row}"
            facts = ", ".join(f"{column} {text}" for column, text in zip(head, texts, strict=True))
            items.append(Thumb(_encoded(image), f"{title}: {facts}", f"{label(texts[0], 18)} · {texts[-1]}"))
        return Thumbnails(items, f"{caption} Below each: {head[0]} · {head[-1]}.")
    named = any(names)
    table = [[row, *([short(name, 48)] if named else []), *cells(row)] for row, name in zip(rows, names, strict=True)]
    return Table(["row", *(["name"] if named else []), *head], table, caption)
