"""The exact solver: a linear program on POT's network simplex, small problems whole, large ones by columns.

The partial problem becomes a balanced one by two *reservoirs*: what a row does not send goes to a column reservoir,
what a column does not receive comes from a row reservoir, both free of charge, and no arc joins the two, so exactly
`mass` crosses the given arcs. A *slack* route from every row to every column at a price above any real route keeps the
network feasible whatever arcs are given; its flow is the mass that the arcs could not carry.

*Column generation* finds the plan from a small, growing set of arcs: only pairs that could carry mass. A round solves
the problem on the arcs it has, then *prices* all pairs with its potentials: a pair of negative reduced cost
``C_ij + u_i + v_j - t`` would lower the value, so the most negative ones of each row and column are added. When none is
left the potentials are feasible for all pairs, which proves the plan optimal: the last pricing pass is the certificate.
Before that, a pass proves how far from optimal the plan can be, which may be close enough.
The first pass is the same scan with zero potentials and no threshold: it finds nearest neighbours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from warmpot._progress import ProgressCallback
from warmpot._typing import FloatArray, IntArray
from warmpot.transport.certify import linear_cost, lower_bound, trim_sparse
from warmpot.transport.problem import Answer, PartialProblem, Status, infeasible, proven_bound

__all__ = [
    "MAX_PIVOTS",
    "BlockCost",
    "Duals",
    "Generated",
    "generate",
    "optimality",
    "snap_to_movable",
    "solve_exact",
    "to_feasible",
]

FINISHED = 1  # return code of POT's simplex at an optimum
BALANCED = 1e-13  # a reservoir below this share of the mass is rounding and is left out
ZERO = 1e-12  # reduced costs above minus this share of the largest cost are float64 noise of the costs
MAX_ROUNDS = 100
MAX_PIVOTS = 10**9
ALL_ARCS = 20_000  # up to this many pairs every pair is an arc from the start; above, column generation is faster
BLOCK_ROWS = 512


class Duals(NamedTuple):
    """Dual variables in the form of `warmpot.transport.problem`."""

    u: FloatArray
    v: FloatArray
    t: float


class _Flow(NamedTuple):
    """Optimal flow over the arcs and the dual variables that prove it (for these arcs)."""

    plan: csr_array
    u: FloatArray
    v: FloatArray
    t: float
    slack: float
    finished: bool


def _solve_arcs(
    arcs: tuple[IntArray, IntArray, FloatArray],
    a: FloatArray,
    b: FloatArray,
    mass: float,
    slack_cost: float,
    max_iter: int,
    start: Duals | None = None,
) -> _Flow:
    """Move `mass` over arcs (rows, columns, finite costs; no repeats) at least cost, in at most `max_iter` pivots.

    Above the largest cost the slack route goes unused where every pair is allowed; with forbidden pairs `slack_cost`
    must exceed the detour over all rows or columns. The first spanning tree of the simplex is made of the arcs of least
    reduced cost for the dual variables `start`, which need not be feasible.
    """
    from warmpot.transport._simplex import emd_c_sparse

    (rows, cols, cost), n, m = arcs, a.size, b.size
    shift = float(cost.min()) if cost.size else 0.0
    scale = float(cost.max() - shift) if cost.size and cost.max() > shift else 1.0
    # No row or column can use more than the mass: capping there (with room, so that the cap never binds and the
    # dual variables stay true) keeps the rounding of the reservoirs from exceeding a small mass.
    a, b = np.minimum(a / mass, 2.0), np.minimum(b / mass, 2.0)
    spare_a, spare_b = a.sum() - 1.0, b.sum() - 1.0
    # Nodes n and m are the slack; n + 1 and m + 1 the reservoirs, present only if they hold anything.
    every_row, every_col = np.arange(n), np.arange(m)
    tails: list[Any] = [rows, every_row, np.full(m, n), [n]]
    heads: list[Any] = [cols, np.full(n, m), every_col, [m]]
    price: list[Any] = [(cost - shift) / scale, np.full(n + m, (slack_cost - shift) / scale / 2), [0.0]]
    supply: list[Any] = [a, [1.0]]
    demand: list[Any] = [b, [1.0]]
    if spare_a > BALANCED:
        tails, heads, price = [*tails, every_row], [*heads, np.full(n, m + 1)], [*price, np.zeros(n)]
        demand.append([spare_a])
    if spare_b > BALANCED:
        tails, heads, price = [*tails, np.full(m, n + 1)], [*heads, every_col], [*price, np.zeros(m)]
        supply.append([spare_b])
    out, into = np.concatenate(supply), np.concatenate(demand)
    guess: tuple[FloatArray, ...] = ()
    if start is not None:  # 0 for the slack nodes: the arc between them, which carries their flow, is tight
        free = (start.t - shift) / scale
        guess = np.zeros(out.size), np.zeros(into.size)
        guess[0][:n], guess[0][n + 1 :] = -start.u / scale, -free
        guess[1][:m] = free - start.v / scale
    tail, head = (np.concatenate(ends).astype(np.uint64) for ends in (tails, heads))
    # The simplex itself rather than ot.emd around it, which warns (not safe in threads) where we report a status.
    tail, head, amount, _, alpha, beta, code = emd_c_sparse(
        out, into * (out.sum() / into.sum()), tail, head, np.concatenate(price).astype(np.float64), max_iter, *guess
    )
    tail, head, amount = tail.astype(np.int64), head.astype(np.int64), amount * mass
    real = (tail < n) & (head < m)
    # Dual variables in the form of `problem`: the reservoirs' potentials are the zero of u and v.
    ground_a = beta[m + 1] if spare_a > BALANCED else -alpha[:n].max()
    ground_b = alpha[n + 1] if spare_b > BALANCED else -beta[:m].max()
    return _Flow(
        plan=csr_array((amount[real], (tail[real], head[real])), shape=(n, m)),
        u=np.maximum(0.0, -(alpha[:n] + ground_a)) * scale,
        v=np.maximum(0.0, -(beta[:m] + ground_b)) * scale,
        t=float(-(ground_a + ground_b)) * scale + shift,
        slack=float(amount[(tail < n) & (head == m)].sum()),
        finished=code == FINISHED,
    )


def _solve_dense(
    cost: FloatArray, a: FloatArray, b: FloatArray, mass: float, max_iter: int
) -> tuple[FloatArray, FloatArray, bool]:
    """Move `mass` over all pairs, each of finite cost; returns the plan, v, and whether the simplex finished.

    For small problems: a matrix with the reservoirs as a row and a column is set up faster than a list of arcs.
    """
    from warmpot.transport._simplex import emd_c

    n, m = cost.shape
    low = float(cost.min())
    scale = float(cost.max()) - low or 1.0
    supply, demand = np.minimum(a / mass, 2.0), np.minimum(b / mass, 2.0)  # as in `_solve_arcs`
    spare_a, spare_b = max(0.0, supply.sum() - 1.0), max(0.0, demand.sum() - 1.0)
    rows, cols = n + (spare_b > BALANCED), m + (spare_a > BALANCED)
    price = np.zeros((rows, cols))
    np.subtract(cost, low, out=price[:n, :m])
    price[:n, :m] /= scale
    price[n:, m:] = 4.0  # above the two real routes that this one would replace
    supply, demand = np.append(supply, spare_b)[:rows], np.append(demand, spare_a)[:cols]
    demand *= supply.sum() / demand.sum()
    plan, _, alpha, beta, code = emd_c(supply, demand, price, max_iter, 1)
    ground = alpha[n] if rows > n else -beta[:m].max()
    v = np.maximum(0.0, -(beta[:m] + ground)) * scale
    return np.ascontiguousarray(plan[:n, :m]) * mass, v, code == FINISHED


class BlockCost(Protocol):
    """A cost matrix that is computed a block of rows at a time.

    Any object with these two members is a block cost: nothing has to be inherited.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """Number of source samples and of target samples."""
        ...

    def block(self, rows: IntArray) -> FloatArray:
        """Return the costs of some source samples, by number, to all target samples: float64, C-ordered.

        ``+inf`` marks a forbidden pair. The result may be a view: it is only read.
        """
        ...


class Generated(NamedTuple):
    """Optimal plan over all pairs, with dual variables feasible for all pairs.

    It lacks `missing` of the mass: what the finite pairs cannot carry, or an unfinished simplex has not placed.
    """

    plan: csr_array
    value: float
    u: FloatArray
    v: FloatArray
    t: float
    missing: float
    span: float
    finished: bool
    rounds: int


class _Arcs:
    """The arcs so far, sorted by row and column, without repeats."""

    def __init__(self, n_cols: int) -> None:
        self.n_cols = n_cols
        self.key: IntArray = np.empty(0, np.int64)
        self.cost: FloatArray = np.empty(0)

    def add(self, rows: IntArray, cols: IntArray, cost: FloatArray) -> int:
        """Add arcs; returns how many were new."""
        before = self.key.size
        key = np.concatenate([self.key, rows * self.n_cols + cols])
        self.key, first = np.unique(key, return_index=True)
        self.cost = np.concatenate([self.cost, cost])[first]
        return self.key.size - before

    def solve(
        self, a: FloatArray, b: FloatArray, mass: float, slack_cost: float, max_iter: int, start: Duals | None
    ) -> _Flow:
        """Solve on these arcs; all rows without an arc share one node, which keeps the network small."""
        rows, cols = np.divmod(self.key, self.n_cols)
        used, compact = np.unique(rows, return_inverse=True)
        rest = a.sum() - a[used].sum() if used.size < a.size else 0.0
        supply = np.append(a[used], rest) if rest > 0 else a[used]
        if start is not None:
            start = start._replace(u=np.append(start.u[used], 0.0)[: supply.size])
        flow = _solve_arcs((compact, cols, self.cost), supply, b, mass, slack_cost, max_iter, start)
        plan = flow.plan.tocoo()
        u = np.zeros(a.size)
        u[used] = flow.u[: used.size]
        full = csr_array((plan.data, (used[plan.row], plan.col)), shape=(a.size, b.size))
        return flow._replace(plan=full, u=u)

    def value(self, plan: csr_array) -> float:
        """Linear cost of a plan over these arcs."""
        entries = plan.tocoo()
        key = entries.row.astype(np.int64) * self.n_cols + entries.col
        return float(entries.data @ self.cost[np.searchsorted(self.key, key)])


class _Scanner:
    """Prices pairs block by block, skipping rows that provably hold no attractive pair."""

    def __init__(self, cost: BlockCost, block_rows: int, report: ProgressCallback) -> None:
        self.cost, self.block_rows, self.report = cost, block_rows, report
        self.row_min = np.full(cost.shape[0], -np.inf)  # lower bound of min_j C_ij + v_j
        self.v = np.zeros(cost.shape[1])
        self.lowest, self.largest = np.inf, -np.inf  # of the finite costs

    @property
    def span(self) -> float:
        """Range of the finite costs, 1 if they are all equal or none is finite."""
        return self.largest - self.lowest if self.largest > self.lowest else 1.0

    def scan(
        self, u: FloatArray, v: FloatArray, t: float, threshold: float, keep: tuple[int, int], title: str
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the `keep` most attractive pairs per row and per column with reduced cost below `threshold`."""
        from warmpot.transport._kernels import cost_range, scan_block

        self.row_min += (v - self.v).min()
        self.v = v
        todo = np.arange(self.cost.shape[0])
        if np.isfinite(threshold):
            todo = np.flatnonzero(self.row_min + u - t < min(threshold, 0.0))
        by_col, col_worst = _lists(self.cost.shape[1], keep[1], threshold), np.full(self.cost.shape[1], threshold)
        candidates = []
        for start in range(0, todo.size, self.block_rows):
            rows = todo[start : start + self.block_rows]
            by_row = _lists(rows.size, keep[0], threshold)
            block = self.cost.block(rows)
            scan_block(block, rows, u, v, t, threshold, by_row, by_col, col_worst, self.row_min)
            if threshold == np.inf:  # the first pass, over all rows
                low, high = cost_range(block)
                self.lowest, self.largest = min(self.lowest, low), max(self.largest, high)
            hit = by_row[1] >= 0
            candidates.append((np.broadcast_to(rows[:, None], hit.shape)[hit], by_row[1][hit], by_row[2][hit]))
            self.report(min(1.0, (start + self.block_rows) / todo.size), title)
        hit = by_col[1] >= 0
        columns = np.broadcast_to(np.arange(hit.shape[0])[:, None], hit.shape)
        candidates.append((by_col[1][hit], columns[hit], by_col[2][hit]))
        rows, cols, cost = (np.concatenate(part) for part in zip(*candidates, strict=True))
        return rows, cols, cost


def _lists(count: int, keep: int, threshold: float) -> tuple[FloatArray, IntArray, FloatArray]:
    return np.full((count, keep), threshold), np.full((count, keep), -1, np.int64), np.empty((count, keep))


def generate(
    cost: BlockCost,
    a: FloatArray,
    b: FloatArray,
    mass: float,
    *,
    tol: float,
    block_rows: int,
    detour: int,
    max_iter: int,
    report: ProgressCallback,
    start: Duals | None = None,
) -> Generated:
    """Solve the exact partial problem for positive `a`, `b` over a cost known by blocks.

    The rounds end when the plan is proven to be within `tol` of the best value, relative to it. `block_rows` rows are
    priced at a time, the slack route costs `detour` times the cost range, `max_iter` limits the pivots of a round, and
    `report` gets the share of each pass that is done. `start` are the dual variables of a similar problem: the first
    pass then finds the pairs of least reduced cost, and the first simplex starts from them.
    """
    scanner, arcs = _Scanner(cost, block_rows, report), _Arcs(cost.shape[1])
    # A column draws on b/a rows at least; a few times as many neighbours rarely leave it short.
    neighbours = min(max(16, 8 * int(np.ceil(min(b.max() / a.mean(), a.size / 8)))), a.size)
    # Rows need arcs of their own only if most of them must be used.
    by_row = min(4, b.size) if mass > a.sum() / 2 else 0
    keep = (by_row, neighbours)
    first = Duals(np.zeros(a.size), np.zeros(b.size), 0.0) if start is None else start
    arcs.add(*scanner.scan(*first, np.inf, keep, "pricing, round 1"))
    for rounds in range(2, MAX_ROUNDS + 1):
        span = scanner.span
        cheapest = scanner.lowest if scanner.lowest < np.inf else 0.0  # all pairs may be forbidden
        flow = arcs.solve(a, b, mass, cheapest + detour * span, max_iter, start)
        start = Duals(flow.u, flow.v, flow.t)
        u, v, t, complete = flow.u, flow.v, flow.t, flow.finished and flow.slack == 0
        keep = by_row, neighbours if flow.slack > 0 else min(8, a.size)
        pairs = scanner.scan(u, v, t, -ZERO * span, keep, f"pricing, round {rounds}")
        # Rows with a pair of negative reduced cost pay for it: these potentials are feasible for all pairs.
        raised, value = np.maximum(u, t - scanner.row_min), arcs.value(flow.plan)
        proven = complete and value - proven_bound(mass, t, a, raised, b, v) <= tol * abs(value)
        new = 0 if proven else arcs.add(*pairs)
        if new == 0:
            break
    if proven:
        u = raised
    else:  # what is below zero is subtracted from t: then (u, v, t) is feasible for every pair, rigorously
        t = min(t, float((scanner.row_min + u).min()))
    plan, missing = trim_sparse(flow.plan, a, b, mass)
    return Generated(plan, arcs.value(plan), u, v, t, missing, span, flow.finished and new == 0, rounds)


class _Matrix:
    """A cost matrix as a `BlockCost`."""

    def __init__(self, cost: FloatArray) -> None:
        self.cost, self.shape = cost, (cost.shape[0], cost.shape[1])

    def block(self, rows: IntArray) -> FloatArray:
        if rows[-1] - rows[0] + 1 == rows.size:  # consecutive: a view is enough
            return self.cost[rows[0] : rows[-1] + 1]
        return self.cost[rows]


def solve_exact(problem: PartialProblem, *, tol: float = 1e-9, max_iter: int = MAX_PIVOTS) -> Answer:
    """Solve ``min <C, P>``; `tol` is relative to the value, `max_iter` limits the pivots (of each pricing round)."""
    live = problem.live
    if live is not None:
        return problem.extend(solve_exact(problem.restrict(*live), tol=tol, max_iter=max_iter), *live)
    problem = snap_to_movable(problem)
    cost, a, b, mass = problem.cost, problem.a, problem.b, problem.mass
    detour = min(cost.shape) + 2 if problem.forbidden else 2
    rounds = 1
    if cost.size <= ALL_ARCS and not problem.forbidden:
        span = float(np.ptp(cost)) or 1.0
        plan, v, finished = _solve_dense(cost, a, b, mass, max_iter)
    elif cost.size <= ALL_ARCS:
        rows, cols = np.nonzero(cost < np.inf)
        arcs = (rows, cols, cost[rows, cols])
        span = float(np.ptp(arcs[2])) or 1.0
        flow = _solve_arcs(arcs, a, b, mass, float(arcs[2].min()) + detour * span, max_iter)
        plan, v, finished = flow.plan.toarray(), flow.v, flow.finished
    else:
        sparse, _, _, v, _, _, span, finished, rounds = generate(
            _Matrix(cost), a, b, mass, tol=tol,
            block_rows=BLOCK_ROWS, detour=detour, max_iter=max_iter, report=lambda share, text, expected=0.0: None,  # noqa: ARG005
        )  # fmt: skip
        plan = sparse.toarray()
    feasible = to_feasible(problem, plan)
    dual_value, u, t = lower_bound(problem, v)
    value = linear_cost(feasible, cost)
    status = optimality(value, dual_value, tol, mass * span, finished)
    return Answer(feasible, u, v, t, value, dual_value, status, rounds, mass)


def optimality(value: float, dual_value: float, tol: float, scale: float, finished: bool) -> Status:
    """Status of an exact solve: the gap must be within `tol` of the value, or rounding of costs of size `scale`."""
    if not finished:
        return Status.MAX_ITER
    return Status.OPTIMAL if value - dual_value <= tol * abs(value) + 1e-11 * scale else Status.ROUNDING


def snap_to_movable(problem: PartialProblem) -> PartialProblem:
    """Compare the mass with what pairs of finite cost can move: snap it there up to rounding, raise beyond."""
    if not problem.forbidden:
        return problem
    rows, cols = np.nonzero(problem.cost < np.inf)
    arcs, limit = (rows, cols, np.zeros(rows.size)), float(min(problem.a.sum(), problem.b.sum()))
    most = _solve_arcs(arcs, problem.a, problem.b, limit, slack_cost=2.0, max_iter=MAX_PIVOTS)
    movable = float(most.plan.toarray().sum())
    if problem.mass > movable * (1 + 1e-9):
        raise infeasible(problem.mass, movable)
    return replace(problem, mass=min(problem.mass, movable))


def to_feasible(problem: PartialProblem, plan: FloatArray) -> FloatArray:
    """Round `plan`, which is overwritten; around forbidden pairs the missing mass goes along augmenting paths."""
    from warmpot.transport._kernels import augment_to, round_plan

    missing = round_plan(plan, problem.a, problem.b, problem.mass, not problem.forbidden)
    if problem.forbidden and missing > 1e-14 * problem.mass:
        allowed = np.where(problem.cost < np.inf, 0.0, np.inf)
        plan = augment_to(allowed, plan / problem.mass, problem.a / problem.mass, problem.b / problem.mass)
        plan *= problem.mass
    return plan
