"""What training returns: `Trained` by an engine, `Fitted` to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from warmpot._typing import FloatArray

if TYPE_CHECKING:
    from pathlib import Path

    from scipy.sparse import csr_array
    from torch import Tensor

    from warmpot.nets import Network, NetworkSettings, Outputs
    from warmpot.train.config import RunConfig
    from warmpot.train.predictor import Predictor
    from warmpot.transport import Solution

__all__ = ["Fitted", "Trained"]


class Trained(NamedTuple):
    """What an engine returns.

    Attributes
    ----------
    network, settings
        The network and its shape.
    history : list of dict
        What was logged.
    source, target : Outputs
        Features and outputs of both domains.
    step : int
        The iterate that network and outputs belong to.
    plan : Solution or None
        The plan over all pairs of that iterate.
    training_weights : (n_s,) tensor
        What each source sample counted in its training; they sum to 1.
    """

    network: Network
    settings: NetworkSettings
    history: list[dict[str, Any]]
    source: Outputs
    target: Outputs
    step: int
    plan: Solution[csr_array] | None
    training_weights: Tensor


@dataclass(frozen=True)
class Fitted:
    """A finished run.

    Attributes
    ----------
    predictor : Predictor
        The classifier or regressor.
    outputs : (n_t, C) or (n_t,) array
        Class probabilities, or predicted values, of the target samples.
    plan_weights : (n_s,) array or None
        Row sums of the plan over all pairs at the final iterate (Theorem 3.2); they sum to alpha. None without a plan:
        for a method or weighting that solves none, and when the chooser preferred round 0, the fit on the source alone.
    training_weights : (n_s,) array
        What each source sample counted in the training, relative to the others; they sum to 1. Of the full engine: in
        the last refit. Of the mini-batch engine: in the last step; where every batch has weights of its own, such as
        those of its plan, in the last batch that held the sample.
    target_weights : (n_t,) array
        Column sums of the plan; uniform without a plan.
    solution : Solution or None
        The plan with its certificate.
    step : int
        The round or step of the final iterate: the last, unless a chooser preferred another.
    history : list of dict
        The lines of ``metrics.jsonl``.
    config : RunConfig
        The settings of the run.
    folder : Path or None
        The run folder, if one was written.
    """

    predictor: Predictor
    outputs: FloatArray
    plan_weights: FloatArray | None
    training_weights: FloatArray
    target_weights: FloatArray
    solution: Solution[csr_array] | None
    step: int
    history: list[dict[str, Any]]
    config: RunConfig
    folder: Path | None = None

    @property
    def source_weights(self) -> FloatArray:
        """The plan weights, or the training weights where there is no plan."""
        return self.training_weights if self.plan_weights is None else self.plan_weights

    def __repr__(self) -> str:
        sizes = f"{len(self.training_weights)} source and {len(self.outputs)} target samples"
        return f"Fitted({self.config.method}, preset {self.config.preset}, step {self.step}, {sizes})"
