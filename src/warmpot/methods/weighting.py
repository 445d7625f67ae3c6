"""How the source samples of a batch are weighted: schemes with what they remember, by name.

The formulas live in `warmpot.weights`; a scheme says when they are evaluated, and on what.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch

from warmpot._checks import check_choice, check_count
from warmpot.costs import PairCosts
from warmpot.methods.base import Clock, Labelled, Look, Memory, Part, Sizes, View, Whole
from warmpot.methods.warmpot import Warmpot
from warmpot.weights import class_share_weights, class_shares, plan_weights
from warmpot.weights.class_level import SMALLEST_BETA

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["ClassShare", "Plan", "Uniform", "Weighting"]


class Weighting(Part):
    """Weights of source samples, beside any method with a weighted source loss."""

    @abstractmethod
    def weigh(self, memory: Memory, samples: Labelled, view: View) -> Tensor:
        """Return the weights (n,) of source samples of a step, detached; of all its batches on one scale."""

    @abstractmethod
    def everywhere(self, memory: Memory, whole: Whole) -> Tensor:
        """Return the weights of the whole source after training; they sum to 1."""


class _Remembered(Memory):
    """A weight for every source sample, or for every class."""

    weights: Tensor

    def __init__(self, n: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(n))


@dataclass(frozen=True)
class Uniform(Weighting):
    """Every sample counts the same (MPOT)."""

    name: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "every source sample counts the same"
    regression: ClassVar[bool] = True

    def weigh(self, memory: Memory, samples: Labelled, view: View) -> Tensor:  # noqa: ARG002
        """Return ones."""
        return torch.ones_like(samples.outputs.logits[:, 0]).detach()

    def everywhere(self, memory: Memory, whole: Whole) -> Tensor:  # noqa: ARG002
        """Return equal weights."""
        return torch.full((len(whole.labels),), 1.0 / len(whole.labels), dtype=torch.float64)


@dataclass(frozen=True)
class ClassShare(Weighting):
    """Weigh by class: the share of the target in the class of the sample (BA3US, METHODS section 2).

    Attributes
    ----------
    hard : bool
        Share of predictions (as the paper prints it); False: mean predicted probability (the official code).
    periods : int
        Shares are taken anew at the start of so many stretches of the training, uniform in the first.
    from_start : bool
        Take them before the first step too (PWAN's code).
    """

    name: ClassVar[str] = "class_share"
    summary: ClassVar[str] = "share of the target predicted as the sample's class (BA3US)"

    hard: bool = False
    periods: int = 10
    from_start: bool = False

    def __post_init__(self) -> None:
        check_count("periods", self.periods)

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    def memory(self, sizes: Sizes, seed: int) -> Memory:  # noqa: ARG002
        """Remember a weight for every class."""
        return _Remembered(sizes.n_classes)

    def refresh(self, memory: Memory, clock: Clock, look: Look) -> None:
        """Take the shares of the whole target."""
        if clock.begins(self.periods) or (self.from_start and clock.step == 0):
            assert isinstance(memory, _Remembered)
            whole = look()
            shares = class_shares(whole.target.logits, hard=self.hard, labels=whole.labels)
            memory.weights.copy_(torch.from_numpy(shares))

    def weigh(self, memory: Memory, samples: Labelled, view: View) -> Tensor:  # noqa: ARG002
        """Look the classes up."""
        assert isinstance(memory, _Remembered)
        return memory.weights[samples.labels]

    def everywhere(self, memory: Memory, whole: Whole) -> Tensor:  # noqa: ARG002
        """Return the shares by the final predictions."""
        found = torch.from_numpy(class_share_weights(whole.target.logits, whole.labels, hard=self.hard))
        return found / found.sum()


@dataclass(frozen=True)
class Plan(Weighting):
    """Row sums of a WARMPOT plan that is solved for the weights alone (SPEC section 4).

    Attributes
    ----------
    scope : "batch" or "dataset"
        A plan for every batch; or the exact plan over all pairs, at the start of every stretch of the training but
        the first, whose weights are uniform.
    periods : int
        Number of stretches.
    alpha, beta, eta1, eta2, eps
        As in `Warmpot`; alpha is not ramped. With alpha 1 and eta2 0 the weights solve the problem of Appendix H.
    """

    name: ClassVar[str] = "plan"
    summary: ClassVar[str] = "row sums of a partial transport plan, of the batch or of the whole data"
    regression: ClassVar[bool] = True

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

    def memory(self, sizes: Sizes, seed: int) -> Memory:  # noqa: ARG002
        """Remember a weight for every source sample."""
        return _Remembered(sizes.n_source) if self.scope == "dataset" else Memory()

    def refresh(self, memory: Memory, clock: Clock, look: Look) -> None:
        """Solve over all pairs."""
        if self.scope == "dataset" and clock.begins(self.periods):
            assert isinstance(memory, _Remembered)
            memory.weights.copy_(len(memory.weights) * self.everywhere(memory, look()))

    def weigh(self, memory: Memory, samples: Labelled, view: View) -> Tensor:
        """Solve for the batch, or look the samples up."""
        if self.scope == "batch":
            planned = self._method().batch_plan(
                samples.outputs, samples.labels, view.target, view.clock.progress, view.loss
            )  # fmt: skip
            found: Tensor = len(samples.labels) * plan_weights(planned.solution.plan)
            return found
        assert isinstance(memory, _Remembered)
        return memory.weights[samples.rows]

    def everywhere(self, memory: Memory, whole: Whole) -> Tensor:  # noqa: ARG002
        """Return the row sums over all pairs, normalised."""
        costs = PairCosts(*(part.features.double().cpu().numpy() for part in (whole.source, whole.target)))
        outputs = whole.target.logits.double().cpu()
        found = torch.from_numpy(np.asarray(self._method().plan(costs, whole.labels.cpu(), outputs, 1.0, whole.loss).p))
        return found / found.sum()
