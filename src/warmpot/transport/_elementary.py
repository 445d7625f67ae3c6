"""Exponentials and logarithms of arrays, in loops that the compiler can vectorise: a call of ``np.exp`` is not."""

from __future__ import annotations

import math

import numpy as np

from warmpot._typing import FloatArray
from warmpot.transport._compile import part

__all__ = ["exp_in_place", "log_into"]

LOG2 = math.log(2.0)
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
"""Taylor series of exp(r); for |r| <= log(2) / 2 the rest is below 1e-17."""
LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(11, -1, -1))
"""Series of log((1 + z) / (1 - z)) / z in z^2; for numbers between 3/4 and 3/2, |z| <= 1/5, the rest is below 1e-17."""
FRACTION, BIAS, DIGITS = (1 << 52) - 1, 1023, 52  # of a float64: bits of the fraction, and offset of the exponent


@part
def exp_in_place(x: FloatArray, work: FloatArray) -> None:
    """Replace numbers between -700 and 700 by their exponentials, to about the rounding of the numbers."""
    bits = work.view(np.int64)
    for k in range(x.size):
        exponent = np.floor(x[k] * (1.0 / LOG2) + 0.5)
        x[k] -= exponent * LOG2
        bits[k] = (np.int64(np.int32(exponent)) + BIAS) << DIGITS  # of 2 ** exponent
    for k in range(x.size):
        series = 0.0
        for term in EXP_TERMS:
            series = series * x[k] + term
        x[k] = work[k] * series


@part
def log_into(logs: FloatArray, x: FloatArray, work: FloatArray) -> None:
    """Set `logs` to the logarithms of positive numbers; that of 0 is about -709, so that ``0 * log(0)`` is 0."""
    bits = work.view(np.int64)
    for k in range(x.size):
        work[k] = x[k]
    for k in range(x.size):
        above = (bits[k] >> (DIGITS - 1)) & 1  # whether the fraction is 1.5 or more: then it is halved
        logs[k] = LOG2 * ((bits[k] >> DIGITS) - BIAS + above)
        bits[k] = (bits[k] & FRACTION) | ((BIAS - above) << DIGITS)
    for k in range(x.size):
        z = (work[k] - 1.0) / (work[k] + 1.0)
        series = 0.0
        for term in LOG_TERMS:
            series = series * (z * z) + term
        logs[k] += z * series
