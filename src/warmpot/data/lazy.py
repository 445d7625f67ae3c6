"""Rows that are loaded on demand: the interface that images and stored activations share with an array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["LazyRows", "Rows", "sample_shape"]


class LazyRows(ABC):
    """Samples that are loaded on demand, with as much of the array interface as training needs."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of one sample."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Data type of a loaded entry."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Load the rows given by integers, a slice or a mask."""

    @abstractmethod
    def subset(self, rows: Any) -> LazyRows:
        """Return only these rows, without loading them."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short text that differs for different data."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]


Rows: TypeAlias = "NDArray[np.floating[Any]] | LazyRows"
"""Samples of one domain: an array of features, or rows that are loaded on demand."""


def sample_shape(x: Rows) -> str:
    """Describe one sample.

    Examples
    --------
    >>> sample_shape(np.zeros((5, 3)))
    '3 features'
    """
    if x.ndim == 2:
        return f"{x.shape[1]} features"
    return f"{'images' if x.dtype == np.uint8 else 'activations'} of {' x '.join(map(str, x.shape[1:]))}"
