"""Reading a run folder, and checking what its files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warmpot import _run_files as names
from warmpot._files import parse_json, read_csv, read_json, read_text
from warmpot._typing import FloatArray, IntArray
from warmpot._yaml import read_yaml
from warmpot.errors import InputError
from warmpot.train.config import LAST
from warmpot.train.finished_run import FinishedRun, as_mapping, clean_line
from warmpot.train.run_folder import FACTS, TABLES, latest_checkpoint, parse_bounds
from warmpot.train.snapshots import CHOSEN
from warmpot.weights import ClassPresence

__all__ = ["read_run"]

SETTINGS = ("preset", "engine", "method", "weights", "choose")
"""Settings that every report names."""


def read_run(folder: Path) -> FinishedRun:
    """Read a run folder, and check what its files hold.

    What is missing or damaged but not essential (settings, the seed, columns, lines of the log) is listed in
    `FinishedRun.problems`. Folders of version 0.1.0 are read, too; one that is not of a finished run is refused.
    """
    try:
        return _read_run(folder)
    except (OSError, ValueError, KeyError, TypeError) as error:
        got = f"{error.what}: {error.got}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        remedy = "Name the folder that `warmpot fit` wrote."
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy) from error


def _read_run(folder: Path) -> FinishedRun:
    problems: list[str] = []
    config = _read_mapping(folder / names.CONFIG)
    missing = [name for name in SETTINGS if config.get(name, "") in ("", [], {})]
    problems += [f"{names.CONFIG} does not contain {', '.join(missing)}"] if missing else []
    record = _read_mapping(folder / names.RECORD)
    problems += [] if "seed" in record else [f"{names.RECORD} does not contain the seed"]
    model = _read_model(folder / names.MODEL_FACTS)
    code_of = {name: code for code, name in enumerate(model["facts"]["classes"])}

    def codes_or_values(column: Sequence[str]) -> IntArray | FloatArray:
        # a class that the model does not have raises KeyError: the file belongs to another run
        return np.array([code_of[name] for name in column], np.int64) if code_of else _numbers(column)

    history = _read_history(folder / names.METRICS, problems)
    targets = _read_columns(folder / names.PREDICTIONS, ("row", "prediction"), problems)
    sources = _read_columns(folder / names.SOURCE_WEIGHTS, ("row", "label"), problems)
    n_target = len(targets.get("row", ()))
    if code_of and n_target and "confidence" not in targets:
        problems.append(f"{names.PREDICTIONS} has no confidences")
    bounds, curves, tables = _read_bounds(folder / names.BOUNDS, problems)
    run = FinishedRun(
        folder,
        config={name: value for name, value in config.items() if name not in missing},
        record=record,
        model=model,
        history=history,
        step=int(history[-1]["step"]) if history else 0,
        predictions=codes_or_values(targets.get("prediction", ())),
        confidence=_numbers(targets.get("confidence", ("",) * n_target)) if code_of else np.zeros(0),
        matched=_numbers(targets.get("weight", ("",) * n_target)),
        labels=codes_or_values(sources.get("label", ())),
        training_weights=_weights(sources, problems),
        plan_weights=_numbers(sources["plan_weight"]) if "plan_weight" in sources else None,
        presence=_read_presence(folder / names.CLASSES, list(code_of), problems),
        unadapted=codes_or_values(targets["unadapted"]) if "unadapted" in targets else None,
        unknown=_numbers(targets["unknown"]) if "unknown" in targets else None,
        source_names=sources.get("name", ()),
        target_names=targets.get("name", ()),
        bounds=bounds,
        bound_curves=curves,
        bound_tables=tables,
        problems=problems,
    )
    return run if run.setting("choose") == LAST else replace(run, step=_chosen_step(folder, history))


def _chosen_step(folder: Path, history: Sequence[Mapping[str, Any]]) -> int:
    """Return the iterate that a validator chose, from the last checkpoint; without one, that of the best score."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        if (checkpoint := latest_checkpoint(folder / names.CHECKPOINTS)) is not None:
            return int(read_json(checkpoint / FACTS)[CHOSEN]["step"])
    scored = [line for line in history if line.get("score") is not None]
    best = max(scored, key=lambda line: (line["score"], line["step"]), default=history[-1] if history else {})
    return int(best.get("step", 0))


def _read_mapping(file: Path) -> Mapping[str, Any]:
    value = read_yaml(file) if file.suffix == ".yaml" else read_json(file)
    if not isinstance(value, Mapping):
        got, remedy = f"a {type(value).__name__}", "Train again, or restore the file that `warmpot fit` wrote."
        raise InputError(str(file), got=got, allowed="names and values", remedy=remedy)
    return value


def _read_model(file: Path) -> Mapping[str, Any]:
    model = _read_mapping(file)
    facts = as_mapping(model.get("facts"))
    images = facts.get("images")
    complete = images is None or {"name", "train_from"} <= set(as_mapping(as_mapping(images).get("backbone")))
    if not complete or not isinstance(facts.get("classes"), list):
        got, remedy = "a model without its classes or its network", "Train again: the model cannot be applied."
        raise InputError(str(file), got=got, allowed="the model of a run", remedy=remedy)
    return model


def _read_columns(file: Path, needed: Sequence[str], problems: list[str]) -> dict[str, Sequence[str]]:
    """Return the columns of a file by name; none if it is missing or lacks a needed column."""
    if not file.exists():
        return {}
    # names that are not valid UTF-8 are only shown here, never opened
    head, *rows = read_csv(file, errors="replace")
    if missing := [name for name in needed if name not in head]:
        problems.append(f"{file.name} has no column {', '.join(missing)}, and is not used")
        return {}
    return dict(zip(head, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(head, ())


def _read_presence(file: Path, classes: Sequence[str], problems: list[str]) -> ClassPresence | None:
    """Return the estimate of the classes; None without one, or if it is not of these classes."""
    try:
        columns = _read_columns(file, ("class", "probability", "share"), problems)
    except ValueError:
        columns = {"class": (), "probability": (), "share": ()}
    if not columns:
        return None
    probability, share = (_numbers(columns[name]) for name in ("probability", "share"))
    numbers = np.concatenate([probability, share])
    if list(columns["class"]) != list(classes) or not ((numbers >= 0) & (numbers <= 1)).all():
        problems.append(f"{file.name} does not have a probability for each class, and is not used")
        return None
    return ClassPresence(probability, share, {})


def _weights(columns: Mapping[str, Sequence[str]], problems: list[str]) -> FloatArray:
    """Return the training weights; NaN where there is none, or a negative one."""
    if columns and "training_weight" not in columns:
        old = "weight" in columns
        instead = "its column weight, as version 0.1.0 wrote it, is shown instead" if old else "no weights are shown"
        problems.append(f"{names.SOURCE_WEIGHTS} has no column training_weight; {instead}")
    column = columns.get("training_weight", columns.get("weight", ("",) * len(columns.get("row", ()))))
    weights = _numbers(column)
    return np.where(weights >= 0, weights, np.nan)


def _numbers(column: Sequence[str]) -> FloatArray:
    """Return a column as numbers; NaN for text and for infinite values."""

    def number(text: str) -> float:
        with suppress(ValueError):
            return float(text)
        return np.nan

    values = np.array([number(text) for text in column], np.float64)
    return np.where(np.isfinite(values), values, np.nan)


def _read_history(file: Path, problems: list[str]) -> list[dict[str, Any]]:
    """Return the complete lines of the log. The last line may be cut off, if the run was killed."""
    lines = read_text(file).splitlines() if file.exists() else []
    parsed: list[Any] = []
    for line in lines:
        with suppress(ValueError):
            parsed.append(parse_json(line))
    history = [line for line in map(clean_line, parsed) if line]
    damaged = len(lines) - len(history) - (bool(lines) and not lines[-1].endswith("}"))
    if damaged:
        problems.append(f"{file.name}: {damaged} of {len(lines)} lines are damaged, and skipped")
    return history


def _read_bounds(file: Path, problems: list[str]) -> tuple[Any, Any, Any]:
    """Return bounds, curves and tables."""
    if not file.exists():
        return {}, {}, {}
    try:
        entries = read_json(file)
        tables = {name: [dict(row) for row in rows] for name, rows in entries.get(TABLES, {}).items()}
        return *parse_bounds(entries), tables
    except (ValueError, KeyError, TypeError, AttributeError):
        problems.append(f"{file.name} cannot be read; `warmpot bound` writes it again")
        return {}, {}, {}
