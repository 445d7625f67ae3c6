"""How kernels are compiled: by numba on first use, kept on disk where that is possible."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from numba import njit
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["allocating_part", "digest_of", "kernel", "part"]

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
    """Compile a function that only kernels and other parts call, that is kept with the kernels and allocates nothing.

    A kernel contains the code of all that it calls, down to the last part, and is optimised as a whole.
    """
    return _compiled_part(function, _nrt=False)  # no counting of references to arrays


def allocating_part(function: Callable[..., Any]) -> Any:
    """Compile a part that has arrays of its own."""
    return _compiled_part(function)


def _compiled_part(function: Callable[..., Any], **options: Any) -> Any:
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _PartCompiler}
    return njit(**options, **OPTIONS)(function)


class _PartLibrary(JITCodeLibrary):
    """The code of a part, neither optimised nor assembled: what calls it contains it, and that would repeat both."""

    codegen = SimpleNamespace(set_env=lambda *_: None)  # there is nothing that Python could call

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        return 0


class _PartCompiler(Compiler):
    def __init__(self, typing: Any, target: Any, _library: Any, *others: Any) -> None:
        library = _PartLibrary(target.codegen(), "part")  # type: ignore[no-untyped-call]
        super().__init__(typing, target, library, *others)  # type: ignore[no-untyped-call]
