"""No adaptation: the baseline every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from warmpot.methods.base import Method, Step
from warmpot.methods.losses import supervised
from warmpot.nets import Outputs

if TYPE_CHECKING:
    from torch import Tensor

    from warmpot.costs import PairCosts

__all__ = ["SourceOnly"]


@dataclass(frozen=True)
class SourceOnly(Method):
    """Plain training on the source; the target is never looked at.

    Deviations: none; "ResNet-50" in the paper's tables.
    """

    name: ClassVar[str] = "source-only"
    uses_target: ClassVar[bool] = False
    summary: ClassVar[str] = "train on the source, predict on the target; no adaptation"

    def step(self, source: Outputs, labels: Tensor, target: Outputs, progress: float, loss: str) -> Step:  # noqa: ARG002
        """Return the mean source loss."""
        losses = supervised(source.logits, labels, loss)
        return Step(losses.mean(), torch.full_like(losses, 1.0 / len(losses)).detach(), {})

    def plan(self, costs: PairCosts, labels: Tensor, outputs: Tensor, progress: float, loss: str) -> None:  # noqa: ARG002
        """Move nothing."""
        return
