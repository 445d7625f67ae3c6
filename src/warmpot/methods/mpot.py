"""MPOT: partial transport between mini-batches, without source weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from warmpot._checks import check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.costs import PairCosts, joint_cost
from warmpot.losses import LabelLoss
from warmpot.methods.base import OFFICIAL, BatchContext, Memory, Method, Phase, StepResult
from warmpot.methods.losses import ramped
from warmpot.methods.rounds import DatasetPlan
from warmpot.methods.warmpot import plan_over_all
from warmpot.transport import Duals, StepPlan, UnbalancedSolution, step_plan
from warmpot.weights import normalized, plan_weights

__all__ = ["Mpot", "squared_cost", "transport_step"]


def squared_cost(context: BatchContext, eta1: float, eta2: float) -> Tensor:
    """Return ``eta1 ||f_i - f_j||^2 + eta2 CE(y_i, z_j)`` of a batch, with gradient: the cost of MPOT and JUMBOT."""
    source, target = context.source, context.target
    return joint_cost(
        source.features, context.labels, target.features, target.logits,
        eta1=eta1, eta2=eta2, loss=context.loss, squared=True,
    )  # fmt: skip


def transport_step(
    context: BatchContext, cost: Tensor, solution: StepPlan | UnbalancedSolution, loss_scale: float
) -> StepResult:
    """Return ``sum_i w_i CE(x_i, y_i) + loss_scale <P, C>`` with the plan P and the weights w held fixed.

    The weights are the context's, or the row sums of P where it has none; they are divided by their sum.
    """
    weights = normalized(plan_weights(solution.plan) if context.weights is None else context.weights)
    classification = (weights * context.loss.per_sample(context.source.logits, context.labels)).sum()
    transport = (solution.plan * cost).sum()
    return StepResult.of(
        classification + loss_scale * transport, weights, classification=classification, transport=transport,
        mean_cost=cost.mean(), alpha=solution.plan.sum(dtype=torch.float64), plan_ok=float(solution.status.ok),
    )  # fmt: skip


@dataclass(frozen=True)
class Mpot(Method[Memory]):
    """Minimise ``mean_i CE(w(x_i), y_i) + loss_scale <P, C>``, ``C_ij = eta1 ||f_i - f_j||^2 + eta2 CE(y_i, w(x~_j))``.

    The plan P of the batch is the entropic partial one: row sums at most ``1 / n_s``, column sums at most ``1 / n_t``,
    mass `alpha`. No gradient goes through it. This is WARMPOT with beta 1, a squared distance and equal weights.

    Attributes
    ----------
    alpha : float
        Mass of the plan at the end of the ramp. The code's argument ``mass`` is twice that: its ramp ends halfway to
        the argument, and half of the argument stays. Swept from .25 to .75 there, no choice recorded: the middle.
    eta1, eta2 : float
        Weights of the squared feature distance and of the cross-entropy in the cost.
    eps : float or None
        Entropic regularisation, in units of that cost; None: the exact plan.
    loss_scale : float
        Factor of ``<P, C>`` in the loss.
    alpha_start, ramp : float
        The mass grows linearly from `alpha_start` to `alpha` over the share `ramp` of the training.

    Notes
    -----
    A reproduction of the official code's objective (docs/method-specifications.md, MPOT), with one pair of
    batches per step. Deviations:

    - the code's ramp ends .01 above the mass it then keeps, ours never exceeds alpha;
    - the code takes the logarithm of a softmax, infinite for confident predictions; ours is ``log_softmax``;
    - the code's solver multiplies kernels, which vanish where the cost exceeds some 700 eps; ours works with
      logarithms, to a duality gap;
    - the code reports the best of its evaluations by target labels, we report the last iterate.
    """

    name: ClassVar[str] = "mpot"
    summary: ClassVar[str] = "partial transport of batches, squared distances, equal source weights"
    reference: ClassVar[str] = "Nguyen, Nguyen, Pham, Ho, ICML 2022"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("transport", "partial")

    alpha: float = 0.25
    eta1: float = 0.03
    eta2: float = 7.5
    eps: float | None = 0.5
    loss_scale: float = 1.0
    alpha_start: float = 0.01
    ramp: float = 0.5

    def __post_init__(self) -> None:
        for name in ("alpha", "alpha_start"):
            check_fraction(name, getattr(self, name))
        for name in ("eta1", "eta2", "loss_scale"):
            check_nonnegative(name, getattr(self, name))
        check_positive("eta1 + eta2", self.eta1 + self.eta2, remedy="The cost must not be 0 everywhere.")
        check_nonnegative("ramp", self.ramp, maximum=1.0)
        if self.eps is not None:
            check_positive("eps", self.eps, remedy="Pass a positive number, or null for the exact plan.")

    @property
    def expected_share(self) -> float:
        """Share of the source samples that carry the plan when each is used in full."""
        return self.alpha

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The mass grows, then it is constant."""
        return Phase("ramp", self.ramp), Phase("constant")

    def alpha_at(self, progress: float) -> float:
        """Return the mass to move after a share `progress` of the training."""
        return ramped(self.alpha_start, self.alpha, progress, self.ramp)

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch, with the plan held fixed."""
        cost = squared_cost(context, self.eta1, self.eta2)
        mass = self.alpha_at(context.progress.share)
        # A plan short of its tolerance is still feasible; the log shows it, and training continues.
        solution = step_plan(cost.detach(), mass=mass, eps=self.eps)
        return transport_step(context, cost, solution, self.loss_scale)

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: LabelLoss,
        presence: FloatArray | None = None, start: Duals | None = None,  # noqa: ARG002
    ) -> DatasetPlan:  # fmt: skip
        """Return the exact plan over all pairs."""
        cost = costs.joint(labels, outputs, eta1=self.eta1, eta2=self.eta2, loss=loss, squared=True)
        return plan_over_all(cost, beta=1.0, mass=self.alpha_at(progress), start=start)
