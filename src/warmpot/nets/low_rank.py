"""Low-rank updates of attention (LoRA): a transformer is adapted through few trained numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot.errors import InputError

__all__ = ["LowRankLinear", "adapt_attention"]

ATTENTION = "attn"
"""The name of attention in timm's networks."""


class LowRankLinear(nn.Module):
    """A frozen linear layer whose weight ``W`` becomes ``W + up @ down``; `up` starts at 0, which changes nothing.

    It has a `weight` and a `bias`, since some networks of timm use these in place of calling the layer.

    References
    ----------
    Hu et al., "LoRA: low-rank adaptation of large language models", ICLR 2022.
    """

    def __init__(self, linear: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        like = linear.weight
        bound = 1.0 / math.sqrt(linear.in_features)  # torch's own for a linear layer
        down = torch.empty(rank, linear.in_features).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down.to(like.device, like.dtype))
        self.up = nn.Parameter(like.new_zeros(linear.out_features, rank))

    @property
    def weight(self) -> Tensor:
        """The weight with its update."""
        return self.linear.weight + self.up @ self.down

    @property
    def bias(self) -> Tensor | None:
        """The bias, which is not trained."""
        return self.linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return functional.linear(x, self.weight, self.bias)


def adapt_attention(network: nn.Module, rank: int, seed: int) -> None:
    """Freeze a network but for low-rank updates of the linear layers inside its attention.

    Raises
    ------
    InputError
        The network has no attention, or the rank is larger than that of a layer.
    """
    layers = {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear) and ATTENTION in name.split(".")[:-1]
    }
    if not layers:
        got, allowed = "a network without attention", "a transformer of timm, such as vit_small_patch16_224"
        raise InputError("lora", got=got, allowed=allowed, remedy="Leave lora out, and train whole blocks.")
    largest = min(min(layer.weight.shape) for layer in layers.values())
    if rank > largest:
        raise InputError("lora", got=rank, allowed=f"1 to {largest} for this network", remedy="Try 8.")
    network.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for name, layer in layers.items():
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, LowRankLinear(layer, rank, generator))
