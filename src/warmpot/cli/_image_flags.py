"""Flags of images that several verbs share, and what they mean for a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot.cli._shared import complain
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.cli._data_files import DataFiles

__all__ = [
    "BACKBONE",
    "BACKBONE_WEIGHTS",
    "CACHE",
    "CLASSES",
    "CORRUPT_FILES",
    "FINE_TUNE",
    "IMAGES",
    "ROOT",
    "TRAIN_FROM",
    "WORKERS",
    "image_choices",
]

IMAGES = "Images"

BACKBONE = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A network of timm. [default: resnet50.tv_in1k]", rich_help_panel=IMAGES),
]
BACKBONE_WEIGHTS = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Its weights: .safetensors or .pth; pretrained downloads them. [default: pretrained]",
        rich_help_panel=IMAGES,
    ),
]  # fmt: skip
FINE_TUNE = Annotated[
    bool | None,
    typer.Option(
        "--fine-tune/--frozen",
        help="Train the backbone, or extract once and train on features. [default: --frozen without a GPU]",
        rich_help_panel=IMAGES,
    ),
]
TRAIN_FROM = Annotated[
    str | None,
    typer.Option(metavar="BLOCK", help="Fine-tune from this block on, as layer4.", rich_help_panel=IMAGES),
]
CACHE = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Train from what the frozen part says, kept on disk; no augmentation.",
        rich_help_panel=IMAGES,
    ),
]
ROOT = Annotated[Path | None, typer.Option(help="Folder that the paths in a list start from.", rich_help_panel=IMAGES)]
CLASSES = Annotated[
    Path | None,
    typer.Option(help="File of class names, one a line, that numbers in a list mean.", rich_help_panel=IMAGES),
]
CORRUPT_FILES = Annotated[
    str, typer.Option("--corrupt", metavar="WHAT", help="raise or skip images that are broken.", rich_help_panel=IMAGES)
]
WORKERS = Annotated[
    int | None, typer.Option(help="Processes that decode images. [default: spare cores]", rich_help_panel=IMAGES)
]


def image_choices(
    data: DataFiles, changes: dict[str, Any], file: Path | None, fine_tune: bool | None, wanted: bool
) -> tuple[dict[str, Any], bool]:
    """Settle whether the backbone is trained; return the changes with that, and whether it is.

    Without a GPU the default is not to: features are extracted once, which takes minutes in place of days.
    """
    from warmpot._settings import merged, with_value
    from warmpot.train.recipes import read_yaml

    if not data.of_images:
        if "images" in changes or fine_tune is not None:
            got, remedy = "settings of images for tables", "Leave them out, or name folders of images."
            raise InputError("SOURCE TARGET", got=got, allowed="folders or lists of images", remedy=remedy)
        return changes, False
    written = read_yaml(file).get("images") or {} if file is not None else {}
    named = merged(written, changes.get("images", {})).get("backbone", {}).get("train_from")
    if fine_tune is False and named is not None:
        got, remedy = f"--frozen with {named!r} to be trained", "Leave one of the two out."
        raise InputError("--train-from", got=got, allowed="no block", remedy=remedy)
    import torch

    gpu = torch.cuda.is_available()
    tuned = named is not None or (gpu if fine_tune is None else fine_tune)
    if tuned and named is None:
        changes = merged(changes, with_value("images.backbone.train_from", "all"))
    if wanted and not tuned and fine_tune is None:
        complain("no GPU here: features are extracted once, the backbone stays as it is; --fine-tune trains it", "dim")
    if wanted and tuned and named is None and not gpu:
        text = "no GPU here: training the whole backbone is slow; --train-from layer4 --cache trains its last block"
        complain(f"{text} from what is kept on disk", "yellow")
    return merged({"images": {}}, changes), tuned
