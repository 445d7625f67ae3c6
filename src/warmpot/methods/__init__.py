"""One method per file: losses, parameters, deviations from its paper; and how source samples are weighted."""

from __future__ import annotations

from warmpot._deprecation import moved_names
from warmpot.methods.base import (
    BatchContext,
    BatchSpec,
    Component,
    DatasetPass,
    Memory,
    Method,
    NamedBatch,
    ParamGroup,
    PassRequest,
    Phase,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.learner import Learner
from warmpot.methods.registry import (
    DEFAULT_METHOD,
    METHODS,
    OWN,
    WEIGHTINGS,
    get_method,
    get_weighting,
    make_method,
    make_weighting,
    method_names,
    register_method,
    register_weighting,
    weighting_names,
)
from warmpot.methods.rounds import DatasetPlan, FullSettings, RoundResult, Rounds
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot
from warmpot.methods.weighting import Weighting

__all__ = ["DEFAULT_METHOD", "METHODS", "OWN", "WEIGHTINGS", "BatchContext", "BatchSpec", "Component", "DatasetPass",
           "DatasetPlan", "FullSettings", "Learner", "Memory", "Method", "NamedBatch", "ParamGroup", "PassRequest",
           "Phase", "RoundResult", "Rounds", "SamplePool", "Setup", "SourceOnly", "StepResult", "TrainProgress",
           "Warmpot", "Weighting", "get_method", "get_weighting", "make_method", "make_weighting", "method_names",
           "register_method", "register_weighting", "weighting_names"]  # fmt: skip

_RENAMED = {"Clock": "TrainProgress", "Labelled": "NamedBatch", "Look": "PassRequest", "Sizes": "Setup",
            "Step": "StepResult", "View": "BatchContext", "Whole": "DatasetPass"}  # fmt: skip
__getattr__ = moved_names(__name__, {old: f"warmpot.methods:{new}" for old, new in _RENAMED.items()})
