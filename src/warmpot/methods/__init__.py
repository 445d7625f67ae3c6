"""One method per file: losses, parameters, deviations from its paper; and how source samples are weighted."""

from __future__ import annotations

from warmpot._deprecation import moved_names
from warmpot.methods.alternation import FullSettings
from warmpot.methods.base import Component, DatasetPlan, Memory, Method, RoundResult, Rounds
from warmpot.methods.context import (
    BatchContext,
    BatchSpec,
    DatasetPass,
    NamedBatch,
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
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot
from warmpot.methods.weighting import Weighting

__all__ = ["DEFAULT_METHOD", "METHODS", "OWN", "WEIGHTINGS", "BatchContext", "BatchSpec", "Component", "DatasetPass",
           "DatasetPlan", "FullSettings", "Learner", "Memory", "Method", "NamedBatch", "PassRequest", "Phase",
           "RoundResult", "Rounds", "SamplePool", "Setup", "SourceOnly", "StepResult", "TrainProgress", "Warmpot",
           "Weighting", "get_method", "get_weighting", "make_method", "make_weighting", "method_names",
           "register_method", "register_weighting", "weighting_names"]  # fmt: skip

__getattr__ = moved_names(
    __name__,
    {
        "Clock": "warmpot.methods:TrainProgress",
        "Labelled": "warmpot.methods:NamedBatch",
        "Look": "warmpot.methods:PassRequest",
        "Sizes": "warmpot.methods:Setup",
        "Step": "warmpot.methods:StepResult",
        "View": "warmpot.methods:BatchContext",
        "Whole": "warmpot.methods:DatasetPass",
    },
)
