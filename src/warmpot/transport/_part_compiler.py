"""A compiler of numba's that leaves the optimisation of a function to the kernels that contain it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

__all__ = ["PartCompiler", "PartLibrary"]


class PartLibrary(JITCodeLibrary):
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


class PartCompiler(Compiler):
    """Compiles a function into a `PartLibrary`."""

    def __init__(self, typing: Any, target: Any, _library: Any, *others: Any) -> None:
        library = PartLibrary(target.codegen(), "part")  # type: ignore[no-untyped-call]
        super().__init__(typing, target, library, *others)  # type: ignore[no-untyped-call]
