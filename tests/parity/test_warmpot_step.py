"""One mini-batch step against an independent computation: POT's plan, plain torch for the loss."""

from __future__ import annotations

import numpy as np
import ot
import pytest
import torch

from warmpot.losses import LABEL_LOSSES
from warmpot.methods import BatchContext, Memory, TrainProgress, Warmpot
from warmpot.nets import Outputs, build_network
from warmpot.train import load_config

N, M, WIDTH, CLASSES = 26, 22, 12, 5


def view(source: Outputs, labels: torch.Tensor, target: Outputs, progress: float, loss: str) -> BatchContext:
    return BatchContext(source, labels, target, TrainProgress(round(1000 * progress), 1000), LABEL_LOSSES[loss])


def _batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    xs = torch.randn(N, WIDTH, dtype=torch.float64, generator=rng)
    xt = torch.randn(M, WIDTH, dtype=torch.float64, generator=rng) / 2 + 0.3
    return xs, torch.arange(N) % CLASSES, xt


def _by_hand(network, xs, ys, xt, *, eta1, eta2, eps, alpha, beta, loss_scale, normalise, entropy):
    """Return the loss from POT's log-domain entropic plan and the formulas of the training problem (Eq. (19))."""
    fs, zs, _ = network(xs)
    ft, zt, _ = network(xt)
    distance = torch.stack([torch.stack([torch.sqrt(((a - b) ** 2).sum()) for b in ft]) for a in fs])
    log_probability = zt - torch.logsumexp(zt, dim=1, keepdim=True)
    cost = eta1 * distance - eta2 * torch.stack([log_probability[:, y] for y in ys])
    plan = ot.partial.entropic_partial_wasserstein(
        np.full(N, 1 / (beta * N)), np.full(M, 1 / M), cost.detach().numpy(), reg=eps, m=alpha, numItermax=20000
    )
    plan = torch.as_tensor(plan)
    p = plan.sum(dim=1)
    weight = p / (p.sum() + 1e-5) if normalise else p
    own = torch.stack([torch.logsumexp(z, 0) - z[y] for z, y in zip(zs, ys, strict=True)])
    probability = torch.softmax(zt, dim=1)
    uncertainty = -(probability * probability.log()).sum() / M
    return (weight * own).sum() + loss_scale * (plan * cost).sum() + entropy * uncertainty


@pytest.mark.parametrize("preset", ["official", "paper", "imagenet-caltech"])
@pytest.mark.parametrize("progress", [0.0, 0.2, 1.0])
def test_loss_and_gradients_equal_an_independent_computation(preset: str, progress: float) -> None:
    config = load_config(preset)
    method = config.built_method
    assert isinstance(method, Warmpot)
    network = build_network(config.minibatch.network, WIDTH, CLASSES, seed=3).double().eval()
    xs, ys, xt = _batch(0)

    said = method.step(view(network(xs), ys, network(xt), progress, "cross_entropy"), Memory())
    ours = torch.autograd.grad(said.loss, list(network.parameters()))
    written = {  # the constants of docs/theory.md, Paper, code and package, written out again
        "official": {"eta1": 0.5, "eta2": 7.0, "eps": 7.0, "beta": 0.35, "loss_scale": 0.25, "normalise": True},
        "paper": {"eta1": 0.125, "eta2": 1.75, "eps": 7.0, "beta": 0.35, "loss_scale": 1.0, "normalise": False},
        "imagenet-caltech": {
            "eta1": 0.91824, "eta2": 5.47375, "eps": 5.58693, "beta": 0.71584, "loss_scale": 1.0, "normalise": True,
        },
    }[preset]  # fmt: skip
    top, ramp = (0.075946, 2500 / 48000) if preset == "imagenet-caltech" else (0.8, 0.5)
    alpha = 0.01 + (top - 0.01) * min(progress / ramp, 1.0)
    entropy = 0.1 if preset == "imagenet-caltech" else 0.0
    expected = _by_hand(network, xs, ys, xt, **written, alpha=alpha, entropy=entropy)
    theirs = torch.autograd.grad(expected, list(network.parameters()))

    assert said.loss.item() == pytest.approx(expected.item(), abs=1e-6)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-6, rtol=0)


def test_exact_plan_step_equals_pot() -> None:
    method = Warmpot(eps=None, alpha=0.6, beta=0.5, eta1=1.0, eta2=0.5, loss_scale=1.0, normalize_weights=False, ramp=0)
    network = build_network(load_config("official").minibatch.network, WIDTH, CLASSES, seed=1).double()
    xs, ys, xt = _batch(5)
    source, target = network(xs), network(xt)
    said = method.step(view(source, ys, target, 0.0, "cross_entropy"), Memory())
    cost = torch.cdist(source.features, target.features) + 0.5 * -torch.log_softmax(target.logits, 1).T[ys]
    value = ot.partial.partial_wasserstein2(np.full(N, 1 / (0.5 * N)), np.full(M, 1 / M), cost.detach().numpy(), m=0.6)
    assert float(said.metrics["transport"]) == pytest.approx(float(value), abs=1e-9)
