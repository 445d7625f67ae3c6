"""Loss terms that methods share."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["mean_entropy", "supervised"]


def supervised(outputs: Tensor, labels: Tensor, loss: str) -> Tensor:
    """Loss of every sample against its own label; the label loss of the joint cost on the diagonal."""
    outputs = outputs if outputs.dtype == torch.float64 else outputs.float()
    if loss == "cross_entropy":
        return functional.cross_entropy(outputs, labels, reduction="none")
    difference = outputs[:, 0] - labels.to(outputs.dtype)
    return difference.abs() if loss == "absolute" else difference.square()


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions, in nats."""
    log_probabilities = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1).mean()
