"""The entries of a grid's file: data sets and rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Formatter
from typing import Any

from warmpot._checks import check_count
from warmpot._settings import from_mapping, merged, with_value
from warmpot.data.benchmarks import benchmark_names, read_benchmark
from warmpot.errors import InputError

__all__ = ["ARROW", "DataSet", "Row", "nested", "read_data_set", "read_row", "texts"]

KINDS = ("features", "images", "digits", "built_in", "source")
"""What a data set is made from: the one of these settings that it has."""
ARROW = " -> "
BUILT_IN = f"fonts{ARROW}handwritten"


@dataclass(frozen=True)
class DataSet:
    """One data set of a grid and its tasks. Paths start below the folder that the bench is given.

    Attributes
    ----------
    name : str
        As the tables have it.
    tasks : sequence of str
        ``SOURCE -> TARGET``, or "all" pairs of `domains` (of the described data set, for images).
    domains : sequence of str
        What "all" means for features and digits.
    features : str
        Files of features, with ``{domain}`` in the name (written without the blanks of the domain).
    images : str
        A described data set (`warmpot.data.benchmark_names`), read from `root`.
    root : str
        Folder of the images; default: one of the name of the described data set, else the bench's own.
    digits : str
        Files of grey images, ``{domain}`` in the name; `samples` of each are drawn with the seed, 16 x 16 pixels.
    built_in : int
        So many source samples of the built-in task, drawn with the seed.
    source, target : str
        Two files of your own; the target's has labels too, which evaluate.
    label : str or None
        Column of the labels in these.
    classes : sequence of str
        What the target is restricted to, or the name of a described data set: its shared classes. Empty: nothing.
    samples : int
        Of either domain of `digits`.
    setting : str
        How its features were made, when that is not the grid's.
    """

    name: str
    tasks: Sequence[str] = ()
    domains: Sequence[str] = ()
    features: str = ""
    images: str = ""
    root: str = ""
    digits: str = ""
    built_in: int = 0
    source: str = ""
    target: str = ""
    label: str | None = None
    classes: Sequence[str] = ()
    samples: int = 3000
    setting: str = ""

    def __post_init__(self) -> None:
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        if len(kinds) != 1 or bool(self.source) != bool(self.target):
            got, allowed = (
                " and ".join(kinds) or "no data",
                "one of features, images, digits, built_in, source with target",
            )
            raise InputError(self.name, got=got, allowed=allowed, remedy="Say where its data is.")
        for name in ("features", "digits"):
            if (value := getattr(self, name)) and not _is_pattern(value):
                got, allowed = repr(value), "a path with {domain} in it, and no other braces"
                remedy = "Write it as office_home/{domain}.npz; a brace of a name is {{ or }}"
                raise InputError(f"{self.name}.{name}", got=got, allowed=allowed, remedy=remedy)
        if self.images and self.classes:
            remedy = "Leave them out."
            what = f"{self.name}.classes"
            raise InputError(what, got="some", allowed=f"those of {self.images}", remedy=remedy)
        check_count("samples", self.samples)
        object.__setattr__(self, "tasks", tuple(self._tasks()))
        object.__setattr__(self, "domains", ())  # they are in the tasks
        classes = tuple(map(str, self.classes))
        if len(classes) == 1 and classes[0] in benchmark_names():
            classes = read_benchmark(classes[0]).shared
        object.__setattr__(self, "classes", classes)

    def _tasks(self) -> Iterator[str]:
        if self.built_in or self.source:
            yield BUILT_IN if self.built_in else f"{Path(self.source).stem}{ARROW}{Path(self.target).stem}"
            return
        if list(self.tasks) == ["all"]:
            yield from self._all_tasks()
            return
        for task in self.tasks:
            ends = [end.strip() for end in str(task).split("->")]
            if len(ends) != 2 or not all(ends) or ends[0] == ends[1]:
                raise InputError(f"{self.name}.tasks", got=repr(task), allowed="SOURCE -> TARGET",
                                         remedy="Write it as Art -> Product")  # fmt: skip
            if self.images:
                ends = [read_benchmark(self.images).domain(end).name for end in ends]
            yield ARROW.join(ends)
        if not self.tasks:
            remedy = "List some, or write `tasks: all`."
            raise InputError(f"{self.name}.tasks", got="none", allowed="SOURCE -> TARGET", remedy=remedy)

    def _all_tasks(self) -> Iterator[str]:
        ends: list[tuple[str, str | None]] = [(str(name), None) for name in self.domains]
        if self.images:
            ends = [(d.name, d.role) for d in read_benchmark(self.images).domains if d.needed]
        if len(ends) < 2:
            remedy = "List them: domains: [Art, Product]"
            raise InputError(f"{self.name}.domains", got=len(ends), allowed="two or more", remedy=remedy)
        for (source, at), (target, to) in itertools.permutations(ends, 2):
            if at != "target" and to != "source":
                yield f"{source}{ARROW}{target}"

    @property
    def kind(self) -> str:
        """What it is made from: one of `KINDS`."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def drawn(self) -> bool:
        """Whether its samples depend on the seed."""
        return bool(self.digits or self.built_in)

    def identity(self) -> dict[str, Any]:
        """Return what makes its tasks these: no place on disk, only names of files."""
        files = [Path(getattr(self, name)).name for name in ("features", "digits", "source", "target")]
        found = {"name": self.name, "files": files, "images": self.images, "built_in": self.built_in}
        return {**found, "label": self.label, "classes": sorted(self.classes), "samples": self.samples}


@dataclass(frozen=True)
class Row:
    """One row of the tables: a preset of the package, and what is changed in it.

    Attributes
    ----------
    name : str
    preset : str
    changes : mapping
        Nested settings (``set`` in the file, where dotted names are as good).
    reported : str
        Name of the system in the paper's table; empty: it has none there.
    """

    name: str
    preset: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    reported: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return it as the file has it."""
        found: dict[str, Any] = {"name": self.name, "preset": self.preset}
        found |= {"set": dict(self.changes)} if self.changes else {}
        return found | ({"reported": self.reported} if self.reported else {})


def _is_pattern(text: str) -> bool:
    """Tell whether {domain} is in a path, and nothing else that Python would fill in."""
    try:
        fields = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError:  # a brace without the other
        return False
    return bool(fields) and set(fields) == {("domain", "", None)}


def read_data_set(entry: Any, where: str) -> DataSet:
    """Make a data set from what the file has; `where` names it in messages."""
    if isinstance(entry, Mapping):
        lists = {
            name: texts(entry[name], f"{where}.{name}") for name in ("tasks", "domains", "classes") if name in entry
        }
        entry = {**entry, **lists}
    return from_mapping(DataSet, entry, where)


def read_row(entry: Any, where: str) -> Row:
    """Make a row from what the file has; `where` names it in messages."""
    if isinstance(entry, Mapping):
        entry = {("changes" if name == "set" else name): value for name, value in entry.items()}
        if isinstance(entry.get("changes"), Mapping):
            entry["changes"] = nested(entry["changes"])
    return from_mapping(Row, entry, where)


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nest dotted names."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found = merged(found, with_value(str(name), value))
    return found


def texts(value: Any, where: str) -> list[str]:
    """Read a list of names; one name is a list too."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, (str, int)) for each in listed):
        raise InputError(where, got=repr(value), allowed="a list of names", remedy="Write it as [one, another].")
    return [str(each) for each in listed]
