"""`fit`: a task and a configuration in, predictions, weights and a run folder out, with either engine."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import LARGEST, check_features
from warmpot._memory import check_memory
from warmpot._progress import progress
from warmpot._threads import one_thread
from warmpot._typing import FloatArray, IntArray
from warmpot.data import Task
from warmpot.data.pixels import Pixels
from warmpot.data.task import draw_rows, hold_out_target
from warmpot.errors import InputError
from warmpot.nets import Backbone
from warmpot.nets.network import NARROW
from warmpot.train.batch_engine import train_in_batches
from warmpot.train.config import CUSTOM, LAST, RunConfig
from warmpot.train.hardware import make_fabric
from warmpot.train.images import ImageSettings, make_backbone, prepare
from warmpot.train.predictor import Predictor
from warmpot.train.round_engine import train_in_rounds
from warmpot.train.run_folder import RunFolder
from warmpot.train.snapshots import Chooser, Trained
from warmpot.transport import Solution
from warmpot.weights import (
    ClassPresence,
    Verdict,
    calibration_temperature,
    estimate_presence,
    predicted_shares,
    uniform_weights,
    verdict_of,
)
from warmpot.weights.axes import without_order

__all__ = ["Fitted", "fit", "with_holdout"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fitted:
    """A finished run.

    Attributes
    ----------
    predictor : Predictor
        The classifier or regressor.
    outputs : (n_t, C) or (n_t,) array
        Class probabilities (calibrated, see `Predictor.temperature`), or predicted values, of the target samples.
    plan_weights : (n_s,) array or None
        Row sums of the plan over all pairs at the final iterate (Theorem 3.2); they sum to alpha. None without a plan:
        for a method or weighting that solves none, and when the chooser preferred round 0, the fit on the source alone.
    training_weights : (n_s,) array
        What each source sample counted in the training, relative to the others; they sum to 1. Of the full engine: in
        the last refit. Of the mini-batch engine: in the last step; where every batch has weights of its own, such as
        those of its plan, in the last batch that held the sample.
    target_weights : (n_t,) array
        Column sums of the plan; uniform without a plan.
    solution : Solution or None
        The plan with its certificate.
    step : int
        The round or step of the final iterate: the last, unless a chooser preferred another.
    presence : ClassPresence or None
        Which source classes are estimated to be in the target, with probabilities; None in regression. The full engine
        estimates it from the inputs before it adapts, the mini-batch engine from the features that it has learned.
    unadapted : (n_t,) array or None
        Class codes, or values, that the full engine's fit on the source alone predicts for the target: the baseline
        without adaptation. None for the mini-batch engine, which adapts from its first step on.
    unknown : (n_t,) array or None
        How unsure that fit is, from 0 to 1: samples of no source class have larger values (`relative_entropy`).
    history : list of dict
        The lines of ``metrics.jsonl``.
    config : RunConfig
        The settings of the run.
    folder : Path or None
        The run folder, if one was written.
    task : Task or None
        The data that it was trained on.
    """

    predictor: Predictor
    outputs: FloatArray
    plan_weights: FloatArray | None
    training_weights: FloatArray
    target_weights: FloatArray
    solution: Solution[csr_array] | None
    step: int
    history: list[dict[str, Any]]
    config: RunConfig
    folder: Path | None = None
    presence: ClassPresence | None = None
    task: Task | None = None
    unadapted: IntArray | FloatArray | None = None
    unknown: FloatArray | None = None

    @property
    def target_classes(self) -> dict[str, float]:
        """Classes that are more likely in the target than not, with their expected shares, the largest first."""
        present = {} if self.presence is None else self.presence.present
        return {self.predictor.classes[k]: share for k, share in present.items()}

    @property
    def verdict(self) -> Verdict | None:
        """Whether the adaptation is supported; None where the result was not chosen from hypotheses."""
        return verdict_of(self.history, self.step)

    @property
    def source_weights(self) -> FloatArray:
        """The plan weights, or the training weights where there is no plan."""
        return self.training_weights if self.plan_weights is None else self.plan_weights

    def save(self, folder: Path | str, *, facts: Mapping[str, Any] | None = None) -> Path:
        """Write a run folder as `fit` does with `out`, but without checkpoints: it can be used, not resumed.

        `facts` are as for `fit`.
        """
        assert self.task is not None, "what fit returns has its task"
        run = RunFolder(Path(folder))
        run.start(self.config, self.task, resume=False, facts=facts)
        for line in self.history:
            run.log(line)
        run.write_results(self, self.task)
        return run.folder

    def __repr__(self) -> str:
        sizes = f"{len(self.training_weights)} source and {len(self.outputs)} target samples"
        return f"Fitted({self.config.method}, preset {self.config.preset}, step {self.step}, {sizes})"


def fit(
    task: Task, config: RunConfig, *, out: Path | str | None = None, resume: bool = False,
    progress_bar: bool | None = None, facts: Mapping[str, Any] | None = None, chooser: Chooser | None = None,
) -> Fitted:  # fmt: skip
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
        Kept in ``run.json`` of a new run directory, such as the paths of the data; anything JSON can hold.
    chooser : Chooser, optional
        Chooses the final iterate, without target labels; default: the last. `warmpot.select.fit_chosen` makes one from
        the name of a validator.
    """
    if config.choose != LAST and chooser is None:
        got, remedy = f"{config.choose!r} and no chooser", "Call warmpot.select.fit_chosen."
        raise InputError("choose", got=got, allowed=f"{LAST!r} here", remedy=remedy)
    if config.choose == LAST and chooser is not None:
        config = dataclasses.replace(config, choose=CUSTOM)  # the record must not call its iterate the last one
    _check_data(task, config)
    task = with_holdout(_prepared(task, config.images, progress_bar), config)
    _check_size(task, config)
    frozen = _frozen_backbone(task, config.images)  # before anything is written, because its weights may be missing
    run = RunFolder(Path(out), tensorboard=config.tensorboard) if out is not None else None
    fabric = make_fabric(config.minibatch.hardware) if config.engine == "minibatch" else None
    lead = fabric is None or fabric.is_global_zero  # the one process that writes
    start = run.start(config, task, resume=resume, facts=facts) if run is not None and lead else None
    if fabric is not None:
        fabric.barrier()
        start = run.latest() if run is not None and not lead else start
    # Costs and penalties of continuous targets are in units of the source's spread.
    values = np.sort(task.ys)  # sums depend on the order
    centre, scale = (float(values.mean()), float(values.std()) or 1.0) if task.for_regression else (0.0, 1.0)
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
    if frozen is not None:
        trained.network.backbone = frozen
    meaning: dict[str, Any] = {"columns": task.columns, "images": config.images, "text_labels": task.text_labels}
    predictor = Predictor(trained.network, trained.settings, task.classes, centre, scale, **meaning)
    if trained.agreement is not None:
        logits = trained.target.logits.numpy()
        temperature = calibration_temperature(logits[without_order(logits)], trained.agreement)
        predictor = dataclasses.replace(predictor, temperature=temperature)
    fitted = _finish(predictor, trained, inner, config)
    if run is not None and lead:
        run.write_results(fitted, task)
    return dataclasses.replace(fitted, task=task, folder=None if run is None else run.folder)


def _prepared(task: Task, images: ImageSettings | None, progress_bar: bool | None) -> Task:
    """Give images the view of the settings, and pass them through what is not trained if its output is to be stored."""
    if images is None or not isinstance(task.xs, Pixels) or not isinstance(task.xt, Pixels):
        return task
    if images.fine_tunes and not images.cache:
        return dataclasses.replace(task, xs=task.xs.with_view(images.view), xt=task.xt.with_view(images.view))
    domains = (task.unlabelled("source"), task.unlabelled("target"))
    source, target = prepare(*domains, settings=images, progress_bar=progress_bar)
    # pooled features are read, activations stay on disk
    xs, xt = (np.asarray(table.x[:], np.float32) if table.x.ndim == 2 else table.x for table in (source, target))
    return dataclasses.replace(task, xs=xs, xt=xt)


def with_holdout(task: Task, config: RunConfig) -> Task:
    """Return the task without the target samples that the settings hold out; the same ones every time."""
    if not config.holdout or task.held_out is not None:
        return task
    return hold_out_target(task, draw_rows(task.n_target, config.holdout, config.seed))


def _writable(x: Any) -> Any:
    """Return a writable array: torch warns about others, such as memory-mapped files."""
    return np.require(x, requirements=["C", "W"]) if isinstance(x, np.ndarray) else x


def _check_data(task: Task, config: RunConfig) -> None:
    if task.for_regression == config.label_loss.classification:
        kind = "continuous targets" if task.for_regression else f"{task.n_classes} classes"
        remedy = 'Use "cross_entropy" for classes, "absolute" or "squared" for continuous targets.'
        raise InputError("loss", got=f"{config.loss!r} for {kind}", allowed="the one that fits", remedy=remedy)
    for what, component in {"method": config.built_method, "weights": config.built_weighting}.items():
        if task.for_regression and component is not None and not component.regression:
            got, remedy = f"{component.name!r} for continuous targets", "`warmpot methods` shows which ones do."
            allowed = "a method and weights that work without classes"
            raise InputError(what, got=got, allowed=allowed, remedy=remedy)
    for side, x in (("source", task.xs), ("target", task.xt)):
        if isinstance(x, np.ndarray):
            check_features(f"{side} features", x)
    check_features("source labels", task.ys, LARGEST)


def _frozen_backbone(task: Task, images: ImageSettings | None) -> Backbone | None:
    """Return the backbone that the features of a task are from; None without one, and for images."""
    if images is None or task.xs.ndim != 2:
        return None
    backbone = make_backbone(images).eval()
    if backbone.width != task.width:
        got, allowed = f"{task.width} features", f"the {backbone.width} of {images.backbone.name}"
        remedy = "Leave the settings `images` out: these features are not of that backbone."
        raise InputError("source features", got=got, allowed=allowed, remedy=remedy)
    return backbone


def _check_size(task: Task, config: RunConfig) -> None:
    """Refuse a network or batches that no memory of this machine can hold."""
    settings = config.minibatch
    if config.engine != "minibatch":
        return
    width = settings.network.width if settings.network.bottleneck not in ("none", "projection") else 0
    batch = settings.source_batch + settings.target_batch
    weights = width * ((task.width if task.xs.ndim == 2 else 0) + max(task.n_classes, 1))
    # Weights, gradients and momentum; features of a batch with their gradients, and its costs; of all samples at the
    # end, in float64. The rest (inputs, logits, plans) is left out: this is a lower limit.
    numbers = 3 * weights + 2 * batch * width + settings.source_batch * settings.target_batch
    needed = 4 * numbers + 8 * (task.n_source + task.n_target) * width
    got = f"network.width {width}, source_batch {settings.source_batch}, target_batch {settings.target_batch}"
    check_memory("minibatch", got, needed, "Make the largest of them smaller.")


def _finish(predictor: Predictor, trained: Trained, task: Task, config: RunConfig) -> Fitted:
    """Predict, and give every sample the weight that belongs to the final iterate."""
    solution = trained.plan
    logits = trained.target.logits.double()
    if task.for_regression:
        outputs = predictor.centre + predictor.scale * logits[:, 0].numpy()
    else:
        outputs = predictor.as_probabilities(logits).numpy()
    p = None if solution is None else np.asarray(solution.p)
    q = uniform_weights(task.n_target) if solution is None else np.asarray(solution.q)
    weights = trained.training_weights.double().numpy()
    presence = None if task.for_regression else _presence(trained, task)
    if presence is not None:
        predictor = dataclasses.replace(predictor, presence=tuple(presence.probability.tolist()))
    result = predictor, outputs, p, weights, q, solution, trained.step, trained.history, config
    unadapted = None if trained.unadapted is None else trained.unadapted.numpy()
    if unadapted is not None and task.for_regression:
        unadapted = predictor.centre + predictor.scale * unadapted
    unknown = None if trained.unknown is None else trained.unknown.numpy()
    return Fitted(*result, presence=presence, unadapted=unadapted, unknown=unknown)


def _presence(trained: Trained, task: Task) -> ClassPresence:
    """Return the training's own estimate of the classes, or one from its features, given the final predictions."""
    presence, logits = trained.presence, trained.target.logits
    if presence is None:
        xs, xt = (outputs.features.double().numpy() for outputs in (trained.source, trained.target))
        ys = task.ys if trained.source_rows is None else task.ys[trained.source_rows.numpy()]
        with one_thread():  # it looks at few samples, however many there are
            presence = estimate_presence(xs, ys, xt, n_classes=logits.shape[1], unit=xs.shape[1] >= NARROW)
    return presence.given(predicted_shares(logits), len(logits))
