"""Descriptions of public data sets: their folders, and the partial tasks made of them. Nothing is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from warmpot._settings import suggestion
from warmpot._yaml import parse_yaml
from warmpot.data._image_lists import EXTENSIONS
from warmpot.data.images import drop_samples, image_folder
from warmpot.data.pixels import DEFAULT_VIEW, ViewSettings
from warmpot.data.table import Table
from warmpot.errors import InputError, listing

__all__ = [
    "Benchmark", "Domain", "DomainCheck", "benchmark_names", "benchmark_task", "check_domain", "comparable_name",
    "missing_domain", "read_benchmark", "subfolders",
]  # fmt: skip

FOLDER = resources.files("warmpot") / "datasets"
MAX_SHOWN = 8  # unexpected folders that a message lists; missing folders are all listed
MIN_SIMILARITY = 0.7  # similarity (0 to 1) from which a name is taken for a misspelling of another
IMAGES_FOLDER = "images"  # some archives have a folder of this name between a domain and its classes


@dataclass(frozen=True)
class Domain:
    """One domain of a data set; numbers of images are empty or None when unknown.

    `folders` are the usual names of its folder (case, blanks, ``_`` and ``-`` do not matter). `names` maps the class
    folders that must exist to their classes. Where it does not list them all, all class folders match `folder_pattern`,
    and each is its own class. `others` and `ignored_pattern` are folders that the partial tasks do not use. `images`
    has one number per release, `counts` one per folder of `names`. `role` is the only side of a task, "source" or
    "target", that it can be. `needed`: whether the partial tasks of the literature use it.
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

    `n_classes` is the number of classes of a source; `classes` are their names in the order of the published splits,
    empty when only their form is known (ImageNet). A target is restricted to the `shared` classes. `obtain` names where
    to get it.
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
            got, remedy = error.strerror or str(error), f"Name the folder that holds {self.title}."
            raise InputError(str(root), got=got, allowed="a folder you may read", remedy=remedy) from error
        # Never a mixture of both: a class may have the name of a domain, such as `train` in VisDA-2017.
        if any(domain.find_in(root) for domain in self.domains):
            return root
        return max([root, *children], key=lambda folder: sum(bool(domain.find_in(folder)) for domain in self.domains))

    def find(self, root: str | os.PathLike[str]) -> dict[str, Path]:
        """Return the folders of the domains that exist below a folder."""
        base = self.base(root)
        return {domain.name: path for domain in self.domains if (path := domain.find_in(base))}

    def check(self, root: str | os.PathLike[str]) -> list[DomainCheck]:
        """Compare the content of a folder with the description; images are counted, not opened."""
        base, paths = self.base(root), self.find(root)
        taken = [path.relative_to(base).parts[0] for path in paths.values()]
        checks: list[DomainCheck] = []
        for domain in self.domains:
            path = paths.get(domain.name)
            checks += check_domain(self, domain, path) if path else [missing_domain(self, domain, base, taken)]
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
    return sorted(entry.name[:-5] for entry in FOLDER.iterdir() if entry.name.endswith(".yaml"))


@cache
def read_benchmark(name: str) -> Benchmark:
    """Read the description of a data set.

    Examples
    --------
    >>> homes = read_benchmark("office-home")
    >>> homes.n_classes, len(homes.shared), [domain.name for domain in homes.domains]
    (65, 25, ['Art', 'Clipart', 'Product', 'Real World'])
    """
    if name not in benchmark_names():
        allowed, remedy = ", ".join(benchmark_names()), suggestion(name, benchmark_names())
        raise InputError("data set", got=repr(name), allowed=allowed, remedy=remedy)
    facts = parse_yaml((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
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
    """Read the two domains of a partial task, as labelled images with the same class names on both sides.

    Parameters
    ----------
    name, root : str, path
        One of `benchmark_names`, and the folder that holds this data set.
    source, target : str
        Two of its domains. The source has all classes of the task, the target the shared ones only; `make_task` hides
        the labels of the target.
    view : ViewSettings
        How an image becomes a square.
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
            got, remedy = f"no folder of {domain.name!r}", f"Run: warmpot doctor --dataset {name} --root '{root}'"
            raise InputError(str(root), got=got, allowed=" or ".join(domain.folders), remedy=remedy)
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


class DomainCheck(NamedTuple):
    """A result of checking a domain, with what to do about it; "fail" when something that is needed is missing."""

    level: str
    domain: str
    kind: str
    text: str


def comparable_name(name: str) -> str:
    """Return a form of a name that ignores case, blanks, ``_`` and ``-``."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def subfolders(path: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def missing_domain(benchmark: Benchmark, domain: Domain, base: Path, taken: Sequence[str]) -> DomainCheck:
    """Report a missing domain, with a folder that may be a misspelling of it, or where to get it."""
    if not domain.needed:
        return DomainCheck("ok", domain.name, "domain", "absent; the partial tasks do not need it")
    similar = _most_similar(domain.name, [name for name in subfolders(base) if name not in taken])
    if similar:
        text = f"missing. {base / similar} looks like it: rename it to {domain.folders[0]!r}"
    else:
        text = f"missing: no folder {' or '.join(map(repr, domain.folders))} in {base}. Get it from "
        text += " or ".join(benchmark.obtain)
    return DomainCheck("fail", domain.name, "domain", text)


def check_domain(benchmark: Benchmark, domain: Domain, path: Path) -> Iterator[DomainCheck]:
    """Yield the problems of a domain's folder, then a summary of its content."""
    folders = subfolders(path)
    n_images = {folder: _count_images(path / folder) for folder in folders if domain.knows(folder)}
    problems = [
        *_check_folders(benchmark, domain, path, n_images, [folder for folder in folders if folder not in n_images]),
        *_check_counts(domain, n_images),
    ]
    yield from problems
    yield _summary(benchmark, domain, path, n_images, sound=not any(check.level == "fail" for check in problems))


def _count_images(folder: Path) -> int:
    """Count images by their extensions, in subfolders as well."""
    return sum(
        name.lower().endswith(EXTENSIONS) and not name.startswith(".")
        for _, _, files in os.walk(folder, followlinks=False)
        for name in files
    )


def _check_folders(
    benchmark: Benchmark, domain: Domain, path: Path, n_images: dict[str, int], unexpected: list[str]
) -> Iterator[DomainCheck]:
    """Name class folders that are missing, unexpected or empty, or report a wrong number of them."""
    if missing := [folder for folder in domain.names if folder not in n_images]:
        renames = [(folder, similar) for folder in missing if (similar := _most_similar(folder, unexpected))]
        hint = "".join(f". {similar!r} looks like {folder!r}: rename it" for folder, similar in renames[:3])
        text = f"{len(missing)} of {len(domain.names)} class folders missing in {path}: {', '.join(missing)}{hint}"
        yield DomainCheck("fail", domain.name, "missing class", text)
    if unexpected:
        shown = ", ".join(unexpected[:MAX_SHOWN]) + (" ..." if len(unexpected) > MAX_SHOWN else "")
        text = f"{len(unexpected)} unexpected folders: {shown}. Move them out: each would count as a class"
        yield DomainCheck("warn", domain.name, "unexpected class", text)
    if empty := [folder for folder, n in n_images.items() if domain.class_of(folder) and not n]:
        text = f"{len(empty)} class folders without images: {', '.join(empty)}. Unpack the archive again"
        yield DomainCheck("fail", domain.name, "empty class", text)
    if domain.folder_pattern:  # then only the form and the number of the folders are known
        number = sum(bool(re.fullmatch(domain.folder_pattern, folder)) for folder in n_images)
        text = f"{number} class folders of the form {domain.folder_pattern}, {benchmark.n_classes} expected"
        if number != benchmark.n_classes:
            yield DomainCheck("fail" if number < benchmark.n_classes else "warn", domain.name, "classes", text)


def _check_counts(domain: Domain, n_images: dict[str, int]) -> Iterator[DomainCheck]:
    """Name the classes with fewer or more images than expected."""
    for level, word, differs in (("fail", "fewer", int.__lt__), ("warn", "more", int.__gt__)):
        wrong = [folder for folder, n in domain.counts.items() if n_images.get(folder) and differs(n_images[folder], n)]
        if wrong:
            numbers = ", ".join(f"{folder} ({n_images[folder]} of {domain.counts[folder]})" for folder in wrong)
            yield DomainCheck(level, domain.name, "images", f"{len(wrong)} classes with {word} images: {numbers}")


def _summary(benchmark: Benchmark, domain: Domain, path: Path, n_images: dict[str, int], sound: bool) -> DomainCheck:
    """Report how many images there are, and how many there should be."""
    total = sum(n_images.values())
    shared = sum(n for folder, n in n_images.items() if domain.class_of(folder) in benchmark.shared)
    text = f"{path}: {total:,} images in {len(n_images)} folders, {shared:,} of the {len(benchmark.shared)} "
    text += "shared classes"
    # The published numbers are for all folders: a copy with only those of the partial tasks is complete as well.
    totals = domain.images if set(domain.others) <= set(n_images) else ()
    shared_totals = () if domain.shared_images is None else (domain.shared_images,)
    level, wrong = "ok", []
    for what, n, allowed in (("images", total, totals), ("of the shared classes", shared, shared_totals)):
        if allowed and n not in allowed:
            wrong.append(f"{' or '.join(f'{n:,}' for n in allowed)} {what} expected")
            level = "fail" if n < min(allowed) else level if level == "fail" else "warn"
    if wrong:
        text = f"{text}; {', '.join(wrong)}"
    elif sound:
        text = f"complete. {text}{'' if totals or shared_totals else '; numbers not checked'}"
    return DomainCheck(level, domain.name, "images", text)


def _most_similar(name: str, candidates: Sequence[str]) -> str | None:
    """Return the candidate that is most similar to a name, if any is similar enough."""
    by_form = {comparable_name(candidate): candidate for candidate in candidates}
    close = get_close_matches(comparable_name(name), by_form, n=1, cutoff=MIN_SIMILARITY)
    return by_form[close[0]] if close else None
