"""Small networks that judge features, and the gradient rules of adversarial training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from warmpot.nets.network import make_linear

__all__ = ["Critic", "Discriminator", "frozen_head", "gradient_penalty", "reverse_gradient"]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, strength: float) -> Tensor:
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return -ctx.strength * grads[0], None


def reverse_gradient(x: Tensor, strength: float) -> Tensor:
    """Return `x`; its gradient comes back multiplied by ``-strength`` (gradient reversal [1]_).

    References
    ----------
    .. [1] Ganin and Lempitsky, "Unsupervised domain adaptation by backpropagation", ICML 2015.
    """
    reversed_: Tensor = _Reversal.apply(x, strength)  # type: ignore[no-untyped-call]
    return reversed_


class _Judge(nn.Module):
    """``width -> hidden -> hidden -> 1``: one number a row."""

    def __init__(self, width: int, hidden: int, slope: float, dropout: float, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        layers: list[nn.Module] = []
        for n_in in (width, hidden):
            layers += [make_linear(n_in, hidden, generator), nn.LeakyReLU(slope)]
            if dropout:
                layers.append(nn.Dropout(dropout))
        self.layers = nn.Sequential(*layers, make_linear(hidden, 1, generator))

    def forward(self, x: Tensor) -> Tensor:
        """Judge the rows: (n, width) to (n,)."""
        found: Tensor = self.layers(x)
        return found.squeeze(1)


class Discriminator(_Judge):
    """Tells the domains apart: logits (n,), for a loss that takes logits (no sigmoid, hence no overflow).

    Parameters
    ----------
    width : int
        Width of its input.
    hidden : int
        Width of both hidden layers, of ReLU units.
    dropout : float
        After each of them.
    seed : int
        Of the weights (Xavier-normal; zero biases); no global state is touched.
    """

    def __init__(self, width: int, hidden: int = 1024, dropout: float = 0.5, *, seed: int) -> None:
        super().__init__(width, hidden, 0.0, dropout, seed)


class Critic(_Judge):
    """A potential of the (dual) Wasserstein distance: scores (n,).

    Parameters
    ----------
    width : int
        Width of its input.
    hidden : int
        Width of both hidden layers, of leaky ReLU units.
    spectral : bool
        Divide every layer's weight by its largest singular value, followed by one power iteration a forward in
        training mode: the critic is 1-Lipschitz then, without a penalty [1]_.
    dropout : float
        After each hidden layer.
    slope : float
        Of the units below 0; 0 makes them ReLU.
    seed : int
        Of the weights (Xavier-normal; zero biases) and of the power iteration; no global state is touched.

    References
    ----------
    .. [1] Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018.
    """

    def __init__(
        self, width: int, hidden: int = 1024, *, spectral: bool, dropout: float = 0.0, slope: float = 0.01, seed: int
    ) -> None:
        super().__init__(width, hidden, slope, dropout, seed)
        if spectral:
            with torch.random.fork_rng(devices=()):
                torch.default_generator.manual_seed(seed)  # starts the power iteration; `torch.manual_seed` is for all
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

    Only the critic learns from it: `x` is detached. A critic must judge each row by itself (no BatchNorm).

    Parameters
    ----------
    critic : callable
        From (n, d) to (n,).
    x : Tensor, shape (n, d)
        Where the gradient is taken.
    target_norm : float
        The Lipschitz constant that is wanted.
    one_sided : bool
        Whether smaller gradients are free.
    stacked : int, optional
        AR's public code, by mistake: the rows are so many batches on top of each other, and the norm is taken over
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
    found: Tensor = (excess.relu() if one_sided else excess).square().mean()
    return found


def frozen_head(head: nn.Linear, features: Tensor) -> Tensor:
    """Apply a head that does not learn from it: the gradient reaches the features only (AR, ARPM)."""
    # Features may come in another precision than the head has: Fabric hands out float32.
    weight, bias = (part.detach().to(features.dtype) for part in (head.weight, head.bias))
    return nn.functional.linear(features, weight, bias)
