"""What an engine asks of a method."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from warmpot.nets import Outputs

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

    from warmpot.costs import PairCosts
    from warmpot.transport import Solution

__all__ = ["Method", "Step"]


class Step(NamedTuple):
    """What a method says of one batch.

    Attributes
    ----------
    loss : 0-d tensor
        To differentiate.
    weights : (n_s,) tensor
        What each source sample counted; detached.
    metrics : dict
        Further numbers to log; detached.
    """

    loss: Tensor
    weights: Tensor
    metrics: dict[str, Any]


class Method(ABC):
    """A method is a frozen dataclass: its fields are its parameters, its two hooks serve the two engines.

    Class attributes
    ----------------
    name : str
        What users call it.
    summary : str
        One line for lists.
    uses_target : bool
        Whether the target takes part; if not, not even the units of features are read off it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    uses_target: ClassVar[bool] = True

    @property
    def expected_share(self) -> float:
        """Share of the source samples that the method uses at least when it has settled; 1: all of them."""
        return 1.0

    @property
    def stages(self) -> tuple[float, float]:
        """Shares of the training after which plans begin, and after which nothing is ramped any more."""
        return 0.0, 0.0

    @abstractmethod
    def step(self, source: Outputs, labels: Tensor, target: Outputs, progress: float, loss: str) -> Step:
        """Return the loss of one batch (mini-batch engine).

        Parameters
        ----------
        source, target : Outputs
            Features and outputs of both batches. There is no argument for target labels.
        labels : (n_s,) tensor
            Source labels.
        progress : float
            Share of the training that is done, in [0, 1].
        loss : str
            Label loss, one of `warmpot.costs.LABEL_LOSSES`.
        """

    @abstractmethod
    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: str
    ) -> Solution[csr_array] | None:
        """Return the plan over all pairs (full engine), or None for a method that moves nothing.

        Parameters
        ----------
        costs : PairCosts
            Distances between all source and target features.
        labels : (n_s,) tensor
            Source labels.
        outputs : (n_t, C) tensor
            What the current classifier says of the target.
        progress, loss
            As in `step`.
        """
