"""Files that are complete or absent: written under a draft name in the same folder, then moved in one step."""

from __future__ import annotations

import csv
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warmpot.errors import WarmpotError

__all__ = ["FILENAME_ERRORS", "atomic_folder", "atomic_write", "write_csv"]

FILENAME_ERRORS = "surrogateescape"
"""Error handler that writes and reads file names that are not valid UTF-8 as their bytes."""


def _draft(path: Path) -> Path:
    return path.with_name(f".warmpot-{secrets.token_hex(8)}.tmp")  # in the same folder, so that the move is atomic


def _write_error(path: Path, error: OSError) -> WarmpotError:
    remedy = "Free some space, or choose another folder."
    return WarmpotError(str(path), got=error.strerror or error, allowed="a path that can be written", remedy=remedy)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a draft name to write to; when the block ends without an error, the draft replaces `path`."""
    path = path.resolve()  # of a link, the file that it points to is replaced
    draft = _draft(path)
    try:
        yield draft
        os.replace(draft, path)
    except OSError as error:
        raise _write_error(path, error) from error
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill; when the block ends without an error, it replaces `path`."""
    draft = _draft(path)
    try:
        draft.mkdir()
        yield draft
        for entry in draft.iterdir():  # on disk before the folder becomes visible
            with open(entry, "rb") as stream:
                os.fsync(stream.fileno())
        if path.exists():
            shutil.rmtree(path)
        os.replace(draft, path)
    except OSError as error:
        raise _write_error(path, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a csv file, complete or not at all."""
    with atomic_write(path) as draft, open(draft, "x", newline="", encoding="utf-8", errors=FILENAME_ERRORS) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
