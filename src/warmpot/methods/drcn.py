"""DRCN: a residual block corrects target features, class by class, towards the source."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot._checks import check_nonnegative, check_positive
from warmpot.errors import InputError
from warmpot.losses import at_least_float32
from warmpot.methods.base import OFFICIAL, BatchContext, Memory, Method, Phase, Setup, StepResult
from warmpot.methods.losses import gaussian_kernels, weighted_cross_entropy
from warmpot.nets import Network, ResidualBlock
from warmpot.weights import normalized

__all__ = ["Drcn"]

SOURCE, ADAPT = "source", "adapt"
WIDTH = 1.68
"""Of the one kernel of predictions, as in the official code."""
TINY = 1e-30
"""Keeps quotients by a width or a sum that may be 0 finite."""


class ResidualMemory(Memory):
    """The residual block, and how much of the target each class had in the last pass over it."""

    shares: Tensor
    sums: Tensor
    count: Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.n_target = setup.n_target
        self.residual = ResidualBlock(setup.width, seed=setup.seed)
        self.register_buffer("shares", torch.ones(setup.n_classes))  # over the largest; all alike before a whole pass
        self.register_buffer("sums", torch.zeros(setup.n_classes))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the block."""
        return self.residual.parameters()

    @torch.no_grad()
    def see(self, probabilities: Tensor) -> None:
        """Add predictions; whenever as many samples as the target has were seen, their sums become the shares."""
        rows = probabilities.to(self.sums.dtype)
        while len(rows):
            part = rows[: self.n_target - int(self.count)]
            self.sums += part.sum(dim=0)
            self.count += len(part)
            if int(self.count) == self.n_target:
                self.shares.copy_(self.sums / self.sums.max().clamp_min(TINY))
                self.sums.zero_()
                self.count.zero_()
            rows = rows[len(part) :]


@dataclass(frozen=True)
class Drcn(Method[ResidualMemory]):
    """Minimise ``wCE(w) + joint MMD(source, r(target)) + by_class sum_k g_k MMD_k``.

    Specification: docs/method-specifications.md, DRCN.

    ``r(f) = f + block(f)`` corrects the features of target samples, and predicts: ``p'`` are the predictions at r(f).

    The first distance is that of pairs (feature, prediction), with the product of the two kernels; the second that of
    features of source samples of class k to those of target samples with ``p'_k > threshold``, each multiplied by its
    ``p'_k`` (no gradient goes through that factor). ``g_k`` is the sum of ``p'_k`` over the last whole pass over the
    target, divided by the largest of all classes; 1 in the first pass.

    Both are linear in the batch, with neighbours i and i + 1 (the last one's is the first):
    ``sum_i K(s_i, s_i+1) + K(t_i, t_i+1) - K(s_i, t_i+1) - K(s_i+1, t_i)``, divided by n for the pairs, by
    ``n_k + sum p'_k`` for a class. The kernel of features is a sum of 5 Gaussians ``exp(-d^2 / (2^j h))``,
    j = -2 ... 2, where h is the mean square distance of all samples; that of predictions is ``exp(-d^2 / 1.68)``.

    The source alone is trained first.

    Attributes
    ----------
    joint, by_class : float
        Weights of the two distances.
    threshold : float
        Least probability with which a target sample counts for a class.
    pretrain : float
        Share of the steps on the source alone.

    Notes
    -----
    Reproduction of the official code's objective, which has Office-31 only. Deviations:

    - The sums of a class are as in the official code, also where it pairs samples differently than its formula says:
      t_i is row ``m_k + i`` of the stacked source and target samples of the class, not row ``n_k + i``. The two differ
      where a class has different numbers of samples in the two batches, n_k and m_k.
    - Batches of different size are cut to the smaller one in the joint distance; the official ones are equal.
    - Weights start as in all our networks (Xavier), those of the block as in the official code.
    - The official run starts from a saved model that was trained on the source for 500 steps; here this is a phase. As
      there, target batches pass the network in it, which BatchNorm sees, and the second has an optimiser of its own.
    - The official code predicts by the mean over ten crops, and prints the accuracy of every 500 steps; we report the
      last iterate, on one crop.
    - With other weights than uniform ones, the cross-entropy has them.

    References
    ----------
    Li, Liu, Lin, Wen, Su, Huang, Ding, "Deep residual correction network for partial domain adaptation", TPAMI 2021.
    """

    name: ClassVar[str] = "drcn"
    summary: ClassVar[str] = "a residual block corrects target features towards the source classes that it has"
    reference: ClassVar[str] = "Li et al., TPAMI 2021"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("moments", "partial")

    joint: float = 0.1
    by_class: float = 0.05
    threshold: float = 0.4
    pretrain: float = 500 / 11500

    def __post_init__(self) -> None:
        for name in ("joint", "by_class"):
            check_nonnegative(name, getattr(self, name))
        check_positive("threshold", self.threshold, maximum=1.0)
        check_nonnegative("pretrain", self.pretrain, maximum=1.0)
        if self.pretrain == 1:
            raise InputError("pretrain", got="1", allowed="a share below 1", remedy="Leave steps that adapt.")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Train on the source, with the target in BatchNorm; then adapt, with a new optimiser."""
        # Without the first phase there is no other optimiser: the steps before are those of the common loop.
        second = Phase(ADAPT, restarts_decay=True, restarts_momentum=self.pretrain > 0)
        return Phase(SOURCE, self.pretrain, adapts=False), second

    def make_memory(self, setup: Setup) -> ResidualMemory:
        """Make the residual block of features."""
        return ResidualMemory(setup)

    def final_network(self, memory: ResidualMemory, network: Network) -> Network:
        """Leave the block with the network."""
        like = next(network.head.parameters())
        network.residual = copy.deepcopy(memory.residual).to(like.device, like.dtype)
        return network

    def step(self, context: BatchContext, memory: ResidualMemory) -> StepResult:
        """Return the loss of the phase."""
        source, weights = context.source, context.given_weights
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=TINY)
        if context.progress.phase == SOURCE:
            return StepResult.of(classification, normalized(weights, TINY))
        n = len(source.features)
        # Both domains pass the block, so that its BatchNorm sees both, as in the official code.
        corrected = at_least_float32(memory.residual(torch.cat([source.features, context.target.features])))[n:]
        probabilities = torch.softmax(_applied(context.head, corrected), dim=1)
        memory.see(probabilities.detach())
        features, predicted = at_least_float32(source.features), torch.softmax(at_least_float32(source.logits), dim=1)
        joint = _joint_distance(features, predicted, corrected, probabilities)
        by_class = self._class_distances(features, context.labels, corrected, probabilities.detach(), memory.shares)
        total = classification + self.joint * joint + self.by_class * by_class
        return StepResult.of(
            total, normalized(weights, TINY), classification=classification, joint=joint, by_class=by_class
        )

    def _class_distances(
        self, source: Tensor, labels: Tensor, target: Tensor, probabilities: Tensor, shares: Tensor
    ) -> Tensor:
        total = source.new_zeros(())
        for k in sorted(set(labels.tolist())):
            chosen = probabilities[:, k] > self.threshold
            if bool(chosen.any()):
                counts = probabilities[chosen, k]
                of_class = source[labels == k]
                rows = torch.cat([of_class, counts[:, None] * target[chosen]])
                n, m = len(of_class), len(counts)
                distance = _neighbour_sum(_feature_kernel(rows), (rows[:n],), (rows[m : m + n],))
                total = total + shares[k].to(total.dtype) * distance / (n + counts.sum())
        return total


def _applied(head: nn.Linear, features: Tensor) -> Tensor:
    """Apply the head, and train it; features may have another precision than the head: Fabric returns float32."""
    return functional.linear(features, head.weight.to(features.dtype), head.bias.to(features.dtype))


Kernel = Callable[..., Tensor]
"""Of the parts of one sample of each pair, and those of the other: (n,) values."""


def _feature_kernel(rows: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Make the sum of Gaussians whose widths follow the mean square distance of all rows; no gradient through that."""
    centred = rows.detach() - rows.detach().mean(dim=0)
    return gaussian_kernels(2.0 * centred.square().sum() / max(len(rows) - 1, 1))


def _joint_distance(source: Tensor, predicted: Tensor, target: Tensor, probabilities: Tensor) -> Tensor:
    of_features = _feature_kernel(torch.cat([source, target]))

    def kernel(f: Tensor, p: Tensor, g: Tensor, q: Tensor) -> Tensor:
        return of_features(f, g) * torch.exp(-(p - q).square().sum(dim=1) / WIDTH)

    n = min(len(source), len(target))
    return _neighbour_sum(kernel, (source[:n], predicted[:n]), (target[:n], probabilities[:n])) / n


def _neighbour_sum(kernel: Kernel, s: tuple[Tensor, ...], t: tuple[Tensor, ...]) -> Tensor:
    """Sum ``K(s_i, s_i+1) + K(t_i, t_i+1) - K(s_i, t_i+1) - K(s_i+1, t_i)`` over i."""
    next_s, next_t = (tuple(part.roll(-1, dims=0) for part in parts) for parts in (s, t))
    return (kernel(*s, *next_s) + kernel(*t, *next_t) - kernel(*s, *next_t) - kernel(*next_s, *t)).sum()
