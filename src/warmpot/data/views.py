"""Several stored views of every image: training draws one of them at random, tests see the first."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot.data.table import LazyRows

__all__ = ["StoredViews"]


@dataclass(frozen=True, eq=False)
class StoredViews(LazyRows):
    """Rows of the test view, with rows of random views of the same images, such as a network's outputs for them."""

    test: LazyRows
    random: Sequence[LazyRows]

    @property
    def dtype(self) -> np.dtype[Any]:  # type: ignore[override]
        """Of a loaded entry."""
        return self.test.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of one sample."""
        return self.test.shape

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        return self.test[rows]

    def augmented(self, rows: Any, draws: Any, seed: int = 0) -> NDArray[Any]:
        """Load random views; which one of an image is a function of `seed` and its number in `draws` only."""
        numbers = [int(np.random.default_rng([seed, draw]).integers(len(self.random))) for draw in np.asarray(draws)]
        chosen, views = np.asarray(rows), np.array(numbers)
        out = np.empty((len(chosen), *self.shape[1:]), self.dtype)
        for k in np.unique(views):
            out[views == k] = self.random[k][chosen[views == k]]
        return out

    def subset(self, rows: Any) -> StoredViews:
        """Return only these samples, without loading them."""
        return StoredViews(self.test.subset(rows), [view.subset(rows) for view in self.random])

    def fingerprint(self) -> str:
        """Return a short text that differs for different data."""
        texts = [view.fingerprint() for view in (self.test, *self.random)]
        return hashlib.sha256("".join(texts).encode()).hexdigest()[:16]
