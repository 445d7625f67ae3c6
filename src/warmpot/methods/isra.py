"""ISRA: BA3US, and features that respond to implicit topics alike in both domains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from warmpot._checks import check_count, check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DiscriminatorMemory
from warmpot.methods.ba3us import BalancedAdversarial
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    Domain,
    ParamGroup,
    PassRequest,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.nets import Discriminator
from warmpot.nets.network import make_linear

__all__ = ["Isra", "TopicRegressors"]

REGRESSOR_LR, REGRESSOR_DECAY = 0.1, 5.0
"""Factors of the discriminator's learning rate and weight decay, as in the official code."""
BLOCK = 8192
"""Samples that are embedded at a time for the centroids: a whole source may be large."""
TINY = 1e-30
"""Keeps quotients by a norm or a number that may be 0 finite."""


class TopicRegressors(nn.Module):
    """A regressor for each topic, ``width -> hidden -> 1`` with ReLU units: (n, width) to (n, topics).

    All are applied together: their first layers are one linear layer with ``topics * hidden`` outputs, and row k of the
    `last` layer belongs to regressor k. Weights and biases start as PyTorch's own, drawn from the generator.
    """

    def __init__(self, topics: int, width: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.first = make_linear(width, topics * hidden, generator, init="torch")
        self.last = make_linear(hidden, topics, generator, init="torch")

    def hidden(self, features: Tensor) -> Tensor:
        """Return the hidden units before the ReLU, (n, topics, hidden)."""
        units: Tensor = self.first(features)
        return units.view(-1, *self.last.weight.shape)

    def predicted(self, hidden: Tensor) -> Tensor:
        """Return the predictions (n, topics) from the hidden units."""
        predictions: Tensor = (hidden.relu() * self.last.weight).sum(dim=2) + self.last.bias
        return predictions

    def forward(self, features: Tensor) -> Tensor:
        """Predict the topics of every row."""
        return self.predicted(self.hidden(features))

    @torch.no_grad()
    def attention(self, hidden: Tensor, errors: Tensor) -> Tensor:
        """Return ``n |g_k| / ||g_k||`` of shape (topics, n, width), g_k the gradient of regressor k's squared error.

        The gradient is with respect to the features, of which `hidden` are the units and `errors` (n, topics) the
        residuals; the norm is over samples and columns. Zeros where the gradient is 0.
        """
        topics, width = len(self.last.bias), self.first.in_features
        # The scale of the errors cancels, as does the constant 2 / n. Squares of very small ones would underflow.
        errors = errors / errors.abs().amax(dim=0).clamp_min(TINY)
        at_hidden = errors[:, :, None] * self.last.weight * (hidden > 0)
        attention = torch.bmm(at_hidden.transpose(0, 1), self.first.weight.view(topics, -1, width)).abs_()
        norms = torch.linalg.vector_norm(attention.flatten(1), dim=1)
        return attention.mul_((len(hidden) / norms.clamp_min(TINY))[:, None, None])

    def size(self) -> Tensor:
        """Return the sum of the absolute parameters of a first layer, on average over the regressors."""
        absolute: Tensor = self.first.weight.abs().sum() + self.first.bias.abs().sum()
        return absolute / len(self.last.bias)


class IsraMemory(DiscriminatorMemory):
    """The discriminator, the autoencoder, the regressors, the centroids, and how much of the source was seen since."""

    centroids: Tensor
    updates: Tensor
    seen: Tensor
    batch: Tensor

    def __init__(self, setup: Setup, hidden: int, topics: int, regressor: int) -> None:
        super().__init__(Discriminator(setup.width, hidden, seed=setup.seed))
        generator = torch.Generator().manual_seed(2 * setup.seed + 1)
        self.n_source = setup.n_source
        self.encoder = make_linear(setup.width, topics, generator, init="torch")
        self.decoder = make_linear(topics, setup.width, generator, init="torch")
        self.regressors = TopicRegressors(topics, setup.width, regressor, generator)
        self.register_buffer("centroids", torch.zeros(setup.n_classes, topics))
        for name in ("updates", "seen", "batch"):
            self.register_buffer(name, torch.zeros((), dtype=torch.int64))

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters of discriminator and autoencoder."""
        return [*super().trained(), *self.encoder.parameters(), *self.decoder.parameters()]

    def param_groups(self) -> Iterable[ParamGroup]:
        """Return the parameters of the regressors."""
        return [ParamGroup(tuple(self.regressors.parameters()), REGRESSOR_LR, REGRESSOR_DECAY)]

    def embed(self, features: Tensor) -> Tensor:
        """Return how much of each topic a sample has, (n, topics)."""
        embeddings: Tensor = self.encoder(features).relu()
        return embeddings

    @property
    def pass_is_over(self) -> bool:
        """Whether fewer source samples are left than a batch has, since the centroids were last computed."""
        return int(self.seen) > 0 and int(self.seen + self.batch) > self.n_source


@dataclass(frozen=True)
class Isra(BalancedAdversarial[IsraMemory]):
    """Minimise BA3US's loss ``+ reconstruction MSE(r, f) + alignment L_align + centroid MSE(e_i, m_y) + L_reg``.

    Specification: docs/method-specifications.md, ISRA+BA3US.

    An autoencoder finds implicit topics in the features: ``e = relu(E f)`` has one column per topic, and
    ``r = relu(D e)`` should be f again, for samples of both domains.

    A small regressor per topic k predicts ``e_k`` from f, by ``L_reg = mean_k [mean (prediction_k - e_k)^2 + sparsity
    ||first layer||_1]``; features and topics get no gradient from it. The *attention* to the topic is the absolute
    gradient of regressor k's squared error with respect to the features, ``a_k``, of the same shape as the batch, and
    scaled to the norm N, the number of its samples. The features that a topic responds to should have the same mean in
    both domains:

        L_align = sum_k MSE(mean_source(f * a_k), mean_target(f * a_k)).

    The further source batch of BA3US plays the target here, too. No gradient goes through the attention.

    The topics of a source sample should be near the centroid m of its class: the mean of e over the source samples of
    the class and the target samples that are predicted as it. Centroids are computed after every pass over the source;
    there is no such term before the first.

    Attributes
    ----------
    reconstruction, alignment, centroid : float
        Weights of the terms.
    topics : int
        Number of topics, the width of e.
    regressor : int
        Hidden units of each regressor.
    sparsity : float
        Weight of the absolute parameters of a regressor's first layer.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The attention is that of the official code, the gradient of the regressors' loss: a sample whose topic is
      predicted badly counts more. Where a gradient is 0, so is the attention; the official code divides 0 by 0.
    - The attention is scaled by the number of samples in the step. The official code counts the further batch by the
      size that it had when there last was one.
    - Centroids are computed from test views of all samples, in evaluation mode; the official ones from training views
      of whole batches, in training mode, which also changes the statistics of BatchNorm.
    - The regressors' loss is a part of the loss that is logged.
    - All deviations of `Ba3us`.

    References
    ----------
    Xiao, Ding, Liu, "Implicit semantic response alignment for partial domain adaptation", NeurIPS 2021.
    """

    name: ClassVar[str] = "isra"
    summary: ClassVar[str] = "BA3US, and features that respond alike to implicit topics in both domains"
    reference: ClassVar[str] = "Xiao et al., NeurIPS 2021"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "moments", "partial")
    weights: ClassVar[str] = "class_share"
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features", "logits")}

    reconstruction: float = 1.0
    alignment: float = 1.0
    centroid: float = 1.0
    topics: int = 256
    regressor: int = 128
    sparsity: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("reconstruction", "alignment", "centroid", "sparsity"):
            check_nonnegative(name, getattr(self, name))
        for name in ("topics", "regressor"):
            check_count(name, getattr(self, name))

    def make_memory(self, setup: Setup) -> IsraMemory:
        """Make the discriminator, the autoencoder and the regressors."""
        return IsraMemory(setup, self.hidden, self.topics, self.regressor)

    @torch.no_grad()
    def refresh(self, memory: IsraMemory, progress: TrainProgress, request: PassRequest) -> None:  # noqa: ARG002
        """Compute the centroids when a pass over the source is over."""
        if not memory.pass_is_over:
            return
        data = request()
        sums, counts = torch.zeros_like(memory.centroids), torch.zeros_like(memory.centroids[:, 0])
        guesses = data.target.logits.argmax(dim=1)
        for features, classes in ((data.source.features, data.labels), (data.target.features, guesses)):
            for rows, index in zip(torch.split(features, BLOCK), torch.split(classes, BLOCK), strict=True):
                embeddings = memory.embed(rows.to(memory.encoder.weight)).to(sums)
                sums.index_add_(0, index.to(sums.device), embeddings)
                counts.index_add_(0, index.to(sums.device), torch.ones_like(embeddings[:, 0]))
        memory.centroids.copy_(sums / counts.clamp_min(1.0)[:, None])
        memory.updates += 1
        memory.seen.zero_()

    def step(self, context: BatchContext, memory: IsraMemory) -> StepResult:
        """Return the loss of one batch; discriminator, autoencoder and regressors learn from the same."""
        balanced = self.balanced_step(context, memory.discriminator)
        n = len(context.source.features)
        features = torch.cat([part.features for part, _ in self.weighed_parts(context)])
        embeddings = memory.embed(features)
        rebuilt = memory.decoder(embeddings).relu()
        reconstruction = (at_least_float32(features) - at_least_float32(rebuilt)).square().mean()
        regression, attention = self._regression(memory.regressors, features.detach(), embeddings.detach())
        alignment = _alignment(features, attention, n)
        total = balanced.loss + self.reconstruction * reconstruction + self.alignment * alignment + regression
        centroid = torch.zeros_like(reconstruction)
        if int(memory.updates) > 0:
            near = memory.centroids[context.labels].to(embeddings)
            centroid = at_least_float32(embeddings[:n] - near).square().mean()
            total = total + self.centroid * centroid
        memory.seen += n
        memory.batch.fill_(n)
        assert balanced.weights is not None
        return StepResult.of(
            total, balanced.weights, **balanced.metrics,
            reconstruction=reconstruction, alignment=alignment, centroid=centroid, regression=regression,
        )  # fmt: skip

    def _regression(self, regressors: TopicRegressors, features: Tensor, topics: Tensor) -> tuple[Tensor, Tensor]:
        """Return the regressors' loss, and the attention to every topic."""
        hidden = regressors.hidden(features)
        errors = at_least_float32(regressors.predicted(hidden)) - at_least_float32(topics)
        loss = errors.square().mean() + self.sparsity * at_least_float32(regressors.size())
        return loss, regressors.attention(hidden.detach(), errors.detach().to(hidden.dtype))


def _alignment(features: Tensor, attention: Tensor, n: int) -> Tensor:
    """Return the sum over topics of the mean squared difference of the means; the first n samples are of the source."""
    shares = features.new_full((len(features), 1), -1.0 / max(len(features) - n, 1))
    shares[:n] = 1.0 / n
    differences = (at_least_float32(features * shares) * attention).sum(dim=1)
    return differences.square().mean(dim=1).sum()
