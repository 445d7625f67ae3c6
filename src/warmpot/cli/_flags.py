"""The flags that several commands share, each declared once. Commands use them as ``label: _flags.LABEL = None``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

TRAINING, COLUMNS, IMAGES, HARDWARE = "Method and settings", "Columns of tables", "Images", "Processes and devices"
"""Panels of the help; other flags are in the panel Options."""
training = partial(Option, rich_help_panel=TRAINING)
_column = partial(Option, rich_help_panel=COLUMNS)
_image = partial(Option, rich_help_panel=IMAGES)
_hardware = partial(Option, rich_help_panel=HARDWARE)

SOURCE_OPTION = Annotated[Path | None, Option("--source", "-s", hidden=True)]
TARGET_OPTION = Annotated[Path | None, Option("--target", "-t", hidden=True)]
"""SOURCE and TARGET as they were given before they were arguments."""
RUN = Annotated[Path, Argument(metavar="RUN", help="Folder written by `warmpot fit`.")]
MOVED_SOURCE = Annotated[Path | None, Argument(metavar="SOURCE", help="Source data, if it has moved.")]
MOVED_TARGET = Annotated[Path | None, Argument(metavar="TARGET", help="Target data, if it has moved.")]
QUIET = Annotated[bool, Option("--quiet", "-q", help="Print errors only.")]
NO_REPORT = Annotated[bool, Option("--no-report", help="Do not write report.html.")]
OPEN = Annotated[bool, Option("--open", help="Open the report in a browser.")]

LABEL = Annotated[
    str | None,
    _column(metavar="COLUMN", help="Labels, or key of a .npz file. [default: y, label, class or target]"),
]
RUN_LABEL = Annotated[
    str | None, _column("--label", metavar="COLUMN", help="Labels, or key of a .npz file. [default: the run's]")
]
IDS = Annotated[
    str | None,
    _column("--id", metavar="COLUMN", help="Ids of the samples, or key of a .npz file. [default: path of a .npz]"),
]
FEATURES = Annotated[
    list[str] | None, _column("--feature", metavar="COLUMN", help="A feature, although it looks like an id.")
]
REGRESSION = Annotated[bool, _column("--regression", help="The labels are continuous targets.")]

SETTING = "A setting, e.g. minibatch.steps=100; can be repeated."
SETTINGS = Annotated[list[str] | None, training("--set", metavar="NAME=VALUE", help=SETTING)]

# Hardware of the mini-batch engine
DEVICES = Annotated[int | None, _hardware(help="Processes or GPUs per machine, for mini-batch training.")]
NUM_NODES = Annotated[int | None, _hardware(help="Number of machines.")]
ACCELERATOR = Annotated[str | None, _hardware(metavar="NAME", help="auto, cpu or cuda.")]
STRATEGY = Annotated[str | None, _hardware(metavar="NAME", help="auto, ddp, fsdp ...")]
PRECISION = Annotated[str | None, _hardware(metavar="NAME", help="32-true, bf16-mixed ...")]

# Commands that train many times
JOBS = Annotated[
    int | None, _hardware("--jobs", "-j", help="Trainings at a time. [default: 1, with Ray one per available CPU]")
]
RAY_ADDRESS = Annotated[
    str | None, _hardware(metavar="ADDRESS", help="Train on Ray: local starts one here, auto or host:port join one.")
]
GPUS = Annotated[float, _hardware(help="GPUs that Ray gives to each training; 0.5 trains two on one.")]

# Images
NETWORK = "Network for images: a timm model, or resnet50_v1."
NETWORK_WEIGHTS = "Weights of the network: a .safetensors or .pth file, or pretrained (downloaded by timm)."
TUNING = "Train the network, or extract features once and train on those. [default: --frozen without a GPU]"
CACHING = "Store the outputs of the frozen blocks on disk and train from them; no augmentation."
BLOCK = "Fine-tune this and all later blocks, e.g. layer4 of a ResNet; `warmpot doctor` lists them."
BACKBONE = Annotated[str | None, _image(metavar="NAME", help=f"{NETWORK} [default: resnet50.tv_in1k]")]
BACKBONE_WEIGHTS = Annotated[str | None, _image(metavar="FILE", help=f"{NETWORK_WEIGHTS} [default: pretrained]")]
FINE_TUNE = Annotated[bool | None, _image("--fine-tune/--frozen", help=TUNING)]
TRAIN_FROM = Annotated[str | None, _image(metavar="BLOCK", help=BLOCK)]
CACHE = Annotated[bool, _image("--cache", help=CACHING)]
ROOT = Annotated[Path | None, _image(help="Folder that the paths in a list of images are relative to.")]
CLASSES = Annotated[Path | None, _image(help="File with one class name per line, for lists whose labels are numbers.")]
CORRUPT_FILES = Annotated[str, _image("--corrupt", metavar="raise|skip", help="What to do with broken images.")]
WORKERS = Annotated[int | None, _image("--workers", help="Processes that decode images. [default: spare cores]")]
