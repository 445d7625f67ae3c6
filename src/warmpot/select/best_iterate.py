"""The best iterate of one run: `fit_chosen` is `warmpot.train.fit` with the validator that the settings name."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from warmpot._run_files import SOURCE_WEIGHTS
from warmpot._typing import BoolArray, IntArray
from warmpot.data import Task
from warmpot.data.table import Rows
from warmpot.errors import InputError
from warmpot.nets.network import ColumnScale, make_scale
from warmpot.select.candidate import Candidate, Validator, collapse_reason, diversity_terms, effective_target_classes
from warmpot.select.validators import make_validator
from warmpot.train import Fitted, RunConfig, fit
from warmpot.train.config import LAST
from warmpot.train.fitting import with_holdout
from warmpot.train.predictor import apply_network
from warmpot.train.run_folder import RunFolder
from warmpot.train.snapshots import Snapshot

__all__ = ["HeldOut", "ValidatorChooser", "candidate_from_snapshot", "fit_chosen", "hold_out", "warn_about_ties"]

logger = logging.getLogger(__name__)


class HeldOut(NamedTuple):
    """A part of the source that is not trained on: inputs, labels, and a mask over all source samples."""

    x: Rows
    y: IntArray
    rows: BoolArray


def hold_out(task: Task, share: float, seed: int) -> tuple[Task, HeldOut]:
    """Hold out a share (in (0, 1)) of every class of a classification task, but leave at least one sample of each.

    Return the task without the held-out samples, and these.
    """
    rng = np.random.default_rng(seed)
    mask = np.zeros(task.n_source, dtype=bool)
    for code in range(task.n_classes):
        rows = rng.permutation(np.flatnonzero(task.ys == code))
        mask[rows[: min(math.ceil(share * len(rows)), len(rows) - 1)]] = True
    if not mask.any():
        got, remedy = "one sample of every class", "Choose a validator that needs no held-out part."
        raise InputError("source", got=got, allowed="a class with at least two samples", remedy=remedy)
    names = tuple(name for name, held in zip(task.source_names, mask, strict=False) if not held)
    x, held_x = (task.xs[m] if isinstance(task.xs, np.ndarray) else task.xs.subset(m) for m in (~mask, mask))
    rest = dataclasses.replace(task, xs=x, ys=task.ys[~mask], source_names=names)
    return rest, HeldOut(held_x, np.asarray(task.ys[mask], np.int64), mask)


def candidate_from_snapshot(snapshot: Snapshot, task: Task, held: HeldOut | None = None) -> Candidate:
    """Return what a validator may use of a snapshot; inputs are scaled as the engines scale them by default.

    In place of images, which have no useful distances, the inputs are the features of the run's first snapshot.
    """
    network, xs, ys = snapshot.network, task.xs, np.asarray(task.ys, np.int64)
    if snapshot.source_rows is not None:
        rows = snapshot.source_rows.numpy()
        xs, ys = xs[rows] if isinstance(xs, np.ndarray) else xs.subset(rows), ys[rows]
    head = (
        (network.head.weight.detach().numpy(), network.head.bias.detach().numpy()) if network.has_linear_head else None
    )
    outputs = apply_network(network.for_source(), held.x) if held is not None else None
    inputs = _scaled_inputs(xs, task.xt, *([held.x] if held else []))
    if snapshot.first is not None and held is None:
        inputs = _scaled_inputs(*(features.numpy() for features in snapshot.first))
    return Candidate(
        source_features=snapshot.source.features.numpy(),
        source_logits=snapshot.source.logits.numpy(),
        source_labels=ys,
        target_features=snapshot.target.features.numpy(),
        target_logits=snapshot.target.logits.numpy(),
        held_features=outputs.features.numpy() if outputs else None,
        held_logits=outputs.logits.numpy() if outputs else None,
        held_labels=held.y if held else None,
        **inputs,
        transport=snapshot.transport,
        head=head,
    )


def _scaled_inputs(*parts: Rows) -> dict[str, NDArray[Any]]:
    """Return the scaled inputs by field of `Candidate`; nothing for images."""
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if len(arrays) < len(parts):
        return {}
    inputs = [torch.from_numpy(np.ascontiguousarray(x)) for x in arrays]
    scale = make_scale("auto", inputs[0].shape[1])
    if isinstance(scale, ColumnScale):
        scale.fit(*inputs[:2])
    names = ("source_inputs", "target_inputs", "held_inputs")
    return {name: scale(x).numpy() for name, x in zip(names, inputs, strict=False)}


class ValidatorChooser:
    """A `Chooser` of the best-scoring snapshot whose predictions have not collapsed relative to the first.

    Among equal scores the last wins: if all scores tie, the result is the last iterate, as without a validator. But
    where a network is trained on images from the answer of frozen features, that answer is kept unless a score exceeds
    its own by more than two standard errors of their difference over the target samples (by anything at all if the
    score is not a mean over samples), and the entropy of the predicted shares of the classes does not fall by more than
    two of its own: neighbours agree more often on fewer classes, so that a score may rise because classes are lost.
    """

    def __init__(self, validator: Validator, task: Task, held: HeldOut | None) -> None:
        self._validator, self._task, self._held = validator, task, held
        self._best: float | None = None
        self._reference: float | None = None
        self._start: NDArray[np.float64] | None = None
        self._diversity: NDArray[np.float64] | None = None

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Score a snapshot; the first one is always the best so far."""
        candidate = candidate_from_snapshot(snapshot, self._task, self._held)
        classes = effective_target_classes(candidate)
        first = self._reference is None
        self._reference = classes if self._reference is None else self._reference
        if "transport" in self._validator.needs and candidate.transport is None:
            return first, {}  # no plan yet, so no score
        score = self._validator.score(candidate)
        better = not collapse_reason(classes, self._reference) and (self._best is None or score >= self._best)
        if snapshot.first is not None:  # images
            terms = self._validator.target_terms(candidate)
            terms = np.array([score]) if terms is None else terms
            diversity = diversity_terms(candidate)
            if first and snapshot.step == 0:
                self._start, self._diversity = terms, diversity
            elif self._start is not None:
                better &= _clearly_above_zero(terms - self._start)
            if self._diversity is not None:
                better &= not _clearly_above_zero(self._diversity - diversity)
        if better:
            self._best = score
        return better or first, {"score": score}

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs."""
        parts = {"start": self._start, "diversity": self._diversity}
        lists = {name: None if part is None else part.tolist() for name, part in parts.items()}
        return {"best": self._best, "before": self._reference, **lists}

    def load(self, state: dict[str, Any]) -> None:
        """Restore `state`."""
        self._best, self._reference = state["best"], state["before"]
        parts = (state.get(name) for name in ("start", "diversity"))  # older checkpoints have none
        self._start, self._diversity = (None if part is None else np.array(part) for part in parts)


def _clearly_above_zero(differences: NDArray[np.float64]) -> bool:
    """Return whether the mean exceeds two standard errors; of a single number, whether it is positive.

    Two, since terms are not independent: one new prediction changes the terms of its neighbours, too.
    """
    error = differences.std(ddof=1) / math.sqrt(len(differences)) if len(differences) > 1 else 0.0
    return bool(differences.mean() > 2 * error)


def warn_about_ties(scores: Sequence[float], validator: str, what: str) -> None:
    """Warn if a validator gave the same score to everything."""
    if len(scores) > 1 and len(set(scores)) == 1:
        logger.warning("all %s score the same (%.4g): %s cannot tell them apart", what, scores[0], validator)


def _with_all_rows(plan: csr_array, rows: BoolArray) -> csr_array:
    """Return a plan of some of the source samples as one of all, with empty rows for the others."""
    part = plan.tocoo()
    return csr_array((part.data, (np.flatnonzero(rows)[part.row], part.col)), shape=(len(rows), plan.shape[1]))


def fit_chosen(
    task: Task,
    config: RunConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Fitted:
    """Train on a task and return the best iterate by the validator ``config.choose``; see `warmpot.train.fit`.

    Target labels are not used. If the validator needs a held-out part of the source, the share ``config.held`` of every
    class is not trained on: the weights of these samples are 0, and the plan, which has no rows for them, is left out.
    """
    out, task = None if out is None else Path(out), with_holdout(task, config)
    if config.choose == LAST:
        return fit(task, config, out=out, resume=resume, progress_bar=progress_bar, facts=facts)
    validator, rest, held = make_validator(config.choose), task, None
    if task.for_regression:
        got, remedy = f"{config.choose!r} for continuous targets", "Set `choose: last`."
        raise InputError("choose", got=got, allowed=LAST, remedy=remedy)
    if "held" in validator.needs:
        rest, held = hold_out(task, config.held, config.seed)
        counts = len(held.y), task.n_source, config.choose
        logger.warning("%d of %d source samples are held out to choose by %s; they are not trained on", *counts)
    chooser = ValidatorChooser(validator, rest, held)
    fitted = fit(rest, config, out=out, resume=resume, progress_bar=progress_bar, facts=facts, chooser=chooser)
    warn_about_ties([line["score"] for line in fitted.history if "score" in line], config.choose, "iterates")
    if held is None:
        return fitted
    training, plan = np.zeros(task.n_source), None if fitted.plan_weights is None else np.zeros(task.n_source)
    training[~held.rows] = fitted.training_weights
    if plan is not None:
        plan[~held.rows] = fitted.plan_weights
    if out is not None and (out / SOURCE_WEIGHTS).exists():  # only one of several processes writes files
        RunFolder(out).write_weights(plan, training, task)
        if fitted.solution is not None:
            RunFolder(out).write_plan(_with_all_rows(fitted.solution.plan, ~held.rows))
    # rows of the plan and of its certificate are those of the samples that were trained on, not of the task
    return dataclasses.replace(fitted, plan_weights=plan, training_weights=training, solution=None, task=task)
