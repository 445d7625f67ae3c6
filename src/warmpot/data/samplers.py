"""Samplers: endless mini-batches whose k-th is a pure function of the seed and k.

A resumed run therefore only needs to know its step, and processes with the same seed agree on every batch without
communication. Batches follow each other in an endless stream that joins one pass over the data to the next: nothing is
dropped at the end of an epoch, and a data set smaller than a batch repeats its samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import gcd
from typing import Any

import numpy as np

from warmpot._checks import check_choice, check_count
from warmpot._interop import is_torch
from warmpot._typing import IntArray
from warmpot.errors import InputError

__all__ = ["ClassBalanced", "Sampler", "Shuffled", "draw_rows", "make_sampler"]

KINDS = ("balanced", "shuffled")


class Sampler(ABC):
    """Base class of the samplers: batches of `size` from `n` samples, given by `seed`."""

    def __init__(self, n: int, batch: int, seed: int) -> None:
        self.n = check_count("n", n)
        self.size = check_count("batch", batch)
        self.seed = check_count("seed", seed, minimum=0)

    @abstractmethod
    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step` (0, 1, ...), exactly `size` of them."""


class Shuffled(Sampler):
    """Every sample once per epoch, in a new random order each epoch.

    At any step the numbers of times that two samples were drawn differ by at most one. A batch that crosses the end of
    an epoch may contain a sample twice; `batch`, its size, may exceed `n`, the number of samples. Use different seeds
    for source and target.

    Examples
    --------
    >>> sampler = Shuffled(5, batch=3, seed=0)
    >>> sorted(int(i) for step in range(5) for i in sampler.batch(step))
    [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    """

    def __init__(self, n: int, batch: int, seed: int = 0) -> None:
        super().__init__(n, batch, seed)
        self._stream = _Stream(self.n, self.seed)

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step`."""
        return self._stream.take(check_count("step", step, minimum=0) * self.size, self.size)


class ClassBalanced(Sampler):
    """Batches whose class counts differ by at most one.

    With C classes a batch has ``batch // C`` samples of each. The remaining ``batch % C`` places go to the classes in
    turn, in shuffled rounds, so that after each whole round every class has been drawn equally often. Within a class,
    samples are drawn as by `Shuffled`. A batch smaller than C consists of such turns only (the authors' code of WARMPOT
    fails there: it draws ``batch // C`` = 0 samples of each class). Classes without samples are ignored.

    Examples
    --------
    >>> labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2])
    >>> sampler = ClassBalanced(labels, batch=6, seed=0)
    >>> np.bincount(labels[sampler.batch(7)]).tolist()
    [2, 2, 2]
    """

    def __init__(self, labels: Any, batch: int, seed: int = 0) -> None:
        codes = _codes(labels)
        super().__init__(len(codes), batch, seed)
        counts = np.bincount(codes)
        self._members = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
        self._streams = [_Stream(len(rows), self.seed, c + 1) for c, rows in enumerate(self._members)]
        self._each, self._extra = divmod(self.size, len(self._members))
        # After this many batches the turns have made whole rounds. The order of classes changes only then: a change
        # within a batch could give a class two of its extra places.
        self._block = len(self._members) // gcd(self._extra, len(self._members))
        self._turns = _Stream(len(self._members), self.seed, 0, 1)

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step`, class by class."""
        step = check_count("step", step, minimum=0)
        before, after = self._counts_before(step), self._counts_before(step + 1)
        draws = zip(before.tolist(), (after - before).tolist(), self._streams, self._members, strict=True)
        return np.concatenate([rows[stream.take(start, count)] for start, count, stream, rows in draws if count])

    def _counts_before(self, step: int) -> IntArray:
        """Return the number of samples of each class in all batches before `step`, in closed form."""
        classes = len(self._members)
        if self._extra == 0:
            return np.full(classes, step * self._each, dtype=np.int64)
        blocks, rest = divmod(step, self._block)
        each_block = self._extra * self._block // classes
        turn = np.empty(classes, dtype=np.int64)
        turn[self._turns.epoch(blocks)] = np.arange(classes)
        # Extra places since the block began go to turns 0, 1, ..., C - 1, 0, ...: count those of each class.
        extra = (rest * self._extra - turn + classes - 1) // classes
        return step * self._each + blocks * each_block + extra


def draw_rows(n: int, count: int, seed: int, step: int) -> IntArray:
    """Draw `count` of `n` rows without replacement, by seed and step alone; in the order of the data set.

    Examples
    --------
    >>> draw_rows(5, 5, seed=0, step=3).tolist()
    [0, 1, 2, 3, 4]
    """
    return np.sort(np.random.default_rng([seed, step, 1]).choice(n, size=count, replace=False)).astype(np.int64)


def make_sampler(kind: str, batch: int, seed: int = 0, *, n: int | None = None, labels: Any = None) -> Sampler:
    """Make a sampler by name: "balanced" (`ClassBalanced` of `labels`) or "shuffled" (`Shuffled` of `n`)."""
    check_choice("kind", kind, KINDS)
    if labels is None and (kind == "balanced" or n is None):
        needed = "labels" if kind == "balanced" else "n"
        remedy = f"Pass {needed}, or choose another kind."
        raise InputError(needed, got="None", allowed=f"{needed}, for kind {kind!r}", remedy=remedy)
    if kind == "balanced":
        return ClassBalanced(labels, batch, seed)
    return Shuffled(len(labels) if n is None else n, batch, seed)


def _codes(labels: Any) -> IntArray:
    labels = labels.detach().cpu().numpy() if is_torch(labels) else np.asarray(labels)
    if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "biuU":
        got, remedy = f"shape {labels.shape} of {labels.dtype}", "Use the shuffled sampler without classes."
        raise InputError("labels", got=got, allowed="a 1-d array of class labels", remedy=remedy)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


class _Stream:
    """An endless concatenation of permutations of ``range(n)`` with random access."""

    def __init__(self, n: int, seed: int, *tag: int) -> None:
        self._n, self._seed, self._tag = n, seed, tag
        self._recent: tuple[tuple[int, IntArray], ...] = ()

    def epoch(self, e: int) -> IntArray:
        """Return permutation `e`; callers must not modify it."""
        for known, order in self._recent:
            if known == e:
                return order
        # Tags end in a number above 0: numpy pads seeds with zeros, so [s, e] and [s, e, 0] give the same stream.
        order = np.random.default_rng([self._seed, e, *self._tag]).permutation(self._n).astype(np.int64, copy=False)
        self._recent = (*self._recent[-1:], (e, order))  # one assignment, so that other threads can read
        return order

    def take(self, start: int, count: int) -> IntArray:
        """Return positions `start` to ``start + count - 1``."""
        n, end = self._n, start + count
        if n == 1:
            return np.zeros(count, dtype=np.int64)
        first, last = start // n, (end - 1) // n
        if first == last:  # the usual case, without a concatenation per class
            return self.epoch(first)[start - first * n : end - first * n].copy()
        passes = range(first, last + 1)
        return np.concatenate([self.epoch(e)[max(start - e * n, 0) : end - e * n] for e in passes])
