"""The choice of an iterate within one run: `fit_chosen` is `warmpot.train.fit` with the choice that the run names."""

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

from warmpot._run_files import SOURCE_WEIGHTS
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data import Task
from warmpot.data.lazy import Rows
from warmpot.errors import InputError
from warmpot.nets.network import ColumnScale, make_scale
from warmpot.select.base import Validator
from warmpot.select.evidence import Evidence
from warmpot.select.guard import classes_in_effect, collapsed
from warmpot.select.registry import make_validator
from warmpot.train import Fitted, RunConfig, fit
from warmpot.train.config import LAST
from warmpot.train.predictor import apply_network
from warmpot.train.run_folder import RunFolder
from warmpot.train.snapshots import Snapshot

__all__ = ["Held", "ValidatorChooser", "evidence_of", "fit_chosen", "hold_out", "warn_of_ties"]

logger = logging.getLogger(__name__)


class Held(NamedTuple):
    """A part of the source that is kept out of the training: features, labels, and which samples."""

    x: Rows
    y: IntArray
    rows: BoolArray


def hold_out(task: Task, share: float, seed: int) -> tuple[Task, Held]:
    """Keep a share of every class out of the training; a class keeps at least one sample in it.

    Parameters
    ----------
    task : Task
        Of classification.
    share : float
        In (0, 1).
    seed : int
        Which samples.
    """
    rng = np.random.default_rng(seed)
    out = np.zeros(task.n_source, dtype=bool)
    for code in range(task.n_classes):
        rows = rng.permutation(np.flatnonzero(task.ys == code))
        out[rows[: min(math.ceil(share * len(rows)), len(rows) - 1)]] = True
    if not out.any():
        got, remedy = "one sample of every class", "Choose by a validator that needs no held part."
        raise InputError("source", got=got, allowed="two of some class, to hold one out", remedy=remedy)
    names = (
        tuple(name for name, held in zip(task.source_names, out, strict=True) if not held) if task.source_names else ()
    )
    rest = dataclasses.replace(task, xs=_part(task.xs, ~out), ys=task.ys[~out], source_names=names)
    return rest, Held(_part(task.xs, out), np.asarray(task.ys[out], np.int64), out)


def _part(x: Rows, rows: BoolArray) -> Rows:
    return x[rows] if isinstance(x, np.ndarray) else x.subset(rows)


def evidence_of(snapshot: Snapshot, task: Task, held: Held | None = None) -> Evidence:
    """Return what a validator may see of a snapshot; inputs in the units that the engines give them by default."""
    network = snapshot.network
    scaled = _inputs(task.xs, task.xt, *([held.x] if held else []))
    apart = apply_network(network.for_source(), held.x) if held is not None else None
    return Evidence(
        source_features=snapshot.source.features.numpy(),
        source_logits=snapshot.source.logits.numpy(),
        source_labels=np.asarray(task.ys, np.int64),
        target_features=snapshot.target.features.numpy(),
        target_logits=snapshot.target.logits.numpy(),
        held_features=apart.features.numpy() if apart else None,
        held_logits=apart.logits.numpy() if apart else None,
        held_labels=held.y if held else None,
        **scaled,
        transport=snapshot.transport,
        head=(network.head.weight.detach().numpy(), network.head.bias.detach().numpy()),
    )


def _inputs(*parts: Rows) -> dict[str, NDArray[Any]]:
    """Return features as the engines scale them, by the names of their fields; of images there are none."""
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
    """The `Chooser` of a validator: keeps the best snapshot that is no collapse against the first one.

    The last of equals wins: without a reason to choose, the result is what it is without a choice.
    """

    def __init__(self, validator: Validator, task: Task, held: Held | None) -> None:
        self._validator, self._task, self._held = validator, task, held
        self._best: float | None = None
        self._before: float | None = None

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Score it; the first one is kept until something as good comes."""
        evidence = evidence_of(snapshot, self._task, self._held)
        classes = classes_in_effect(evidence)
        first = self._before is None
        self._before = classes if self._before is None else self._before
        if "transport" in self._validator.needs and evidence.transport is None:
            return first, {}  # there was no plan yet: it can be kept, but not compared
        score = self._validator.score(evidence)
        better = not collapsed(classes, self._before) and (self._best is None or score >= self._best)
        if better:
            self._best = score
        return better or first, {"score": score}

    def state(self) -> dict[str, Any]:
        """Return the numbers that a resumed run needs."""
        return {"best": self._best, "before": self._before}

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""
        self._best, self._before = state["best"], state["before"]


def warn_of_ties(scores: Sequence[float], validator: str, what: str) -> None:
    """Tell when a validator could not choose."""
    if len(scores) > 1 and len(set(scores)) == 1:
        logger.warning("all %s score the same (%.4g): %s cannot tell them apart", what, scores[0], validator)


def fit_chosen(
    task: Task,
    config: RunConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Fitted:
    """Train on a task and return the iterate that ``config.choose`` prefers; arguments as in `warmpot.train.fit`.

    Target labels have no way in. A validator that needs a held part of the source gets the share ``config.held`` of
    every class, which is not trained on: its source weights are 0, and the plan, which lacks these rows, is left out.
    """
    out = None if out is None else Path(out)
    if config.choose == LAST:
        return fit(task, config, out=out, resume=resume, progress_bar=progress_bar, facts=facts)
    validator, held = make_validator(config.choose), None
    if task.for_regression:
        remedy = "Leave `choose` at last."
        raise InputError("choose", got=f"{config.choose!r} for real labels", allowed=LAST, remedy=remedy)
    rest = task
    if "held" in validator.needs:
        rest, held = hold_out(task, config.held, config.seed)
        counts = len(held.y), task.n_source, config.choose
        logger.warning("%d of %d source samples are held out to choose by %s; they are not trained on", *counts)
    chooser = ValidatorChooser(validator, rest, held)
    fitted = fit(rest, config, out=out, resume=resume, progress_bar=progress_bar, facts=facts, chooser=chooser)
    warn_of_ties([line["score"] for line in fitted.history if "score" in line], config.choose, "iterates")
    if held is None:
        return fitted
    training = _with_zeros(fitted.training_weights, held.rows)
    plan = None if fitted.plan_weights is None else _with_zeros(fitted.plan_weights, held.rows)
    if out is not None and (out / SOURCE_WEIGHTS).exists():  # one process of several wrote it
        RunFolder(out).write_weights(plan, training, task)
    # the plan and its certificate are of the samples that were trained on; their rows would be off by the others
    return dataclasses.replace(fitted, plan_weights=plan, training_weights=training, solution=None)


def _with_zeros(weights: FloatArray, held: BoolArray) -> FloatArray:
    """Return the weights of all source samples: 0 for those held out."""
    everywhere = np.zeros(len(held))
    everywhere[~held] = weights
    return everywhere
