"""Images that are decoded on demand, cropped for training and testing, with errors that name broken files.

Pixels stay bytes: mean and standard deviation belong to the network that normalises them. An image is used as it is
stored: an orientation in its EXIF data is not applied and transparency is dropped, as the published lists assume.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_choice, check_count
from warmpot._progress import ProgressCallback
from warmpot.data.table import LazyRows
from warmpot.data.workers import map_in_workers
from warmpot.errors import InputError, WarmpotError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

__all__ = ["DEFAULT_VIEW", "Pixels", "ViewSettings", "as_rgb", "find_corrupt", "open_image"]

CROPS = ("random", "resized")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""The formats that are decoded; Pillow also supports some that start other programs, such as EPS."""
LARGEST_SIDE = 8192
AREA_SHARES, ASPECT_RATIOS, CROP_ATTEMPTS = (0.08, 1.0), (3 / 4, 4 / 3), 10
"""For crops="resized": ranges of area and width / height, and attempts before the whole image is used."""
CHUNK = 32  # images that a worker checks at a time


@dataclass(frozen=True)
class ViewSettings:
    """How an image becomes the square that a network sees.

    Attributes
    ----------
    resize, crop : int
        Side of the square that the whole image is first resized to (the aspect ratio is not kept, as is common in this
        field), and of the crop from it that is seen: the centre when testing.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"}
        Filter of Pillow, with antialiasing.
    augment, flip : bool
        Whether training sees random views (otherwise the test views), and whether half of them are mirrored, left to
        right.
    crops : {"random", "resized"}
        Random views: a `crop` at a random place, or a box of 8 to 100 % of the area with sides 3:4 to 4:3, resized.
    """

    resize: int = 256
    crop: int = 224
    interpolation: str = "bilinear"
    augment: bool = True
    flip: bool = True
    crops: str = "random"

    def __post_init__(self) -> None:
        check_count("resize", self.resize)
        check_count("crop", self.crop)
        if not self.crop <= self.resize <= LARGEST_SIDE:
            got, allowed = f"crop {self.crop} of resize {self.resize}", f"crop <= resize <= {LARGEST_SIDE}"
            raise InputError("crop", got=got, allowed=allowed, remedy="Make crop the smaller one.")
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("crops", self.crops, CROPS)
        for name in ("augment", "flip"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(name, got=repr(value), allowed="true or false", remedy="Pick one of these.")


DEFAULT_VIEW = ViewSettings()


@dataclass(frozen=True, eq=False)
class Pixels(LazyRows):
    """Images as lazy rows: ``pixels[rows]`` decodes images and returns their test views as bytes.

    With a number `draw` it returns a random view of each image instead, always the same.
    `open` makes a Pillow image of one of the `items`, such as paths; both must be picklable, for workers. `stamp`
    returns a text that identifies an item and its content, if possible without decoding it; `name` its name in
    messages.
    """

    items: Sequence[Any]
    open: Callable[[Any], Image]
    view: ViewSettings = DEFAULT_VIEW
    stamp: Callable[[Any], str] = str
    name: Callable[[Any], str] = str
    draw: int | None = None
    dtype: ClassVar = np.dtype(np.uint8)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, 3, height, width."""
        return len(self.items), 3, self.view.crop, self.view.crop

    def __repr__(self) -> str:
        return f"Pixels({len(self)} images, {self.view})"

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Decode the images given by integers, a slice or a mask; test views, (n, 3, crop, crop)."""
        chosen = np.arange(len(self))[rows]
        one_dimensional = np.atleast_1d(chosen)
        views = self._views(one_dimensional, None if self.draw is None else one_dimensional, self.draw or 0)
        return views if np.ndim(chosen) else views[0]

    def augmented(self, rows: Any, draws: Any, seed: int = 0) -> NDArray[np.uint8]:
        """Decode images and return random views for training, (n, 3, crop, crop).

        `draws` has one number per image: crop and flip are a function of `seed` and this number only.
        """
        chosen, numbers = np.atleast_1d(np.arange(len(self))[rows]), np.atleast_1d(np.asarray(draws))
        if numbers.shape != chosen.shape or numbers.dtype.kind not in "iu" or (numbers.size and numbers.min() < 0):
            got, remedy = f"{numbers.dtype} of shape {numbers.shape}", "Number the draws of every image."
            raise InputError("draws", got=got, allowed=f"{len(chosen)} integers >= 0", remedy=remedy)
        return self._views(chosen, numbers, check_count("seed", seed, minimum=0))

    def subset(self, rows: Any) -> Pixels:
        """Return only these images, without decoding them."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        return replace(self, items=tuple(self.items[k] for k in chosen.tolist()))

    def with_view(self, view: ViewSettings) -> Pixels:
        """Return the same images with other view settings."""
        return replace(self, view=view)

    def fingerprint(self) -> str:
        """Return 16 hex digits that differ for other images, another order or another view."""
        digest = hashlib.sha256(repr(astuple(self.view)).encode() + (b"" if self.draw is None else b"%d" % self.draw))
        for item in self.items:
            digest.update(self.stamp(item).encode("utf-8", "backslashreplace") + b"\0\n")
        return digest.hexdigest()[:16]

    def batches(self, size: int, workers: int = 0) -> Iterator[torch.Tensor]:
        """Yield the test views of all images in order, as uint8 tensors of `size` images (the last may be smaller)."""
        check_count("size", size)
        slices = (slice(start, start + size) for start in range(0, len(self), size))
        return map_in_workers(partial(_load_tensor, self), slices, workers)

    def _views(self, rows: NDArray[np.int64], draws: NDArray[Any] | None, seed: int) -> NDArray[np.uint8]:
        views = np.empty((len(rows), *self.shape[1:]), dtype=np.uint8)
        for k, row in enumerate(rows.tolist()):
            image = self.decode(row)
            if isinstance(image, str):
                allowed, remedy = "a whole image", "Fix or remove it, or pass --corrupt skip (corrupt='skip')."
                raise InputError(self.name(self.items[row]), got=image, allowed=allowed, remedy=remedy)
            rng = None if draws is None else np.random.default_rng([seed, int(draws[k])])
            views[k] = np.asarray(_apply_view(image, self.view, rng)).transpose(2, 0, 1)
        return views

    def decode(self, row: int) -> Image | str:
        """Return a whole image in RGB, or the reason why it cannot be decoded."""
        from PIL.Image import DecompressionBombWarning

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about metadata; broken pixels raise
                warnings.simplefilter("error", DecompressionBombWarning)
                with self.open(self.items[row]) as image:
                    return as_rgb(image)
        except MemoryError:
            raise
        except Exception as error:  # a damaged file makes decoders raise almost anything
            return _reason(error)


def _load_tensor(pixels: Pixels, rows: Any) -> torch.Tensor:
    import torch

    return torch.from_numpy(pixels[rows])  # a tensor, which workers pass on without a copy


def _find_corrupt_rows(pixels: Pixels, rows: range) -> dict[int, str]:
    results = ((row, pixels.decode(row)) for row in rows)
    return {row: reason for row, reason in results if isinstance(reason, str)}


def find_corrupt(pixels: Pixels, workers: int = 0, report: ProgressCallback | None = None) -> dict[int, str]:
    """Decode every image, in `workers` processes (0: in this one); return the rows that fail, with the reasons."""
    n, corrupt = len(pixels), dict[int, str]()
    chunks = [range(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
    results = map_in_workers(partial(_find_corrupt_rows, pixels), chunks, workers)
    for chunk, reasons in zip(chunks, results, strict=True):
        corrupt.update(reasons)
        if report is not None:
            report(chunk.stop / n, f"{chunk.stop} of {n} images, {len(corrupt)} corrupt")
    return corrupt


def open_image(path: str | os.PathLike[str]) -> Image:
    """Open an image file in one of the supported formats."""
    from PIL import Image

    return Image.open(path, formats=FORMATS)


def as_rgb(image: Image) -> Image:
    """Load the first frame as 8-bit RGB: palettes resolved, transparency dropped, the upper 8 of 16 bits kept."""
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"grey values from {values.min()} to {values.max()}, beyond 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels of unknown range")
    if "transparency" in image.info:
        image = image.convert("RGBA")  # as Pillow recommends for palettes with transparency
    return image.convert("RGB")


def _apply_view(image: Image, view: ViewSettings, rng: np.random.Generator | None) -> Image:
    """Return the square that a network sees: a random view with `rng`, the test view without."""
    from PIL import Image

    method = Image.Resampling[view.interpolation.upper()]
    square = image.resize((view.resize, view.resize), method)
    margin = view.resize - view.crop
    if rng is None or not view.augment:
        left, top = margin // 2, margin // 2
        return square.crop((left, top, left + view.crop, top + view.crop))
    mirrored = rng.random() < 0.5  # drawn first, so that it is the same draw under every setting
    if view.crops == "resized":
        crop = square.crop(_random_box(view.resize, rng)).resize((view.crop, view.crop), method)
    else:
        left, top = rng.integers(margin + 1, size=2).tolist()
        crop = square.crop((left, top, left + view.crop, top + view.crop))
    return crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if view.flip and mirrored else crop


def _random_box(side: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a box in a square: its share of the area, its aspect ratio (log-uniform) and its position."""
    for _ in range(CROP_ATTEMPTS):
        area, ratio = rng.uniform(*AREA_SHARES) * side**2, np.exp(rng.uniform(*np.log(ASPECT_RATIOS)))
        width, height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < width <= side and 0 < height <= side:
            left, top = int(rng.integers(side - width + 1)), int(rng.integers(side - height + 1))
            return left, top, left + width, top + height
    return 0, 0, side, side


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "a file that is not an image"
    if isinstance(error, WarmpotError):
        return str(error)
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text.rstrip(".") or type(error).__name__
