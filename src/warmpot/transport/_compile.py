"""How kernels are compiled: by numba on first use, kept on disk where that is possible."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit

__all__ = ["digest_of", "kernel", "part"]

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # x / 0 is inf or NaN, as in arrays; a check of every division would keep loops scalar
    "fastmath": {"reassoc", "contract", "nsz"},  # sums may be reordered; inf and NaN keep their meaning
}


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the interpreter lock.

    Where numba finds no folder to write to, every process compiles again.
    """
    compiled = njit(**OPTIONS)(function)
    try:
        compiled.enable_caching()
        # By itself numba compares the function's own file with that of the cache. After an upgrade that changed only
        # what the function calls, in another file, it would run the old code.
        compiled._cache._cache_file._source_stamp = digest_of(Path(__file__).parent)
    except (RuntimeError, AttributeError):  # no folder for the cache, or numba does not compile (NUMBA_DISABLE_JIT)
        pass
    return compiled


@cache
def digest_of(folder: Path) -> str:
    """Return a digest of the modules in a folder."""
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.py")))).hexdigest()


def part(function: Callable[..., Any]) -> Any:
    """Compile a function that only kernels call: without what a call from Python needs, and kept with the kernels.

    A kernel contains the code of all that it calls, down to the last part, and all of it is optimised again for every
    kernel and part on the way: few levels of calls compile faster than many.
    """
    called_by_kernels: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(**called_by_kernels, **OPTIONS)(function)
