"""Arithmetic of kernels.

Exponential and logarithm can be vectorised by the compiler, calls of ``np.exp`` and ``np.log`` are not. numba's own
``min`` and ``max`` take long to compile.
"""

from __future__ import annotations

import math

import numpy as np

from warmpot.transport._compile import part

__all__ = ["exp_of", "larger", "log_of", "smaller"]

LOG2 = math.log(2.0)
EXP_TERMS = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))
"""Taylor series of exp(r); for |r| <= log(2) / 2 the rest is below 1e-17."""
LOG_TERMS = tuple(2.0 / (2 * k + 1) for k in range(11, -1, -1))
"""Series of log((1 + z) / (1 - z)) / z in z^2; for numbers between 3/4 and 3/2, |z| <= 1/5, the rest is below 1e-17."""
FRACTION, BIAS, DIGITS = (1 << 52) - 1, 1023, 52  # of a float64: bits of the fraction, and offset of the exponent


@part
def exp_of(x: float) -> float:
    """Return the exponential of a number between -700 and 700, to about the rounding of the number."""
    exponent = np.floor(x * (1.0 / LOG2) + 0.5)
    rest, series = x - exponent * LOG2, 0.0
    for term in EXP_TERMS:
        series = series * rest + term
    power = np.int64((np.int64(np.int32(exponent)) + BIAS) << DIGITS).view(np.float64)  # 2 ** exponent
    return float(power * series)


@part
def log_of(x: float) -> float:
    """Return the logarithm of a positive number; that of 0 is about -709, so that ``0 * log(0)`` is 0."""
    bits = np.float64(x).view(np.int64)
    above = (bits >> (DIGITS - 1)) & 1  # whether the fraction is 1.5 or more: then it is halved
    fraction = np.int64((bits & FRACTION) | ((BIAS - above) << DIGITS)).view(np.float64)
    z, series = (fraction - 1.0) / (fraction + 1.0), 0.0
    for term in LOG_TERMS:
        series = series * (z * z) + term
    return float(LOG2 * ((bits >> DIGITS) - BIAS + above) + z * series)


@part
def smaller(x: float, y: float) -> float:
    """Return the smaller of two numbers."""
    return x if x < y else y


@part
def larger(x: float, y: float) -> float:
    """Return the larger of two numbers."""
    return x if x > y else y
