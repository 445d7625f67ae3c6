"""Extraction: a frozen network applied once to every image of a domain, with its outputs stored on disk."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from warmpot._checks import check_choice, check_count
from warmpot._progress import ProgressCallback, progress
from warmpot.data.pixels import Pixels
from warmpot.data.shards import DTYPES, ShardLayout, ShardWriter, read_shards
from warmpot.data.table import LazyRows, Table
from warmpot.data.workers import map_in_workers
from warmpot.errors import InputError, WarmpotWarning, listing

__all__ = ["CORRUPT", "extract", "report_corrupt", "weights_fingerprint"]

logger = logging.getLogger(__name__)

CORRUPT = ("raise", "skip")
MAX_ROWS, MAX_BYTES, ROWS_MULTIPLE = 256, 2**26, 32
"""Largest number of rows and of bytes per shard; the number of rows is a multiple of the last one, where possible."""

Batch = tuple[int, list[int]]
"""Number of a shard, and some of its samples."""
Decoded = tuple[Tensor, dict[int, str]]
"""Pixels of the images that could be decoded, in all their views, and the errors of the other rows."""


def extract(
    table: Table, module: nn.Module, out: str | PathLike[str], *, made_from: Mapping[str, Any], batch: int = 64,
    workers: int = 0, dtype: str = "float32", device: str | torch.device = "cpu", corrupt: str = "raise",
    part: tuple[int, int] = (0, 1), progress_bar: bool | None = None, views: int = 1,
) -> Table | None:  # fmt: skip
    """Apply `module` to every image, and store the outputs in a folder of shards.

    A call that is stopped loses the shard it was working on; the same call then computes only what is missing. Several
    processes or machines may fill one folder together, each with its `part`.

    Parameters
    ----------
    table : Table
        Its `x` are images (`Pixels`); its names, labels and classes are kept.
    module : nn.Module
        Maps uint8 images (n, 3, height, width) to one row of numbers per image. Used in evaluation mode.
    out : str or path
        Folder: new, or begun by a call with the same images, weights and `made_from`.
    made_from : mapping
        What else determines the outputs, such as the name of the network; stored in ``shards.json`` and compared.
    batch, workers : int
        Images at a time, and processes that decode (0: this one does).
    dtype, device
        "float32" or "float16", of the numbers on disk; where `module` runs, and stays.
    corrupt : {"raise", "skip"}
        What to do about a file that is not an image: raise an `InputError` that names it, or skip it with a warning.
    part : (int, int)
        ``(k, n)``: compute shards ``k, k + n, k + 2 n, ...`` only.
    views : int
        Views of every image whose outputs are averaged: its test view, and random ones (`Pixels.augmented`), which are
        the same in every call.

    Returns
    -------
    Table or None
        The rows, to be read on demand, with names and labels; None as long as shards of other parts are missing.
    """
    check_choice("dtype", dtype, DTYPES)
    check_choice("corrupt", corrupt, CORRUPT)
    batch, workers, views = check_count("batch", batch), check_count("workers", workers, 0), check_count("views", views)
    first, step = _checked_part(part)
    x, out = table.x, Path(out)
    if not isinstance(x, LazyRows) or x.dtype != np.uint8:
        remedy = "Read it by load_images or images_from_dataset."
        raise InputError(table.name, got=f"{x.dtype} numbers", allowed="a table of images", remedy=remedy)
    if views > 1 and not (isinstance(x, Pixels) and x.view.augment):
        got, remedy = f"{views}, and images without random ones", "Read them with `augment=True` in their view."
        raise InputError("views", got=got, allowed="1", remedy=remedy)
    made_from = {**made_from, "images": x.fingerprint(), "weights": weights_fingerprint(module)}
    if views > 1:  # absent otherwise, as in folders of earlier versions
        made_from["views"] = views
    with _Runner(module, torch.device(device), dtype) as runner:
        row = runner.row_shape(x.shape[1:])
        layout = ShardLayout(table.n, row, dtype, _rows_per_shard(row, dtype), table.classes, made_from)
        writer = ShardWriter(out, layout)
        missing = [(k, layout.samples_of(k)) for k in range(first, layout.n_shards, step) if not writer.has(k)]
        size = max(batch // views, 1)
        batches = [(k, list(rows[at : at + size])) for k, rows in missing for at in range(0, len(rows), size)]
        # Closing the generator ends its workers before an error is raised.
        with (
            progress("extract", logger, progress_bar) as report,
            closing(_decode(x, batches, workers, views)) as decoded,
        ):
            _write_shards(writer, table, batches, decoded, runner, corrupt, report)
    complete = sum(map(writer.has, range(layout.n_shards)))
    if complete < layout.n_shards:
        text = "%s: part %d/%d is done, %d of %d shards are complete; the last part finishes the folder"
        logger.info(text, out, first, step, complete, layout.n_shards)
        return None
    report_corrupt(writer.bad(), table, corrupt)  # another call may have skipped them
    writer.finish(table)  # again, because labels may have been corrected since
    return read_shards(out, task="regression" if table.for_regression else "classification")


def _write_shards(
    writer: ShardWriter, table: Table, batches: Sequence[Batch], decoded: Iterator[Decoded], runner: _Runner,
    corrupt: str, report: ProgressCallback,
) -> None:  # fmt: skip
    """Compute and write shards; every batch belongs to a single shard."""
    layout, start, done = writer.layout, time.monotonic(), 0
    total = sum(len(rows) for _, rows in batches)
    values: list[NDArray[Any]] = []
    readable: list[int] = []
    bad: dict[int, str] = {}
    for (k, rows), (pixels, errors) in zip(batches, decoded, strict=True):
        if errors and corrupt == "raise":
            raise InputError(next(iter(errors.values())))
        good = [row for row in rows if row not in errors]
        names = [_image_name(table, row) for row in good]
        values.append(runner(pixels, names) if good else np.empty((0, *layout.row)))
        readable, bad = readable + good, bad | errors
        if rows[-1] == layout.samples_of(k)[-1]:
            writer.write(k, np.concatenate(values), readable, bad)
            values, readable, bad = [], [], {}
        done += len(rows)
        report(done / total, f"{done} of {total} images, {done / max(time.monotonic() - start, 1e-9):.1f} images/s")
    if total < layout.n:
        text = "%s: %d of %d images are done already, or belong to other parts"
        logger.info(text, writer.folder, layout.n - total, layout.n)
    if done:
        seconds = max(time.monotonic() - start, 1e-9)
        text = "%s: %d images in %.1f s, %.1f images/s -> %s"
        logger.info(text, table.name, done, seconds, done / seconds, writer.folder)


def _image_name(table: Table, row: int) -> str:
    return table.names[row] if table.names else f"image {row}"


class _Runner:
    """Runs a module in evaluation mode on its device, from images to checked rows; restores its mode afterwards."""

    def __init__(self, module: nn.Module, device: torch.device, dtype: str) -> None:
        self.module, self.device, self.dtype = module.to(device), device, getattr(torch, dtype)
        self._modes = [(part, part.training) for part in module.modules()]

    def __enter__(self) -> _Runner:
        self.module.eval()
        return self

    def __exit__(self, *_: object) -> None:
        for part, mode in self._modes:
            part.training = mode

    def row_shape(self, image: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of a row, found by applying the module to a black image."""
        shape = tuple(self._apply(torch.zeros((1, *image), dtype=torch.uint8)).shape)
        if len(shape) < 2 or shape[0] != 1 or 0 in shape:
            remedy = "Flatten or pool in the module."
            raise InputError("module", got=f"shape {shape}", allowed="(1, numbers, ...)", remedy=remedy)
        return shape[1:]

    def __call__(self, pixels: Tensor, names: Sequence[str]) -> NDArray[Any]:
        outputs = self._apply(pixels.flatten(0, 1))
        raw = outputs.reshape(*pixels.shape[:2], *outputs.shape[1:]).mean(dim=1)
        rows = raw.to(self.dtype).cpu()
        finite = torch.isfinite(rows).reshape(len(rows), -1).all(1)
        if not finite.all():
            which = int(finite.int().argmin())
            overflow = bool(torch.isfinite(raw[which]).all())
            problem = f"numbers too large for {str(rows.dtype)[6:]}" if overflow else "NaN or infinity"
            remedy = "Ask for dtype float32." if overflow else "Check the weights."
            got = f"{problem} for {names[which]}"
            raise InputError("outputs of the network", got=got, allowed="finite numbers", remedy=remedy)
        return rows.numpy()

    @torch.no_grad()
    def _apply(self, pixels: Tensor) -> Tensor:
        if self.device.type == "cuda":
            pixels = pixels.pin_memory()  # so that the copy does not block
        outputs: Tensor = self.module(pixels.to(self.device, non_blocking=True))
        return outputs.float()


def _decode(x: LazyRows, batches: Sequence[Batch], workers: int, views: int) -> Generator[Decoded, None, None]:
    yield from map_in_workers(partial(_decode_batch, x, views), batches, min(workers, len(batches)))


def _decode_batch(x: LazyRows, views: int, batch: Batch) -> Decoded:
    """Return the pixels of the images of a batch that can be decoded, and the errors of the others."""
    _, rows = batch
    try:
        return torch.from_numpy(_views(x, rows, views)), {}
    except InputError:  # find the broken images by decoding each alone
        images, errors = [np.empty((0, views, *x.shape[1:]), dtype=np.uint8)], {}
    for row in rows:
        try:
            images.append(_views(x, [row], views))
        except InputError as error:  # noqa: PERF203
            errors[row] = str(error)
    return torch.from_numpy(np.concatenate(images)), errors


def _views(x: LazyRows, rows: list[int], views: int) -> NDArray[np.uint8]:
    """Return views of some images, (images, views, 3, height, width); the first is the test view."""
    random = (x.augmented(rows, rows, seed=k) for k in range(1, views)) if isinstance(x, Pixels) else ()
    return np.stack([x[rows], *random], axis=1)


def _checked_part(part: tuple[int, int]) -> tuple[int, int]:
    try:
        k, n = part
    except (TypeError, ValueError):
        k, n = -1, -1
    if not (isinstance(k, int) and isinstance(n, int) and 0 <= k < n):
        remedy = "Count parts from 0: (0, 2) and (1, 2) are the two halves."
        raise InputError("part", got=repr(part), allowed="(k, n) with 0 <= k < n", remedy=remedy)
    return k, n


def _rows_per_shard(row: tuple[int, ...], dtype: str) -> int:
    most = min(MAX_ROWS, MAX_BYTES // (int(np.prod(row)) * np.dtype(dtype).itemsize))
    return max(most // ROWS_MULTIPLE * ROWS_MULTIPLE, min(most, ROWS_MULTIPLE), 1)


def weights_fingerprint(module: nn.Module) -> str:
    """Return a short hash of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def report_corrupt(bad: Mapping[int, str], table: Table, corrupt: str) -> None:
    """Name files that are not images: in an error or, when they are to be skipped, in a warning."""
    if bad and corrupt == "raise":
        (row, reason), *others = bad.items()
        got = f"{_image_name(table, row)}: {reason}" + (f" (and {len(others)} more)" if others else "")
        raise InputError(table.name, got=got, allowed="images", remedy="Repair it, or pass --corrupt skip.")
    if bad and len(bad) == table.n:
        got, remedy = f"no readable image ({next(iter(bad.values()))})", "Check the folder."
        raise InputError(table.name, got=got, allowed="images", remedy=remedy)
    if bad:
        names = listing(_image_name(table, row) for row in bad)
        got, remedy = f"{len(bad)} of {table.n} files that are not images: {names}", "They are left out."
        warnings.warn(WarmpotWarning(table.name, got=got, allowed="images", remedy=remedy), stacklevel=3)
