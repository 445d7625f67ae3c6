"""Training: two engines behind one function, `fit`.

Its names load on first use: recipes, which need no torch, can be read before the engines are imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmpot.train.config import RunConfig, load_config
    from warmpot.train.explain import Explanation, explain_sample
    from warmpot.train.fitting import Fitted, fit
    from warmpot.train.predictor import Predictor, bound_inputs
    from warmpot.train.recipes import preset_names

__all__ = ["Explanation", "Fitted", "Predictor", "RunConfig", "bound_inputs", "explain_sample", "fit", "load_config",
           "preset_names"]  # fmt: skip

_MODULES = {
    "Explanation": "explain", "Fitted": "fitting", "Predictor": "predictor", "RunConfig": "config",
    "bound_inputs": "predictor", "explain_sample": "explain", "fit": "fitting", "load_config": "config",
    "preset_names": "recipes",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"warmpot.train.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'warmpot.train' has no attribute {name!r}")
