"""Checkpoints: safetensors for tensors, JSON for the rest, in a folder that is written completely or not at all."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from warmpot._files import atomic_folder
from warmpot.errors import InputError

__all__ = ["Checkpoint", "latest_checkpoint", "load_checkpoint", "pack_optimizer", "random_state", "save_checkpoint",
           "set_random_state", "unpack_optimizer"]  # fmt: skip

TENSORS, FACTS = "state.safetensors", "state.json"
KEEP = 2
"""Checkpoints kept: the last, and the one before it in case the last is damaged on disk."""


class Checkpoint(NamedTuple):
    """Everything that a resumed run needs.

    Batches are a pure function of the seed and the step (`warmpot.data.samplers`) and so is the learning rate; their
    state is the step.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``folder/step-<n>`` and delete all but the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{checkpoint.step:08d}"
    with atomic_folder(path) as draft:
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
        save_file(tensors, draft / TENSORS)
        (draft / FACTS).write_text(json.dumps({"step": checkpoint.step, **checkpoint.facts}), encoding="utf-8")
    for old in _checkpoints(folder)[:-KEEP]:
        shutil.rmtree(old)
    return path


def _checkpoints(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8}", path.name))


def latest_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a folder, or None."""
    complete = [path for path in _checkpoints(folder) if (path / FACTS).is_file() and (path / TENSORS).is_file()]
    return complete[-1] if complete else None


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; raise `InputError` when it is damaged."""
    try:
        facts = json.loads((path / FACTS).read_text(encoding="utf-8"))
        return Checkpoint(int(facts.pop("step")), load_file(path / TENSORS), facts)
    except Exception as error:  # parsers raise almost anything on a damaged file
        got = f"{type(error).__name__}: {error}"
        remedy = f"Remove {path}; the run then continues from the checkpoint before it."
        raise InputError(str(path), got=got, allowed="a complete checkpoint", remedy=remedy) from error


def random_state() -> dict[str, Tensor]:
    """Return the states of torch's generators, CPU and devices."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{k}": state for k, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def set_random_state(states: dict[str, Tensor]) -> None:
    """Undo `random_state`; devices that are not here are left out."""
    torch.set_rng_state(states["cpu"])
    for name, state in states.items():
        if name.startswith("cuda") and int(name[4:]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, int(name[4:]))


def pack_optimizer(optimizer: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into tensors and what JSON can hold."""
    state = optimizer.state_dict()
    entries = {f"{index}.{name}": value for index, part in state["state"].items() for name, value in part.items()}
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    numbers = {key: value for key, value in entries.items() if key not in tensors}
    return tensors, {"numbers": numbers, "groups": state["param_groups"]}


def unpack_optimizer(optimizer: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Undo `pack_optimizer`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **facts["numbers"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": facts["groups"]})
