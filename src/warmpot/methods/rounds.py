"""Training over whole data sets in rounds: what the full engine asks of a method, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy.sparse import csr_array
from torch import Tensor

from warmpot._checks import check_choice, check_count, check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.nets import SCALES, Network, NetworkSettings, Outputs
from warmpot.transport import Solution
from warmpot.weights import ClassPresence

__all__ = ["DatasetPlan", "FullSettings", "RoundResult", "Rounds"]

OBJECTIVES = ("cross_entropy", "bound")


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
    `presence` is the estimate of which classes are in the target, if the training made one. The first `trials` rounds
    are of hypotheses: what they predict is no sign of a collapse. `consensus` is the share of the predictions that
    these confirm.
    """

    n_rounds: int
    settings: NetworkSettings
    expected_share: float = 1.0
    trials: int = 0
    consensus: float = 1.0
    training_weights: Tensor
    presence: ClassPresence | None = None

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

    def second_labels(self, unadapted: Tensor | None) -> Tensor | None:  # noqa: ARG002
        """Class codes of the target by another classifier, to calibrate confidences; None leaves them as they are.

        `unadapted` are those by the fit on the source alone, if they are known.
        """
        return None

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan of a finished classifier with these outputs; None for a method without plans."""
        return None


@dataclass(frozen=True)
class FullSettings:
    """The full engine: a plan over all pairs, a refit of projection and head, and again (ours).

    Attributes
    ----------
    rounds : int
        Plans solved while alpha grows; two more follow if the outputs were averaged with structured prediction.
    scale : str
        Of the inputs, as in `NetworkSettings`; but "auto" is "roots" for 64 columns or more whose variance within
        classes follows their mean (`variance_follows_mean`), as it does after a ReLU; not for a method that does not
        see the target.
    width : int
        Principal axes of both domains that are kept.
    penalty : float
        Ridge on the head's weights.
    iterations : int
        L-BFGS steps of a refit.
    smooth, neighbours, smooth_after
        Outputs in the plan's cost are averaged with those of this many nearest target samples, by this share, after
        this many rounds (averaging the first predictions would wipe out classes).
    objective : "cross_entropy" or "bound"
        What the classifier is fitted to: the labels that the plan carries; or, from where that ends, the computable
        part of Theorem 3.3 (`warmpot.methods.refit`), for a certificate below 1.
    bound_rounds : int
        Plans solved for the bound.
    bound_beta : float
        Share of the source that the bound's plan uses at least, or half of the share of the classes that are estimated
        to be in the target, if that is less: a larger one forces matches with other classes. The theorem holds for any.
    feature_start : float
        Weight of feature distances in the first of these rounds; it grows to 1 over the first half of them, and from
        then on the bound cannot rise. 1 minimises the bound from the start: tighter, but further from the labels that
        the first rounds found.
    """

    rounds: int = 6
    scale: str = "auto"
    width: int = 512
    penalty: float = 1e-4
    iterations: int = 40
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
        check_nonnegative("smooth", self.smooth, maximum=1.0)
        check_choice("objective", self.objective, OBJECTIVES)
        check_count("bound_rounds", self.bound_rounds)
        for name in ("bound_beta", "feature_start"):
            check_fraction(name, getattr(self, name))

    def feature_weight(self, number: int) -> float:
        """Return the factor of feature distances in the bound's round `number`, from 1."""
        ramp = self.bound_rounds // 2
        return float(self.feature_start ** (1 - (number - 1) / ramp)) if number <= ramp else 1.0
