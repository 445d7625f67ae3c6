"""Exact plans by columns: a linear program on POT's network simplex over the pairs that can matter.

The partial problem becomes a balanced one by two *reservoirs*: what a row does not send goes to a column reservoir,
what a column does not receive comes from a row reservoir, both free of charge, and no arc joins the two, so exactly
`mass` crosses the given arcs. A *slack* route from every row to every column at a price above any real route keeps the
network feasible whatever arcs are given; its flow is the mass that the arcs could not carry.

*Column generation* finds the plan from a small, growing set of arcs: only pairs that could carry mass. A round solves
the problem on the arcs it has, then *prices* all pairs with its potentials: a pair of negative reduced cost
``C_ij + u_i + v_j - t`` would lower the value, so the most negative ones of each row and column are added. When none is
left the potentials are feasible for all pairs, which proves the plan optimal: the last pricing pass is the certificate.
Before that, a pass proves how far from optimal the plan can be, which may be close enough.
The first pass is the same scan without a threshold, with the potentials of a similar problem, or with zeros: then it
finds nearest neighbours.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from warmpot._progress import ProgressCallback
from warmpot._typing import FloatArray, IntArray
from warmpot.transport.certify import bound_from, trim_sparse
from warmpot.transport.problem import proven_bound

__all__ = ["BALANCED", "FINISHED", "BlockCost", "ColumnGeneration", "Duals", "Generated", "MatrixCost", "solve_arcs"]

FINISHED = 1  # return code of POT's simplex at an optimum
BALANCED = 1e-13  # a reservoir below this share of the mass is rounding and is left out
ZERO = 1e-12  # reduced costs above minus this share of the largest cost are float64 noise of the costs
MAX_ROUNDS = 100


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


def solve_arcs(
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
    scale = float(cost.max() - shift) if cost.size and cost.max() > shift else slack_cost - shift
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

    It lacks `missing` of the mass: what the finite pairs cannot carry, or an unfinished simplex has not placed. It is
    rounding only if the plan is `complete`: then nothing takes the slack route.
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
    complete: bool


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
        flow = solve_arcs((compact, cols, self.cost), supply, b, mass, slack_cost, max_iter, start)
        plan = flow.plan.tocoo()
        u = np.zeros(a.size)
        u[used] = flow.u[: used.size]
        full = csr_array((plan.data, (used[plan.row], plan.col)), shape=(a.size, b.size))
        return flow._replace(plan=full, u=u)

    def duals(self, a: FloatArray, b: FloatArray, mass: float) -> Duals:
        """Return the best dual variables if rows had no limit: each column pays its lowest cost, up to t."""
        paid = np.full(b.size, np.inf)
        np.minimum.at(paid, self.key % self.n_cols, self.cost)
        u = np.zeros(a.size)
        _, v, t = bound_from(paid, b, a, mass, u)  # that of the transposed problem
        return Duals(u, v, t)

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
        """Range of the finite costs; if they are all equal their size, at least 1, which is 1 if none is finite."""
        if self.largest > self.lowest:
            return self.largest - self.lowest
        return max(1.0, abs(self.lowest)) if self.lowest < np.inf else 1.0

    def scan(
        self, u: FloatArray, v: FloatArray, t: float, threshold: float, keep: tuple[int, int], title: str
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return the `keep` most attractive pairs per row and per column with reduced cost below `threshold`."""
        from warmpot.transport._kernels import cost_range, row_minima, scan_block

        self.row_min += (v - self.v).min()
        self.v = v
        todo, first = np.arange(self.cost.shape[0]), threshold == np.inf
        if not first:
            todo = np.flatnonzero(self.row_min + u - t < min(threshold, 0.0))
        by_col, col_worst = _lists(self.cost.shape[1], keep[1], threshold), np.full(self.cost.shape[1], threshold)
        candidates, rough = [], None
        for start in range(0, todo.size, self.block_rows):
            rows = todo[start : start + self.block_rows]
            rough = self._rough_block(rows)
            if rough is not None and not first:  # rows that the bounds leave open are priced exactly
                row_minima(rough, rows, v, self.row_min)
                rows, rough = rows[self.row_min[rows] + u[rows] - t < min(threshold, 0.0)], None
            by_row = _lists(rows.size, keep[0], threshold)
            block = self.cost.block(rows) if rough is None else rough
            scan_block(block, rows, u, v, t, threshold, by_row, by_col, col_worst, self.row_min)
            if first:  # over all rows
                low, high = cost_range(block)
                self.lowest, self.largest = min(self.lowest, low), max(self.largest, high)
            hit = by_row[1] >= 0
            candidates.append((np.broadcast_to(rows[:, None], hit.shape)[hit], by_row[1][hit], by_row[2][hit]))
            self.report(min(1.0, (start + self.block_rows) / todo.size), title)
        hit = by_col[1] >= 0
        columns = np.broadcast_to(np.arange(hit.shape[0])[:, None], hit.shape)
        candidates.append((by_col[1][hit], columns[hit], by_col[2][hit]))
        rows, cols, cost = (np.concatenate(part) for part in zip(*candidates, strict=True))
        return rows, cols, cost if rough is None else self.cost.pairs(rows, cols)  # type: ignore[attr-defined]

    def _rough_block(self, rows: IntArray) -> Any:
        """Return lower bounds of the costs, where the cost has them.

        They are enough to look for candidates in the first pass, and to see which rows have no attractive pair.
        """
        bounds = getattr(self.cost, "rough_block", None)
        return None if bounds is None else bounds(rows)


def _lists(count: int, keep: int, threshold: float) -> tuple[FloatArray, IntArray, FloatArray]:
    return np.full((count, keep), threshold), np.full((count, keep), -1, np.int64), np.empty((count, keep))


class ColumnGeneration:
    """Solves the exact partial problem for positive `a`, `b` over a cost known by blocks, for one mass after another.

    `block_rows` rows are priced at a time, and `report` gets the share of each pass that is done. Rows have arcs of
    their own from the start (`by_row`) if most of them must be used. `start` are the dual variables of a similar
    problem: the first pass then finds the pairs of least reduced cost, and the first simplex starts from them. Without,
    it starts from those of the problem without limits of rows.
    """

    def __init__(
        self, cost: BlockCost, a: FloatArray, b: FloatArray, *, block_rows: int, report: ProgressCallback, by_row: bool,
        start: Duals | None = None,
    ) -> None:  # fmt: skip
        self.a, self.b, self.start = a, b, start
        self.scanner, self.arcs = _Scanner(cost, block_rows, report), _Arcs(cost.shape[1])
        # A column draws on b/a rows at least; a few times as many neighbours rarely leave it short.
        self.neighbours = min(max(16, 8 * int(np.ceil(min(b.max() / a.mean(), a.size / 8)))), a.size)
        self.by_row = min(4, b.size) if by_row else 0
        first = Duals(np.zeros(a.size), np.zeros(b.size), 0.0) if start is None else start
        self.arcs.add(*self.scanner.scan(*first, np.inf, (self.by_row, self.neighbours), "pricing, round 1"))

    def solve(self, mass: float, *, tol: float, detour: int, max_iter: int) -> Generated:
        """Move `mass`, from the arcs and the dual variables of the last solve.

        The rounds end when the plan is proven to be within `tol` of the best value, relative to it. The slack route
        costs `detour` times the cost range, and `max_iter` limits the pivots of a round.
        """
        a, b, scanner, arcs, span = self.a, self.b, self.scanner, self.arcs, self.scanner.span
        cheapest = scanner.lowest if scanner.lowest < np.inf else 0.0  # all pairs may be forbidden
        self.start = arcs.duals(a, b, mass) if self.start is None else self.start
        for rounds in range(2, MAX_ROUNDS + 1):
            flow = arcs.solve(a, b, mass, cheapest + detour * span, max_iter, self.start)
            u, v, t, complete = flow.u, flow.v, flow.t, flow.finished and flow.slack == 0
            self.start = Duals(u, v, t)
            keep = self.by_row, self.neighbours if flow.slack > 0 else min(8, a.size)
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
        finished = flow.finished and new == 0
        return Generated(plan, arcs.value(plan), u, v, t, missing, span, finished, rounds, complete and new == 0)


class MatrixCost:
    """A cost matrix as a `BlockCost`."""

    def __init__(self, cost: FloatArray) -> None:
        self.cost, self.shape = cost, (cost.shape[0], cost.shape[1])

    def block(self, rows: IntArray) -> FloatArray:
        """Return some rows."""
        if rows[-1] - rows[0] + 1 == rows.size:  # consecutive: a view is enough
            return self.cost[rows[0] : rows[-1] + 1]
        return self.cost[rows]
