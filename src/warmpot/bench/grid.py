"""A grid: which rows are trained on which tasks with which seeds, from one YAML file."""

from __future__ import annotations

import dataclasses
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
from warmpot._settings import from_mapping, merged, suggestion, to_mapping, with_value
from warmpot.bench.entries import DataSet, Row, nested, read_data_set, read_row, texts
from warmpot.bench.store import LAST, ORACLE
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train import RunConfig

__all__ = ["FIGURES", "GRID", "Cell", "DataSet", "Grid", "Row", "grid_names", "grid_titles", "load_grid", "read_grid"]

GRID = "grid.yaml"
FIGURES = ("table", "histogram", "sensitivity")


@dataclass(frozen=True)
class Cell:
    """One training of a grid.

    Attributes
    ----------
    key : str
        16 hexadecimal digits of what is trained on what; names of rows and places on disk are not in it.
    data, task, row, point, seed
        Its place in the grid.
    any_seed : bool
        Whether a seed changes nothing: the full engine draws nothing, on data taken whole.
    config : RunConfig
    choose : tuple of str
    setting : str
    """

    key: str
    data: DataSet
    task: str
    row: Row
    point: Mapping[str, float]
    seed: int
    any_seed: bool
    config: RunConfig
    choose: tuple[str, ...]
    setting: str

    @property
    def name(self) -> str:
        """Data set, task, row, point and seed in one line."""
        point = "".join(f", {name.split('.')[-1]} {value:g}" for name, value in self.point.items())
        return f"{self.data.name}, {self.task}, {self.row.name}{point}, seed {'any' if self.any_seed else self.seed}"

    @property
    def told(self) -> dict[str, Any]:
        """What is trained on what: the key is made of it."""
        return _told(self.data, self.task, self.config, self.choose)

    @property
    def place(self) -> tuple[str, str, str, tuple[tuple[str, float], ...], int]:
        """As `Record.place`."""
        return self.data.name, self.task, self.row.name, tuple(sorted(self.point.items())), self.seed


@dataclass(frozen=True)
class Grid:
    """What one YAML file says.

    Attributes
    ----------
    title : str
    data : tuple of DataSet
    rows : tuple of Row
    figure : "table", "histogram" or "sensitivity"
        What is drawn besides the tables.
    setting : str
        How ours was made, printed beside the paper's.
    reported : str
        Table of the paper to print beside; empty: none.
    vary : tuple of mappings
        Every row is trained at every point: of each mapping, the product of its lists.
    seeds : tuple of int
    choose : tuple of str
        Label-free rules; the last iterate and the oracle are always there.
    baseline : str
        Row that the others are compared with.
    seconds : mapping of str to float
        About so long takes a cell of a row, or of an engine.
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
    baseline: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("figure", self.figure, FIGURES)
        for what, entries in (("data", self.data), ("rows", self.rows), ("seeds", self.seeds)):
            names = [str(getattr(entry, "name", entry)) for entry in entries]
            if not names:
                raise InputError(what, got="none", allowed="one or more", remedy=f"List some under {what}.")
            if twice := [name for name in names if names.count(name) > 1]:
                raise InputError(what, got=f"{twice[0]} twice", allowed="each once", remedy="Rename one.")
        rows = [row.name for row in self.rows]
        if self.baseline and self.baseline not in rows:
            remedy = suggestion(self.baseline, rows)
            raise InputError("baseline", got=repr(self.baseline), allowed=", ".join(rows), remedy=remedy)

    @classmethod
    def load(cls, found: Mapping[str, Any]) -> Grid:
        """Read a grid from plain lists and mappings; an `InputError` says what is wrong."""
        written = from_mapping(_Written, found, "grid")
        data = tuple(read_data_set(entry, f"data[{k}]") for k, entry in enumerate(written.data))
        rows = tuple(read_row(entry, f"rows[{k}]") for k, entry in enumerate(written.rows))
        grid = cls(
            written.title, data, rows, written.figure, written.setting, written.reported, _varied(found.get("vary")),
            _seeds(found.get("seeds", 3)), tuple(texts(found.get("choose", []), "choose")), written.baseline,
            _hints(written.seconds), nested(written.set),
        )  # fmt: skip
        if taken := [rule for rule in grid.choose if rule in (LAST, ORACLE)]:
            remedy = "Leave it out: it is always there."
            raise InputError("choose", got=taken[0], allowed="label-free rules", remedy=remedy)
        return grid

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a file has it."""
        plain = {name: getattr(self, name) for name in ("title", "figure", "setting", "reported")}
        data = []
        for entry in self.data:
            own = {each.name: getattr(entry, each.name) for each in dataclasses.fields(entry) if each.name != "name"}
            data.append({"name": entry.name} | {name: value for name, value in own.items() if value})
        found = {**plain, "data": data, "rows": [row.to_mapping() for row in self.rows]}
        found |= {"vary": [dict(block) for block in self.vary], "seeds": self.seeds, "choose": self.choose}
        found |= {"baseline": self.baseline, "seconds": dict(self.seconds), "set": dict(self.changes)}
        plain_lists: dict[str, Any] = json.loads(json.dumps(found))
        return plain_lists

    def dump(self) -> str:
        """Write it as YAML."""
        return str(yaml.safe_dump(self.to_mapping(), sort_keys=False, allow_unicode=True, width=120))

    def points(self) -> list[dict[str, float]]:
        """All points of `vary`, each once; without it the one point that is empty."""
        found: list[dict[str, float]] = []
        for block in self.vary or ({},):
            for values in itertools.product(*block.values()):
                point = dict(zip(block, values, strict=True))
                found += [point] if point not in found else []
        return found

    def cells(self, only: Sequence[str] = ()) -> list[Cell]:
        """List the trainings: all of the first seed first, then those of the next that it changes.

        Parameters
        ----------
        only : sequence of str
            Keep those whose data set, task or row contains these texts, in any case. Of texts for the same of these
            three, one is enough.
        """
        self._check_rules()
        wanted = self._wanted(only)
        configs = [(row, point, self._config(row, point)) for row in self.rows for point in self.points()]
        found: dict[Any, Cell] = {}
        for seed, data in itertools.product(self.seeds, self.data):
            for task, (row, point, (plain, pictured)) in itertools.product(data.tasks, configs):
                if all(name in some for name, some in zip((data.name, task, row.name), wanted, strict=True)):
                    cell = self._cell(data, task, row, point, pictured if data.images else plain, seed)
                    found.setdefault(cell.place, cell)
        return list(found.values())

    def _wanted(self, only: Sequence[str]) -> tuple[set[str], ...]:
        """Return the names of data sets, tasks and rows that texts leave; a text is for the first that has it."""
        names = (
            {entry.name for entry in self.data},
            {task for entry in self.data for task in entry.tasks},
            {row.name for row in self.rows},
        )
        left: tuple[set[str], ...] = set(), set(), set()
        for text in only:
            matches = [{name for name in some if text.lower() in name.lower()} for some in names]
            if not any(matches):
                allowed = ", ".join(sorted(set().union(*names)))
                remedy = "Name a part of one of these."
                raise InputError("--only", got=repr(text), allowed=allowed, remedy=remedy)
            kind = next(k for k, some in enumerate(matches) if some)
            left[kind].update(matches[kind])
        return tuple(some or all_of_them for some, all_of_them in zip(left, names, strict=True))

    def _check_rules(self) -> None:
        from warmpot.select import make_validator

        for rule in self.choose:
            if "held" in make_validator(rule).needs:
                got, allowed = repr(rule), "a rule that needs no part of the source for itself"
                remedy = "It would change the training; train it apart, with `choose` set."
                raise InputError("choose", got=got, allowed=allowed, remedy=remedy)

    def _config(self, row: Row, point: Mapping[str, float]) -> tuple[RunConfig | None, RunConfig | None]:
        """Resolve a row at a point, on features and on images, as far as the grid has them."""
        from warmpot.train import load_config

        changes = merged(self.changes, row.changes)
        for name, value in point.items():
            changes = merged(changes, with_value(name, value))
        plain = {name: value for name, value in changes.items() if name != "images"}
        kinds = [bool(entry.images) for entry in self.data]
        try:
            return (
                load_config(row.preset, changes=plain) if False in kinds else None,
                load_config(row.preset, changes=merged({"images": {}}, changes)) if True in kinds else None,
            )
        except InputError as error:
            raise error.within(f"row {row.name!r}: ") from None

    def _cell(
        self, data: DataSet, task: str, row: Row, point: Mapping[str, float], config: RunConfig | None, seed: int
    ) -> Cell:
        assert config is not None
        any_seed = config.engine == "full" and not data.drawn
        seed = 0 if any_seed else seed
        config = dataclasses.replace(config, seed=seed)
        told = _told(data, task, config, self.choose)
        key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
        setting = data.setting or self.setting
        return Cell(key, data, task, row, point, seed, any_seed, config, self.choose, setting)


def _told(data: DataSet, task: str, config: RunConfig, choose: Sequence[str]) -> dict[str, Any]:
    settings = to_mapping(config)
    for name in ("preset", "minibatch" if config.engine == "full" else "full"):  # neither is trained by
        del settings[name]
    return {"data": data.identity(), "task": task, "config": settings, "choose": sorted(choose)}


@dataclass(frozen=True)
class _Written:
    """The settings of a file, before their parts are read."""

    title: str
    data: list[Any]
    rows: list[Any]
    figure: str = "table"
    setting: str = ""
    reported: str = ""
    vary: object = None
    seeds: object = 3
    choose: object = ()
    baseline: str = ""
    seconds: Mapping[str, Any] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)


def _seeds(value: Any) -> tuple[int, ...]:
    if isinstance(value, list):
        for each in value:
            check_count("seeds", each, minimum=0)
        return tuple(value)
    check_count("seeds", value)
    return tuple(range(value))


def _hints(value: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(each) for name, each in value.items() if _number(each, f"seconds.{name}")}


def _number(value: Any, where: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(where, got=repr(value), allowed="a number", remedy="Correct it.")
    return True


def _varied(value: Any) -> tuple[Mapping[str, tuple[float, ...]], ...]:
    blocks = [] if value is None else [value] if isinstance(value, Mapping) else value
    if not isinstance(blocks, (list, tuple)) or not all(isinstance(block, Mapping) and block for block in blocks):
        remedy = "Write it as {params.alpha: [0.1, 0.5]}."
        raise InputError("vary", got=repr(value), allowed="settings with lists of numbers", remedy=remedy)
    found = []
    for block in blocks:
        for name, numbers in block.items():
            if not isinstance(numbers, (list, tuple)) or not numbers:
                remedy = f"Write it as {name}: [0.1, 0.5]"
                raise InputError(f"vary.{name}", got=repr(numbers), allowed="a list of numbers", remedy=remedy)
            for number in numbers:
                _number(number, f"vary.{name}")
        found.append({str(name): tuple(map(float, numbers)) for name, numbers in block.items()})
    return tuple(found)


def _tables() -> Any:
    return resources.files("warmpot") / "recipes" / "tables"


def grid_names() -> list[str]:
    """Names of the grids inside the package."""
    folder = _tables()
    if not folder.is_dir():
        return []
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def grid_titles() -> dict[str, str]:
    """Name every grid of the package with its title."""
    return {
        name: str(_parsed((_tables() / f"{name}.yaml").read_text(encoding="utf-8"), name)["title"])
        for name in grid_names()
    }


def load_grid(grid: Path | str) -> Grid:
    """Read a grid: one of the package by its name, or a YAML file."""
    name = str(grid)
    if name in grid_names():
        return _read((_tables() / f"{name}.yaml").read_text(encoding="utf-8"), name)
    file = Path(grid)
    if not file.is_file() and not re.search(r"[/\\]|\.ya?ml$", name):
        remedy = suggestion(name, grid_names())
        raise InputError("grid", got=repr(name), allowed=f"{', '.join(grid_names())}, or a YAML file", remedy=remedy)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        got, remedy = getattr(error, "strerror", None) or "no text", "Name a YAML file, or a grid of `warmpot bench`."
        raise InputError(name, got=got, allowed="a YAML file", remedy=remedy) from error
    return _read(text, name)


def read_grid(folder: Path | str) -> Grid:
    """Read the grid of a folder that `warmpot bench` wrote."""
    file = Path(folder) / GRID
    if not file.is_file():
        got, remedy = "no grid.yaml", "Name a folder that `warmpot bench` wrote."
        raise InputError(str(folder), got=got, allowed="the folder of a bench", remedy=remedy)
    return load_grid(file)


def _parsed(text: str, name: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        got = " ".join(str(error).split())
        raise InputError(name, got=got, allowed="a YAML file", remedy="Correct the file.") from error


def _read(text: str, name: str) -> Grid:
    try:
        return Grid.load(_parsed(text, name))
    except InputError as error:
        raise error.within(f"{name}: ") from None
