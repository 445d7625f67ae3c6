"""Images on their way into training: settings, and what is computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from warmpot._checks import check_choice, check_count
from warmpot._settings import to_mapping
from warmpot.data import Table
from warmpot.data.images import without
from warmpot.data.pixels import Pixels, ViewSettings, find_corrupt
from warmpot.errors import InputError, explain
from warmpot.nets import Backbone, BackboneSettings, build_backbone
from warmpot.train.extract import CORRUPT, extract, stamp_of

__all__ = ["CORRUPT", "ImageSettings", "cache_folder", "decodable", "make_backbone", "prepare"]

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
            got, remedy = f"true, and {what} is trained", "Name a block: images.backbone.train_from=layer4."
            raise InputError(explain("cache", got=got, allowed="a network that is trained in part", remedy=remedy))

    @property
    def fine_tunes(self) -> bool:
        """Whether some of the backbone is trained."""
        return self.backbone.train_from is not None

    @property
    def processes(self) -> int:
        """Processes that decode images."""
        if self.workers is not None:
            return self.workers
        return max(0, min(MOST_WORKERS, (os.cpu_count() or 1) - 1))


def make_backbone(settings: ImageSettings) -> Backbone:
    """Build the backbone; an `InputError` says when it cannot take images of this size."""
    backbone = build_backbone(settings.backbone)
    if backbone.view.fixed and backbone.view.crop != settings.view.crop:
        got, allowed = f"{settings.view.crop} with {settings.backbone.name}", f"{backbone.view.crop}"
        remedy = "It takes images of one size only: set images.view.crop (and resize, which is no smaller)."
        raise InputError(explain("images.view.crop", got=got, allowed=allowed, remedy=remedy))
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
        "auto", "cpu", "cuda" ...
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    """
    check_choice("corrupt", corrupt, CORRUPT)
    view, live = settings.view, settings.fine_tunes and not settings.cache
    if not live:  # how views are drawn in training changes nothing
        view = ViewSettings(view.resize, view.crop, view.interpolation, augment=False)
    tables = tuple(_in_view(table, view) for table in tables)
    if live:
        return tuple(decodable(table, settings.processes) if corrupt == "skip" else table for table in tables)
    from filelock import FileLock

    backbone = make_backbone(settings)
    place = torch.device(
        "cuda" if device == "auto" and torch.cuda.is_available() else "cpu" if device == "auto" else device
    )
    backbone.to(place).eval()
    folder, found = cache or cache_folder(), []
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        ask = _asked(table, settings, backbone)
        out = folder / hashlib.sha256(json.dumps(ask, sort_keys=True).encode()).hexdigest()[:20]
        with FileLock(f"{out}.lock"):  # of several processes that want the same, one computes
            made = extract(
                table, backbone.stem, out, ask=ask, workers=settings.processes, device=place, corrupt=corrupt,
                progress_bar=progress_bar,
            )  # fmt: skip
        assert made is not None  # all shards were asked for
        found.append(made)
    return tuple(found)


def _in_view(table: Table, view: ViewSettings) -> Table:
    """Return the images as these settings show them."""
    if not isinstance(table.x, Pixels):
        remedy = "Read them with warmpot.data.load_images."
        raise InputError(explain(table.name, got=type(table.x).__name__, allowed="images", remedy=remedy))
    return replace(table, x=table.x.with_view(view))


def decodable(table: Table, workers: int) -> Table:
    """Leave out the images that cannot be decoded."""
    assert isinstance(table.x, Pixels)
    bad = find_corrupt(table.x, workers)
    return without(table, sorted(bad)) if bad else table


def _asked(table: Table, settings: ImageSettings, backbone: Backbone) -> dict[str, Any]:
    """Describe what is computed, so that something else is never taken for it."""
    assert isinstance(table.x, Pixels)
    return {
        "backbone": settings.backbone.name,
        "before": settings.backbone.train_from,
        "weights": stamp_of(backbone.stem),
        "view": to_mapping(table.x.view),
        "images": table.x.fingerprint(),
        "changed": _changed(table.x),
    }


def _changed(x: Pixels) -> str:
    """Hash when the files were last written: an image can be replaced by another one of its name and size."""
    digest = hashlib.sha256()
    for item in x.items:
        with suppress(OSError):  # not a file, or a broken one, which is named when it is opened
            digest.update(str(os.stat(x.name(item)).st_mtime_ns).encode())
    return digest.hexdigest()[:20]
