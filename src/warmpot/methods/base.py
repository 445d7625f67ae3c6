"""The interface of methods and weightings: what training passes to them, and what they return.

A method is a frozen dataclass of parameters with a `step` (mini-batch engine), a `rounds` (full engine), or both. All
that changes during training lives in its `Memory`, which checkpoints hold. docs/methods.md shows how to write one.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from warmpot._typing import FloatArray
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.losses import LABEL_LOSSES, LabelLoss
from warmpot.methods.progress import Phase, TrainProgress, progress_at
from warmpot.methods.sizes import DataSize
from warmpot.nets import Network, Outputs
from warmpot.transport import Duals

if TYPE_CHECKING:
    from warmpot.methods.rounds import DatasetPlan, FullSettings, Rounds

__all__ = ["NOT_STATED", "OFFICIAL",
           "BatchContext", "BatchSpec", "Component", "DatasetPass", "Domain", "Memory", "Method", "NamedBatch",
           "ParamGroup", "PassRequest", "Phase", "SamplePool", "Setup", "StepResult", "TrainProgress",
           "progress_at"]  # fmt: skip

Domain = Literal["source", "target"]
OFFICIAL, NOT_STATED = "reproduction of the official code's objective", "not stated"
"""The status of most methods of this package, and of those that do not tell."""
CROSS_ENTROPY = LABEL_LOSSES["cross_entropy"]


class Setup(NamedTuple):
    """What a memory is built for: numbers of samples and classes (1 in regression), and the network before training.

    `width` and `pooled` are the widths of the features and of the bottleneck's input. The seed is the run's; a memory
    draws from no global generator.
    """

    n_source: int
    n_target: int
    n_classes: int
    width: int
    pooled: int
    seed: int = 0
    network: Network | None = None


class BatchSpec(NamedTuple):
    """A further batch of a step: its samples over all processes; too few for them, or for BatchNorm, are left out.

    `view_of` names a batch of the same domain whose first samples it holds, images in another random view; "": samples
    of its own.
    """

    size: int
    domain: Domain = "source"
    view_of: str = ""


class SamplePool(NamedTuple):
    """Rows of a domain that a named batch is drawn from, when that is not the whole domain.

    Their labels are such as pseudo-labels of target samples; None: the source's own labels, or none.
    """

    rows: Tensor
    labels: Tensor | None = None


class NamedBatch(NamedTuple):
    """A batch of one domain as the network sees it; fields are as in `BatchContext`.

    The labels are those of the source, or pseudo-labels of a `SamplePool`; there is no way for target labels.
    """

    outputs: Outputs
    rows: Tensor
    labels: Tensor | None = None
    inputs: Tensor | None = None
    weights: Tensor | None = None
    domain: Domain = "source"


def _unchanged(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class BatchContext:
    """What a method sees of one step. There is no field for target labels.

    Attributes
    ----------
    source, target : Outputs
        Features and logits of both batches, with gradient.
    labels : (n_s,) tensor
        Source labels.
    progress : TrainProgress
    loss : LabelLoss
    rows, target_rows : tensors of int
        Rows of the data sets that the samples are.
    weights : (n_s,) tensor or None
        Of the source samples, not normalised; None: the method weighs samples itself, by its own plan for instance.
    largest_weight : scalar tensor or None
        The largest that a source sample may have now, also outside of the batch; None: every batch has its own weights.
    extra : mapping of str to NamedBatch
        The batches that `Method.extra_batches` asked for, by name.
    inputs, target_inputs : tensors or None
        What the network got; over several processes the share of this process.
    network : Network or None
        For its head (`warmpot.nets.frozen_head`) and its parts.
    forward : callable or None
        ``context.forward(x)`` applies the network to further inputs, with gradient; ``context.forward(x, encoder)``
        another network, such as a frozen copy in the memory. Over several processes it takes the share of this
        process, and returns the outputs of the joined batch.
    pseudo_labels : (n_t,) tensor or None
        Of the target samples, from a `SamplePool` for "target".
    weigh : callable or None
        ``context.weigh(batch)`` returns the weights of a `NamedBatch` of source samples that the method has passed
        itself, where the network does not see the source; None: the method weighs samples itself.
    gather, own_rows : callable
        ``context.gather(x)`` returns inputs of the joined batch, for the share of this process, and
        ``context.own_rows(x)`` the share of this process again, for `forward`: a method can mix samples of a batch.
    """

    source: Outputs
    labels: Tensor
    target: Outputs
    progress: TrainProgress
    loss: LabelLoss = CROSS_ENTROPY
    rows: Tensor | None = None
    target_rows: Tensor | None = None
    weights: Tensor | None = None
    largest_weight: Tensor | None = None
    extra: Mapping[str, NamedBatch] = field(default_factory=dict)
    inputs: Tensor | None = None
    target_inputs: Tensor | None = None
    network: Network | None = None
    forward: Callable[..., Outputs] | None = None
    pseudo_labels: Tensor | None = None
    weigh: Callable[[NamedBatch], Tensor] | None = None
    gather: Callable[[Tensor], Tensor] = _unchanged
    own_rows: Callable[[Tensor], Tensor] = _unchanged

    @property
    def head(self) -> nn.Linear:
        """The network's head."""
        if self.network is None:
            raise RuntimeError("this context was made without a network")
        return self.network.head

    @property
    def given_weights(self) -> Tensor:
        """The weights, for a method that has no plan of its own."""
        if self.weights is None:
            raise RuntimeError("a method without a plan needs a weighting")
        return self.weights


class DatasetPass:
    """Both domains as the network sees them now, in evaluation mode. There is no field for target labels.

    Parameters
    ----------
    source, target : Outputs, or functions that return them
        Of all samples, detached. A function is called when the domain is first read: a pass takes time. It holds the
        parts that the method or weighting names in `Component.passes`; others are None. That of the source may be
        called with rows too, for these alone.
    labels : (n_s,) tensor
        Source labels.
    network : Network
        The network in training; a method may set its head before the first step of a phase.
    loss : LabelLoss
    """

    def __init__(
        self, source: Outputs | Callable[..., Outputs], target: Outputs | Callable[[], Outputs],
        labels: Tensor, network: Network, loss: LabelLoss = CROSS_ENTROPY,
    ) -> None:  # fmt: skip
        self._source, self._target = source, target
        self.labels, self.network, self.loss = labels, network, loss

    @cached_property
    def source(self) -> Outputs:
        """Outputs of all source samples."""
        return self._source if isinstance(self._source, Outputs) else self._source()

    def of_source(self, rows: Tensor) -> Outputs:
        """Return the outputs of some source samples; unless `source` was read, only they pass the network."""
        if not isinstance(self._source, Outputs) and "source" not in self.__dict__:
            return self._source(rows)
        parts = self.source._asdict().items()
        return Outputs.of(**{name: part[rows.to(part.device)] for name, part in parts if part is not None})

    @cached_property
    def target(self) -> Outputs:
        """Outputs of all target samples."""
        return self._target if isinstance(self._target, Outputs) else self._target()


PassRequest = Callable[[], DatasetPass]
"""Makes a pass over both domains as they are before a step."""


class StepResult(NamedTuple):
    """What a method returns for one batch: the loss to differentiate, and, detached, weights and numbers to log.

    The weights (n_s,) are what each source sample counted; None: the source had no part in the step. Of the numbers,
    "transport" with "alpha" are the cost and the mass of a plan.
    """

    loss: Tensor
    weights: Tensor | None
    metrics: dict[str, Any]

    @classmethod
    def of(cls, loss: Tensor, weights: Tensor | None, **metrics: Any) -> StepResult:
        """Make a result of numbers and tensors that may have gradients."""
        detached = {name: value.detach() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        return cls(loss, None if weights is None else weights.detach(), detached)


class ParamGroup(NamedTuple):
    """Parameters with their own factors of the learning rate and the weight decay that other parameters get."""

    params: tuple[nn.Parameter, ...]
    lr: float = 1.0
    weight_decay: float = 1.0


class Memory(nn.Module):
    """What a method learns or remembers besides the network: discriminators, critics, banks, weights.

    Checkpoints hold its parameters and buffers. Over several processes each has the same: all see the joined batch.
    """

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters that the run's own optimiser trains, by the loss of a step."""
        return ()

    def param_groups(self) -> Iterable[ParamGroup]:
        """Return further such parameters, at other learning rates than those of `trained`."""
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
    name, summary : str
        What users call it, and one line for lists.
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


class Method(Component[M]):
    """What is minimised.

    Class attributes
    ----------------
    reference, tags : str and tuple of str
        The publication, and what it works with, for lists.
    engines : tuple of str
        Which engines can train it: "minibatch" needs `step`, "full" needs `rounds`.
    uses_target : bool
        Whether the target takes part. If not, it does not pass the network in training: BatchNorm has statistics of the
        source alone, `BatchContext.target` has no rows, and the scale of features is the source's.
    starts_trained : bool
        Whether it has an answer before its first step, such as a head that `refresh` has fitted. That iterate, step 0,
        can be chosen, too.
    weights : str
        The weighting it has in its paper, by name; "own": it weighs source samples itself, by its plan for instance.
    status : str
        What its presets with the authors' settings are: a reproduction, or "interpretation: ..." with the reason, where
        the authors' code could not be read. Not inherited: a subclass is another method.
    """

    reference: ClassVar[str]
    status: ClassVar[str] = NOT_STATED
    tags: ClassVar[tuple[str, ...]] = ()
    engines: ClassVar[tuple[str, ...]] = ("minibatch",)
    uses_target: ClassVar[bool] = True
    starts_trained: ClassVar[bool] = False
    weights: ClassVar[str] = "uniform"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.status = vars(cls).get("status", NOT_STATED)

    @classmethod
    def weighs_samples(cls) -> bool:
        """Whether it can weigh source samples itself: by a plan over all pairs, or by its own memory."""
        return cls.weights == "own" or cls.plan is not Method.plan

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The parts of the training, in order."""
        return (Phase("train"),)

    def check_first_refresh(self, share: float) -> None:
        """Refuse parameters that do not fit the share of the training after which weights are first computed.

        Default: any. Weights are equal until then; 0 is for weightings that weigh from the first step on.
        """

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:  # noqa: ARG002
        """Return the batches of a step besides source and target, by name.

        One named "source" or "target" cuts that batch to its size, which may not be larger than that of the run.
        """
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

    def data_size(self, task: Task, settings: FullSettings) -> DataSize | None:  # noqa: ARG002
        """Return what `rounds` will work on, for its memory and time; None if they are unknown."""
        return None

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: LabelLoss,  # noqa: ARG002
        presence: FloatArray | None = None, start: Duals | None = None,  # noqa: ARG002
    ) -> DatasetPlan | None:  # fmt: skip
        """Return the exact plan over all pairs, or None for a method that has none.

        `labels` are the source's; `outputs` are those of the current classifier for the target; `progress` is the share
        of the training that is done; `presence` are the factors of the classes' capacities, if estimated
        (`ClassPresence.factors`); `start` are the dual variables of the last plan, if there was one, which save time.
        """
        return None

    def final_network(self, memory: M, network: Network) -> Network:  # noqa: ARG002
        """Return the network that predicts after the training; default: the one that was trained."""
        return network
