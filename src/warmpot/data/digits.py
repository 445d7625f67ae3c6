"""The built-in task, without a download: printed digits 0 to 9 to handwritten digits 0 to 4.

The source is drawn from the text fonts that matplotlib ships; the target is the part of the UCI handwritten digits
that scikit-learn ships. Both have the same features: a digit fills the height of a box of 32 x 32 black and white dots,
and the 64 features are the counts of black dots (0 to 16) in its blocks of 4 x 4.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_count
from warmpot._typing import FloatArray
from warmpot.data.table import Table, as_table

__all__ = ["digits_task"]

BOX, BLOCK = 32, 4
MAX_WIDTH = 24  # columns of the box that a digit may fill, as in the target: wider digits are squeezed
FONT_SIZE = 48  # size of the font in dots; a digit is about 35 dots high
MARGIN = 16  # dots around a digit: space for thicker strokes, and for corners that rotate into the box
NOT_TEXT_FONTS = re.compile("Display|LastResort|NonUni|Siz|cmex|cmmi|cmsy")
"""Fonts of symbols, brackets, mathematics and placeholders; the digits of cmmi have unequal heights."""

ROTATION, SHEAR, WIDTH, SHIFT, STROKE, BEND = 0.2, 0.25, 0.2, 1.5, (-0.5, 2.5), 1.5
"""Ranges of the random changes, explained in `digits_task`; chosen by eye from renderings of both sides."""
DOTS = np.indices((BOX, BOX)).reshape(2, -1).T - (BOX - 1) / 2
"""Row and column of every dot of the box, relative to its centre."""


class _Glyph(NamedTuple):
    """A digit of a font: the signed distance of every dot to its outline (negative inside), and its centre."""

    distance: FloatArray
    centre: FloatArray


def digits_task(n_source: int = 3000, seed: int = 0) -> tuple[Table, Table]:
    """Make the built-in task: ten printed digits as source, five handwritten ones as target; 64 features from 0 to 16.

    Each source sample is a digit of a random text font, changed at random, uniformly: rotated by up to 0.2 radians
    either way, sheared by up to 0.25, its width scaled by 0.8 to 1.2, bent by smooth waves of up to 1.5 dots, its
    outline moved by 0.5 dots inwards to 2.5 outwards (of letters 48 dots in size), and shifted sideways by up to 1.5
    of the box's 32 dots. The ranges were chosen by looking at renderings of both sides, not by accuracy.

    Parameters
    ----------
    n_source : int
        Number of source samples; the numbers of samples per digit differ by at most one.
    seed : int
        Seed of the source, which also depends on the versions of matplotlib and Pillow. The target is always the same.
    """
    import matplotlib
    from PIL import ImageFont
    from sklearn.datasets import load_digits

    n_source = check_count("n_source", n_source, minimum=10)
    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    digits = rng.permutation(np.arange(n_source) % 10)
    files = sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf"))
    fonts = [ImageFont.truetype(str(file), FONT_SIZE) for file in files if not NOT_TEXT_FONTS.search(file.name)]
    glyphs: dict[tuple[int, int], _Glyph] = {}
    side = BOX // BLOCK
    x = np.empty((n_source, side**2))
    for i, (digit, font) in enumerate(zip(digits, rng.integers(len(fonts), size=n_source), strict=True)):
        key = int(digit), int(font)
        if key not in glyphs:
            glyphs[key] = _glyph(str(digit), fonts[font])
        bitmap = _bitmap(glyphs[key], rng).reshape(side, BLOCK, side, BLOCK)
        x[i] = np.sum(bitmap, axis=(1, 3)).reshape(-1)  # the black dots of every block, as in the UCI digits
    images, labels = load_digits(return_X_y=True)
    shared = labels < 5
    source = as_table(x, digits, name="printed digits")
    return source, as_table(images[shared], labels[shared], name="handwritten digits")


def _glyph(text: str, font: Any) -> _Glyph:
    from PIL import Image, ImageDraw
    from scipy.ndimage import distance_transform_edt

    left, top, right, bottom = font.getbbox(text)
    image = Image.new("L", (int(right - left) + 2 * MARGIN, int(bottom - top) + 2 * MARGIN))
    ImageDraw.Draw(image).text((MARGIN - left, MARGIN - top), text, fill=255, font=font)
    ink = np.asarray(image) > 127
    distance = distance_transform_edt(~ink) - distance_transform_edt(ink)
    return _Glyph(distance, np.argwhere(ink).mean(axis=0))


def _bitmap(glyph: _Glyph, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw a randomly changed digit that fills the height of the box.

    Dots are (row, column). Each dot of the box is looked up in the glyph, rather than the reverse, to leave no holes.
    """
    from scipy.ndimage import map_coordinates

    turn, shear, squeeze = rng.uniform(-1, 1, size=3) * (ROTATION, SHEAR, WIDTH)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    change = np.array([[1.0, 0.0], [shear, 1.0 + squeeze]]) @ rotation
    waves = rng.uniform(-BEND, BEND, size=2), rng.uniform(0, 2 * np.pi, size=2)
    edge = rng.uniform(*STROKE)
    inside = np.ascontiguousarray(((np.argwhere(glyph.distance <= edge) - glyph.centre) @ change.T).T)
    low, high = inside.min(axis=1), inside.max(axis=1)  # several times faster than along the other axis
    height, width = high - low
    scale = np.array([height / (BOX - 1), max(height / (BOX - 1), width / (MAX_WIDTH - 1))])
    shift = np.array([0.0, rng.uniform(-SHIFT, SHIFT)])
    points = ((DOTS - shift) * scale + (low + high) / 2) @ np.linalg.inv(change).T
    points += waves[0] * np.sin(points[:, ::-1] * (2 * np.pi / FONT_SIZE) + waves[1])
    distance: FloatArray = map_coordinates(glyph.distance, (points + glyph.centre).T, order=1, mode="nearest")
    return (distance <= edge).reshape(BOX, BOX)
