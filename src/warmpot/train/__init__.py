"""Training: two engines behind one function, `fit`."""

from __future__ import annotations

from warmpot.train.config import RunConfig, load_config
from warmpot.train.fitting import Fitted, fit
from warmpot.train.predictor import Predictor, bound_inputs
from warmpot.train.recipes import preset_names

__all__ = ["Fitted", "Predictor", "RunConfig", "bound_inputs", "fit", "load_config", "preset_names"]
