"""What adversarial methods share: discriminators in a memory, their loss, and the schedule of the reversal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.base import M, Memory, Method, TrainProgress
from warmpot.methods.losses import reversal_strength
from warmpot.nets import reverse_gradient

__all__ = ["DELTA", "TLL", "Adversarial", "DiscriminatorMemory", "WeigherMemory", "domain_loss", "domain_losses",
           "mean_one"]  # fmt: skip

DELTA = 1e-8
"""Added to sums of weights: the mean of equally weighted losses is exact, and finite where nothing has weight."""


TLL = "reproduction of the objective in the Transfer-Learning-Library's code, not the authors'"
"""Status of the methods whose code was read there."""


class DiscriminatorMemory(Memory):
    """The discriminator; the run's own optimiser trains it."""

    def __init__(self, discriminator: nn.Module) -> None:
        super().__init__()
        self.discriminator = discriminator

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the discriminator's parameters."""
        return self.discriminator.parameters()


class WeigherMemory(DiscriminatorMemory):
    """A discriminator, and a second one that only weighs source samples (IWAN, ETN)."""

    def __init__(self, discriminator: nn.Module, weigher: nn.Module) -> None:
        super().__init__(discriminator)
        self.weigher = weigher

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters of both."""
        return [*self.discriminator.parameters(), *self.weigher.parameters()]


@dataclass(frozen=True)
class Adversarial(Method[M]):
    """A method whose features ascend on the loss of a discriminator.

    Attributes
    ----------
    adversarial : float
        Weight of the discriminator's loss.
    slope, horizon, ceiling : float, int, float
        The gradient of the features is reversed with the strength ``ceiling (2 / (1 + exp(-slope i / horizon)) - 1)``
        at step i of the phase; the horizon is a number of steps.
    hidden : int
        Width of the discriminator's two hidden layers.
    """

    adversarial: float = 1.0
    slope: float = 1.0
    horizon: int = 1000
    ceiling: float = 1.0
    hidden: int = 1024

    def __post_init__(self) -> None:
        for name in ("adversarial", "slope", "ceiling"):
            check_nonnegative(name, getattr(self, name))
        for name in ("horizon", "hidden"):
            check_count(name, getattr(self, name))

    def strength(self, progress: TrainProgress) -> float:
        """Return the strength of the reversal at a step."""
        return self.ceiling * reversal_strength((progress.step - progress.phase_start) / self.horizon, self.slope)


def domain_losses(discriminator: nn.Module, source: Tensor, target: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of a discriminator for every source sample (label 1) and target sample (label 0).

    Both pass in one batch, which matters to BatchNorm. Their gradient is reversed with this strength.
    """
    rows = reverse_gradient(torch.cat([source, target]), strength)
    judged = at_least_float32(discriminator(rows))
    return functional.softplus(-judged[: len(source)]), functional.softplus(judged[len(source) :])


def domain_loss(
    discriminator: nn.Module, source: Tensor, target: Tensor, strength: float, weights: Tensor | None = None
) -> Tensor:
    """Return ``(mean_i w_i l_i + mean_j l_j) / 2`` of the losses of `domain_losses`.

    No gradient goes through the weights (n,) of the source samples; None: ones.
    """
    of_source, of_target = domain_losses(discriminator, source, target, strength)
    if weights is not None:
        of_source = weights.detach().to(of_source.dtype) * of_source
    return (of_source.mean() + of_target.mean()) / 2.0


def mean_one(weights: Tensor) -> Tensor:
    """Return weights divided by their mean, which are zeros if all are; equal weights become exactly 1."""
    weights = weights.detach()
    mean = weights.mean()
    return weights / mean if bool(mean > 0) else weights
