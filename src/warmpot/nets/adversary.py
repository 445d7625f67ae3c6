"""Small networks that score features, and the gradient rules of adversarial training."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from warmpot.nets.network import make_linear

__all__ = ["ClassDiscriminators", "Critic", "Discriminator", "frozen_head", "gradient_penalty", "reverse_gradient"]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float | Tensor) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grads[0], None


def reverse_gradient(x: Tensor, strength: float | Tensor) -> Tensor:
    """Return `x`; its gradient comes back multiplied by ``-strength`` (gradient reversal [1]_).

    A tensor of strengths, which has no gradient, is broadcast over `x`.

    References
    ----------
    .. [1] Ganin and Lempitsky, "Unsupervised domain adaptation by backpropagation", ICML 2015.
    """
    reversed_: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


class _Scorer(nn.Module):
    """``width -> hidden -> hidden -> n_outputs``: scores (n,) for one output, (n, n_outputs) for more."""

    def __init__(
        self, width: int, hidden: int, slope: float, dropout: float, seed: int, batch_norm: bool, n_outputs: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for n_in in (width, hidden):
            layers.append(make_linear(n_in, hidden, generator))
            layers += [nn.BatchNorm1d(hidden)] if batch_norm else []
            layers.append(nn.LeakyReLU(slope))
            layers += [nn.Dropout(dropout)] if dropout else []
        self.layers = nn.Sequential(*layers, make_linear(hidden, n_outputs, generator))

    def forward(self, x: Tensor) -> Tensor:
        """Score the rows of an (n, width) tensor."""
        scores: Tensor = self.layers(x)
        return scores.squeeze(1) if scores.shape[1] == 1 else scores


class Discriminator(_Scorer):
    """Distinguishes the domains: logits, for a loss that takes logits (without a sigmoid nothing overflows).

    Weights are Xavier-normal, drawn from `seed` and not from the global generator; biases are zero.

    Parameters
    ----------
    width, hidden : int
        Width of its input, and of both hidden layers, of ReLU units.
    dropout, batch_norm : float, bool
        Dropout after each hidden layer; or instead BatchNorm before each ReLU, as in the Transfer-Learning-Library.
    n_outputs : int
        Number of logits per sample, such as one per class (ETN); with 1 the result has the shape (n,).
    """

    def __init__(
        self,
        width: int,
        hidden: int = 1024,
        dropout: float = 0.5,
        *,
        seed: int,
        batch_norm: bool = False,
        n_outputs: int = 1,
    ) -> None:
        super().__init__(width, hidden, 0.0, 0.0 if batch_norm else dropout, seed, batch_norm, n_outputs)


class ClassDiscriminators(nn.Module):
    """A discriminator for each class, of inputs of its own (SAN): (C, n, width) to logits (C, n).

    All have the same shape, ReLU units and dropout, and are applied together. Initialised as `Discriminator`.

    Parameters
    ----------
    n_classes, width, hidden : int
        Number of discriminators; width of their inputs, and of their hidden layers.
    layers : int
        Number of hidden layers.
    dropout : float
        After each hidden layer.
    """

    def __init__(
        self, n_classes: int, width: int, hidden: int = 1024, layers: int = 2, dropout: float = 0.5, *, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        sizes = [width, *[hidden] * layers, 1]
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for n_in, n_out in pairwise(sizes):
            parts = [make_linear(n_in, n_out, generator).weight.detach().T for _ in range(n_classes)]
            self.weights.append(nn.Parameter(torch.stack(parts)))
            self.biases.append(nn.Parameter(torch.zeros(n_classes, 1, n_out)))
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        """Score the rows of a (C, n, width) tensor, each slice by its own discriminator."""
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if number:
                x = nn.functional.dropout(x.relu(), self.dropout, self.training)
            x = torch.baddbmm(bias, x, weight)
        return x.squeeze(2)


class Critic(_Scorer):
    """A potential of the (dual) Wasserstein distance: scores (n,). Initialised as `Discriminator`.

    Parameters
    ----------
    width, hidden : int
        Width of its input, and of both hidden layers, of leaky ReLU units.
    spectral : bool
        Divide every layer's weight by its largest singular value, estimated by one power iteration per forward in
        training mode (which starts from `seed`): then the critic is 1-Lipschitz without a penalty [1]_.
    dropout, slope : float
        Dropout after each hidden layer; slope of the units below 0 (0 makes them ReLU).

    References
    ----------
    .. [1] Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018.
    """

    def __init__(
        self, width: int, hidden: int = 1024, *, spectral: bool, dropout: float = 0.0, slope: float = 0.01, seed: int
    ) -> None:
        super().__init__(width, hidden, slope, dropout, seed, batch_norm=False, n_outputs=1)
        if spectral:
            with torch.random.fork_rng(devices=()):
                # Starts the power iteration. `torch.manual_seed` would seed the GPUs as well.
                torch.default_generator.manual_seed(seed)
                for layer in self.layers:
                    if isinstance(layer, nn.Linear):
                        spectral_norm(layer)


def gradient_penalty(
    critic: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    target_norm: float = 1.0,
    one_sided: bool,
    stacked: int | None = None,
) -> Tensor:
    """Mean over the rows of ``(||grad critic(x_i)||_2 - target_norm)^2``, or of its part above the target norm [1]_.

    Only the critic gets a gradient: `x` is detached.

    Parameters
    ----------
    critic : callable
        From `x` (n, d) to (n,); it must score each row by itself (no BatchNorm).
    target_norm : float
        The wanted Lipschitz constant.
    one_sided : bool
        Whether smaller gradients have no penalty.
    stacked : int, optional
        Reproduces a mistake of AR's public code: the rows are this many stacked batches, and the norm is taken over
        the samples of each batch, feature by feature.

    References
    ----------
    .. [1] Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017.
    """
    points = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(critic(points).sum(), points, create_graph=True)
    if stacked is not None:
        gradient = gradient.reshape(stacked, -1, gradient.shape[1])
    excess = torch.linalg.vector_norm(gradient, dim=1) - target_norm
    penalty: Tensor = (excess.relu() if one_sided else excess).square().mean()
    return penalty


def frozen_head(head: nn.Linear, features: Tensor) -> Tensor:
    """Apply a head without training it: the gradient reaches the features only (AR, ARPM)."""
    # Features may have another precision than the head: Fabric returns float32.
    weight, bias = (part.detach().to(features.dtype) for part in (head.weight, head.bias))
    return nn.functional.linear(features, weight, bias)
