"""Partial domain adaptation by partial optimal transport.

``import warmpot`` is light: the layers below and the names load on first use, and torch, numba, POT and matplotlib only
when a function needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmpot.data import digits_task
    from warmpot.errors import InputError, WarmpotError, WarmpotWarning
    from warmpot.estimators import (
        AdaptedClassifier,
        ImageClassifier,
        PartialReweighter,
        SourceOnlyClassifier,
        WarmpotClassifier,
        WarmpotRegressor,
    )
    from warmpot.results import Result, fit, load
    from warmpot.train import Predictor
    from warmpot.transport import partial_path, solve_partial, solve_partial_points

__version__ = "0.2.0.dev0"

_LAYERS = (
    "bench", "bounds", "costs", "data", "errors", "estimators", "losses", "methods", "nets", "report", "results",
    "select", "train", "transport", "weights",
)  # fmt: skip

_NAMES = {
    "data": ("digits_task",),
    "errors": ("InputError", "WarmpotError", "WarmpotWarning"),
    "estimators": ("AdaptedClassifier", "ImageClassifier", "PartialReweighter", "SourceOnlyClassifier",
                   "WarmpotClassifier", "WarmpotRegressor"),
    "results": ("Result", "fit", "load"),
    "train": ("Predictor",),
    "transport": ("partial_path", "solve_partial", "solve_partial_points"),
}  # fmt: skip
"""The names that are used most, by layer."""
_LAYER_OF = {name: layer for layer, names in _NAMES.items() for name in names}

__all__ = [
    "AdaptedClassifier", "ImageClassifier", "InputError", "PartialReweighter", "Predictor", "Result",
    "SourceOnlyClassifier", "WarmpotClassifier", "WarmpotError", "WarmpotRegressor", "WarmpotWarning",
    "__version__", "bench", "bounds", "costs", "data", "digits_task", "errors", "estimators", "fit", "load",
    "losses", "methods", "nets", "partial_path", "report", "results", "select", "solve_partial",
    "solve_partial_points", "train", "transport", "weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAYERS:
        return import_module(f"warmpot.{name}")
    if name in _LAYER_OF:
        return getattr(import_module(f"warmpot.{_LAYER_OF[name]}"), name)
    raise AttributeError(f"module 'warmpot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
