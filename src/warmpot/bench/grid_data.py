"""Reading the tasks of a grid's data sets, with their target labels apart."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warmpot.bench.grid_entries import ARROW, DataSet
from warmpot.data import Table, Task, Truth, as_table, digits_task, load_table, make_task
from warmpot.data.benchmarks import benchmark_task
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train.images import ImageSettings

__all__ = ["GridData"]

SIDE = 16
"""Width and height of a digit in pixels: the size of USPS, so that only MNIST is resized."""
MARGIN = 4
"""Width of the empty border around MNIST's digits; USPS has none."""


class GridData:
    """Reads tasks below one folder; keeps the last task, and digests of files that did not change.

    Parameters
    ----------
    folder : path
        The folder that the paths of the data sets start from.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._last: dict[Any, tuple[Task, Truth]] = {}  # at most one: consecutive cells often share their task
        self._digests: dict[tuple[Path, int, int], str] = {}

    def load(self, data: DataSet, task: str, seed: int, images: ImageSettings | None = None) -> tuple[Task, Truth]:
        """Read a task and its target labels.

        Parameters
        ----------
        data : DataSet
        task : str
            One of its tasks.
        seed : int
            Seed of drawn samples; most data sets draw none.
        images : ImageSettings, optional
            How images become features.
        """
        written = [path.stat().st_mtime_ns for path in self.paths(data, task) if path.is_file()]
        key = data, task, seed if data.drawn else None, repr(images), tuple(written)
        if key not in self._last:
            self._last.clear()  # before reading: two tasks of the size of ImageNet do not fit into memory
            adaptation, truth = make_task(*self._tables(data, task, seed, images))
            if truth is None or adaptation.for_regression:
                got = "no labels" if truth is None else "continuous targets"
                remedy = "Add class labels: a grid needs them for evaluation."
                raise InputError(f"target of {data.name}", got=got, allowed="class labels", remedy=remedy)
            self._last[key] = adaptation, truth
        return self._last[key]

    def paths(self, data: DataSet, task: str) -> list[Path]:
        """List the files and folders that a task is read from."""
        if data.built_in:
            return []
        if data.images:
            return [self._image_root(data)]
        if data.source:
            return [self.folder / data.source, self.folder / data.target]
        return [self._domain_file(data.features or data.digits, domain) for domain in task.split(ARROW)]

    def content(self, data: DataSet, task: str) -> str:
        """Return 16 hexadecimal digits that identify the content of a task's files.

        File names do not identify data: another folder, or features extracted again, may hold other numbers. The result
        is empty for a task without files, with missing files, or with a folder of images, which is too large to read.
        """
        files = self.paths(data, task)
        if not files or not all(file.is_file() for file in files):
            return ""
        try:
            digests = "".join(map(self._digest, files))
        except OSError:  # unreadable: the training reports it
            return ""
        return hashlib.sha256(digests.encode()).hexdigest()[:16]

    def _digest(self, file: Path) -> str:
        stat = file.stat()
        key = file.resolve(), stat.st_size, stat.st_mtime_ns
        if key not in self._digests:
            digest = hashlib.sha256()
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _image_root(self, data: DataSet) -> Path:
        root = self.folder / (data.root or data.images)
        return root if data.root or root.is_dir() else self.folder

    def _domain_file(self, pattern: str, domain: str) -> Path:
        return self.folder / pattern.format(domain=domain.replace(" ", ""))

    def _tables(self, data: DataSet, task: str, seed: int, images: ImageSettings | None) -> tuple[Table, Table]:
        if data.built_in:
            return digits_task(n_source=data.built_in, seed=seed)
        if data.images:
            return self._read_images(data, task, images)
        if data.digits:
            return self._draw_digits(data, task, seed)
        label = data.label if data.source else None
        source, target = (load_table(file, label=label) for file in self.paths(data, task))
        return source, _restrict_classes(target, data)

    def _draw_digits(self, data: DataSet, task: str, seed: int) -> tuple[Table, Table]:
        """Draw digits of both domains; in the target, only those of the shared classes."""
        rng, tables = np.random.default_rng(seed), []
        for side, (domain, file) in enumerate(zip(task.split(ARROW), self.paths(data, task), strict=True)):
            try:
                with np.load(file) as arrays:
                    x, y = arrays["X"], arrays["y"]
            except (OSError, ValueError, KeyError) as error:
                got = getattr(error, "strerror", None) or str(error)
                remedy = "Give the folder of the data with --data."
                raise InputError(str(file), got=got, allowed="a .npz with X and y", remedy=remedy) from error
            shared = np.isin(y.astype(str), data.classes) if side and data.classes else np.ones(len(y), dtype=bool)
            rows = rng.permutation(np.flatnonzero(shared))[: data.samples]
            tables.append(as_table(_resize_digits(x[rows]), y[rows], name=domain))
        return tables[0], tables[1]

    def _read_images(self, data: DataSet, task: str, images: ImageSettings | None) -> tuple[Table, Table]:
        from warmpot.train.images import ImageSettings, prepare

        settings = images or ImageSettings()
        source, target = task.split(ARROW)
        tables = benchmark_task(data.images, self._image_root(data), source, target, view=settings.view)
        prepared = prepare(*tables, settings=settings, corrupt="skip", progress_bar=False)
        return prepared[0], prepared[1]


def _restrict_classes(target: Table, data: DataSet) -> Table:
    """Keep the classes that the target of a partial task has."""
    if not data.classes or target.y is None:
        return target
    if missing := sorted(set(data.classes) - set(target.classes)):
        remedy = "Correct the classes of the data set."
        raise InputError(f"classes of {data.name}", got=missing[0], allowed=f"those of {target.name}", remedy=remedy)
    keep = np.isin(np.array(target.classes)[target.y.astype(np.int64)], data.classes)
    return as_table(np.asarray(target.x)[keep], target.y[keep], classes=target.classes, name=target.name)


def _resize_digits(images: NDArray[Any]) -> NDArray[Any]:
    """Bring digits to 16 x 16 pixels in [0, 1]; MNIST's border is cut off."""
    from PIL import Image

    if images.shape[1] != SIDE:
        inner = slice(MARGIN, images.shape[1] - MARGIN)
        size = SIDE, SIDE
        small = [Image.fromarray(image[inner, inner]).resize(size, Image.Resampling.BILINEAR) for image in images]
        images = np.stack([np.asarray(image) for image in small])
    return images.reshape(len(images), -1).astype(np.float32) / 255.0
