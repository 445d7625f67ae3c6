"""BA3US: adversarial alignment with a balanced, class-weighted source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative
from warmpot.methods.adversarial import DiscriminatorMemory
from warmpot.methods.base import OFFICIAL, BatchContext, BatchSpec, Method, Setup, StepResult, TrainProgress
from warmpot.methods.losses import (
    complement_entropy,
    mean_entropy,
    reversal_strength,
    sample_entropy,
    weighted_cross_entropy,
)
from warmpot.nets import Discriminator, Outputs, reverse_gradient
from warmpot.weights import normalized

__all__ = ["Ba3us", "BalancedAdversarial"]

D = TypeVar("D", bound=DiscriminatorMemory)

EXTRA = "augmentation"
"""Name of the further source batch that fills up the target."""
DELTA = 1e-8
"""Of the weighted mean, as in the official code."""


@dataclass(frozen=True)
class BalancedAdversarial(Method[D]):
    """A method with the terms of BA3US, which others add to (ISRA).

    Attributes
    ----------
    adversarial, entropy, complement : float
        Weights of the terms. The official runs have complement 1 on Office-Home and ImageNet-Caltech, 5 on Office-31.
    augmentation : float
        Size of the further source batch at the start, as a share of the source batch.
    periods : int
        It shrinks with each of this many equal periods of the training, to a `periods`-th of that in the last.
    slope : float
        How fast the reversal comes up.
    hidden : int
        Width of the discriminator's two hidden layers.
    """

    adversarial: float = 1.0
    entropy: float = 0.1
    complement: float = 1.0
    augmentation: float = 0.25
    periods: int = 10
    slope: float = 10.0
    hidden: int = 1024

    def __post_init__(self) -> None:
        for name in ("adversarial", "entropy", "complement", "slope"):
            check_nonnegative(name, getattr(self, name))
        check_nonnegative("augmentation", self.augmentation, maximum=1.0)
        for name in ("periods", "hidden"):
            check_count(name, getattr(self, name))

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:
        """Return the further source batch, of ``floor(floor(augmentation n) (1 - period / periods))`` samples.

        Examples
        --------
        >>> [Ba3us().extra_batches(TrainProgress(step, 5000), 36)[EXTRA].size for step in (0, 500, 2500, 4499, 4500)]
        [9, 8, 4, 1, 0]
        """
        largest = int(self.augmentation * source_batch)
        return {EXTRA: BatchSpec(largest * (self.periods - progress.period(self.periods)) // self.periods)}

    def balanced_step(self, context: BatchContext, discriminator: nn.Module) -> StepResult:
        """Return the loss of BA3US for one batch; the discriminator learns from the same."""
        logits, labels, weights = context.source.logits, context.labels, context.given_weights
        classification = weighted_cross_entropy(logits, labels, weights, delta=DELTA)
        adversarial = self._adversarial(context, discriminator)
        entropy = mean_entropy(context.target.logits)
        complement = complement_entropy(logits, labels, weights)
        total = classification + self.adversarial * adversarial + self.entropy * entropy + self.complement * complement
        return StepResult.of(
            total, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, entropy=entropy, complement=complement,
        )  # fmt: skip

    def weighed_parts(self, context: BatchContext) -> list[tuple[Outputs, Tensor]]:
        """Return the source batch, the target batch and, if there is one, the further source batch, with weights."""
        weights = context.given_weights
        parts = [(context.source, weights), (context.target, weights.new_ones(len(context.target.features)))]
        extra = context.extra.get(EXTRA)
        if extra is not None and extra.weights is not None:
            parts.append((extra.outputs, extra.weights))
        return parts

    def _adversarial(self, context: BatchContext, discriminator: nn.Module) -> Tensor:
        n, m = len(context.source.features), len(context.target.features)
        parts, shares = zip(*self.weighed_parts(context), strict=True)
        strength = reversal_strength(context.progress.share, self.slope)
        entropies = reverse_gradient(torch.cat([sample_entropy(part.logits) for part in parts]), strength)
        counts = (1.0 + torch.exp(-entropies)) * torch.cat(shares).detach().to(entropies.dtype)
        features = reverse_gradient(torch.cat([part.features for part in parts]), strength)
        judged = discriminator(features).to(entropies.dtype)
        label = torch.zeros_like(judged)
        label[:n] = 1.0  # the further batch plays the target
        of_target = torch.zeros_like(judged, dtype=torch.bool)
        of_target[n : n + m] = True
        # Sums are constants: the gradient goes through the count of each sample only.
        sums = [counts.detach()[which].sum().clamp_min(1e-30) for which in (of_target, ~of_target)]
        counts = counts * torch.where(of_target, 1.0 / sums[0], (len(judged) - m) / n / sums[1])
        losses = functional.binary_cross_entropy_with_logits(judged, label, reduction="none")
        return (counts * losses).sum() / (counts.detach().sum() + DELTA)


@dataclass(frozen=True)
class Ba3us(BalancedAdversarial[DiscriminatorMemory]):
    """Minimise ``wCE(c) + adversarial L_adv + entropy mean_j H(p_j) + complement L_cot``.

    Specification: docs/method-specifications.md, BA3US.

    The weights c of the source samples are the shares of the target predicted as their class (`ClassShare`).

    ``L_adv`` is the cross-entropy of a discriminator between the source batch and the target batch *and a further,
    shrinking source batch*, which fills up the classes that the target lacks. A sample counts by ``v = 1 + exp(-H)``,
    the more the surer its prediction, times c if it is from the source; source samples of both batches together count
    ``1 + n_extra / n``, those of the target 1. The discriminator descends on it. The features ascend, through a
    reversed gradient of strength ``2 / (1 + exp(-slope i / N)) - 1`` at step i of N; so do the predictions, through v.

    ``L_cot`` makes the wrong classes of source samples alike (`complement_entropy`), weighted by c.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The complement of the label is a softmax over the other classes, not a quotient with a guard of 1e-7.
    - The discriminator's loss is taken from logits, not from a sigmoid whose logarithm is cut off at -100.
    - A batch whose weights are all 0 has no source terms; the official code leaves out the whole step.
    - Over several processes the further batch is cut to equal shares.
    - The official reversal of features is one step ahead of that of the entropies; ours is not.
    - The official step at every refresh runs with BatchNorm in evaluation mode; ours never does.
    - The official code makes one step more than its setting, and reports the checkpoint of least mean target entropy;
      we report the last iterate.
    - Later work prints its class weights as shares of hard predictions; the official code averages probabilities. It
      is the weighting's parameter ``hard``.

    References
    ----------
    Liang, Wang, Hu, He, Feng, "A balanced and uncertainty-aware approach for partial domain adaptation", ECCV 2020.
    """

    name: ClassVar[str] = "ba3us"
    summary: ClassVar[str] = "adversarial: source samples fill up the target, confident predictions count more"
    reference: ClassVar[str] = "Liang et al., ECCV 2020"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "partial")
    weights: ClassVar[str] = "class_share"

    def make_memory(self, setup: Setup) -> DiscriminatorMemory:
        """Make the discriminator of features."""
        return DiscriminatorMemory(Discriminator(setup.width, self.hidden, seed=setup.seed))

    def step(self, context: BatchContext, memory: DiscriminatorMemory) -> StepResult:
        """Return the loss of one batch; the discriminator learns from the same."""
        return self.balanced_step(context, memory.discriminator)
