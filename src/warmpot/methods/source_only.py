"""No adaptation: the baseline every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from warmpot.data import Task
from warmpot.losses import LabelLoss
from warmpot.methods.alternation import Alternation, alternation_size
from warmpot.methods.base import BatchContext, Memory, Method, StepResult
from warmpot.methods.rounds import FullSettings
from warmpot.methods.sizes import DataSize

__all__ = ["SourceOnly"]


@dataclass(frozen=True)
class SourceOnly(Method[Memory]):
    """Plain training on the source; the target is not used.

    "ResNet-50" in the paper's tables, whose numbers are of several papers. Deviations: the presets train in the loops
    of the methods that it is compared with; the Transfer-Learning-Library has batches of 36, decay rate 3e-4, weight
    decay 5e-4 and 2500 steps.
    """

    name: ClassVar[str] = "source-only"
    uses_target: ClassVar[bool] = False
    status: ClassVar[str] = "baseline"
    summary: ClassVar[str] = "train on the source, predict on the target; no adaptation"
    reference: ClassVar[str] = "the baseline of every table"
    engines: ClassVar[tuple[str, ...]] = ("full", "minibatch")
    regression: ClassVar[bool] = True

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the mean source loss."""
        losses = context.loss.per_sample(context.source.logits, context.labels)
        return StepResult(losses.mean(), torch.full_like(losses, 1.0 / len(losses)).detach(), {})

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> Alternation:
        """Fit a linear classifier on the source; no round follows."""
        return Alternation(self, task, settings, loss, seed)

    def data_size(self, task: Task, settings: FullSettings) -> DataSize:
        """Return the sizes of the alternation."""
        return alternation_size(self, task, settings)
