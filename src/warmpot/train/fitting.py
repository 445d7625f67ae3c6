"""`fit`: a task and a configuration in, predictions, weights and a run folder out, with either engine."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmpot._checks import LARGEST, check_features
from warmpot._progress import progress
from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.train.batch_engine import train_in_batches
from warmpot.train.config import LAST, RunConfig
from warmpot.train.hardware import make_fabric
from warmpot.train.images import make_backbone
from warmpot.train.predictor import Predictor
from warmpot.train.results import Fitted, Trained
from warmpot.train.round_engine import train_in_rounds
from warmpot.train.run_folder import RunFolder
from warmpot.train.snapshots import Chooser
from warmpot.weights import uniform_weights

__all__ = ["fit"]

logger = logging.getLogger(__name__)


def fit(
    task: Task,
    config: RunConfig,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    progress_bar: bool | None = None,
    facts: Mapping[str, Any] | None = None,
    chooser: Chooser | None = None,
) -> Fitted:
    """Train on a task.

    Parameters
    ----------
    task : Task
        Source with labels, target without.
    config : RunConfig
        See `load_config`.
    out : path, optional
        Run directory to write; must be new, unless `resume`.
    resume : bool
        Continue from the last checkpoint in `out`; a run without one starts again.
    progress_bar : bool, optional
        Default: a bar on a terminal, log lines at INFO elsewhere.
    facts : mapping, optional
        Kept in ``run.json`` of a new run directory, such as where the data lies; anything JSON can hold.
    chooser : Chooser, optional
        Chooses the final iterate, without target labels; default: the last. `warmpot.select.fit_chosen` makes one from
        the name of a validator.
    """
    if config.choose != LAST and chooser is None:
        got, remedy = f"{config.choose!r} and no chooser", "Call warmpot.select.fit_chosen."
        raise InputError("choose", got=got, allowed=f"{LAST!r} here", remedy=remedy)
    if task.for_regression == config.label_loss.classification:
        kind = "continuous targets" if task.for_regression else f"{task.n_classes} classes"
        remedy = 'Use "cross_entropy" for classes, "absolute" or "squared" for continuous targets.'
        raise InputError("loss", got=f"{config.loss!r} for {kind}", allowed="the one that fits", remedy=remedy)
    _check_regression(task, config)
    _check_samples(task)
    run = RunFolder(Path(out), tensorboard=config.tensorboard) if out is not None else None
    fabric = make_fabric(config.minibatch.hardware) if config.engine == "minibatch" else None
    lead = fabric is None or fabric.is_global_zero  # the one process that writes
    start = run.start(config, task, resume=resume, facts=facts) if run is not None and lead else None
    if fabric is not None:
        fabric.barrier()
        start = run.latest() if run is not None and not lead else start
    centre, scale = _label_units(task)
    ys = np.asarray((task.ys - centre) / scale, np.float64) if task.for_regression else task.ys
    inner = dataclasses.replace(task, xs=_writable(task.xs), ys=_writable(ys), xt=_writable(task.xt))
    try:
        with progress(f"{config.method}, {config.engine}", logger, progress_bar) as report:
            if fabric is None:
                trained = train_in_rounds(inner, config, run=run, start=start, report=report, chooser=chooser)
            else:
                trained = train_in_batches(inner, config, fabric, run=run, start=start, report=report, chooser=chooser)
    except Exception:
        if run is not None and lead:
            run.abandon()
        raise
    if config.images is not None and task.xs.ndim == 2:  # trained on its features
        trained.network.backbone = make_backbone(config.images).eval()
    predictor = Predictor(trained.network, trained.settings, task.classes, centre, scale, task.columns, config.images)
    fitted = _finish(predictor, trained, inner, config)
    if run is not None and lead:
        run.write_results(fitted, task)
    return fitted if run is None else dataclasses.replace(fitted, folder=run.folder)


def _check_samples(task: Task) -> None:
    for side, x in (("source", task.xs), ("target", task.xt)):
        if isinstance(x, np.ndarray):
            check_features(f"{side} features", x)
    check_features("source labels", task.ys, LARGEST)


def _writable(x: Any) -> Any:
    """Return an array as torch likes it; it warns of those that it may not write to, such as maps of files."""
    return np.require(x, requirements=["C", "W"]) if isinstance(x, np.ndarray) else x


def _check_regression(task: Task, config: RunConfig) -> None:
    for what, component in {"method": config.built_method, "weights": config.built_weighting}.items():
        if task.for_regression and component is not None and not component.regression:
            got, allowed = (
                f"{component.name!r} for continuous targets",
                "a method and weights that work without classes",
            )
            raise InputError(what, got=got, allowed=allowed, remedy="`warmpot methods` shows which ones do.")


def _label_units(task: Task) -> tuple[float, float]:
    """Centre and spread of continuous targets: costs and penalties are in units of the source's spread."""
    if not task.for_regression:
        return 0.0, 1.0
    return float(task.ys.mean()), float(task.ys.std()) or 1.0


def _finish(predictor: Predictor, trained: Trained, task: Task, config: RunConfig) -> Fitted:
    """Predict, and give every sample the weight that belongs to the final iterate."""
    solution = trained.plan
    logits = trained.target.logits.double()
    if task.for_regression:
        outputs = predictor.centre + predictor.scale * logits[:, 0].numpy()
    else:
        outputs = torch.softmax(logits, dim=1).numpy()
    p = None if solution is None else np.asarray(solution.p)
    q = uniform_weights(task.n_target) if solution is None else np.asarray(solution.q)
    weights = trained.training_weights.double().numpy()
    return Fitted(predictor, outputs, p, weights, q, solution, trained.step, trained.history, config)
