"""Samples on their way to a network: batches as a pure function of the step, and passes over all rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from warmpot._typing import IntArray
from warmpot.data import Task, make_sampler
from warmpot.data.lazy import Rows
from warmpot.data.pixels import Pixels, in_workers
from warmpot.errors import InputError
from warmpot.train.config import MinibatchSettings

__all__ = ["Batch", "Batches", "Drawn", "blocks"]

EXTRA_SEED = 1 << 40
"""Keeps the draws of further source batches apart from those of the two main ones."""
LARGEST_BATCH = 1 << 20
"""Keeps the random views of one step apart from those of the next."""

BLOCK, LAZY_BLOCK = 8192, 64
"""Rows given to a network at a time, of features and of what must be loaded: bounds the memory of a pass."""


def blocks(x: Rows, workers: int = 0) -> Iterator[Tensor]:
    """Yield all rows in order, in blocks; images as they are tested, decoded by so many processes."""
    if isinstance(x, np.ndarray):
        yield from torch.split(torch.from_numpy(x), BLOCK)
    elif isinstance(x, Pixels):
        yield from x.batches(LAZY_BLOCK, workers)
    else:
        for start in range(0, len(x), LAZY_BLOCK):
            yield _tensor(x, np.arange(start, min(start + LAZY_BLOCK, len(x))))


def _tensor(x: Rows, rows: IntArray) -> Tensor:
    found = torch.from_numpy(x[rows])
    return found if found.dtype == torch.uint8 else found.float()  # pixels stay small until they reach the device


class Drawn(NamedTuple):
    """Samples of the source: inputs, labels, and which they are."""

    x: Tensor
    labels: Tensor
    rows: Tensor

    def to(self, device: torch.device) -> Drawn:
        """Move all of it."""
        return Drawn(*(part.to(device, non_blocking=True) for part in self))


class Batch(NamedTuple):
    """What training sees of one step. There is no field for target labels."""

    source: Drawn
    target: Tensor
    target_rows: Tensor
    extra: Drawn | None

    def to(self, device: torch.device) -> Batch:
        """Move all of it."""
        target, rows = (part.to(device, non_blocking=True) for part in (self.target, self.target_rows))
        return Batch(self.source.to(device), target, rows, None if self.extra is None else self.extra.to(device))


class Batches:
    """Batches of a task: every process takes its share of the same joined batch.

    A batch, and the random view of every image in it, is a function of seed and step alone: who resumes a run, or
    decodes by more processes, gets the same.

    Parameters
    ----------
    task : Task
    settings : MinibatchSettings
    seed : int
    rank, world : int
        Which of how many processes this is.
    extra : int
        Size of the largest further source batch.
    """

    def __init__(
        self, task: Task, settings: MinibatchSettings, seed: int, *, rank: int = 0, world: int = 1, extra: int = 0
    ) -> None:
        for name in ("source_batch", "target_batch"):
            if getattr(settings, name) % world:
                got = f"{getattr(settings, name)} samples over {world} processes"
                remedy = f"Choose a multiple of {world}."
                raise InputError(f"minibatch.{name}", got=got, allowed="equal shares", remedy=remedy)
        kind = "shuffled" if task.for_regression else settings.sampler
        self._source = make_sampler(kind, settings.source_batch, 2 * seed, labels=task.ys)
        self._target = make_sampler("shuffled", settings.target_batch, 2 * seed + 1, n=task.n_target)
        self._extra = make_sampler("shuffled", extra, EXTRA_SEED + seed, n=task.n_source) if extra else None
        self._seed, self._rank, self._world = seed, rank, world
        normalises = settings.network.bottleneck == "bn_relu" or task.xs.ndim > 2  # a backbone may do so too
        self._least = (2 if normalises else 1) * world  # BatchNorm needs two
        self.xs, self.xt = task.xs, task.xt
        self.ys = torch.as_tensor(task.ys)

    @property
    def decodes(self) -> bool:
        """Whether the samples are images, which take time to load."""
        return isinstance(self.xs, Pixels)

    def at(self, step: int, extra: int = 0) -> Batch:
        """Return this process's share of batch `step`, with so many further source samples over all processes."""
        rows = self._target.batch(step)
        target = self._x(self.xt, rows, 3 * step + 1)
        source = self._drawn(self._source.batch(step), 3 * step)
        further = None
        extra -= extra % self._world  # equal shares, which processes can gather
        if self._extra is not None and extra >= self._least:
            further = self._drawn(self._extra.batch(step)[:extra], 3 * step + 2)
        return Batch(source, target, torch.from_numpy(rows[self._rank :: self._world]), further)

    def stream(self, begin: int, extra: Sequence[int], workers: int = 0) -> Generator[Batch, None, None]:
        """Yield the batches from step `begin` on, as many as there are sizes of further batches.

        Processes make whole batches ahead, if asked for; worth it for images only.
        """
        yield from in_workers(_Step(self), enumerate(extra, begin), workers)

    def _drawn(self, rows: IntArray, draw: int) -> Drawn:
        mine = torch.from_numpy(rows[self._rank :: self._world])
        return Drawn(self._x(self.xs, rows, draw), self.ys[mine], mine)

    def _x(self, x: Rows, rows: IntArray, draw: int) -> Tensor:
        mine = slice(self._rank, None, self._world)
        if isinstance(x, Pixels) and x.view.augment:
            draws = draw * LARGEST_BATCH + np.arange(len(rows))
            return torch.from_numpy(x.drawn(rows[mine], draws[mine], self._seed))
        return _tensor(x, rows[mine])


@dataclass(frozen=True)
class _Step:
    """Makes the batch of a step, in whatever process."""

    batches: Batches

    def __call__(self, job: tuple[int, int]) -> Batch:
        step, extra = job
        return self.batches.at(step, extra)
