"""Extraction: a frozen network applied once to every image of a domain, its outputs kept on disk."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from warmpot._checks import check_choice, check_count
from warmpot._progress import ProgressCallback, progress
from warmpot._typing import IntArray
from warmpot.data.lazy import LazyRows
from warmpot.data.pixels import in_workers
from warmpot.data.shards import DTYPES, Layout, ShardsFolder, read_shards
from warmpot.data.table import Table
from warmpot.errors import InputError, WarmpotWarning, listing

__all__ = ["CORRUPT", "extract", "stamp_of", "tell_of_bad"]

logger = logging.getLogger(__name__)

CORRUPT = ("raise", "skip")
MOST_ROWS, MOST_BYTES, STEP = 256, 2**26, 32
"""A shard's largest number of rows and of bytes, and what its number of rows is a multiple of, if it can be."""


def extract(
    table: Table,
    module: nn.Module,
    out: str | PathLike[str],
    *,
    ask: Mapping[str, Any],
    batch: int = 64,
    workers: int = 0,
    dtype: str = "float32",
    device: str | torch.device = "cpu",
    corrupt: str = "raise",
    part: tuple[int, int] = (0, 1),
    progress_bar: bool | None = None,
) -> Table | None:
    """Apply `module` to the test view of every image, and keep the outputs in a folder of shards.

    A call that is stopped loses the shard it was at; the same call does only what is missing. Several processes or
    machines may fill one folder together, each with its `part`.

    Parameters
    ----------
    table : Table
        Its `x` are images (`Pixels`); its names, labels and classes are kept.
    module : nn.Module
        Takes uint8 images (n, 3, height, width), gives one row of numbers an image. Used in evaluation mode.
    out : str or path
        Folder: new, or one that a call with the same images, weights and `ask` began.
    ask : mapping
        What else decides the outputs, such as the name of the network; kept in ``shards.json``, and compared.
    batch : int
        Images at a time.
    workers : int
        Processes that decode; 0: this one does.
    dtype : {"float32", "float16"}
        Of the numbers on disk.
    device : str or torch.device
        Where `module` runs; it stays there.
    corrupt : {"raise", "skip"}
        What to do about a file that is no image: stop with an `InputError` that names it, or leave it out and say so.
    part : (int, int)
        ``(k, n)``: make shards ``k, k + n, k + 2 n, ...`` only.
    progress_bar : bool or None
        As for `progress`.

    Returns
    -------
    Table or None
        The rows, unread, with names and labels; None as long as shards of other parts are missing.

    Raises
    ------
    InputError
        For a corrupt file, a folder that holds something else, outputs that are no rows of finite numbers.
    """
    check_choice("dtype", dtype, DTYPES)
    check_choice("corrupt", corrupt, CORRUPT)
    batch, workers = check_count("batch", batch), check_count("workers", workers, 0)
    turn, parts = _checked_part(part)
    x, out = table.x, Path(out)
    if not isinstance(x, LazyRows) or x.dtype != np.uint8:
        remedy = "Read it by load_images or images_from_dataset."
        raise InputError(table.name, got=f"{x.dtype} numbers", allowed="a table of images", remedy=remedy)
    runner = _Runner(module, torch.device(device), dtype)
    said = {**ask, "images": x.fingerprint(), "weights": stamp_of(module)}
    with runner:
        row = runner.row_shape(x.shape[1:])
        folder = ShardsFolder(out, Layout(table.n, row, dtype, _per_shard(row, dtype), table.classes, said))
        todo = [k for k in range(turn, folder.layout.shards, parts) if not folder.has(k)]
        with progress("extract", logger, progress_bar) as report:
            _fill(folder, todo, _Images(table, x, batch, workers, corrupt), runner, report)
    there = sum(folder.has(k) for k in range(folder.layout.shards))
    if there < folder.layout.shards:
        text = "%s: part %d/%d is done, %d of %d shards are there; the part that is last finishes the folder"
        logger.info(text, out, turn, parts, there, folder.layout.shards)
        return None
    tell_of_bad(folder.bad(), table, corrupt)  # another call may have skipped them
    folder.finish(table)  # labels may have been corrected since
    return read_shards(out, task="regression" if table.for_regression else "classification")


@dataclass
class _Draft:
    """A shard on its way."""

    values: list[NDArray[Any]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        return len(self.rows) + len(self.bad)


def _fill(
    folder: ShardsFolder, todo: Sequence[int], images: _Images, runner: _Runner, report: ProgressCallback
) -> None:
    """Make the shards `todo`; batches may reach over their borders, so that all but the last one are full."""
    layout = folder.layout
    rows = np.concatenate([[], *(layout.span(k) for k in todo)]).astype(np.int64)
    drafts: defaultdict[int, _Draft] = defaultdict(_Draft)
    start, done = time.monotonic(), 0
    for seen, kept, pixels, bad in images.stream(rows, pin=runner.device.type == "cuda"):
        names = [images.name(row) for row in kept.tolist()]
        values = runner(pixels, names) if names else np.empty((0, *layout.row))
        for k in np.unique(seen // layout.per_shard).tolist():
            draft, here = drafts[k], kept // layout.per_shard == k
            draft.values.append(values[here])
            draft.rows += kept[here].tolist()
            draft.bad |= {row: why for row, why in bad.items() if row // layout.per_shard == k}
            if draft.seen == len(layout.span(k)):
                folder.write(k, np.concatenate(draft.values), draft.rows, draft.bad)
                del drafts[k]
        done += len(seen)
        rate = done / max(time.monotonic() - start, 1e-9)
        report(done / len(rows), f"{done} of {len(rows)} images, {rate:.1f} images/s")
    if others := layout.n - len(rows):
        logger.info("%s: %d of %d images are there, or of other parts", folder.folder, others, layout.n)
    if done:
        seconds = time.monotonic() - start
        logger.info("%s: %d images in %.1f s, %.1f images/s", folder.folder, done, seconds, done / max(seconds, 1e-9))


class _Runner:
    """A module in evaluation mode on its device, from images to checked rows; left in the mode it was found in."""

    def __init__(self, module: nn.Module, device: torch.device, dtype: str) -> None:
        self.module, self.device, self.dtype = module.to(device), device, getattr(torch, dtype)
        self._training = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> None:
        self.module.eval()

    def __exit__(self, *_: object) -> None:
        for part, mode in self._training:
            part.training = mode

    def row_shape(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a row, by trying."""
        shape = tuple(self._apply(torch.zeros((1, *image), dtype=torch.uint8)).shape)
        if len(shape) < 2 or shape[0] != 1 or 0 in shape:
            remedy = "Flatten or pool in the module."
            raise InputError("module", got=f"shape {shape}", allowed="(1, numbers, ...)", remedy=remedy)
        return shape[1:]

    def __call__(self, pixels: Tensor, names: Sequence[str]) -> NDArray[Any]:
        raw = self._apply(pixels)
        rows = raw.to(self.dtype).cpu()
        finite = torch.isfinite(rows).reshape(len(rows), -1).all(1)
        if not finite.all():
            which = int(finite.int().argmin())
            over = bool(torch.isfinite(raw[which]).all())
            got = f"{'numbers too large for ' + str(rows.dtype)[6:] if over else 'NaN or infinity'} for {names[which]}"
            remedy = "Ask for dtype float32." if over else "Check the weights."
            raise InputError("outputs of the network", got=got, allowed="finite numbers", remedy=remedy)
        return rows.numpy()

    @torch.no_grad()
    def _apply(self, pixels: Tensor) -> Tensor:
        found: Tensor = self.module(pixels.to(self.device, non_blocking=True))
        return found.float()


@dataclass(frozen=True)
class _Images:
    """The images of a table in batches, decoded by workers."""

    table: Table
    x: LazyRows
    batch: int
    workers: int
    corrupt: str

    def name(self, row: int) -> str:
        return self.table.names[row] if self.table.names else f"image {row}"

    def stream(self, rows: IntArray, pin: bool) -> Iterator[tuple[IntArray, IntArray, Tensor, dict[int, str]]]:
        """Yield, for each batch, the rows looked at, those that are images, their pixels, and why others are not."""
        batches = [rows[at : at + self.batch] for at in range(0, len(rows), self.batch)]
        results = in_workers(_Decoded(self.x), batches, min(self.workers, len(batches)))
        with closing(result for result in results) as found:  # workers end before an error goes on
            del results
            for seen, (pixels, bad) in zip(batches, found, strict=True):
                if bad and self.corrupt == "raise":
                    raise InputError(next(iter(bad.values())))
                kept = np.array([row for row in seen.tolist() if row not in bad], dtype=np.int64)
                yield seen, kept, pixels.pin_memory() if pin else pixels, bad


@dataclass(frozen=True)
class _Decoded:
    """Makes a tensor of the images of a batch, beside the reasons why some of its rows are missing."""

    x: LazyRows

    def __call__(self, rows: IntArray) -> tuple[Tensor, dict[int, str]]:
        try:
            return torch.from_numpy(self.x[rows]), {}
        except InputError:
            found = {row: self._one(row) for row in rows.tolist()}
        bad = {row: got for row, got in found.items() if isinstance(got, str)}
        good = [got for got in found.values() if not isinstance(got, str)]
        none = np.empty((0, *self.x.shape[1:]), dtype=np.uint8)
        return torch.from_numpy(np.concatenate([none, *good])), bad

    def _one(self, row: int) -> NDArray[Any] | str:
        try:
            return self.x[[row]]
        except InputError as error:
            return str(error)


def _checked_part(part: tuple[int, int]) -> tuple[int, int]:
    try:
        k, n = part
    except (TypeError, ValueError):
        k, n = -1, -1
    if not (isinstance(k, int) and isinstance(n, int) and 0 <= k < n):
        remedy = "Count parts from 0: (0, 2) and (1, 2) are the two halves."
        raise InputError("part", got=repr(part), allowed="(k, n) with 0 <= k < n", remedy=remedy)
    return k, n


def _per_shard(row: tuple[int, ...], dtype: str) -> int:
    most = min(MOST_ROWS, MOST_BYTES // (int(np.prod(row)) * np.dtype(dtype).itemsize))
    return max(most // STEP * STEP, min(most, STEP), 1)


def stamp_of(module: nn.Module) -> str:
    """Return a short hash of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def tell_of_bad(bad: Mapping[int, str], table: Table, corrupt: str) -> None:
    """Name files that are no images: in an error, or, when they are to be skipped, in a warning."""
    if bad and corrupt == "raise":
        (row, reason), *others = bad.items()
        first = f"{table.names[row] if table.names else f'image {row}'}: {reason}"
        got, remedy = first + (f" (and {len(others)} more)" if others else ""), "Repair it, or pass --corrupt skip."
        raise InputError(table.name, got=got, allowed="images", remedy=remedy)
    if bad and len(bad) == table.n:
        got, remedy = f"no image that can be read ({next(iter(bad.values()))})", "Check the folder."
        raise InputError(table.name, got=got, allowed="images", remedy=remedy)
    if bad:
        named = [table.names[row] if table.names else f"image {row}" for row in bad]
        got, remedy = f"{len(bad)} of {table.n} files that are no images: {listing(named)}", "They are left out."
        warnings.warn(WarmpotWarning(table.name, got=got, allowed="images", remedy=remedy), stacklevel=3)
