"""Images that stay where they are until asked for: decoding, views for training and testing, broken files by name.

Workers hand out bytes: the mean and the deviation of a network belong to the network. A picture is taken as it is
stored: an orientation in its EXIF data is not applied and transparency is dropped, as this field's lists assume.
"""

from __future__ import annotations

import hashlib
import os
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_choice, check_count
from warmpot._progress import ProgressCallback
from warmpot.errors import InputError, WarmpotError

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

__all__ = [
    "CROPS",
    "DEFAULT_VIEW",
    "INTERPOLATIONS",
    "Pixels",
    "ViewSettings",
    "as_rgb",
    "find_corrupt",
    "in_workers",
    "open_image",
]

CROPS = ("random", "resized")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What is decoded; Pillow also knows formats that start other programs, such as EPS."""
LARGEST_SIDE = 8192
SHARES, RATIOS, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10
"""Of crops="resized": share of the area, width by height, and how often to try before the whole picture is taken."""
CHUNK = 32

Job = TypeVar("Job")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ViewSettings:
    """How a picture becomes the square that a network sees.

    Attributes
    ----------
    resize : int
        Side of the square that the whole picture is squeezed into first; the aspect is not kept, as in this field.
    crop : int
        Side of the part of it that is seen: the centre when testing.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"}
        Filter of Pillow, which smooths when it shrinks.
    augment : bool
        Whether training sees drawn views; otherwise it sees the views of testing.
    flip : bool
        Whether a drawn view is mirrored, left to right, in half of the cases.
    crops : {"random", "resized"}
        Of a drawn view: a `crop` anywhere, or a part of 8 to 100 % of the area with sides 3:4 to 4:3, resized.
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
            got = f"crop {self.crop} of resize {self.resize}"
            remedy = "Make crop the smaller one."
            raise InputError("crop", got=got, allowed=f"crop <= resize <= {LARGEST_SIDE}", remedy=remedy)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("crops", self.crops, CROPS)
        for name in ("augment", "flip"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(name, got=repr(value), allowed="true or false", remedy="Pick one of these.")


DEFAULT_VIEW = ViewSettings()


@dataclass(frozen=True, eq=False)
class Pixels:
    """Images as lazy rows: ``pixels[rows]`` decodes these and returns their test views as bytes.

    Attributes
    ----------
    items : sequence
        One thing an image, such as its path.
    open : callable
        Makes a Pillow image of an item. It and `items` must pickle, for workers.
    view : ViewSettings
        How an image becomes a square.
    stamp : callable
        Text that tells an item and its content from others, without a full decoding where that is possible.
    name : callable
        What messages call an item.
    """

    items: Sequence[Any]
    open: Callable[[Any], Image]
    view: ViewSettings = DEFAULT_VIEW
    stamp: Callable[[Any], str] = str
    name: Callable[[Any], str] = str

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of images, 3, height, width."""
        return len(self.items), 3, self.view.crop, self.view.crop

    @property
    def ndim(self) -> int:
        """Always 4."""
        return 4

    @property
    def dtype(self) -> np.dtype[Any]:
        """Always uint8."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.items)

    def __repr__(self) -> str:
        return f"Pixels({len(self)} images, {self.view})"

    def __getitem__(self, rows: Any) -> NDArray[np.uint8]:
        """Decode the images that whole numbers, a slice or a mask name; test views, (n, 3, crop, crop)."""
        chosen = np.arange(len(self))[rows]
        views = self._views(np.atleast_1d(chosen), None, 0)
        return views if np.ndim(chosen) else views[0]

    def drawn(self, rows: Any, draws: Any, seed: int = 0) -> NDArray[np.uint8]:
        """Decode images and return drawn views for training, (n, 3, crop, crop).

        Parameters
        ----------
        rows : array of int, slice or mask
            The images.
        draws : (n,) array of int
            Number of the draw of each: crop and flip are a function of `seed` and this number only.
        seed : int
            Seed of all draws.
        """
        chosen, numbers = np.atleast_1d(np.arange(len(self))[rows]), np.atleast_1d(np.asarray(draws))
        if numbers.shape != chosen.shape or numbers.dtype.kind not in "iu" or (numbers.size and numbers.min() < 0):
            got, remedy = f"{numbers.dtype} of shape {numbers.shape}", "Number the draws of every image."
            raise InputError("draws", got=got, allowed=f"{len(chosen)} integers >= 0", remedy=remedy)
        return self._views(chosen, numbers, check_count("seed", seed, minimum=0))

    def subset(self, rows: Any) -> Pixels:
        """Return these images only, not decoded."""
        chosen = np.atleast_1d(np.arange(len(self))[rows])
        items = tuple(self.items[k] for k in chosen.tolist())
        return Pixels(items, self.open, self.view, self.stamp, self.name)

    def with_view(self, view: ViewSettings) -> Pixels:
        """Return the same images, seen another way."""
        return Pixels(self.items, self.open, view, self.stamp, self.name)

    def fingerprint(self) -> str:
        """Return 16 hex digits that other images, another order of them or another view would change."""
        digest = hashlib.sha256(repr(astuple(self.view)).encode())
        for item in self.items:
            digest.update(self.stamp(item).encode("utf-8", "backslashreplace") + b"\0\n")
        return digest.hexdigest()[:16]

    def batches(self, size: int, workers: int = 0) -> Iterator[torch.Tensor]:
        """Yield the test views of all images in their order, as uint8 tensors of `size` images (the last may be less).

        The result does not depend on the number of workers; 0 decodes in this process.
        """
        check_count("size", size)
        starts = range(0, len(self), size)
        return in_workers(_Tensors(self), (slice(start, start + size) for start in starts), workers)

    def _views(self, rows: NDArray[np.int64], draws: NDArray[Any] | None, seed: int) -> NDArray[np.uint8]:
        views = np.empty((len(rows), *self.shape[1:]), dtype=np.uint8)
        for place, row in enumerate(rows.tolist()):
            image = self.decoded(row)
            if isinstance(image, str):
                allowed, remedy = "a whole image", "Mend or remove it, or pass --corrupt skip (corrupt='skip')."
                raise InputError(self.name(self.items[row]), got=image, allowed=allowed, remedy=remedy)
            rng = None if draws is None else np.random.default_rng([seed, int(draws[place])])
            views[place] = np.asarray(_seen(image, self.view, rng)).transpose(2, 0, 1)
        return views

    def decoded(self, row: int) -> Image | str:
        """Return one whole image in RGB, or why there is none."""
        from PIL.Image import DecompressionBombWarning

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on metadata; what is wrong with the pixels raises
                warnings.simplefilter("error", DecompressionBombWarning)
                with self.open(self.items[row]) as image:
                    return as_rgb(image)
        except MemoryError:
            raise
        except Exception as error:  # a damaged file makes decoders raise almost anything
            return _reason(error)


@dataclass(frozen=True, eq=False)
class _Tensors:
    """Loads rows as a tensor, which workers hand over without a copy."""

    pixels: Pixels

    def __call__(self, rows: Any) -> torch.Tensor:
        import torch

        return torch.from_numpy(self.pixels[rows])


@dataclass(frozen=True, eq=False)
class _Faults:
    """Finds the rows that cannot be decoded, with the reasons."""

    pixels: Pixels

    def __call__(self, rows: range) -> dict[int, str]:
        found = ((row, self.pixels.decoded(row)) for row in rows)
        return {row: reason for row, reason in found if isinstance(reason, str)}


def find_corrupt(pixels: Pixels, workers: int = 0, report: ProgressCallback | None = None) -> dict[int, str]:
    """Decode every image and return the rows that cannot be, each with the reason.

    Parameters
    ----------
    pixels : Pixels
        The images.
    workers : int
        Processes that decode; 0 decodes here.
    report : callable, optional
        Called with the share done and a text.
    """
    n, faults = len(pixels), dict[int, str]()
    jobs = [range(start, min(start + CHUNK, n)) for start in range(0, n, CHUNK)]
    for job, found in zip(jobs, in_workers(_Faults(pixels), jobs, workers), strict=True):
        faults.update(found)
        if report is not None:
            report(job.stop / n, f"{job.stop} of {n} images, {len(faults)} corrupt")
    return faults


def in_workers(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int = 0) -> Iterator[Result]:
    """Yield ``function(job)`` of all jobs, in their order, computed ahead in processes when `workers` > 0.

    Parameters
    ----------
    function : callable
        Must pickle, and be a function of its job only; an error of ours that it raises is raised here as it was.
    jobs : iterable
        May be endless; it is read a few jobs ahead.
    workers : int
        Processes; 0 computes in this one.
    """
    if check_count("workers", workers, minimum=0) == 0:
        return map(function, jobs)
    return _ahead(function, jobs, workers)


def _deaf(number: int) -> None:  # noqa: ARG001
    """Leave signals to the main process, which may want to end its step first; a worker ends when that is gone."""
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


def _ahead(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    import torch
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {"sampler": jobs, "batch_size": None, "num_workers": workers, "collate_fn": _unchanged}
    options["worker_init_fn"] = _deaf
    options["generator"] = torch.Generator()  # the loader draws a seed: not from the stream that training uses
    failure: WarmpotError | None = None
    try:
        with (
            warnings.catch_warnings()
        ):  # more workers than cores, and forks beside threads: both are the caller's choice
            warnings.filterwarnings("ignore", r"This (DataLoader will create|process .* is multi-threaded)")
            results = iter(DataLoader(cast(Any, _Jobs(function)), **options))
        for result in results:
            if isinstance(result, WarmpotError):
                failure = result  # raised below, when the workers are gone
                break
            yield result
        del results
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        remedy = "Pass --workers 0, or give the machine more (shared) memory."
        got = f"a dead process ({error})"
        raise WarmpotError("workers", got=got, allowed="processes that live", remedy=remedy) from error
    if failure is not None:
        raise failure


def _unchanged(result: Result) -> Result:
    return result  # by default the loader would turn arrays into tensors


@dataclass(frozen=True, eq=False)
class _Jobs:
    """A dataset whose indices are jobs."""

    function: Callable[[Any], Any]

    def __getitem__(self, job: Any) -> Any:
        try:
            return self.function(job)
        except WarmpotError as error:
            return error  # raised by a worker it would come back inside a traceback of text


def open_image(path: str | os.PathLike[str]) -> Image:
    """Open an image file, of a format of this field only."""
    from PIL import Image

    return Image.open(path, formats=FORMATS)


def as_rgb(image: Image) -> Image:
    """Load the first frame as 8-bit RGB: palettes looked up, transparency dropped, 16 bits cut to the upper 8."""
    from PIL import Image

    if image.mode.startswith("I"):
        values = np.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"grey values from {values.min()} to {values.max()}, beyond 16 bits")
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("floating-point pixels, whose range is not known")
    if "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow's way for palettes with transparency
    return image.convert("RGB")


def _seen(image: Image, view: ViewSettings, rng: np.random.Generator | None) -> Image:
    """Return the square that is seen: a drawn view with `rng`, the test view without."""
    from PIL import Image

    method = Image.Resampling[view.interpolation.upper()]
    square = image.resize((view.resize, view.resize), method)
    room = view.resize - view.crop
    if rng is None or not view.augment:
        left, top = room // 2, room // 2
        return square.crop((left, top, left + view.crop, top + view.crop))
    mirrored = rng.random() < 0.5  # drawn first, so that it is the same draw under every setting
    if view.crops == "resized":
        part = square.crop(_part(view.resize, rng)).resize((view.crop, view.crop), method)
    else:
        left, top = rng.integers(room + 1, size=2).tolist()
        part = square.crop((left, top, left + view.crop, top + view.crop))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if view.flip and mirrored else part


def _part(side: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a part of a square: its share of the area, its ratio (evenly in the logarithm), its place."""
    for _ in range(TRIES):
        area, ratio = rng.uniform(*SHARES) * side**2, np.exp(rng.uniform(*np.log(RATIOS)))
        width, height = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < width <= side and 0 < height <= side:
            left, top = int(rng.integers(side - width + 1)), int(rng.integers(side - height + 1))
            return left, top, left + width, top + height
    return 0, 0, side, side


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "no image that can be read"
    if isinstance(error, WarmpotError):
        return str(error)
    text = getattr(error, "strerror", None) or " ".join(str(error).split())
    return text.rstrip(".") or type(error).__name__
