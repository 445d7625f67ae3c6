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

from warmpot._typing import FloatArray, IntArray
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


_LETTERS, _FACTORS = np.array([76, 84], np.uint8), np.array([-1.0, 0.0])  # "L" and "T"; of the product, of what was


@part
def set_to_minus_gram(rows: FloatArray, n: int, length: int, matrix: FloatArray, sizes: IntArray) -> None:
    """Set the upper triangle of the leading block of a matrix to ``-rows rows'``; the rest is kept.

    Of `rows` the first n are used, up to `length`; `sizes` is scratch. Both arrays are C-ordered: in the order of
    Fortran the triangle is the lower one.
    """
    stride = rows.shape[1] if rows.shape[1] > 0 else 1
    sizes[0], sizes[1], sizes[2], sizes[3] = n, length, stride, matrix.shape[1]
    _dsyrk(
        _LETTERS.ctypes, _LETTERS[1:].ctypes, sizes.ctypes, sizes[1:].ctypes, _FACTORS.ctypes, rows.ctypes,
        sizes[2:].ctypes, _FACTORS[1:].ctypes, matrix.ctypes, sizes[3:].ctypes,
    )  # fmt: skip


@part
def solve_linear(matrix: FloatArray, right: FloatArray, n: int, sizes: IntArray, pivots: IntArray) -> bool:
    """Solve a symmetric system of n rows in place; returns whether it was not singular.

    The matrix, which may have longer rows, is overwritten; `sizes` and `pivots` are scratch.
    """
    sizes[0], sizes[1], sizes[2], sizes[3] = n, 1, matrix.shape[1], 0
    _dgesv(
        sizes.ctypes, sizes[1:].ctypes, matrix.ctypes, sizes[2:].ctypes, pivots.ctypes, right.ctypes, sizes.ctypes,
        sizes[3:].ctypes,
    )  # fmt: skip
    return bool(sizes[3] == 0)
