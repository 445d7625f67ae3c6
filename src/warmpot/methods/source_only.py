"""No adaptation: the baseline every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from warmpot.methods.base import Memory, Method, Step, View
from warmpot.methods.losses import supervised

__all__ = ["SourceOnly"]


@dataclass(frozen=True)
class SourceOnly(Method):
    """Plain training on the source; the target is never looked at.

    Deviations: none; "ResNet-50" in the paper's tables.
    """

    name: ClassVar[str] = "source-only"
    uses_target: ClassVar[bool] = False
    summary: ClassVar[str] = "train on the source, predict on the target; no adaptation"
    reference: ClassVar[str] = "the baseline of every table"
    engines: ClassVar[tuple[str, ...]] = ("full", "minibatch")
    regression: ClassVar[bool] = True

    def step(self, view: View, memory: Memory) -> Step:  # noqa: ARG002
        """Return the mean source loss."""
        losses = supervised(view.source.logits, view.labels, view.loss)
        return Step(losses.mean(), torch.full_like(losses, 1.0 / len(losses)).detach(), {})
