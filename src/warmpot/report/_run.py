"""What a run directory says of itself: the one reader of the model card and of the page."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from warmpot._settings import to_mapping
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError
from warmpot.methods import METHODS
from warmpot.train.config import LAST, load_config
from warmpot.train.recipes import preset_names

__all__ = ["UNKNOWN", "Run", "numbers", "read_run", "repeat_command"]

UNKNOWN = "not recorded"
"""Stands for what an older or a damaged folder does not say."""
SETTINGS = ("preset", "engine", "method", "weights", "choose")
"""Settings that are told of every run."""
COLUMNS = {"predictions.csv": ("row", "prediction"), "source_weights.csv": ("row", "label", "weight")}
"""Columns without which a file says nothing."""


@dataclass(frozen=True)
class Run:
    """A finished run; nothing in it was made from target labels, except what `bounds` says was.

    Attributes
    ----------
    folder : Path
    config, mark, model : mapping
        ``config.yaml``, ``run.json``, ``model.json``.
    history : sequence of mapping
        The lines of ``metrics.jsonl``.
    predictions, weights : mapping of str to sequence of str
        The columns of ``predictions.csv`` and ``source_weights.csv``; empty without the file.
    bounds : mapping
        ``bound.json``; empty without it.
    gaps : sequence of str
        What the folder does not say, or says in a way that cannot be used.
    """

    folder: Path
    config: Mapping[str, Any]
    mark: Mapping[str, Any]
    model: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    predictions: Mapping[str, Sequence[str]]
    weights: Mapping[str, Sequence[str]]
    bounds: Mapping[str, Any]
    gaps: Sequence[str] = ()

    def setting(self, name: str) -> str:
        """Return a setting in a word; so it is said when its folder does not tell."""
        return str(self.config.get(name, UNKNOWN))

    @property
    def params(self) -> Mapping[str, Any]:
        """Settings of its method."""
        return _mapping(self.config.get("params"))

    @property
    def seed(self) -> str:
        """Its seed."""
        return str(self.mark.get("seed", UNKNOWN))

    @property
    def unit(self) -> str:
        """What an iterate of its engine is called."""
        return "round" if self.config.get("engine") == "full" else "step"

    @property
    def versions(self) -> Mapping[str, Any]:
        """Packages that it was made with."""
        return _mapping(self.mark.get("versions"))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was noted of the data."""
        return _mapping(self.mark.get("facts"))

    @property
    def classes(self) -> list[str]:
        """Class names; none in regression."""
        return list(self.model["facts"]["classes"])

    @property
    def n_source(self) -> int:
        """Number of source samples; 0 when the file of weights is gone."""
        return len(self.weights.get("row", ()))

    @property
    def n_target(self) -> int:
        """Number of target samples; 0 when the file of predictions is gone."""
        return len(self.predictions.get("row", ()))

    @property
    def source_weights(self) -> FloatArray:
        """Weight of every source sample; NaN where the file has none."""
        found = numbers(self.weights.get("weight", ()))
        return np.where(found >= 0, found, np.nan)

    @property
    def signs(self) -> Mapping[str, Any]:
        """The last line of the history."""
        return self.history[-1] if self.history else {}

    @property
    def images(self) -> Mapping[str, Any] | None:
        """How it sees images."""
        found: Mapping[str, Any] | None = self.model["facts"].get("images")
        return found

    @property
    def method(self) -> Any:
        """The class of its method; None for a method of the user's that is not registered here."""
        return METHODS.get(self.setting("method"))

    @property
    def adapted(self) -> bool:
        """Whether its features, or the choice of its iterate, have seen the target."""
        return self.method is None or self.method.uses_target or self.setting("choose") != LAST

    @property
    def step(self) -> int:
        """The round or step whose model it is, as its chooser left it in the last checkpoint; else the last."""
        if self.setting("choose") == LAST:
            return int(self.signs.get("step", 0))
        with suppress(IndexError, OSError, ValueError, KeyError, TypeError):
            file = sorted(self.folder.glob("checkpoints/step-*/state.json"))[-1]
            return int(json.loads(file.read_text(encoding="utf-8"))["kept"]["step"])
        scored = [line for line in self.history if line.get("score") is not None]
        best = max(scored, key=lambda line: (line["score"], line["step"]), default=self.signs)
        return int(best.get("step", 0))

    @property
    def changes(self) -> list[str]:
        """Settings that are not its preset's, as ``--set`` takes them; all of them when the preset is not known."""
        preset = self.setting("preset")
        return list(_changes(to_mapping(load_config(preset)) if preset in preset_names() else {}, self.config))

    @property
    def shell_folder(self) -> str:
        """Its folder as a word of a command."""
        return shlex.quote(str(self.folder))

    def codes(self, column: Sequence[str]) -> IntArray:
        """Class codes of a column of names."""
        place = {name: k for k, name in enumerate(self.classes)}
        return np.array([place[name] for name in column], np.int64)

    def file(self, side: str) -> str:
        """Name of a file of its data, without the folders that it lay in."""
        return Path(str(self.facts.get(side) or side)).name or side


def read_run(folder: Path) -> Run:
    """Read a run directory; the one place that checks what its files hold.

    What can be left out is left out and named in `Run.gaps`: settings, a seed, columns, lines of the history. An
    `InputError` says when the folder is no run, or holds something else than `warmpot fit` wrote.
    """
    gaps: list[str] = []

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    try:
        config, mark = (_whole(folder / name, load(text(name))) for name, load in
                        (("config.yaml", yaml.safe_load), ("run.json", json.loads)))  # fmt: skip
        unsaid = [name for name in SETTINGS if config.get(name, "") in ("", [], {})]
        gaps += [f"config.yaml does not say {', '.join(unsaid)}"] if unsaid else []
        gaps += [] if "seed" in mark else ["run.json does not say the seed"]
        found = Run(
            folder,
            config={name: value for name, value in config.items() if name not in unsaid},
            mark=mark,
            model=_model(folder / "model.json", json.loads(text("model.json"))),
            history=_lines(text("metrics.jsonl"), gaps) if (folder / "metrics.jsonl").exists() else [],
            predictions=_columns(folder / "predictions.csv", gaps),
            weights=_columns(folder / "source_weights.csv", gaps),
            bounds=_mapping(json.loads(text("bound.json"))) if (folder / "bound.json").exists() else {},
            gaps=gaps,
        )
        if found.classes:  # names that the model does not know are another run's
            found.codes(found.predictions.get("prediction", ())), found.codes(found.weights.get("label", ()))
            gaps += (
                ["predictions.csv has no confidences"]
                if found.n_target and "confidence" not in found.predictions
                else []
            )
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        if isinstance(error, InputError):
            raise
        got, remedy = f"{type(error).__name__}: {error}", "Name the folder that `warmpot fit` wrote."
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy) from error
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping as it is; nothing in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def _whole(file: Path, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        got, remedy = f"a {type(value).__name__}", "Train anew, or put back the file that `warmpot fit` wrote."
        raise InputError(str(file), got=got, allowed="names and values", remedy=remedy)
    return value


def _model(file: Path, value: Any) -> Mapping[str, Any]:
    facts = _mapping(_whole(file, value).get("facts"))
    images = facts.get("images")
    whole = isinstance(facts.get("classes"), list) and (
        images is None or {"name", "train_from"} <= set(_mapping(_mapping(images).get("backbone")))
    )
    if not whole:
        got, remedy = "a model that does not say its classes or its network", "Train anew: it cannot be applied."
        raise InputError(str(file), got=got, allowed="the model of a run", remedy=remedy)
    found: Mapping[str, Any] = value
    return found


def _columns(file: Path, gaps: list[str]) -> dict[str, Sequence[str]]:
    """Read the columns of a file; none when it is not there, or says nothing."""
    if not file.exists():
        return {}
    # a name that is no UTF-8 is here to be looked at, not to be opened
    with open(file, newline="", encoding="utf-8", errors="replace") as stream:
        head, *rows = csv.reader(stream)
    if lost := [name for name in COLUMNS[file.name] if name not in head]:
        gaps.append(f"{file.name} has no column {', '.join(lost)}, and is not used")
        return {}
    return dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(head, ())


def _lines(text: str, gaps: list[str]) -> list[dict[str, Any]]:
    """Read the lines that are whole: a step, and numbers only. The last one may be torn, as when a run was killed."""
    lines = text.splitlines()
    found = [line for line in map(_line, lines) if line]
    lost = len(lines) - len(found) - (bool(lines) and not lines[-1].endswith("}"))
    gaps += [f"metrics.jsonl: {lost} of {len(lines)} lines are damaged, and skipped"] if lost else []
    return found


def _line(text: str) -> dict[str, Any]:
    """Return a line of the history; nothing when it is damaged. Numbers that are none (NaN) are left out."""
    try:
        line = json.loads(text)
    except ValueError:
        return {}
    known = isinstance(line, dict) and isinstance(line.get("step"), int)
    if not known or not all(value is None or isinstance(value, int | float) for value in line.values()):
        return {}
    return {name: value for name, value in line.items() if value is None or np.isfinite(value)}


def numbers(column: Sequence[str]) -> FloatArray:
    """Return a column as numbers; NaN where it has none, or one that is not finite."""

    def number(text: str) -> float:
        with suppress(ValueError):
            return float(text)
        return np.nan

    found = np.array([number(text) for text in column], np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def repeat_command(run: Run, *, whole: bool = False, safe: Any = str) -> str:
    """Return the command that trains the same again.

    Parameters
    ----------
    run : Run
    whole : bool
        Name files with the folders that they lie in: for the one who ran it, not for a card that is shared.
    safe : callable
        What makes a text of every word, before it is quoted.
    """
    preset = run.setting("preset")

    def file(name: str) -> str:
        return str(run.facts[name]) if whole and run.facts.get(name) else run.file(name)

    words = ["warmpot", "fit", file("source"), file("target")]
    words += ["--preset", preset] if preset in preset_names() else []
    words += [word for change in run.changes for word in ("--set", change)]
    for flag in ("label", "root", "classes", "corrupt"):
        value = run.facts.get(flag)
        if value not in (None, "", "raise"):
            words += [f"--{flag}", str(value) if whole or flag in ("label", "corrupt") else Path(str(value)).name]
    words += ["--regression"] if run.facts.get("regression") else []
    return shlex.join(map(safe, words))


def _changes(base: Mapping[str, Any], config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the settings that are not the preset's, as ``--set`` takes them."""
    for name, value in config.items():
        if name == "preset" and not prefix:
            continue
        old = base.get(name)
        if isinstance(value, Mapping) and value:
            yield from _changes(old if isinstance(old, Mapping) else {}, value, f"{prefix}{name}.")
        elif name not in base or value != old:
            absolute = isinstance(value, str) and Path(value).is_absolute()  # a file of weights
            yield f"{prefix}{name}={json.dumps(Path(value).name if absolute else value)}"
