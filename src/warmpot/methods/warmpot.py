"""WARMPOT: weights and alignment from one partial transport plan (the ICML 2025 paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warmpot._checks import check_choice, check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.costs import PairCosts, joint_cost, rms_distance
from warmpot.data import Task
from warmpot.losses import LabelLoss
from warmpot.methods.alternation import Alternation, alternation_size
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    DatasetPass,
    Domain,
    Memory,
    Method,
    PassRequest,
    Phase,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.hypotheses import over_numbers
from warmpot.methods.losses import mean_entropy, ramped
from warmpot.methods.rounds import DatasetPlan, FullSettings
from warmpot.methods.sizes import DataSize
from warmpot.nets import Outputs
from warmpot.nets.network import NARROW
from warmpot.transport import BlockCost, Duals, StepPlan, solve_partial_blocks, step_plan
from warmpot.weights import ClassPresence, estimate_alpha, estimate_beta, estimate_presence, normalized, plan_weights
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["BatchPlan", "ClassMemory", "Warmpot", "plan_over_all"]

PAPER_ALPHA, PAPER_BETA = 0.8, 0.35
"""What "auto" means where there are no classes."""
SAME_STEP = 1e-9
"""Shares of the training that differ by less are the same step: recipes have rounded ones."""
SLACK = 2.0
"""Part of the target that a class can supply in the full engine, over its part if all present classes had the same."""
AUTO_EPS = 0.05
"""Of the standard deviation of the batch's cost."""
SMALLEST_FACTOR = 1e-6
"""Of a class's capacity in a batch."""
LARGE = 10**9
"""Pairs of samples from which on a plan of the full engine may be `COARSE` from the best value, relative to it."""
FINE, COARSE = 1e-9, 1e-3


def plan_over_all(
    cost: BlockCost, *, beta: float, mass: float, supply: FloatArray | None = None, start: Duals | None = None
) -> DatasetPlan:
    """Return the exact partial plan between all samples; one short of its tolerance is still feasible.

    `supply` is a factor of the capacity ``1 / (beta n_s)`` per source sample; `start` are the dual variables of
    an earlier plan, which save time.
    """
    capacity = np.full(cost.shape[0], 1.0 / (beta * cost.shape[0])) if supply is None else supply / (beta * len(supply))
    mass = min(mass, float(capacity.sum()) * (1 - 1e-9))
    tol = FINE if cost.shape[0] * cost.shape[1] < LARGE else COARSE
    options: dict[str, Any] = {"progress_bar": False, "throw": False, "start": start}
    return DatasetPlan(solve_partial_blocks(cost, a=capacity, mass=mass, tol=tol, **options), beta)


class ClassMemory(Memory):
    """A number for every class, estimated from the data before the first step; 1 until then."""

    weights: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        self.register_buffer("weights", torch.ones(n_classes))

    def presence(self, data: DatasetPass) -> ClassPresence:
        """Estimate which classes are in the target, from the inputs of the bottleneck."""
        pooled = [part.pooled for part in (data.source, data.target) if part.pooled is not None]
        xs, xt = (x.double().cpu().numpy() for x in pooled)
        n_classes, unit = len(self.weights), xs.shape[1] >= NARROW
        return estimate_presence(xs, data.labels.cpu(), xt, n_classes=n_classes, unit=unit)


class BatchPlan(NamedTuple):
    """The plan of a batch: its cost (with gradient), the solution, the mass it moves and beta."""

    cost: Tensor
    solution: StepPlan
    alpha: float
    beta: float


@dataclass(frozen=True)
class Warmpot(Method[Memory]):
    """Minimise ``sum_i p_i CE(w(x_i), y_i) + PW_alpha((1/beta) P_source, Q_target)`` (Eq. (19)).

    The plan P of the partial problem with the joint cost is held fixed in the gradient; its row sums are the source
    weights p.

    Attributes
    ----------
    alpha : float or "auto"
        Share of the target mass that is matched at the end of the ramp. "auto": what the predictions expect to be
        matched correctly, again for every plan (`estimate_alpha`, ours); .8 in regression.
    beta : float or "auto"
        Share of the source that matters: a source sample has capacity ``1 / (beta n_s)``. "auto" (ours): from the
        probabilities of the classes to be in the target (`estimate_presence`), which are factors of the capacities
        too; in batches they are estimated once, before the first step, and averaged over the numbers of classes that
        the full engine tries (`over_numbers`); .35 in regression.
    eta1 : float or "auto"
        Weight of the feature distance in the cost *of the plan*. "auto": such that a pair at random is sqrt(2) apart,
        as two features of length 1 are (ours); for features whose units are not fixed.
    eta2 : float
        Weight of the label loss, which has a unit of its own, the nat.
    eps : float, "auto" or None
        Entropic regularisation of the batch plan, in units of that cost; None: the exact plan. "auto": .05 of the
        standard deviation of the batch's cost (ours): a plan cannot flatten because the features shrink, nor harden
        because the losses grow. The full engine's plan is always exact.
    loss_scale : float
        Factor of ``<P, C>`` in the loss. The paper's (eta1, eta2) are the products of the code's with its .25.
    normalize_weights : bool
        Divide p by its sum in the source loss (the authors' code); False: p as in the paper's formula.
    entropy : float
        Weight of the mean entropy of target predictions (the authors' ImageNet-Caltech code: .1).
    alpha_start, ramp : float
        Alpha grows linearly from `alpha_start` to `alpha` over the share `ramp` of the training.
    ramp_rule : "linear" or "code"
        "linear": as the paper says, never above alpha. "code": the authors' code, ``alpha_start + alpha i / r`` up to
        and with the last step r of the ramp, at most 1: above the line throughout, and by `alpha_start` at its end,
        after which it drops to alpha.

    Notes
    -----
    Deviations from paper and code (docs/theory.md, Paper, code and package): the code's ramp overshoots alpha by .01 at
    its last step, ours never exceeds alpha, unless ``ramp_rule: code``; the code solves with 1000 fixed iterations in
    numpy, ours to a duality gap; the code reports the best evaluation by target labels, we report the last iterate.
    """

    name: ClassVar[str] = "warmpot"
    summary: ClassVar[str] = "partial transport: source weights and alignment from one plan"
    reference: ClassVar[str] = "Naram, Hellström, Wang, Jörnsten, Durisi, ICML 2025"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("transport", "partial")
    engines: ClassVar[tuple[str, ...]] = ("full", "minibatch")
    regression: ClassVar[bool] = True
    weights: ClassVar[str] = "own"
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("pooled",), "target": ("pooled",)}

    alpha: float | Literal["auto"] = 0.8
    beta: float | Literal["auto"] = 0.35
    eta1: float | Literal["auto"] = 0.5
    eta2: float = 7.0
    eps: float | Literal["auto"] | None = 7.0
    loss_scale: float = 0.25
    normalize_weights: bool = True
    entropy: float = 0.0
    alpha_start: float = 0.01
    ramp: float = 0.5
    ramp_rule: str = "linear"

    def __post_init__(self) -> None:
        check_choice("ramp_rule", self.ramp_rule, ("linear", "code"))
        for name in ("alpha", "beta"):
            if getattr(self, name) != "auto":
                check_fraction(name, getattr(self, name))
        check_fraction("alpha_start", self.alpha_start)
        for name in ("eta2", "loss_scale", "entropy"):
            check_nonnegative(name, getattr(self, name))
        if self.eta1 != "auto":
            check_nonnegative("eta1", self.eta1)
            check_positive("eta1 + eta2", self.eta1 + self.eta2, remedy="The cost must not be 0 everywhere.")
        check_nonnegative("ramp", self.ramp, maximum=1.0)
        if self.eps is not None and self.eps != "auto":
            check_positive("eps", self.eps, remedy="Pass a positive number, or null for the exact plan.")

    @property
    def expected_share(self) -> float:
        """Share of the source samples that carry the plan when each is used in full."""
        alpha = self.alpha_start if self.alpha == "auto" else self.alpha
        return alpha * (SMALLEST_BETA if self.beta == "auto" else self.beta)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Alpha grows, then it is constant."""
        return Phase("ramp", self.ramp), Phase("constant")

    def alpha_at(self, progress: float, alpha: float) -> float:
        """Return the mass to move after a share `progress` of the training, on the way to `alpha`."""
        if self.ramp_rule == "code" and self.ramp > 0 and progress <= self.ramp + SAME_STEP and progress < 1:
            return min(self.alpha_start + alpha * progress / self.ramp, 1.0)
        return ramped(self.alpha_start, alpha, progress, self.ramp)

    def supply(
        self, outputs: Tensor, labels: Tensor, presence: FloatArray | None = None
    ) -> tuple[float, FloatArray | None]:
        """Return beta, estimated if it is not given, and factors of the classes' capacities ``1 / (beta n_s)``.

        With the probabilities of the classes and an automatic beta, the factors are the probabilities, and beta is such
        that a class can supply twice its part if all classes that are present had the same share: they rarely do.
        """
        codes = labels.cpu().numpy()
        if self.beta != "auto":
            return self.beta, None
        if presence is None:
            return estimate_beta(outputs, codes) if outputs.shape[1] > 1 else PAPER_BETA, None
        return max(float(presence[codes].mean()) / SLACK, 1 / len(codes)), presence

    def mass(
        self, outputs: Tensor, labels: Tensor, progress: float, beta: float, supply: FloatArray | None = None
    ) -> float:
        """Return the mass to move, estimated if alpha is not given; `beta` and `supply` are what `supply` returns."""
        alpha = self.alpha
        if alpha == "auto":
            outputs = outputs.detach()
            probabilities = outputs.double().softmax(dim=1).cpu().numpy() if outputs.shape[1] > 1 else None
            alpha = PAPER_ALPHA if probabilities is None else estimate_alpha(probabilities, labels.cpu(), beta, supply)
        return self.alpha_at(progress, alpha)

    def _eta1_of(self, rms: float) -> float:
        return math.sqrt(2.0) / max(rms, 1e-30) if self.eta1 == "auto" else self.eta1

    def _eps_of(self, cost: Tensor) -> float | None:
        if self.eps == "auto":
            return AUTO_EPS * max(float(cost.detach().double().std(correction=0)), 1e-9)
        return self.eps

    def make_memory(self, setup: Setup) -> Memory:
        """Remember the factors of the classes, if beta follows from them."""
        return ClassMemory(setup.n_classes) if self.beta == "auto" and setup.n_classes > 1 else Memory()

    def refresh(self, memory: Memory, progress: TrainProgress, request: PassRequest) -> None:
        """Estimate the classes before the first step."""
        if isinstance(memory, ClassMemory) and progress.step == 0:
            # no evidence tells the numbers of classes apart yet: no class is ruled out
            memory.weights.copy_(torch.from_numpy(over_numbers(memory.presence(request())).probability))

    def batch_plan(
        self, source: Outputs, labels: Tensor, target: Outputs, progress: float, loss: LabelLoss,
        presence: FloatArray | None = None,
    ) -> BatchPlan:  # fmt: skip
        """Solve the plan of a batch; no gradient goes through it. `presence` are as in `supply`."""
        eta1 = self._eta1_of(rms_distance(source.features, target.features) if self.eta1 == "auto" else 1.0)
        cost = joint_cost(source.features, labels, target.features, target.logits, eta1=eta1, eta2=self.eta2, loss=loss)
        beta, supply = self.supply(target.logits.detach(), labels, presence)
        alpha = self.mass(target.logits, labels, progress, beta, supply)
        factors = np.ones(len(labels)) if supply is None else supply[labels.cpu().numpy()]
        # of a batch without a class that is in the target, little is matched
        capacity = np.maximum(factors, SMALLEST_FACTOR) / (beta * len(labels))
        alpha = min(alpha, float(capacity.sum()) * (1 - 1e-9))
        # A plan short of its tolerance is still feasible; the log shows it, and training continues.
        solution = step_plan(cost.detach(), capacity, mass=alpha, eps=self._eps_of(cost))
        return BatchPlan(cost, solution, alpha, beta)

    def step(self, context: BatchContext, memory: Memory) -> StepResult:
        """Return the loss of one batch, with the plan and the weights held fixed."""
        source, labels, target, loss = context.source, context.labels, context.target, context.loss
        presence = memory.weights.double().cpu().numpy() if isinstance(memory, ClassMemory) else None
        cost, solution, alpha, beta = self.batch_plan(source, labels, target, context.progress.share, loss, presence)
        plan, p = solution.plan, plan_weights(solution.plan) if context.weights is None else context.weights
        weights = normalized(p) if self.normalize_weights or context.weights is not None else p
        classification = (weights * loss.per_sample(source.logits, labels)).sum()
        transport = (plan * cost).sum()
        total = classification + self.loss_scale * transport
        if self.entropy:
            total = total + self.entropy * mean_entropy(target.logits)
        return StepResult.of(
            total, weights, classification=classification, transport=transport, mean_cost=cost.mean(),
            alpha=alpha, beta=beta, plan_ok=float(solution.status.ok),
        )  # fmt: skip

    def plan(
        self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: LabelLoss,
        presence: FloatArray | None = None, start: Duals | None = None,
    ) -> DatasetPlan:  # fmt: skip
        """Return the exact plan over all pairs.

        With `presence` and an automatic beta, a class can supply what the target is expected to have of it, and an
        absent one nothing (`supply`).
        """
        cost = costs.joint(labels, outputs, eta1=self._eta1_of(costs.rms), eta2=self.eta2, loss=loss)
        beta, supply = self.supply(outputs, labels, presence)
        alpha = self.mass(outputs, labels, progress, beta, supply)
        supply = None if supply is None else supply[labels.numpy()]
        return plan_over_all(cost, beta=beta, mass=alpha, supply=supply, start=start)

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> Alternation:
        """Solve the plan over all pairs, refit the classifier, and repeat."""
        return Alternation(self, task, settings, loss, seed)

    def data_size(self, task: Task, settings: FullSettings) -> DataSize:
        """Return the sizes of the alternation."""
        return alternation_size(self, task, settings)
