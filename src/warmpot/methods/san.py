"""SAN: one discriminator per class, each reversed as strongly as its class is predicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DELTA, Adversarial, DiscriminatorMemory, mean_one
from warmpot.methods.base import OFFICIAL, BatchContext, Setup, StepResult
from warmpot.methods.losses import mean_entropy, weighted_cross_entropy
from warmpot.nets import ClassDiscriminators, reverse_gradient
from warmpot.weights import normalized

__all__ = ["San"]


@dataclass(frozen=True)
class San(Adversarial[DiscriminatorMemory]):
    """Minimise ``wCE(w) + adversarial (sum_k L_k + entropy mean H(p))``, H over both batches.

    Specification: docs/method-specifications.md, SAN.

    There is a discriminator for each class k. Its input is ``p_k f``, the feature times the predicted probability of
    the class, through which no gradient goes. ``L_k = (sum_i w_i l_k(p_ik f_i, 1) + sum_j l_k(p_jk f_j, 0)) / (n + m)``
    is its cross-entropy between the domains; the weights w have mean 1 in a batch (equal weights in the paper). The
    discriminators descend on it. The features ascend, through a reversed gradient that grows with the step (`slope`,
    `horizon`, `ceiling`), and is multiplied by the weight of the class: the mean of p over both batches, divided by
    that of the largest class. A class that is hardly predicted hardly moves the features.

    Attributes
    ----------
    entropy : float
        Weight of the mean entropy of the predictions on both domains (official: .2, 1 on ImageNet-Caltech).
    layers : int
        Hidden layers of each discriminator (official: 2, and none on ImageNet-Caltech).

    Notes
    -----
    Reproduction of the official code's objective, that of SAN, the predecessor of SAN++. Deviations:

    - The weights of the classes act on the reversed gradient only, as in the official code; in the paper they multiply
      the losses, and come from the target alone.
    - There are no official settings for Office-Home; the preset has those of Office-31.
    - Losses of discriminators are computed from logits, not from a sigmoid whose logarithm is cut off at -100; the
      entropy includes probabilities below 1e-6.
    - Bottleneck, head and discriminators start from Xavier-normal weights and zero biases; the official ones from
      normal ones of standard deviation .005, .01 and .01 (.3 in the last layer).
    - On ImageNet-Caltech the head starts from Xavier-normal weights; officially from the classifier that the backbone
      was trained with.
    - The official reversal is one step ahead. The official number is of the best checkpoint by target labels, with ten
      crops; we report the last iterate with one.

    References
    ----------
    Cao, Long, Wang, Jordan, "Partial transfer learning with selective adversarial networks", CVPR 2018.
    """

    name: ClassVar[str] = "san"
    summary: ClassVar[str] = "adversarial: a discriminator per class, reversed as strongly as the class is predicted"
    reference: ClassVar[str] = "Cao et al., CVPR 2018"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")

    slope: float = 10.0
    horizon: int = 10000
    entropy: float = 0.2
    layers: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("entropy", self.entropy)
        check_count("layers", self.layers, minimum=0)

    def make_memory(self, setup: Setup) -> DiscriminatorMemory:
        """Make a discriminator per class, with dropout."""
        sizes = setup.n_classes, setup.width, self.hidden
        return DiscriminatorMemory(ClassDiscriminators(*sizes, layers=self.layers, seed=setup.seed))

    def step(self, context: BatchContext, memory: DiscriminatorMemory) -> StepResult:
        """Return the loss of one batch; the discriminators learn from the same."""
        source, target, weights = context.source, context.target, context.given_weights
        logits = torch.cat([source.logits, target.logits])
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        strength, entropy = self.strength(context.progress), mean_entropy(logits)
        features = at_least_float32(torch.cat([source.features, target.features]))
        losses = self._losses(memory, features, logits.detach(), len(weights), strength)
        counts = torch.cat([mean_one(weights), weights.new_ones(len(target.features))]).to(losses.dtype)
        adversarial = (counts * losses).mean(dim=1).sum()
        total = classification + self.adversarial * (adversarial + self.entropy * entropy)
        return StepResult.of(
            total, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, entropy=entropy, reversal=strength,
        )  # fmt: skip

    def _losses(self, memory: DiscriminatorMemory, features: Tensor, logits: Tensor, n: int, strength: float) -> Tensor:
        """Return the loss of every discriminator and sample, (C, n + m); the first n samples are of the source."""
        predictions = torch.softmax(at_least_float32(logits), dim=1).to(features.dtype)
        share = predictions.mean(dim=0)
        ceilings = (share / share.max())[:, None, None]
        inputs = reverse_gradient(predictions.T[:, :, None] * features[None], strength * ceilings)
        judged = at_least_float32(memory.discriminator(inputs))
        return torch.cat([functional.softplus(-judged[:, :n]), functional.softplus(judged[:, n:])], dim=1)
