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
from warmpot.errors import InputError, explain
from warmpot.methods import METHODS
from warmpot.train.config import LAST, load_config
from warmpot.train.recipes import preset_names

__all__ = ["Run", "read_run", "repeat_command"]


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
    """

    folder: Path
    config: Mapping[str, Any]
    mark: Mapping[str, Any]
    model: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    predictions: Mapping[str, Sequence[str]]
    weights: Mapping[str, Sequence[str]]
    bounds: Mapping[str, Any]

    @property
    def facts(self) -> Mapping[str, Any]:
        """What was noted of the data."""
        found: Mapping[str, Any] = self.mark.get("facts", {})
        return found

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
        """Weight of every source sample."""
        return np.array(self.weights.get("weight", ()), np.float64)

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
        return METHODS.get(self.config["method"])

    @property
    def adapted(self) -> bool:
        """Whether its features, or the choice of its iterate, have seen the target."""
        return self.method is None or self.method.uses_target or self.config["choose"] != LAST

    @property
    def step(self) -> int:
        """The round or step whose model it is, as its chooser left it in the last checkpoint; else the last."""
        if self.config["choose"] == LAST:
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
        preset = self.config["preset"]
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
    """Read a run directory; an `InputError` says when it is none, or holds something else than `warmpot fit` wrote."""

    def columns(name: str) -> dict[str, Sequence[str]]:
        if not (folder / name).exists():
            return {}
        # a name that is no UTF-8 is here to be looked at, not to be opened
        with open(folder / name, newline="", encoding="utf-8", errors="replace") as stream:
            head, *rows = csv.reader(stream)
        return dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(head, ())

    def text(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    try:
        found = Run(
            folder,
            config=yaml.safe_load(text("config.yaml")),
            mark=json.loads(text("run.json")),
            model=json.loads(text("model.json")),
            history=_lines(text("metrics.jsonl")) if (folder / "metrics.jsonl").exists() else [],
            predictions=columns("predictions.csv"),
            weights=columns("source_weights.csv"),
            bounds=json.loads(text("bound.json")) if (folder / "bound.json").exists() else {},
        )
        if found.classes:  # names that the model does not know are another run's
            found.codes(found.predictions.get("prediction", ())), found.codes(found.weights.get("label", ()))
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        got, remedy = f"{type(error).__name__}: {error}", "Name the folder that `warmpot fit` wrote."
        raise InputError(explain(str(folder), got=got, allowed="a finished run", remedy=remedy)) from error
    return found


def _lines(text: str) -> list[dict[str, Any]]:
    """Read the lines that are whole."""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


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
    preset = str(run.config["preset"])

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
