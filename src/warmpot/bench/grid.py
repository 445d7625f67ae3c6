"""A grid: which rows are trained on which tasks with which seeds, from one YAML file."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from warmpot._checks import check_choice, check_count
from warmpot._run_files import GRID
from warmpot._settings import from_mapping, merged, suggestion, to_mapping, with_value
from warmpot._yaml import parse_yaml, read_yaml
from warmpot.bench.grid_data import DataSet, read_data_set, read_names
from warmpot.bench.store import LAST, ORACLE, Coordinates, name_training
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train import RunConfig

__all__ = ["FIGURES", "GRID", "Cell", "DataSet", "Grid", "Row", "grid_names", "load_grid", "read_grid"]

FIGURES = ("table", "histogram", "sensitivity")
_PACKAGED = resources.files("warmpot") / "grids"


@dataclass(frozen=True)
class Row:
    """One row of the tables: a preset of the package, or a method, with changed settings.

    Attributes
    ----------
    preset : str
        Name of the recipe; empty: that of the method, for features or for images.
    method : str
        Name of the method; empty: that of the preset.
    changes : mapping
        Nested settings (``set`` in the file, where names may be dotted).
    reported : str
        Name of the same system in the paper's table; empty: the paper does not have it.
    """

    name: str
    preset: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    reported: str = ""
    method: str = ""

    def __post_init__(self) -> None:
        if not self.preset and not self.method:
            remedy = "Write `preset: full` or `method: arpm`; `warmpot methods --all` lists them."
            raise InputError("preset", got="none, and no method", allowed="one of the two", remedy=remedy)

    def to_mapping(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        optional = {
            "preset": self.preset, "method": self.method, "set": dict(self.changes), "reported": self.reported,
        }  # fmt: skip
        return {"name": self.name, **{name: value for name, value in optional.items() if value}}

    def recipe(self, images: bool) -> str:
        """Return the preset, or the method's for features or for images."""
        from warmpot.train.recipes import preset_for

        return preset_for(self.method, self.preset or None, images=images) if self.method else self.preset


@dataclass(frozen=True)
class Cell:
    """One training of a grid: a row at a point of the varied settings, on a task, with a seed.

    `any_seed`: the result holds for every seed, since the full engine draws nothing, on data that are not drawn either.
    `choose` are the label-free rules, `setting` is how the data were made. With `known_classes`, the source is
    restricted to the classes that occur in the target: an oracle.
    """

    data: DataSet
    task: str
    row: Row
    point: Mapping[str, float]
    seed: int
    any_seed: bool
    config: RunConfig
    choose: tuple[str, ...]
    setting: str
    known_classes: bool = False

    @property
    def name(self) -> str:
        """Data set, task, row, point and seed in one line."""
        seed = "any" if self.any_seed else self.seed
        return name_training(self.data.name, self.task, self.row.name, self.point, seed, self.known_classes)

    @property
    def identity(self) -> dict[str, Any]:
        """What is trained on which data. Names of rows and folders on disk do not matter."""
        settings = to_mapping(self.config)
        del settings["preset"]
        del settings["minibatch" if self.config.engine == "full" else "full"]  # settings of the unused engine
        identity = {"data": self.data.identity(), "task": self.task, "config": settings, "choose": sorted(self.choose)}
        # Later additions are absent where they change nothing, so that older records keep their key.
        if not self.config.holdout:
            del settings["holdout"]
        if self.config.candidates == 1:
            del settings["candidates"]
        return identity | {"known_classes": True} if self.known_classes else identity

    @functools.cached_property
    def key(self) -> str:
        """16 hexadecimal digits of the identity."""
        return hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def coordinates(self) -> Coordinates:
        """Position in the grid, as of a record."""
        return (
            self.data.name,
            self.task,
            self.row.name,
            tuple(sorted(self.point.items())),
            self.seed,
            self.known_classes,
        )

    @property
    def record_fields(self) -> dict[str, Any]:
        """Fields of its record that depend on the grid and not on the training."""
        return {
            "dataset": self.data.name, "task": self.task, "row": self.row.name, "preset": self.config.preset,
            "seed": self.seed, "any_seed": self.any_seed, "point": dict(self.point), "setting": self.setting,
            "known_classes": self.known_classes,
        }  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """The content of a grid's file.

    Attributes
    ----------
    figure : "table", "histogram" or "sensitivity"
        What the page draws besides the tables.
    setting : str
        How the data were made; printed next to the paper's setting.
    reported : str
        Table of the paper to compare with; empty: none.
    vary : tuple of mappings
        Every row is trained at every point: for each mapping, all combinations of its lists.
    choose : tuple of str
        Label-free rules; the last iterate and the oracle are always evaluated.
    known_classes : bool
        Whether every cell is also trained with the source restricted to the classes that occur in the target. That
        needs target labels: it is an oracle, which shows what the other classes cost.
    baseline : str
        Row that the others are compared with.
    seconds : mapping of str to float
        Approximate seconds per cell, by row or engine.
    changes : mapping
        Settings of all rows (``set`` in the file).
    """

    title: str
    data: tuple[DataSet, ...]
    rows: tuple[Row, ...]
    figure: str = "table"
    setting: str = ""
    reported: str = ""
    vary: tuple[Mapping[str, tuple[float, ...]], ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    choose: tuple[str, ...] = ()
    known_classes: bool = False
    baseline: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("figure", self.figure, FIGURES)
        for what, entries in (("data", self.data), ("rows", self.rows), ("seeds", self.seeds)):
            names = [str(getattr(entry, "name", entry)) for entry in entries]
            if not names:
                raise InputError(what, got="none", allowed="one or more", remedy=f"List some under {what}.")
            if repeated := [name for name in names if names.count(name) > 1]:
                raise InputError(what, got=f"{repeated[0]} twice", allowed="each once", remedy="Rename one.")
        rows = [row.name for row in self.rows]
        if self.baseline and self.baseline not in rows:
            remedy = suggestion(self.baseline, rows)
            raise InputError("baseline", got=repr(self.baseline), allowed=", ".join(rows), remedy=remedy)

    @classmethod
    def load(cls, mapping: Mapping[str, Any]) -> Grid:
        """Make a grid from the lists and mappings of its file."""
        fields = dict(vars(from_mapping(_GridFile, mapping, "grid")))
        fields |= {
            "data": tuple(read_data_set(entry, f"data[{k}]") for k, entry in enumerate(fields["data"])),
            "rows": tuple(_read_row(entry, f"rows[{k}]") for k, entry in enumerate(fields["rows"])),
            "vary": _read_vary(fields["vary"]),
            "seeds": _read_seeds(fields["seeds"]),
            "choose": tuple(read_names(fields["choose"], "choose")),
            "seconds": {str(name): _read_number(each, f"seconds.{name}") for name, each in fields["seconds"].items()},
            "changes": _nest(fields.pop("set")),
        }
        grid = cls(**fields)
        if reserved := [rule for rule in grid.choose if rule in (LAST, ORACLE)]:
            remedy = "Leave it out: it is always evaluated."
            raise InputError("choose", got=reserved[0], allowed="label-free rules", remedy=remedy)
        return grid

    def to_mapping(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        data = [{name: value for name, value in vars(entry).items() if value or name == "name"} for entry in self.data]
        mapping: dict[str, Any] = {name: getattr(self, name) for name in ("title", "figure", "setting", "reported")}
        mapping |= {"data": data, "rows": [row.to_mapping() for row in self.rows]}
        mapping |= {"vary": [dict(block) for block in self.vary], "seeds": self.seeds, "choose": self.choose}
        mapping |= {"known_classes": self.known_classes, "baseline": self.baseline}
        mapping |= {"seconds": dict(self.seconds), "set": dict(self.changes)}
        plain: dict[str, Any] = json.loads(json.dumps(mapping))  # tuples become lists
        return plain

    def dump(self) -> str:
        """Write it as YAML."""
        return str(yaml.safe_dump(self.to_mapping(), sort_keys=False, allow_unicode=True, width=120))

    def points(self) -> list[dict[str, float]]:
        """List the points of `vary`, each once; without it, one empty point."""
        points: list[dict[str, float]] = []
        for block in self.vary or ({},):
            for values in itertools.product(*block.values()):
                point = dict(zip(block, values, strict=True))
                points += [point] if point not in points else []
        return points

    def cells(self, only: Sequence[str] = ()) -> list[Cell]:
        """List the trainings: all of the first seed, then those of the next one, and so on.

        `only` keeps cells whose data set, task or row contains these texts, in any case. Of several texts for the same
        one of these three, one has to match.
        """
        from warmpot.select import make_validator

        for rule in self.choose:
            if "held" in make_validator(rule).needs:
                got, allowed = repr(rule), "a rule that needs no held-out part of the source"
                remedy = "Holding out samples changes the training; run it separately, with `choose` set."
                raise InputError("choose", got=got, allowed=allowed, remedy=remedy)
        wanted = self._wanted_names(only)
        configs = [(row, point, self._configs(row, point)) for row in self.rows for point in self.points()]
        cells: dict[Coordinates, Cell] = {}
        for seed, data in itertools.product(self.seeds, self.data):
            for task, (row, point, by_kind) in itertools.product(data.tasks, configs):
                if all(name in names for name, names in zip((data.name, task, row.name), wanted, strict=True)):
                    config = by_kind[bool(data.images)]
                    any_seed = config.engine == "full" and not data.drawn
                    config = dataclasses.replace(config, seed=0 if any_seed else seed)
                    setting = data.setting or self.setting
                    for known_classes in (False, True)[: 1 + self.known_classes]:
                        cell = Cell(
                            data, task, row, point, config.seed, any_seed, config, self.choose, setting, known_classes
                        )
                        cells.setdefault(cell.coordinates, cell)
        return list(cells.values())

    def _wanted_names(self, only: Sequence[str]) -> tuple[set[str], ...]:
        """Return the data sets, tasks and rows that `only` keeps; a text filters the first of these that matches."""
        names = (
            {entry.name for entry in self.data},
            {task for entry in self.data for task in entry.tasks},
            {row.name for row in self.rows},
        )
        wanted: tuple[set[str], ...] = set(), set(), set()
        for text in only:
            matches = [{name for name in kind if text.lower() in name.lower()} for kind in names]
            if not any(matches):
                allowed = ", ".join(sorted(set().union(*names)))
                raise InputError("--only", got=repr(text), allowed=allowed, remedy="Give a part of one of these.")
            first = next(k for k, kind in enumerate(matches) if kind)
            wanted[first].update(matches[first])
        return tuple(some or everything for some, everything in zip(wanted, names, strict=True))

    def _configs(self, row: Row, point: Mapping[str, float]) -> dict[bool, RunConfig]:
        """Resolve a row at a point, for data sets of features (False) and of images (True) if the grid has them."""
        from warmpot.train import load_config

        changes = merged(self.changes, row.changes)
        if row.method:
            changes = merged(changes, {"method": row.method})
        for name, value in point.items():
            changes = merged(changes, with_value(name, value))
        by_kind = {
            False: {name: value for name, value in changes.items() if name != "images"},
            True: merged({"images": {}}, changes),
        }
        try:
            kinds = {bool(entry.images) for entry in self.data}
            return {kind: load_config(row.recipe(kind), changes=by_kind[kind]) for kind in kinds}
        except InputError as error:
            raise error.within(f"row {row.name!r}: ") from None


@dataclass(frozen=True)
class _GridFile:
    """The settings of a file, with entries not read yet."""

    title: str
    data: list[Any]
    rows: list[Any]
    figure: str = "table"
    setting: str = ""
    reported: str = ""
    vary: object = None
    seeds: object = 3
    choose: object = ()
    known_classes: bool = False
    baseline: str = ""
    seconds: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _RowFile:
    """The settings of a row in a file."""

    name: str
    preset: str = ""
    method: str = ""
    set: Mapping[str, Any] = field(default_factory=dict)
    reported: str = ""


def _read_row(entry: Any, where: str) -> Row:
    fields = dict(vars(from_mapping(_RowFile, entry, where)))
    fields["changes"] = _nest(fields.pop("set"))
    try:
        return Row(**fields)
    except InputError as error:
        raise error.within(f"{where}.") from None


def _nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted names into nested mappings."""
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        nested = merged(nested, with_value(str(name), value))
    return nested


def _read_seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, list):
        for seed in value:
            check_count("seeds", seed, minimum=0)
        return tuple(value)
    check_count("seeds", value)
    return tuple(range(value))


def _read_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(where, got=repr(value), allowed="a number", remedy="Correct it.")
    return float(value)


def _read_vary(value: Any) -> tuple[Mapping[str, tuple[float, ...]], ...]:
    blocks = [] if value is None else [value] if isinstance(value, Mapping) else value
    if not isinstance(blocks, (list, tuple)) or not all(isinstance(block, Mapping) and block for block in blocks):
        remedy = "Write it as {params.alpha: [0.1, 0.5]}."
        raise InputError("vary", got=repr(value), allowed="settings with lists of numbers", remedy=remedy)
    return tuple({str(name): _read_numbers(numbers, name) for name, numbers in block.items()} for block in blocks)


def _read_numbers(value: Any, name: str) -> tuple[float, ...]:
    if not isinstance(value, (list, tuple)) or not value:
        remedy = f"Write it as {name}: [0.1, 0.5]"
        raise InputError(f"vary.{name}", got=repr(value), allowed="a list of numbers", remedy=remedy)
    return tuple(_read_number(number, f"vary.{name}") for number in value)


def grid_names() -> list[str]:
    """List the names of the grids in the package."""
    return sorted(entry.name[:-5] for entry in _PACKAGED.iterdir() if entry.name.endswith(".yaml"))


def load_grid(grid: Path | str) -> Grid:
    """Read a grid: one of the package by its name, or a YAML file."""
    name = str(grid)
    packaged = name in grid_names()
    if not packaged and not Path(grid).is_file() and not re.search(r"[/\\]|\.ya?ml$", name):
        remedy = suggestion(name, grid_names())
        raise InputError("grid", got=repr(name), allowed=f"{', '.join(grid_names())}, or a YAML file", remedy=remedy)
    packed = _PACKAGED / f"{name}.yaml"  # not always a path: the package may be a zip file
    content = parse_yaml(packed.read_text(encoding="utf-8"), name) if packaged else read_yaml(Path(grid))
    try:
        return Grid.load(content)
    except InputError as error:
        raise error.within(f"{name}: ") from None


def read_grid(folder: Path | str) -> Grid:
    """Read the grid of a folder that `warmpot bench` wrote."""
    file = Path(folder) / GRID
    if not file.is_file():
        got, remedy = "no grid.yaml", "Give a folder that `warmpot bench` wrote."
        raise InputError(str(folder), got=got, allowed="the folder of a bench", remedy=remedy)
    return load_grid(file)
