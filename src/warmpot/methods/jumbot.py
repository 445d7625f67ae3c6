"""JUMBOT: unbalanced transport between mini-batches, without source weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warmpot._checks import check_choice, check_nonnegative, check_positive
from warmpot.methods.base import OFFICIAL, BatchContext, Memory, Method, StepResult
from warmpot.methods.mpot import squared_cost, transport_step
from warmpot.transport import solve_unbalanced

__all__ = ["Jumbot"]


@dataclass(frozen=True)
class Jumbot(Method[Memory]):
    """Minimise ``mean_i CE(w(x_i), y_i) + loss_scale <P, C>``, ``C_ij = eta1 ||f_i - f_j||^2 + eta2 CE(y_i, w(x~_j))``.

    The plan P of the batch minimises ``<P, C> + eps R(P) + tau KL(P 1 | a) + tau KL(P' 1 | b)``, where a is ``1 / n_s``
    and b is ``1 / n_t``: how much mass it moves follows from the costs. No gradient goes through it.

    Attributes
    ----------
    tau : float
        Price of marginals that differ from a and b, per unit of their Kullback-Leibler divergence. A pair that costs
        much more than 2 tau is hardly matched.
    eps : float
        Regularisation, in units of the cost.
    eta1, eta2 : float
        Weights of the squared feature distance and of the cross-entropy in the cost.
    loss_scale : float
        Factor of ``<P, C>`` in the loss.
    regularizer : "entropy" or "kl"
        ``R(P) = sum P (log P - 1)``, or the divergence from the product of a and b. They differ by the cost
        ``eps log(n_s n_t)`` of a unit of mass, so "kl" moves less. The authors wrote for POT 0.7, which had the
        entropy; since 0.9.5 the same call of POT means "kl".

    Notes
    -----
    A reproduction of the official code's objective (docs/method-specifications.md, JUMBOT). Deviations:

    - the code takes the logarithm of a softmax, infinite for confident predictions; ours is ``log_softmax``;
    - the code's solver multiplies kernels ``exp(-C / eps)``, which vanish in float64 from a cross-entropy of 10 on, and
      stops at 1000 iterations or a change of 1e-6; ours works with logarithms, to a duality gap;
    - both report the last iterate.

    There is no plan over all pairs: with "entropy" the mass that a plan moves depends on the number of its pairs, so it
    would not be that of the batches. Hence the weights "own" are not for this method.
    """

    name: ClassVar[str] = "jumbot"
    summary: ClassVar[str] = "unbalanced transport of batches, squared distances, equal source weights"
    reference: ClassVar[str] = "Fatras, Sejourne, Flamary, Courty, ICML 2021"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("transport", "unbalanced")

    tau: float = 0.06
    eps: float = 0.01
    eta1: float = 0.003
    eta2: float = 0.75
    loss_scale: float = 10.0
    regularizer: str = "entropy"

    def __post_init__(self) -> None:
        for name in ("tau", "eps"):
            check_positive(name, getattr(self, name))
        for name in ("eta1", "eta2", "loss_scale"):
            check_nonnegative(name, getattr(self, name))
        check_positive("eta1 + eta2", self.eta1 + self.eta2, remedy="The cost must not be 0 everywhere.")
        check_choice("regularizer", self.regularizer, ("entropy", "kl"))

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch, with the plan held fixed."""
        cost = squared_cost(context, self.eta1, self.eta2)
        # A plan short of its tolerance is still a plan; the log shows it, and training continues.
        solution = solve_unbalanced(
            cost.detach(), tau=self.tau, eps=self.eps, regularizer=self.regularizer, throw=False
        )
        return transport_step(context, cost, solution, self.loss_scale)
