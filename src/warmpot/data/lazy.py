"""Rows that are not in memory: what images and files of activations have in common with an array."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = ["LazyRows", "Rows", "sample_shape"]


@runtime_checkable
class LazyRows(Protocol):
    """Samples that are loaded when they are asked for; the face of an array, as far as training needs it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of one."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a loaded entry."""

    def __len__(self) -> int:
        """Return the number of samples."""

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Load the rows that whole numbers, a slice or a mask name."""

    def subset(self, rows: Any) -> LazyRows:
        """Return these rows only, unloaded."""

    def fingerprint(self) -> str:
        """Return a short text that other data would change."""


Rows: TypeAlias = "NDArray[np.floating[Any]] | LazyRows"
"""Samples of one domain: an array of features, or rows to be loaded."""


def sample_shape(x: Rows) -> str:
    """Say what one sample is.

    Examples
    --------
    >>> sample_shape(np.zeros((5, 3)))
    '3 features'
    """
    if x.ndim == 2:
        return f"{x.shape[1]} features"
    return f"{'images' if x.dtype == np.uint8 else 'activations'} of {' x '.join(map(str, x.shape[1:]))}"
