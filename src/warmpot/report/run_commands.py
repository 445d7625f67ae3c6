"""The command that repeats a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from warmpot._settings import to_mapping
from warmpot.train.config import load_config
from warmpot.train.finished_run import FinishedRun
from warmpot.train.recipes import preset_names

__all__ = ["changed_settings", "repeat_command"]


def changed_settings(run: FinishedRun) -> list[str]:
    """Return the settings that differ from the preset's, as ``--set`` takes them; all if the preset is unknown."""
    preset = run.setting("preset")
    return list(_changes(to_mapping(load_config(preset)) if preset in preset_names() else {}, run.config))


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


def repeat_command(run: FinishedRun, *, full_paths: bool = False, escape: Callable[[str], str] = str) -> str:
    """Return the command that repeats a run.

    Parameters
    ----------
    run : FinishedRun
    full_paths : bool
        Whether to name files with their folders: on the user's own page, not on a card that is shared.
    escape : callable
        Applied to every word before it is quoted.
    """

    def path(side: str) -> str:
        return str(run.facts[side]) if full_paths and run.facts.get(side) else run.data_name(side)

    preset = run.setting("preset")
    words = ["warmpot", "fit", path("source"), path("target")]
    words += ["--preset", preset] if preset in preset_names() else []
    words += [word for change in changed_settings(run) for word in ("--set", change)]
    for flag in ("label", "root", "classes", "corrupt"):
        value = run.facts.get(flag)
        if value not in (None, "", "raise"):
            words += [f"--{flag}", str(value) if full_paths or flag in ("label", "corrupt") else Path(str(value)).name]
    words += ["--regression"] if run.facts.get("regression") else []
    return shlex.join(map(escape, words))
