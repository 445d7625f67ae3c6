"""The flags that several commands share, each declared once. Commands use them as ``label: _flags.LABEL = None``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

RUN = Annotated[Path, Argument(metavar="RUN", help="Folder written by `warmpot fit`.")]
MOVED_SOURCE = Annotated[Path | None, Argument(metavar="SOURCE", help="Source data, if it has moved.")]
MOVED_TARGET = Annotated[Path | None, Argument(metavar="TARGET", help="Target data, if it has moved.")]
CSV_FILE = Annotated[Path, Option("--out", "-o", help="CSV file to write; an existing file is replaced.")]
QUIET = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
NO_REPORT = Annotated[bool, Option("--no-report", help="Do not write report.html.")]
LABEL = Annotated[str | None, Option(help="Label column, or key of a .npz file. [default: y, label, class or target]")]
RUN_LABEL = Annotated[str | None, Option("--label", help="Label column, or key of a .npz file. [default: the run's]")]
IDS = Annotated[
    str | None, Option("--id", metavar="COLUMN", help="Column, or key of a .npz file, with the ids of the samples.")
]
FEATURES = Annotated[
    list[str] | None,
    Option("--feature", metavar="COLUMN", help="Column that looks like an id but is a feature."),
]
REGRESSION = Annotated[bool, Option("--regression", help="The labels are continuous targets.")]
SETTING = "A setting, e.g. minibatch.steps=100."
SETTINGS = Annotated[list[str] | None, Option("--set", metavar="NAME=VALUE", help=SETTING)]

# Hardware of the mini-batch engine
DEVICES = Annotated[int | None, Option(help="Processes or GPUs per machine, for mini-batch training.")]
NUM_NODES = Annotated[int | None, Option(help="Number of machines.")]
ACCELERATOR = Annotated[str | None, Option(help="auto, cpu or cuda.")]
STRATEGY = Annotated[str | None, Option(help="auto, ddp, fsdp ...")]
PRECISION = Annotated[str | None, Option(help="32-true, bf16-mixed ...")]

# Images
NETWORK = "Network for images: a timm model, or resnet50_v1."
NETWORK_WEIGHTS = "Weights of the network: a .safetensors or .pth file, or pretrained (downloaded by timm)."
TUNING = "Train the network, or extract features once and train on those. [default: --frozen without a GPU]"
CACHING = "Store the outputs of the frozen blocks on disk and train from them; no augmentation."
BACKBONE = Annotated[str | None, Option(metavar="NAME", help=f"{NETWORK} [default: resnet50.tv_in1k]")]
BACKBONE_WEIGHTS = Annotated[str | None, Option(metavar="FILE", help=f"{NETWORK_WEIGHTS} [default: pretrained]")]
FINE_TUNE = Annotated[bool | None, Option("--fine-tune/--frozen", help=TUNING)]
TRAIN_FROM = Annotated[str | None, Option(metavar="BLOCK", help="Fine-tune this and all later blocks, e.g. layer4.")]
CACHE = Annotated[bool, Option("--cache", help=CACHING)]
ROOT = Annotated[Path | None, Option(help="Folder that the paths in a list of images are relative to.")]
CLASSES = Annotated[Path | None, Option(help="File with one class name per line, for lists whose labels are numbers.")]
CORRUPT_FILES = Annotated[str, Option("--corrupt", metavar="raise|skip", help="What to do with broken images.")]
DECODERS = Annotated[int | None, Option("--workers", help="Processes that decode images. [default: spare cores]")]
