"""A folder of images compared with the description of its data set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from warmpot.data._lists import EXTENSIONS

if TYPE_CHECKING:
    from warmpot.data.benchmarks import Benchmark, Domain

__all__ = ["TreeFinding", "check_domain", "folders_of", "missing_domain", "plain"]

MOST = 8
"""Unexpected folders that are named; of what is missing all are."""
ALIKE = 0.7
"""How alike two names must be to be taken for one that is misspelt."""


class TreeFinding(NamedTuple):
    """What was found of a domain.

    Attributes
    ----------
    level : {"ok", "warn", "fail"}
        "fail" when something needed is missing.
    domain : str
        Of which domain.
    kind : {"domain", "missing class", "unexpected class", "empty class", "classes", "images"}
        What it is about.
    text : str
        What was found, and what to do about it.
    """

    level: str
    domain: str
    kind: str
    text: str


def plain(name: str) -> str:
    """Write a name so that spellings of it agree.

    Examples
    --------
    >>> plain("Real World") == plain("real_world") == plain("RealWorld")
    True
    """
    return re.sub(r"[\s_-]+", "", name).casefold()


def folders_of(path: Path) -> list[str]:
    """Names of the folders in a folder, sorted, without hidden ones."""
    with os.scandir(path) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())


def missing_domain(benchmark: Benchmark, domain: Domain, base: Path, taken: Sequence[str]) -> TreeFinding:
    """Tell that a domain is missing, and which folder may be it under another name, or where to get it."""
    if not domain.needed:
        return TreeFinding("ok", domain.name, "domain", "absent; the partial tasks do not need it")
    near = _near(domain.name, [name for name in folders_of(base) if name not in taken])
    if near:
        text = f"missing. {base / near} looks like it: rename it to {domain.folders[0]!r}"
    else:
        text = f"missing: no folder {' or '.join(map(repr, domain.folders))} in {base}. Get it from "
        text += " or ".join(benchmark.obtain)
    return TreeFinding("fail", domain.name, "domain", text)


def check_domain(benchmark: Benchmark, domain: Domain, path: Path) -> Iterator[TreeFinding]:
    """Yield what is wrong with the folder of a domain, then what it holds."""
    folders = folders_of(path)
    held = {folder: _images(path / folder) for folder in folders if domain.knows(folder)}
    unexpected = [folder for folder in folders if folder not in held]
    troubles = [
        *_missing(domain, path, held, unexpected),
        *_unexpected(domain, unexpected),
        *_empty(domain, held),
        *_number(benchmark, domain, held),
        *_short(domain, held),
    ]
    yield from troubles
    yield _summary(benchmark, domain, path, held, sound=not any(finding.level == "fail" for finding in troubles))


def _images(folder: Path) -> int:
    """Count images by their extensions, in folders of the folder as well."""
    return sum(
        name.lower().endswith(EXTENSIONS) and not name.startswith(".")
        for _, _, files in os.walk(folder, followlinks=False)
        for name in files
    )


def _missing(domain: Domain, path: Path, held: dict[str, int], unexpected: list[str]) -> Iterator[TreeFinding]:
    missing = [folder for folder in domain.names if folder not in held]
    if missing:
        renames = [(folder, near) for folder in missing if (near := _near(folder, unexpected))]
        hint = "".join(f". {near!r} looks like {folder!r}: rename it" for folder, near in renames[:3])
        text = f"{len(missing)} of {len(domain.names)} class folders missing in {path}: {', '.join(missing)}{hint}"
        yield TreeFinding("fail", domain.name, "missing class", text)


def _unexpected(domain: Domain, unexpected: list[str]) -> Iterator[TreeFinding]:
    if unexpected:
        named = ", ".join(unexpected[:MOST]) + (" ..." if len(unexpected) > MOST else "")
        text = f"{len(unexpected)} unexpected folders: {named}. Move them out: each would count as a class"
        yield TreeFinding("warn", domain.name, "unexpected class", text)


def _empty(domain: Domain, held: dict[str, int]) -> Iterator[TreeFinding]:
    empty = [folder for folder in held if domain.class_of(folder) and not held[folder]]
    if empty:
        text = f"{len(empty)} class folders without images: {', '.join(empty)}. Unpack the archive again"
        yield TreeFinding("fail", domain.name, "empty class", text)


def _number(benchmark: Benchmark, domain: Domain, held: dict[str, int]) -> Iterator[TreeFinding]:
    """Check the number of class folders where only their form is known."""
    found = sum(bool(re.fullmatch(domain.form, folder)) for folder in held)
    if domain.form and found != benchmark.n_classes:
        level = "fail" if found < benchmark.n_classes else "warn"
        text = f"{found} class folders of the form {domain.form}, {benchmark.n_classes} expected"
        yield TreeFinding(level, domain.name, "classes", text)


def _short(domain: Domain, held: dict[str, int]) -> Iterator[TreeFinding]:
    """Name the classes that hold fewer or more images than they should."""
    for level, word, differs in (("fail", "fewer", int.__lt__), ("warn", "more", int.__gt__)):
        off = [folder for folder, n in domain.counts.items() if held.get(folder) and differs(held[folder], n)]
        if off:
            numbers = ", ".join(f"{folder} ({held[folder]} of {domain.counts[folder]})" for folder in off)
            yield TreeFinding(level, domain.name, "images", f"{len(off)} classes with {word} images: {numbers}")


def _summary(benchmark: Benchmark, domain: Domain, path: Path, held: dict[str, int], sound: bool) -> TreeFinding:
    """Say how many images there are, and how many there should be."""
    total = sum(held.values())
    classes = {folder for folder in held if domain.class_of(folder)}
    shared = sum(held[folder] for folder in classes if domain.class_of(folder) in benchmark.shared)
    text = f"{path}: {total:,} images in {len(held)} folders, {shared:,} of the {len(benchmark.shared)} shared classes"
    # The numbers are of all folders: someone who keeps those of the partial tasks only lacks nothing.
    known = domain.images if set(domain.others) <= set(held) else ()
    level, wrong = "ok", []
    for what, found, expected in (("images", total, known), ("of the shared classes", shared, domain.shared_images)):
        allowed = expected if isinstance(expected, tuple) else (expected,) if expected is not None else ()
        if allowed and found not in allowed:
            wrong.append(f"{' or '.join(f'{n:,}' for n in allowed)} {what} expected")
            level = "fail" if found < min(allowed) else level if level == "fail" else "warn"
    if wrong:
        return TreeFinding(level, domain.name, "images", f"{text}; {', '.join(wrong)}")
    if not sound:
        return TreeFinding("ok", domain.name, "images", text)
    counted = known or domain.shared_images is not None
    return TreeFinding("ok", domain.name, "images", f"complete. {text}{'' if counted else '; numbers not checked'}")


def _near(name: str, others: Sequence[str]) -> str | None:
    """Find the name that is most like another one."""
    format_duration = {plain(other): other for other in others}
    close = get_close_matches(plain(name), format_duration, n=1, cutoff=ALIKE)
    return format_duration[close[0]] if close else None
