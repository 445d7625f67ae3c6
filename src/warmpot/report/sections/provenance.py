"""How a run was made: method, status, settings, data, versions, and the command that repeats it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from warmpot._settings import to_mapping
from warmpot._tables import printable
from warmpot.data import ViewSettings
from warmpot.methods import Method
from warmpot.methods.descriptions import plain_notes
from warmpot.report.page import Block, Code, Details, Facts, Section, Text, make_table
from warmpot.report.run_view import RunView
from warmpot.report.sections.parts import chosen_iterate
from warmpot.train.finished_run import UNKNOWN, FinishedRun
from warmpot.train.recipes import preset_names

__all__ = ["preset_status", "provenance_section", "repeat_command", "status"]

PRESETS = {
    "paper": "the paper's formulas as printed",
    **dict.fromkeys(("mpot-imagenet", "jumbot-imagenet"), "interpretation: its authors did not run it there"),
    **dict.fromkeys(
        ("arpm-warmpot", "arpm-warmpot-imagenet", "arpm-plan"),
        "interpretation: the paper gives one number and no code",
    ),
}
"""Presets with another status than their method; docs/methods.md has the same list."""
PAPERS = "resnet50.tv_in1k"
OURS = ("frozen", "tuned")
"""Parts of the names of presets whose training loop is not that of the paper."""
OUR_LOOP = "ours: the objective is the method's, the training loop is not"
NEUTRAL = (
    "seed=", "tensorboard=", "images.", "minibatch.hardware.", "minibatch.log_every=", "minibatch.checkpoint_every=",
)  # fmt: skip
"""Settings that do not change the method."""


def provenance_section(view: RunView) -> Section:
    """Show method, data, settings, versions and the command."""
    run = view.run
    command = Code(repeat_command(run, escape=printable))
    blocks: list[Block] = [Facts(list(_facts(run))), Text("To repeat this run, in the folder of its data:"), command]
    if changes := run.changed_settings:
        blocks.append(Text(f"Settings that differ from the preset: {', '.join(changes)}."))
    if notes := plain_notes(run.method) if run.method else []:
        blocks.append(Details("Notes on the method, and how it deviates from paper and code", [*map(Text, notes)]))
    settings = yaml.safe_dump(_without_folders(dict(run.config)), sort_keys=False, allow_unicode=True)
    blocks.append(Details("All settings", [Code(settings)]))
    versions = [[str(name), str(version)] for name, version in run.versions.items()]
    blocks += [Details("Versions", [make_table(["package", "version"], versions)])] if versions else []
    return Section("How it was made", blocks)


def _without_folders(value: Any) -> Any:
    """Return settings with absolute paths, such as those of backbone weights, reduced to their names."""
    if isinstance(value, Mapping):
        return {name: _without_folders(part) for name, part in value.items()}
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _facts(run: FinishedRun) -> Iterator[tuple[str, str, str]]:
    method = run.method
    yield "method", run.setting("method"), method.summary if method else ""
    if method and method.reference:
        yield "reference", method.reference, ""
    yield "status", status(run), ""
    yield "preset, engine", f"{run.setting('preset')}, {run.setting('engine')}", ""
    yield "weights", run.setting("weights"), "row sums of its plan" if run.setting("weights") == "own" else ""
    yield "result", f"{run.unit} {run.step}", chosen_iterate(run)
    yield "seed", run.seed, ""
    if run.images:
        part = run.images["backbone"]["train_from"]
        yield "backbone", str(run.images["backbone"]["name"]), "frozen" if part is None else f"trained from {part} on"
    for side, n in (("source", run.n_source), ("target", run.n_target)):
        name = run.data_name(side) if run.facts.get(side) else UNKNOWN
        yield side, name, f"{n:,} samples" if n else ""
    yield "fingerprint", str(run.record.get("fingerprint", "")), "of the data"
    if run.folder is not None:
        yield "folder", run.folder.resolve().name, ""
    if run.times is not None:
        start, end = run.times
        took = (end - start).total_seconds()
        time = f"{took:.1f} s" if took < 120 else f"{took / 60:.0f} min" if took < 7200 else f"{took / 3600:.1f} h"
        yield "finished", f"{end:%Y-%m-%d %H:%M} UTC", f"took {time}, according to the times of its files"


def status(run: FinishedRun) -> str:
    """Return whether the settings are a reproduction of the paper, an interpretation, ours or the user's."""
    preset, method = run.setting("preset"), run.method
    if method is None or not method.__module__.startswith("warmpot.") or preset not in preset_names():
        return "the user's own"
    text = preset_status(preset, method, run.setting("engine"))
    if not method.uses_target or text == OUR_LOOP:
        return text
    if "minibatch" in method.engines and "loop is ours" not in text:
        text += _other_network(run)
    changed = any(not change.startswith(NEUTRAL) for change in run.changed_settings)
    return text + (", with other settings: see below" if changed else "")


def preset_status(preset: str, method: type[Method[Any]], engine: str) -> str:
    """Return the status of a preset as it is: a baseline, in a loop of ours, or what its method or the list says."""
    base = next((name for name in PRESETS if preset == f"{name}-frozen"), preset)
    text: str = PRESETS.get(base, method.status)
    if not method.uses_target:
        return text
    if (engine == "full" and "minibatch" in method.engines) or any(mark in preset for mark in OURS):
        # What is not a reproduction is called so in every loop.
        return OUR_LOOP if text.startswith("reproduction") else f"{text}; the training loop is ours"
    return text


def _other_network(run: FinishedRun) -> str:
    """Return a remark unless the network is that of the papers, trained as a whole on random views."""
    if run.images is None:
        return ", on features, whereas the papers also train the network"
    backbone, view = run.images["backbone"], run.images["view"]
    plain = (backbone["name"], backbone["train_from"], backbone["batch_norm"]) == (PAPERS, "all", "train")
    return "" if plain and view == to_mapping(ViewSettings()) else f", with another network or view than {PAPERS}"


def repeat_command(run: FinishedRun, *, escape: Callable[[str], str] = str) -> str:
    """Return the command that repeats a run; `escape` is applied to every word.

    Files are named without their folders, where that tells source and target apart: pages and cards are sent to others.
    """
    preset, facts = run.setting("preset"), run.facts
    words = ["warmpot", "fit", *_data_words(run)]
    words += ["--preset", preset] if preset in preset_names() else []
    words += [word for change in run.changed_settings for word in ("--set", change)]
    features = facts.get("features")
    columns = [("--label", facts.get("label")), ("--id", facts.get("ids"))]
    columns += [("--feature", name) for name in (features if isinstance(features, list) else [])]
    files = [(f"--{name}", Path(str(facts[name])).name) for name in ("root", "classes") if facts.get(name)]
    corrupt = [("--corrupt", facts.get("corrupt"))] if facts.get("corrupt") != "raise" else []
    words += [str(word) for flag, value in (*columns, *files, *corrupt) if value for word in (flag, value)]
    words += ["--regression"] if facts.get("regression") else []
    words += ["--frozen"] if run.images and run.images["backbone"]["train_from"] is None else []
    return shlex.join(map(escape, words))


def _data_words(run: FinishedRun) -> list[str]:
    """Return the names of both sides; with the folders in which they differ, if the names are the same."""
    words = [run.data_name(side) for side in ("source", "target")]
    paths = [str(run.facts.get(side)) for side in ("source", "target")]
    if words[0] != words[1] or paths[0] == paths[1] or not all(map(os.path.isabs, paths)):
        return words
    return [os.path.relpath(path, os.path.commonpath(paths)) for path in paths]
