"""Label losses, as objects: the loss of an output of the network against a label.

A loss is used on pairs, a source label against a target output (the joint cost of Theorem 3.3), and on samples, an
output against its own label (the supervised term). Bounds use metrics on class probabilities instead
(`warmpot.bounds.losses`): the theorems need values in [0, 1] and the triangle inequality, which cross-entropy lacks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from warmpot._checks import check_choice

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LABEL_LOSSES", "Absolute", "CrossEntropy", "LabelLoss", "Squared", "get_label_loss"]


class LabelLoss(ABC):
    """A loss between labels and outputs of a network."""

    name: ClassVar[str]  # in configurations
    classification: ClassVar[bool]  # whether labels are class codes and outputs logits; otherwise both are numbers
    metric: ClassVar[bool]  # on labels: symmetric, 0 only for equal labels, with the triangle inequality

    @abstractmethod
    def pairwise(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss of every pair, (n,) labels and (m, C) outputs to (n, m), in float32 at least."""

    @abstractmethod
    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every output against its own label, (n, C) and (n,) to (n,), in float32 at least."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CrossEntropy(LabelLoss):
    """``-log softmax(outputs_j)[y_i]``, in nats."""

    name, classification, metric = "cross_entropy", True, False

    def pairwise(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss of every pair."""
        return -at_least_float32(outputs).log_softmax(dim=1).T[labels]

    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample."""
        from torch.nn import functional

        return functional.cross_entropy(at_least_float32(outputs), labels, reduction="none")


class Absolute(LabelLoss):
    """``|y_i - outputs_j|`` of continuous targets."""

    name, classification, metric = "absolute", False, True

    def pairwise(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss of every pair."""
        return _difference(labels[:, None], outputs.T).abs()

    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample."""
        return _difference(labels, outputs[:, 0]).abs()


class Squared(LabelLoss):
    """``(y_i - outputs_j)^2`` of continuous targets."""

    name, classification, metric = "squared", False, False

    def pairwise(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return the loss of every pair."""
        return _difference(labels[:, None], outputs.T).square()

    def per_sample(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of every sample."""
        return _difference(labels, outputs[:, 0]).square()


LABEL_LOSSES: dict[str, LabelLoss] = {loss.name: loss for loss in (CrossEntropy(), Absolute(), Squared())}


def get_label_loss(loss: str | LabelLoss) -> LabelLoss:
    """Return a loss by its name; a loss is returned as it is.

    Examples
    --------
    >>> get_label_loss("cross_entropy")
    CrossEntropy()
    """
    return loss if isinstance(loss, LabelLoss) else LABEL_LOSSES[check_choice("loss", loss, list(LABEL_LOSSES))]


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` in float32 if it is coarser: half precision cannot hold logarithms of small probabilities."""
    import torch

    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _difference(labels: Tensor, outputs: Tensor) -> Tensor:
    outputs = at_least_float32(outputs)
    return labels.to(outputs.dtype) - outputs
