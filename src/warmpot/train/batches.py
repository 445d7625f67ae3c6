"""Samples on their way to a network: batches as a pure function of the step, and passes over all rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warmpot._typing import IntArray
from warmpot.data import Task, make_sampler
from warmpot.data.pixels import Pixels
from warmpot.data.samplers import Sampler
from warmpot.data.table import Rows
from warmpot.data.views import StoredViews
from warmpot.data.workers import map_in_workers
from warmpot.errors import InputError
from warmpot.methods import BatchSpec, SamplePool
from warmpot.methods.base import Domain
from warmpot.train.config import MinibatchSettings

__all__ = ["Batches", "DomainBatch", "StepBatches", "blocks"]

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
    inputs = torch.from_numpy(x[rows])
    return inputs if inputs.dtype == torch.uint8 else inputs.float()  # pixels stay small until they reach the device


class DomainBatch(NamedTuple):
    """Samples of one domain: inputs, rows of the data set, and labels of source samples or pseudo-labels."""

    x: Tensor
    rows: Tensor
    labels: Tensor | None = None

    def to(self, device: torch.device) -> DomainBatch:
        """Move all of it."""
        labels = None if self.labels is None else self.labels.to(device, non_blocking=True)
        return DomainBatch(self.x.to(device, non_blocking=True), self.rows.to(device, non_blocking=True), labels)


StepBatches = dict[str, DomainBatch]
"""The batches of one step by name: "source", "target" and those that a method asks for. None has target labels."""


class Batches:
    """Batches of a task: every process takes its share of the same joined batch.

    A batch, and the random view of every image in it, is a function of seed, step and sample pools alone: a resumed
    run, or one with more decoding processes, gets the same. `rank` is the number of this process among `world`;
    `extra` has the further batches of every step. Without `target` there are no target batches.
    """

    def __init__(
        self, task: Task, settings: MinibatchSettings, seed: int,
        *, rank: int = 0, world: int = 1, extra: Sequence[Mapping[str, BatchSpec]] = (), target: bool = True,
    ) -> None:  # fmt: skip
        for name in ("source_batch", "target_batch"):
            if getattr(settings, name) % world:
                got = f"{getattr(settings, name)} samples over {world} processes"
                remedy = f"Choose a multiple of {world}."
                raise InputError(f"minibatch.{name}", got=got, allowed="equal shares", remedy=remedy)
        self.xs, self.xt = task.xs, task.xt
        self.ys = torch.as_tensor(task.ys)
        self._seed, self._rank, self._world = seed, rank, world
        self._balanced = settings.sampler == "balanced" and not task.for_regression
        self._extra, self._main = extra if any(extra) else (), ("source", "target") if target else ("source",)
        self._specs = {
            "source": BatchSpec(settings.source_batch, "source"),
            "target": BatchSpec(settings.target_batch, "target"),
        }
        for name, spec in (item for specs in self._extra for item in specs.items()):
            if name not in ("source", "target") and spec.size > (self._specs[name].size if name in self._specs else 0):
                self._specs[name] = spec  # the largest of a name is drawn, and cut
        normalises = settings.network.has_batch_norm or task.xs.ndim > 2  # a backbone may do so too
        self._least = (2 if normalises else 1) * world  # BatchNorm needs two
        self._pools: Mapping[str, SamplePool] = {}
        self._samplers = {name: self._sampler(name) for name in self._specs}

    @property
    def decodes(self) -> bool:
        """Whether the samples are images, which take time to load."""
        return isinstance(self.xs, Pixels)

    def set_pools(self, pools: Mapping[str, SamplePool]) -> bool:
        """Draw the named batches from these samples from now on; return whether that changes anything."""

        def same(one: SamplePool | None, other: SamplePool | None) -> bool:
            if one is None or other is None:
                return one is other
            pairs = zip(one, other, strict=True)
            return all(a is b or (a is not None and b is not None and torch.equal(a.cpu(), b.cpu())) for a, b in pairs)

        if unknown := set(pools) - set(self._specs):
            remedy = "Ask for it in `Method.extra_batches`."
            raise InputError("pools", got=", ".join(sorted(unknown)), allowed=", ".join(self._specs), remedy=remedy)
        changed = [name for name in {*pools, *self._pools} if not same(pools.get(name), self._pools.get(name))]
        self._pools = {
            name: SamplePool(pool.rows.cpu().clone(), None if pool.labels is None else pool.labels.cpu().clone())
            for name, pool in pools.items()
        }  # copies: the method may write into its own in place
        self._samplers |= {name: self._sampler(name) for name in changed}
        return bool(changed)

    def _sampler(self, name: str) -> Sampler:
        size, domain = self._specs[name][:2]
        pool, further = self._pools.get(name), list(self._specs).index(name) - 2
        seed = EXTRA_SEED * (1 + further) + self._seed if further >= 0 else 2 * self._seed + (name == "target")
        if pool is not None and len(pool.rows) == 0:
            remedy = "Leave the pool out to draw from the whole domain."
            raise InputError(f"pool {name!r}", got="no samples", allowed="at least one", remedy=remedy)
        if name == "source" and self._balanced:
            labels = self.ys if pool is None else self._labels(pool, slice(None))
            return make_sampler("balanced", size, seed, labels=labels)
        n = len(self.xs if domain == "source" else self.xt) if pool is None else len(pool.rows)
        return make_sampler("shuffled", size, seed, n=n)

    def _labels(self, pool: SamplePool, index: Any) -> Tensor:
        return self.ys[pool.rows[index]] if pool.labels is None else pool.labels[index]

    def domain(self, name: str) -> Domain:
        """Return the domain of a batch."""
        return self._specs[name].domain

    def at(self, step: int) -> StepBatches:
        """Return this process's share of the batches of a step."""
        batches = {name: self._draw(name, step) for name in self._main}
        for name, spec in (self._extra[step] if self._extra else {}).items():
            size = spec.size - spec.size % self._world  # equal shares, which processes can gather
            if size >= self._least:
                batches[name] = self._draw(name, step, size)
        return batches

    def stream(self, steps: range, workers: int = 0) -> Generator[StepBatches, None, None]:
        """Yield the batches of steps; processes make whole batches ahead, if asked for: worth it for images only."""
        yield from map_in_workers(self.at, steps, workers)

    def _draw(self, name: str, step: int, size: int | None = None) -> DomainBatch:
        number, domain, drawn_as = list(self._specs).index(name), self.domain(name), self._specs[name].view_of or name
        pool = self._pools.get(drawn_as)
        drawn = self._samplers[drawn_as].batch(step)[:size]
        rows = drawn if pool is None else pool.rows.numpy()[drawn]
        mine = slice(self._rank, None, self._world)
        # The draws of random views: three interleaved sequences, as many as a step had before there were more batches.
        draws = (3 * step + min(number, 2)) * LARGEST_BATCH + np.arange(len(rows))
        x = self.xs if domain == "source" else self.xt
        if (isinstance(x, Pixels) and x.view.augment) or isinstance(x, StoredViews):
            inputs = torch.from_numpy(x.augmented(rows[mine], draws[mine], self._seed + max(number - 2, 0)))
        else:
            inputs = _tensor(x, rows[mine])
        labels = None
        if pool is not None and (pool.labels is not None or domain == "source"):
            labels = self._labels(pool, torch.from_numpy(drawn[mine]))
        elif domain == "source":
            labels = self.ys[torch.from_numpy(rows[mine])]
        return DomainBatch(inputs, torch.from_numpy(rows[mine]), labels)
