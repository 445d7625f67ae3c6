"""The flags of ``warmpot fit`` resolved, once and before any data is read, to the run they ask for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._run_files import RESULTS
from warmpot.cli._data_files import DataFiles, nested_changes, remembered_files
from warmpot.cli._shared import quoted
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train import RunConfig

__all__ = ["RunRequest", "method_weights", "process_rank", "resolve_flags"]

HARDWARE = ("devices", "num_nodes", "accelerator", "strategy", "precision")
SETTING_OF_FLAG = {
    "method": "method", "weights": "weights", "alpha": "params.alpha", "beta": "params.beta", "seed": "seed",
    "choose": "choose", **{name: f"minibatch.hardware.{name}" for name in HARDWARE},
    "backbone": "images.backbone.name", "backbone_weights": "images.backbone.weights",
    "train_from": "images.backbone.train_from", "cache": "images.cache", "workers": "images.workers",
}  # fmt: skip
NEW_RUN_ONLY = {
    "out": None, "preset": None, "config": None, "label": None, "regression": False, "root": None, "classes": None,
    "corrupt": "raise", "fine_tune": None,
}  # fmt: skip
"""Flags that a resumed run cannot take, with their defaults."""


@dataclass(frozen=True)
class RunRequest:
    """A run to start or to resume. `unused_engine` is an engine that was given settings although it does not run."""

    folder: Path
    data: DataFiles
    config: RunConfig
    resume: bool = False
    unused_engine: str = ""

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.resume and all((self.folder / name).is_file() for name in RESULTS)


def resolve_flags(flags: Mapping[str, Any], note: Callable[..., None]) -> RunRequest:
    """Resolve the flags of ``warmpot fit``, given by the names of its parameters; `note` prints a status line."""
    source, target = (_argument_or_option(side, flags[side], flags[f"{side}_"]) for side in ("source", "target"))
    given = {setting: flags[flag] for flag, setting in SETTING_OF_FLAG.items() if flags[flag] is not None}
    if not flags["cache"]:  # as if it was not given: the config file may switch it on
        del given["images.cache"]
    weights = given.get("images.backbone.weights")
    if weights is not None and Path(weights).is_file():
        given["images.backbone.weights"] = str(Path(weights).resolve())  # the run can be resumed from another folder
    changes = nested_changes(flags["settings"] or [], given)
    if flags["resume"] is not None:
        return _resumed_run(flags, source, target, changes)
    if source is None or target is None:
        got, remedy = "no target" if source else "no data", "Run: warmpot fit SOURCE TARGET"
        allowed = "two files or folders of images (or --resume DIR)"
        raise InputError("SOURCE TARGET", got=got, allowed=allowed, remedy=remedy)
    data = DataFiles(
        source, target, flags["label"], flags["regression"], flags["root"], flags["classes"], flags["corrupt"]
    )
    return _new_run(flags, data, changes, note)


def _argument_or_option(name: str, argument: Path | None, option: Path | None) -> Path | None:
    if argument is not None and option is not None:
        got = f"{name.upper()} as well"
        raise InputError(f"--{name}", got=got, allowed="one of the two", remedy="Give it once.")
    return option if argument is None else argument


def _resumed_run(
    flags: Mapping[str, Any], source: Path | None, target: Path | None, changes: dict[str, Any]
) -> RunRequest:
    from warmpot.train.run_folder import read_config

    given = [f"--{name.replace('_', '-')}" for name, default in NEW_RUN_ONLY.items() if flags[name] != default]
    if given or changes:
        got = ", ".join(given).replace("--fine-tune", "--fine-tune/--frozen") or "other settings"
        remedy = "The folder has its settings: leave these out, or start a new run."
        raise InputError("--resume", got=got, allowed="no other settings", remedy=remedy)
    folder: Path = flags["resume"]
    data = remembered_files(folder, source, target, "--resume")
    return RunRequest(folder, data, read_config(folder), resume=True)


def _new_run(
    flags: Mapping[str, Any], data: DataFiles, changes: dict[str, Any], note: Callable[..., None]
) -> RunRequest:
    from warmpot.losses import get_label_loss
    from warmpot.train.config import load_config
    from warmpot.train.recipes import preset_for, read_yaml

    written = read_yaml(flags["config"]) if flags["config"] is not None else {}
    changes, fine_tunes = _image_settings(data, changes, written.get("images") or {}, flags["fine_tune"], note)
    method = flags["method"] or written.get("method") or ("warmpot" if fine_tunes else None)
    preset = flags["preset"] or written.get("preset")
    if method is not None:
        preset = preset_for(method, preset, images=fine_tunes)
    config = load_config(preset, flags["config"], changes)
    if data.regression and get_label_loss(config.loss).classification and "loss" not in changes:
        config = replace(config, loss="squared")
    unused = next((engine for engine in ("full", "minibatch") if engine in changes and engine != config.engine), "")
    return RunRequest(_new_folder(flags["out"], data, config), data, config, unused_engine=unused)


def _image_settings(
    data: DataFiles,
    changes: dict[str, Any],
    written: Mapping[str, Any],
    fine_tune: bool | None,
    note: Callable[..., None],
) -> tuple[dict[str, Any], bool]:
    """Decide whether the backbone is trained; return the changes with that decision, and the decision.

    Without a GPU the default is not to train it: extracting features once takes minutes, training takes days.
    """
    from warmpot._settings import merged, with_value

    if not data.of_images:
        if "images" in changes or fine_tune is not None:
            got, remedy = "image settings for tables", "Leave them out, or name folders of images."
            raise InputError("SOURCE TARGET", got=got, allowed="folders or lists of images", remedy=remedy)
        return changes, False
    train_from = merged(written, changes.get("images", {})).get("backbone", {}).get("train_from")
    if fine_tune is False and train_from is not None:
        got, remedy = f"--frozen, but {train_from!r} is to be trained", "Leave one of the two out."
        raise InputError("--train-from", got=got, allowed="no block", remedy=remedy)
    import torch

    gpu = torch.cuda.is_available()
    fine_tunes = train_from is not None or (gpu if fine_tune is None else fine_tune)
    if fine_tunes and train_from is None:
        changes = merged(changes, with_value("images.backbone.train_from", "all"))
        if not gpu:
            note(
                "no GPU: training the whole backbone is slow; "
                "--train-from layer4 --cache trains only its last block, from outputs stored on disk",
                "yellow",
            )
    if not fine_tunes and fine_tune is None:
        note("no GPU: features are extracted once and the backbone is not trained; --fine-tune trains it")
    return merged({"images": {}}, changes), fine_tunes


def _new_folder(out: Path | None, data: DataFiles, config: RunConfig) -> Path:
    """Return the folder of a new run, which must not be in use; `RunFolder` checks again when it writes."""
    if out is None:
        if config.minibatch.hardware.processes > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
            remedy = "Name a new folder."
            raise InputError("--out", got="none", allowed="a folder, for several processes", remedy=remedy)
        default = Path("runs") / "-".join([data.source.stem, data.target.stem, *_name_parts(config)])
        out, number = default, 2
        while out.exists():
            out, number = default.with_name(f"{default.name}-{number}"), number + 1
    # Only the first process checks: by the time that others do, it may have written files.
    elif process_rank() == 0 and out.exists() and (not out.is_dir() or any(out.iterdir())):
        remedy = f"Name a new folder, or resume the run in this one: warmpot fit --resume {quoted(out)}"
        got, allowed = "a folder or file that is in use", "a new or empty folder"
        raise InputError(f"--out {out}", got=got, allowed=allowed, remedy=remedy)
    return out


def _name_parts(config: RunConfig) -> list[str]:
    """Return the preset, and the method and weights where they are not the preset's."""
    from warmpot.train.config import load_config

    default = load_config(config.preset)
    method = [config.method] if config.method != default.method else []
    usual = method_weights(config) if method else default.weights
    return [config.preset, *method, *([str(config.weights)] if config.weights != usual else [])]


def method_weights(config: RunConfig) -> str:
    """Return the weighting of the method's paper."""
    from warmpot.methods import METHODS

    return METHODS[config.method].weights


def process_rank() -> int:
    """Return the number of this process as launchers set it: all processes run the command, the first one prints."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), 0))
