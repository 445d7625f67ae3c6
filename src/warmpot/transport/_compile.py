"""How kernels are compiled: by numba on first use, kept on disk where that is possible."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

__all__ = ["allocating_part", "digest_of", "kernel", "part"]

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",  # x / 0 is inf or NaN, as in arrays; a check of every division would keep loops scalar
    "fastmath": {"reassoc", "contract", "nsz"},  # sums may be reordered; inf and NaN keep their meaning
}
LATEST_TRIED = (0, 68)
"""The numba up to which parts (0.59 and later) are compiled by `_part_compiler`, which depends on its internals."""


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the interpreter lock.

    Where numba finds no folder to write to, every process compiles again.
    """
    compiled = numba.njit(**OPTIONS)(function)
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
    """Compile a function that only kernels and other parts call, that is kept with the kernels and allocates nothing.

    A kernel contains the code of all that it calls, down to the last part, and is optimised as a whole. By itself numba
    would also optimise every part, with all that it calls: the first entropic plan would take 1.6 times as long.
    """
    return _compiled_part(function, _nrt=False)  # no counting of references to arrays


def allocating_part(function: Callable[..., Any]) -> Any:
    """Compile a part that has arrays of its own."""
    return _compiled_part(function)


def _compiled_part(function: Callable[..., Any], **options: Any) -> Any:
    if tuple(int(number) for number in re.findall(r"\d+", numba.__version__)[:2]) <= LATEST_TRIED:
        from warmpot.transport._part_compiler import PartCompiler

        options["pipeline_class"] = PartCompiler
    called_by_kernels: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**called_by_kernels, **options, **OPTIONS)(function)
