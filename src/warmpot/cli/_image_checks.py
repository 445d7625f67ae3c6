"""What ``warmpot doctor`` looks at of images."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warmpot.cli._machine import Finding

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.data.pixels import Pixels

__all__ = ["check_copies", "check_images", "tell_copies"]

logger = logging.getLogger(__name__)

MOST_NAMED = 5


def check_images(side: str, table: Table) -> Generator[Finding, None, Table]:
    """Decode every image of a domain; return those that can be decoded."""
    from warmpot._progress import progress
    from warmpot.data.images import without
    from warmpot.data.pixels import Pixels, find_corrupt
    from warmpot.train.images import ImageSettings

    assert isinstance(table.x, Pixels)
    with progress(f"decoding {table.name}", logger, None) as report:
        bad = find_corrupt(table.x, ImageSettings().processes, report)
    yield Finding("ok", side, f"{table.name}: {table.n} images, {table.n - len(bad)} of them decoded")
    for row, reason in list(bad.items())[:MOST_NAMED]:
        yield Finding("fail", side, f"{table.names[row]}: {reason}. Replace it, or pass --corrupt skip")
    if len(bad) > MOST_NAMED:
        yield Finding("fail", side, f"{len(bad) - MOST_NAMED} more images are broken")
    return without(table, sorted(bad)) if bad else table


def check_copies(source: Table, target: Table) -> Iterator[Finding]:
    """Count target files that are also source files, byte for byte."""
    sides = [_hashes(table.x) for table in (source, target)]  # type: ignore[arg-type]
    yield tell_copies(sides[0], sides[1], "image")


def tell_copies(source: Iterable[Hashable], target: Sequence[Hashable], thing: str) -> Finding:
    """Say how many target samples are source samples too."""
    same = sum(map(set(source).__contains__, target))
    if same == len(target):
        return Finding("fail", "duplicates", f"every target {thing} is also a source {thing}. Name two different files")
    if same:
        share = f"{same} of {len(target)} target {thing}s ({same / len(target):.0%})"
        return Finding("warn", "duplicates", f"{share} are source {thing}s too. Drop them, or accuracies look too good")
    return Finding("ok", "duplicates", f"no target {thing} is a source {thing}")


def _hashes(pixels: Pixels) -> list[str]:
    return [hashlib.sha256(Path(pixels.name(item)).read_bytes()).hexdigest() for item in pixels.items]
