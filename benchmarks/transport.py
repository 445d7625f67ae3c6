"""Speed of `warmpot.transport` as ratios to POT, both measured in this run, on this machine.

python benchmarks/transport.py [--cases NAME ...] [--quick] [--check] [--data DIR] [--out FILE]

Every case times the public function with all its checks. Small cases are hot: median over repeats and random
batches.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from _jobs import ROOT
from _rows import Outcome, Row, in_subprocess, peak_bytes, run, timed
from numpy.typing import NDArray

from warmpot.transport import (
    Duals,
    partial_path,
    solve_partial,
    solve_partial_batch,
    solve_partial_points,
    solve_unbalanced,
    step_plan,
)

RESULTS = ROOT / "benchmarks" / "results" / "transport.json"
MASS, BETA, EPS, TOL = 0.8, 0.35, 7.0, 1e-9
JUMBOT_TAU, JUMBOT_EPS, JUMBOT_COST = 0.06, 0.01, 0.75 / 7  # its constants; its label weight over the 7 of our cost
BATCH = 65
STAND_IN = "synthetic stand-in for Office-Home"
Floats = NDArray[np.float64]


@dataclass
class Inputs:
    """The joint cost .5 * distance + 7 * cross-entropy between two domains, computed when first needed."""

    data: Path
    quick: bool

    @property
    def name(self) -> str:
        """What the numbers are measured on."""
        real = (self.data / "office_home" / "Product.npz").exists()
        return "Office-Home Product -> RealWorld" if real else STAND_IN

    @cached_property
    def all_classes(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Cost between all samples, and which targets are of the first 25 classes."""
        xs, ys, xt, yt = synthetic_domains() if self.name == STAND_IN else real_domains(self.data)
        return joint_cost(xs, ys, xt), yt < 25

    @cached_property
    def first_25(self) -> Floats:
        """Cost to the targets of the first 25 classes: the partial task."""
        cost, shared = self.all_classes
        return np.ascontiguousarray(cost[:, shared])

    def sample(self, n: int, count: int = 1, *, every_class: bool = False) -> list[Floats]:
        """Draw `count` random n x n parts of the cost."""
        cost = self.all_classes[0] if every_class else self.first_25
        rng = np.random.default_rng(0)
        parts = [[rng.choice(size, n, replace=False) for size in cost.shape] for _ in range(count)]
        return [np.ascontiguousarray(cost[np.ix_(rows, cols)]) for rows, cols in parts]


def real_domains(data: Path) -> tuple[NDArray[Any], ...]:
    source, target = (np.load(data / "office_home" / f"{name}.npz") for name in ("Product", "RealWorld"))
    return source["X"].astype(np.float64), source["y"], target["X"].astype(np.float64), target["y"]


def synthetic_domains() -> tuple[NDArray[Any], ...]:
    """Two gaussian mixtures of 65 classes in 256 dims, of the sizes of Product and RealWorld."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(65, 256))
    ys, yt = rng.integers(65, size=4439), rng.integers(65, size=4357)
    xs = 1.5 * (centres[ys] + 1.2 * rng.normal(size=(ys.size, 256)))
    xt = 1.5 * (centres[yt] + 0.3 + 1.2 * rng.normal(size=(yt.size, 256)))
    return xs, ys, xt, yt


def joint_cost(xs: Floats, ys: NDArray[Any], xt: Floats) -> Floats:
    from scipy.spatial.distance import cdist
    from sklearn.linear_model import LogisticRegression

    unit_s, unit_t = (10 * x / np.linalg.norm(x, axis=1, keepdims=True) for x in (xs, xt))
    head = LogisticRegression(max_iter=1000).fit(unit_s, ys)
    cost: Floats = 0.5 * cdist(xs, xt) - 7.0 * head.predict_log_proba(unit_t).T[np.searchsorted(head.classes_, ys)]
    return cost


def weights(shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    n, m = shape
    return np.full(n, 1 / (BETA * n)), np.full(m, 1 / m)


def ours(cost: Floats, eps: float | None = EPS) -> Any:
    return solve_partial(cost, *weights(cost.shape), mass=MASS, eps=eps, tol=TOL)


def ours_exact(cost: Floats) -> Any:
    return ours(cost, None)


def pot_entropic(cost: Floats, eps: float = EPS, logscale: bool = False) -> Floats:
    import ot

    solver = ot.partial.entropic_partial_wasserstein_logscale if logscale else ot.partial.entropic_partial_wasserstein
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(solver(*weights(cost.shape), cost, eps, m=MASS))


def pot_exact(cost: Floats) -> Floats:
    import ot

    return np.asarray(ot.partial.partial_wasserstein(*weights(cost.shape), cost, m=MASS, numItermax=10**9))


def residual(plan: Floats) -> float:
    """Largest violation of the rows, the columns and the mass, relative to the mass."""
    a, b = weights(plan.shape)
    over = max((plan.sum(axis=1) - a).max(), (plan.sum(axis=0) - b).max(), abs(plan.sum() - MASS))
    return float(max(0.0, over)) / MASS


# --- the cases: each returns its rows and, for some, a record for the JSON -----------------
def entropic_65(case: str, floor: float, logscale: bool, relative: float | None, inputs: Inputs) -> Outcome:
    """65 x 65 batches against one of POT's entropic solvers, with the worst residuals of both."""
    times, residuals = [], []
    for cost in inputs.sample(BATCH, 3 if inputs.quick else 10):
        eps = EPS if relative is None else relative * float(np.median(cost))
        ours(cost, eps)
        mine, solution = timed(ours, cost, eps, repeats=21)
        theirs, peer = timed(pot_entropic, cost, eps, logscale)
        times.append((mine, theirs))
        residuals.append((residual(solution.plan), residual(peer)))
    (mine, theirs), (own, other) = np.median(times, axis=0).tolist(), np.max(residuals, axis=0).tolist()
    name, notes = "entropic_partial_wasserstein" + "_logscale" * logscale, f"residual {own:.0e}, peer {other:.0e}"
    return [Row(case, mine, theirs, name, floor, notes, passed=own <= max(other, 1e-12))], None


def step_65(inputs: Inputs) -> Outcome:
    """Return the row of the plans of training steps: float32 tensors of 65 x 65, against POT on the same numbers."""
    import torch

    times = []
    for cost in inputs.sample(BATCH, 3 if inputs.quick else 10):
        step = partial(step_plan, torch.tensor(cost, dtype=torch.float32), weights(cost.shape)[0], mass=MASS, eps=EPS)
        step()
        times.append((timed(step, repeats=21)[0], timed(pot_entropic, cost)[0]))
    mine, theirs = np.median(times, axis=0).tolist()
    return [Row("step of training, 65 x 65 float32", mine, theirs, "entropic_partial_wasserstein")], None


def entropic_1024(inputs: Inputs) -> Outcome:
    cost = inputs.sample(1024)[0]
    ours(cost)
    before, solution = timed(ours, cost, repeats=11)
    case = "entropic 1024 x 1024, eps 7"
    if inputs.quick:
        return [Row(case, before, notes="peer skipped (--quick)")], None
    theirs, peer = timed(pot_entropic, cost)
    mine = (before + timed(ours, cost, repeats=11)[0]) / 2  # the peer takes long: other load may have changed
    notes = f"residual {residual(solution.plan):.0e}, peer {residual(peer):.0e}"
    return [Row(case, mine, theirs, "entropic_partial_wasserstein", 1000, notes)], None


def exact_whole(inputs: Inputs) -> Outcome:
    cost = inputs.first_25
    ours_exact(cost)
    mine, solution = timed(ours_exact, cost, repeats=3)
    theirs, peer = timed(pot_exact, cost)
    difference = abs(float((peer * cost).sum()) - solution.value) / solution.value
    case, notes = "exact {} x {}".format(*cost.shape), f"values differ by {difference:.0e}, gap {solution.gap:.0e}"
    return [Row(case, mine, theirs, "partial_wasserstein", 10, notes, passed=difference <= 1e-6)], None


def exact_small(n: int, inputs: Inputs) -> Outcome:
    """N x n, where a call costs more than the simplex; ours returns a certificate, the peer none."""
    times, differences = [], []
    for cost in inputs.sample(n, 5):
        ours_exact(cost)
        mine, solution = timed(ours_exact, cost, repeats=21)
        theirs, peer = timed(pot_exact, cost, repeats=21)
        times.append((mine, theirs))
        differences.append(abs(float((peer * cost).sum()) - solution.value) / solution.value)
    mine, theirs = np.median(times, axis=0).tolist()
    notes, passed = f"values differ by {max(differences):.0e}", max(differences) <= 1e-6
    return [Row(f"exact {n} x {n}", mine, theirs, "partial_wasserstein", notes=notes, passed=passed)], None


def alternation(inputs: Inputs) -> Outcome:
    """All plans of a training with the full engine, each from the last one; the peer is the same without a start."""
    import warmpot
    from warmpot.methods import warmpot as method
    from warmpot.transport.columns import MatrixCost

    problems, solve = [], method.solve_partial_blocks

    def recorded(cost: Any, **options: Any) -> Any:
        problems.append((MatrixCost(cost.block(np.arange(cost.shape[0]))), options["a"], options["mass"]))
        return solve(cost, **options)

    xs, ys, xt, yt = synthetic_domains() if inputs.name == STAND_IN else real_domains(inputs.data)
    method.solve_partial_blocks = recorded  # type: ignore[assignment]
    try:
        warmpot.fit((xs, ys), xt[yt < 25], progress_bar=False)
    finally:
        method.solve_partial_blocks = solve

    def plans(warm: bool) -> list[float]:
        start, values = None, []
        for cost, a, mass in problems:
            solution = solve(cost, a=a, mass=mass, progress_bar=False, throw=False, start=start if warm else None)
            start = Duals(*solution.potentials, solution.slope)
            values.append(float(solution.value))
        return values

    seconds: dict[bool, list[float]] = {True: [], False: []}
    values = {}
    for warm in (True, False) * 3:  # in turn, so that other load falls on both
        begin = time.process_time()
        values[warm] = plans(warm)
        seconds[warm].append(time.process_time() - begin)
    difference = float(np.abs(np.divide(values[True], values[False]) - 1).max())
    notes = f"peer: the same without a start; values differ by {difference:.0e}; CPU seconds"
    case = f"exact, {len(problems)} plans of an alternation"
    return [Row(case, min(seconds[True]), min(seconds[False]), "without a start", None, notes, difference < 1e-9)], None


def path(inputs: Inputs) -> Outcome:
    """Time the value for every mass up to an error of 1e-3; the peer is the exact curve."""
    cost = inputs.first_25
    a, b = weights(cost.shape)
    mine, curve = timed(lambda: partial_path(cost, a, b, tol=1e-3), repeats=3)
    case = "curve of {} x {}, error 1e-3".format(*cost.shape)
    if inputs.quick:
        return [Row(case, mine, notes="peer skipped (--quick)")], None
    theirs, exact = timed(lambda: partial_path(cost, a, b))
    error = np.abs(np.interp(exact.masses, curve.masses, curve.values) - exact.values).max() / exact.values.max()
    notes = f"peer: exact; {curve.masses.size} points of {exact.masses.size}, largest error {error:.0e}"
    return [Row(case, mine, theirs, "exact curve", None, notes, bool(error <= 1e-3))], None


def entropic_256(inputs: Inputs) -> Outcome:
    """256 x 256 at an eps of a thousandth of the median cost, against POT in logarithms."""
    cost = inputs.sample(256)[0]
    eps = 1e-3 * float(np.median(cost))
    ours(cost, eps)
    mine, solution = timed(ours, cost, eps, repeats=5)
    theirs, peer = timed(pot_entropic, cost, eps, True)
    own, other = residual(solution.plan), residual(peer)
    notes = f"residual {own:.0e}, peer {other:.0e}"
    case = "entropic 256 x 256, eps = median / 1000"
    return [Row(case, mine, theirs, "entropic_partial_wasserstein_logscale", 100, notes, passed=own <= other)], None


def batch_64(inputs: Inputs) -> Outcome:
    costs = np.stack(inputs.sample(BATCH, 64))
    batch = partial(solve_partial_batch, costs, *weights(costs.shape[1:]), mass=MASS, eps=EPS, tol=TOL)
    batch()
    mine, _ = timed(batch, repeats=11)
    loop, _ = timed(lambda: [ours(cost) for cost in costs], repeats=11)
    theirs, _ = timed(lambda: [pot_entropic(cost) for cost in costs])
    name, notes = "loop over entropic_partial_wasserstein", f"{loop / mine:.1f} x a loop over solve_partial"
    passed = loop / mine >= (1.8 if (os.cpu_count() or 1) > 1 else 1.0)
    row = Row("batch of 64 entropic 65 x 65", mine, theirs, name, notes=notes, passed=passed)
    return [row], {"loop_seconds": loop}


def pot_unbalanced(cost: Floats, method: str) -> Floats:
    import ot

    n, m = cost.shape
    solve = partial(ot.unbalanced.sinkhorn_unbalanced, method=method, reg_type="entropy", numItermax=10_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(solve(np.full(n, 1 / n), np.full(m, 1 / m), cost, JUMBOT_EPS, JUMBOT_TAU, stopThr=1e-9))


def unbalanced_65(method: str, inputs: Inputs) -> Outcome:
    """65 x 65 batches at JUMBOT's constants; the error of POT's plan is relative to our plan, which is certified."""
    times, errors, gaps, masses = [], [], [], []
    for sample in inputs.sample(BATCH, 3 if inputs.quick else 10):
        cost = JUMBOT_COST * sample
        solve = partial(solve_unbalanced, cost, tau=JUMBOT_TAU, eps=JUMBOT_EPS)
        solve()
        own, solution = timed(solve, repeats=21)
        other, plan = timed(pot_unbalanced, cost, method)
        times.append((own, other))
        mass = float(solution.plan.sum())
        errors.append(float(np.abs(np.nan_to_num(plan) - solution.plan).sum()) / mass)
        gaps.append(solution.gap / mass)
        masses.append((mass, float(plan.sum())))
    own, other = np.median(times, axis=0).tolist()
    notes = f"gap {max(gaps):.0e} of the mass; peer: error of the plan {max(errors):.2g}"
    wrong = max(errors) > 0.01  # then a ratio of times means nothing
    case = f"unbalanced 65 x 65, tau {JUMBOT_TAU}, eps {JUMBOT_EPS}" + " (peer stabilised)" * (method != "sinkhorn")
    row = Row(case, own, None if wrong else other, f"sinkhorn_unbalanced, {method}", notes=notes)
    return [row], {"errors": errors, "masses": masses, "peer_seconds": other}


def points_100k(inputs: Inputs) -> Outcome:
    if inputs.quick:
        return [], None
    record = in_subprocess("points")
    notes = f"gap {record['gap']:.0e} of {record['value']:.4g}, peak memory {record['peak_gib']:.2f} GiB (limit 4)"
    passed = record["status"] == "OPTIMAL" and record["peak_gib"] < 4
    return [Row("exact 100,000 x 10,000 points, 256 dims", record["seconds"], notes=notes, passed=passed)], record


def first_call(_: Inputs) -> Outcome:
    """Time to the first answer of a new process, its imports included, with and without numba's cache."""
    with tempfile.TemporaryDirectory() as folder:
        record = {state: in_subprocess("first", NUMBA_CACHE_DIR=folder) for state in ("empty cache", "cached")}
    rows = [Row(f"first call, {solver}, {state}", part[solver]) for state, part in record.items() for solver in part]
    return rows, record


def scaling(inputs: Inputs) -> Outcome:
    """Time against n; a peer is followed until a call takes more than two seconds."""
    solvers = {"entropic": ours, "exact": ours_exact, "POT entropic": pot_entropic, "POT exact": pot_exact}
    record: dict[str, Any] = {name: {"n": [], "seconds": []} for name in solvers}
    for n in [2**k for k in range(6, 11 if inputs.quick else 13)]:
        cost = inputs.sample(n, every_class=True)[0]
        for name, solve in solvers.items():
            curve = record[name]
            if name.startswith("POT") and curve["seconds"] and curve["seconds"][-1] > 2:
                continue
            if not name.startswith("POT"):
                solve(cost)
            curve["n"].append(n)
            curve["seconds"].append(timed(solve, cost, repeats=5 if n <= 1024 else 1)[0])
    rows = [Row(f"time at n = {n}, {name}", record[name]["seconds"][-1]) for name in ("entropic", "exact")]
    return rows, record


def memory(_: Inputs) -> Outcome:
    """Peak memory of a solve on top of the cost matrix, 4096 x 4096, in cost matrices."""
    record = {name: in_subprocess(f"memory-{name}") for name in ("entropic", "exact")}
    notes = "peak memory: the cost + {matrices:.1f} times its size"
    rows = [Row(f"memory at n = 4096, {name}", x["seconds"], notes=notes.format(**x)) for name, x in record.items()]
    return rows, record


CASES: dict[str, Callable[[Inputs], Outcome]] = {
    "entropic-65": partial(entropic_65, "entropic 65 x 65, eps 7", 300, False, None),
    "entropic-65-log": partial(entropic_65, "entropic 65 x 65, eps 7 (peer in logs)", 1000, True, None),
    "entropic-65-small-eps": partial(entropic_65, "entropic 65 x 65, eps = median / 100", 100, True, 0.01),
    "entropic-256-small-eps": entropic_256,
    "step-65": step_65,
    "entropic-1024": entropic_1024,
    "exact-65": partial(exact_small, 65),
    "exact-128": partial(exact_small, 128),
    "exact-whole": exact_whole,
    "alternation": alternation,
    "path": path,
    "batch-64": batch_64,
    "unbalanced-65": partial(unbalanced_65, "sinkhorn"),
    "unbalanced-65-stabilized": partial(unbalanced_65, "sinkhorn_stabilized"),
    "points-100k": points_100k,
    "first-call": first_call,
    "scaling": scaling,
    "memory": memory,
}


# --- what runs in a process of its own ------------------------------------------------------------------------
def mixture(n_s: int, n_t: int, dim: int = 256) -> tuple[Floats, Floats]:
    """Source from 50 gaussians, target from the first 20 of them, shifted by .3."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(50, dim))
    xs = centres[rng.integers(50, size=n_s)] + rng.normal(size=(n_s, dim))
    xt = centres[rng.integers(20, size=n_t)] + rng.normal(size=(n_t, dim)) + 0.3
    return xs, xt


def work_points() -> dict[str, Any]:
    xs, xt = mixture(100_000, 10_000)
    taken, plan = timed(lambda: solve_partial_points(xs, xt, beta=BETA, mass=MASS, progress_bar=False))
    facts = {"gap": plan.gap, "value": plan.value, "rounds": plan.n_iter, "status": plan.status.name}
    return {"seconds": taken, **facts, "peak_gib": peak_bytes() / 2**30}


def work_first() -> dict[str, Any]:
    cost = np.random.default_rng(0).random((200, 200))  # above the size where the exact solver needs numba
    entropic, _ = timed(lambda: solve_partial(cost, mass=MASS, eps=0.1))
    exact, _ = timed(lambda: solve_partial(cost, mass=MASS))
    imported, _ = timed(importlib.import_module, "ot")  # for comparison: the exact solver loads its simplex only
    return {"entropic": entropic, "exact": exact, "importing POT alone": imported}


def work_memory(eps: float | None) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    solve_partial(rng.random((200, 200)), mass=MASS, eps=eps)  # load and compile
    cost = rng.random((4096, 4096))
    before = peak_bytes()
    taken, _ = timed(lambda: solve_partial(cost, mass=MASS, eps=eps))
    return {"seconds": taken, "matrices": (peak_bytes() - before) / cost.nbytes}


WORKERS: dict[str, Callable[[], dict[str, Any]]] = {
    "points": work_points,
    "first": work_first,
    "memory-entropic": partial(work_memory, 0.1),
    "memory-exact": partial(work_memory, None),
}


if __name__ == "__main__":
    sys.exit(run(__doc__ or "", CASES, Inputs, RESULTS, WORKERS))
