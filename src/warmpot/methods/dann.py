"""DANN: features on which a discriminator cannot tell the domains apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warmpot.methods.adversarial import DELTA, TLL, Adversarial, DiscriminatorMemory, domain_loss, mean_one
from warmpot.methods.base import BatchContext, Setup, StepResult
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.nets import Discriminator
from warmpot.weights import normalized

__all__ = ["Dann"]


@dataclass(frozen=True)
class Dann(Adversarial[DiscriminatorMemory]):
    """Minimise ``wCE(w) + adversarial L_adv``; all classes of the source are aligned.

    Specification: docs/method-specifications.md, DANN.

    ``L_adv = (mean_i w_i l(f_i, 1) + mean_j l(f_j, 0)) / 2``, where l is the cross-entropy of a discriminator between
    the domains, and the weights w have mean 1 in a batch (equal weights in the paper). The discriminator descends on
    it. The features ascend, through a reversed gradient that grows with the step (`slope`, `horizon`, `ceiling`).

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library, in its settings for partial targets. Deviations:

    - The discriminator's loss is computed from logits, not from a sigmoid whose logarithm is cut off at -100.
    - The discriminator starts from Xavier-normal weights and zero biases; there from PyTorch's default.
    - On ImageNet-Caltech the head starts from random weights; there from the classifier that the backbone was trained
      with.
    - The library reports the best checkpoint by target labels; we report the last iterate.

    References
    ----------
    Ganin, Ustinova, Ajakan, Germain, Larochelle, Laviolette, Marchand, Lempitsky, "Domain-adversarial training of
    neural networks", JMLR 2016.
    """

    name: ClassVar[str] = "dann"
    summary: ClassVar[str] = "adversarial: a discriminator between the domains, all classes aligned"
    reference: ClassVar[str] = "Ganin et al., JMLR 2016"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("adversarial",)

    def make_memory(self, setup: Setup) -> DiscriminatorMemory:
        """Make the discriminator of features, with BatchNorm."""
        return DiscriminatorMemory(Discriminator(setup.width, self.hidden, seed=setup.seed, batch_norm=True))

    def step(self, context: BatchContext, memory: DiscriminatorMemory) -> StepResult:
        """Return the loss of one batch; the discriminator learns from the same."""
        source, target, weights = context.source, context.target, context.given_weights
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        strength = self.strength(context.progress)
        adversarial = domain_loss(memory.discriminator, source.features, target.features, strength, mean_one(weights))
        total = classification + self.adversarial * adversarial
        return StepResult.of(
            total, normalized(weights, DELTA), classification=classification, adversarial=adversarial, reversal=strength
        )
