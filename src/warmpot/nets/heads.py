"""Heads that are not plain linear layers: on a sphere (AR, ARPM), with weight normalisation (SHOT), centres (SPL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from warmpot._checks import check_count
from warmpot.errors import InputError

__all__ = ["PrototypeHead", "SphereHead", "WeightNormHead", "empty_linear", "sphere_radius", "unit_rows"]

WANTED_PROBABILITIES = ((25, 0.999), (75, 0.9999), (150, 0.99999), (math.inf, 0.999999))
"""Probability that a class centre must be able to reach for its class, by the number of classes (up to, exclusive)."""


def sphere_radius(n_classes: int) -> float:
    """Return the smallest radius at which each of the C class centres can have probability P for its own class.

    ``(C - 1) / C * ln((C - 1) P / (1 - P))``, for at least 2 classes: the centres have equal distances on the sphere,
    and the rows of the head point at them. P is ARPM's [1]_: .999 below 25 classes, .9999 below 75, .99999 below 150,
    else .999999.

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
    p = next(p for bound, p in WANTED_PROBABILITIES if n_classes < bound)
    return (n_classes - 1) / n_classes * math.log((n_classes - 1) * p / (1 - p))


def unit_rows(x: Tensor) -> Tensor:
    """Scale every row to Euclidean length 1; rows of zeros stay, with a finite gradient."""
    # Dividing by the largest entry first keeps the squares from over- and underflowing. It is a constant for the
    # gradient, because the result does not depend on it.
    largest = x.detach().abs().amax(dim=1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1)
    return nn.functional.normalize(x, dim=1, eps=0.5)  # all other rows now have a length of at least 1


def empty_linear(n_in: int, n_out: int) -> nn.Linear:
    """Make a linear layer whose values are not set yet, without drawing random numbers."""
    layer = nn.Linear(n_in, n_out, device="meta")  # its `to_empty` imports sympy, which takes a second
    layer.weight, layer.bias = (nn.Parameter(torch.empty(*shape, device="cpu")) for shape in ((n_out, n_in), (n_out,)))
    return layer


class _ParametrizedHead(nn.Linear):
    """A linear head whose `weight` and `bias` are functions of the trained parameters; it can be pickled."""

    options: tuple[Any, ...] = ()  # the constructor's arguments after the first

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, device="meta")
        self.weight, self.bias = linear.weight, linear.bias

    def __reduce__(self) -> tuple[Callable[..., nn.Module], tuple[Any, ...]]:
        # The class of a parametrised module is created at run time, so that pickle cannot find it by name.
        kind = parametrize.type_before_parametrizations(self)
        shape = (self.in_features, self.out_features)
        return _rebuild_head, (kind, shape, self.options, self.training, self.state_dict())


def _rebuild_head(
    kind: Callable[..., nn.Module], shape: tuple[int, int], options: tuple[Any, ...], training: bool, state: Any
) -> nn.Module:
    linear = empty_linear(*shape)
    nn.init.ones_(linear.weight)
    nn.init.zeros_(linear.bias)
    head = kind(linear, *options).train(training)
    head.load_state_dict(state, assign=True)
    return head


class WeightNormHead(_ParametrizedHead):
    """Outputs ``x W^T + b`` with ``W_k = g_k v_k / ||v_k||``: lengths and directions are trained separately [1]_.

    W and b start as those of `linear`.

    References
    ----------
    .. [1] Salimans and Kingma, "Weight normalization", NeurIPS 2016.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear)
        parametrizations.weight_norm(self, "weight")


class _UnitRows(nn.Module):
    """Row k is the direction of row k of the trained matrix."""

    def forward(self, weight: Tensor) -> Tensor:
        return unit_rows(weight)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight  # with its lengths, which set how fast the directions turn


class _Bounded(nn.Module):
    """``r tanh(b)``: no class is favoured by more than the features can contribute."""

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
        largest = 1 - torch.finfo(ratio.dtype).eps  # atanh(1) is infinite
        return torch.atanh(ratio.clamp(-largest, largest))


class SphereHead(_ParametrizedHead):
    """Outputs ``x normalize(W)^T + r tanh(b)`` of features x of length r, the `radius` [1]_.

    `weight` and `bias` are the effective ones, ``normalize(W)`` and ``r tanh(b)``, as code that reads a linear head
    expects; assigning a tensor to `weight` sets W. W and b are trained and saved; W starts as the weight of `linear`,
    ``r tanh(b)`` as its bias.

    References
    ----------
    .. [1] Gu et al., "Adversarial reweighting for partial domain adaptation", NeurIPS 2021.
    """

    def __init__(self, linear: nn.Linear, radius: float) -> None:
        super().__init__(linear)
        self.radius, self.options = radius, (radius,)
        parametrize.register_parametrization(self, "weight", _UnitRows())
        parametrize.register_parametrization(self, "bias", _Bounded(radius))

    @property
    def raw_weight(self) -> nn.Parameter:
        """The trained matrix W."""
        weight: nn.Parameter = self.parametrizations["weight"].original  # type: ignore[index, union-attr]
        return weight


class PrototypeHead(nn.Linear):
    """Log-probabilities from the distances to two centres per class, ``log max(softmax(-d), softmax(-d'))`` [1]_.

    d and d' are the distances to the rows of `weight` and of `second`; both start as the weight of `linear`. The larger
    of the two probabilities counts, so a row of probabilities may sum to more than 1 before it is normalised. It has no
    bias, and is linear in its shape only (`Network.has_linear_head`).

    References
    ----------
    .. [1] Wang and Breckon, "Unsupervised domain adaptation via structured prediction based selective
       pseudo-labeling", AAAI 2020.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False, device="meta")
        self.weight = linear.weight
        self.second = nn.Parameter(linear.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the log-probabilities."""
        return torch.maximum(
            *(torch.log_softmax(-_distances(x, centres), dim=1) for centres in (self.weight, self.second))
        )


def _distances(x: Tensor, centres: Tensor) -> Tensor:
    """Euclidean distances (n, C) by products, as an exported model supports them."""
    squares = x.square().sum(dim=1, keepdim=True) + centres.square().sum(dim=1) - 2 * x @ centres.T
    return squares.clamp_min(0).sqrt()
