"""ETN: source samples weighted by how an auxiliary classifier with a leak assigns them to the target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DELTA, Adversarial, WeigherMemory, domain_losses, mean_one
from warmpot.methods.base import OFFICIAL, BatchContext, Setup, StepResult
from warmpot.methods.losses import mean_entropy, weighted_cross_entropy
from warmpot.nets import Discriminator
from warmpot.weights import normalized
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["Etn", "leaky_losses"]

SMALLEST_MEAN = 1e-10
"""Added to the mean of the weights, as in the official code."""
SUREST = 1.0 - 1e-7
"""Largest probability whose complement has a logarithm: float32 has no number between the next one and 1."""


def leaky_losses(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return domain logits and label losses of a softmax that leaks, both (n,).

    The leaky softmax of C scores l is ``p_k = exp(l_k) / (sum exp(l) + C)``; its sum, below 1, is the probability of
    being a source sample. The loss is the sum of the C binary cross-entropies of p against the one-hot label.
    """
    scores = at_least_float32(scores)
    leak = math.log(scores.shape[1])
    total = torch.logsumexp(scores, dim=1)
    log_p = scores - torch.logaddexp(total, torch.full_like(total, leak))[:, None]
    right = functional.one_hot(labels, scores.shape[1]).bool()
    others = torch.log1p(-log_p.exp().clamp_max(SUREST)).masked_fill(right, 0.0)
    return total - leak, -log_p[right] - others.sum(dim=1)


@dataclass(frozen=True)
class Etn(Adversarial[WeigherMemory]):
    """Minimise ``wCE(w) + adversarial L_adv(w) + entropy mean_j H(p_j) + auxiliary L_domain + labels L_label``.

    Specification: docs/method-specifications.md, ETN.

    ``L_adv(w) = mean_i w_i l(f_i, 1) + mean_j l(f_j, 0)``, where l is the cross-entropy of a discriminator between the
    domains. The discriminator descends on it. The features ascend, through a reversed gradient that grows with the step
    (`slope`, `horizon`, `ceiling`).

    An auxiliary classifier has scores l of every class, and the probabilities ``p_k = exp(l_k) / (sum exp(l) + C)``,
    whose sum d is the probability of being a source sample. It learns the labels of the source (``L_label``, the sum of
    C binary cross-entropies) and the domains (``L_domain``, that of d); the features do not receive its gradient. The
    weights are ``w_i = (1 - d_i) / mean``: large for source samples that it takes for target samples. Another weighting
    replaces w.

    Attributes
    ----------
    entropy : float
        Weight of the mean entropy of target predictions.
    auxiliary, labels : float
        Weights of the two losses of the auxiliary classifier.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The official counter of the reversal advances with every pass, twice in a step, towards a horizon of 10000; ours
      counts steps, and the horizon is 5000.
    - Losses are computed from logits and logarithms; the official ones from probabilities, whose logarithms are cut off
      at -100.
    - Balanced batches have equally many samples of every class; the official ones are drawn with these frequencies.
    - Discriminators start from Xavier-normal weights and zero biases; the official ones from PyTorch's default.
    - Images keep their aspect ratio in the official code, and its first BatchNorm stays in evaluation mode.
    - The official number is of the best checkpoint by target labels; we report the last iterate.

    References
    ----------
    Cao, You, Long, Wang, Yang, "Learning to transfer examples for partial domain adaptation", CVPR 2019.
    """

    name: ClassVar[str] = "etn"
    summary: ClassVar[str] = "adversarial: source samples weighted by an auxiliary classifier with a leak"
    reference: ClassVar[str] = "Cao et al., CVPR 2019"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")
    weights: ClassVar[str] = "own"

    slope: float = 10.0
    horizon: int = 5000
    entropy: float = 0.2
    auxiliary: float = 10.0
    labels: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("entropy", "auxiliary", "labels"):
            check_nonnegative(name, getattr(self, name))

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    def make_memory(self, setup: Setup) -> WeigherMemory:
        """Make the discriminator and the auxiliary classifier, of features, with dropout."""
        discriminator = Discriminator(setup.width, self.hidden, seed=2 * setup.seed)
        sizes = setup.width, self.hidden
        return WeigherMemory(discriminator, Discriminator(*sizes, seed=2 * setup.seed + 1, n_outputs=setup.n_classes))

    def step(self, context: BatchContext, memory: WeigherMemory) -> StepResult:
        """Return the loss of one batch; discriminator and auxiliary classifier learn from the same."""
        source, target, n = context.source, context.target, len(context.labels)
        features = source.features, target.features
        scores = memory.weigher(torch.cat(features).detach())
        of_source, label_losses = leaky_losses(scores[:n], context.labels)
        of_target = torch.logsumexp(at_least_float32(scores[n:]), dim=1) - math.log(scores.shape[1])
        domain = functional.softplus(-of_source).mean() + functional.softplus(of_target).mean()
        if context.weights is None:
            likeness = torch.sigmoid(-of_source.detach())
            weights = likeness / (likeness.mean() + SMALLEST_MEAN)
        else:
            weights = mean_one(context.weights)
        strength = self.strength(context.progress)
        losses = domain_losses(memory.discriminator, *features, strength)
        adversarial = (weights.to(losses[0].dtype) * losses[0]).mean() + losses[1].mean()
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        entropy, label = mean_entropy(target.logits), label_losses.mean()
        total = classification + self.adversarial * adversarial + self.entropy * entropy
        total = total + self.auxiliary * domain + self.labels * label
        return StepResult.of(
            total, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, entropy=entropy, domain=domain, label=label,
            reversal=strength,
        )  # fmt: skip
