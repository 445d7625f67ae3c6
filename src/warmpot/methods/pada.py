"""PADA: adversarial alignment in which classes that the target lacks count less."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from warmpot.methods.adversarial import DELTA, TLL, Adversarial, DiscriminatorMemory, domain_losses
from warmpot.methods.base import BatchContext, Setup, StepResult
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.nets import Discriminator
from warmpot.weights import normalized

__all__ = ["Pada"]


@dataclass(frozen=True)
class Pada(Adversarial[DiscriminatorMemory]):
    """Minimise ``wCE(c) + adversarial L_adv``.

    Specification: docs/method-specifications.md, PADA.

    The weights c of the source samples are the shares of the target in their class (`ClassShare` with a low
    temperature), divided by the largest in the batch.
    ``L_adv = (mean_i c_i l(f_i, 1) + mean_i c_i mean_j l(f_j, 0)) / 2``, where l is the cross-entropy of a
    discriminator between the domains. The discriminator descends on it. The features ascend, through a reversed
    gradient that grows with the step (`slope`, `horizon`, `ceiling`).

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library. Deviations:

    - The shares are computed from all target samples in their test view; in the library from random views, without the
      last incomplete batch.
    - The shares are divided by the largest of all classes, as in the library; in the authors' first code by the largest
      in the batch, and here too with weights that every batch has its own of.
    - The target counts the batch mean of c, as in the library; 1 in the authors' first code, where the ceiling of the
      reversal, the learning rate and the temperature are tuned for every task.
    - The discriminator's loss is computed from logits, not from a sigmoid whose logarithm is cut off at -100.
    - The discriminator starts from Xavier-normal weights and zero biases; there from PyTorch's default.
    - On ImageNet-Caltech the head starts from random weights; there from the classifier that the backbone was trained
      with.
    - The library reports the best checkpoint by target labels; we report the last iterate.

    References
    ----------
    Cao, Ma, Long, Wang, "Partial adversarial domain adaptation", ECCV 2018.
    """

    name: ClassVar[str] = "pada"
    summary: ClassVar[str] = "adversarial: classes weighted by how often the target is predicted as them"
    reference: ClassVar[str] = "Cao et al., ECCV 2018"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")
    weights: ClassVar[str] = "class_share"

    def make_memory(self, setup: Setup) -> DiscriminatorMemory:
        """Make the discriminator of features, with BatchNorm."""
        return DiscriminatorMemory(Discriminator(setup.width, self.hidden, seed=setup.seed, batch_norm=True))

    def step(self, context: BatchContext, memory: DiscriminatorMemory) -> StepResult:
        """Return the loss of one batch; the discriminator learns from the same."""
        source, target, weights = context.source, context.target, context.given_weights
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        strength = self.strength(context.progress)
        losses = domain_losses(memory.discriminator, source.features, target.features, strength)
        counts = weights.detach().to(losses[0].dtype)
        largest = counts.max() if context.largest_weight is None else context.largest_weight.to(counts)
        counts = counts / largest.clamp_min(torch.finfo(counts.dtype).tiny)
        adversarial = ((counts * losses[0]).mean() + counts.mean() * losses[1].mean()) / 2.0
        total = classification + self.adversarial * adversarial
        return StepResult.of(
            total, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, reversal=strength,
        )  # fmt: skip
