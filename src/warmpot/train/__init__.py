"""Training: two engines behind one function, `fit`."""

from __future__ import annotations

from warmpot.train.certificates import bound_inputs
from warmpot.train.config import RunConfig, load_config
from warmpot.train.fitting import fit
from warmpot.train.predictor import Predictor
from warmpot.train.recipes import preset_names
from warmpot.train.results import Fitted

__all__ = ["Fitted", "Predictor", "RunConfig", "bound_inputs", "fit", "load_config", "preset_names"]
