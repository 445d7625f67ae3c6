"""Lipschitz constants of torch heads."""

from __future__ import annotations

import pytest
import torch

from warmpot.bounds import module_lipschitz
from warmpot.bounds.lipschitz import GELU_SLOPE
from warmpot.errors import InputError


class _Residual(torch.nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


def test_layers_that_compute_something_else_are_refused() -> None:
    hooked = torch.nn.Linear(2, 2)
    hooked.register_forward_hook(lambda layer, given, found: 10 * found)
    for module in (_Residual(torch.nn.Linear(2, 2)), hooked, torch.nn.Sequential(torch.nn.ReLU(), hooked)):
        with pytest.raises(InputError, match="Pass gamma as a number"):
            module_lipschitz(module, "tv")


def test_the_slope_of_gelu_is_its_largest() -> None:
    x = torch.linspace(-5, 5, 20001, dtype=torch.float64, requires_grad=True)
    for form in ("none", "tanh"):
        slope = torch.autograd.grad(torch.nn.GELU(approximate=form)(x).sum(), x)[0].abs().max().item()
        assert slope <= GELU_SLOPE <= slope + 2e-3
