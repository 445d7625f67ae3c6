"""SPDA: every target sample moves towards its most similar source sample; confident target samples join the source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_count, check_fraction, check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    BatchSpec,
    Domain,
    Memory,
    Method,
    PassRequest,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import reversal_strength, weighted_cross_entropy
from warmpot.weights import normalized

__all__ = ["Spda", "SpdaMemory", "mean_of_largest_cosines"]

ADDED = "added"
"""Name of the batch of target samples with pseudo-labels."""


def mean_of_largest_cosines(source: Tensor, target: Tensor) -> Tensor:
    """Cosine of every target sample with the source sample that is most similar to it, averaged; with gradient.

    Examples
    --------
    >>> float(mean_of_largest_cosines(torch.eye(2), torch.tensor([[3.0, 0.0], [-1.0, 0.0]])))
    0.5
    """
    x, y = (functional.normalize(at_least_float32(features), dim=1) for features in (source, target))
    return (y @ x.T).max(dim=1).values.mean()


class SpdaMemory(Memory):
    """Pseudo-labels of the target samples that have joined the source; -1 for the others."""

    pseudo: Tensor

    def __init__(self, n_source: int, n_target: int) -> None:
        super().__init__()
        self.n_source = n_source
        self.register_buffer("pseudo", torch.full((n_target,), -1))

    @property
    def rows(self) -> Tensor:
        """Rows of the target samples that have joined the source."""
        return torch.nonzero(self.pseudo >= 0).flatten()

    @property
    def share(self) -> float:
        """Share of them in the joined set."""
        number = int((self.pseudo >= 0).sum())
        return number / (self.n_source + number)


@dataclass(frozen=True)
class Spda(Method[SpdaMemory]):
    """Minimise ``wCE(w) - similarity l_e mean_j max_i cos(f_i, f_j)`` over a source that confident target samples join.

    In epoch e of E, ``l_e = 2 / (1 + exp(-10 e / E)) - 1``. After every epoch the target samples with a probability
    above `threshold` join the source with the predicted class as label; the set is made again each time. The gradient
    of the cosines goes to both samples of a pair.

    Attributes
    ----------
    similarity : float
        Weight of the cosines, at the end of the training.
    threshold : float
        Probability above which a target sample joins the source.
    epochs : int
        E: equal periods of the training.
    slope : float
        The 10 in l_e.
    added : float
        Size of the batch of joined target samples, over that of the source batch.

    Notes
    -----
    Reproduction of the official code's objective (docs/method-specifications.md, SPDA). Deviations:

    - the code draws one batch from the joined set. Here the source and the added samples have batches of their own,
      and the cross-entropy is their mean by the sizes of the two sets, which has the same expectation; the most similar
      sample is looked for in both batches;
    - a period is an equal part of the training, in the code a pass over the smaller data set;
    - the code draws the first weights with standard deviations of .005 and .01 and a bias of .1; ours are
      Xavier-normal, the bias is 0;
    - the code reports the best of its evaluations by target labels, we report the last iterate.

    References
    ----------
    P. Guo et al., "Selective partial domain adaptation", BMVC 2022, and its official code.
    """

    name: ClassVar[str] = "spda"
    summary: ClassVar[str] = "largest cosines with the source; confident target samples join it"
    reference: ClassVar[str] = "Guo et al., BMVC 2022"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("pseudo-labels", "partial")
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"target": ("logits",)}

    similarity: float = 2.0
    threshold: float = 0.9
    epochs: int = 200
    slope: float = 10.0
    added: float = 0.25

    def __post_init__(self) -> None:
        for name in ("similarity", "slope"):
            check_nonnegative(name, getattr(self, name))
        check_nonnegative("threshold", self.threshold, maximum=1.0)
        check_count("epochs", self.epochs)
        check_fraction("added", self.added)

    def make_memory(self, setup: Setup) -> SpdaMemory:
        """No target sample has joined yet."""
        return SpdaMemory(setup.n_source, setup.n_target)

    def refresh(self, memory: SpdaMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Let the confident target samples join the source."""
        if progress.starts_period(self.epochs):
            confidence, classes = at_least_float32(request().target.logits).softmax(dim=1).max(dim=1)
            pseudo = torch.where(confidence > self.threshold, classes, -1)
            memory.pseudo.copy_(pseudo)

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:
        """Return the batch of added samples, from the second epoch on."""
        if progress.period(self.epochs) == 0:
            return {}
        return {ADDED: BatchSpec(max(round(self.added * source_batch), 1), "target")}

    def pools(self, memory: SpdaMemory) -> Mapping[str, SamplePool]:
        """Draw the added samples from those that have joined; without any the batch plays no part."""
        rows = memory.rows
        return {ADDED: SamplePool(rows, memory.pseudo[rows])} if len(rows) else {}

    def step(self, context: BatchContext, memory: SpdaMemory) -> StepResult:
        """Return the loss of one batch."""
        weights, source = context.given_weights, context.source
        classification = weighted_cross_entropy(source.logits, context.labels, weights)
        features, added, share = source.features, context.extra.get(ADDED), 0.0
        if added is not None and added.labels is not None:
            share = memory.share
            own = functional.cross_entropy(at_least_float32(added.outputs.logits), added.labels)
            classification = (1.0 - share) * classification + share * own
            features = torch.cat([features, added.outputs.features])
        cosine = mean_of_largest_cosines(features, context.target.features)
        epoch = context.progress.period(self.epochs)
        strength = self.similarity * reversal_strength(epoch / self.epochs, self.slope)
        return StepResult.of(
            classification - strength * cosine, normalized(weights), classification=classification, cosine=cosine,
            strength=strength, added=share,
        )  # fmt: skip
