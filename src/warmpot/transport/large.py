"""Exact transport between whole data sets, without the n_s x n_t matrix."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from warmpot._checks import (
    LARGEST,
    check_choice,
    check_cost,
    check_count,
    check_matrix,
    check_positive,
    check_samples,
    check_shape,
)
from warmpot._interop import Kind, kind_of, to_numpy
from warmpot._progress import ProgressCallback, format_duration, progress
from warmpot._typing import Array, FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.transport.certify import round_sparse
from warmpot.transport.columns import BlockCost, ColumnGeneration, Duals, Generated
from warmpot.transport.exact import MAX_PIVOTS, optimality
from warmpot.transport.problem import (
    Potentials,
    Solution,
    check_masses,
    infeasible,
    proven_bound,
    residuals_of,
    source_capacities,
)

__all__ = ["EuclideanBlocks", "solve_partial_blocks", "solve_partial_points"]

logger = logging.getLogger(__name__)

CACHED = 2**24
"""Bytes of a block of costs at most: the passes over it then find it in the cache, and its memory is used again."""
MANY = 10**8
"""Pairs from which on the first pass is done in float32: below, it takes less than a few seconds in float64."""
COPIED = 8192  # rows of the source that are copied at a time
FIRST_PASSES = 3
"""Time of a whole solve, in first passes over all pairs, roughly; later ones skip rows, the simplex comes on top."""
LONG = 30.0
"""Seconds from which on the expected time is logged."""
MEASURED = 2.0
"""Seconds of the first pass that it is estimated from: a block takes a fraction of one."""


class EuclideanBlocks:
    """Euclidean distances between the rows of two arrays of floats, by blocks; the source is not copied."""

    def __init__(self, xs: NDArray[Any], xt: NDArray[Any]) -> None:
        # A common shift leaves distances as they are and takes most of the cancellation out of x'y; a common scale
        # keeps squares from over- or underflowing.
        self.centre: FloatArray = xt.mean(axis=0, dtype=np.float64)
        self.xs, self.xt, self.scale = xs, xt - self.centre, 1.0
        self.shape = (xs.shape[0], xt.shape[0])
        parts = [np.arange(start, min(start + COPIED, len(xs))) for start in range(0, len(xs), COPIED)]
        self.scale = max(np.abs(self.xt).max(), *(np.abs(self._source(rows)).max() for rows in parts)) or 1.0
        self.xt /= self.scale
        self.xs_square = np.concatenate([_squares(self._source(rows)) for rows in parts])
        self.xt_square = _squares(self.xt)
        self._rough: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None

    def _source(self, rows: IntArray) -> FloatArray:
        """Return some rows of the source, shifted and scaled, in float64: a copy of all may not fit in memory."""
        source: FloatArray = self.xs[rows] - self.centre
        source /= self.scale
        return source

    def block(self, rows: IntArray, out: FloatArray | None = None) -> FloatArray:
        """Return the distances of some rows to all columns, in `out` if that is given."""
        from warmpot.transport._kernels import distances_from_products

        x = self._source(rows)
        products: FloatArray = np.matmul(x, self.xt.T, out=out)
        distances_from_products(products, x, self.xt, self.xs_square[rows], self.xt_square, self.scale)
        return products

    def rough_block(self, rows: IntArray) -> NDArray[np.float32] | None:
        """Return lower bounds of the distances of some rows to all columns, in float32; None where they save nothing.

        They differ from the distances by little more than the rounding of float32, and take half of the time.
        """
        from warmpot.transport._kernels import lower_bounds_from_products

        if self.shape[0] * self.shape[1] < MANY:
            return None
        if self._rough is None:
            self._rough = self.xt.T.astype(np.float32), self.xt_square.astype(np.float32)
        width = self.xt.shape[1]
        products = self._source(rows).astype(np.float32) @ self._rough[0]
        # A sum of `width` products rounds by at most width * eps / 2 of the norms; some more for the rest.
        error = (width + 16) * float(np.finfo(np.float32).eps)
        lower_bounds_from_products(products, self.xs_square[rows].astype(np.float32), self._rough[1], error, self.scale)
        return products

    def pairs(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Return the distances of some pairs."""
        distances = np.empty(rows.size)
        for start in range(0, rows.size, COPIED):
            part = slice(start, start + COPIED)
            distances[part] = self.scale * np.linalg.norm(self._source(rows[part]) - self.xt[cols[part]], axis=1)
        return distances


def _squares(x: FloatArray) -> FloatArray:
    squares: FloatArray = np.einsum("ij,ij->i", x, x)
    return squares


class _FunctionBlocks:
    """Costs from a user's function of two blocks of samples."""

    def __init__(self, xs: Array, xt: Array, function: Callable[[Any, Any], Any]) -> None:
        self.xs, self.xt, self.function = xs, xt, function
        self.shape = (xs.shape[0], xt.shape[0])

    def block(self, rows: IntArray) -> FloatArray:
        costs = self.function(self.xs[rows], self.xt)
        return _check_block("cost(xs, xt)", costs, (rows.size, self.shape[1]))


class _Restriction:
    """Some rows and columns of a user's block cost, checked block by block."""

    def __init__(self, cost: BlockCost, rows: IntArray, cols: IntArray) -> None:
        self.cost, self.rows, self.cols = cost, rows, cols
        self.shape = (rows.size, cols.size)

    def block(self, rows: IntArray) -> FloatArray:
        width = self.cost.shape[1]
        costs = _check_block("cost.block(rows)", self.cost.block(self.rows[rows]), (rows.size, width))
        return costs if self.cols.size == width else np.ascontiguousarray(costs[:, self.cols])


def _check_block(name: str, costs: object, shape: tuple[int, int]) -> FloatArray:
    block = check_cost(name, costs)
    if block.shape != shape:
        remedy = "Return one row per source sample given and one column per target sample given."
        raise InputError(name, got=f"shape {block.shape}", allowed=f"shape {shape}", remedy=remedy)
    return block


class _Settings(NamedTuple):
    tol: float
    max_iter: int
    budget: float
    progress_bar: bool | None
    throw: bool
    start: Duals | None

    @classmethod
    def checked(
        cls, tol: float, max_iter: int | None, max_memory: float, progress_bar: bool | None, throw: bool,
        start: Duals | None,
    ) -> _Settings:  # fmt: skip
        tol = check_positive("tol", tol, maximum=0.1)
        max_iter = MAX_PIVOTS if max_iter is None else check_count("max_iter", max_iter)
        budget = check_positive("max_memory", max_memory, remedy="Give it in GiB.") * 2**30
        return cls(tol, max_iter, budget, progress_bar, throw, start)

    def started_on(self, shape: tuple[int, int], rows: IntArray, cols: IntArray) -> Duals | None:
        """Return what to start from on some of the samples."""
        if self.start is None:
            return None
        u, v = (np.asarray(to_numpy(part), np.float64) for part in self.start[:2])
        t = float(self.start.t)
        if (u.shape, v.shape) != (shape[:1], shape[1:]) or not np.isfinite([u.sum(), v.sum(), t]).all():
            got = f"potentials of shapes {u.shape} and {v.shape}, slope {t:g}"
            allowed = "finite dual variables of {} source and {} target samples".format(*shape)
            raise InputError("start", got=got, allowed=allowed, remedy="Leave it out: it only saves time.")
        return Duals(u[rows], v[cols], t)


def solve_partial_points(
    xs: Array,
    xt: Array,
    *,
    beta: float | None = None,
    mass: float,
    cost: str | Callable[[Any, Any], Any] = "euclidean",
    a: Array | None = None,
    b: Array | None = None,
    tol: float = 1e-9,
    max_iter: int | None = None,
    max_memory: float = 1.0,
    progress_bar: bool | None = None,
    throw: bool = True,
    start: Duals | None = None,
) -> Solution[csr_array]:
    """Solve the exact partial problem between two sets of points.

    Column generation (see `warmpot.transport.columns`): the cost matrix is only computed in blocks of rows, and the
    plan is sparse.

    Parameters
    ----------
    xs : (n_s, ...) array or tensor
        Source samples.
    xt : (n_t, ...) array or tensor
        Target samples; for the Euclidean cost as wide as `xs`.
    beta : float
        In (0, 1]: the fraction of the source that is expected to be useful. Each source sample has capacity
        ``1 / (beta * n_s)``. Required, unless `a` gives the capacities.
    mass : float
        Mass to move; in (0, 1] for the default capacities.
    cost : "euclidean" or callable
        A callable gets a block of `xs` and the whole of `xt` and returns their costs, ``+inf`` for forbidden
        pairs. Labels or scores can be passed as extra columns of `xs` and `xt`.
    a, b : (n_s,) and (n_t,) arrays, optional
        Capacities instead of ``1 / (beta * n_s)`` and ``1 / n_t``; zeros leave a sample out (its potential is
        reported as 0).
    tol : float
        Gap, relative to the value, up to which the plan counts as optimal: the search ends there. Large problems are
        solved faster with a larger one, such as 1e-3; `Solution.gap` is the proven error.
    max_iter : int, optional
        Limit on simplex pivots in each round; not applied where forbidden pairs leave no simple way to a feasible plan.
    max_memory : float
        GiB for blocks of costs; the points (a float64 copy of them, unless they are numpy arrays of float32 or
        float64) and the arcs come on top.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    throw : bool
        Raise unless the status is OPTIMAL; False returns the last plan, made feasible. Bad input and infeasible
        problems always raise.
    start : Duals, optional
        ``Duals(*solution.potentials, solution.slope)`` of a problem between as many samples with similar costs, such as
        the last one of an alternation: the search starts there. That saves time; where the best plan is unique, it
        does not change the answer.

    Returns
    -------
    Solution
        `plan` is a float64 ``scipy.sparse.csr_array``; p, q and the potentials have the library, dtype and device
        of `xs`.

    Examples
    --------
    >>> import numpy as np
    >>> solution = solve_partial_points(np.array([[0.0], [1.0], [9.0]]), np.array([[0.1], [1.2]]), beta=0.5, mass=1.0)
    >>> print(solution.plan.toarray().round(2))
    [[0.5 0. ]
     [0.  0.5]
     [0.  0. ]]
    """
    settings = _Settings.checked(tol, max_iter, max_memory, progress_bar, throw, start)
    source, target = _samples(xs, xt, cost)

    def restricted(rows: IntArray, cols: IntArray) -> BlockCost:
        # Samples without capacity are dropped before the distances: they must not move the centre or the scale.
        x, y = (x if part.size == x.shape[0] else x[part] for x, part in ((source, rows), (target, cols)))
        return _FunctionBlocks(x, y, cost) if callable(cost) else EuclideanBlocks(np.asarray(x), np.asarray(y))

    return _solve(restricted, (source.shape[0], target.shape[0]), kind_of(xs), (a, b, beta), mass, settings)


def solve_partial_blocks(
    cost: BlockCost,
    *,
    beta: float | None = None,
    mass: float,
    a: Array | None = None,
    b: Array | None = None,
    tol: float = 1e-9,
    max_iter: int | None = None,
    max_memory: float = 1.0,
    progress_bar: bool | None = None,
    throw: bool = True,
    start: Duals | None = None,
) -> Solution[csr_array]:
    """Solve the exact partial problem for a cost that is computed block by block.

    For costs that hold their own samples, such as the joint cost between two data sets. The arguments that are not
    listed are those of `solve_partial_points`.

    Parameters
    ----------
    cost : BlockCost
        An object with `shape` and ``block(rows)``, which returns the costs of some source samples to all target
        samples. Every block is asked for several times (once per pricing round).
    max_memory : float
        GiB for blocks of costs; what `cost` stores comes on top.

    Returns
    -------
    Solution
        `plan` is a float64 ``scipy.sparse.csr_array``; p, q and the potentials are float64 arrays.

    Examples
    --------
    >>> import numpy as np
    >>> class Distances:
    ...     def __init__(self, x, y):
    ...         self.x, self.y, self.shape = x, y, (x.size, y.size)
    ...
    ...     def block(self, rows):
    ...         return abs(self.x[rows, None] - self.y)
    >>> cost = Distances(np.array([0.0, 1.0, 9.0]), np.array([0.1, 1.2]))
    >>> solve_partial_blocks(cost, beta=0.5, mass=1.0).p.round(2)
    array([0.5, 0.5, 0. ])
    """
    settings = _Settings.checked(tol, max_iter, max_memory, progress_bar, throw, start)
    shape, float64 = check_shape("cost", cost), Kind(np.dtype(np.float64))
    return _solve(lambda *kept: _Restriction(cost, *kept), shape, float64, (a, b, beta), mass, settings)


def _solve(
    restricted: Callable[[IntArray, IntArray], BlockCost],
    shape: tuple[int, int],
    kind: Kind,
    capacities: tuple[Array | None, Array | None, float | None],
    mass: float,
    settings: _Settings,
) -> Solution[csr_array]:
    """Solve on the samples with capacity, which `restricted` gives the costs of; capacities are a, b and beta."""
    a_or_none, b_or_none, beta = capacities
    a, b, mass = check_masses(source_capacities(a_or_none, beta, shape[0]), b_or_none, mass, shape)
    rows, cols = np.flatnonzero(a > 0), np.flatnonzero(b > 0)
    blocks, start = restricted(rows, cols), settings.started_on(shape, rows, cols)
    # A block, its products and one temporary are alive at the same time, in float64.
    block_rows = int(np.clip(min(settings.budget // 3, CACHED) // (8 * cols.size), 1, rows.size))
    far = min(rows.size, cols.size) + 2  # a slack route that costs more than any detour around forbidden pairs
    with progress("exact plan", logger, settings.progress_bar) as callback:
        report = _announcing(callback, blocks.shape)
        columns = ColumnGeneration(
            blocks, a[rows], b[cols], block_rows=block_rows, report=report, by_row=mass > a.sum() / 2, start=start
        )
        for detour, max_iter in ((2, settings.max_iter), (far, settings.max_iter), (far, MAX_PIVOTS)):
            result = columns.solve(mass, tol=settings.tol, detour=detour, max_iter=max_iter)
            if not result.finished:
                result = _completed(result, blocks, a[rows], b[cols], mass, block_rows)
            # Else pairs are forbidden: a feasible plan may take every pivot. Not without need: costs next to those of
            # long detours are rounded.
            if result.complete or result.missing <= 1e-12 * mass or (result.finished and detour == far):
                break
    if result.missing > 1e-9 * mass:
        raise infeasible(mass, mass - result.missing)
    mass -= result.missing  # what forbidden pairs leave of the mass, where the two differ by rounding
    u, v = np.zeros(a.size), np.zeros(b.size)
    u[rows], v[cols] = result.u, result.v
    entries = result.plan.tocoo()
    plan = csr_array((entries.data, (rows[entries.row], cols[entries.col])), shape=shape)
    p, q = plan.sum(axis=1), plan.sum(axis=0)
    dual_value = proven_bound(mass, result.t, a, u, b, v)
    solution = Solution(
        plan=plan,
        p=kind.wrap(p),
        q=kind.wrap(q),
        value=result.value,
        objective=result.value,
        dual_value=min(dual_value, result.value),
        gap=max(0.0, result.value - dual_value),
        slope=result.t,
        residuals=residuals_of(p, q, a, b, mass),
        status=optimality(result.value, dual_value, settings.tol, mass * result.span, result.finished),
        n_iter=result.rounds,
        potentials=Potentials(kind.wrap(u), kind.wrap(v)),
    )
    return solution.or_raise() if settings.throw else solution


def _announcing(report: ProgressCallback, shape: tuple[int, int]) -> ProgressCallback:
    """Log the expected time of a long solve, once some blocks are measured; the first one loads compiled code."""
    first: tuple[float, float] | None = None
    announced = False

    def announce(share: float, text: str, expected: float = 0.0) -> None:
        nonlocal first, announced
        if not announced:
            now = time.monotonic()
            first = first or (share, now)
            measured = now - first[1]
            announced = share < first[0] or measured >= MEASURED
            seconds = FIRST_PASSES * measured / (share - first[0]) if announced and share > first[0] else 0.0
            if seconds >= LONG:
                logger.info("exact plan: %s x %s pairs, about %s", *map("{:,}".format, shape), format_duration(seconds))
        report(share, text, expected)

    return announce


def _completed(
    result: Generated, cost: BlockCost, a: FloatArray, b: FloatArray, mass: float, block_rows: int
) -> Generated:
    """Spread what an unfinished simplex has not placed over the room left, unless that takes forbidden pairs."""
    plan = round_sparse(result.plan, a, b, mass)
    added = csr_array(plan - result.plan)
    added.eliminate_zeros()
    added = added.tocoo()
    used, place = np.unique(added.row, return_inverse=True)
    value = result.value
    for start in range(0, used.size, block_rows):
        chunk = (place >= start) & (place < start + block_rows)
        block = cost.block(used[start : start + block_rows])
        value += float(added.data[chunk] @ block[place[chunk] - start, added.col[chunk]])
    return result._replace(plan=plan, value=value, missing=0.0) if value < np.inf else result


def _samples(xs: Array, xt: Array, cost: str | Callable[[Any, Any], Any]) -> tuple[Array, Array]:
    """Check the samples: numbers of one width for the Euclidean cost, anything that can be indexed for a callable."""
    if not callable(cost):
        check_choice("cost", cost, ["euclidean"])
        source = _matrix("xs", xs)
        target = _matrix("xt", xt, width=source.shape[1])
        if (largest := max(max(float(x.max()), -float(x.min())) for x in (source, target))) > LARGEST:
            remedy = "Rescale the features."
            raise InputError("xs, xt", got=f"up to {largest:g}", allowed=f"up to {LARGEST:g}", remedy=remedy)
        return source, target
    return check_samples("xs", xs), check_samples("xt", xt)


def _matrix(name: str, x: Array, width: int | None = None) -> NDArray[Any]:
    """Check a matrix; float32 is accepted as it is: blocks are converted one at a time."""
    float32 = type(x) is np.ndarray and x.dtype == np.float32 and x.ndim == 2 and x.size > 0
    if float32 and width in (None, x.shape[1]) and np.isfinite(x).all():
        return np.asarray(x)
    return check_matrix(name, x, width=width)  # raises with the right message
