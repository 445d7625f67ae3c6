"""All bounds of one run: what ``warmpot bound`` computes, writes and shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from warmpot._files import read_csv
from warmpot._run_files import HOLDOUT, PREDICTIONS
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.bounds import (
    BoundReport,
    BoundSearch,
    fresh_bounds,
    group_bounds,
    pac_bayes_bound,
    plan_label_bound,
    sample_bounds,
    tightest_bound,
    with_labels,
    with_plan_labels,
)
from warmpot.bounds.fresh import FreshBounds, SampleBounds, coverage_groups
from warmpot.bounds.levels import LEVELS
from warmpot.bounds.report import PAC_BAYES
from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.train.predictor import BoundInputs, Predictor
from warmpot.train.target_use import TargetUse
from warmpot.weights import estimate_beta

__all__ = ["FRESH", "FRESH_LABELS", "LABELS", "SHARP", "RunBounds", "bound_run", "check_target"]

FRESH, FRESH_LABELS = "Theorem 3.3, new samples", "Plan labels, new samples"
SHARP, LABELS = "Theorem 3.3, sharp", "Plan labels"
FORMS = {
    "Theorem 3.2": ("features", "paper"),
    "Theorem 3.2, sharp": ("features", "sharp"),
    "Theorem 3.3": ("joint", "paper"),
    SHARP: ("joint", "sharp"),
}
NOTHING_PROVEN = 0.995  # losses are at most 1, so a bound from here on proves nothing
FEWEST = 5
"""Samples of a predicted class from which on the class has a row of its own."""


@dataclass(frozen=True)
class RunBounds:
    """Bounds of a run by name, the most useful first, and tables.

    Attributes
    ----------
    reports, searches : mappings
        `BoundReport`s, and the grids of alpha and beta of those that were searched for.
    tables : mapping
        "coverage" and "classes": rows of `Group`; "levels": total and, with labels, the price of each level. They are
        about fresh samples if there are any, then with their confidence.
    """

    reports: dict[str, BoundReport]
    searches: dict[str, BoundSearch]
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def bound_run(
    inputs: BoundInputs,
    fresh: BoundInputs | None = None,
    *,
    use: TargetUse,
    classes: tuple[str, ...] = (),
    alpha: float | None = None,
    beta: float | None = None,
    trained_beta: float | None = None,
    delta: float = 0.05,
    presence: FloatArray | None = None,
    truth: Any = None,
    fresh_truth: Any = None,
) -> RunBounds:
    """Compute the bounds of a classifier or regressor.

    Parameters
    ----------
    inputs : BoundInputs
        Of the samples that it was trained on.
    fresh : BoundInputs, optional
        With target samples that nothing depends on, for certificates of new samples.
    use : TargetUse
        What the target has touched: whether the PAC-Bayes bound is valid.
    classes : tuple of str
        Class names; empty in regression.
    alpha, beta : float, optional
        Default: the tightest of a grid.
    trained_beta : float, optional
        Beta of the bound that the training minimised, to try as well.
    delta : float
        Probability with which each bound for new samples may fail.
    presence : (C,) array, optional
        Probability of each class to be in the target, for an estimate of M.
    truth, fresh_truth : arrays, optional
        Labels of the target and of the fresh samples, for evaluation only.
    """
    searches = _search_theorems(inputs, alpha, beta, trained_beta)
    found = {name: search.best for name, search in searches.items()}
    problem, sharp = inputs.problem(), found[SHARP]
    plan, _ = problem.planned(sharp.alpha, sharp.beta, form="sharp")
    every, _ = problem.planned(1.0, sharp.beta, form="sharp")
    base = problem.report(1.0, sharp.beta, plan=every, form="sharp")
    found[LABELS] = _guessed(plan_label_bound(problem, every, base), inputs.labels, presence)
    if truth is not None:
        points = inputs.points
        of_theorems = {name: with_labels(r, *points, target_labels=truth) for name, r in found.items() if name in FORMS}
        found |= of_theorems | {LABELS: with_plan_labels(found[LABELS], problem, every, truth)}
    samples = SampleBounds(sample_bounds(problem, plan).joint, *sample_bounds(problem, every)[1:])
    chosen = inputs
    new: FreshBounds | None = None
    if fresh is not None:
        new = fresh_bounds(problem, fresh.target, fresh.target_proba, beta=sharp.beta, delta=delta)
        joint, labels = new.joint, _guessed(new.labels, inputs.labels, presence)
        if fresh_truth is not None:
            # Only the loss: the terms that need labels would be those of these samples, the bound is of all new ones.
            known = with_plan_labels(labels, new.problem, new.label_plan, fresh_truth)
            joint, labels = (replace(report, target_loss=known.target_loss) for report in (joint, labels))
        samples, chosen = new.samples, fresh
        found = {FRESH: joint, FRESH_LABELS: labels, **found}
    order = [FRESH, FRESH_LABELS, SHARP, LABELS, "Theorem 3.3", "Theorem 3.2, sharp", "Theorem 3.2"]
    reports = {name: found[name] for name in order if name in found}
    if not inputs.continuous:
        # Without target labels: its ideal term is a mean over heads, each of which has its own.
        # The prior uses no data, as a run does not keep its source-only head.
        reports[PAC_BAYES] = pac_bayes_bound(
            inputs.source, inputs.labels, inputs.target, inputs.weight, inputs.bias,
            alpha=sharp.alpha, beta=sharp.beta, form="sharp", features_saw_target=bool(use.reason),
            candidates=use.candidates or 1, delta=0.8 * delta, delta_mc=0.2 * delta,
        )  # fmt: skip
    tables = {}
    if not inputs.continuous:
        sure = delta if new is not None else None
        tables = _groups(samples, inputs.target_proba, chosen.target_proba, classes, sure)
        tables["levels"] = _levels(inputs, fresh if new is not None else None, sharp.beta, delta, truth, fresh_truth)
    return RunBounds(reports, searches, tables)


def check_target(run: Path, predictor: Predictor, task: Task, *, held_out: bool) -> None:
    """Refuse target data that are not those of the training: the samples that were held out, or the others."""
    head, *lines = read_csv(run / (HOLDOUT if held_out else PREDICTIONS), errors="surrogateescape")
    column = "confidence" if predictor.classes else "prediction"
    stored = np.array([line[head.index(column)] for line in lines], np.float64)
    x = task.held_out.x if held_out and task.held_out is not None else task.xt
    now = predictor.probabilities(x).max(axis=1) if predictor.classes else predictor.values(x)
    if stored.shape != now.shape or not np.allclose(stored, now, rtol=1e-3, atol=1e-3):
        got = "other samples in the rows that were held out" if held_out else "other samples than in the training"
        remedy = "Give that file, or new samples with --fresh." if held_out else "Give that file; new samples: --fresh."
        raise InputError("TARGET", got=got, allowed="the target that the run was trained on", remedy=remedy)


def _search_theorems(
    inputs: BoundInputs, alpha: float | None, beta: float | None, trained: float | None
) -> dict[str, BoundSearch]:
    """Return both theorems as stated in the paper, and in the sharper form that their proofs give.

    A sharp bound that proves nothing is smallest with no mass moved at all; it is shown at the alpha and beta of the
    paper's form instead.
    """
    from warmpot.bounds import head_lipschitz

    grid: dict[str, Any] = {"alphas": None if alpha is None else [alpha], "betas": None if beta is None else [beta]}
    if beta is None:
        # of continuous labels there are no classes to estimate a share of the source from
        estimate = 0.5 if inputs.continuous else estimate_beta(inputs.target_proba, np.asarray(inputs.labels, np.int64))
        grid["betas"] = sorted({1.0, estimate} | ({trained} if trained is not None else set()))
    searches: dict[str, BoundSearch] = {}
    for name, (kind, form) in FORMS.items():
        loss, paper = inputs.loss(kind), searches.get(name.removesuffix(", sharp"))
        gamma = head_lipschitz(inputs.weight, loss)
        search = tightest_bound(kind, *inputs.points, gamma=gamma, loss=loss, form=form, **grid)
        if paper is not None and search.best.total >= NOTHING_PROVEN:
            same = [r for r in search.curve if (r.alpha, r.beta) == (paper.best.alpha, paper.best.beta)]
            search = replace(search, best=same[0])
        searches[name] = search
    return searches


def _guessed(report: BoundReport, labels: IntArray | FloatArray, presence: FloatArray | None) -> BoundReport:
    """Add an estimate of M: the mass matched with classes that are estimated not to be in the target."""
    if presence is None or report.p is None:
        return report
    return replace(report, guess=float(report.p @ (1.0 - presence[labels])))


def _groups(
    samples: SampleBounds, seen: FloatArray, proba: FloatArray, classes: tuple[str, ...], delta: float | None
) -> dict[str, list[dict[str, Any]]]:
    """Bound the most certain samples, and those of each predicted class."""
    predicted = proba.argmax(axis=1)
    counts = np.bincount(predicted, minlength=proba.shape[1])
    by_class: dict[str, BoolArray] = {classes[k]: predicted == k for k in np.flatnonzero(counts >= FEWEST)}
    parts = {"coverage": coverage_groups(seen.max(axis=1), proba.max(axis=1)), "classes": by_class}
    return {name: [row._asdict() for row in group_bounds(samples, part, delta)] for name, part in parts.items() if part}


def _levels(
    inputs: BoundInputs, fresh: BoundInputs | None, beta: float, delta: float, truth: Any, fresh_truth: Any
) -> list[dict[str, Any]]:
    """Return the sharp form of Theorem 3.3 at every level, with the price of its set of heads if labels are known."""
    rows = []
    for level, heads in LEVELS.items():
        seen = inputs.problem(level=level)
        if fresh is None:
            report, points = seen.report(seen.best_alpha(beta), beta, form="sharp"), seen
            known = truth
        else:
            target = fresh.problem(level=level)
            # checked on features: sure predictions are equal without being copies
            new = fresh_bounds(seen, target.target, fresh.target_proba, beta=beta, delta=delta, unseen=True)
            report, points, known = new.joint, new.problem, fresh_truth
        row: dict[str, Any] = {"level": level, "heads": heads, "total": report.total, "price": None}
        if known is not None and report.p is not None:
            assert points.target_proba is not None
            sides = points.source, points.labels, points.target, points.source_proba, points.target_proba
            row["price"] = with_labels(report, *sides, target_labels=known).ideal
        rows.append(row)
    return rows
