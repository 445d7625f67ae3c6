"""How the source samples of a batch are weighted: schemes with what they remember, by name.

The formulas live in `warmpot.weights`; a scheme defines when they are evaluated, and on which data.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from warmpot._checks import check_choice, check_count, check_positive
from warmpot.costs import PairCosts
from warmpot.methods.base import (
    BatchContext,
    Component,
    DatasetPass,
    Domain,
    M,
    Memory,
    NamedBatch,
    PassRequest,
    Setup,
    TrainProgress,
)
from warmpot.methods.rounds import DatasetPlan
from warmpot.methods.warmpot import ClassMemory, Warmpot
from warmpot.weights import class_shares, plan_weights
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["ClassShare", "Plan", "Presence", "Uniform", "WeightMemory", "Weighting"]


class Weighting(Component[M]):
    """Weights of source samples, for any method with a weighted source loss."""

    @property
    def needs_target(self) -> bool:
        """Whether it compares every batch with a target batch, also where the method has no use for that."""
        return False

    @property
    def first_refresh(self) -> float:
        """Share of the training after which weights are first computed, equal ones before; 1: never."""
        return 0.0

    @abstractmethod
    def weigh(self, memory: M, batch: NamedBatch, context: BatchContext) -> Tensor:
        """Return the weights (n,) of labelled samples of a step, detached; of all its batches on one scale."""

    def source_rows(self, memory: M) -> Tensor | None:  # noqa: ARG002
        """Return the source samples that are weighed now, which source batches are drawn from; None: all."""
        return None

    def current_weights(self, memory: M, labels: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the weights of all source samples that are in force now; None when every batch has its own."""
        return None

    def largest_weight(self, memory: M) -> Tensor | None:  # noqa: ARG002
        """Return the largest weight that a source sample may have now; None when every batch has its own."""
        return None

    def final_plan(self, data: DatasetPass) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan over all pairs that the weights are row sums of; None when they come from elsewhere."""
        return None


class WeightMemory(Memory):
    """A weight for every source sample."""

    weights: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(n))


@dataclass(frozen=True)
class Uniform(Weighting[Memory]):
    """Every sample counts the same (MPOT)."""

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "every source sample counts the same"
    regression: ClassVar[bool] = True

    def weigh(self, memory: Memory, batch: NamedBatch, context: BatchContext) -> Tensor:  # noqa: ARG002
        """Return ones."""
        return torch.ones_like(batch.outputs.logits[:, 0]).detach()


class _ByClass(Weighting[ClassMemory]):
    """A weight for every class, which its samples share."""

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    def make_memory(self, setup: Setup) -> ClassMemory:
        """Remember a weight for every class."""
        return ClassMemory(setup.n_classes)

    def weigh(self, memory: ClassMemory, batch: NamedBatch, context: BatchContext) -> Tensor:  # noqa: ARG002
        """Look the classes up."""
        return memory.weights[batch.labels]

    def current_weights(self, memory: ClassMemory, labels: Tensor) -> Tensor:
        """Look the classes up."""
        return memory.weights[labels]

    def largest_weight(self, memory: ClassMemory) -> Tensor:
        """Return that of the heaviest class."""
        return memory.weights.max()


@dataclass(frozen=True)
class ClassShare(_ByClass):
    """Weigh by class: the share of the target in the class of the sample (BA3US, Section 5.3).

    Attributes
    ----------
    hard : bool
        Share of predictions (as the paper prints it); False: mean predicted probability (the official code).
    temperature : float
        Divides the logits before the probabilities are taken; a low one makes soft shares almost hard (PADA).
    periods : int
        Shares are taken again at the start of each of this many equal periods of the training; uniform in the first.
    from_start : bool
        Take them before the first step too (PWAN's code).
    """

    name: ClassVar[str] = "class_share"
    summary: ClassVar[str] = "share of the target predicted as the sample's class (BA3US)"
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"target": ("logits",)}

    hard: bool = False
    periods: int = 10
    from_start: bool = False
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_count("periods", self.periods)
        check_positive("temperature", self.temperature)

    @property
    def first_refresh(self) -> float:
        """Before the first step, or after the first period."""
        return 0.0 if self.from_start else 1.0 / self.periods

    def refresh(self, memory: ClassMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Take the shares of the whole target."""
        if progress.starts_period(self.periods) or (self.from_start and progress.step == 0):
            data = request()
            logits = data.target.logits.cpu().double() / self.temperature
            shares = class_shares(logits, hard=self.hard, labels=data.labels)
            memory.weights.copy_(torch.from_numpy(shares))


@dataclass(frozen=True)
class Presence(_ByClass):
    """Weigh by class: the probability that the class occurs in the target (`warmpot.weights.estimate_presence`; ours).

    It is estimated from the input of the bottleneck before the first step; classes that are absent weigh nothing.

    Attributes
    ----------
    periods : int
        Estimate again at the start of each of this many equal periods of the training but the first: for a backbone
        that is trained.
    """

    name: ClassVar[str] = "presence"
    summary: ClassVar[str] = "estimated probability that the target has the sample's class (ours)"
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("pooled",), "target": ("pooled",)}

    periods: int = 1

    def __post_init__(self) -> None:
        check_count("periods", self.periods)

    def refresh(self, memory: ClassMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Estimate from all samples."""
        if progress.step == 0 or progress.starts_period(self.periods):
            memory.weights.copy_(torch.from_numpy(memory.presence(request()).factors))


@dataclass(frozen=True)
class Plan(Weighting[Memory]):
    """Row sums of a WARMPOT plan that is solved for the weights alone (Section 5.3).

    Attributes
    ----------
    scope : "batch" or "dataset"
        A plan for every batch; or the exact plan over all pairs, at the start of every period of the training but the
        first, whose weights are uniform.
    periods : int
        Number of equal periods.
    alpha, beta, eta1, eta2, eps
        As in `Warmpot`; alpha is not ramped. With alpha 1 and eta2 0 the weights solve the problem of Appendix H.
    """

    name: ClassVar[str] = "plan"
    summary: ClassVar[str] = "row sums of a partial transport plan, of the batch or of the whole data"
    regression: ClassVar[bool] = True
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features", "logits")}

    scope: str = "batch"
    periods: int = 10
    alpha: float | Literal["auto"] = 1.0
    beta: float | Literal["auto"] = 0.35
    eta1: float | Literal["auto"] = "auto"
    eta2: float = 1.0
    eps: float | Literal["auto"] | None = "auto"

    def __post_init__(self) -> None:
        check_choice("scope", self.scope, ("batch", "dataset"))
        check_count("periods", self.periods)
        self._method()  # checks the rest

    def _method(self) -> Warmpot:
        return Warmpot(
            alpha=self.alpha, beta=self.beta, eta1=self.eta1, eta2=self.eta2, eps=self.eps, alpha_start=1.0, ramp=0.0
        )

    @property
    def expected_share(self) -> float:
        """As of the plan."""
        return self._method().expected_share

    @property
    def needs_target(self) -> bool:
        """Plans of batches do."""
        return self.scope == "batch"

    @property
    def first_refresh(self) -> float:
        """Over all pairs: after the first period."""
        return 1.0 / self.periods if self.scope == "dataset" else 0.0

    def make_memory(self, setup: Setup) -> Memory:
        """Remember a weight for every source sample."""
        return WeightMemory(setup.n_source) if self.scope == "dataset" else Memory()

    def refresh(self, memory: Memory, progress: TrainProgress, request: PassRequest) -> None:
        """Solve over all pairs."""
        if isinstance(memory, WeightMemory) and progress.starts_period(self.periods):
            p = torch.from_numpy(np.asarray(self.final_plan(request()).solution.p))
            memory.weights.copy_(len(p) * (p / p.sum()))

    def weigh(self, memory: Memory, batch: NamedBatch, context: BatchContext) -> Tensor:
        """Solve for the batch, or look the samples up."""
        if isinstance(memory, WeightMemory):
            return memory.weights[batch.rows]
        labels, progress = batch.labels, context.progress.share
        assert labels is not None
        solved = self._method().batch_plan(batch.outputs, labels, context.target, progress, context.loss)
        weights: Tensor = len(labels) * plan_weights(solved.solution.plan)
        return weights

    def current_weights(self, memory: Memory, labels: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the weights of the last plan over all pairs."""
        return memory.weights if isinstance(memory, WeightMemory) else None

    def final_plan(self, data: DatasetPass) -> DatasetPlan:
        """Return the exact plan over all pairs."""
        costs = PairCosts(*(part.features.double().cpu().numpy() for part in (data.source, data.target)))
        return self._method().plan(costs, data.labels.cpu(), data.target.logits.double().cpu(), 1.0, data.loss)
