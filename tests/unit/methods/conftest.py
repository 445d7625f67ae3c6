"""Batches and a comparison with formulas for the tests of adversarial methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from warmpot.methods import BatchContext, Memory, StepResult, TrainProgress
from warmpot.nets import Outputs

Formula = Callable[[BatchContext, Any], tuple[Tensor, list[tuple[Tensor, float]]]]
"""Returns the sum of the terms without reversal, and every term behind a reversal with its strength."""


def make_outputs(n: int, width: int, classes: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    return Outputs(*(torch.randn(n, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (width, classes)))


@pytest.fixture
def batch() -> Callable[..., BatchContext]:
    """Makes batches of random features and logits (leaves of the graph), of any size."""

    def make(
        n: int = 5, m: int = 4, *, width: int = 6, classes: int = 3, step: int = 300, weights: Any = "equal"
    ) -> BatchContext:
        given = torch.ones(n, dtype=torch.float64) if weights == "equal" else weights
        source, target = make_outputs(n, width, classes, 0), make_outputs(m, width, classes, 1)
        labels = torch.arange(n) % classes
        return BatchContext(source, labels, target, TrainProgress(step, 1000), weights=given)

    return make


@pytest.fixture
def same_as() -> Callable[..., None]:
    """Compares a step with a formula: the loss, and the gradients of features, logits and the memory's parameters."""

    def compare(result: StepResult, context: BatchContext, memory: Memory, formula: Formula) -> None:
        plain, reversed_ = formula(context, memory)
        total = plain + sum(term for term, _ in reversed_)
        assert float(result.loss.detach()) == pytest.approx(float(total.detach()), rel=1e-6)
        outputs = [part for side in (context.source, context.target) for part in side[:2]]
        parameters = list(memory.trained())

        def gradients(loss: Tensor, of: list[Tensor]) -> list[Tensor]:
            if not of or not loss.requires_grad:
                return [torch.zeros_like(x) for x in of]
            found = torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True)
            return [torch.zeros_like(x) if g is None else g for x, g in zip(of, found, strict=True)]

        wanted = gradients(plain, outputs)
        for term, strength in reversed_:
            wanted = [a - strength * b for a, b in zip(wanted, gradients(term, outputs), strict=True)]
        wanted += gradients(total, parameters)
        found = gradients(result.loss, [*outputs, *parameters])
        for mine, formulas in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine, formulas, rtol=1e-6, atol=1e-10)
        assert found[0].abs().max() > 1e-8  # the features do get a gradient
        if parameters:
            assert max(float(x.abs().max()) for x in found[4:]) > 1e-8
        assert result.weights is None or not result.weights.requires_grad

    return compare
