"""Features on a sphere, and a head of unit rows: the classifier of AR and ARPM."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from warmpot._checks import check_count
from warmpot.errors import InputError

__all__ = ["SphereHead", "sphere_radius", "unit_rows"]

WANTED = ((25, 0.999), (75, 0.9999), (150, 0.99999), (math.inf, 0.999999))
"""Probability that a class's own centre must be able to reach, with the number of classes below which it is wanted."""


def sphere_radius(n_classes: int) -> float:
    """Return the least radius at which the C class centres can have probability P on their own class each.

    ``(C - 1) / C * ln((C - 1) P / (1 - P))``: centres of equal mutual distance on the sphere, rows of the head along
    them. P is ARPM's [1]_: .999 for less than 25 classes, .9999 for less than 75, .99999 for less than 150, .999999
    for more.

    Parameters
    ----------
    n_classes : int
        C, at least 2.

    References
    ----------
    .. [1] Gu et al., "Adversarial reweighting with alpha-power maximization for domain adaptation", IJCV 2024, and
       its public code.

    Examples
    --------
    >>> round(sphere_radius(65), 3), round(sphere_radius(1000), 3)
    (13.163, 20.702)
    """
    check_count("n_classes", n_classes, 2)
    p = next(p for bound, p in WANTED if n_classes < bound)
    return (n_classes - 1) / n_classes * math.log((n_classes - 1) * p / (1 - p))


def unit_rows(x: Tensor) -> Tensor:
    """Scale every row to Euclidean length 1; rows of zeros stay, with a gradient that is finite."""
    # The largest entry first: squares can neither over- nor underflow then. It is a constant for the gradient, because
    # the result does not depend on it.
    largest = x.detach().abs().amax(dim=1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1)
    return nn.functional.normalize(x, dim=1, eps=0.5)  # all other rows are at least 1 long now


class _UnitRows(nn.Module):
    """Row k is the direction of row k of the trained matrix."""

    def forward(self, weight: Tensor) -> Tensor:
        return unit_rows(weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight  # lengths are kept: they set how fast the directions turn


class _Bounded(nn.Module):
    """``r tanh(b)``: no class is favoured by more than the features can tell."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, bias: Tensor) -> Tensor:
        return self.radius * torch.tanh(bias)

    def right_inverse(self, bias: Tensor) -> Tensor:
        ratio = bias / self.radius
        if not bool((ratio.abs() <= 1).all()):
            got, remedy = f"entries up to {bias.abs().max().item():g}", "Scale it down, or choose a larger sphere."
            raise InputError("bias", got=got, allowed=f"at most {self.radius:g} in size", remedy=remedy)
        nearest = 1 - torch.finfo(ratio.dtype).eps  # tanh reaches 1 by rounding only
        return torch.atanh(ratio.clamp(-nearest, nearest))


class SphereHead(nn.Linear):
    """Outputs ``x normalize(W)^T + r tanh(b)`` of features x of length r [1]_.

    `weight` and `bias` are the effective ones, ``normalize(W)`` and ``r tanh(b)``, so that whoever reads a linear head
    reads this one; assigning a tensor to `weight` sets W. What is trained and saved is W and b.

    Parameters
    ----------
    linear : torch.nn.Linear
        Its weight is the start of W, its bias that of ``r tanh(b)``.
    radius : float
        r.

    References
    ----------
    .. [1] Gu et al., "Adversarial reweighting for partial domain adaptation", NeurIPS 2021.
    """

    def __init__(self, linear: nn.Linear, radius: float) -> None:
        super().__init__(linear.in_features, linear.out_features, device="meta")
        self.radius = radius
        self.weight, self.bias = linear.weight, linear.bias
        parametrize.register_parametrization(self, "weight", _UnitRows())
        parametrize.register_parametrization(self, "bias", _Bounded(radius))

    @property
    def raw_weight(self) -> nn.Parameter:
        """W, as it is trained."""
        found: nn.Parameter = self.parametrizations["weight"].original  # type: ignore[index, union-attr]
        return found

    def __reduce__(self) -> tuple[Callable[..., SphereHead], tuple[Any, ...]]:
        # The class of a parametrised module is made at run time: pickle cannot find it by name.
        return _revived, (self.in_features, self.out_features, self.radius, self.training, self.state_dict())


def _revived(n_in: int, n_out: int, radius: float, training: bool, state: dict[str, Tensor]) -> SphereHead:
    linear = nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")
    nn.init.zeros_(linear.bias)
    head = SphereHead(linear, radius).train(training)
    head.load_state_dict(state, assign=True)
    return head
