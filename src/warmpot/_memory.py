"""How much memory is available, and the check before much of it is taken."""

from __future__ import annotations

import os
from pathlib import Path

from warmpot.errors import InputError

__all__ = ["GIB", "available_memory", "check_memory"]

GIB = 2**30
CGROUPS = Path("/sys/fs/cgroup")
FILES = (("memory.max", "memory.current", "inactive_file"),
         ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))  # fmt: skip
"""Limit, use, and the part of the use that is a cache of files and given up on demand; cgroup version 2 and 1."""


def available_memory() -> int | None:
    """Return the bytes that this process can still take, or None if unknown.

    The least of what is available on the machine, in the container or job (control group), and up to ``ulimit -v``.
    """
    free = [*_of_machine(), *_of_control_groups(), *_of_address_space()]
    return max(min(free), 0) if free else None


def _of_machine() -> list[int]:
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        return [int(lines["MemAvailable"].split()[0]) * 1024]
    except (OSError, KeyError, ValueError):
        if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
            return [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
        return []


def _of_control_groups() -> list[int]:
    """Of the groups that this process is in, the innermost first; a group without a limit has none."""
    try:
        own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        own = []
    paths = {"": "/", **{kind: path for _, kind, path in own if kind in ("", "memory")}}
    free = []
    for kind, path in paths.items():
        root, folder = CGROUPS / kind, CGROUPS / kind / path.lstrip("/")
        for group in (folder, *folder.parents):
            free += _of_control_group(group)
            if group == root:
                break
    return free


def _of_control_group(group: Path) -> list[int]:
    names = FILES[not (group / FILES[0][0]).exists()]
    try:
        lines = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limit, use = (int((group / name).read_text()) for name in names[:2])
    except (OSError, ValueError):  # not there, or without a limit ("max")
        return []
    return [limit - use + int(lines.get(names[2], 0))]


def _of_address_space() -> list[int]:
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError, ValueError):
        return []
    return [] if limit == resource.RLIM_INFINITY else [limit - pages * os.sysconf("SC_PAGE_SIZE")]


def check_memory(what: str, size: str, needed: float, remedy: str) -> None:
    """Refuse work that needs more bytes than are available; where that is unknown, refuse nothing.

    Parameters
    ----------
    what, remedy : str
        As for `InputError`.
    size : str
        Of the data, such as "500 x 100,000 features".
    needed : float
        Bytes, at most.
    """
    free = available_memory()
    if free is not None and needed > free:
        got, allowed = f"{size}, about {needed / GIB:,.1f} GiB of memory", f"the {free / GIB:.1f} GiB available"
        raise InputError(what, got=got, allowed=allowed, remedy=remedy)
