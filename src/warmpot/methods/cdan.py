"""CDAN+E: a discriminator that sees features together with predictions; certain predictions count more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from warmpot._checks import check_count
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DELTA, TLL, Adversarial, DiscriminatorMemory, domain_losses, mean_one
from warmpot.methods.base import BatchContext, Setup, StepResult
from warmpot.methods.losses import sample_entropy, weighted_cross_entropy
from warmpot.nets import Discriminator, Outputs
from warmpot.weights import normalized

__all__ = ["Cdan"]


class ProductMemory(DiscriminatorMemory):
    """A discriminator of products of features and predictions; two fixed random matrices if there are too many."""

    of_features: Tensor
    of_predictions: Tensor

    def __init__(self, setup: Setup, random_map: int, hidden: int) -> None:
        width = random_map or setup.width * setup.n_classes
        super().__init__(Discriminator(width, hidden, seed=setup.seed, batch_norm=True))
        generator = torch.Generator().manual_seed(setup.seed)
        self.register_buffer("of_features", torch.randn(setup.width, random_map, generator=generator))
        self.register_buffer("of_predictions", torch.randn(setup.n_classes, random_map, generator=generator))

    def products(self, outputs: Outputs) -> Tensor:
        """Return the products ``f_d p_k`` of every sample, or random combinations; no gradient goes through p."""
        features = at_least_float32(outputs.features)
        predictions = torch.softmax(at_least_float32(outputs.logits.detach()), dim=1).to(features.dtype)
        n_random = self.of_features.shape[1]
        if not n_random:
            return (predictions[:, :, None] * features[:, None, :]).flatten(1)
        of_features = features @ self.of_features.to(features.dtype)
        of_predictions = predictions @ self.of_predictions.to(features.dtype)
        return of_features * of_predictions / math.sqrt(n_random)


@dataclass(frozen=True)
class Cdan(Adversarial[ProductMemory]):
    """Minimise ``wCE(w) + adversarial L_adv``; all classes of the source are aligned.

    Specification: docs/method-specifications.md, CDAN+E.

    ``L_adv`` is the weighted mean of the cross-entropy of a discriminator over both batches. Its input is the outer
    product of the feature and the predicted probabilities of a sample, through which no gradient goes. A sample counts
    by ``v = 1 + exp(-H(p))``, more if its prediction is certain, times w if it is from the source (mean 1 in a batch;
    equal weights in the paper); no gradient goes through these. The discriminator descends on it. The features ascend,
    through a reversed gradient that grows with the step (`slope`, `horizon`, `ceiling`).

    Attributes
    ----------
    certainty : bool
        Whether samples count by v (the "+E"); else all count the same.
    random_map : int
        Take so many products of random combinations of features and of predictions instead of all products; 0: all.
        For many classes (the authors: 1024).

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library, in its settings for targets with all classes: there
    are none for partial ones. Deviations:

    - The discriminator's loss is computed from logits, not from a sigmoid whose logarithm is cut off at -100.
    - The counts v are normalised over both batches, and have no gradient, as in the library; the authors' first code
      normalises them per domain, and reverses a gradient through the entropies.
    - The entropies are those of the probabilities; there of the probabilities + 1e-5.
    - The random matrices are drawn from the seed, and saved in checkpoints.
    - The discriminator starts from Xavier-normal weights and zero biases; there from PyTorch's default.
    - The library reports the best checkpoint by target labels; we report the last iterate.

    References
    ----------
    Long, Cao, Wang, Jordan, "Conditional adversarial domain adaptation", NeurIPS 2018.
    """

    name: ClassVar[str] = "cdan"
    summary: ClassVar[str] = "adversarial: a discriminator of features times predictions (CDAN+E)"
    reference: ClassVar[str] = "Long et al., NeurIPS 2018"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("adversarial",)

    certainty: bool = True
    random_map: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("random_map", self.random_map, minimum=0)

    def make_memory(self, setup: Setup) -> ProductMemory:
        """Make the discriminator of products, with BatchNorm."""
        return ProductMemory(setup, self.random_map, self.hidden)

    def step(self, context: BatchContext, memory: ProductMemory) -> StepResult:
        """Return the loss of one batch; the discriminator learns from the same."""
        source, target, weights = context.source, context.target, context.given_weights
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        strength = self.strength(context.progress)
        products = memory.products(source), memory.products(target)
        losses = torch.cat(domain_losses(memory.discriminator, *products, strength))
        counts = torch.cat([self._counts(source) * mean_one(weights), self._counts(target)]).to(losses.dtype)
        adversarial = (normalized(counts, 0.0) * losses).sum()
        total = classification + self.adversarial * adversarial
        return StepResult.of(
            total, normalized(weights, DELTA), classification=classification, adversarial=adversarial, reversal=strength
        )

    def _counts(self, outputs: Outputs) -> Tensor:
        """Return how much every sample of a batch counts by its prediction."""
        entropies = sample_entropy(outputs.logits.detach())
        return 1.0 + torch.exp(-entropies) if self.certainty else torch.ones_like(entropies)
