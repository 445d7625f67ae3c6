"""Networks that score features, and the gradient rules of adversarial training."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from warmpot.nets import (
    Critic,
    Discriminator,
    NetworkSettings,
    build_network,
    frozen_head,
    gradient_penalty,
    reverse_gradient,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(strength=st.floats(0, 10))
def test_the_reversed_gradient_has_the_other_sign_and_the_strength(strength: float) -> None:
    x = draw(4, 3).requires_grad_()
    y = reverse_gradient(x, strength)
    assert torch.equal(y, x)
    (gradient,) = torch.autograd.grad(y.pow(3).sum(), x)
    torch.testing.assert_close(gradient, -strength * 3 * x.detach() ** 2)


def test_every_slice_may_have_its_own_strength() -> None:
    x, strengths = draw(2, 4, 3).requires_grad_(), torch.tensor([0.5, 0.0], dtype=torch.float64)[:, None, None]
    (gradient,) = torch.autograd.grad(reverse_gradient(x, strengths).pow(3).sum(), x)
    torch.testing.assert_close(gradient[0], -0.5 * 3 * x[0].detach() ** 2)
    assert torch.equal(gradient[1], torch.zeros(4, 3, dtype=torch.float64))


def test_a_reversed_adversary_learns_while_the_features_flee() -> None:
    discriminator, x = Discriminator(3, 8, 0.0, seed=0).double(), draw(5, 3).requires_grad_()
    losses = [nn.functional.softplus(-discriminator(y)).mean() for y in (x, reverse_gradient(x, 0.5))]
    plain, turned = (torch.autograd.grad(loss, [x, *discriminator.parameters()]) for loss in losses)
    torch.testing.assert_close(turned[0], -0.5 * plain[0])
    for a, b in zip(turned[1:], plain[1:], strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("sphere", [None, 3.0])
def test_a_frozen_head_teaches_features_only(sphere: float | None) -> None:
    network = build_network(NetworkSettings(width=5, sphere=sphere), 6, 4, seed=0).double()
    found = network(draw(7, 6))
    frozen = frozen_head(network.head, found.features)
    torch.testing.assert_close(frozen, found.logits)
    wanted = torch.autograd.grad(found.logits.pow(2).sum(), found.features, retain_graph=True)[0]
    reached = torch.autograd.grad(frozen.pow(2).sum(), found.features, retain_graph=True)[0]
    torch.testing.assert_close(reached, wanted)
    frozen.pow(2).sum().backward()
    assert all(p.grad is None for p in network.head.parameters())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.bottleneck.parameters())


MAKERS: dict[str, Any] = {
    "discriminator": lambda seed: Discriminator(6, 16, seed=seed),
    "spectral": lambda seed: Critic(6, 16, spectral=True, seed=seed),
    "dropout": lambda seed: Critic(6, 16, spectral=False, dropout=0.5, slope=0.0, seed=seed),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_construction_is_seeded_and_leaves_the_global_generator_alone(kind: str) -> None:
    state = torch.get_rng_state()
    first, again, other = (MAKERS[kind](seed).double().eval() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), state)
    x = draw(9, 6)
    assert first(x).shape == (9,)
    assert torch.equal(first(x), again(x))
    assert not torch.equal(first(x), other(x))
    for (name, a), b in zip(first.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(a, b), name  # the start of the power iteration too


@pytest.mark.parametrize("slope", [0.0, 0.2])
@pytest.mark.parametrize("judge", [Critic, Discriminator])
def test_scores_are_what_the_formula_says(judge: Any, slope: float) -> None:
    if judge is Discriminator:
        network, slope = Discriminator(6, 16, seed=0), 0.0
    else:
        network = Critic(6, 16, spectral=False, slope=slope, seed=0)
    y, x = draw(9, 6).numpy(), draw(9, 6)
    weights = [layer for layer in network.double().eval().layers if isinstance(layer, nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in weights] == [(16, 6), (16, 16), (1, 16)]
    for k, layer in enumerate(weights):
        with torch.no_grad():
            layer.bias.copy_(draw(len(layer.bias), seed=k))
        y = y @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        y = y if k == 2 else np.maximum(y, 0) + slope * np.minimum(y, 0)
    np.testing.assert_allclose(network(x).detach(), y[:, 0], rtol=1e-12)


def test_a_discriminator_may_have_batch_norm_and_several_outputs() -> None:
    plain = Discriminator(6, 16, seed=0)
    network = Discriminator(6, 16, seed=0, batch_norm=True, n_outputs=4).double()
    kinds = [nn.Linear, nn.BatchNorm1d, nn.LeakyReLU]
    assert [type(layer) for layer in network.layers] == [*kinds, *kinds, nn.Linear]
    assert torch.equal(network.layers[0].weight, plain.layers[0].weight.double())
    x = draw(9, 6)
    hidden = network.layers[0](x)
    hidden = ((hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + 1e-5).sqrt()).relu()
    torch.testing.assert_close(network.layers[:3](x), hidden)
    assert network(x).shape == (9, 4)
    assert Discriminator(6, 16, seed=0, batch_norm=True)(x.float()).shape == (9,)


def test_the_discriminator_starts_as_xavier_says() -> None:
    layers = [layer for layer in Discriminator(64, 128, seed=0).layers if isinstance(layer, nn.Linear)]
    for layer in layers[:2]:
        n_out, n_in = layer.weight.shape
        assert layer.weight.std().item() == pytest.approx((2 / (n_in + n_out)) ** 0.5, rel=0.05)
    assert all(not layer.bias.any() for layer in layers)


@pytest.mark.parametrize("kind", ["discriminator", "dropout"])
def test_units_are_dropped_in_training_only(kind: str) -> None:
    network, x = MAKERS[kind](0).double(), draw(9, 6)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert not torch.equal(network.train()(x), network(x))
    assert torch.equal(network.eval()(x), network(x))


def test_a_spectral_critic_is_lipschitz_also_while_it_learns() -> None:
    critic = Critic(6, 32, spectral=True, seed=0).double()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    source, target = draw(40, 6), draw(40, 6, seed=1) + 1
    for _ in range(100):
        optimizer.zero_grad()
        (critic(target).mean() - critic(source).mean()).backward()
        optimizer.step()
    for _ in range(20):  # the iteration catches up with the last step
        critic(source)
    critic.eval()
    x, y = 5 * draw(3000, 6, seed=2), 5 * draw(3000, 6, seed=3)
    with torch.no_grad():
        slopes = (critic(x) - critic(y)).abs() / (x - y).norm(dim=1)
        gain = float(critic(source).mean() - critic(target).mean())
        norms = [torch.linalg.matrix_norm(critic.layers[k].weight, 2) for k in (0, 2, 4)]
    assert float(slopes.max()) <= 1 + 1e-3
    assert gain > 0.5  # of the means' distance, about 2.4: it has learnt
    assert all(float(norm) == pytest.approx(1, abs=1e-3) for norm in norms)
    plain = Critic(6, 32, spectral=False, seed=0).double()
    with torch.no_grad():
        for layer in plain.layers[::2]:
            layer.weight *= 4
        assert ((plain(x) - plain(y)).abs() / (x - y).norm(dim=1)).max() > 1  # what the test would see without


def test_a_critic_goes_on_from_its_state_exactly() -> None:
    def train(critic: Critic, steps: int) -> None:
        for _ in range(steps):
            critic.zero_grad()
            critic(draw(9, 6)).mean().backward()
            with torch.no_grad():
                for p in critic.parameters():
                    p -= 0.1 * p.grad

    critic = Critic(6, 16, spectral=True, seed=0).double()
    train(critic, 3)
    restored = Critic(6, 16, spectral=True, seed=8).double()
    restored.load_state_dict(critic.state_dict())
    twins = [restored, copy.deepcopy(critic)]
    for each in (critic, *twins):
        train(each, 3)
    for twin in twins:
        for (name, a), b in zip(critic.state_dict().items(), twin.state_dict().values(), strict=True):
            assert torch.equal(a, b), name


@given(scale=st.floats(0, 5), wanted=st.sampled_from([0.5, 1.0]), one_sided=st.booleans())
def test_the_penalty_of_a_linear_critic_is_known(scale: float, wanted: float, one_sided: bool) -> None:
    direction = scale * nn.functional.normalize(draw(6), dim=0)
    found = gradient_penalty(lambda x: x @ direction + 3, draw(9, 6), target_norm=wanted, one_sided=one_sided)
    excess = scale - wanted
    assert found.item() == pytest.approx(max(excess, 0) ** 2 if one_sided else excess**2, abs=1e-12)


def test_the_official_mistake_takes_norms_over_the_samples_of_each_batch() -> None:
    x, a = draw(6, 4), draw(4, seed=1)
    found = gradient_penalty(lambda points: (a * points**2).sum(dim=1), x, one_sided=False, stacked=3)
    norms = np.linalg.norm((2 * a.numpy() * x.numpy()).reshape(3, 2, 4), axis=1)
    assert found.item() == pytest.approx(np.mean((norms - 1) ** 2), rel=1e-12)


def test_the_penalty_takes_norms_over_features_and_means_over_samples() -> None:
    x, a = draw(9, 6), draw(6, seed=1).requires_grad_()

    def critic(points: Tensor) -> Tensor:
        return (a * points**2).sum(dim=1)

    outer = x.clone().requires_grad_()
    found = gradient_penalty(critic, outer, one_sided=False)
    norms = np.linalg.norm(2 * a.detach().numpy() * x.numpy(), axis=1)
    assert found.item() == pytest.approx(np.mean((norms - 1) ** 2), rel=1e-12)
    (gradient,) = torch.autograd.grad(found, a)  # the second derivative
    moved = 4 * a.detach().numpy() * x.numpy() ** 2
    expected = np.mean((2 * (norms - 1) / norms)[:, None] * moved, axis=0)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10)
    assert outer.grad is None


def test_the_penalty_teaches_a_critic_and_is_finite_where_it_is_flat() -> None:
    critic = Critic(6, 16, spectral=False, slope=0.0, seed=0).double()
    with torch.no_grad():
        critic.layers[0].bias.fill_(-100)  # every unit is off: the gradient is 0
    penalty = gradient_penalty(critic, draw(9, 6), one_sided=False)
    assert penalty.item() == pytest.approx(1)
    penalty.backward()
    assert all(bool(p.grad.isfinite().all()) for p in critic.parameters() if p.grad is not None)
    critic = Critic(6, 16, spectral=False, seed=0).double()
    with torch.no_grad():
        critic.layers[0].weight *= 10
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    before = gradient_penalty(critic, draw(9, 6), one_sided=True).item()
    for _ in range(50):
        optimizer.zero_grad()
        penalty = gradient_penalty(critic, draw(9, 6), one_sided=True)
        penalty.backward()
        optimizer.step()
    assert penalty.item() < 0.1 * before
