"""``warmpot extract``: from images to features on disk, once, so that training needs no images."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot._files import atomic_write
from warmpot.cli._image_flags import CLASSES, CORRUPT_FILES, ROOT, WORKERS
from warmpot.cli._shared import check_out_file, complain, facts_grid, messages, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Table

__all__ = ["extract"]

FILES = (".npy", ".csv", ".tsv", ".parquet", ".txt", ".json", ".pt", ".safetensors")
"""Endings of --out that are meant as a file we do not write."""


def extract(
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES", help="Folder with a folder of images a class; or a list, a line `path label` an image."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File features.npz, or a folder (for data larger than memory).")
    ],
    backbone: Annotated[
        str, typer.Option(metavar="NAME", help="Network: resnet50_v1, or a name of timm.")
    ] = "resnet50.tv_in1k",
    weights: Annotated[
        str,
        typer.Option(
            "--weights",
            "--backbone-weights",
            metavar="FILE",
            help="Its weights: a .safetensors or .pth file; pretrained: timm downloads.",
        ),
    ] = "pretrained",
    root: ROOT = None,
    classes: CLASSES = None,
    resize: Annotated[int, typer.Option(help="Side of the square an image is resized to.")] = 256,
    crop: Annotated[int, typer.Option(help="Side of the square cut from its centre: what the network sees.")] = 224,
    batch: Annotated[int, typer.Option(help="Images at a time; changes speed and memory only.")] = 64,
    workers: WORKERS = None,
    dtype: Annotated[str, typer.Option(help="float32, or float16: half the disk, three digits.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    corrupt: CORRUPT_FILES = "raise",
    part: Annotated[
        str, typer.Option(metavar="K/N", help="Do one of N parts, 0/N to N-1/N, each on a machine of its own.")
    ] = "0/1",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Run every image through a network once and keep the features.

    An image is resized to 256 x 256, its centre of 224 x 224 goes through the network, and the pooled features come
    out: a row an image. `warmpot fit` takes the result as SOURCE or TARGET.

    features.npz holds X (features), y (labels, numbers into classes), classes and path. A folder holds the same in
    many files, which are read piece by piece. Stopped by Ctrl-C or a crash? The same command goes on; at
    most the last 256 images are done again.

    Example: warmpot extract photos/webcam --out webcam.npz --backbone resnet50_v1 --weights resnet50_v1.safetensors
    """
    turn = _part(part)
    to_file = _checked_out(out, images)
    with messages(not quiet):
        from warmpot.data.images import load_images
        from warmpot.data.pixels import ViewSettings
        from warmpot.nets.backbone import BackboneSettings
        from warmpot.train.extract import extract as run
        from warmpot.train.hardware import resolve_device
        from warmpot.train.images import ImageSettings, make_backbone

        where, view = resolve_device(device), ViewSettings(resize=resize, crop=crop)
        settings = ImageSettings(BackboneSettings(backbone, weights), view, workers=workers)
        table, stem = load_images(images, root=root, classes=classes, view=view), make_backbone(settings).stem
        # parts of a file: kept beside it until it can be written
        folder = out.with_name(f"{out.name}.parts") if to_file else out
        options: dict[str, Any] = {"batch": batch, "workers": settings.processes, "dtype": dtype, "corrupt": corrupt}
        options |= {"device": where, "part": turn, "progress_bar": False if quiet else None}
        asked = {"backbone": backbone, "resize": resize, "crop": crop}
        try:
            rows = run(table, stem, folder, ask=asked, **options)
        except KeyboardInterrupt:
            complain("interrupted; pieces that were finished are kept: the same command goes on from there", "yellow")
            raise typer.Exit(130) from None
        alone = turn == (0, 1)
        if rows is not None and to_file and alone:
            _write(out, rows, dtype)
            shutil.rmtree(folder)
    if not quiet:
        _summarise(rows, out, folder, to_file and not alone)


def _part(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    if found is None or not int(found[1]) < int(found[2]):
        remedy = "--part 0/2 on one machine and --part 1/2 on another do it all."
        raise InputError("--part", got=repr(text), allowed="K/N with K from 0 to N - 1", remedy=remedy)
    return int(found[1]), int(found[2])


def _checked_out(out: Path, images: Path) -> bool:
    """Refuse, before any work, what cannot be written; return whether it is a file."""
    if out.suffix.lower() == ".npz":
        check_out_file(out, images)
        return True
    if out.suffix.lower() in FILES or out.is_file():
        got, remedy = f"{out}", "End the name in .npz, or name a folder."
        raise InputError("--out", got=got, allowed="a .npz file or a folder", remedy=remedy)
    return False


def _write(out: Path, rows: Table, dtype: str) -> None:
    import numpy as np

    arrays = {"X": rows.x[:].astype(dtype, copy=False)}
    if rows.y is not None:
        arrays |= {"y": rows.y}
    if rows.classes:
        arrays |= {"classes": np.array(rows.classes)}
    if rows.names:
        arrays |= {"path": np.array(rows.names)}
    with atomic_write(out) as draft, open(draft, "xb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def _summarise(rows: Table | None, out: Path, folder: Path, waits: bool) -> None:
    if rows is None:
        show(f"This part is done; other parts are missing in {folder}.")
    elif waits:
        show(f"All parts are done: the same command without --part writes {out} from {folder}.")
    else:
        shape = " x ".join(map(str, rows.x.shape[1:]))
        labels = f"{len(rows.classes)} classes" if rows.classes else "none"
        show(facts_grid([("images", f"{rows.n}"), ("numbers an image", shape), ("labels", labels)]))
        show("", f"Wrote {out}")
