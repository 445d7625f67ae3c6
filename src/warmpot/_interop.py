"""Conversion of arrays: results have the library, dtype and device of the caller's input.

Solvers work on float64 numpy arrays (or float64 tensors on a device). This module converts inputs to that and results
back. It never imports torch itself: a tensor can only be passed by a caller that has imported torch already.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from warmpot._typing import Array, FloatArray

__all__ = ["Kind", "is_torch", "kind_of", "to_numpy"]


def is_torch(x: object) -> bool:
    """Whether `x` is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


@dataclass(frozen=True)
class Kind:
    """Library, floating dtype and device of an array; results for integer input are float64."""

    dtype: Any  # of numpy or torch
    device: Any = None  # None for numpy

    @property
    def resolution(self) -> float:
        """Machine epsilon of the dtype."""
        if self.device is None:
            return float(np.finfo(self.dtype).eps)
        return float(sys.modules["torch"].finfo(self.dtype).eps)

    @property
    def on_accelerator(self) -> bool:
        """Whether the array is on a device that supports float64 (not the CPU, not Apple's MPS)."""
        return self.device is not None and self.device.type not in ("cpu", "mps")

    def wrap(self, x: Array | float) -> Any:
        """Convert a float64 result to the caller's library, dtype and device."""
        if self.device is None:
            return np.asarray(x).astype(self.dtype, copy=False)
        torch = sys.modules["torch"]
        return torch.as_tensor(x).to(dtype=self.dtype, device=self.device)


def kind_of(x: object) -> Kind:
    """Return the `Kind` of an array, or of anything that numpy can convert."""
    if is_torch(x):
        torch = sys.modules["torch"]
        dtype = x.dtype if x.dtype.is_floating_point else torch.float64  # type: ignore[attr-defined]
        return Kind(dtype, x.device)  # type: ignore[attr-defined]
    dtype = np.asarray(x).dtype
    return Kind(dtype if dtype.kind == "f" and dtype.itemsize <= 8 else np.dtype(np.float64))


def to_numpy(x: object) -> FloatArray:
    """Return a C-ordered float64 numpy array, copied if needed; raises TypeError, ValueError or OverflowError."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise TypeError("masked entries")
    if is_torch(x) and x.is_complex():  # type: ignore[attr-defined]
        raise TypeError("complex numbers")
    if is_torch(x):
        x = x.detach().to(device="cpu").double().numpy()  # type: ignore[attr-defined]
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"dtype {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.float64)
