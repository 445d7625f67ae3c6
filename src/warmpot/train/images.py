"""Preparation of images for training: settings, and features or activations that are computed once and cached."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from warmpot._checks import check_choice, check_count
from warmpot._files import FILENAME_ERRORS, cache_folder, locked, read_json, write_text, writing
from warmpot._progress import progress
from warmpot.data import Table
from warmpot.data.images import drop_samples
from warmpot.data.pixels import Pixels, ViewSettings, find_corrupt
from warmpot.data.shards import Shards
from warmpot.data.views import StoredViews
from warmpot.errors import InputError
from warmpot.nets import Backbone, BackboneSettings, build_backbone
from warmpot.nets.backbone import check_weights
from warmpot.train.extract import CORRUPT, extract, report_corrupt, weights_fingerprint
from warmpot.train.hardware import resolve_device

__all__ = ["CORRUPT", "ImageSettings", "check_decodable", "make_backbone", "prepare"]

logger = logging.getLogger(__name__)

MAX_WORKERS = 8
"""Processes that decode by default; more rarely help, and each takes memory."""


@dataclass(frozen=True)
class ImageSettings:
    """How images become features.

    Attributes
    ----------
    backbone : BackboneSettings
        Its `train_from` sets what is trained: nothing (features are extracted once, then any engine trains on them),
        a part, or all of it (with the mini-batch engine).
    view : ViewSettings
        What the network sees of an image.
    cache : bool
        For a network that is trained in part: store the frozen part's output for every image, and train on that. Much
        faster, but without `cache_views` images are only seen in their test view: there is no augmentation.
    cache_views : int
        Random views of every image that are stored besides the test view. A step draws one of them for each image.
    workers : int or None
        Processes that decode images; None: one per spare core, at most 8. No result depends on it.
    """

    backbone: BackboneSettings = field(default_factory=BackboneSettings)
    view: ViewSettings = field(default_factory=ViewSettings)
    cache: bool = False
    cache_views: int = 0
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            check_count("workers", self.workers, minimum=0)
        if check_count("cache_views", self.cache_views, minimum=0) and not (self.cache and self.view.augment):
            got, remedy = f"{self.cache_views}", "Set `images.cache=true` and leave `images.view.augment` on."
            raise InputError("cache_views", got=got, allowed="0 without a cache of random views", remedy=remedy)
        if self.cache and self.backbone.train_from in (None, "all"):
            what = "nothing" if self.backbone.train_from is None else "everything"
            got = f"true, and {what} is trained"
            remedy = "Name a block: `images.backbone.train_from=BLOCK`. `warmpot doctor` lists those of the network."
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
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(0, min(MAX_WORKERS, cores - 1))


def make_backbone(settings: ImageSettings) -> Backbone:
    """Build the backbone; raise an `InputError` if it does not accept images of this size."""
    backbone = build_backbone(settings.backbone)
    if backbone.view.fixed and backbone.view.crop != settings.view.crop:
        got, allowed = f"{settings.view.crop} with {settings.backbone.name}", f"{backbone.view.crop}"
        remedy = "It accepts one image size only: set images.view.crop (--crop), and resize, which must not be smaller."
        raise InputError("images.view.crop", got=got, allowed=allowed, remedy=remedy)
    return backbone


def prepare(
    *tables: Table, settings: ImageSettings, cache: Path | None = None, corrupt: str = "raise", device: str = "auto",
    progress_bar: bool | None = None,
) -> tuple[Table, ...]:  # fmt: skip
    """Turn tables of images into what the settings train on: features, activations, or the images themselves.

    Features and activations are computed once and stored below `cache`, in a folder whose name is a hash of the images,
    the backbone with its weights, and the view.

    Parameters
    ----------
    *tables : Table
        From `warmpot.data.load_images`.
    settings : ImageSettings
    cache : path, optional
        Default: `cache_folder`.
    corrupt : "raise" or "skip"
        What to do with images that cannot be decoded.
    device, progress_bar
        "auto", "cpu" or "cuda", also "cuda:1"; default: a bar on a terminal, log lines at INFO elsewhere.
    """
    check_choice("corrupt", corrupt, CORRUPT)
    check_weights(settings.backbone)  # before images are decoded
    folder, trains_on_images = cache or cache_folder(), settings.fine_tunes and not settings.cache
    with writing(folder, "Name another folder in the environment variable WARMPOT_CACHE."):
        folder.mkdir(parents=True, exist_ok=True)
    view = settings.view
    if not trains_on_images:  # the settings of random views do not matter, and must not change the hash
        view = ViewSettings(view.resize, view.crop, view.interpolation, augment=False)
    tables = tuple(replace(table, x=_pixels(table).with_view(view)) for table in tables)
    if trains_on_images:  # checked now, because training would only stop at the first broken image it draws
        return tuple(check_decodable(table, settings.processes, corrupt, folder, progress_bar) for table in tables)
    backbone, torch_device = make_backbone(settings), resolve_device(device)
    backbone.to(torch_device).eval()
    made_from = {"backbone": settings.backbone.name, "before": settings.backbone.train_from}
    weights = weights_fingerprint(backbone.stem)

    def stored(table: Table) -> Shards:
        key = {**made_from, "weights": weights, "images": _fingerprint(_pixels(table))}
        out = folder / hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
        with locked(Path(f"{out}.lock"), wait=True):  # if several processes want the same features, one computes them
            # Without labels: they belong to the caller's list, and those of a target must not be stored here.
            extracted = extract(
                replace(table, y=None, classes=()), backbone.stem, out, made_from=made_from, workers=settings.processes,
                device=torch_device, corrupt=corrupt, progress_bar=progress_bar,
            )  # fmt: skip
        assert extracted is not None, "all shards were requested"
        assert isinstance(extracted.x, Shards)
        return extracted.x

    prepared = []
    for table in tables:
        test = stored(table)
        drawn = [replace(_pixels(table), view=settings.view, draw=k) for k in range(settings.cache_views)]
        views = [stored(replace(table, x=pixels)) for pixels in drawn]
        skipped = np.setdiff1d(np.arange(table.n), test.samples)
        prepared.append(replace(drop_samples(table, skipped), x=StoredViews(test, views) if views else test))
    return tuple(prepared)


def _pixels(table: Table) -> Pixels:
    if not isinstance(table.x, Pixels):
        remedy = "Read them with warmpot.data.load_images."
        raise InputError(table.name, got=type(table.x).__name__, allowed="images", remedy=remedy)
    return table.x


def check_decodable(
    table: Table, workers: int, corrupt: str = "skip", cache: Path | None = None, progress_bar: bool | None = None
) -> Table:
    """Decode all images once; refuse those that cannot be decoded ("raise"), or drop them with a warning ("skip").

    The result is stored in the folder `cache`, if there is one, for other processes and for the next run.
    """
    pixels = _pixels(table)

    def find() -> dict[int, str]:
        with progress(f"checking {table.name}", logger, progress_bar) as report:
            return find_corrupt(pixels, workers, report)

    if cache is None:
        bad = find()
    else:
        result = cache / f"checked-{_fingerprint(pixels)}.json"
        with locked(Path(f"{result}.lock"), wait=True):
            if not result.exists():
                write_text(result, json.dumps(find()))
            bad = {int(row): why for row, why in read_json(result).items()}
    report_corrupt(bad, table, corrupt)
    return drop_samples(table, sorted(bad)) if bad else table


def _fingerprint(pixels: Pixels) -> str:
    """Hash the images, their view and their modification times: a file may be replaced by another of the same size."""
    digest = hashlib.sha256(pixels.fingerprint().encode())
    for item in pixels.items:
        name = pixels.name(item)
        digest.update(name.encode(errors=FILENAME_ERRORS))
        with suppress(OSError):  # not a file, or missing, which is reported when it is opened
            digest.update(str(os.stat(name).st_mtime_ns).encode())
    return digest.hexdigest()[:20]
