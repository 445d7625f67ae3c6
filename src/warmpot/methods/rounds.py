"""Training over whole data sets in rounds: what the full engine asks of a method, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from warmpot._checks import check_choice, check_count, check_fraction, check_nonnegative, check_positive
from warmpot.nets import SCALES, Network, NetworkSettings, Outputs

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

    from warmpot._typing import FloatArray
    from warmpot.transport import Solution

__all__ = ["DatasetPlan", "FullSettings", "RoundResult", "Rounds"]

OBJECTIVES = ("cross_entropy", "bound")


class DatasetPlan(NamedTuple):
    """The exact plan over all pairs, and the beta of its capacities ``1 / (beta n_s)``."""

    solution: Solution[csr_array]
    beta: float


class RoundResult(NamedTuple):
    """What a round reports.

    Attributes
    ----------
    metrics : dict
        Numbers to log; "transport" with "alpha" are the cost and the mass of its plan.
    plan_weights : (n_s,) array or None
        Row sums of its plan (Theorem 3.2); they sum to alpha. None without a plan.
    """

    metrics: dict[str, Any]
    plan_weights: FloatArray | None = None


class Rounds(ABC):
    """A classifier on whole data sets that is improved round by round; made by `Method.rounds`.

    Attributes
    ----------
    n_rounds : int
        Rounds after the start.
    settings : NetworkSettings
        Shape of the network.
    expected_share : float
        As in `Method.expected_share`.
    """

    n_rounds: int
    settings: NetworkSettings
    expected_share: float = 1.0

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

    @property
    @abstractmethod
    def training_weights(self) -> Tensor:
        """What each source sample counted when the current classifier was fitted; they sum to 1."""

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan of a finished classifier with these outputs; None for a method without plans."""
        return None


@dataclass(frozen=True)
class FullSettings:
    """The full engine: a plan over all pairs, a refit of a linear classifier, and again (ours).

    Attributes
    ----------
    rounds : int
        Plans solved.
    scale : str
        Of the inputs, as in `NetworkSettings`.
    width : int
        Principal axes of both domains that are kept.
    penalty : float
        Ridge on the head's weights.
    metric_penalty : float or None
        Ridge that holds the metric under the head to the identity; None: no metric is learned.
    iterations : int
        L-BFGS steps of a refit.
    recentre : bool
        Subtract from each domain the mean of its matched part, so that both agree.
    class_share : float
        Part of a source weight that is its class's mean weight.
    fill : float
        Weight of the whole source, times the estimated beta; its classes count as in the source by that share, as
        predicted on the target by the rest: adaptation to a target that is not partial must not forget classes.
    smooth, neighbours, smooth_after
        Outputs in the plan's cost are averaged with those of this many nearest target samples, by this share, after
        this many rounds (averaging the first predictions would wipe out classes).
    objective : "cross_entropy" or "bound"
        What the classifier is fitted to: the labels that the plan carries; or, from where that ends, the computable
        part of Theorem 3.3 (`warmpot.methods.bound_objective`), for a certificate below 1.
    bound_rounds : int
        Plans solved for the bound.
    bound_beta : float
        Share of the source that the bound's plan uses at least. The theorem holds for any.
    feature_start : float
        Weight of feature distances in the first of these rounds; it grows to 1 over the first half of them, and from
        then on the bound cannot rise. 1 minimises the bound from the start: tighter, but further from the labels that
        the first rounds found.
    """

    rounds: int = 6
    scale: str = "auto"
    width: int = 256
    penalty: float = 3e-5
    metric_penalty: float | None = 0.03
    iterations: int = 25
    recentre: bool = True
    class_share: float = 0.5
    fill: float = 1.0
    smooth: float = 0.5
    neighbours: int = 7
    smooth_after: int = 2
    objective: str = "cross_entropy"
    bound_rounds: int = 8
    bound_beta: float = 0.1
    feature_start: float = 0.1

    def __post_init__(self) -> None:
        for name in ("rounds", "width", "iterations", "neighbours"):
            check_count(name, getattr(self, name))
        check_count("smooth_after", self.smooth_after, minimum=0)
        check_choice("scale", self.scale, SCALES)
        check_positive("penalty", self.penalty)
        if self.metric_penalty is not None:
            check_positive("metric_penalty", self.metric_penalty)
        for name in ("class_share", "smooth"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        check_nonnegative("fill", self.fill)
        check_choice("objective", self.objective, OBJECTIVES)
        check_count("bound_rounds", self.bound_rounds)
        for name in ("bound_beta", "feature_start"):
            check_fraction(name, getattr(self, name))

    @property
    def all_rounds(self) -> int:
        """Rounds of both kinds."""
        return self.rounds + (self.bound_rounds if self.objective == "bound" else 0)

    def feature_weight(self, number: int) -> float:
        """Return the factor of feature distances in the bound's round `number`, from 1."""
        ramp = self.bound_rounds // 2
        return float(self.feature_start ** (1 - (number - 1) / ramp)) if number <= ramp else 1.0
