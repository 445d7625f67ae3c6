"""ADDA: a target encoder whose features a discriminator cannot tell from those of a frozen source encoder."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from warmpot._checks import check_nonnegative
from warmpot.errors import InputError
from warmpot.methods.adversarial import DELTA, TLL, Adversarial, DiscriminatorMemory, domain_loss, mean_one
from warmpot.methods.base import (
    BatchContext,
    NamedBatch,
    PassRequest,
    Phase,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.nets import Discriminator, Network
from warmpot.weights import normalized

__all__ = ["Adda"]

SOURCE, TARGET = "source", "target"
"""Names of the phases."""


class EncoderMemory(DiscriminatorMemory):
    """The discriminator, and the network as it was when the second phase began: the source encoder."""

    def __init__(self, discriminator: Discriminator, network: Network) -> None:
        super().__init__(discriminator)
        self.encoder = copy.deepcopy(network).eval().requires_grad_(False)

    def train(self, mode: bool = True) -> EncoderMemory:
        """Set the mode of the discriminator; the source encoder is always in evaluation mode."""
        super().train(mode)
        self.encoder.eval()
        return self


@dataclass(frozen=True)
class Adda(Adversarial[EncoderMemory]):
    """Minimise ``wCE(w)`` of the source; then ``L_adv`` for the target's encoder alone.

    Specification: docs/method-specifications.md, ADDA.

    The first phase trains the network on the source. The second copies it: the copy is the encoder g of the source, and
    stays as it is. The network becomes the encoder f of the target, and its head is frozen. Minimised is
    ``L_adv = (mean_i w_i l(g_i, 1) + mean_j l(f_j, 0)) / 2``, where l is the cross-entropy of a discriminator between
    features of the two encoders, and the weights w have mean 1 in a batch (equal weights in the paper). The
    discriminator descends on it. The target's features ascend, through a reversed gradient that grows with the step of
    the phase (`slope`, `horizon`, `ceiling`). Predictions are those of the target's encoder and the frozen head, also
    for source samples.

    Attributes
    ----------
    pretraining : float
        Share of the method's steps in the first phase.

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library, in its settings for targets with all classes: it
    has none for partial ones. Deviations:

    - The discriminator's loss is computed from logits, not from a sigmoid whose logarithm is cut off at -100.
    - The discriminator starts from Xavier-normal weights and zero biases; there from PyTorch's default.
    - The library reports the best checkpoint by target labels; we report the last iterate.
    - The paper alternates between discriminator and encoder, with inverted labels for the latter; the library reverses
      the gradient, and so do we.

    References
    ----------
    Tzeng, Hoffman, Saenko, Darrell, "Adversarial discriminative domain adaptation", CVPR 2017.
    """

    name: ClassVar[str] = "adda"
    summary: ClassVar[str] = "adversarial: a target encoder that imitates a frozen source encoder"
    reference: ClassVar[str] = "Tzeng et al., CVPR 2017"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("adversarial",)

    ceiling: float = 2.0
    pretraining: float = 1.0 / 11.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("pretraining", self.pretraining)
        if self.pretraining >= 1:
            remedy = "Leave steps to the second phase."
            raise InputError("pretraining", got=self.pretraining, allowed="0 <= pretraining < 1", remedy=remedy)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The source alone, then the target's encoder."""
        first = Phase(SOURCE, self.pretraining, adapts=False, uses_target=False)
        second = Phase(TARGET, 1.0 - self.pretraining, frozen=("head",), uses_source=False, restarts_decay=True,
                       restarts_momentum=self.pretraining > 0)  # fmt: skip
        return first, second

    def make_memory(self, setup: Setup) -> EncoderMemory:
        """Make the discriminator of features, with BatchNorm, and room for the source encoder."""
        assert setup.network is not None
        discriminator = Discriminator(setup.width, self.hidden, seed=setup.seed, batch_norm=True)
        return EncoderMemory(discriminator, setup.network)

    def refresh(self, memory: EncoderMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Copy the network when the second phase begins."""
        if progress.phase == TARGET and progress.starts_phase:
            memory.encoder.load_state_dict(request().network.state_dict())

    def step(self, context: BatchContext, memory: EncoderMemory) -> StepResult:
        """Return the loss of one batch; the discriminator learns from the same."""
        if context.progress.phase == SOURCE:
            weights = context.given_weights
            loss = weighted_cross_entropy(context.source.logits, context.labels, weights, delta=DELTA)
            return StepResult.of(loss, normalized(weights, DELTA), classification=loss)
        features, weights = self._source(context, memory)
        strength = self.strength(context.progress)
        loss = domain_loss(memory.discriminator, features, context.target.features, strength, mean_one(weights))
        return StepResult.of(self.adversarial * loss, normalized(weights, DELTA), adversarial=loss, reversal=strength)

    def _source(self, context: BatchContext, memory: EncoderMemory) -> tuple[Tensor, Tensor]:
        """Return features of the source batch by its own encoder, and weights."""
        if context.forward is None or context.weigh is None or context.rows is None:
            raise RuntimeError("this context was made without a network or a weighting")
        outputs = context.forward(context.inputs, memory.encoder)
        return outputs.features, context.weigh(NamedBatch(outputs, context.rows, context.labels))
