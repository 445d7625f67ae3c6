"""The data of a command: its files (`warmpot.train.run_data`), their network, and settings given with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot.cli._shared import complain
from warmpot.errors import InputError
from warmpot.train.run_data import (
    ColumnFlags,
    DataFiles,
    held_out_task,
    read_table,
    recorded_data,
    remembered_files,
    remembered_flags,
)

if TYPE_CHECKING:
    from warmpot.data import Task
    from warmpot.train import RunConfig
    from warmpot.train.images import ImageSettings

__all__ = [
    "ColumnFlags", "DataFiles", "absolute_file", "describe_task", "frozen_network", "held_out_task", "nested_changes",
    "read_table", "recorded_data", "remembered_files", "remembered_flags", "warn_if_changed",
]  # fmt: skip


def frozen_network(
    data: DataFiles, settings: list[str], backbone: str | None, weights: str | None
) -> tuple[dict[str, Any], ImageSettings | None]:
    """Return the changes of --set and of the flags of a network that is not trained; and its settings, for images."""
    flags = {"images.backbone.name": backbone, "images.backbone.weights": absolute_file(weights)}
    changes = nested_changes(settings, {name: value for name, value in flags.items() if value is not None})
    images = data.of_images
    if not images and "images" not in changes:
        return changes, None
    from warmpot.train.defaults import config_for_data  # raises for tables with image settings

    changes = {"images": {}, **changes}
    return changes, config_for_data(images=images, changes={"images": changes["images"]}, fine_tune=False).images


def absolute_file(weights: str | None) -> str | None:
    """Return the absolute path of a file of weights, so that a run can be used from another folder."""
    return str(Path(weights).resolve()) if weights is not None and Path(weights).is_file() else weights


def warn_if_changed(run: Path, config: RunConfig, task: Task) -> None:
    """Warn if the recorded files do not hold the data that the run was trained on."""
    from warmpot.train.config import LAST
    from warmpot.train.run_folder import has_same_data

    # a run that held out samples to choose by was trained on a part of the data
    if config.choose == LAST and not has_same_data(run, task):
        complain("warning: the data have changed since this run was trained; the numbers are of the new data", "yellow")


def describe_task(task: Task) -> str:
    """Count samples, features and classes."""
    from warmpot.data.table import sample_shape

    labels = f"{task.n_classes} classes" if task.classes else "continuous targets"
    return f"{task.n_source} source and {task.n_target} target samples, {sample_shape(task.xs)}; {labels}"


def nested_changes(settings: list[str], flags: dict[str, Any]) -> dict[str, Any]:
    """Nest the ``--set`` texts; flags that have a setting override them."""
    from warmpot._settings import merged, with_value

    changes: dict[str, Any] = {}
    for name, value in [*map(_parse_setting, settings), *flags.items()]:
        changes = merged(changes, with_value(name, value))
    return changes


def _parse_setting(text: str) -> tuple[str, Any]:
    from warmpot._yaml import parse_yaml

    name, equals, value = text.partition("=")
    got = repr(text)
    if name.strip() == "preset":
        raise InputError("--set", got=got, allowed="a setting of the run", remedy="Use --preset.")
    try:
        if equals and all(name.strip().split(".")):
            return name.strip(), parse_yaml(value)
    except InputError:
        got += ", whose value is not YAML"
    remedy = "Write it like --set minibatch.steps=100; `warmpot methods full` shows all settings."
    raise InputError("--set", got=got, allowed="NAME=VALUE", remedy=remedy)
