"""Type aliases shared by all layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

    Array: TypeAlias = NDArray[Any] | torch.Tensor
else:
    Array: TypeAlias = Any

BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

__all__ = ["Array", "BoolArray", "FloatArray", "IntArray"]
