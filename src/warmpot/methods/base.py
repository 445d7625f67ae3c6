"""What training asks of a method and of a weighting, and what it shows them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torch import nn

from warmpot.nets import Network, Outputs

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor
    from torch.optim import Optimizer

    from warmpot.costs import PairCosts
    from warmpot.transport import Solution

__all__ = ["Clock", "Labelled", "Look", "Memory", "Method", "Part", "Sizes", "Step", "View", "Whole"]


class Clock(NamedTuple):
    """Where the training is: steps done, of how many."""

    step: int
    steps: int

    @property
    def progress(self) -> float:
        """Share of the training that is done, in [0, 1]."""
        return self.step / self.steps

    def period(self, periods: int) -> int:
        """Return which of so many equal stretches of the training this step is in, from 0.

        Examples
        --------
        >>> [Clock(step, 10).period(4) for step in range(10)]
        [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
        """
        return self.step * periods // self.steps

    def begins(self, periods: int) -> bool:
        """Whether a stretch other than the first begins with this step."""
        return self.step > 0 and self.period(periods) > Clock(self.step - 1, self.steps).period(periods)


class Sizes(NamedTuple):
    """What a memory is built for.

    Attributes
    ----------
    n_source, n_target, n_classes : int
        Samples of both domains, and classes (1 in regression).
    width, pooled : int
        Widths of the features and of the bottleneck's input.
    """

    n_source: int
    n_target: int
    n_classes: int
    width: int
    pooled: int


class Memory(nn.Module):
    """What a method learns or remembers beside the network: discriminators, critics, banks, weights.

    Training keeps its parameters and buffers in every checkpoint. Over several processes each has the same: they all
    see the joined batch.
    """

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters that the run's own optimiser trains, by the loss of a step."""
        return ()

    def optimizers(self) -> dict[str, Optimizer]:
        """Return further optimisers, by name, whose state belongs into a checkpoint."""
        return {}


class Whole:
    """Both domains as the network sees them now, in evaluation mode. There is no field for target labels.

    Parameters
    ----------
    source, target : Outputs, or functions that return them
        Of all samples, detached. A function is called when somebody asks, once: a pass over a domain has its price.
    labels : (n_s,) tensor
        Source labels.
    network : Network
        The one that is trained; a method may set its head before the first step.
    loss : str
        Label loss.
    """

    def __init__(
        self,
        source: Outputs | Callable[[], Outputs],
        target: Outputs | Callable[[], Outputs],
        labels: Tensor,
        network: Network,
        loss: str = "cross_entropy",
    ) -> None:
        self._source, self._target = source, target
        self.labels, self.network, self.loss = labels, network, loss

    @cached_property
    def source(self) -> Outputs:
        """Features and outputs of all source samples."""
        return self._source() if callable(self._source) else self._source

    @cached_property
    def target(self) -> Outputs:
        """Features and outputs of all target samples."""
        return self._target() if callable(self._target) else self._target


Look = Callable[[], Whole]
"""Looks at both domains as they are before a step."""


class Labelled(NamedTuple):
    """Samples of the source: what the network says of them, their labels, and which they are."""

    outputs: Outputs
    labels: Tensor
    rows: Tensor


class View(NamedTuple):
    """What a method sees of one step. There is no field for target labels.

    Attributes
    ----------
    source, target : Outputs
        Features and outputs of both batches.
    labels : (n_s,) tensor
        Source labels.
    clock : Clock
    loss : str
        Label loss, one of `warmpot.costs.LABEL_LOSSES`.
    rows, target_rows : tensors of int
        Which samples of the data sets they are.
    head : torch.nn.Linear
        The network's, for `warmpot.nets.frozen_head`.
    extra : Labelled or None
        What `Method.extra_samples` asked for.
    weights : (n_s,) tensor or None
        Of the source samples, not normalised; None: the method weighs them by its own plan.
    extra_weights : tensor or None
        Of the further batch, on the same scale.
    """

    source: Outputs
    labels: Tensor
    target: Outputs
    clock: Clock
    loss: str = "cross_entropy"
    rows: Tensor | None = None
    target_rows: Tensor | None = None
    head: nn.Linear | None = None
    extra: Labelled | None = None
    weights: Tensor | None = None
    extra_weights: Tensor | None = None


class Step(NamedTuple):
    """What a method says of one batch.

    Attributes
    ----------
    loss : 0-d tensor
        To differentiate.
    weights : (n_s,) tensor
        What each source sample counted; detached.
    metrics : dict
        Further numbers to log; detached. "transport" with "alpha" are the cost and the mass of a plan.
    """

    loss: Tensor
    weights: Tensor
    metrics: dict[str, Any]


class Part(ABC):
    """What methods and weightings have in common: frozen dataclasses whose fields are their parameters.

    Class attributes
    ----------------
    name : str
        What users call it.
    summary : str
        One line for lists.
    regression : bool
        Whether it can do with real labels.
    pooled : bool
        Whether it needs what the bottleneck got, when it looks at whole domains: the widest part of a pass.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    regression: ClassVar[bool] = False
    pooled: ClassVar[bool] = False

    @property
    def expected_share(self) -> float:
        """Share of the source samples that carry the weight at least when it has settled; 1: all of them."""
        return 1.0

    def memory(self, sizes: Sizes, seed: int) -> Memory:  # noqa: ARG002
        """Return what it learns or remembers, as it is before the first step; draws from no global generator."""
        return Memory()

    def refresh(self, memory: Memory, clock: Clock, look: Look) -> None:  # noqa: B027 - most have nothing to do
        """Do what is due before a step, such as weighing the whole source anew."""


class Method(Part):
    """What is minimised.

    Class attributes
    ----------------
    reference : str
        Where it comes from.
    tags : tuple of str
        For lists: what it works with.
    engines : tuple of str
        Which engines can train it.
    uses_target : bool
        Whether the target takes part; if not, not even the units of features are read off it.
    weights : str
        The weighting it has in its paper, by name; "own": row sums of its own plan.
    """

    reference: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ("minibatch",)
    uses_target: ClassVar[bool] = True
    weights: ClassVar[str] = "uniform"

    @classmethod
    def has_plan(cls) -> bool:
        """Whether it can weigh the whole source by a plan of its own."""
        return cls.plan is not Method.plan

    @property
    def stages(self) -> tuple[float, float]:
        """Shares of the training after which adaptation begins, and after which nothing is ramped any more."""
        return 0.0, 0.0

    def extra_samples(self, clock: Clock, source_batch: int) -> int:  # noqa: ARG002
        """Return the size of the further source batch at a step; the largest comes first."""
        return 0

    @abstractmethod
    def step(self, view: View, memory: Memory) -> Step:
        """Return the loss of one batch (mini-batch engine)."""

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: str  # noqa: ARG002
    ) -> Solution[csr_array] | None:  # fmt: skip
        """Return the plan over all pairs (full engine), or None for a method that has none.

        Parameters
        ----------
        costs : PairCosts
            Distances between all source and target features.
        labels : (n_s,) tensor
            Source labels.
        outputs : (n_t, C) tensor
            What the current classifier says of the target.
        progress, loss
            As in `View`.
        """
        return None
