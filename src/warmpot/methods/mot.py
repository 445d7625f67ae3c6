"""MOT: unbalanced transport between mini-batches within classes only, with a reweighted source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from warmpot._checks import check_nonnegative, check_positive
from warmpot.costs import feature_distance
from warmpot.methods.base import BatchContext, Memory, Method, StepResult
from warmpot.methods.losses import mean_entropy
from warmpot.methods.mpot import transport_step
from warmpot.transport import solve_unbalanced

__all__ = ["Mot", "masked"]


def masked(cost: Tensor, labels: Tensor, logits: Tensor, soft: bool) -> Tensor:
    """Add to the cost of a pair what its mask costs: the mask is the target sample's chance of the source label.

    Hard: a pair whose source label is not the predicted class of the target sample is forbidden (``+inf``). Soft: the
    mask of a pair is the probability of the label, and it costs ``-log`` of it. Detached.
    """
    logs = torch.log_softmax(logits.detach().double(), dim=1)
    if soft:
        return cost.detach().double() - logs[:, labels].T
    same = labels[:, None] == logs.argmax(dim=1)
    return torch.where(same, cost.detach().double(), torch.inf)


@dataclass(frozen=True)
class Mot(Method[Memory]):
    """Minimise ``wCE(w) + loss_scale <P, C> + entropy mean_j H(p_j)``, ``C_ij = eta ||f_i - f_j||^2``.

    The plan P of the batch is masked: it minimises ``<P, C> + eps KL(P | a b') + tau KL(P 1 | a) + tau KL(P' 1 | b)``
    over plans that move mass between a source sample and a target sample of the same (predicted) class only. The
    marginals are relaxed; a are the weights w of the source samples, by class, divided by their sum, and b is
    ``1 / n_t``. No gradient goes through the plan.

    Attributes
    ----------
    tau : float
        Price of marginals that differ from a and b, per unit of their Kullback-Leibler divergence.
    eps : float
        Regularisation, in units of the cost.
    eta : float
        Weight of the squared feature distance.
    loss_scale : float
        Factor of ``<P, C>`` in the loss.
    entropy : float
        Weight of the target's entropy.
    soft : bool
        The mask is the predicted probability of the source label, not the predicted class.

    Notes
    -----
    An interpretation (docs/method-specifications.md, MOT): no code was found, and of the paper only its abstract was
    read. It has transport of conditional distributions by a mask with label information, a correction of the label
    shift, and a relaxed, reweighted formulation. Deviations are not known. Inferred: the mask from pseudo-labels, the
    Kullback-Leibler penalty as relaxation, class shares of the target as weights, the entropy term, and all constants,
    which are those of JUMBOT (whose regulariser is the entropy, not Kullback-Leibler).

    References
    ----------
    Y.-W. Luo, C.-X. Ren, "MOT: masked optimal transport for partial domain adaptation", CVPR 2023.
    """

    name: ClassVar[str] = "mot"
    summary: ClassVar[str] = "unbalanced transport of batches within predicted classes, reweighted source"
    reference: ClassVar[str] = "Luo, Ren, CVPR 2023"
    status: ClassVar[str] = "interpretation: no code was found; mask, relaxation and constants are inferred"
    tags: ClassVar[tuple[str, ...]] = ("transport", "unbalanced", "pseudo-labels", "partial")
    weights: ClassVar[str] = "class_share"

    tau: float = 0.06
    eps: float = 0.01
    eta: float = 0.003
    loss_scale: float = 10.0
    entropy: float = 0.1
    soft: bool = False

    def __post_init__(self) -> None:
        for name in ("tau", "eps", "eta"):
            check_positive(name, getattr(self, name))
        for name in ("loss_scale", "entropy"):
            check_nonnegative(name, getattr(self, name))

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch, with the plan held fixed."""
        source, target = context.source, context.target
        cost = self.eta * feature_distance(source.features, target.features, squared=True)
        weights = context.given_weights.detach()
        a = (weights / weights.sum()).to(cost) if weights.any() else None  # a batch of classes without weight
        # A plan short of its tolerance is still a plan; the log shows it, and training continues.
        solution = solve_unbalanced(
            masked(cost, context.labels, target.logits, self.soft).to(cost), a=a, tau=self.tau, eps=self.eps,
            regularizer="kl", throw=False,
        )  # fmt: skip
        result = transport_step(context, cost, solution, self.loss_scale)
        entropy = mean_entropy(target.logits)
        metrics = {**result.metrics, "entropy": entropy.detach()}
        return result._replace(loss=result.loss + self.entropy * entropy, metrics=metrics)
