"""IWAN: adversarial alignment of the source samples that a second discriminator takes for target samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from warmpot._checks import check_nonnegative
from warmpot.methods.adversarial import DELTA, TLL, Adversarial, WeigherMemory, domain_loss, domain_losses, mean_one
from warmpot.methods.base import BatchContext, Setup, StepResult
from warmpot.methods.losses import mean_entropy, weighted_cross_entropy
from warmpot.nets import Discriminator
from warmpot.weights import normalized
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["Iwan"]

SMALLEST_MEAN = 1e-5
"""Added to the mean of the weights, as in the library."""


@dataclass(frozen=True)
class Iwan(Adversarial[WeigherMemory]):
    """Minimise ``CE + weigher adversarial L_D + adversarial L_D0(w) + entropy mean_j H(p_j)``.

    Specification: docs/method-specifications.md, IWAN.

    ``L_D0(w) = (mean_i w_i l(f_i, 1) + mean_j l(f_j, 0)) / 2``, where l is the cross-entropy of a discriminator D0
    between the domains. D0 descends on it. The features ascend, through a reversed gradient that grows with the step
    (`slope`, `horizon`, `ceiling`). A second discriminator D learns the same without weights (``L_D``), and the
    features do not receive its gradient: the weights are ``w_i = (1 - D(f_i)) / mean``, large for source samples that
    look like target samples. The cross-entropy of the source is not weighted; another weighting replaces w, and weighs
    the cross-entropy as well.

    Attributes
    ----------
    weigher : float
        Weight of the loss of D, relative to that of D0.
    entropy : float
        Weight of the mean entropy of target predictions.

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library (the authors' code is not public). Deviations:

    - The weights come from the pass of D that its loss is computed from; the library makes a second one, with other
      units dropped.
    - Losses of discriminators are computed from logits, not from a sigmoid whose logarithm is cut off at -100.
    - Discriminators start from Xavier-normal weights and zero biases; there from PyTorch's default. On ImageNet-Caltech
      the head starts from random weights; there from the classifier that the backbone was trained with.
    - The entropy is that of the probabilities; there of the probabilities + 1e-5.
    - The library reports the best checkpoint by target labels; we report the last iterate.
    - The paper has one encoder per domain, in two stages; the library and ours have one.

    References
    ----------
    Zhang, Ding, Li, Ogunbona, "Importance weighted adversarial nets for partial domain adaptation", CVPR 2018.
    """

    name: ClassVar[str] = "iwan"
    summary: ClassVar[str] = "adversarial: source samples weighted by a second discriminator"
    reference: ClassVar[str] = "Zhang et al., CVPR 2018"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")
    weights: ClassVar[str] = "own"

    adversarial: float = 3.0
    weigher: float = 1.5
    entropy: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weigher", "entropy"):
            check_nonnegative(name, getattr(self, name))

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    def make_memory(self, setup: Setup) -> WeigherMemory:
        """Make both discriminators of features, with dropout."""
        seeds = 2 * setup.seed, 2 * setup.seed + 1  # they must not be the same network
        return WeigherMemory(*(Discriminator(setup.width, self.hidden, seed=seed) for seed in seeds))

    def step(self, context: BatchContext, memory: WeigherMemory) -> StepResult:
        """Return the loss of one batch; both discriminators learn from the same."""
        source, target = context.source, context.target
        features = source.features, target.features
        losses = domain_losses(memory.weigher, features[0].detach(), features[1].detach(), 0.0)
        weigher = (losses[0].mean() + losses[1].mean()) / 2.0
        if context.weights is None:
            likeness = -torch.expm1(-losses[0].detach())  # 1 - D: the loss is -log D
            weights, of_labels = likeness / (likeness.mean() + SMALLEST_MEAN), torch.ones_like(likeness)
        else:
            weights = of_labels = mean_one(context.weights)
        strength = self.strength(context.progress)
        adversarial = domain_loss(memory.discriminator, *features, strength, weights)
        classification = weighted_cross_entropy(source.logits, context.labels, of_labels, delta=DELTA)
        entropy = mean_entropy(target.logits)
        total = classification + self.adversarial * (self.weigher * weigher + adversarial) + self.entropy * entropy
        return StepResult.of(
            total, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, weigher=weigher, entropy=entropy, reversal=strength,
        )  # fmt: skip
