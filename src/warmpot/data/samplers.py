"""Samplers: endless mini-batches whose k-th is a pure function of the seed and k.

A sampler keeps no position. ``batch(step)`` answers any step in any order and the answer never depends on what was
asked before, so a run that is resumed needs nothing of its samplers but the step it had reached, and two processes
that know the seed agree on every batch without talking. (What samplers cache only saves time.)

Batches follow each other in an endless stream that joins one pass over the data to the next: nothing is dropped at
the end of an epoch, every batch has its full size, and a data set smaller than a batch repeats its samples.
"""

from __future__ import annotations

from math import gcd
from typing import Any, Protocol

import numpy as np

from warmpot._checks import check_choice, check_count, check_weights
from warmpot._interop import is_torch
from warmpot._typing import IntArray
from warmpot.errors import InputError

__all__ = ["ClassBalanced", "Sampler", "Shuffled", "Weighted", "make_sampler"]

KINDS = ("balanced", "shuffled", "weighted")


class Sampler(Protocol):
    """What every sampler offers.

    Attributes
    ----------
    n : int
        Number of samples drawn from.
    size : int
        Number of samples in a batch.
    seed : int
        Seed.
    """

    n: int
    size: int
    seed: int

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step` (0, 1, ...), exactly `size` of them."""
        ...


class Shuffled:
    """Every sample once an epoch, in an order shuffled anew each epoch.

    Up to any step the samples have been drawn equally often, give or take one. A batch across the end of an epoch
    may hold a sample twice.

    Parameters
    ----------
    n : int
        Number of samples.
    batch : int
        Batch size; may exceed `n`.
    seed : int
        Seed. Samplers of source and target should differ in it.

    Examples
    --------
    >>> sampler = Shuffled(5, batch=3, seed=0)
    >>> sampler.batch(1).shape
    (3,)
    >>> sorted(int(i) for step in range(5) for i in sampler.batch(step))
    [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    """

    def __init__(self, n: int, batch: int, seed: int = 0) -> None:
        self.n = check_count("n", n)
        self.size = check_count("batch", batch)
        self.seed = check_count("seed", seed, minimum=0)
        self._stream = _Stream(self.n, self.seed)

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step`."""
        return self._stream.take(check_count("step", step, minimum=0) * self.size, self.size)


class ClassBalanced:
    """As many samples of each class in every batch, give or take one.

    With C classes a batch holds ``batch // C`` samples of each; the ``batch % C`` places left go to classes in turn,
    by shuffled rounds of all classes, so that after whole rounds every class has been drawn equally often. Within a
    class, samples come as from `Shuffled`. A batch smaller than C is filled by the turns alone (the official code of
    WARMPOT fails there: it asks for ``batch // C`` = 0 samples of each class).

    Parameters
    ----------
    labels : (n,) array
        Labels; only classes that occur take part.
    batch : int
        Batch size.
    seed : int
        Seed.

    Examples
    --------
    >>> labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2])
    >>> sampler = ClassBalanced(labels, batch=6, seed=0)
    >>> np.bincount(labels[sampler.batch(7)]).tolist()
    [2, 2, 2]
    """

    def __init__(self, labels: Any, batch: int, seed: int = 0) -> None:
        codes = _codes(labels)
        self.n = len(codes)
        self.size = check_count("batch", batch)
        self.seed = check_count("seed", seed, minimum=0)
        counts = np.bincount(codes)
        self._members = np.split(np.argsort(codes, kind="stable"), np.cumsum(counts)[:-1])
        self._streams = [_Stream(len(rows), self.seed, c + 1) for c, rows in enumerate(self._members)]
        self._each, self._extra = divmod(self.size, len(self._members))
        # The turns of this many batches are whole rounds: the order of classes changes between them and never within
        # a batch, which would let a class have two extra places in it.
        self._block = len(self._members) // gcd(self._extra, len(self._members))
        self._turns = _Stream(len(self._members), self.seed, 0, 1)

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step`, class by class."""
        step = check_count("step", step, minimum=0)
        before, after = self.drawn(step), self.drawn(step + 1)
        draws = zip(before.tolist(), (after - before).tolist(), self._streams, self._members, strict=True)
        return np.concatenate([rows[stream.take(start, count)] for start, count, stream, rows in draws if count])

    def drawn(self, step: int) -> IntArray:
        """Return how many samples of each class the batches before `step` hold, in closed form."""
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


class Weighted:
    """Independent draws with replacement, sample i with probability ``weights[i] / sum(weights)``.

    Parameters
    ----------
    weights : (n,) array
        Non-negative, not all 0. A sample of weight 0 is never drawn.
    batch : int
        Batch size.
    seed : int
        Seed.

    Examples
    --------
    >>> Weighted([0.0, 2.0, 0.0], batch=4, seed=0).batch(9).tolist()
    [1, 1, 1, 1]
    """

    def __init__(self, weights: Any, batch: int, seed: int = 0) -> None:
        # The check wants to know how many there should be: as many as there are.
        checked = check_weights("weights", weights, _length(weights))
        self.n = len(checked)
        self.size = check_count("batch", batch)
        self.seed = check_count("seed", seed, minimum=0)
        cumulative = np.cumsum(checked)
        self._cumulative = cumulative / cumulative[-1]

    def batch(self, step: int) -> IntArray:
        """Return the indices of batch `step`."""
        rng = np.random.default_rng([self.seed, check_count("step", step, minimum=0)])
        # "right" passes over samples of weight 0; a draw is below 1, so the last index found exists
        return np.searchsorted(self._cumulative, rng.random(self.size), side="right").astype(np.int64, copy=False)


def make_sampler(
    kind: str, batch: int, seed: int = 0, *, n: int | None = None, labels: Any = None, weights: Any = None
) -> Sampler:
    """Make a sampler by name.

    Parameters
    ----------
    kind : {"balanced", "shuffled", "weighted"}
        `ClassBalanced` (needs `labels`), `Shuffled` (needs `n`, or `labels` or `weights` to count) or `Weighted`
        (needs `weights`).
    batch : int
        Batch size.
    seed : int
        Seed.
    n : int, optional
        Number of samples.
    labels : (n,) array, optional
        Labels.
    weights : (n,) array, optional
        Weights.

    Returns
    -------
    Sampler
        Its ``batch(step)`` is a pure function of the seed and the step.
    """
    check_choice("kind", kind, KINDS)
    if kind == "balanced":
        return ClassBalanced(_needed(kind, "labels", labels), batch, seed)
    if kind == "weighted":
        return Weighted(_needed(kind, "weights", weights), batch, seed)
    counted = labels if labels is not None else weights
    return Shuffled(_needed(kind, "n", n if n is not None or counted is None else len(counted)), batch, seed)


def _needed(kind: str, what: str, x: Any) -> Any:
    if x is None:
        remedy = f"Pass {what}, or choose another kind."
        raise InputError(what, got="None", allowed=f"{what}, for kind {kind!r}", remedy=remedy)
    return x


def _length(x: Any) -> int:
    try:
        return max(len(x), 1)
    except TypeError as error:
        got, remedy = type(x).__name__, "Pass an array of weights."
        raise InputError("weights", got=got, allowed="one weight a sample", remedy=remedy) from error


def _codes(labels: Any) -> IntArray:
    labels = labels.detach().cpu().numpy() if is_torch(labels) else np.asarray(labels)
    if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "biuU":
        got, remedy = f"shape {labels.shape} of {labels.dtype}", "Use the shuffled sampler without classes."
        raise InputError("labels", got=got, allowed="a 1-d array of class labels", remedy=remedy)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


class _Stream:
    """The endless concatenation of permutations of ``range(n)``, read at any position."""

    def __init__(self, n: int, seed: int, *tag: int) -> None:
        self._n = n
        self._seed = seed
        self._tag = tag
        self._recent: tuple[tuple[int, IntArray], ...] = ()

    def epoch(self, e: int) -> IntArray:
        """Return permutation `e`; do not write into it."""
        for known, order in self._recent:
            if known == e:
                return order
        # Tags end in a number above 0: numpy pads seeds with zeros, so [s, e] and [s, e, 0] are the same one.
        order = np.random.default_rng([self._seed, e, *self._tag]).permutation(self._n).astype(np.int64, copy=False)
        self._recent = (*self._recent[-1:], (e, order))  # replaced as a whole: safe to read from another thread
        return order

    def take(self, start: int, count: int) -> IntArray:
        """Return positions `start` to ``start + count - 1``."""
        n, end = self._n, start + count
        if n == 1:
            return np.zeros(count, dtype=np.int64)
        first, last = start // n, (end - 1) // n
        if first == last:  # nearly always; spares a balanced batch one concatenation a class
            return self.epoch(first)[start - first * n : end - first * n].copy()
        passes = range(first, last + 1)
        return np.concatenate([self.epoch(e)[max(start - e * n, 0) : end - e * n] for e in passes])
