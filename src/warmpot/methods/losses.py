"""Loss terms and schedules that methods share."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from warmpot.losses import at_least_float32
from warmpot.weights import normalized

__all__ = ["complement_entropy", "gaussian_kernels", "mean_entropy", "ramped", "reversal_strength", "sample_entropy",
           "weighted_cross_entropy"]  # fmt: skip


def weighted_cross_entropy(
    logits: Tensor, labels: Tensor, weights: Tensor, smoothing: float = 0.0, delta: float = 1e-5
) -> Tensor:
    """Weighted mean of the cross-entropy, ``sum_i w_i l_i / (sum_i w_i + delta)``, finite where nothing has weight.

    No gradient goes through the weights. Labels are the mixture ``(1 - smoothing) one_hot + smoothing / C``.
    """
    losses = functional.cross_entropy(at_least_float32(logits), labels, reduction="none", label_smoothing=smoothing)
    weighted: Tensor = normalized(weights.detach().to(losses.dtype), delta) * losses
    return weighted.sum()


def sample_entropy(logits: Tensor) -> Tensor:
    """Entropy of every prediction, in nats: (n, C) to (n,)."""
    log_probabilities = torch.log_softmax(at_least_float32(logits), dim=1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=1)


def mean_entropy(logits: Tensor) -> Tensor:
    """Mean entropy of the predictions, in nats."""
    return sample_entropy(logits).mean()


def complement_entropy(logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Negative entropy of the wrong classes among themselves; least, -1, where they are all alike (BA3US).

    With ``q_k = p_k / (1 - p_y)`` for the classes k other than the label y, it is the mean of
    ``sum_k q_k log q_k / log(C - 1)``, in which a sample counts by ``w_i (1 - p_y)``: an uncertain one more. No
    gradient goes through that. With two classes the value is 0.

    q is a softmax over the wrong classes, so nothing is divided by ``1 - p_y``: value and gradient stay finite for
    certain predictions, where the official code has a guard of 1e-7.
    """
    logits = at_least_float32(logits)
    if logits.shape[1] < 3:
        return logits.new_zeros(())
    right = functional.one_hot(labels, logits.shape[1]).bool()
    log_q = torch.log_softmax(logits.masked_fill(right, -torch.inf), dim=1).masked_fill(right, 0.0)
    values = (log_q.exp() * log_q).sum(dim=1) / math.log(logits.shape[1] - 1)
    doubt = 1.0 - torch.softmax(logits.detach(), dim=1)[right] + 1e-7
    counts = doubt if weights is None else doubt * weights.detach().to(doubt.dtype)
    return (counts * values).sum() / counts.sum().clamp_min(1e-30)


def gaussian_kernels(width: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the kernel ``sum_c exp(-d^2 / (c width))``, c = 1/4, 1/2, 1, 2, 4, of paired rows (DAN, DRCN).

    `width` is a squared distance; one of 0 is taken for the smallest positive number.
    """
    width = width.clamp_min(torch.finfo(width.dtype).tiny)  # constant features: all kernels are 1

    def kernel(x: Tensor, y: Tensor) -> Tensor:
        distance = (x - y).square().sum(dim=1)
        return torch.stack([torch.exp(-distance / (2.0**power * width)) for power in range(-2, 3)]).sum(dim=0)

    return kernel


def ramped(start: float, end: float, progress: float, length: float) -> float:
    """Grow linearly from `start` to `end` over the share `length` of the training; never above `end`.

    Examples
    --------
    >>> [ramped(0.0, 0.8, progress, 0.5) for progress in (0.0, 0.25, 0.5, 1.0)]
    [0.0, 0.4, 0.8, 0.8]
    """
    if progress >= length:
        return end  # exactly, whatever the sum below would round to
    start = min(start, end)
    return min(start + (end - start) * progress / length, end)


def reversal_strength(progress: float, slope: float = 10.0) -> float:
    """Strength of gradient reversal after a share of the training, ``2 / (1 + exp(-slope progress)) - 1``.

    Examples
    --------
    >>> reversal_strength(0.0), round(reversal_strength(1.0), 4)
    (0.0, 0.9999)
    """
    return math.tanh(slope * progress / 2.0)
