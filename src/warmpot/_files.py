"""Files: outputs are complete or absent, inputs are regular files, and what cannot be read or written is our error.

An output is written under a draft name in the same folder, then moved in one step.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from warmpot.errors import InputError, WarmpotError

__all__ = ["FILENAME_ERRORS", "LOCK", "MAX_DIGITS", "atomic_folder", "atomic_write", "cache_folder", "check_file",
           "is_unused", "locked", "make_folder", "parse_json", "read_csv", "read_json", "read_text", "write_csv",
           "write_text", "writing"]  # fmt: skip

FILENAME_ERRORS = "surrogateescape"
"""Error handler that writes and reads file names that are not valid UTF-8 as their bytes."""
MAX_DIGITS = 40
"""Digits of an integer in a file of settings or results: it fits into a float, and can be written into a message."""
OURS = ".warmpot-"
"""Start of the names of drafts and locks."""
LOCK = f"{OURS}lock"
"""Name of the lock of a folder that has one writer at a time."""
ABANDONED = 24 * 3600.0
"""Age in seconds after which a draft is nobody's: writers change theirs all the time."""
FULL = (errno.ENOSPC, errno.EDQUOT)


def cache_folder() -> Path:
    """Return the folder of what can be made again: ``$WARMPOT_CACHE``, else ``warmpot`` in the user's cache folder."""
    folder = os.environ.get("WARMPOT_CACHE")
    return Path(folder) if folder else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "warmpot"


@contextmanager
def writing(path: Path, remedy: str = "") -> Iterator[None]:
    """Turn errors of the file system, such as a full disk, into one that names the path."""
    try:
        yield
    except OSError as error:
        got, allowed = error.strerror or str(error), "a path that can be written"
        raise WarmpotError(str(path), got=got, allowed=allowed, remedy=remedy or _another_place(error)) from error


def _another_place(error: OSError) -> str:
    return "Free some space, or choose another folder." if error.errno in FULL else "Choose another folder."


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a draft name to write to; when the block ends without an error, the draft replaces `path`."""
    with writing(path):
        path = path.resolve()  # of a link, the file that it points to is replaced
        draft = _draft(path)
        try:
            yield draft
            os.replace(draft, path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder to fill; when the block ends without an error, it replaces `path`."""
    with writing(path):
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
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, complete or not at all."""
    with atomic_write(path) as draft:
        draft.write_text(text, encoding="utf-8")


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a csv file, complete or not at all."""
    with atomic_write(path) as draft, open(draft, "x", newline="", encoding="utf-8", errors=FILENAME_ERRORS) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def make_folder(path: Path) -> Path:
    """Create a folder and those above it, unless it exists; an `InputError` explains why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(str(path), got=error.strerror, allowed="a folder", remedy=_another_place(error)) from error
    return path


def is_unused(path: Path) -> bool:
    """Whether a path is free for a new output: absent, or a folder without other files than drafts and locks."""
    with writing(path):
        return not path.exists() or (path.is_dir() and all(entry.name.startswith(OURS) for entry in path.iterdir()))


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file. If another process holds it, wait for it, or raise an `InputError`."""
    from filelock import FileLock, Timeout

    lock = FileLock(file)
    with writing(file):
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            got, remedy = "an output that another process writes", "Wait for that process, or name another output."
            raise InputError(str(file.parent), got=got, allowed="one writer at a time", remedy=remedy) from None
        except NotImplementedError as error:  # some network file systems
            raise OSError(f"{error}") from error
    try:
        yield
    finally:
        lock.release()


@cache
def _writer() -> str:
    """Return a name for the machine and its table of processes, of which a container has one of its own."""
    with suppress(OSError):
        return hashlib.sha256(f"{platform.node()} {os.stat('/proc/self/ns/pid').st_ino}".encode()).hexdigest()[:8]
    return "unknown"


def _draft(path: Path) -> Path:
    """Return a new name in the same folder, so that the move is atomic."""
    _remove_leftovers(path.parent)
    return path.with_name(f"{OURS}{_writer()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


@cache  # once per folder and process: a folder may get thousands of files
def _remove_leftovers(folder: Path) -> None:
    """Remove the drafts of writers that were killed."""
    with suppress(OSError):
        for draft in folder.glob(f"{OURS}*.tmp"):
            if _is_abandoned(draft):
                shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink(missing_ok=True)


def _is_abandoned(draft: Path) -> bool:
    """Whether nobody writes to a draft any more: its process on this machine is gone, or it is old."""
    machine, _, process = draft.name.removeprefix(OURS).partition("-")
    process = process.partition("-")[0]
    if machine == _writer() != "unknown" and process.isdigit():
        try:
            os.kill(int(process), 0)
        except ProcessLookupError:
            return True
        except OSError:  # of another user: it runs
            return False
    return time.time() - draft.stat().st_mtime > ABANDONED


def check_file(path: str | os.PathLike[str], allowed: str = "a file") -> Path:
    """Return the path of a regular file. Anything else is refused: to open a pipe or a device can wait for ever."""
    remedy = "Check spelling, folder and permissions."
    try:
        path = Path(path)
        mode = path.stat().st_mode
    except (OSError, TypeError, ValueError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), got=got, allowed=allowed, remedy=remedy) from error
    if not stat.S_ISREG(mode):
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe" if stat.S_ISFIFO(mode) else "a device"
        remedy = "Name one file." if stat.S_ISDIR(mode) else "Save its content to a file first."
        raise InputError(str(path), got=kind, allowed=allowed, remedy=remedy)
    return path


def read_text(
    path: str | os.PathLike[str], allowed: str = "a text file in UTF-8", *, encoding: str = "utf-8",
    errors: str = "strict",
) -> str:  # fmt: skip
    """Read a regular file of text; an `InputError` explains why it cannot be read."""
    path = check_file(path, allowed)
    try:
        return path.read_bytes().decode(encoding, errors)  # the ends of its lines stay as they are
    except (OSError, UnicodeDecodeError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise InputError(str(path), got=got, allowed=allowed, remedy="Check its content and permissions.") from error


def read_json(path: Path) -> Any:
    """Read a JSON file; an `InputError` explains why it cannot be read."""
    return parse_json(read_text(path, "a JSON file"), str(path))


def parse_json(text: str | bytes, what: str = "JSON") -> Any:
    """Return the value of a JSON text; an `InputError` names `what` if it is damaged."""
    try:
        return json.loads(text, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        got = "values nested too deeply" if isinstance(error, RecursionError) else str(error)
        remedy = "Restore the file, or write it again."
        raise InputError(what, got=got, allowed="JSON", remedy=remedy) from error


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def read_csv(path: Path, *, errors: str) -> list[list[str]]:
    """Read the rows of a csv file; an `InputError` explains why it cannot be read."""
    text = read_text(path, "a csv file", errors=errors)
    try:
        return list(csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        remedy = "Restore the file, or write it again."
        raise InputError(str(path), got=str(error), allowed="a csv file", remedy=remedy) from error
