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

__all__ = ["ARROW", "DataSet", "Row", "nest_settings", "read_data_set", "read_names", "read_row"]

KINDS = ("features", "images", "digits", "built_in", "source")
"""Settings that name the data: a data set has exactly one of them."""
ARROW = " -> "
BUILT_IN = f"fonts{ARROW}handwritten"


@dataclass(frozen=True)
class DataSet:
    """One data set of a grid and its tasks. Paths are relative to the folder given with ``--data``.

    Attributes
    ----------
    name : str
        Name in the tables.
    tasks : sequence of str
        ``SOURCE -> TARGET``, or "all" pairs of `domains` (for images: of the described data set).
    domains : sequence of str
        Domains of "all" tasks, for features and digits.
    features : str
        Files of features, with ``{domain}`` in the name (the domain's name without blanks).
    images : str
        A described data set (`warmpot.data.benchmark_names`), read from `root`.
    root : str
        Folder of the images; default: a folder with the name of the described data set if it exists, else the folder
        of the data.
    digits : str
        Files of grey images, with ``{domain}`` in the name; `samples` of each are drawn with the seed and resized to
        16 x 16 pixels.
    built_in : int
        Number of source samples of the built-in task, drawn with the seed.
    source, target : str
        Two files; the labels of the target are used for evaluation only.
    label : str or None
        Column of the labels in these files.
    classes : sequence of str
        Classes that the target is restricted to, or the name of a described data set, for its shared classes. Empty:
        no restriction.
    samples : int
        Samples per domain of `digits`.
    setting : str
        How its features were made, if that differs from the grid's setting.
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
            got, allowed = " and ".join(kinds) or "no data", f"one of {', '.join(KINDS)} with target"
            raise InputError(self.name, got=got, allowed=allowed, remedy="Give the files of its data.")
        for name in ("features", "digits"):
            if (value := getattr(self, name)) and not _is_pattern(value):
                got, allowed = repr(value), "a path with {domain} in it, and no other braces"
                remedy = "Write it as office_home/{domain}.npz; a brace of a name is {{ or }}"
                raise InputError(f"{self.name}.{name}", got=got, allowed=allowed, remedy=remedy)
        if self.images and self.classes:
            what, allowed = f"{self.name}.classes", f"those of {self.images}"
            raise InputError(what, got="some", allowed=allowed, remedy="Leave them out.")
        check_count("samples", self.samples)
        object.__setattr__(self, "tasks", tuple(self._read_tasks()))
        object.__setattr__(self, "domains", ())  # only needed to list the tasks
        classes = tuple(map(str, self.classes))
        if len(classes) == 1 and classes[0] in benchmark_names():
            classes = read_benchmark(classes[0]).shared
        object.__setattr__(self, "classes", classes)

    def _read_tasks(self) -> Iterator[str]:
        if self.built_in or self.source:
            yield BUILT_IN if self.built_in else f"{Path(self.source).stem}{ARROW}{Path(self.target).stem}"
            return
        if list(self.tasks) == ["all"]:
            yield from self._all_tasks()
            return
        what, allowed = f"{self.name}.tasks", "SOURCE -> TARGET"
        if not self.tasks:
            raise InputError(what, got="none", allowed=allowed, remedy="List some, or write `tasks: all`.")
        for task in self.tasks:
            ends = [end.strip() for end in str(task).split("->")]
            if len(ends) != 2 or not all(ends) or ends[0] == ends[1]:
                raise InputError(what, got=repr(task), allowed=allowed, remedy="Write it as Art -> Product")
            if self.images:
                ends = [read_benchmark(self.images).domain(end).name for end in ends]
            yield ARROW.join(ends)

    def _all_tasks(self) -> Iterator[str]:
        domains: list[tuple[str, str | None]] = [(str(name), None) for name in self.domains]
        if self.images:
            domains = [(d.name, d.role) for d in read_benchmark(self.images).domains if d.needed]
        if len(domains) < 2:
            remedy = "List them: domains: [Art, Product]"
            raise InputError(f"{self.name}.domains", got=len(domains), allowed="two or more", remedy=remedy)
        for (source, source_role), (target, target_role) in itertools.permutations(domains, 2):
            if source_role != "target" and target_role != "source":
                yield f"{source}{ARROW}{target}"

    @property
    def drawn(self) -> bool:
        """Whether its samples depend on the seed."""
        return bool(self.digits or self.built_in)

    def identity(self) -> dict[str, Any]:
        """Return what identifies its data; of files only the names, since folders differ between machines."""
        files = [Path(getattr(self, name)).name for name in ("features", "digits", "source", "target")]
        identity = {"name": self.name, "files": files, "images": self.images, "built_in": self.built_in}
        return {**identity, "label": self.label, "classes": sorted(self.classes), "samples": self.samples}


@dataclass(frozen=True)
class Row:
    """One row of the tables: a preset of the package with changed settings.

    Attributes
    ----------
    name : str
    preset : str
    changes : mapping
        Nested settings (``set`` in the file, where names may be dotted).
    reported : str
        Name of the same system in the paper's table; empty: the paper does not have it.
    """

    name: str
    preset: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    reported: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        optional = {"set": dict(self.changes), "reported": self.reported}
        return {"name": self.name, "preset": self.preset, **{name: value for name, value in optional.items() if value}}


def _is_pattern(text: str) -> bool:
    """Whether {domain} is the only replacement field of a path."""
    try:
        fields = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError:  # an unmatched brace
        return False
    return bool(fields) and set(fields) == {("domain", "", None)}


def read_data_set(entry: Any, where: str) -> DataSet:
    """Make a data set from an entry of the file; `where` names the entry in messages."""
    if isinstance(entry, Mapping):
        lists = [name for name in ("tasks", "domains", "classes") if name in entry]
        entry = {**entry, **{name: read_names(entry[name], f"{where}.{name}") for name in lists}}
    return from_mapping(DataSet, entry, where)


def read_row(entry: Any, where: str) -> Row:
    """Make a row from an entry of the file; `where` names the entry in messages."""
    if isinstance(entry, Mapping):
        entry = {("changes" if name == "set" else name): value for name, value in entry.items()}
        if isinstance(entry.get("changes"), Mapping):
            entry["changes"] = nest_settings(entry["changes"])
    return from_mapping(Row, entry, where)


def nest_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Turn dotted names into nested mappings."""
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        nested = merged(nested, with_value(str(name), value))
    return nested


def read_names(value: Any, where: str) -> list[str]:
    """Read a list of names; a single name is a list of one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, (str, int)) for name in names):
        raise InputError(where, got=repr(value), allowed="a list of names", remedy="Write it as [one, another].")
    return [str(name) for name in names]
