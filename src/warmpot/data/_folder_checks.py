"""Comparison of a folder of images with the description of its data set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from warmpot.data._image_lists import EXTENSIONS

if TYPE_CHECKING:
    from warmpot.data.benchmarks import Benchmark, Domain

__all__ = ["DomainCheck", "check_domain", "comparable_name", "missing_domain", "subfolders"]

MAX_SHOWN = 8
"""Unexpected folders that a message lists; missing folders are all listed."""
MIN_SIMILARITY = 0.7
"""Similarity (0 to 1) from which a name is taken for a misspelling of another."""


class DomainCheck(NamedTuple):
    """A result of checking a domain.

    Attributes
    ----------
    level : {"ok", "warn", "fail"}
        "fail" when something that is needed is missing.
    domain, kind : str
        Name of the domain, and what was checked: "domain", "missing class", "unexpected class", "empty class",
        "classes" or "images".
    text : str
        The result, and what to do about it.
    """

    level: str
    domain: str
    kind: str
    text: str


def comparable_name(name: str) -> str:
    """Return a form of a name that ignores case, blanks, ``_`` and ``-``.

    Examples
    --------
    >>> comparable_name("Real World") == comparable_name("real_world") == comparable_name("RealWorld")
    True
    """
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
    text = (
        f"{path}: {total:,} images in {len(n_images)} folders, {shared:,} of the {len(benchmark.shared)} shared classes"
    )
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
