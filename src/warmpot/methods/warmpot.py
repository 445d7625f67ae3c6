"""WARMPOT: weights and alignment from one partial transport plan (the ICML 2025 paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from warmpot._checks import check_fraction, check_nonnegative, check_positive
from warmpot.costs import joint_cost
from warmpot.methods.base import Method, Step
from warmpot.methods.losses import mean_entropy, supervised
from warmpot.methods.source_only import SourceOnly
from warmpot.nets import Outputs
from warmpot.transport import solve_partial, solve_partial_points
from warmpot.weights import believed_beta, normalized, plan_weights, predicted_shares
from warmpot.weights.class_level import SMALLEST_BETA

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor

    from warmpot.costs import PairCosts
    from warmpot.transport import Solution

__all__ = ["Warmpot"]

PAPER_BETA = 0.35


@dataclass(frozen=True)
class Warmpot(Method):
    """Minimise ``sum_i p_i CE(w(x_i), y_i) + PW_alpha((1/beta) P_source, Q_target)`` (SPEC section 3).

    The plan P of the partial problem with the joint cost is held fixed in the gradient; its row sums are the source
    weights p.

    Attributes
    ----------
    alpha : float
        Share of the target mass that is matched at the end of the ramp.
    beta : float or None
        Share of the source believed to matter: a source sample has capacity ``1 / (beta n_s)``. None: the share of
        classes that the predictions on the target use in effect, anew for every plan (ours); .35 in regression.
    eta1, eta2 : float
        Weights of feature distance and label loss in the cost *of the plan*.
    eps : float or None
        Entropic regularisation of the batch plan, in units of that cost; None: the exact plan. The full engine's plan
        is always exact.
    relative_eps : bool
        Take `eps` in units of the standard deviation of the batch's cost instead (ours): a plan cannot flatten
        because the features shrink, nor harden because the losses grow.
    loss_scale : float
        Factor of ``<P, C>`` in the loss. The paper's (eta1, eta2) are the products of the code's with its .25.
    normalize_weights : bool
        Divide p by its sum in the source loss (the authors' code); False: p as in the paper's formula.
    entropy : float
        Weight of the mean entropy of target predictions (the authors' ImageNet-Caltech code: .1).
    warmup : float
        Share of the training before any plan, on the source alone (ours): a plan from an untrained head weighs
        classes by chance, and what has no weight is never learnt.
    alpha_start, ramp : float
        Alpha grows linearly from `alpha_start` at `warmup` to `alpha` at the share `ramp` of the training.

    Notes
    -----
    Deviations from paper and code, each a parameter above (SPEC section 3, METHODS section 1): the code's ramp
    overshoots alpha by .01 at its last step, ours never exceeds alpha; the code solves with 1000 fixed iterations in
    numpy, ours to a duality gap; the code reports the best evaluation by target labels, we report the last iterate.
    """

    name: ClassVar[str] = "warmpot"
    summary: ClassVar[str] = "partial transport: source weights and alignment from one plan"

    alpha: float = 0.8
    beta: float | None = 0.35
    eta1: float = 0.5
    eta2: float = 7.0
    eps: float | None = 7.0
    relative_eps: bool = False
    loss_scale: float = 0.25
    normalize_weights: bool = True
    entropy: float = 0.0
    warmup: float = 0.0
    alpha_start: float = 0.01
    ramp: float = 0.5

    def __post_init__(self) -> None:
        check_fraction("alpha", self.alpha)
        if self.beta is not None:
            check_fraction("beta", self.beta)
        check_fraction("alpha_start", self.alpha_start)
        for name in ("eta1", "eta2", "loss_scale", "entropy"):
            check_nonnegative(name, getattr(self, name))
        check_positive("eta1 + eta2", self.eta1 + self.eta2, remedy="The cost must not be 0 everywhere.")
        check_nonnegative("ramp", self.ramp, maximum=1.0)
        check_nonnegative("warmup", self.warmup, maximum=1.0)
        if self.eps is not None:
            check_positive("eps", self.eps, remedy="Pass a positive number, or null for the exact plan.")

    @property
    def expected_share(self) -> float:
        """Share of the source samples that carry the plan when each is used in full."""
        return self.alpha * (SMALLEST_BETA if self.beta is None else self.beta)

    @property
    def stages(self) -> tuple[float, float]:
        """When plans begin, and when alpha is reached."""
        return self.warmup, max(self.warmup, self.ramp)

    def alpha_at(self, progress: float) -> float:
        """Return the mass to move after a share `progress` of the training; never above `alpha`."""
        start = min(self.alpha_start, self.alpha)
        length = self.ramp - self.warmup
        done = min(max(progress - self.warmup, 0.0) / length, 1.0) if length > 0 else 1.0
        return min(start + (self.alpha - start) * done, self.alpha)

    def _beta_of(self, outputs: Tensor) -> float:
        if self.beta is not None:
            return self.beta
        return believed_beta(predicted_shares(outputs.detach())) if outputs.shape[1] > 1 else PAPER_BETA

    def _eps_of(self, cost: Tensor) -> float | None:
        if self.eps is None or not self.relative_eps:
            return self.eps
        return self.eps * max(float(cost.detach().double().std()), 1e-9)

    def step(self, source: Outputs, labels: Tensor, target: Outputs, progress: float, loss: str) -> Step:
        """Return the loss of one batch, with the plan and the weights held fixed."""
        if progress < self.warmup:
            return SourceOnly().step(source, labels, target, progress, loss)
        cost = joint_cost(
            source.features, labels, target.features, target.logits, eta1=self.eta1, eta2=self.eta2, loss=loss
        )
        n, alpha = len(labels), self.alpha_at(progress)
        capacity = np.full(n, 1.0 / (self._beta_of(target.logits) * n))
        # A plan short of its tolerance is still feasible; the log shows it, training goes on.
        solution = solve_partial(cost.detach(), a=capacity, mass=alpha, eps=self._eps_of(cost), throw=False)
        plan, p = solution.plan, plan_weights(solution.plan)
        weights = normalized(p) if self.normalize_weights else p
        classification = (weights * supervised(source.logits, labels, loss)).sum()
        transport = (plan * cost).sum()
        total = classification + self.loss_scale * transport
        if self.entropy:
            total = total + self.entropy * mean_entropy(target.logits)
        metrics = {
            "classification": classification.detach(),
            "transport": transport.detach(),
            "mean_cost": cost.detach().mean(),
            "alpha": alpha,
            "plan_ok": float(solution.status.ok),
        }
        return Step(total, weights, metrics)

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: str
    ) -> Solution[csr_array]:
        """Return the exact plan over all pairs."""
        n, m = costs.shape
        cost = costs.joint(labels, outputs, eta1=self.eta1, eta2=self.eta2, loss=loss)
        alpha = self.alpha_at(progress)
        return solve_partial_points(
            np.arange(n),
            np.arange(m),
            beta=self._beta_of(outputs),
            mass=alpha,
            cost=cost,
            progress_bar=False,
            throw=False,
        )
