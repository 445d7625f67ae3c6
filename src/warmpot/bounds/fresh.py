"""New target samples: the loss of an adapted classifier on the target population, certified on samples it never saw.

The target is split into part A, which the classifier is adapted to, and part B, m samples that nothing depends on.
Given the source and part A, everything is fixed: features f, head g, and a *matching rule* T that names for any target
sample x a source sample, or none. With the cost ``c_i(x) = l_i + gamma ||f(x_i) - f(x)|| + l(y_i, w(x))`` of the sharp
form of Theorem 3.3, and prices u of the source samples from part A,

    T(x) = argmin_i c_i(x) + u_i  if that is at most 1, otherwise none.

Then ``z(x) = c_T(x)``, or 1 where T is none, is a function of one sample with values in [0, 1], and for every target
sample with label y and every head g' of the set (the steps of the proof of Theorem 3.3, for one matched sample)

    l(w(x), y)  <=  gamma ||f(x_T) - f(x)|| + l(y_T, w(x)) + l(g'(f(x_T)), y_T) + l(g'(f(x)), y).

The mean over the population gives ``L <= E z + ideal term``, where the ideal term is a number and not random.
``z(X_j)`` over part B are independent draws, whatever part A did: an interval for their mean
(`warmpot.bounds.intervals`) turns ``E z`` into a number that holds with probability ``1 - delta``. No divergence, no
random heads. docs/theory.md has the proof.

The *plan-label form* uses less: ``l(w(x), y) <= l(y_T, w(x)) + l(y_T, y)`` by the triangle inequality, so with v(x) the
first term, ``L <= E v + M``: the only unknown is M, the share of samples that are matched with a source sample of
another class. It holds for any plan, too (`plan_label_bound`). Here a sample left out costs 1 and a match at most that,
so T matches every sample, at the prices of alpha = 1.

Both inequalities are per sample, so they hold for any part of the samples that is chosen without labels: those of one
predicted class, or the most certain ones (`group_bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import check_fraction
from warmpot._typing import Array, BoolArray, FloatArray
from warmpot.bounds._plans import PlanCost
from warmpot.bounds.intervals import upper_bound_of_mean
from warmpot.bounds.report import BoundReport, PlanRecord, Term
from warmpot.bounds.theorems import BoundProblem
from warmpot.errors import InputError

__all__ = [
    "PLAN_LABELS", "FreshBounds", "Group", "SampleBounds", "check_unseen", "coverage_groups", "fresh_bounds",
    "group_bounds", "plan_label_bound", "sample_bounds",
]  # fmt: skip

FIXED = "none: alpha, beta and prices are set by the samples seen; to choose a beta by the fresh ones, divide delta"

PLAN_LABELS = "Plan labels"
"""The theorem that reports of the plan-label form name."""
NEW = ", new target samples"
MISMATCH = "share of the target that is matched with source samples of another class; needs target labels"
COVERAGES = (0.3, 0.5, 0.7, 1.0)
ROWS = 1024  # source samples per block
SAME = 1e-5
"""Distance, in units of the spread of the samples, up to which two are the same: last bits depend on the batch."""


class SampleBounds(NamedTuple):
    """What bounds the loss of each target sample: ``z`` and ``v``, and which share of it the plan of v matches."""

    joint: FloatArray
    labels: FloatArray
    matched: FloatArray


def sample_bounds(problem: BoundProblem, plan: csr_array) -> SampleBounds:
    """Split the sharp form of Theorem 3.3 and the plan-label form into one number per target sample."""
    entries, m = plan.tocoo(), problem.shape[1]
    rows, cols, mass = entries.row, entries.col, m * entries.data
    unlike = problem.matched_label_losses(rows, cols)
    near = problem.lipschitz.value * problem.matched_distances(rows, cols) + problem.source_losses[rows]

    def per_sample(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(cols, mass * values, m), np.float64)

    matched = per_sample(np.ones(mass.size))
    labels = per_sample(unlike) + np.maximum(0.0, 1.0 - matched)
    return SampleBounds(per_sample(near) + labels, labels, matched)


def plan_label_bound(problem: BoundProblem, plan: csr_array, base: BoundReport) -> BoundReport:
    """Return the plan-label form ``L <= <l(y, w), P> + (1 - alpha) + M`` for the plan of another bound (ours).

    M is the mass that the plan moves between different classes; of continuous labels, the mean loss between them.
    """
    entries = plan.tocoo()
    unlike = float(entries.data @ problem.matched_label_losses(entries.row, entries.col))
    terms = (
        Term("transport, labels", unlike, "source labels against predictions on the matched target"),
        Term("target left out", max(0.0, 1.0 - base.alpha), "target mass the plan does not match"),
        Term("M", None, MISMATCH, computable=False),
    )
    return replace(base, theorem=PLAN_LABELS, terms=terms, form="sharp", notes=())


@dataclass(frozen=True)
class FreshBounds:
    """Certificates from fresh target samples.

    Attributes
    ----------
    joint, labels : BoundReport
        Theorem 3.3 in its sharp form, and the plan-label form; each holds with probability `joint.confidence`.
    samples : SampleBounds
    problem : BoundProblem
        Of the source and the fresh samples.
    label_plan : (n_s, m) sparse array
        The matches of the plan-label form, each of mass ``1/m``.
    """

    joint: BoundReport
    labels: BoundReport
    samples: SampleBounds
    problem: BoundProblem
    label_plan: csr_array


def fresh_bounds(
    seen: BoundProblem,
    target: Array,
    target_proba: Array,
    *,
    beta: float = 1.0,
    delta: float = 0.05,
    interval: str = "betting",
    unseen: bool = False,
) -> FreshBounds:
    """Certify the loss on the target population with target samples that nothing depends on.

    Parameters
    ----------
    seen : BoundProblem
        "joint", of the source and the target samples that the classifier was adapted to: it sets the matching rule.
    target, target_proba
        Features and predictions of the fresh samples: drawn independently from the target, and used for nothing else
        before, in particular not to choose among classifiers.
    beta : float
        Share of the source, in the problem that sets the prices.
    delta : float
        Probability with which each of the two bounds may fail.
    interval : "betting", "bernstein" or "hoeffding"
        See `upper_bound_of_mean`.
    unseen : bool
        Whether it is known that none of them was trained on; otherwise `check_unseen` looks for samples of `seen`.
    """
    if seen.kind != "joint":
        raise InputError("seen", got="Theorem 3.2", allowed='a problem of kind "joint"', remedy="Pass one.")
    delta = check_fraction("delta", delta)
    fresh = BoundProblem(
        "joint", seen.source, seen.labels, target, seen.source_proba, target_proba,
        gamma=seen.lipschitz, loss=seen.loss.name,
    )  # fmt: skip
    copies = 0 if unseen else check_unseen("fresh samples", seen.target, fresh.target)
    plan, every = _matched(fresh, seen.prices(beta), 1.0), _matched(fresh, seen.prices(beta, whole=True), np.inf)
    whole = _report(fresh, every, beta, 1.0 - delta)
    samples = SampleBounds(sample_bounds(fresh, plan).joint, *sample_bounds(fresh, every)[1:])
    base = _report(fresh, plan, beta, 1.0 - delta) if plan.nnz else _nothing(whole)
    joint = _with_interval(base, samples.joint, delta, interval)
    labels = _with_interval(plan_label_bound(fresh, every, whole), samples.labels, delta, interval)
    note = f"{copies} of {fresh.shape[1]} fresh samples equal a sample seen or each other: no bound if these are copies"
    joint, labels = (
        replace(one, theorem=f"{one.theorem}{NEW}", notes=(*one.notes, *([note] if copies else ())))
        for one in (joint, labels)
    )
    return FreshBounds(joint, labels, samples, fresh, every)


def check_unseen(name: str, seen: FloatArray, fresh: FloatArray) -> int:
    """Refuse samples that were trained on: a bound on new samples needs samples that nothing was fitted to.

    Equal samples are not always copies, because some populations repeat themselves: about as many are accepted as the
    samples seen have among themselves, and a twentieth more. Returns how many equal a sample seen, or each other.
    """
    from scipy.spatial import cKDTree  # here: it is slow to import, and fits import this module

    n, m, centre = len(seen), len(fresh), seen.mean(axis=0)
    known, new = seen - centre, fresh - centre
    near = SAME * max(float(np.linalg.norm(known, axis=1).max()), 1e-300)

    def repeated(points: FloatArray, among: FloatArray, times: int) -> BoolArray:
        found: BoolArray = np.isfinite(cKDTree(among).query(points, k=[times], distance_upper_bound=near)[0][:, 0])
        return found

    of_seen = repeated(new, known, 1)
    copies, twins = int(of_seen.sum()), float(repeated(known, known, 2).mean())
    chance = 3.0 * math.sqrt(twins * (1.0 - twins) * m * (1.0 + m / n))  # three standard deviations
    if copies > (twins + 0.05) * m + chance:
        got, allowed = f"{copies} of {m} samples that the run was trained on", "samples that it has not seen"
        raise InputError(name, got=got, allowed=allowed, remedy="Hold some out instead: warmpot fit --holdout 0.3.")
    return int((of_seen | repeated(new, new, 2)).sum())


def _nothing(base: BoundReport) -> BoundReport:
    """Return the bound if no sample can be matched at a cost below 1: it is 1."""
    rest = Term("target left out", 1.0, "no fresh sample can be matched at a cost below 1")
    return replace(base, alpha=0.0, terms=(rest, base.terms[-1]), p=None, q=None)


def _report(problem: BoundProblem, plan: csr_array, beta: float, confidence: float) -> BoundReport:
    """Return the sharp form of the theorem for a plan that matches each sample on its own."""
    n, m = problem.shape
    free = min(1.0, 1.0 / (n * float(np.asarray(plan.sum(axis=1)).max())))  # any beta that this plan is feasible for
    base = problem.report(plan.nnz / m, free, plan=plan, form="sharp")
    rule = PlanRecord("each sample on its own, at prices of the samples seen", "FIXED", None, base.plan.residual)
    note = f"{m} fresh samples; holds if they are independent draws of the target that nothing was fitted to"
    return replace(base, beta=beta, plan=rule, confidence=confidence, union_bound=FIXED, notes=(*base.notes, note))


def _matched(problem: BoundProblem, prices: FloatArray, limit: float) -> csr_array:
    """Match each target sample with the source sample of least cost plus price, unless that is above a limit."""
    n, m = problem.shape
    cost = PlanCost(problem, tightest=True, factor=1)
    least, found = np.full(m, np.inf), np.full(m, -1)
    for start in range(0, n, ROWS):
        rows = np.arange(start, min(start + ROWS, n))
        block = cost.block(rows) + prices[rows, None]
        best = block.argmin(axis=0)
        value = block[best, np.arange(m)]
        found = np.where(value < least, rows[best], found)
        least = np.minimum(value, least)
    cols = np.flatnonzero(least <= limit)
    return csr_array((np.full(cols.size, 1.0 / m), (found[cols], cols)), shape=(n, m))


def _with_interval(report: BoundReport, values: FloatArray, delta: float, interval: str) -> BoundReport:
    """Add what the mean over the population may be above that over the sample."""
    # Rounding: a cost of 1 may come out a little larger.
    above = upper_bound_of_mean(np.clip(values, 0.0, 1.0), delta, interval) - float(values.mean())
    known = [term for term in report.terms if term.computable]
    chance = Term("confidence", max(0.0, above), f"chance in the {values.size} fresh samples, {interval} interval")
    return replace(report, terms=(*known, chance, *(term for term in report.terms if not term.computable)))


class Group(NamedTuple):
    """A part of the target: how many samples, and both bounds without their terms that need labels."""

    name: str
    n: int
    joint: float
    labels: float


def coverage_groups(seen: FloatArray, confidence: FloatArray) -> dict[str, BoolArray]:
    """Return the most certain samples: those above quantiles of the confidences of the samples seen.

    The thresholds do not depend on the fresh samples, so a part is a sample from a part of the population.
    """
    names = {share: f"most certain {share:.0%}" if share < 1 else "all" for share in COVERAGES}
    return {name: confidence >= np.quantile(seen, 1.0 - share) if share < 1 else np.ones(len(confidence), bool)
            for share, name in names.items()}  # fmt: skip


def group_bounds(
    samples: SampleBounds, groups: Mapping[str, BoolArray], delta: float | None = None, interval: str = "betting"
) -> list[Group]:
    """Bound the loss of parts of the target: of these samples, or with a `delta` of the part of the population.

    With a delta, all parts together hold with probability ``1 - delta`` for each of the two bounds.
    """
    rows = []
    for name, mask in groups.items():
        parts = [np.clip(values[mask], 0.0, None) for values in (samples.joint, samples.labels)]
        if delta is None:
            upper = [float(part.mean()) if part.size else 1.0 for part in parts]
        else:
            each = delta / len(groups)
            upper = [upper_bound_of_mean(np.minimum(part, 1.0), each, interval) for part in parts]
        rows.append(Group(name, int(mask.sum()), *upper))
    return rows
