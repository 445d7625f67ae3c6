"""Images on their way into training: settings, and what is computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from filelock import FileLock

from warmpot._checks import check_choice, check_count
from warmpot._files import FILENAME_ERRORS, atomic_write
from warmpot._progress import progress
from warmpot.data import Table
from warmpot.data.images import without
from warmpot.data.lazy import Rows
from warmpot.data.pixels import Pixels, ViewSettings, find_corrupt
from warmpot.data.shards import Shards
from warmpot.errors import InputError
from warmpot.nets import Backbone, BackboneSettings, build_backbone
from warmpot.train.extract import CORRUPT, extract, stamp_of, tell_of_bad
from warmpot.train.hardware import resolve_device

__all__ = ["CORRUPT", "ImageSettings", "cache_folder", "decodable", "make_backbone", "prepare"]

logger = logging.getLogger(__name__)

MOST_WORKERS = 8


@dataclass(frozen=True)
class ImageSettings:
    """How images become features.

    Attributes
    ----------
    backbone : BackboneSettings
        Its `train_from` says what is trained: nothing (features are extracted once, then any engine trains on them),
        a part, or all of it (by the mini-batch engine).
    view : ViewSettings
        What the network sees of an image.
    cache : bool
        Of a network that is trained in part: keep what the frozen part says of every image on disk, and train from
        there. Much faster, but every image is seen in its test view only: there is no augmentation.
    workers : int or None
        Processes that decode images; None: as many as there are cores to spare. No result depends on it.
    """

    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    view: ViewSettings = field(default_factory=ViewSettings)
    cache: bool = False
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count("workers", self.workers, minimum=0)
        if self.cache and self.backbone.train_from in (None, "all"):
            what = "nothing" if self.backbone.train_from is None else "everything"
            got, remedy = f"true, and {what} is trained", "Name a block: `images.backbone.train_from=layer4`."
            raise InputError("cache", got=got, allowed="a network that is trained in part", remedy=remedy)

    @property
    def fine_tunes(self) -> bool:
        """Whether some of the backbone is trained."""
        return self.backbone.train_from is not None

    @property
    def processes(self) -> int:
        """Processes that decode images."""
        if self.workers is not None:
            return self.workers
        return max(0, min(MOST_WORKERS, _cores() - 1))


def _cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_backbone(settings: ImageSettings) -> Backbone:
    """Build the backbone; an `InputError` says when it cannot take images of this size."""
    backbone = build_backbone(settings.backbone)
    if backbone.view.fixed and backbone.view.crop != settings.view.crop:
        got, allowed = f"{settings.view.crop} with {settings.backbone.name}", f"{backbone.view.crop}"
        remedy = "It takes images of one size only: set images.view.crop (--crop), and resize, which is no smaller."
        raise InputError("images.view.crop", got=got, allowed=allowed, remedy=remedy)
    return backbone


def cache_folder() -> Path:
    """Return where extracted features are kept: ``$WARMPOT_CACHE``, else ``warmpot`` in the user's cache folder."""
    place = os.environ.get("WARMPOT_CACHE")
    return Path(place) if place else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warmpot"


def prepare(
    *tables: Table,
    settings: ImageSettings,
    cache: Path | None = None,
    corrupt: str = "raise",
    device: str = "auto",
    progress_bar: bool | None = None,
) -> tuple[Table, ...]:
    """Turn tables of images into what the settings train on: features, activations, or the images themselves.

    Features and activations are computed once and kept under `cache`, in a folder named by what they were made from:
    the images, the backbone with its weights, the view.

    Parameters
    ----------
    *tables : Table
        Of `warmpot.data.load_images`.
    settings : ImageSettings
    cache : path, optional
        Default: `cache_folder`.
    corrupt : "raise" or "skip"
        What becomes of images that cannot be decoded.
    device : str
        "auto", "cpu" or "cuda", also "cuda:1".
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    """
    check_choice("corrupt", corrupt, CORRUPT)
    folder, live = cache or cache_folder(), settings.fine_tunes and not settings.cache
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "Name another place in the environment variable WARMPOT_CACHE."
        got, allowed = error.strerror, "a folder to keep features in"
        raise InputError(str(folder), got=got, allowed=allowed, remedy=remedy) from error
    view = settings.view
    if not live:  # how views are drawn in training changes nothing
        view = ViewSettings(view.resize, view.crop, view.interpolation, augment=False)
    tables = tuple(_in_view(table, view) for table in tables)
    if live:  # before the training: it would end at the first broken image that it draws
        return tuple(decodable(table, settings.processes, corrupt, folder, progress_bar) for table in tables)
    backbone, place = make_backbone(settings), resolve_device(device)
    backbone.to(place).eval()
    found = []
    for table in tables:
        ask = {"backbone": settings.backbone.name, "before": settings.backbone.train_from}
        key = {**ask, "weights": stamp_of(backbone.stem), "images": _stamp(table.x)}
        out = folder / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
        with FileLock(f"{out}.lock"):  # of several processes that want the same, one computes
            # Labels are the caller's: the same images may be listed with others, and a target's have no place here.
            made = extract(
                replace(table, y=None, classes=()), backbone.stem, out, ask=ask, workers=settings.processes,
                device=place, corrupt=corrupt, progress_bar=progress_bar,
            )  # fmt: skip
        assert made is not None  # all shards were asked for
        assert isinstance(made.x, Shards)
        gone = np.setdiff1d(np.arange(table.n), made.x.samples)
        found.append(replace(without(table, gone), x=made.x))
    return tuple(found)


def _in_view(table: Table, view: ViewSettings) -> Table:
    """Return the images as these settings show them."""
    if not isinstance(table.x, Pixels):
        remedy = "Read them with warmpot.data.load_images."
        raise InputError(table.name, got=type(table.x).__name__, allowed="images", remedy=remedy)
    return replace(table, x=table.x.with_view(view))


def decodable(
    table: Table, workers: int, corrupt: str = "skip", cache: Path | None = None, progress_bar: bool | None = None
) -> Table:
    """Decode all images once; refuse those that cannot be, or leave them out and say so.

    Parameters
    ----------
    table : Table
        Of images.
    workers : int
        Processes that decode.
    corrupt : "raise" or "skip"
    cache : path, optional
        Where to remember the result, for other processes and for the next run.
    progress_bar : bool, optional
    """
    assert isinstance(table.x, Pixels)
    if cache is None:
        bad = _faults(table.x, workers, table.name, progress_bar)
    else:
        known = cache / f"checked-{_stamp(table.x)}.json"
        with FileLock(f"{known}.lock"):
            if not known.exists():
                text = json.dumps(_faults(table.x, workers, table.name, progress_bar))
                with atomic_write(known) as draft:
                    draft.write_text(text, encoding="utf-8")
            bad = {int(row): why for row, why in json.loads(known.read_text(encoding="utf-8")).items()}
    tell_of_bad(bad, table, corrupt)
    return without(table, sorted(bad)) if bad else table


def _faults(x: Pixels, workers: int, name: str, progress_bar: bool | None) -> dict[int, str]:
    with progress(f"checking {name}", logger, progress_bar) as report:
        return find_corrupt(x, workers, report)


def _stamp(x: Rows) -> str:
    """Hash which images these are, in which view, and when they were written: one may be replaced by its like."""
    assert isinstance(x, Pixels)
    digest = hashlib.sha256(x.fingerprint().encode())
    for item in x.items:
        place = x.name(item)
        digest.update(place.encode(errors=FILENAME_ERRORS))
        with suppress(OSError):  # not a file, or a broken one, which is named when it is opened
            digest.update(str(os.stat(place).st_mtime_ns).encode())
    return digest.hexdigest()[:20]
