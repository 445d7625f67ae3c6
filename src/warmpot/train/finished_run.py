"""A finished run as arrays; `warmpot.train.run_reader` reads one from its folder."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from warmpot import _run_files as names
from warmpot._files import read_json
from warmpot._settings import from_mapping, to_mapping
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot._yaml import parse_yaml
from warmpot.bounds import BoundReport
from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import get_method
from warmpot.train.config import RunConfig, load_config
from warmpot.train.fitting import Fitted
from warmpot.train.images import ImageSettings
from warmpot.train.predictor import Predictor
from warmpot.train.recipes import preset_names
from warmpot.train.run_folder import held_out_rows, new_record
from warmpot.train.target_use import TargetUse, recorded_use
from warmpot.weights import ClassPresence, Verdict, needs_review, verdict_of

__all__ = ["UNKNOWN", "FinishedRun", "as_mapping", "clean_line", "from_fitted", "shareable"]

UNKNOWN = "not recorded"
"""Shown for a setting that an older or a damaged folder lacks."""


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A finished run; nothing in it was computed from target labels, except the parts of `bounds` that say so.

    Arrays are empty if their file is missing, and NaN where a number is unknown.

    Attributes
    ----------
    folder : Path or None
        The run folder; None for a live result that was not written.
    config, record : mappings
        The settings, of which an old folder may lack some; seed, versions, fingerprint of the data, facts about it.
    model : mapping
        The width of the inputs (``n_inputs``) and the facts saved with the model, such as its classes.
    history : sequence of mapping
        The log: a step and finite numbers per line.
    step : int
        The round or step of the final iterate.
    predictions, confidence : (n_t,) arrays
        Class codes, or predicted values, and the probability of the predicted class (empty in regression).
    matched : (n_t,) array
        Share of each target sample that the plan matches, in [0, 1]; 1 without a plan.
    unadapted : (n_t,) array or None
        What the fit on the source alone predicts; None if the run has none, and for a folder of an older version.
    unknown : (n_t,) array or None
        How unsure that fit is, from 0 to 1; None as above, and in regression.
    labels : (n_s,) array
        Class codes, or continuous targets, of the source samples.
    training_weights : (n_s,) array
        How much each source sample counted in training, relative to the others.
    plan_weights : (n_s,) array or None
        Row sums of the plan, which sum to alpha; None without a plan, or if the folder does not have them.
    presence : ClassPresence or None
        Which classes are estimated to be in the target; None in regression, and for a folder of an older version.
    source_names, target_names : sequence of str
        Names of the samples, such as files of images; empty if they have none.
    bounds, bound_curves, bound_tables : mappings
        `BoundReport`s by name, those on a grid of alpha and beta, and tables; empty if none was computed.
    problems : sequence of str
        What is missing from the folder, or cannot be used.
    predictor : Predictor or None
        The model of a live result; see `load_predictor`.
    """

    folder: Path | None
    config: Mapping[str, Any]
    record: Mapping[str, Any]
    model: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    step: int
    predictions: IntArray | FloatArray
    confidence: FloatArray
    matched: FloatArray
    labels: IntArray | FloatArray
    training_weights: FloatArray
    plan_weights: FloatArray | None = None
    presence: ClassPresence | None = None
    unadapted: IntArray | FloatArray | None = None
    unknown: FloatArray | None = None
    source_names: Sequence[str] = ()
    target_names: Sequence[str] = ()
    bounds: Mapping[str, BoundReport] = field(default_factory=dict)
    bound_curves: Mapping[str, Sequence[BoundReport]] = field(default_factory=dict)
    bound_tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    problems: Sequence[str] = ()
    predictor: Predictor | None = None

    def setting(self, name: str) -> str:
        """Return a setting as text; "not recorded" if the folder lacks it."""
        return str(self.config.get(name, UNKNOWN))

    @property
    def params(self) -> Mapping[str, Any]:
        """Settings of the method."""
        return as_mapping(self.config.get("params"))

    @property
    def seed(self) -> str:
        """The seed."""
        return str(self.record.get("seed", UNKNOWN))

    @property
    def versions(self) -> Mapping[str, Any]:
        """Versions of Python and of packages."""
        return as_mapping(self.record.get("versions"))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was recorded about the data, such as the paths of its files."""
        return as_mapping(self.record.get("facts"))

    @property
    def classes(self) -> list[str]:
        """Class names; empty in regression."""
        return list(self.model["facts"]["classes"])

    @property
    def images(self) -> Mapping[str, Any] | None:
        """Settings of images; None for a run on features."""
        images: Mapping[str, Any] | None = self.model["facts"].get("images")
        return images

    @property
    def temperature(self) -> float:
        """Temperature of the model's probabilities; 1 if they are not calibrated."""
        value = self.model["facts"].get("temperature", 1.0)
        return float(value) if isinstance(value, int | float) else 1.0

    @property
    def n_source(self) -> int:
        """Number of source samples; 0 if the file of weights is missing."""
        return len(self.labels)

    @property
    def n_target(self) -> int:
        """Number of target samples; 0 if the file of predictions is missing."""
        return len(self.predictions)

    @property
    def held_out(self) -> list[int]:
        """Rows of the target data that nothing depends on."""
        return held_out_rows(self.facts)

    @cached_property
    def target_rows(self) -> IntArray:
        """Row of each target sample in the target data, of which the run may have held out some."""
        return np.setdiff1d(np.arange(self.n_target + len(self.held_out)), self.held_out)

    @property
    def unit(self) -> str:
        """What an iterate of the engine is called: round or step."""
        return "round" if self.config.get("engine") == "full" else "step"

    @property
    def last_line(self) -> Mapping[str, Any]:
        """The last line of the log."""
        return self.history[-1] if self.history else {}

    @property
    def method(self) -> Any:
        """The class of the method; None if it is not registered here."""
        with suppress(InputError):
            return get_method(self.setting("method"))
        return None

    @cached_property
    def changed_settings(self) -> list[str]:
        """Settings that differ from the preset's, as ``--set`` takes them; all of them if the preset is unknown."""
        preset = self.setting("preset")
        base = to_mapping(load_config(preset)) if preset in preset_names() else {}
        if self.config.get("images") and not base.get("images"):  # presets leave images out: the defaults hold
            base = {**base, "images": to_mapping(ImageSettings())}
        return list(_changes(base, self.config))

    @cached_property
    def target_use(self) -> TargetUse:
        """What the target samples have touched."""
        config = None
        with suppress(InputError, KeyError):
            _ = self.config["method"], self.config["choose"]  # the defaults are not those of the run
            config = from_mapping(RunConfig, self.config, "config")
        return recorded_use(self.record, config, self.folder)

    @property
    def adapted(self) -> bool:
        """Whether the features, the iterate or the settings depend on the target: no PAC-Bayes bound is valid."""
        return bool(self.target_use.reason)

    def logged(self, name: str) -> float | None:
        """Return the value of a metric at the final iterate, or the last one logged before; None if there is none."""
        lines = [line[name] for line in self.history if line["step"] <= self.step and line.get(name) is not None]
        return float(lines[-1]) if lines else None

    @property
    def review(self) -> BoolArray:
        """Which predictions should be reviewed (`warmpot.weights.needs_review`), (n_t,); empty in regression."""
        if not self.classes:
            return np.zeros(0, bool)
        known = self.model["facts"].get("presence")  # the model's, as for new samples
        usable = isinstance(known, list) and len(known) == len(self.classes)
        presence = np.asarray(known, np.float64) if usable else None
        return needs_review(self.confidence, np.asarray(self.predictions, np.int64), presence)

    @property
    def verdict(self) -> Verdict | None:
        """Whether the adaptation is supported; None where the result was not chosen from hypotheses."""
        return verdict_of(self.history, self.step)

    @property
    def shown_folder(self) -> str:
        """The folder as commands on a page name it: an absolute path is not for those to whom the page is sent."""
        return "RUN" if self.folder is None else shareable(self.folder)

    def data_name(self, side: str) -> str:
        """Return the name of the "source" or "target" file, without its folders."""
        return Path(str(self.facts.get(side) or side)).name or side

    def load_predictor(self) -> Predictor:
        """Return the model."""
        if self.predictor is not None:
            return self.predictor
        assert self.folder is not None, "a run without a folder has its predictor"
        return Predictor.load(self.folder)

    @property
    def times(self) -> tuple[datetime, datetime] | None:
        """When it was started and finished, by the times of its files; None without them."""
        files = [] if self.folder is None else [self.folder / name for name in (names.RECORD, names.PREDICTIONS)]
        times = [datetime.fromtimestamp(file.stat().st_mtime, timezone.utc) for file in files if file.exists()]
        return (times[0], times[1]) if len(times) == 2 and times[1] >= times[0] else None


def shareable(path: Path) -> str:
    """Return a path as a word of a command; of an absolute one, only its name."""
    return shlex.quote(path.name if path.is_absolute() else str(path))


def _changes(base: Mapping[str, Any], config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in config.items():
        if name == "preset" and not prefix:
            continue
        old = base.get(name)
        if isinstance(value, Mapping) and value:
            yield from _changes(old if isinstance(old, Mapping) else {}, value, f"{prefix}{name}.")
        elif name not in base or value != old:
            absolute = isinstance(value, str) and Path(value).is_absolute()  # a file of backbone weights
            yield f"{prefix}{name}={json.dumps(Path(value).name if absolute else value)}"


def from_fitted(fitted: Fitted, task: Task | None = None, facts: Mapping[str, Any] | None = None) -> FinishedRun:
    """Return a live result in the form that `read_run` gives.

    `task` is what it was trained on; default: the one it holds. `facts` are used where none were written.
    """
    task = task or fitted.task
    assert task is not None, "what fit returns has its task"
    record: Mapping[str, Any] = {}
    if fitted.folder is not None:
        with suppress(ValueError):
            record = as_mapping(read_json(fitted.folder / names.RECORD))
    record = record or new_record(fitted.config, task, facts or {})
    classes = fitted.predictor.classes
    return FinishedRun(
        fitted.folder,
        config=parse_yaml(fitted.config.dump()),
        record=record,
        model={"n_inputs": fitted.predictor.width, "facts": fitted.predictor.facts()},
        history=[line for line in map(clean_line, fitted.history) if line],
        step=fitted.step,
        predictions=fitted.outputs.argmax(axis=1) if classes else fitted.outputs,
        confidence=fitted.outputs.max(axis=1) if classes else np.zeros(0),
        matched=fitted.target_weights * len(fitted.outputs),
        labels=task.ys,
        training_weights=fitted.training_weights,
        plan_weights=fitted.plan_weights,
        presence=fitted.presence,
        unadapted=fitted.unadapted,
        unknown=fitted.unknown,
        source_names=task.source_names,
        target_names=task.target_names,
        predictor=fitted.predictor,
    )


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping unchanged, and an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def clean_line(line: Any) -> dict[str, Any]:
    """Return a line of the log without its NaN and infinite values; empty unless it is a step and numbers."""
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return {}
    if not all(value is None or isinstance(value, int | float) for value in line.values()):
        return {}
    return {name: value for name, value in line.items() if value is None or np.isfinite(value)}
