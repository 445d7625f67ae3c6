"""The run directory: what both engines write, and where resuming finds it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from warmpot._files import atomic_write, write_csv
from warmpot.data import Task
from warmpot.errors import InputError, MissingExtraError
from warmpot.train.checkpoints import Checkpoint, latest_checkpoint, load_checkpoint, save_checkpoint
from warmpot.train.config import RunConfig, load_config

__all__ = ["RunDir", "versions"]

PACKAGES = ("warmpot", "torch", "numpy", "scipy", "numba", "POT", "scikit-learn", "lightning-fabric", "safetensors")
FURTHER = ("pillow", "timm", "torchvision")
"""Those that images need, if they are installed."""


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    for name in FURTHER:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return {"python": platform.python_version(), **found}


def fingerprint(task: Task) -> str:
    """Return a short hash of the data, so that a run is not resumed on other data."""
    digest = hashlib.sha256(repr(task.classes).encode())
    for rows in (task.xs, task.ys, task.xt):
        digest.update(repr(rows.shape).encode())
        digest.update(
            np.ascontiguousarray(rows).data if isinstance(rows, np.ndarray) else rows.fingerprint().encode()
        )  # fmt: skip
    return digest.hexdigest()[:16]


def _board(folder: Path) -> Callable[[], Any]:
    """Return a function that opens TensorBoard's writer when it is first needed: only one process may write."""
    if importlib.util.find_spec("tensorboard") is None:
        remedy = "Install it: pip install 'warmpot[track]'."
        raise MissingExtraError("tensorboard", got="not installed", allowed="installed", remedy=remedy)

    @cache
    def opened() -> Any:
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(folder / "tensorboard"))

    return opened


class RunDir:
    """A folder with config.yaml, run.json, metrics.jsonl, checkpoints, and in the end the model and its results."""

    def __init__(self, folder: Path, *, tensorboard: bool = False) -> None:
        self.folder = folder
        self._board = _board(folder) if tensorboard else None
        self.checkpoints = folder / "checkpoints"
        self.metrics = folder / "metrics.jsonl"

    def start(
        self, config: RunConfig, task: Task, *, resume: bool, facts: Mapping[str, Any] | None = None
    ) -> Checkpoint | None:
        """Make the folder, or check that it holds this run; return the checkpoint to go on from, if any.

        `facts` are kept in ``run.json`` for whoever resumes the run, such as where its data lies.
        """
        mark: dict[str, Any] = {
            "fingerprint": fingerprint(task),
            "seed": config.seed,
            "versions": versions(),
            "facts": facts or {},
        }
        if resume and (self.folder / "run.json").exists():
            self._check_same(config, mark["fingerprint"])
            checkpoint = self.latest()
            self._forget_after(checkpoint.step if checkpoint else -1)
            return checkpoint
        if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
            remedy = "Name a new folder, or continue the run in it with --resume."
            got, allowed = "something that is there already", "a new or empty folder"
            raise InputError(str(self.folder), got=got, allowed=allowed, remedy=remedy)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = "Choose a place you may write to."
            raise InputError(str(self.folder), got=error.strerror, allowed="a folder", remedy=remedy) from error
        self.write_text("config.yaml", config.dump())
        self.write_text("run.json", json.dumps(mark, indent=1))
        return None

    def abandon(self) -> None:
        """Take back what `start` wrote when a run failed before its first checkpoint: the place is free again."""
        if latest_checkpoint(self.checkpoints) is None:
            for name in ("config.yaml", "run.json", self.metrics.name):
                (self.folder / name).unlink(missing_ok=True)
            with suppress(OSError):  # something else is in it
                self.folder.rmdir()

    def latest(self) -> Checkpoint | None:
        """Read the newest checkpoint, if there is one."""
        place = latest_checkpoint(self.checkpoints)
        return load_checkpoint(place) if place is not None else None

    def _check_same(self, config: RunConfig, data: str) -> None:
        recorded = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))
        if recorded.get("fingerprint") != data:
            got, remedy = "other data than the run was started on", "Resume with the same files, or start a new run."
            raise InputError(str(self.folder), got=got, allowed="the same data", remedy=remedy)
        if load_config(file=self.folder / "config.yaml") != config:  # not the text: a newer version may know more
            got, remedy = "another configuration than config.yaml there", "Leave the flags out when you resume."
            raise InputError(str(self.folder), got=got, allowed="the same configuration", remedy=remedy)

    def _forget_after(self, step: int) -> None:
        """Drop the metrics that the run will write again."""
        if not self.metrics.exists():
            return
        lines = self.metrics.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.endswith("}") and json.loads(line)["step"] <= step]
        self.write_text(self.metrics.name, "".join(f"{line}\n" for line in kept))

    def log(self, line: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl, and to TensorBoard if it was asked for."""
        with open(self.metrics, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        if self._board is not None:
            writer = self._board()
            for name, value in line.items():
                writer.add_scalar(name, value, line["step"])
            writer.flush()

    def history(self) -> list[dict[str, Any]]:
        """Read metrics.jsonl."""
        if not self.metrics.exists():
            return []
        return [json.loads(line) for line in self.metrics.read_text(encoding="utf-8").splitlines()]

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint."""
        save_checkpoint(self.checkpoints, checkpoint)

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole."""
        with atomic_write(self.folder / name) as draft:
            draft.write_text(text, encoding="utf-8")

    def write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Write a table whole."""
        write_csv(self.folder / name, header, rows)
