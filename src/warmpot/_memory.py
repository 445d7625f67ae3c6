"""The memory of this machine, for settings that cannot fit into it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from warmpot.errors import InputError

__all__ = ["check_memory", "total_memory"]

GIB = 2**30


def total_memory() -> int | None:
    """Return the memory of the machine or of the container, whichever is less, in bytes; None if unknown."""
    totals = []
    with suppress(OSError, ValueError, AttributeError):
        totals.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        totals.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(totals, default=None)


def check_memory(name: str, needed: float, got: str, remedy: str) -> None:
    """Refuse settings that need more bytes than the machine has, before anything is allocated."""
    total = total_memory()
    if total is not None and needed > total:
        allowed = f"what fits into {total / GIB:.1f} GiB of memory"
        raise InputError(name, got=f"{got}: at least {needed / GIB:.3g} GiB", allowed=allowed, remedy=remedy)
