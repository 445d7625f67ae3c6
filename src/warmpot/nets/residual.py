"""A block that is added to the features of the target only."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from warmpot.nets.heads import empty_linear

__all__ = ["ResidualBlock"]

SPREAD, BIAS = 0.005, 0.1
"""Standard deviation of the first weights, and the first bias, of DRCN's public code: it starts near the identity."""


class ResidualBlock(nn.Module):
    """``x + Linear(ReLU(BatchNorm(Linear(x))))``, every layer as wide as x: how target features differ (DRCN [1]_).

    Weights are drawn from `seed`, not from the global generator.

    References
    ----------
    .. [1] Li et al., "Deep residual correction network for partial domain adaptation", TPAMI 2021.
    """

    def __init__(self, width: int, *, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        linear = [empty_linear(width, width) for _ in range(2)]
        for layer in linear:
            nn.init.normal_(layer.weight, 0.0, SPREAD, generator=generator)
            nn.init.constant_(layer.bias, BIAS)
        self.layers = nn.Sequential(linear[0], nn.BatchNorm1d(width), nn.ReLU(), linear[1])

    def forward(self, x: Tensor) -> Tensor:
        """Correct the rows of an (n, width) tensor."""
        corrected: Tensor = x + self.layers(x)
        return corrected
