"""What ``warmpot doctor`` looks at of images."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from warmpot.cli._machine import Finding

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.data.pixels import Pixels

__all__ = ["check_copies", "check_images"]

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
    same = sum(map(set(sides[0]).__contains__, sides[1]))
    if same == len(sides[1]):
        yield Finding("fail", "copies", "every target image is also in the source. Name two different folders")
    elif same:
        share = f"{same} of {len(sides[1])} target images ({same / len(sides[1]):.0%})"
        yield Finding("warn", "copies", f"{share} are in the source too. Drop them, or accuracies look too good")
    else:
        yield Finding("ok", "copies", "no target image is in the source")


def _hashes(pixels: Pixels) -> list[str]:
    return [hashlib.sha256(Path(pixels.name(item)).read_bytes()).hexdigest() for item in pixels.items]
