"""From a user's data to a task and its settings: what ``warmpot fit`` and `warmpot.fit` decide in the same way."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from warmpot._settings import merged, with_value
from warmpot.data import Table, Task, Truth, make_task
from warmpot.errors import InputError, WarmpotError
from warmpot.nets.backbone import BackboneSettings, last_block
from warmpot.train.config import RunConfig, load_config
from warmpot.train.images import ImageSettings, prepare
from warmpot.train.recipes import preset_for, read_settings

__all__ = ["config_for_data", "data_facts", "task_from_tables"]

logger = logging.getLogger(__name__)


def config_for_data(
    *,
    images: bool,
    regression: bool = False,
    method: str | None = None,
    preset: str | None = None,
    file: Path | None = None,
    changes: Mapping[str, Any] | None = None,
    fine_tune: bool | None = None,
) -> RunConfig:
    """Return the settings of a run on data of this kind: the preset is that of the method, if none is named.

    Parameters
    ----------
    images : bool
        Whether the data are images.
    regression : bool
        Whether the labels are continuous targets; then the loss is the squared one, unless another is set.
    method, preset, file, changes
        As for `load_config`; the method can also be in the file.
    fine_tune : bool, optional
        Whether the backbone is trained on images, by default with the method "deep". Default: if the settings name a
        block of it, or there is a GPU. Without one, training all of it takes days: then the last block is trained, from
        stored outputs of the others, unless the settings name another.
    """
    written, changes = {} if file is None else read_settings(file), dict(changes or {})
    changes, fine_tunes = _image_changes(images, changes, written.get("images"), fine_tune)
    preset = preset or written.get("preset")
    method = method or written.get("method")
    if fine_tunes and method is None and preset is None:
        method = "warmpot" if regression else "deep"
    if method is not None:
        changes, preset = {**changes, "method": method}, preset_for(method, preset, images=fine_tunes)
    config = load_config(preset, file, changes)
    return replace(config, loss="squared") if _needs_other_loss(config, regression, changes) else config


def _needs_other_loss(config: RunConfig, regression: bool, changes: Mapping[str, Any]) -> bool:
    return regression and config.label_loss.classification and "loss" not in changes


def _image_changes(
    images: bool, changes: dict[str, Any], written: Any, fine_tune: bool | None
) -> tuple[dict[str, Any], bool]:
    """Decide whether the backbone is trained; return the changes with that decision, and the decision."""
    if not images:
        if written is not None or "images" in changes or fine_tune is not None:
            got, remedy = "image settings for tables", "Leave them out, or name folders of images."
            raise InputError("source, target", got=got, allowed="folders or lists of images", remedy=remedy)
        return changes, False
    given = merged({"images": written if isinstance(written, Mapping) else {}}, changes)  # types are checked later
    settings = given["images"] if isinstance(given["images"], Mapping) else {}
    backbone = settings.get("backbone")
    train_from = backbone.get("train_from") if isinstance(backbone, Mapping) else None
    if fine_tune is False and train_from is not None:
        got, remedy = f"`fine_tune=False`, but {train_from!r} is to be trained", "Leave one of the two out."
        raise InputError("config.images.backbone.train_from", got=got, allowed="no block", remedy=remedy)
    gpu = torch.cuda.is_available()
    fine_tunes = train_from is not None or (gpu if fine_tune is None else fine_tune)
    if fine_tunes and train_from is None:
        block = "all" if gpu else _last_block(backbone)
        changes = merged(changes, with_value("images.backbone.train_from", block))
        if not gpu and block != "all":
            if "cache" not in settings:
                changes = merged(changes, with_value("images.cache", True))
            all_of_it = "`images.backbone.train_from=all` trains all of it, which is slow"
            logger.warning("no GPU: only %s is trained, from stored outputs of the rest; %s", block, all_of_it)
    if not fine_tunes and fine_tune is None:
        frozen = "features are extracted once and the backbone is not trained"
        logger.info("no GPU: %s; `fine_tune=True` trains it", frozen)
    return merged({"images": {}}, changes), fine_tunes


def _last_block(backbone: Any) -> str:
    """Return the last block of the chosen backbone; "all" for one that cannot be split."""
    name = backbone.get("name") if isinstance(backbone, Mapping) else None
    with suppress(WarmpotError):  # a wrong name is reported when the backbone is built
        return last_block(name or BackboneSettings.name)
    return "all"


def task_from_tables(
    source: Table,
    target: Table,
    images: ImageSettings | None = None,
    *,
    corrupt: str = "raise",
    device: str = "auto",
    progress_bar: bool | None = None,
) -> tuple[Task, Truth | None]:
    """Combine two tables of features, or two of images with their settings; target labels are in the `Truth` only.

    See `warmpot.data.make_task` and `warmpot.train.images.prepare`.
    """
    if images is None or source.x.ndim == 2:
        return make_task(source, target)
    if source.y is None:  # checked before the images go through the network, which can take hours
        remedy = "Put its images into one folder per class, or list them with their labels."
        raise InputError(source.name, got="no labels", allowed="a labelled source", remedy=remedy)
    options: dict[str, Any] = {"corrupt": corrupt, "device": device, "progress_bar": progress_bar}
    return make_task(*prepare(source, target, settings=images, **options))


def data_facts(
    source: Path,
    target: Path,
    *,
    label: str | None,
    ids: str | None,
    features: Sequence[str] | None,
    regression: bool,
    images: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what a run folder records of its data, with absolute paths, so that it can be used from anywhere.

    `images` has what only images have: root, classes and corrupt.
    """
    facts: dict[str, Any] = {"source": source.resolve(), "target": target.resolve(), "label": label, "ids": ids}
    if features is not None:
        facts["features"] = list(features)
    facts |= {"regression": regression, **{name: _absolute(value) for name, value in (images or {}).items()}}
    return {name: str(value) if isinstance(value, Path) else value for name, value in facts.items()}


def _absolute(value: Any) -> Any:
    return value.resolve() if isinstance(value, Path) else value
