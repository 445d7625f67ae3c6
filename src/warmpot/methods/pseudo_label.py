"""Pseudo-labels: the plain self-training baseline, cross-entropy on the model's own confident predictions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_nonnegative
from warmpot.errors import InputError
from warmpot.losses import at_least_float32
from warmpot.methods.base import BatchContext, Memory, Method, Phase, StepResult
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.weights import normalized

__all__ = ["PseudoLabel", "pseudo_label_loss"]


def pseudo_label_loss(logits: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of confident predictions with their own most probable class, and the share of samples that count.

    The sum over the samples with a probability of at least `threshold` is divided by the number of all samples. No
    gradient goes through the choice of classes and samples.

    Examples
    --------
    >>> import torch
    >>> loss, share = pseudo_label_loss(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), 0.8)
    >>> round(float(loss), 4), float(share)
    (0.0635, 0.5)
    """
    logits = at_least_float32(logits)
    confidence, classes = logits.detach().softmax(dim=1).max(dim=1)
    counts = (confidence >= threshold).to(logits.dtype)
    losses = functional.cross_entropy(logits, classes, reduction="none")
    return (counts * losses).mean(), counts.mean()


@dataclass(frozen=True)
class PseudoLabel(Method[Memory]):
    """Minimise ``wCE(w) + a(t) mean_j [max_k p_jk >= threshold] CE(argmax_k p_jk, p_j)``.

    a(t) is 0 until the share `start` of the training, grows linearly to `weight` at the share `end`, and stays.

    Attributes
    ----------
    weight : float
        Of the target's term, in the end.
    threshold : float
        Smallest probability of a target sample that counts; 0: all count.
    start, end : float
        Shares of the training.

    Notes
    -----
    The loss and the schedule are Lee's; the loop is that of the other methods. Deviations:

    - Lee has no threshold, which is 0 in that case; later self-training has one, and so has this baseline;
    - Lee's term grows from epoch 100 to epoch 600; here from a tenth to six tenths of the training;
    - a pseudo-label is the current prediction for the batch in training mode; Lee's are, too, with dropout.

    References
    ----------
    D.-H. Lee, "Pseudo-label: the simple and efficient semi-supervised learning method for deep neural networks", ICML
    workshop on challenges in representation learning, 2013.
    """

    name: ClassVar[str] = "pseudo-label"
    summary: ClassVar[str] = "self-training on the model's own confident predictions: the plain baseline"
    reference: ClassVar[str] = "Lee, ICML workshop 2013"
    status: ClassVar[str] = "baseline: a published loss in our loop, with a threshold of ours"
    tags: ClassVar[tuple[str, ...]] = ("pseudo-labels",)

    weight: float = 3.0
    threshold: float = 0.9
    start: float = 0.1
    end: float = 0.6

    def __post_init__(self) -> None:
        check_nonnegative("weight", self.weight)
        for name in ("threshold", "start", "end"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        if self.end < self.start:
            remedy = "The weight grows from `start` to `end`."
            raise InputError("end", got=self.end, allowed=f"at least start, {self.start:g}", remedy=remedy)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The source alone, then a growing weight of the target, then a constant one."""
        return Phase("source", self.start, adapts=False), Phase("ramp", self.end - self.start), Phase("constant")

    def weight_at(self, progress: float) -> float:
        """Return the weight of the target's term after a share of the training.

        Examples
        --------
        >>> [round(PseudoLabel().weight_at(share), 2) for share in (0.0, 0.1, 0.35, 0.6, 1.0)]
        [0.0, 0.0, 1.5, 3.0, 3.0]
        """
        if progress >= self.end:
            return self.weight
        if progress <= self.start:
            return 0.0
        return self.weight * (progress - self.start) / (self.end - self.start)

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch."""
        weights = context.given_weights
        classification = weighted_cross_entropy(context.source.logits, context.labels, weights)
        pseudo, share = pseudo_label_loss(context.target.logits, self.threshold)
        weight = self.weight_at(context.progress.share)
        return StepResult.of(
            classification + weight * pseudo, normalized(weights), classification=classification, pseudo=pseudo,
            confident=share, pseudo_weight=weight,
        )  # fmt: skip
