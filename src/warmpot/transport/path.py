"""The value of the exact problem as a function of the mass: the whole convex curve at once.

Successive shortest paths: starting from nothing moved, each step sends mass along the cheapest route that still
has room (from a row with capacity left, over pairs, possibly undoing flow, to a column with capacity left). The
flow stays optimal for the mass moved so far, and the length of the route is the slope of the curve there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from warmpot._checks import check_cost, check_weights
from warmpot._typing import Array, FloatArray, IntArray

__all__ = ["PartialPath", "partial_path"]


class PartialPath(NamedTuple):
    """The curve: `values` at `masses` (both from 0), and the `slopes` of the segments between them.

    Slopes rise strictly; ``masses[-1]`` is the largest mass that can be moved.
    """

    masses: FloatArray
    values: FloatArray
    slopes: FloatArray


def partial_path(cost: Array, a: Array | None = None, b: Array | None = None) -> PartialPath:
    """Compute the optimal value for every mass at once, exactly.

    Parameters
    ----------
    cost : (n_s, n_t) array or tensor
        ``+inf`` for forbidden pairs.
    a, b : arrays, optional
        Capacities; uniform with total 1 by default.

    Returns
    -------
    PartialPath
        numpy float64 arrays (the curve is for choosing a mass, not for back-propagation).

    Examples
    --------
    >>> import numpy as np
    >>> path = partial_path(np.array([[0.0, 3.0], [5.0, 1.0]]))
    >>> path.masses, path.values, path.slopes
    (array([0. , 0.5, 1. ]), array([0. , 0. , 0.5]), array([0., 1.]))
    """
    from warmpot.transport._path import shortest_paths

    c = check_cost("cost", cost)
    wa, wb = check_weights("a", a, c.shape[0]), check_weights("b", b, c.shape[1])
    rows, cols = np.flatnonzero(wa > 0), np.flatnonzero(wb > 0)
    live = np.ascontiguousarray(c[np.ix_(rows, cols)])
    finite = live[live < np.inf]
    if finite.size == 0:
        return PartialPath(np.zeros(1), np.zeros(1), np.empty(0))
    low = float(finite.min())
    span = float(finite.max()) - low or 1.0
    total = float(min(wa.sum(), wb.sum()))
    steps, lengths = shortest_paths((live - low) / span, wa[rows] / total, wb[cols] / total)
    slopes, first = _distinct(lengths)
    amounts = np.add.reduceat(steps, first) * total
    slopes = slopes * span + low
    masses = np.append(0.0, np.cumsum(amounts))
    return PartialPath(masses, np.append(0.0, np.cumsum(amounts * slopes)), slopes)


def _distinct(lengths: FloatArray) -> tuple[FloatArray, IntArray]:
    """Merge runs of lengths that differ by rounding only; returns one length per run and where it starts."""
    monotone: FloatArray = np.maximum.accumulate(lengths)
    first: IntArray = np.flatnonzero(np.append(True, np.diff(monotone) > 1e-13))
    return monotone[first], first
