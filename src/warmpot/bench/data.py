"""The tasks of a grid's data sets, and apart from them the truth."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warmpot.bench.entries import ARROW, DataSet
from warmpot.data import Table, Task, Truth, as_table, digits_task, load_table, make_task
from warmpot.data.benchmarks import benchmark_task
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train.images import ImageSettings

__all__ = ["content", "load", "places"]

SIDE = 16
"""Pixels of a digit, either way: what USPS has."""
MARGIN = 4
"""Pixels around MNIST's digits; USPS has none."""

_last: dict[Any, tuple[Task, Truth]] = {}
"""The task that this process read last: cells of one task follow each other."""


def load(
    data: DataSet, task: str, seed: int, folder: Path | str, images: ImageSettings | None = None
) -> tuple[Task, Truth]:
    """Read a task and its truth.

    Parameters
    ----------
    data : DataSet
    task : str
        One of its tasks.
    seed : int
        Of what is drawn; nothing is, of most data sets.
    folder : path
        What the paths of `data` start from.
    images : ImageSettings, optional
        How images become features.
    """
    written = [place.stat().st_mtime_ns for place in places(data, task, Path(folder)) if place.is_file()]
    key = data, task, seed if data.drawn else None, str(folder), repr(images), tuple(written)
    if key not in _last:
        _last.clear()  # first: two of ImageNet would not fit
        source, target = _tables(data, task, seed, Path(folder), images)
        found, truth = make_task(source, target)
        if truth is None or found.for_regression:
            got = "no labels" if truth is None else "real labels"
            remedy = "They only evaluate: a bench needs them."
            raise InputError(f"target of {data.name}", got=got, allowed="labels of classes", remedy=remedy)
        _last[key] = found, truth
    return _last[key]


def _tables(data: DataSet, task: str, seed: int, folder: Path, images: ImageSettings | None) -> tuple[Table, Table]:
    if data.built_in:
        return digits_task(n_source=data.built_in, seed=seed)
    if data.images:
        return _of_images(data, task, folder, images)
    if data.digits:
        return _drawn(data, task, seed, folder)
    if data.source:
        source, target = (load_table(folder / file, label=data.label) for file in (data.source, data.target))
    else:
        source, target = (load_table(_place(folder, data.features, domain)) for domain in task.split(ARROW))
    return source, _restricted(target, data)


def places(data: DataSet, task: str, folder: Path) -> list[Path]:
    """List the files and folders that a task is read from."""
    if data.built_in:
        return []
    if data.images:
        return [_root(data, folder)]
    if data.source:
        return [folder / data.source, folder / data.target]
    return [_place(folder, data.features or data.digits, domain) for domain in task.split(ARROW)]


def content(data: DataSet, task: str, folder: Path) -> str:
    """Return 16 hexadecimal digits of what is in the files of a task; "" when it has none, or they are not here.

    Names do not tell data apart: that of another folder, or features that were made anew, are other data. Folders of
    images are not looked into, they are too large.
    """
    files = places(data, task, folder)
    if not files or not all(file.is_file() for file in files):
        return ""
    try:
        stats = [(file, file.stat()) for file in files]
        told = "".join(_digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns) for file, stat in stats)
    except OSError:  # not for us to read: the training will say so
        return ""
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@cache
def _digest(file: str, _size: int, _written: int) -> str:
    """Digest a file; one that changes meanwhile has another size or time."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _root(data: DataSet, folder: Path) -> Path:
    own = folder / (data.root or data.images)
    return own if data.root or own.is_dir() else folder


def _place(folder: Path, pattern: str, domain: str) -> Path:
    return folder / pattern.format(domain=domain.replace(" ", ""))


def _restricted(target: Table, data: DataSet) -> Table:
    """Keep the classes that the target of a partial task has."""
    if not data.classes or target.y is None:
        return target
    if missing := sorted(set(data.classes) - set(target.classes)):
        remedy = "Correct the classes of the data set."
        raise InputError(f"classes of {data.name}", got=missing[0], allowed=f"those of {target.name}", remedy=remedy)
    keep = np.isin(np.array(target.classes)[target.y.astype(np.int64)], data.classes)
    return as_table(np.asarray(target.x)[keep], target.y[keep], classes=target.classes, name=target.name)


def _drawn(data: DataSet, task: str, seed: int, folder: Path) -> tuple[Table, Table]:
    """Draw digits of both domains; of the target those of the shared classes."""
    rng, tables = np.random.default_rng(seed), []
    for side, domain in enumerate(task.split(ARROW)):
        file = _place(folder, data.digits, domain)
        try:
            with np.load(file) as found:
                x, y = found["X"], found["y"]
        except (OSError, ValueError, KeyError) as error:
            got = getattr(error, "strerror", None) or str(error)
            remedy = "Name the folder of the data with --data."
            raise InputError(str(file), got=got, allowed="a .npz with X and y", remedy=remedy) from error
        named = y.astype(str)
        rows = np.flatnonzero(np.isin(named, data.classes)) if side and data.classes else np.arange(len(y))
        rows = rng.permutation(rows)[: data.samples]
        tables.append(as_table(_sixteen(x[rows]), y[rows], name=domain))
    return tables[0], tables[1]


def _sixteen(images: NDArray[Any]) -> NDArray[Any]:
    """Bring digits to 16 x 16 pixels in [0, 1]: MNIST's margin is cut off."""
    from PIL import Image

    if images.shape[1] != SIDE:
        inner = slice(MARGIN, images.shape[1] - MARGIN)
        size = SIDE, SIDE
        small = [Image.fromarray(image[inner, inner]).resize(size, Image.Resampling.BILINEAR) for image in images]
        images = np.stack([np.asarray(image) for image in small])
    return images.reshape(len(images), -1).astype(np.float32) / 255.0


def _of_images(data: DataSet, task: str, folder: Path, images: ImageSettings | None) -> tuple[Table, Table]:
    from warmpot.train.images import ImageSettings, prepare

    settings = images or ImageSettings()
    source, target = task.split(ARROW)
    tables = benchmark_task(data.images, _root(data, folder), source, target, view=settings.view)
    ready = prepare(*tables, settings=settings, corrupt="skip", progress_bar=False)
    return ready[0], ready[1]
