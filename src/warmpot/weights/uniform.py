"""Every source sample counts the same: source-only training, and MPOT's choice (Section 5.3)."""

from __future__ import annotations

import numpy as np

from warmpot._checks import check_count
from warmpot._typing import FloatArray

__all__ = ["uniform_weights"]


def uniform_weights(n: int) -> FloatArray:
    """Return `n` weights ``1 / n``.

    Examples
    --------
    >>> uniform_weights(4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    return np.full(check_count("n", n), 1.0 / n)
