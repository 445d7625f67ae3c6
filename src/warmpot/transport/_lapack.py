"""Linear algebra inside kernels: routines of the BLAS and LAPACK that scipy has.

``np.linalg.solve`` and ``np.dot`` in a kernel take numba five seconds to compile. A kernel calls a routine by its
name, not by its address, so that it can be kept on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite.binding import add_symbol  # type: ignore[import-untyped]
from numba import types
from numba.extending import get_cython_function_address

from warmpot._typing import FloatArray
from warmpot.transport._compile import part

__all__ = ["set_to_minus_gram", "solve_linear"]

_CHAR, _INT, _DOUBLE = (types.CPointer(kind) for kind in (types.uint8, types.intc, types.float64))  # type: ignore[no-untyped-call]


def _routine(module: str, name: str, *arguments: Any) -> Any:
    add_symbol(f"warmpot_{name}", get_cython_function_address(f"scipy.linalg.{module}", name))
    return types.ExternalFunction(f"warmpot_{name}", types.void(*arguments))


# (triangle, order, n, k, alpha, matrix, its stride, beta, product, its stride)
_dsyrk = _routine("cython_blas", "dsyrk", _CHAR, _CHAR, _INT, _INT, _DOUBLE, _DOUBLE, _INT, _DOUBLE, _DOUBLE, _INT)
# (n, right-hand sides, matrix, its stride, pivots, right-hand side, its stride, info)
_dgesv = _routine("cython_lapack", "dgesv", _INT, _INT, _DOUBLE, _INT, _INT, _DOUBLE, _INT, _INT)


@part
def set_to_minus_gram(rows: FloatArray, matrix: FloatArray) -> None:
    """Set the upper triangle of the leading block of a C-ordered matrix to ``-rows rows'``; the rest is kept."""
    letters, sizes, factors = np.empty(2, np.uint8), np.empty(4, np.intc), np.empty(2)
    letters[0], letters[1] = 76, 84  # "L", "T": in the order of Fortran the triangle is the lower one
    sizes[0], sizes[1], sizes[2], sizes[3] = rows.shape[0], rows.shape[1], max(1, rows.shape[1]), matrix.shape[0]
    factors[0], factors[1] = -1.0, 0.0
    _dsyrk(
        letters.ctypes, letters[1:].ctypes, sizes.ctypes, sizes[1:].ctypes, factors.ctypes, rows.ctypes,
        sizes[2:].ctypes, factors[1:].ctypes, matrix.ctypes, sizes[3:].ctypes,
    )  # fmt: skip


@part
def solve_linear(matrix: FloatArray, right: FloatArray) -> bool:
    """Solve a symmetric system in place, the matrix is overwritten; returns whether it was not singular."""
    n = right.size
    sizes, pivots = np.empty(3, np.intc), np.empty(n, np.intc)
    sizes[0], sizes[1], sizes[2] = n, 1, 0
    _dgesv(
        sizes.ctypes, sizes[1:].ctypes, matrix.ctypes, sizes.ctypes, pivots.ctypes, right.ctypes, sizes.ctypes,
        sizes[2:].ctypes,
    )  # fmt: skip
    return bool(sizes[2] == 0)
