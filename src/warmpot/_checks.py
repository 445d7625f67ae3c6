"""Checks of arguments; every error has the four fields what, got, allowed and remedy."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from warmpot._interop import to_numpy
from warmpot._typing import FloatArray
from warmpot.errors import InfeasibleError, InputError

__all__ = [
    "check_choice",
    "check_cost",
    "check_count",
    "check_features",
    "check_fraction",
    "check_mass",
    "check_matrix",
    "check_nonnegative",
    "check_nonnegative_matrix",
    "check_positive",
    "check_same_shape",
    "check_samples",
    "check_shape",
    "check_weights",
]

MAX_COUNT = 2**62
LARGEST = 1e150  # largest magnitude of costs, masses and settings: sums and products of two of them stay finite
LEAST, MOST = f"{1 / LARGEST:g}", f"{LARGEST:g}"  # of a mass, as text: the messages are written before the checks

LARGEST_FEATURE = 1e30  # largest magnitude of a network's input: networks compute in float32


def _numeric(name: str, x: object, allowed: str) -> FloatArray:
    try:
        return to_numpy(x)
    except (TypeError, ValueError, OverflowError, MemoryError, NotImplementedError) as error:
        got = f"{type(x).__name__} ({error})"
        remedy = "Pass a numpy array or torch tensor of real numbers that float64 can hold."
        raise InputError(name, got=got, allowed=allowed, remedy=remedy) from error


def _reject(
    name: str, bad: np.ndarray, what: str, allowed: str, remedy: str, columns: Sequence[str] | None = None,
    first_row: int = 0,
) -> None:  # fmt: skip
    """Raise an error with the number of bad entries and the position of the first, by name if columns have names."""
    row, *rest = (int(k) for k in np.argwhere(bad)[0])
    where = (first_row + row, *rest)
    position = f"at {where if len(where) > 1 else where[0]}"
    if columns:
        position = f"in row {where[0]}, column {columns[where[1]]!r}"
    got = f"{int(bad.sum())} {what} (the first {position})"
    raise InputError(name, got=got, allowed=allowed, remedy=remedy)


def check_matrix(
    name: str, x: object, *, width: int | None = None, columns: Sequence[str] | None = None, first_row: int = 0
) -> FloatArray:
    """Return a non-empty, finite 2-d float64 array (of `width` columns, when given).

    `columns`, and the number of its first row in the whole, are for messages.
    """
    allowed = "a non-empty 2-d array of finite numbers"
    array = _numeric(name, x, allowed)
    if array.ndim != 2 or array.size == 0:
        remedy = "Reshape to (samples, features) and drop empty inputs."
        raise InputError(name, got=f"shape {array.shape}", allowed=allowed, remedy=remedy)
    if width is not None and array.shape[1] != width:
        remedy = "Extract both sides with the same feature extractor."
        raise InputError(name, got=f"{array.shape[1]} columns", allowed=f"{width} columns", remedy=remedy)
    if not np.isfinite(array).all():
        _reject(
            name, ~np.isfinite(array), "non-finite entries", allowed, "Drop or impute those rows.", columns, first_row
        )
    return array


def check_samples(name: str, x: Any) -> Any:
    """Return samples whose rows can be taken by number, of any dtype and shape; a data frame as an array."""
    x = x.to_numpy() if hasattr(x, "to_numpy") else x
    shape: tuple[int, ...] = getattr(x, "shape", ())
    try:
        if len(shape) and shape[0] and x[np.arange(1)].shape[0] == 1:
            return x
    except (TypeError, ValueError, LookupError, RuntimeError):  # refused like other things that have no rows
        pass
    got = f"{type(x).__name__} of shape {tuple(shape)}" if len(shape) else type(x).__name__
    remedy = "Pass an array or tensor with one sample per row (of sparse matrices, CSR ones can be indexed)."
    raise InputError(name, got=got, allowed="a non-empty array that can be indexed by rows", remedy=remedy)


def check_shape(name: str, x: object) -> tuple[int, int]:
    """Return the shape that an object gives itself: two numbers, of rows and of columns."""
    shape = getattr(x, "shape", None)
    if isinstance(shape, tuple) and len(shape) == 2:
        return check_count(f"{name}.shape[0]", shape[0]), check_count(f"{name}.shape[1]", shape[1])
    remedy = "Give it the number of source samples and the number of target samples."
    raise InputError(f"{name}.shape", got=repr(shape), allowed="a tuple of two positive integers", remedy=remedy)


def check_features(name: str, x: np.ndarray, largest: float = LARGEST_FEATURE) -> None:
    """Refuse numbers beyond `largest`; no copy is made."""
    magnitude = max(float(x.max()), -float(x.min()))
    if magnitude > largest:
        remedy = "Rescale them, or drop those rows."
        raise InputError(name, got=f"numbers up to {magnitude:g}", allowed=f"up to {largest:g}", remedy=remedy)


def check_same_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse a plan of another shape than its problem."""
    if shape != expected:
        remedy = "Rows are source samples, columns target samples."
        raise InputError(name, got=f"shape {shape}", allowed=f"shape {expected}", remedy=remedy)


def check_nonnegative_matrix(name: str, x: object, shape: tuple[int, ...] | None = None) -> FloatArray:
    """Return a finite, non-negative 2-d float64 array such as a transport plan, of exactly `shape` when given."""
    array = check_matrix(name, x)
    if shape is not None:
        check_same_shape(name, array.shape, shape)
    if array.min() < 0:
        _reject(name, array < 0, "negative entries", "entries >= 0", "Clip tiny negative entries to 0 first.")
    check_features(name, array, LARGEST)
    return array


def check_cost(name: str, x: object, ndim: int = 2) -> FloatArray:
    """Return the cost as float64; ``+inf`` marks a forbidden pair, NaN and ``-inf`` are refused."""
    allowed = f"a non-empty {ndim}-d array of numbers, +inf for forbidden pairs"
    array = _numeric(name, x, allowed)
    if array.ndim != ndim or array.size == 0:
        remedy = "Rows are source samples, columns target samples; drop empty sides."
        raise InputError(name, got=f"shape {array.shape}", allowed=allowed, remedy=remedy)
    low, high = array.min(), array.max()  # the minimum reveals both NaN and -inf
    if not low > -np.inf:
        bad = np.isnan(array) | np.isneginf(array)
        _reject(name, bad, "NaN or -inf entries", allowed, "Fix the features first.")
    if max(-low, high if high < np.inf else 0.0) > LARGEST:
        remedy = "Rescale the costs; mark forbidden pairs with +inf."
        raise InputError(name, got=f"up to {max(-low, high):g}", allowed=f"up to {LARGEST:g}", remedy=remedy)
    return array


def check_weights(name: str, x: object | None, n: int) -> FloatArray:
    """Return `n` non-negative finite weights; None means uniform with total 1."""
    if x is None:
        return np.full(n, 1.0 / n)
    allowed = f"{n} finite numbers >= 0, with a total between {LEAST} and {MOST}"
    array = _numeric(name, x, allowed)
    if array.shape != (n,):
        remedy = "Pass one weight per row (a) or column (b) of the cost."
        raise InputError(name, got=f"shape {array.shape}", allowed=allowed, remedy=remedy)
    with np.errstate(over="ignore", invalid="ignore"):  # refused below with a message
        total = array.sum()
    if not np.isfinite(total) and not np.isfinite(array).all():
        _reject(name, ~np.isfinite(array), "non-finite entries", allowed, "Set unused entries to 0.")
    if array.min() < 0:
        _reject(name, array < 0, "negative entries", allowed, "Weights are masses: clip or drop them.")
    if not 1 / LARGEST < total < LARGEST:
        remedy = "Give at least one sample a positive weight, on a reasonable scale."
        raise InputError(name, got=f"total {total}", allowed=allowed, remedy=remedy)
    return array


def _real(name: str, x: object, allowed: str, remedy: str) -> float:
    try:
        return float(x)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        got = f"{type(x).__name__} ({error})"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy) from error


def check_positive(name: str, x: object, *, maximum: float = LARGEST, remedy: str = "Pass a positive number.") -> float:
    """Return a finite float in (0, maximum]."""
    if type(x) is float and 0 < x <= maximum:  # the usual case, without a text that no one reads
        return x
    allowed = f"0 < {name} <= {maximum:g}"
    value = _real(name, x, allowed, remedy)
    if not 0 < value <= maximum:
        raise InputError(name, got=value, allowed=allowed, remedy=remedy)
    return value


def check_nonnegative(name: str, x: object, *, maximum: float = LARGEST) -> float:
    """Return a finite float in [0, maximum]."""
    allowed = f"0 <= {name} <= {maximum:g}"
    value = _real(name, x, allowed, "Pass a number.")
    if not 0 <= value <= maximum:
        raise InputError(name, got=value, allowed=allowed, remedy="Pass 0 to switch it off.")
    return value


def check_fraction(name: str, x: object, remedy: str = "It is a share: pass a number in (0, 1].") -> float:
    """Return a float in (0, 1]."""
    return check_positive(name, x, maximum=1.0, remedy=remedy)


def check_count(name: str, x: object, minimum: int = 1) -> int:
    """Return an int in [minimum, 2**62]."""
    if isinstance(x, bool) or not isinstance(x, Integral) or not minimum <= int(x) <= MAX_COUNT:
        remedy = "Pass a whole number."
        raise InputError(name, got=repr(x), allowed=f"an integer in [{minimum}, 2**62]", remedy=remedy)
    return int(x)


def check_choice(name: str, x: object, choices: Collection[str]) -> str:
    """Return `x` if it is one of `choices`."""
    if not isinstance(x, str) or x not in choices:
        allowed = " or ".join(repr(c) for c in choices)
        raise InputError(name, got=repr(x), allowed=allowed, remedy="Pick one of these.")
    return x


def check_mass(mass: object, movable: float, rtol: float, limit: str = "min(sum(a), sum(b))") -> float:
    """Return the mass to move: `movable`, the largest feasible one, when the two are equal up to rounding.

    A relative excess up to `rtol` is attributed to rounding; `limit` is what limits the mass, for the message.
    """
    allowed = f"{LEAST} < mass <= {movable!r} = {limit}"
    value = _real("mass", mass, allowed, "Pass one real number.")
    if not (1 / LARGEST < value < math.inf):
        raise InputError("mass", got=value, allowed=allowed, remedy="Pass a positive mass.")
    if value > movable * (1 + rtol):
        remedy = "Lower the mass or raise the weights on the smaller side (a smaller beta enlarges a)."
        raise InfeasibleError("mass", got=repr(value), allowed=allowed, remedy=remedy, mass=value, movable=movable)
    return movable if value > movable * (1 - 1e-13) else value
