"""Networks: features on a sphere, joint passes, files of them."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from warmpot._settings import from_mapping, to_mapping
from warmpot.bounds import head_lipschitz
from warmpot.errors import InputError
from warmpot.nets import (
    Network,
    NetworkSettings,
    Outputs,
    Pair,
    PrototypeHead,
    SphereHead,
    WeightNormHead,
    build_network,
    load_network,
    restart_head,
    save_network,
    sphere_radius,
)
from warmpot.nets.network import RowScale, make_scale

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))


def make(sphere: Any = 3.0, n_outputs: int = 4, **more: Any) -> tuple[Network, NetworkSettings]:
    """A network with a bias that is not 0."""
    settings = NetworkSettings(sphere=sphere, width=5, **more)
    network = build_network(settings, X.shape[1], n_outputs, seed=1)
    network.head.bias = torch.linspace(-2, 2, n_outputs)
    return network, settings


def same(a: Outputs, b: Outputs) -> bool:
    return all(torch.equal(p, q) for p, q in zip(a, b, strict=True))


@given(n_classes=st.integers(2, 3000))
def test_the_radius_is_the_least_that_reaches_the_wanted_probability(n_classes: int) -> None:
    r = sphere_radius(n_classes)
    wanted = 0.999 if n_classes < 25 else 0.9999 if n_classes < 75 else 0.99999 if n_classes < 150 else 0.999999
    # Centres of equal mutual distance: cosine 1 with their own row of the head, -1/(C-1) with all others.
    own = 1 / (1 + (n_classes - 1) * math.exp(-r - r / (n_classes - 1)))
    assert own == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("n_classes", "radius"), [(65, 13.163), (1000, 20.702)])
def test_the_radius_is_that_of_the_public_code(n_classes: int, radius: float) -> None:
    assert sphere_radius(n_classes) == pytest.approx(radius, abs=5e-4)
    network = build_network(NetworkSettings(sphere="auto"), 4, n_classes, seed=0)
    assert torch.allclose(network(X[:, :4]).features.norm(dim=1), torch.tensor(radius), atol=1e-3)


@pytest.mark.parametrize("bottleneck", ["linear", "bn_relu", "none"])
def test_outputs_on_the_sphere_are_what_the_formula_says(bottleneck: str) -> None:
    network, _ = make(sphere=3, bottleneck=bottleneck, scale="rows", radius=2.0)
    x = X.double().numpy()
    with torch.no_grad():
        found = network.double().eval()(X.double())
        raw = network.bottleneck[:-1](found.pooled).numpy()
    state = {name: tensor.numpy() for name, tensor in network.head.state_dict().items()}
    W, b = (state[f"parametrizations.{name}.original"] for name in ("weight", "bias"))
    np.testing.assert_allclose(found.pooled, 2 * x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-12)
    length = np.linalg.norm(raw, axis=1, keepdims=True)
    features = 3 * raw / np.where(length > 0, length, 1)  # all units of a row may be off
    np.testing.assert_allclose(found.features, features, rtol=1e-12)
    logits = features @ (W / np.linalg.norm(W, axis=1, keepdims=True)).T + 3 * np.tanh(b)
    np.testing.assert_allclose(found.logits, logits, rtol=1e-11)
    assert (b != 0).any()


def test_distances_after_roots_are_hellinger_distances() -> None:
    x = torch.rand(5, 8, dtype=torch.float64) * 3
    x[0, :4] = 0
    roots = make_scale("roots", 8)(x)
    p = (x / x.sum(dim=1, keepdim=True)).numpy()
    hellinger = np.sqrt(((np.sqrt(p[:, None]) - np.sqrt(p[None])) ** 2).sum(axis=2))
    np.testing.assert_allclose(torch.cdist(roots, roots), hellinger, atol=1e-7)
    torch.testing.assert_close(make_scale("roots", 8)(-x), -roots)


def test_roots_have_finite_gradients_at_zero_and_keep_rows_of_zeros() -> None:
    x = torch.tensor([[0.0, 1.0, 4.0], [0.0, 0.0, 0.0]], requires_grad=True)
    scaled = make_scale("roots", 3)(x)
    torch.testing.assert_close(scaled.detach()[0], torch.tensor([0.0, 1.0, 2.0]) / 5**0.5)
    assert (scaled[1] == 0).all()
    scaled.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_the_pooled_input_is_that_of_the_bottleneck() -> None:
    network = build_network(NetworkSettings(scale="rows", radius=2.0), 6, 3, seed=0, backbone=nn.Linear(6, 6))
    found = network(X)
    assert found.pooled is not None
    torch.testing.assert_close(found.pooled.norm(dim=1), torch.full((7,), 2.0))
    assert torch.equal(network.bottleneck(found.pooled), found.features)
    (gradient,) = torch.autograd.grad(found.pooled[0, 0], network.backbone.weight)
    assert gradient.abs().sum() > 0
    assert Outputs(X, X).pooled is None


def test_a_sphere_head_reads_like_a_linear_one() -> None:
    head = make()[0].head
    assert isinstance(head, nn.Linear)
    assert (head.in_features, head.out_features, head.weight.shape, head.bias.shape) == (5, 4, (4, 5), (4,))
    torch.testing.assert_close(head.weight.norm(dim=1), torch.ones(4))
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(head(x), x @ head.weight.T + head.bias)
    assert head_lipschitz(head.weight.detach().double(), "euclidean").value > 0
    assert {name for name, _ in head.named_parameters()} == {
        "parametrizations.weight.original", "parametrizations.bias.original",
    }  # fmt: skip


def test_a_sphere_head_takes_weights_and_biases() -> None:
    head = make()[0].head
    weight = torch.diag_embed(torch.tensor([2.0, 3, 4, 5]))
    with torch.no_grad():
        head.weight = torch.cat([weight, torch.zeros(4, 1)], dim=1)
        head.bias = torch.tensor([-3.0, -1, 0, 3])
    assert torch.equal(head.weight[:, :4], torch.eye(4))
    torch.testing.assert_close(head.bias, torch.tensor([-3.0, -1, 0, 3]))
    for bad in (3.5, math.nan):
        with pytest.raises(InputError, match="bias"):
            head.bias = torch.full((4,), bad)


def test_what_is_trained_keeps_its_length_under_gradients() -> None:
    network, _ = make()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    before = network.head.weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(X).logits, torch.arange(7) % 4).backward()
        optimizer.step()
    torch.testing.assert_close(network.head.weight.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(network(X).features.norm(dim=1), torch.full((7,), 3.0))
    assert (network.head.weight - before).abs().max() > 1e-2
    assert network.head.bias.abs().max() < 3


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_rows_of_any_length_have_finite_features_and_gradients(size: float) -> None:
    network = build_network(NetworkSettings(sphere=3.0, width=5), 6, 4, seed=0)
    x = X.clone()
    x[0] *= size
    found = network(x)
    wanted = torch.full((7,), 3.0)
    wanted[0] *= size > 0
    torch.testing.assert_close(found.features.norm(dim=1), wanted)
    nn.functional.cross_entropy(found.logits, torch.zeros(7, dtype=torch.long)).backward()
    assert all(bool(p.grad.isfinite().all()) for p in network.parameters() if p.grad is not None)


def test_the_gradient_of_scaled_rows_is_exact() -> None:
    scale = RowScale(2.0)
    assert torch.autograd.gradcheck(scale, X.double().requires_grad_())


def test_networks_on_a_sphere_survive_copies_and_files(tmp_path: Path) -> None:
    network, settings = make(scale="rows", joint=True)
    network.double().eval()
    expected = network(X.double())
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert same(twin(X.double()), expected)
        with torch.no_grad():
            twin.head.weight = torch.ones(4, 5, dtype=torch.float64)
        assert same(network(X.double()), expected)
        assert not torch.equal(twin(X.double()).logits, expected.logits)
    other = build_network(settings, 6, 4, seed=9).double()
    other.load_state_dict(network.state_dict())
    assert same(other.eval()(X.double()), expected)
    save_network(tmp_path, network, settings, {"classes": ["a"]})
    loaded, read, facts = load_network(tmp_path)
    assert (read, facts, loaded.head.weight.dtype) == (settings, {"classes": ["a"]}, torch.float64)
    assert same(loaded(X.double()), expected)


def test_a_pickled_head_learns_on() -> None:
    head = make()[0].head.eval()
    twin = pickle.loads(pickle.dumps(head))
    assert isinstance(twin, SphereHead)
    assert not twin.training
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in twin.parameters())
    assert len(list(twin.parameters())) == 2


def test_older_files_have_plain_heads(tmp_path: Path) -> None:
    settings = NetworkSettings(width=5)
    network = build_network(settings, 6, 4, seed=0).eval()
    save_network(tmp_path, network, settings, {})
    path = tmp_path / "model.json"
    described = json.loads(path.read_text())
    del described["network"]["sphere"], described["network"]["joint"]
    path.write_text(json.dumps(described))
    loaded, read, _ = load_network(tmp_path)
    assert (read, type(loaded.head)) == (settings, nn.Linear)
    assert same(loaded(X), network(X))


def test_settings_of_a_sphere() -> None:
    for value, wanted in ((None, None), ("auto", "auto"), (10, 10.0), ("1e1", 10.0)):
        settings = from_mapping(NetworkSettings, {"sphere": value}, "network")
        assert settings.sphere == wanted
        assert from_mapping(NetworkSettings, json.loads(json.dumps(to_mapping(settings))), "network") == settings
    for bad in ("Auto", 0, -1.0, math.nan, math.inf, True):
        with pytest.raises(InputError, match=r"network\.sphere"):
            from_mapping(NetworkSettings, {"sphere": bad}, "network")
    with pytest.raises(InputError, match=r"sphere.*projection"):
        NetworkSettings(sphere=1.0, bottleneck="projection")
    for sphere in ("auto", 1.0):
        with pytest.raises(InputError, match=r"sphere.*single output"):
            build_network(NetworkSettings(sphere=sphere), 3, 1, seed=0)
    with pytest.raises(InputError, match="n_classes"):
        sphere_radius(1)


def test_building_draws_from_no_global_generator() -> None:
    state = torch.get_rng_state()
    first, second = make()[0], make()[0]
    assert torch.equal(torch.get_rng_state(), state)
    assert same(first(X), second(X))


def normalised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(dim=0)) / (x.var(dim=0, correction=0) + 1e-5).sqrt()


@pytest.mark.parametrize("joint", [False, True])
def test_batch_norm_sees_domains_apart_or_together(joint: bool) -> None:
    network = build_network(NetworkSettings(bottleneck="bn_relu", width=5), 6, 4, seed=1).double()
    source, target, extra = X.double(), X[:4].double() + 3, X[2:5].double() - 5
    pair = Pair(network, joint=joint)
    outputs = pair({"source": source, "target": target, "extra": extra})
    assert list(outputs) == ["source", "target", "extra"]
    linear, norm = network.bottleneck[0], network.bottleneck[1]
    assert isinstance(norm, nn.BatchNorm1d)
    assert int(norm.num_batches_tracked) == (2 if joint else 3)
    raw = [linear(x) for x in (source, target, extra)]
    apart = [normalised(x) for x in raw]
    together = normalised(torch.cat(raw[:2]))
    wanted = [together[:7], together[7:], apart[2]] if joint else apart
    for out, hidden, x in zip(outputs.values(), wanted, (source, target, extra), strict=True):
        assert out.pooled is not None
        torch.testing.assert_close(out.features, hidden.relu())
        torch.testing.assert_close(out.logits, network.head(hidden.relu()))
        assert torch.equal(out.pooled, x)


@pytest.mark.parametrize("joint", [False, True])
def test_passes_differ_by_batch_norm_only(joint: bool) -> None:
    network = make()[0].eval()
    batches = {"source": X, "target": X[:3] + 1}
    for out, x in zip(Pair(network, joint=joint)(batches).values(), batches.values(), strict=True):
        for mine, wanted in zip(out, network(x), strict=True):
            torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("name", ["bn", "bn_relu", "bn_relu_dropout", "relu_dropout"])
def test_a_bottleneck_applies_the_layers_of_its_name_after_the_same_linear_layer(name: str) -> None:
    plain, network = (
        build_network(NetworkSettings(bottleneck=kind, width=5), 6, 4, seed=1) for kind in ("linear", name)
    )
    kinds = {"bn": nn.BatchNorm1d, "relu": nn.ReLU, "dropout": nn.Dropout}
    assert [type(layer) for layer in network.bottleneck] == [nn.Linear, *(kinds[word] for word in name.split("_"))]
    assert torch.equal(network.bottleneck[0].weight, plain.bottleneck[0].weight)
    assert torch.equal(network.head.weight, plain.head.weight)
    if name.startswith("bn"):
        network.bottleneck[1].running_mean.fill_(0.5)
    wanted = plain(X).features - 0.5 * name.startswith("bn")
    wanted = wanted / (1 + 1e-5) ** 0.5 if name.startswith("bn") else wanted
    torch.testing.assert_close(network.eval()(X).features, wanted.relu() if "relu" in name else wanted)
    assert NetworkSettings(bottleneck=name).has_batch_norm == name.startswith("bn")


def test_a_weight_norm_head_starts_as_the_linear_one_and_trains_lengths_and_directions(tmp_path: Path) -> None:
    settings = NetworkSettings(width=5, head="weight_norm")
    plain, network = (build_network(kind, 6, 4, seed=1) for kind in (NetworkSettings(width=5), settings))
    assert isinstance(network.head, WeightNormHead)
    torch.testing.assert_close(network(X).logits, plain(X).logits)
    lengths, directions = network.head.parametrizations.weight.original0, network.head.parametrizations.weight.original1
    torch.testing.assert_close(lengths, plain.head.weight.norm(dim=1, keepdim=True))
    with torch.no_grad():
        lengths.mul_(2)
        directions.mul_(3)
    torch.testing.assert_close(network.head.weight, 2 * plain.head.weight)
    expected = network.eval()(X)
    save_network(tmp_path, network, settings, {})
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network)), load_network(tmp_path)[0]):
        assert isinstance(twin.head, WeightNormHead)
        assert same(twin(X), expected)
    with pytest.raises(InputError, match=r"sphere: got one with the head 'weight_norm'"):
        NetworkSettings(sphere="auto", head="weight_norm")


def test_a_prototype_head_has_the_larger_of_two_probabilities(tmp_path: Path) -> None:
    """Two projections below it: the first one's rows have length 1 before the second centres them."""
    settings = NetworkSettings(bottleneck="projection", axes=5, width=3, unit_features=True, head="prototypes")
    network, rng = build_network(settings, 6, 4, seed=1).double().eval(), np.random.default_rng(0)
    first, second, centre, source_centre = (rng.normal(size=shape) for shape in ((6, 5), (5, 3), (5,), (5,)))
    centres = rng.normal(size=(2, 4, 3))
    head = network.head
    assert isinstance(head, PrototypeHead)
    assert not network.has_linear_head
    with torch.no_grad():
        network.bottleneck[0].matrix.copy_(torch.from_numpy(first))
        network.bottleneck[1].matrix.copy_(torch.from_numpy(second))
        network.bottleneck[1].centre.copy_(torch.from_numpy(centre))
        network.bottleneck[1].source_centre.copy_(torch.from_numpy(source_centre))
        head.weight.copy_(torch.from_numpy(centres[0]))
        head.second.copy_(torch.from_numpy(centres[1]))
    save_network(tmp_path, network, settings, {})
    for model, middle in (
        (network, centre),
        (network.for_source(), source_centre),
        (load_network(tmp_path)[0], centre),
    ):
        for row, logits in zip(X.double().numpy(), model(X.double()).logits, strict=True):
            inner = row @ first
            outer = (inner / np.linalg.norm(inner) - middle) @ second
            feature = outer / np.linalg.norm(outer)
            likely = np.exp([[-np.linalg.norm(feature - c) for c in part] for part in centres])
            wanted = (likely / likely.sum(axis=1, keepdims=True)).max(axis=0)
            np.testing.assert_allclose(logits.detach().exp().numpy(), wanted, atol=1e-12)
    assert build_network(NetworkSettings(), 6, 4, seed=1).has_linear_head
    with pytest.raises(InputError, match="axes"):
        NetworkSettings(axes=3)


def test_the_bottleneck_of_dan_drops_half_of_the_positive_part() -> None:
    network = build_network(NetworkSettings(bottleneck="relu_dropout", width=64), 6, 4, seed=1)
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    linear = network.bottleneck[0](x).detach()
    tested = network.eval()(x).features
    assert torch.equal(tested, linear.clamp(min=0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = network.train()(x).features
    kept = drawn > 0
    assert torch.allclose(drawn[kept], 2 * tested[kept])
    assert 0.4 < float(kept.float().mean() / (tested > 0).float().mean()) < 0.6


def test_layers_can_start_as_torch_does_by_default() -> None:
    settings = NetworkSettings(bottleneck="bn_relu", width=5, init="torch")
    network = build_network(settings, 7, 3, seed=11)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        expected = torch.nn.Linear(7, 5), torch.nn.Linear(5, 3)
    for mine, theirs in zip((network.bottleneck[0], network.head), expected, strict=True):
        torch.testing.assert_close(mine.weight, theirs.weight)
        torch.testing.assert_close(mine.bias, theirs.bias)
    assert not build_network(NetworkSettings(width=5), 7, 3, seed=11).head.bias.any()
    with pytest.raises(InputError, match="init"):
        NetworkSettings(init="zeros")


@pytest.mark.parametrize("changes", [{}, {"head": "weight_norm"}, {"sphere": 3.0}], ids=["linear", "norm", "sphere"])
def test_a_head_starts_again_in_place(changes: dict[str, Any]) -> None:
    network = build_network(NetworkSettings(width=4, **changes), 5, 3, seed=0)
    parameters = list(network.head.parameters())
    with torch.no_grad():
        for parameter in parameters:
            parameter += 1.0
    old = network.head.weight.detach().clone()
    restart_head(network.head, seed=7)
    fresh = build_network(NetworkSettings(bottleneck="none", **changes), 4, 3, seed=7)  # draws nothing else
    assert all(one is other for one, other in zip(network.head.parameters(), parameters, strict=True))
    assert torch.allclose(network.head.weight, fresh.head.weight)
    assert torch.equal(network.head.bias, torch.zeros(3))
    assert not torch.allclose(network.head.weight, old)
