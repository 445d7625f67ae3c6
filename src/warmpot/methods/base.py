"""The interface of methods and weightings.

A method is a frozen dataclass of parameters with a `step` (mini-batch engine), a `rounds` (full engine), or both. All
that changes during training lives in its `Memory`, which checkpoints hold. docs/methods.md shows how to write one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import nn

from warmpot.methods.context import (
    BatchContext,
    BatchSpec,
    Domain,
    PassRequest,
    Phase,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor
    from torch.optim import Optimizer

    from warmpot._typing import FloatArray
    from warmpot.costs import PairCosts
    from warmpot.data import Task
    from warmpot.losses import LabelLoss
    from warmpot.methods.alternation import FullSettings
    from warmpot.nets import Network, NetworkSettings, Outputs
    from warmpot.transport import Solution

__all__ = ["Component", "DatasetPlan", "Memory", "Method", "RoundResult", "Rounds"]


class Memory(nn.Module):
    """What a method learns or remembers besides the network: discriminators, critics, banks, weights.

    Checkpoints hold its parameters and buffers. Over several processes each has the same: all see the joined batch.
    """

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters that the run's own optimiser trains, by the loss of a step."""
        return ()

    def optimizers(self) -> dict[str, Optimizer]:
        """Return further optimisers, by name, whose state belongs into a checkpoint."""
        return {}


M = TypeVar("M", bound=Memory)


class Component(ABC, Generic[M]):
    """What methods and weightings have in common: frozen dataclasses whose fields are their parameters.

    The type parameter is the class of the memory.

    Class attributes
    ----------------
    name : str
        What users call it.
    summary : str
        One line for lists.
    regression : bool
        Whether it works with continuous targets.
    passes : mapping of "source" and "target" to names of parts
        What it reads of a `DatasetPass`: any of "features", "logits", "pooled". Everything else is not kept.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    regression: ClassVar[bool] = False
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {}

    @property
    def expected_share(self) -> float:
        """Smallest share of the source samples that should carry the weight in the end; 1: all of them."""
        return 1.0

    def make_memory(self, setup: Setup) -> M:  # noqa: ARG002
        """Return what it learns or remembers, as it is before the first step."""
        return Memory()  # type: ignore[return-value]

    def refresh(self, memory: M, progress: TrainProgress, request: PassRequest) -> None:
        """Do what is due before a step, such as weighing the whole source again."""


class DatasetPlan(NamedTuple):
    """The exact plan over all pairs, and the beta of its capacities ``1 / (beta n_s)``."""

    solution: Solution[csr_array]
    beta: float


class RoundResult(NamedTuple):
    """Numbers of a round to log, and the row sums of its plan (Theorem 3.2), which sum to alpha; None without a plan.

    Of the numbers, "transport" with "alpha" are the cost and the mass of the plan.
    """

    metrics: dict[str, Any]
    plan_weights: FloatArray | None = None


class Rounds(ABC):
    """A classifier on whole data sets that is improved in rounds after a start; made by `Method.rounds`.

    `training_weights` (n_s,) are what each source sample counted when the current classifier was fitted; they sum to 1.
    """

    n_rounds: int
    settings: NetworkSettings
    expected_share: float = 1.0
    training_weights: Tensor

    @abstractmethod
    def start(self) -> None:
        """Fit on the source alone: the iterate 0."""

    @abstractmethod
    def round(self, number: int) -> RoundResult | None:
        """Do the round `number`, from 1; None when there is nothing (more) to do."""

    @abstractmethod
    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and outputs of both domains by the current classifier."""

    @abstractmethod
    def network(self) -> Network:
        """Return the current classifier as a network in evaluation mode; the same object every time."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""

    @abstractmethod
    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan of a finished classifier with these outputs; None for a method without plans."""
        return None


class Method(Component[M]):
    """What is minimised.

    Class attributes
    ----------------
    reference : str
        The publication.
    tags : tuple of str
        For lists: what it works with.
    engines : tuple of str
        Which engines can train it: "minibatch" needs `step`, "full" needs `rounds`.
    uses_target : bool
        Whether the target takes part; if not, not even the units of features are read off it.
    weights : str
        The weighting it has in its paper, by name; "own": it weighs source samples itself, by its plan for instance.
    """

    reference: ClassVar[str]
    tags: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ("minibatch",)
    uses_target: ClassVar[bool] = True
    weights: ClassVar[str] = "uniform"

    @classmethod
    def weighs_samples(cls) -> bool:
        """Whether it can weigh source samples itself: by a plan over all pairs, or by its own memory."""
        return cls.weights == "own" or cls.plan is not Method.plan

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of the training, in order."""
        return (Phase("train"),)

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:  # noqa: ARG002
        """Return the batches of a step besides source and target, by name."""
        return {}

    def pools(self, memory: M) -> Mapping[str, SamplePool]:  # noqa: ARG002
        """Return what the batches "source", "target" or a further one are drawn from; default: the whole domain.

        Called after every `refresh`, which may change it. It depends on the memory alone, so that a resumed run draws
        the same.
        """
        return {}

    def step(self, context: BatchContext, memory: M) -> StepResult:
        """Return the loss of one batch (mini-batch engine)."""
        raise NotImplementedError(f"{self.name} is not trained by mini-batches")

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> Rounds:
        """Return the training over whole data sets, round by round (full engine)."""
        raise NotImplementedError(f"{self.name} is not trained in rounds")

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: LabelLoss  # noqa: ARG002
    ) -> DatasetPlan | None:  # fmt: skip
        """Return the exact plan over all pairs, or None for a method that has none.

        `labels` are the source's; `outputs` are those of the current classifier for the target; `progress` is the share
        of the training that is done.
        """
        return None

    def final_network(self, memory: M, network: Network) -> Network:  # noqa: ARG002
        """Return the network that predicts after the training; default: the one that was trained."""
        return network
