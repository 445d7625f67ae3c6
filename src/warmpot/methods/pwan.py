"""PWAN: the target moves towards a part of the source, in the dual of a partial Wasserstein distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional
from torch.optim import Optimizer

from warmpot._checks import check_count, check_fraction, check_nonnegative, check_positive
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    DatasetPass,
    Domain,
    Memory,
    Method,
    PassRequest,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import complement_entropy, mean_entropy, weighted_cross_entropy
from warmpot.nets import Critic, Outputs, gradient_penalty
from warmpot.weights import normalized, predicted_shares

__all__ = ["Pwan"]

LABEL_UNIT = 0.01
"""Length of a label next to the features in the critic's input."""
SLOPE = 0.2
"""Of the critic's units below 0."""


class CriticMemory(Memory):
    """The critic with its own optimiser, and the share of the source that is matched at the start."""

    rho0: Tensor

    def __init__(self, n_inputs: int, hidden: int, lr: float, rho0: float, seed: int) -> None:
        super().__init__()
        self.critic = Critic(n_inputs, hidden, spectral=False, slope=SLOPE, seed=seed)
        self.register_buffer("rho0", torch.tensor(rho0))
        self._optimizer = torch.optim.RMSprop(self.critic.parameters(), lr=lr)

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the critic's."""
        return {"critic": self._optimizer}

    def potential(self, x: Tensor, fixed: bool = False) -> Tensor:
        """Return the potential of the rows, never above 0; if it is fixed, no gradient reaches the critic."""
        constants = {name: p.detach() for name, p in self.critic.named_parameters()} if fixed else {}
        potential: Tensor = -functional_call(self.critic, constants, (x,)).abs()
        return potential


def _matched_share(data: DatasetPass) -> float:
    """Share of the classes that more target samples are predicted as than if all classes were equally frequent.

    The predictor is the nearest class mean, by the cosine, of the source in front of the bottleneck: no training.
    """
    parts = [part.features if part.pooled is None else part.pooled for part in (data.source, data.target)]
    centre, n_classes = parts[0].mean(dim=0), data.network.head.out_features
    source, target = (functional.normalize(part - centre, dim=1) for part in parts)
    labels = data.labels.to(source.device)
    means = source.new_zeros(n_classes, source.shape[1]).index_add_(0, labels, source)
    scores = target @ functional.normalize(means, dim=1).T
    empty = torch.bincount(labels, minlength=n_classes) == 0
    frequent = int((predicted_shares(scores.masked_fill(empty, -torch.inf)) > 1.0 / n_classes).sum())
    return frequent / n_classes if frequent else 1.0  # none: all are equally frequent


@dataclass(frozen=True)
class Pwan(Method[CriticMemory]):
    """Minimise ``wCE(c) + transfer PW_rho + entropy mean_j H(p_j) + complement L_cot``.

    Specification: docs/method-specifications.md, PWAN.

    The weights c of the source samples are the shares of the target predicted as their class (`ClassShare`).
    ``PW_rho = mean_i h(s_i) / rho - mean_j h(t_j)`` at the potential ``h <= 0`` that makes it largest among those of
    slope 1: a partial Wasserstein distance in which the target is matched in full, and the source has the mass
    ``1 / rho`` to do it. Points are features next to .01 times the label (source) or the predicted probabilities
    (target). The critic ``h = -|MLP|`` makes `critic_steps` steps in each training step, with a one-sided gradient
    penalty at the points in the first of them. Only the target moves towards the source: ``h(s_i)`` is a constant in
    the loss.

    Attributes
    ----------
    transfer, entropy, complement : float
        Weights of the terms; ``L_cot`` (`complement_entropy`) does not use c. The official ImageNet-Caltech run has
        complement 0.
    smoothing : float
        Of the labels (official on ImageNet-Caltech: 0).
    rho0 : float or "auto"
        Share of the source mass that is matched at the start. "auto": share of the classes that more than ``1 / C`` of
        the target is predicted as, before the first step.
    kappa : float
        What rho has been multiplied by at the end; at step i of N it is ``rho0 kappa^(i / N)``.
    critic_steps : int
        Official: 5 on Office-Home, 1 on ImageNet-Caltech.
    critic_lr, penalty : float
        Learning rate of the critic's RMSprop, and factor of the gradient penalty.
    hidden : int
        Width of the critic's two hidden layers.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The official estimate of rho0 predicts with a second network, trained for 1000 steps on the source alone
      (Office-Home), or with the stock ImageNet classifier; ours with the nearest class mean in front of the bottleneck.
    - Without balanced sampling the official rho0 is the source mass of the frequent classes; ours counts classes.
    - Gradient norms are taken from the potential of each point itself; the official code scales the batch's gradient
      back, which is the same.
    - Bottleneck, head and critic start from Xavier-normal weights and zero biases, as all our networks; the official
      ones from the defaults of PyTorch.
    - On ImageNet the class weights are taken 48 times, not 480: every time is a pass over the target.
    - The official number is the largest over all evaluations by target labels; we report the last iterate.

    References
    ----------
    Wang, Xue, Lei, Jörnsten, Xia, "Partial distribution matching via partial Wasserstein adversarial networks", 2024
    (arXiv:2409.10499).
    """

    name: ClassVar[str] = "pwan"
    summary: ClassVar[str] = "adversarial: a critic of partial transport moves the target to a part of the source"
    reference: ClassVar[str] = "Wang et al., arXiv 2409.10499, 2024"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("pooled",), "target": ("pooled",)}
    weights: ClassVar[str] = "class_share"

    transfer: float = 0.05
    entropy: float = 0.1
    complement: float = 1.0
    smoothing: float = 0.1
    rho0: float | Literal["auto"] = "auto"
    kappa: float = 0.03162
    critic_steps: int = 5
    critic_lr: float = 1e-4
    penalty: float = 1000.0
    hidden: int = 256

    def __post_init__(self) -> None:
        for name in ("transfer", "entropy", "complement", "penalty"):
            check_nonnegative(name, getattr(self, name))
        check_nonnegative("smoothing", self.smoothing, maximum=1.0)
        if self.rho0 != "auto":
            check_fraction("rho0", self.rho0)
        check_fraction("kappa", self.kappa)
        check_positive("critic_lr", self.critic_lr)
        for name in ("critic_steps", "hidden"):
            check_count(name, getattr(self, name))

    def make_memory(self, setup: Setup) -> CriticMemory:
        """Make the critic."""
        rho0 = 1.0 if self.rho0 == "auto" else self.rho0
        return CriticMemory(setup.width + setup.n_classes, self.hidden, self.critic_lr, rho0, setup.seed)

    def refresh(self, memory: CriticMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Estimate rho0 once."""
        if self.rho0 == "auto" and progress.step == 0:
            memory.rho0.fill_(_matched_share(request()))

    def step(self, context: BatchContext, memory: CriticMemory) -> StepResult:
        """Train the critic, and return the loss of one batch at it."""
        logits, labels, target, weights = context.source.logits, context.labels, context.target, context.given_weights
        known = functional.one_hot(labels, logits.shape[1])
        points = _points(context.source, known), _points(target, target.logits.softmax(dim=1))
        rho = memory.rho0 * self.kappa**context.progress.share
        self._train_critic(memory, points[0].detach(), points[1].detach(), rho)
        classification = weighted_cross_entropy(logits, labels, weights, self.smoothing)
        source_potential, target_potential = (memory.potential(x, True) for x in (points[0].detach(), points[1]))
        transfer = -_gap(source_potential, target_potential, rho)
        entropy, complement = mean_entropy(target.logits), complement_entropy(logits, labels)
        total = classification + self.transfer * transfer + self.entropy * entropy + self.complement * complement
        return StepResult.of(
            total, normalized(weights),
            classification=classification, partial_distance=transfer, entropy=entropy, complement=complement, rho=rho,
        )  # fmt: skip

    def _train_critic(self, memory: CriticMemory, source: Tensor, target: Tensor, rho: Tensor) -> None:
        """Make the critic's steps; gradients go nowhere else, and none is left behind."""
        (optimizer,) = memory.optimizers().values()
        parameters = list(memory.critic.parameters())
        for index in range(self.critic_steps):
            loss = _gap(memory.potential(source), memory.potential(target), rho)
            if index == 0:
                everywhere = torch.cat([source, target])
                loss = loss + self.penalty * gradient_penalty(memory.potential, everywhere, one_sided=True)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()
        optimizer.zero_grad()


def _points(outputs: Outputs, labels: Tensor) -> Tensor:
    """Features next to labels, the critic's input."""
    return torch.cat([outputs.features, LABEL_UNIT * labels.to(outputs.features.dtype)], dim=1)


def _gap(source: Tensor, target: Tensor, rho: Tensor) -> Tensor:
    """Return what the critic minimises: the negative partial distance at its potentials."""
    return target.mean() - source.mean() / rho
