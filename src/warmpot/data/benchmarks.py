"""Descriptions of public data sets: their folders, and the partial tasks made of them. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from warmpot._settings import suggestion
from warmpot.data._folder_checks import DomainCheck, check_domain, comparable_name, missing_domain, subfolders
from warmpot.data.images import drop_samples, image_folder
from warmpot.data.pixels import DEFAULT_VIEW, ViewSettings
from warmpot.data.table import Table
from warmpot.errors import InputError, listing

__all__ = ["Benchmark", "Domain", "DomainCheck", "benchmark_names", "benchmark_task", "read_benchmark"]

IMAGES_FOLDER = "images"
"""Some archives have a folder of this name between a domain and its classes."""


@dataclass(frozen=True)
class Domain:
    """One domain of a data set.

    Attributes
    ----------
    name : str
        Name of the domain.
    folders : tuple of str
        Usual names of its folder below the root; case, blanks, ``_`` and ``-`` do not matter.
    names : mapping of str to str
        The class folders that must exist, each with the name of its class.
    folder_pattern : str
        Regular expression of all class folders, where `names` does not list them all; each is its own class.
    others, ignored_pattern : tuple of str, str
        Folders of the data set that are not used in the partial tasks: their names, or a regular expression.
    images : tuple of int
        Number of images, one for each release; empty when unknown.
    counts : mapping of str to int
        Number of images in each folder of `names`; empty when unknown.
    shared_images : int or None
        Number of images of the shared classes; None when unknown.
    role : {"source", "target"} or None
        The only side of a task that it can be; None for both.
    needed : bool
        Whether the partial tasks of the literature use it.
    """

    name: str
    folders: tuple[str, ...]
    names: Mapping[str, str]
    folder_pattern: str = ""
    others: tuple[str, ...] = ()
    ignored_pattern: str = ""
    images: tuple[int, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    shared_images: int | None = None
    role: str | None = None
    needed: bool = True

    def class_of(self, folder: str) -> str | None:
        """Return the class of a folder; None for a folder that is not used."""
        matches = self.folder_pattern and re.fullmatch(self.folder_pattern, folder)
        return self.names.get(folder) or (folder if matches else None)

    def knows(self, folder: str) -> bool:
        """Whether a folder belongs to the data set."""
        unused = folder in self.others or bool(self.ignored_pattern and re.fullmatch(self.ignored_pattern, folder))
        return unused or self.class_of(folder) is not None

    def find_in(self, base: Path) -> Path | None:
        """Find its folder below another one."""
        for alias in self.folders:
            path: Path | None = base
            for part in alias.split("/"):
                path = _child(path, part) if path else None
            if path:
                inner = path / IMAGES_FOLDER
                return inner if inner.is_dir() and not any((path / name).is_dir() for name in self.names) else path
        return None


@dataclass(frozen=True)
class Benchmark:
    """A data set and its partial tasks; `read_benchmark` makes them.

    Attributes
    ----------
    name, title : str
        Short name, and full name.
    domains : tuple of Domain
        Its domains.
    n_classes : int
        Number of classes of a source.
    classes : tuple of str
        Their names in the order of the published splits; empty when only their form is known (ImageNet).
    shared : tuple of str
        The classes that a target is restricted to.
    obtain : tuple of str
        Where to get it.
    citation, licence, lists, note : str
        What to cite, the terms of use as far as known, the published list files, and further remarks.
    """

    name: str
    title: str
    domains: tuple[Domain, ...]
    n_classes: int
    classes: tuple[str, ...]
    shared: tuple[str, ...]
    obtain: tuple[str, ...]
    citation: str
    licence: str
    lists: str
    note: str

    def domain(self, name: str) -> Domain:
        """Find a domain by its name or the name of its folder."""
        for domain in self.domains:
            if comparable_name(name) in map(comparable_name, (domain.name, *domain.folders)):
                return domain
        names = [domain.name for domain in self.domains]
        remedy = suggestion(name, names)
        raise InputError(f"domain of {self.name}", got=repr(name), allowed=", ".join(names), remedy=remedy)

    def base(self, root: str | os.PathLike[str]) -> Path:
        """Find the folder that holds the domains: the root itself, else the folder in it that holds most of them."""
        root = Path(root)
        try:
            children = [root / name for name in subfolders(root)]
        except OSError as error:
            got, allowed = error.strerror or str(error), "a folder you may read"
            remedy = f"Name the folder that holds {self.title}."
            raise InputError(str(root), got=got, allowed=allowed, remedy=remedy) from error
        # Never a mixture of both: a class may have the name of a domain, such as `train` in VisDA-2017.
        if any(domain.find_in(root) for domain in self.domains):
            return root
        return max([root, *children], key=lambda folder: sum(bool(domain.find_in(folder)) for domain in self.domains))

    def find(self, root: str | os.PathLike[str]) -> dict[str, Path]:
        """Return the folders of the domains that exist below a folder."""
        base = self.base(root)
        return {domain.name: path for domain in self.domains if (path := domain.find_in(base))}

    def check(self, root: str | os.PathLike[str]) -> list[DomainCheck]:
        """Compare the content of a folder with the description; images are counted, not opened.

        A complete domain has one result, of level "ok"; "fail" means that something that is needed is missing.
        """
        base, paths = self.base(root), self.find(root)
        taken = [path.relative_to(base).parts[0] for path in paths.values()]
        checks: list[DomainCheck] = []
        for domain in self.domains:
            if domain.name in paths:
                checks += check_domain(self, domain, paths[domain.name])
            else:
                checks.append(missing_domain(self, domain, base, taken))
        return checks

    def tree(self) -> str:
        """Draw the folders that are expected below the root."""
        lines, previous = ["ROOT"], None
        for domain in self.domains:
            number = self.n_classes if domain.folder_pattern else len(domain.names) + len(domain.others)
            images = f", {' or '.join(f'{n:,}' for n in domain.images)} images" if domain.images else ""
            optional = "" if domain.needed else "; not needed for the partial tasks"
            others = [f"{alias}/" for alias in domain.folders[1:]]
            also = f"  (or {', '.join(others)})" if others else ""
            lines.append(f"  {domain.folders[0]}/{also}  {number} class folders{images}{optional}")
            if domain.names != previous:
                lines += [f"    {name}/" for name in list(domain.names)[:2]] + ["    ..."]
            previous = domain.names
        return "\n".join(lines)


def _child(folder: Path, name: str) -> Path | None:
    """Find a folder by its exact name, or by one that differs in case, blanks, ``_`` or ``-`` only."""
    if (folder / name).is_dir():
        return folder / name
    try:
        matches = [other for other in subfolders(folder) if comparable_name(other) == comparable_name(name)]
    except OSError:
        return None
    return folder / matches[0] if matches else None


def benchmark_names() -> list[str]:
    """Return the names of the described data sets.

    Examples
    --------
    >>> benchmark_names()
    ['domainnet', 'imagenet-caltech', 'office-31', 'office-home', 'visda-2017']
    """
    return sorted(entry.name[:-5] for entry in _folder().iterdir() if entry.name.endswith(".yaml"))


def _folder() -> Any:
    return resources.files("warmpot") / "datasets"


@cache
def read_benchmark(name: str) -> Benchmark:
    """Read the description of a data set.

    Examples
    --------
    >>> homes = read_benchmark("office-home")
    >>> homes.n_classes, len(homes.shared), [domain.name for domain in homes.domains]
    (65, 25, ['Art', 'Clipart', 'Product', 'Real World'])
    """
    import yaml

    if name not in benchmark_names():
        allowed, remedy = ", ".join(benchmark_names()), suggestion(name, benchmark_names())
        raise InputError("data set", got=repr(name), allowed=allowed, remedy=remedy)
    facts = yaml.safe_load((_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    classes, others = tuple(facts.pop("classes", ())), tuple(facts.pop("others", ()))
    mapped = {name for entry in facts["domains"].values() for name in entry.get("names", {}).values()}
    shared = tuple(facts.pop("shared", sorted(mapped)))
    domains = tuple(_domain(key, entry, classes, shared, others) for key, entry in facts.pop("domains").items())
    number = facts.pop("n_classes", len(classes))
    return Benchmark(name, facts.pop("title"), domains, number, classes, shared, tuple(facts.pop("obtain")), **facts)


def _domain(
    name: str, entry: dict[str, Any], classes: tuple[str, ...], shared: tuple[str, ...], others: tuple[str, ...]
) -> Domain:
    names = entry.pop("names", {folder: folder for folder in classes or shared})
    counts = dict(zip(classes, entry.pop("counts", ()), strict=False))  # none, or one per class
    if counts:
        entry["images"] = [sum(counts.values())]
        entry["shared_images"] = sum(counts[folder] for folder in shared)
    folders, images = tuple(entry.pop("folders")), tuple(entry.pop("images", ()))
    return Domain(name, folders, names, others=others, images=images, counts=counts, **entry)


def benchmark_task(
    name: str, root: str | os.PathLike[str], source: str, target: str, *, view: ViewSettings = DEFAULT_VIEW
) -> tuple[Table, Table]:
    """Read the two domains of a partial task from a folder of images.

    Parameters
    ----------
    name : str
        One of `benchmark_names`.
    root : path
        The folder that holds the data set.
    source, target : str
        Two of its domains. The source has all classes of the task, the target the shared ones only.
    view : ViewSettings
        How an image becomes a square.

    Returns
    -------
    source, target : Table
        Labelled images, with the same class names on both sides; `make_task` hides the labels of the target.
    """
    benchmark = read_benchmark(name)
    paths = benchmark.find(root)
    sides = {"source": benchmark.domain(source), "target": benchmark.domain(target)}
    if sides["source"] == sides["target"]:
        raise InputError("target", got=f"{target!r} twice", allowed="two domains", remedy="Name another domain.")
    for side, domain in sides.items():
        if domain.role not in (None, side):
            allowed, remedy = f"a {side}; it is a {domain.role}", "Swap source and target."
            raise InputError(f"{side} of {name}", got=repr(domain.name), allowed=allowed, remedy=remedy)
        if domain.name not in paths:
            got, allowed = f"no folder of {domain.name!r}", " or ".join(domain.folders)
            remedy = f"Run: warmpot doctor --dataset {name} --root '{root}'"
            raise InputError(str(root), got=got, allowed=allowed, remedy=remedy)
    tables = [_read_side(benchmark, side, domain, paths[domain.name], view) for side, domain in sides.items()]
    return tables[0], tables[1]


def _read_side(benchmark: Benchmark, side: str, domain: Domain, path: Path, view: ViewSettings) -> Table:
    """Read a domain and keep the classes of its side, under their common names."""
    table = image_folder(path, view=view)
    remedy = f"Run: warmpot doctor --dataset {benchmark.name} --root DIR"
    if table.y is None:
        raise InputError(str(path), got="images only", allowed="one folder per class", remedy=remedy)
    names = [domain.class_of(folder) for folder in table.classes]
    wanted = set(benchmark.shared if side == "target" else [*names, *domain.names.values()])
    kept = {name for name in names if name is not None and name in wanted}
    present = {folder for folder, n in zip(table.classes, np.bincount(table.y, minlength=len(names)), strict=True) if n}
    needed = [folder for folder, name in domain.names.items() if name in wanted]
    if missing := [folder for folder in needed if folder not in present]:
        got = f"no images of {len(missing)} of the {len(needed)} classes: {listing(missing)}"
        raise InputError(str(path), got=got, allowed="all of them", remedy=remedy)
    order = tuple(name for name in benchmark.classes or sorted(kept) if name in kept)
    codes = np.array([order.index(name) if name in kept else -1 for name in names], dtype=np.int64)[table.y]
    rest = drop_samples(table, np.flatnonzero(codes < 0))
    return replace(rest, y=codes[codes >= 0], classes=order)
