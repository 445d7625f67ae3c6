"""Single samples of a run as small images."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warmpot.data.pixels import Pixels, as_rgb, open_image
from warmpot.data.table import Rows
from warmpot.train.finished_run import FinishedRun

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["Opener", "encode_thumbnail", "image_opener"]

SIDE = 96
"""Pixels of the longer side of a thumbnail."""
IMAGE_SHAPE = "picture"
"""Fact of a run whose features are the pixels of small grey images: their height and width."""

Opener: TypeAlias = "Callable[[int], Image | None]"


def image_opener(run: FinishedRun, side: str, x: Rows | None, names: Sequence[str]) -> Opener:
    """Return a function that opens the image of a row of the "source" or "target", or returns None without one.

    `x` are the samples, if they were read, and `names` their names. Without samples that are images, the files are
    looked for where the run found them.
    """
    facts = run.facts
    shape = facts.get(IMAGE_SHAPE)
    if isinstance(x, Pixels):
        pixels = x
        return lambda row: _open_or_none(lambda: pixels.open(pixels.items[row]))
    if isinstance(shape, list) and len(shape) == 2 and isinstance(x, np.ndarray) and np.prod(shape) == x.shape[1]:
        rows, largest = x, float(np.abs(x[:2000]).max()) or 1.0  # the first rows suffice for the range
        return lambda row: _grey(rows[row].reshape(shape) / largest)
    data = Path(str(facts.get(side) or ""))
    if run.images is None or not names or not data.exists():
        return lambda _: None
    root = data if data.is_dir() else Path(facts.get("root") or data.parent)
    return lambda row: _open_or_none(lambda: open_image(root / names[row]))


def _open_or_none(open_image: Callable[[], Image]) -> Image | None:
    try:
        with open_image() as image:
            return as_rgb(image)
    except Exception:  # decoders raise many types for missing or damaged files; nothing must fail on one image
        return None


def _grey(values: Any) -> Image:
    """Make an enlarged image with large values dark."""
    from PIL import Image

    image = Image.fromarray(np.clip(255 * (1 - np.clip(values, 0, 1)), 0, 255).astype(np.uint8))
    factor = max(SIDE // 2 // max(image.size), 1)
    return image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)


def encode_thumbnail(image: Image) -> bytes:
    """Return the bytes of a small PNG file, for grey images, or JPEG file."""
    stream = io.BytesIO()
    if image.mode == "L":
        image.save(stream, "PNG", optimize=True)
    else:
        image.thumbnail((SIDE, SIDE))
        image.save(stream, "JPEG", quality=72, optimize=True)
    return stream.getvalue()
