"""The value for every mass, up to a proven error: a curve through optimal values at a few masses.

The curve is convex in the mass. A plan gives a point on it, and the dual variables of the plan give a line below it:
they are feasible for the dual problem of every mass. So between two neighbouring masses the curve lies below the chord
and above both lines; the largest difference is where the lines meet. The next mass is that with the largest difference.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from warmpot._typing import FloatArray
from warmpot.transport.columns import Generated
from warmpot.transport.exact import MAX_PIVOTS, columns_of, movable_mass

__all__ = ["approximate_path"]

ACCURACY = 1e-3
"""Of the values at the chosen masses, as a share of the error of the curve: they are part of it."""
MAX_POINTS = 10_000


class _Point(NamedTuple):
    """A mass, the value of a plan, and the line ``slope * mass + offset`` that is nowhere above the curve."""

    mass: float
    value: float
    slope: float
    offset: float

    def line(self, mass: float) -> float:
        return self.slope * mass + self.offset


def _gap(left: _Point, right: _Point) -> tuple[float, float]:
    """Return the largest difference between the chord and the lines of two neighbours, and the mass it is at."""
    if right.slope > left.slope:
        mass = (left.offset - right.offset) / (right.slope - left.slope)
        mass = min(max(mass, left.mass), right.mass)
    else:
        mass = (left.mass + right.mass) / 2
    share = (mass - left.mass) / (right.mass - left.mass)
    chord = left.value + share * (right.value - left.value)
    return chord - max(left.line(mass), right.line(mass)), mass


def approximate_path(
    cost: FloatArray, a: FloatArray, b: FloatArray, tol: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return masses, values and slopes of a curve at most `tol` above the true one, relative to its largest value.

    `a` and `b` are positive, and some cost is finite.
    """
    forbidden = bool((cost == np.inf).any())
    top = movable_mass(cost, a, b) if forbidden else float(min(a.sum(), b.sum()))
    detour, columns = min(cost.shape) + 2 if forbidden else 2, columns_of(cost, a, b, top)

    def point(mass: float) -> _Point:
        result: Generated = columns.solve(mass, tol=ACCURACY * tol, detour=detour, max_iter=MAX_PIVOTS)
        return _Point(mass, result.value, result.t, float(-(a @ result.u) - b @ result.v))

    least = columns.scanner.lowest  # nothing costs less than the cheapest pair
    points = [_Point(0.0, 0.0, least, 0.0), point(top)]
    gaps = [_gap(*points)]
    while len(points) < MAX_POINTS:
        k = max(range(len(gaps)), key=gaps.__getitem__)
        difference, mass = gaps[k]
        left, right = points[k], points[k + 1]
        if difference <= tol * max(abs(p.value) for p in points) or not left.mass < mass < right.mass:
            break
        points.insert(k + 1, point(mass))
        gaps[k : k + 1] = [_gap(left, points[k + 1]), _gap(points[k + 1], right)]
    return _lower_hull(points)


def _lower_hull(points: list[_Point]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return masses, values and slopes of the largest convex curve below the points, with slopes that rise strictly.

    Points on one segment of the true curve differ from it by rounding.
    """
    hull: list[_Point] = []
    for point in points:
        while len(hull) > 1 and _slope(hull[-2], hull[-1]) >= _slope(hull[-1], point):
            hull.pop()
        hull.append(point)
    slopes = [_slope(*pair) for pair in pairwise(hull)]
    return np.array([p.mass for p in hull]), np.array([p.value for p in hull]), np.array(slopes)


def _slope(left: _Point, right: _Point) -> float:
    return (right.value - left.value) / (right.mass - left.mass)
