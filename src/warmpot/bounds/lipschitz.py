"""Lipschitz constants of heads with respect to the loss of the bound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot._checks import check_matrix, check_nonnegative
from warmpot._typing import Array, FloatArray
from warmpot.bounds.losses import BoundLoss, get_bound_loss
from warmpot.errors import InputError

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Lipschitz", "as_lipschitz", "check_slope", "head_lipschitz", "largest_slope", "module_lipschitz"]

LAYERS = "Linear, Identity, Flatten, Dropout, ReLU, LeakyReLU, Tanh, Sigmoid, GELU, BatchNorm1d, Sequential"
BY_HAND = "Pass gamma as a number: the Lipschitz constant of the head with respect to the loss."
LOSS_TOLERANCE = 1e-6  # predictions are rounded to float32; a bound is too small by that much at most
GELU_SLOPE = 1.13  # largest slope of GELU, 1.1289 (erf) or 1.1290 (tanh form), rounded up


@dataclass(frozen=True)
class Lipschitz:
    """A constant and where it comes from: ``l(g(u), g(v)) <= value * ||u - v||`` for the loss l of the bound.

    `loss` is the name of l; None for a constant that the user gave, which is taken to be for the loss of the bound.
    """

    value: float
    origin: str
    loss: str | None = None

    def __post_init__(self) -> None:
        check_nonnegative("gamma", self.value)


def as_lipschitz(gamma: Lipschitz | float, loss: str) -> Lipschitz:
    """Accept a number from the user; refuse a constant that was computed for another loss."""
    if isinstance(gamma, Lipschitz):
        if gamma.loss not in (None, loss):
            got, remedy = f"the constant of the loss {gamma.loss!r}", f"Pass loss={gamma.loss!r}, or gamma of {loss!r}."
            raise InputError("gamma", got=got, allowed=f"that of {loss!r}", remedy=remedy)
        return gamma
    return Lipschitz(gamma, "given")


def largest_slope(
    loss: BoundLoss, source: FloatArray, source_proba: FloatArray, target: FloatArray, target_proba: FloatArray
) -> float:
    """Return the largest slope of a head between two samples, one of each side; infinite if it is not a function."""
    largest = 0.0
    for x, proba in zip(source, source_proba, strict=True):
        excess = loss.between(proba, target_proba) - LOSS_TOLERANCE
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = np.where(excess > 0, excess / np.linalg.norm(target - x, axis=1), 0.0)
        largest = max(largest, float(slopes.max()))
    return largest


def check_slope(gamma: Lipschitz, slope: float) -> None:
    """Refuse a constant that is smaller than a slope of the head."""
    if slope <= gamma.value:
        return
    digits = f"{slope * (1 + 1e-5):.6g}"  # rounded up, so that it is accepted
    got, allowed = f"{gamma.value:g}", f"at least {digits}, the largest slope of the head between these samples"
    remedy = "Pass that or more; head_lipschitz and module_lipschitz return a constant that holds for all samples."
    if not math.isfinite(slope):
        got, allowed = "samples with equal features and different probabilities", "probabilities of one head"
        remedy = "Pass the features that the probabilities were computed from."
    raise InputError("gamma", got=got, allowed=allowed, remedy=remedy)


def head_lipschitz(weight: Array, loss: str) -> Lipschitz:
    """Return the constant of ``softmax(W u + b)`` with respect to a loss.

    - ``"tv"``: ``max_{k != l} ||w_k - w_l|| / 4``. Along a direction h the logits move by ``z = W h`` and the
      prediction p by ``p_k (z_k - <p, z>)``; half the sum of their sizes is half a mean absolute deviation, which is at
      most a quarter of ``max z - min z``.
    - ``"euclidean"``: ``sigma_max(W - mean row) / 2 / sqrt(2)``. The Jacobian ``diag(p) - p p'`` of softmax has norm at
      most 1/2 and ignores a shift common to all rows; ``1/sqrt(2)`` is the loss's zeta.

    Parameters
    ----------
    weight : (C, d) array or tensor
        Rows are classes, as in ``torch.nn.Linear``.
    loss : "tv", "euclidean" or "absolute"
        The last is that of a regressor ``w u + b``; its constant is ``||w||``.

    Examples
    --------
    >>> head_lipschitz(np.array([[1.0, 0.0], [-1.0, 0.0]]), "tv")
    Lipschitz(value=0.5, origin='linear head: max ||w_k - w_l|| / 4', loss='tv')
    """
    return _head(check_matrix("weight", weight), loss)


def _head(weight: FloatArray, loss: str) -> Lipschitz:
    metric = get_bound_loss(loss)
    return Lipschitz(metric.linear_constant(weight), f"linear head: {metric.head_formula}", loss)


def module_lipschitz(module: nn.Module, loss: str) -> Lipschitz:
    """Return a constant of ``softmax(module(u))`` with respect to a loss, as a product over its layers.

    Supported layers: Linear, Identity, Flatten, Dropout, ReLU, LeakyReLU, Tanh, Sigmoid, GELU, BatchNorm1d
    with running statistics, and Sequential of these. Dropout and BatchNorm are taken as in ``eval()``.

    Parameters
    ----------
    module : torch.nn.Module
        Features in, logits out.
    loss : "tv" or "euclidean"

    Examples
    --------
    >>> import torch
    >>> body = torch.nn.Linear(2, 2, bias=False)
    >>> _ = torch.nn.init.eye_(body.weight)
    >>> module_lipschitz(torch.nn.Sequential(body, torch.nn.ReLU(), body), "tv").origin
    'spectral product of 3 layers'
    """
    if get_bound_loss(loss).continuous:
        remedy = "Pass gamma as a number: the product of the norms of its layers."
        raise InputError("loss", got=repr(loss), allowed="'tv' or 'euclidean' for a softmax", remedy=remedy)
    body = _flattened(module)
    origin = f"spectral product of {len(body)} layers"
    last = _matrix(body[-1]) if body else None
    head = 1 / (2 * math.sqrt(2))  # both losses: softmax of a map of constant 1
    if last is not None:  # its centred rows give a smaller constant than its norm
        body = body[:-1]
        if not body:
            return _head(last, loss)
        head = _head(last, loss).value
    return Lipschitz(head * math.prod(_slope(layer) for layer in body), origin, loss)


def _flattened(module: nn.Module) -> list[nn.Module]:
    """Return the layers; subclasses, which may have their own forward, and hooks are refused."""
    from torch import nn

    plain = type(module).__module__.startswith("torch.nn.modules")
    if not plain or module._forward_hooks or module._forward_pre_hooks:
        got = f"{type(module).__name__}{' with hooks' if plain else ', which is not a layer of torch itself'}"
        raise InputError("module", got=got, allowed=LAYERS, remedy=BY_HAND)
    if not isinstance(module, nn.Sequential):
        return [module]
    return [layer for child in module for layer in _flattened(child)]


def _matrix(layer: Any) -> FloatArray | None:
    from torch import nn

    return check_matrix("weight", layer.weight) if isinstance(layer, nn.Linear) else None


def _slope(layer: Any) -> float:
    """Largest stretch of one layer."""
    from torch import nn

    weight = _matrix(layer)
    if weight is not None:
        return float(np.linalg.norm(weight, 2))
    if isinstance(layer, nn.Identity | nn.Flatten | nn.Dropout | nn.ReLU | nn.Tanh):
        return 1.0
    if isinstance(layer, nn.LeakyReLU):
        return max(1.0, abs(float(layer.negative_slope)))
    if isinstance(layer, nn.Sigmoid):
        return 0.25
    if isinstance(layer, nn.GELU):
        return GELU_SLOPE
    if isinstance(layer, nn.BatchNorm1d) and layer.running_var is not None:
        scale = layer.weight.detach() if layer.weight is not None else 1.0
        return float((scale / (layer.running_var + layer.eps).sqrt()).abs().max())
    raise InputError("module", got=type(layer).__name__, allowed=LAYERS, remedy=BY_HAND)
