"""``warmpot extract``: compute the features of images once, so that training needs no images."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._files import LOCK, atomic_write, locked, make_folder
from warmpot.cli import _flags
from warmpot.cli._interrupt import on_interrupt
from warmpot.cli._shared import check_out_file, default_out, facts_grid, messages, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Table

__all__ = ["extract"]

OTHER_FORMATS = (".npy", ".csv", ".tsv", ".parquet", ".txt", ".json", ".pt", ".safetensors")
"""Endings of --out that ask for a file format which is not written here, and are not meant as a folder."""

FORMS = "Folder with one folder of images per class, or a list: one line `path label` per image."
IMAGES = Annotated[Path, Argument(metavar="IMAGES", help=FORMS)]
OUT_HELP = "File .npz, or a folder (for data larger than memory). [default: runs/IMAGES-features.npz]"
OUT = Annotated[Path | None, Option("--out", "-o", help=OUT_HELP)]
BACKBONE = Annotated[str, Option(metavar="NAME", help=_flags.NETWORK)]
WEIGHTS = Annotated[str, Option("--backbone-weights", metavar="FILE", help=_flags.NETWORK_WEIGHTS)]
CROP = Annotated[int, Option(help="Side of its central square, which goes through the network.")]
VIEWS = "Average the features of so many views: the central crop, and random crops, mirrored or not."
PARTS = "Do part K of N, counted from 0; each part can run on another machine."
PART = Annotated[str, Option(metavar="K/N", help=PARTS)]


def extract(
    images: IMAGES,
    out: OUT = None,
    backbone: BACKBONE = "resnet50.tv_in1k",
    weights: WEIGHTS = "pretrained",
    root: _flags.ROOT = None,
    classes: _flags.CLASSES = None,
    resize: Annotated[int, Option(help="Side of the square that an image is resized to.")] = 256,
    crop: CROP = 224,
    views: Annotated[int, Option(help=VIEWS)] = 1,
    batch: Annotated[int, Option(help="Images per batch; affects only speed and memory.")] = 64,
    workers: _flags.WORKERS = None,
    dtype: Annotated[str, Option(help="float32, or float16: half the disk space, three digits.")] = "float32",
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    corrupt: _flags.CORRUPT_FILES = "raise",
    part: PART = "0/1",
    quiet: _flags.QUIET = False,
) -> None:
    """Run every image through a network once and store the features.

    Images are resized to 256 x 256; the central 224 x 224 pixels go through the network, and its pooled features are
    stored, one row per image. `warmpot fit` takes the result as SOURCE or TARGET.

    features.npz holds X (features), y (labels, as indices into classes), classes and path. A folder holds the same in
    many files, which are read piece by piece. After Ctrl-C or a crash, the same command continues; at most the last
    256 images are repeated.

    Example: warmpot extract photos/webcam --out webcam.npz --backbone resnet50_v1 --backbone-weights
    resnet50_v1.safetensors
    """
    numbers = re.fullmatch(r"(\d+)/(\d+)", part.strip())
    if numbers is None or not int(numbers[1]) < int(numbers[2]):
        remedy = "Use --part 0/2 on one machine and --part 1/2 on another, for example."
        raise InputError("--part", got=repr(part), allowed="K/N with K from 0 to N - 1", remedy=remedy)
    part_of = int(numbers[1]), int(numbers[2])
    if out is None:
        out = default_out(images, "features", suffix=".npz")
        make_folder(out.parent)
    to_file = _is_file(out, images, Path(weights), classes)
    # The parts of a file are kept next to it until it can be written.
    folder = out.with_name(f"{out.name}.parts") if to_file else out
    on_interrupt(lambda: "finished pieces are kept, and the same command continues from there")
    with messages(not quiet):
        from warmpot.data.images import load_images
        from warmpot.data.pixels import ViewSettings
        from warmpot.nets.backbone import BackboneSettings
        from warmpot.train.extract import extract as run
        from warmpot.train.hardware import resolve_device
        from warmpot.train.images import ImageSettings, make_backbone

        resolved, view = resolve_device(device), ViewSettings(resize=resize, crop=crop)
        settings = ImageSettings(BackboneSettings(backbone, weights), view, workers=workers)
        table, stem = load_images(images, root=root, classes=classes, view=view), make_backbone(settings).stem
        # Of two commands for one file, the first to finish would delete the parts under the other.
        lock = f"{LOCK}-{part_of[0]}-{part_of[1]}"
        with locked(make_folder(folder) / lock, wait=False) if to_file else nullcontext():
            features = run(
                table, stem, folder, made_from={"backbone": backbone, "resize": resize, "crop": crop}, batch=batch,
                workers=settings.processes, dtype=dtype, corrupt=corrupt, device=resolved, part=part_of,
                progress_bar=False if quiet else None, views=views,
            )  # fmt: skip
            only_part = part_of == (0, 1)
            if features is not None and to_file and only_part:
                _write(out, features, dtype)
                shutil.rmtree(folder)
    if not quiet:
        _summarise(features, out, folder, file_missing=to_file and not only_part)


def _is_file(out: Path, *inputs: Path | None) -> bool:
    """Return whether --out is a file, else a folder; refuse, before any work, what cannot be written."""
    if out.suffix.lower() == ".npz":
        check_out_file(out, *inputs)
        return True
    if out.suffix.lower() in OTHER_FORMATS or out.is_file():
        remedy = "Choose a name that ends in .npz, or a folder."
        raise InputError("--out", got=str(out), allowed="a .npz file or a folder", remedy=remedy)
    return False


def _write(out: Path, features: Table, dtype: str) -> None:
    import numpy as np

    optional = {"y": features.y, "classes": features.classes or None, "path": features.names or None}
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in optional.items() if values is not None}
    with atomic_write(out) as draft, open(draft, "xb") as stream:
        np.savez(stream, X=features.x[:].astype(dtype, copy=False), **arrays)


def _summarise(features: Table | None, out: Path, folder: Path, file_missing: bool) -> None:
    if features is None:
        show(f"This part is done; other parts are missing in {folder}.")
    elif file_missing:
        show(f"All parts are done: the same command without --part writes {out} from {folder}.")
    else:
        shape = " x ".join(map(str, features.x.shape[1:]))
        labels = f"{len(features.classes)} classes" if features.classes else "none"
        show(facts_grid([("images", f"{features.n}"), ("features per image", shape), ("labels", labels)]))
        show("", f"Wrote {out}")
