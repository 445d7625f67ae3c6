"""How kernels are compiled: by numba on first use, kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

__all__ = ["kernel"]

FASTMATH = {"reassoc", "contract", "nsz"}  # sums may be reordered; inf and NaN keep their meaning


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the interpreter lock.

    Where numba finds no folder to write to, every process compiles again.
    """
    try:
        return njit(cache=True, nogil=True, fastmath=FASTMATH)(function)
    except RuntimeError:  # no folder for the cache
        return njit(nogil=True, fastmath=FASTMATH)(function)
