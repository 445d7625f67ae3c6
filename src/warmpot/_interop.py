"""Conversion of arrays: results have the library, dtype and device of the caller's input.

Solvers work on float64 numpy arrays (or float64 tensors on a device). This module converts inputs to that and results
back. It never imports torch itself: a tensor can only be passed by a caller that has imported torch already.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn

import numpy as np

from warmpot._typing import FloatArray
from warmpot.errors import InputError

__all__ = ["Kind", "is_torch", "kind_of", "to_numpy"]

LARGEST = float(np.finfo(np.float64).max)  # in which the results are computed
MASS_LOST = 8  # largest relative change of a plan's mass by a conversion, in units of the dtype's resolution


def is_torch(x: object) -> bool:
    """Whether `x` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


class _Limits(NamedTuple):
    """Machine epsilon of a dtype, its smallest normal number and its largest number."""

    eps: float
    smallest: float
    largest: float


@cache
def _limits(dtype: Any) -> _Limits:
    limits = np.finfo(dtype) if isinstance(dtype, np.dtype) else sys.modules["torch"].finfo(dtype)
    return _Limits(float(limits.eps), float(limits.tiny), float(limits.max))


@dataclass(frozen=True)
class Kind:
    """Library, floating dtype and device of an array; results for integers and for 8-bit floats are float64."""

    dtype: Any  # of numpy or torch
    device: Any = None  # None for numpy

    @property
    def resolution(self) -> float:
        """Machine epsilon of the dtype."""
        return _limits(self.dtype).eps

    @property
    def on_accelerator(self) -> bool:
        """Whether the array is on a device that supports float64 (not the CPU, not Apple's MPS)."""
        return self.device is not None and self.device.type not in ("cpu", "mps")

    def wrap(self, x: FloatArray) -> Any:
        """Convert a float64 result to the caller's library, dtype and device; refuse one that the dtype cannot hold."""
        if self.device is None and x.dtype == self.dtype:
            return x
        self.check_range(x)
        if self.device is None:
            return x.astype(self.dtype, copy=False)
        torch = sys.modules["torch"]
        return torch.as_tensor(x).to(dtype=self.dtype, device=self.device)

    def wrap_plan(self, plan: FloatArray, mass: float) -> Any:
        """Convert a plan like `wrap`; refuse one whose mass is lost because its entries are too small for the dtype."""
        result = self.wrap(plan)
        eps, smallest, largest = _limits(self.dtype)
        # Unless the mass is small, what the numbers below the smallest normal one lose by rounding is negligible.
        if largest < LARGEST and mass < plan.size * smallest:
            cast = float(to_numpy(result).sum())
            if abs(cast - mass) > MASS_LOST * eps * mass:
                self._refuse(f"a plan of mass {mass:g} ({cast:g} after rounding)", f"{smallest:g} and more")
        return result

    def check_range(self, x: FloatArray | float) -> None:
        """Refuse finite numbers that would become infinite in this dtype."""
        largest = _limits(self.dtype).largest
        if largest < LARGEST and np.vdot(x, x) > largest**2:  # the fastest test that most results pass
            magnitude = float(np.abs(np.where(np.isfinite(x), x, 0.0)).max())
            if magnitude > largest:
                self._refuse(f"results up to {magnitude:g}", f"up to {largest:g}")

    def _refuse(self, got: str, numbers: str) -> NoReturn:
        remedy = "Pass float64 (the results have the dtype of the input), or rescale the costs and weights."
        raise InputError(
            "dtype", got=f"{self.dtype} for {got}", allowed=f"numbers {numbers} in that dtype", remedy=remedy
        )


def kind_of(x: object) -> Kind:
    """Return the `Kind` of an array, or of anything that numpy can convert."""
    if is_torch(x):
        torch = sys.modules["torch"]
        dtype = x.dtype  # type: ignore[attr-defined]
        usable = dtype.is_floating_point and dtype.itemsize > 1
        return Kind(dtype if usable else torch.float64, x.device)  # type: ignore[attr-defined]
    dtype = np.asarray(x).dtype
    return Kind(dtype if dtype.kind == "f" and dtype.itemsize <= 8 else np.dtype(np.float64))


def to_numpy(x: object) -> FloatArray:
    """Return a C-ordered float64 numpy array, copied if needed; raises TypeError, ValueError or OverflowError."""
    if type(x) is np.ndarray and x.dtype == np.float64 and x.flags.c_contiguous:
        return x
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError("masked entries")
    if hasattr(x, "toarray"):
        raise TypeError("a sparse matrix: .toarray() makes it dense")
    if is_torch(x) and x.is_complex():  # type: ignore[attr-defined]
        raise TypeError("complex numbers")
    if is_torch(x):
        x = x.detach().to(device="cpu").double().numpy()  # type: ignore[attr-defined]
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"dtype {array.dtype}")
    with np.errstate(over="ignore"):  # what float64 cannot hold becomes inf, which the checks name
        return np.ascontiguousarray(array, dtype=np.float64)
