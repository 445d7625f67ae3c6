"""Batches of a task as a pure function of the step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from warmpot.data import Task, make_sampler
from warmpot.errors import InputError, explain
from warmpot.train.config import MinibatchSettings

__all__ = ["Batch", "Batches", "Drawn"]

EXTRA_SEED = 1 << 40
"""Keeps the draws of further source batches apart from those of the two main ones."""


class Drawn(NamedTuple):
    """Samples of the source: inputs, labels, and which they are."""

    x: Tensor
    labels: Tensor
    rows: Tensor


class Batch(NamedTuple):
    """What training sees of one step. There is no field for target labels."""

    source: Drawn
    target: Tensor
    target_rows: Tensor
    extra: Drawn | None


class Batches:
    """Batches of a task: every process takes its share of the same joined batch.

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
                raise InputError(explain(f"minibatch.{name}", got=got, allowed="equal shares", remedy=remedy))
        kind = "shuffled" if task.for_regression else settings.sampler
        self._source = make_sampler(kind, settings.source_batch, 2 * seed, labels=task.ys)
        self._target = make_sampler("shuffled", settings.target_batch, 2 * seed + 1, n=task.n_target)
        self._extra = make_sampler("shuffled", extra, EXTRA_SEED + seed, n=task.n_source) if extra else None
        self._mine, self._world = slice(rank, None, world), world
        self._least = (2 if settings.network.bottleneck == "bn_relu" else 1) * world  # BatchNorm needs two
        self.xs, self.xt = torch.as_tensor(task.xs).float(), torch.as_tensor(task.xt).float()
        self.ys = torch.as_tensor(task.ys)

    def at(self, step: int, device: torch.device, extra: int = 0) -> Batch:
        """Return this process's share of batch `step`, with so many further source samples over all processes."""
        target = torch.from_numpy(self._target.batch(step)[self._mine])
        source = self._drawn(torch.from_numpy(self._source.batch(step)[self._mine]), device)
        further = None
        extra -= extra % self._world  # equal shares, which processes can gather
        if self._extra is not None and extra >= self._least:
            further = self._drawn(torch.from_numpy(self._extra.batch(step)[:extra][self._mine]), device)
        return Batch(source, self.xt[target].to(device), target.to(device), further)

    def _drawn(self, rows: Tensor, device: torch.device) -> Drawn:
        return Drawn(*(part.to(device) for part in (self.xs[rows], self.ys[rows], rows)))
