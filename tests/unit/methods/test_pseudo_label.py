"""Pseudo-labels: loss and gradients by loops, the schedule, nothing confident, the recipes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Memory, TrainProgress
from warmpot.methods.pseudo_label import PseudoLabel, pseudo_label_loss
from warmpot.nets import Outputs
from warmpot.train import load_config

LABELS = torch.tensor([0, 1, 2, 0, 3])


def make_context(step: int = 8, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> BatchContext:
    rng = torch.Generator().manual_seed(3)
    parts = [torch.randn(n, k, dtype=torch.float64, generator=rng) for n, k in ((5, 2), (5, 4), (6, 2), (6, 4))]
    fs, zs, ft, zt = (part.to(dtype).requires_grad_() for part in (parts[0], parts[1], parts[2], scale * parts[3]))
    weights = torch.tensor([1.0, 0.5, 0.0, 2.0, 1.0], dtype=dtype)
    return BatchContext(Outputs(fs, zs), LABELS, Outputs(ft, zt), TrainProgress(step, 10), weights=weights)


def probabilities(row: np.ndarray) -> np.ndarray:
    likely = [math.exp(z - max(row)) for z in row]
    return np.array(likely) / sum(likely)


def brute(context: BatchContext, weight: float, threshold: float) -> tuple[float, np.ndarray, np.ndarray]:
    """The loss, and its gradients by the formula ``p - e``."""
    zs, zt = (part.logits.detach().double().numpy() for part in (context.source, context.target))
    w = context.given_weights.double().numpy()
    loss, gradient_s, gradient_t = 0.0, np.zeros_like(zs), np.zeros_like(zt)
    for i, (row, label) in enumerate(zip(zs, LABELS.tolist(), strict=True)):
        p = probabilities(row)
        loss -= w[i] / (w.sum() + 1e-5) * math.log(p[label])
        gradient_s[i] = w[i] / (w.sum() + 1e-5) * (p - np.eye(4)[label])
    for j, row in enumerate(zt):
        p = probabilities(row)
        if p.max() >= threshold:
            loss -= weight / len(zt) * math.log(p.max())
            gradient_t[j] = weight / len(zt) * (p - np.eye(4)[p.argmax()])
    return loss, gradient_s, gradient_t


@pytest.mark.parametrize(("step", "weight"), [(0, 0.0), (1, 0.0), (2, 0.6), (6, 3.0), (9, 3.0)])
@pytest.mark.parametrize("threshold", [0.0, 0.7])
def test_the_loss_and_its_gradients_are_those_of_the_formula(step: int, weight: float, threshold: float) -> None:
    context = make_context(step)
    result = PseudoLabel(threshold=threshold).step(context, Memory())
    result.loss.backward()
    loss, gradient_s, gradient_t = brute(context, weight, threshold)
    assert float(result.loss.detach()) == pytest.approx(loss, abs=1e-6)
    np.testing.assert_allclose(context.source.logits.grad, gradient_s, atol=1e-6)
    np.testing.assert_allclose(context.target.logits.grad, gradient_t, atol=1e-6)
    assert context.source.features.grad is None
    assert result.metrics["pseudo_weight"] == pytest.approx(weight)


def test_where_nothing_is_confident_the_target_has_no_part() -> None:
    context = make_context(scale=0.01)
    result = PseudoLabel(threshold=0.9).step(context, Memory())
    result.loss.backward()
    assert float(result.metrics["confident"]) == 0
    assert not context.target.logits.grad.any()


def test_one_sample_and_certain_predictions_are_finite() -> None:
    for logits in (torch.tensor([[800.0, 0.0, -800.0]]), torch.zeros(1, 3)):
        logits = logits.requires_grad_()
        loss, _ = pseudo_label_loss(logits, 0.0)
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(logits.grad).all()


def test_half_precision_is_summed_in_single() -> None:
    loss, _ = pseudo_label_loss(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).bfloat16(), 0.0)
    assert loss.dtype == torch.float32


def test_a_ramp_without_length_is_a_step() -> None:
    method = PseudoLabel(start=0.5, end=0.5)
    assert [method.weight_at(share) for share in (0.49, 0.5)] == [0.0, 3.0]


@pytest.mark.parametrize("bad", [{"weight": -1.0}, {"threshold": 1.5}, {"start": 0.5, "end": 0.4}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        PseudoLabel(**bad)


@pytest.mark.parametrize("preset", ["pseudo-label", "pseudo-label-frozen"])
def test_the_recipes(preset: str) -> None:
    assert load_config(preset).params == {"weight": 3.0, "threshold": 0.9, "start": 0.1, "end": 0.6}
    loop = load_config("frozen" if preset.endswith("frozen") else "official").minibatch
    assert load_config(preset).minibatch == loop
