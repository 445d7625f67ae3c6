"""The run folder: what both engines write, and what a resumed run reads; `warmpot.train.run_reader` reads results.

Checkpoints are safetensors for tensors and JSON for the rest, in a folder that is written completely or not at all.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from safetensors.torch import load, save
from scipy.sparse import csr_array, load_npz, save_npz
from torch import Tensor

from warmpot import _run_files as names
from warmpot._files import (
    atomic_folder,
    atomic_write,
    check_file,
    is_unused,
    make_folder,
    parse_json,
    read_json,
    read_text,
    write_csv,
    write_text,
    writing,
)
from warmpot._typing import FloatArray
from warmpot.bounds import BoundReport, BoundSearch
from warmpot.bounds.lipschitz import Lipschitz
from warmpot.bounds.report import PlanRecord, Term
from warmpot.data import Task
from warmpot.data.task import HeldOutTarget
from warmpot.errors import InputError, MissingExtraError
from warmpot.train.config import RunConfig, load_config
from warmpot.train.recipes import read_settings
from warmpot.train.target_use import TARGET_USE, TargetUse, recorded_use, target_use

if TYPE_CHECKING:
    from warmpot.train.fitting import Fitted

__all__ = ["Bounds", "Checkpoint", "RunFolder", "check_finished", "fingerprint", "has_same_data", "held_out_rows",
           "latest_checkpoint", "load_checkpoint", "new_record", "parse_bounds", "read_config", "read_facts",
           "read_plan", "read_use", "versions", "write_bounds"]  # fmt: skip

PACKAGES = ("warmpot", "torch", "numpy", "scipy", "numba", "POT", "scikit-learn", "lightning-fabric", "safetensors")
IMAGE_PACKAGES = ("pillow", "timm", "torchvision")
"""Recorded if they are installed."""


HELD_OUT = "holdout"
"""The fact of a run that has the rows of the target that were held out."""
TENSORS, FACTS = "state.safetensors", "state.json"
KEEP = 2
"""Checkpoints kept: the last, and the one before it in case the last is damaged on disk."""


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    packages = {name: importlib.metadata.version(name) for name in PACKAGES}
    for name in IMAGE_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return {"python": platform.python_version(), **packages}


def fingerprint(task: Task) -> str:
    """Return a short hash of the data, so that a run is not resumed on other data."""
    digest = hashlib.sha256(repr(task.classes).encode())
    for rows in (task.xs, task.ys, task.xt):
        digest.update(repr(rows.shape).encode())
        digest.update(
            np.ascontiguousarray(rows).data if isinstance(rows, np.ndarray) else rows.fingerprint().encode()
        )  # fmt: skip
    return digest.hexdigest()[:16]


def new_record(config: RunConfig, task: Task, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of ``run.json``."""
    use = asdict(target_use(config))
    if task.held_out is not None:
        facts = {**facts, HELD_OUT: task.held_out.rows.tolist()}
    record = {"fingerprint": fingerprint(task), "seed": config.seed, "versions": versions(), TARGET_USE: use}
    return {**record, "facts": dict(facts)}


def has_same_data(folder: Path, task: Task) -> bool:
    """Whether a run was trained on these data; True if its record does not say."""
    try:
        return bool(read_json(folder / names.RECORD)["fingerprint"] == fingerprint(task))
    except (ValueError, KeyError, TypeError):
        return True


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the seed of a run and the facts about its data; empty if there is no readable record of a run."""
    try:
        record = read_json(folder / names.RECORD)
        return {"seed": record["seed"], **record.get("facts", {})}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def held_out_rows(facts: Mapping[str, Any]) -> list[int]:
    """Return the rows of the target that a run held out, from its facts."""
    rows = facts.get(HELD_OUT)
    valid = isinstance(rows, list) and all(isinstance(row, int) and row >= 0 for row in rows)
    return sorted(set(rows)) if valid and rows else []


def read_config(folder: Path) -> RunConfig:
    """Return the settings of a run."""
    if not read_settings(file := folder / names.CONFIG):  # the defaults are not those of the run
        got, remedy = "an empty file", "Restore it, or train again."
        raise InputError(str(file), got=got, allowed="what `warmpot fit` wrote", remedy=remedy)
    return load_config(file=file)


def read_use(folder: Path) -> TargetUse:
    """Return what the target samples have touched in a run."""
    try:
        record = read_json(folder / names.RECORD)
    except ValueError:
        record = {}
    return recorded_use(record if isinstance(record, Mapping) else {}, read_config(folder), folder)


def check_finished(folder: Path) -> None:
    """Refuse a sweep, and a run that was started but has no model yet."""
    got = remedy = ""
    if (folder / names.STUDY).exists():
        got, remedy = "a sweep", f"Its run is {folder / names.BEST_RUN}."
    elif read_facts(folder) and not (folder / names.MODEL_FACTS).exists():
        got = "a run that is not finished"
        remedy = f"Finish it first: warmpot fit --resume {shlex.quote(str(folder))}"
    if got:
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy)


def _tensorboard_writer(folder: Path) -> Callable[[], Any]:
    """Return a function that opens TensorBoard's writer on its first call: only one process may write."""
    if importlib.util.find_spec("tensorboard") is None:
        remedy = "Install it: pip install 'warmpot[track]'."
        raise MissingExtraError("tensorboard", got="not installed", allowed="installed", remedy=remedy)

    @cache
    def writer() -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder / names.TENSORBOARD))

    return writer


class Checkpoint(NamedTuple):
    """Everything that a resumed run needs.

    Batches are a pure function of the seed and the step (`warmpot.data.samplers`) and so is the learning rate; their
    state is the step.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8}", path.name))


def _step(line: str) -> int:
    """Return the step of a line of the log; -1 if the line is damaged."""
    try:
        step = parse_json(line)["step"]
        return step if isinstance(step, int) else -1
    except (ValueError, KeyError, TypeError):
        return -1


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a folder, or None."""
    complete = [path for path in _checkpoints(folder) if (path / FACTS).is_file() and (path / TENSORS).is_file()]
    return complete[-1] if complete else None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raise `InputError` when it is damaged."""
    with _using(path):
        facts = read_json(path / FACTS)
        if _step_folder(step := int(facts.pop("step"))) != path.name:
            raise ValueError(f"step {step} in its {FACTS}")
        return Checkpoint(step, load(check_file(path / TENSORS).read_bytes()), facts)


@contextmanager
def _using(checkpoint: Path) -> Iterator[None]:
    """Raise `InputError` when a checkpoint is damaged."""
    try:
        yield
    except Exception as error:  # parsers, and networks that are given other tensors, raise almost anything
        got = f"{type(error).__name__}: {error}"
        remedy = f"Remove {checkpoint}; the run then continues from the checkpoint before it."
        raise InputError(str(checkpoint), got=got, allowed="a complete checkpoint", remedy=remedy) from error


def _step_folder(step: int) -> str:
    return f"step-{step:08d}"


class RunFolder:
    """Writes the folder of a run: settings, record, log and checkpoints, and in the end the model and its results."""

    def __init__(self, folder: Path, *, tensorboard: bool = False) -> None:
        self.folder = folder
        self._writer = _tensorboard_writer(folder) if tensorboard else None
        self.checkpoints = folder / names.CHECKPOINTS
        self.metrics = folder / names.METRICS

    def start(
        self, config: RunConfig, task: Task, *, resume: bool, facts: Mapping[str, Any] | None = None
    ) -> Checkpoint | None:
        """Create the folder, or check that it holds this run; return the checkpoint to resume from, if any.

        `facts` are recorded for resuming and reports, such as the paths of the data.
        """
        record = new_record(config, task, facts or {})
        if resume and (self.folder / names.RECORD).exists():
            self._check_same(config, record["fingerprint"])
            checkpoint = self.latest()
            self._drop_metrics_after(checkpoint.step if checkpoint else -1)
            return checkpoint
        if not is_unused(self.folder):
            remedy = "Name a new folder, or continue the run in it with --resume."
            got, allowed = "a folder or file that is in use", "a new or empty folder"
            raise InputError(str(self.folder), got=got, allowed=allowed, remedy=remedy)
        make_folder(self.folder)
        try:
            write_text(self.folder / names.CONFIG, config.dump())
            write_text(self.folder / names.RECORD, json.dumps(record, indent=1))
        except BaseException:
            self.abandon()
            raise
        return None

    def abandon(self) -> None:
        """Delete what was written if a run failed before its first checkpoint, so that the folder can be reused."""
        if latest_checkpoint(self.checkpoints) is None:
            with suppress(OSError):  # it holds other files, or the disk can only be read
                for name in (names.CONFIG, names.RECORD, names.METRICS):
                    (self.folder / name).unlink(missing_ok=True)
                shutil.rmtree(self.folder / names.TENSORBOARD, ignore_errors=True)
                if self.checkpoints.exists():
                    self.checkpoints.rmdir()
                self.folder.rmdir()

    def latest(self) -> Checkpoint | None:
        """Read the newest checkpoint, if there is one."""
        path = latest_checkpoint(self.checkpoints)
        return load_checkpoint(path) if path is not None else None

    def restoring(self, checkpoint: Checkpoint) -> AbstractContextManager[None]:
        """Return a context in which an error means that a checkpoint, which was read, lacks something."""
        return _using(self.checkpoints / _step_folder(checkpoint.step))

    def _check_same(self, config: RunConfig, data: Any) -> None:
        record = read_json(self.folder / names.RECORD)
        if not isinstance(record, Mapping) or record.get("fingerprint") != data:
            got, remedy = "other data than the run was started on", "Resume with the same files, or start a new run."
            raise InputError(str(self.folder), got=got, allowed="the same data", remedy=remedy)
        if read_config(self.folder) != config:  # not the text: a newer version may have more settings
            got = f"another configuration than {names.CONFIG} there"
            remedy = "Leave the flags out when you resume."
            raise InputError(str(self.folder), got=got, allowed="the same configuration", remedy=remedy)

    def _drop_metrics_after(self, step: int) -> None:
        """Drop the metrics that the resumed run will write again."""
        if not self.metrics.exists():
            return
        before = [line for line in read_text(self.metrics).splitlines() if -1 < _step(line) <= step]
        write_text(self.metrics, "".join(f"{line}\n" for line in before))

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to the log, and to TensorBoard if it is used."""
        with writing(self.metrics), open(self.metrics, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        if self._writer is not None:
            writer = self._writer()
            for name, value in line.items():
                writer.add_scalar(name, value, line["step"])
            writer.flush()

    def history(self) -> list[dict[str, Any]]:
        """Read the log."""
        if not self.metrics.exists():
            return []
        return [parse_json(line, str(self.metrics)) for line in read_text(self.metrics).splitlines()]

    def save(self, checkpoint: Checkpoint) -> None:
        """Write ``checkpoints/step-<n>`` and delete all but the last two."""
        make_folder(self.checkpoints)
        with atomic_folder(self.checkpoints / _step_folder(checkpoint.step)) as draft:
            tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
            (draft / TENSORS).write_bytes(save(tensors))  # the errors of save_file are not OSErrors
            (draft / FACTS).write_text(json.dumps({"step": checkpoint.step, **checkpoint.facts}), encoding="utf-8")
        for old in _checkpoints(self.checkpoints)[:-KEEP]:
            shutil.rmtree(old, ignore_errors=True)

    def write_results(self, fitted: Fitted, task: Task) -> None:
        """Write the model, the predictions for the target and the weights of the source samples."""
        fitted.predictor.save(self.folder)
        matched = fitted.target_weights * task.n_target
        columns: dict[str, Sequence[Any]]
        if task.for_regression:
            columns = {"prediction": fitted.outputs.tolist()}
        else:
            best = [task.classes[k] for k in fitted.outputs.argmax(axis=1)]
            confidence = fitted.outputs.max(axis=1)
            columns = {"prediction": best, "confidence": confidence.tolist()}
            columns["review"] = fitted.predictor.review(fitted.outputs).tolist()
        columns["weight"] = matched.tolist()
        if fitted.unknown is not None:
            columns["unknown"] = fitted.unknown.tolist()
        if (first := fitted.unadapted) is not None:
            columns["unadapted"] = [task.classes[k] for k in first] if task.classes else first.tolist()
        held = task.held_out
        self._write_rows(names.PREDICTIONS, task.target_names, columns, None if held is None else held.kept)
        if held is not None:
            self._write_held_out(fitted, held)
        self.write_weights(fitted.plan_weights, fitted.training_weights, task)
        if fitted.solution is not None:
            self.write_plan(fitted.solution.plan)
        if (presence := fitted.presence) is not None:
            parts = task.classes, presence.probability.tolist(), presence.share.tolist(), presence.states
            head = ["class", "probability", "share", "estimate"]
            write_csv(self.folder / names.CLASSES, head, zip(*parts, strict=True))

    def write_plan(self, plan: csr_array) -> None:
        """Write the plan. It has fewer entries than there are samples, as exact plans have."""
        with atomic_write(self.folder / names.PLAN) as draft, open(draft, "xb") as stream:
            save_npz(stream, plan)

    def write_weights(self, plan_weights: FloatArray | None, training_weights: FloatArray, task: Task) -> None:
        """Write both kinds of weights of the source samples; without a plan, only the training weights."""
        labels = [task.classes[k] for k in task.ys] if task.classes else task.ys.tolist()
        columns: dict[str, Sequence[Any]] = {"label": labels}
        if plan_weights is not None:
            columns["plan_weight"] = plan_weights.tolist()
        columns["training_weight"] = training_weights.tolist()
        self._write_rows(names.SOURCE_WEIGHTS, task.source_names, columns)

    def _write_held_out(self, fitted: Fitted, held: HeldOutTarget) -> None:
        """Write the predictions of the held-out target samples, which no other file has."""
        model = fitted.predictor
        columns: dict[str, Sequence[Any]] = {"prediction": model.predict(held.x, "held-out target").tolist()}
        if model.classes:
            proba = model.probabilities(held.x, "held-out target")
            columns["prediction"] = [model.classes[k] for k in proba.argmax(axis=1)]
            columns["confidence"] = proba.max(axis=1).tolist()
        self._write_rows(names.HOLDOUT, held.names, columns, held.rows)

    def _write_rows(
        self, file: str, samples: Sequence[str], columns: Mapping[str, Sequence[Any]], rows: Any = None
    ) -> None:
        """Write one row per sample, with its number, and its name if it has one."""
        numbers = range(len(next(iter(columns.values())))) if rows is None else rows.tolist()
        table = {"row": numbers, **({"name": samples} if samples else {}), **columns}
        write_csv(self.folder / file, list(table), zip(*table.values(), strict=True))


def read_plan(folder: Path) -> csr_array | None:
    """Return the plan of a run, source x target samples; None if it has none."""
    file = folder / names.PLAN
    if not file.exists():
        return None
    try:
        with open(file, "rb") as stream:  # of a damaged file, scipy would leave it open
            plan = csr_array(load_npz(stream))
        plan.check_format(full_check=True)  # indices that point elsewhere would be used unchecked
        return plan
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        got, remedy = f"a damaged file ({error})", "Train again, or restore the file."
        raise InputError(str(file), got=got, allowed="a plan that `warmpot fit` wrote", remedy=remedy) from error


TABLES = "tables"
"""The key of bound.json that is not the name of a bound."""
Bounds = tuple[dict[str, BoundReport], dict[str, tuple[BoundReport, ...]]]
"""Bounds by name, and the same bounds on a grid of alpha and beta."""


def write_bounds(
    folder: Path,
    reports: Mapping[str, BoundReport],
    searches: Mapping[str, BoundSearch],
    tables: Mapping[str, Any] | None = None,
) -> None:
    """Write bounds, the curves over alpha of those that were searched for, and tables of numbers."""
    entries: dict[str, Any] = {
        name: {**report.to_dict(), "curve": searches[name].to_dict()["curve"] if name in searches else []}
        for name, report in reports.items()
    }
    if tables:
        entries[TABLES] = tables
    write_text(folder / names.BOUNDS, json.dumps(entries, indent=1))


def parse_bounds(entries: Mapping[str, Any]) -> Bounds:
    """Return the bounds that `write_bounds` wrote."""
    reports: dict[str, BoundReport] = {}
    curves: dict[str, tuple[BoundReport, ...]] = {}
    plain = ("theorem", "alpha", "beta", "loss", "form", "union_bound", "confidence", "target_loss", "total_refined")
    for name, entry in entries.items():
        if name == TABLES:
            continue
        report = reports[name] = BoundReport(
            terms=tuple(Term(**term) for term in entry["terms"]),
            lipschitz=Lipschitz(**entry["lipschitz"]),
            plan=PlanRecord(**entry["plan"]),
            notes=tuple(entry["notes"]),
            guess=entry.get("guess"),  # absent from older files
            **{key: entry[key] for key in plain},
        )
        if entry.get("curve"):
            curves[name] = tuple(
                replace(report, alpha=row["alpha"], beta=row["beta"],
                        terms=tuple(Term(k, v, "") for k, v in row["terms"].items()))
                for row in entry["curve"]
            )  # fmt: skip
    return reports, curves
