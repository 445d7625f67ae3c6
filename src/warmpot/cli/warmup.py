"""``warmpot warmup``: compile what is compiled on first use."""

from __future__ import annotations

import time

from warmpot.cli._shared import facts_grid, show
from warmpot.errors import InputError

__all__ = ["warmup"]


def warmup() -> None:
    """Compile all solvers now, so that no later command waits.

    Solvers are compiled when they are first called, and kept for later processes. Call it once after the installation,
    for instance in a container image. Where the installation cannot be written to, set NUMBA_CACHE_DIR.
    """
    from warmpot.transport.warmup import cache_folder
    from warmpot.transport.warmup import warmup as compile_kernels

    folder = cache_folder()
    if folder is None:
        remedy = "Set NUMBA_CACHE_DIR to a folder that you may write to."
        raise InputError("cache of compiled solvers", got="no folder", allowed="one that is writable", remedy=remedy)
    start = last = time.monotonic()
    show("compiling the solvers (about 20 s, less for those that are compiled)")
    for name in compile_kernels():
        show(f"{name:<16}  {time.monotonic() - last:.1f} s")
        last = time.monotonic()
    show("", facts_grid([("time", f"{last - start:.1f} s"), ("kept in", str(folder))]))
