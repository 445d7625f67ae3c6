"""Partial domain adaptation by partial optimal transport.

``import warmpot`` is light: the layers below load on first use, and torch, numba, POT and matplotlib only when
a function needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

_LAYERS = (
    "bench", "bounds", "costs", "data", "errors", "estimators", "losses", "methods", "nets", "report", "select",
    "train", "transport", "weights",
)  # fmt: skip

__all__ = ["__version__", *_LAYERS]


def __getattr__(name: str) -> Any:
    if name in _LAYERS:
        return import_module(f"warmpot.{name}")
    raise AttributeError(f"module 'warmpot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
