"""ISRA: the loss and all gradients against loops over topics, attention, centroids, the regressors' rate, recipes."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, NamedBatch, ParamGroup, Setup, TrainProgress
from warmpot.methods.ba3us import EXTRA, Ba3us
from warmpot.methods.isra import Isra, IsraMemory, TopicRegressors
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train import fit, load_config
from warmpot.train.config import OptimizerSettings

C, D, K = 3, 6, 4
SIZES = Setup(n_source=40, n_target=30, n_classes=C, width=D, pooled=9, seed=3)
SMALL = Isra(hidden=8, topics=K, regressor=5, reconstruction=0.7, alignment=1.3, centroid=0.9, sparsity=0.2)
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)
CLOCK = TrainProgress(300, 1000)


def _memory(method: Isra = SMALL) -> IsraMemory:
    return method.make_memory(SIZES).double().eval()  # no dropout: a loss that can be computed again


def _with_further(context: BatchContext) -> BatchContext:
    rng = torch.Generator().manual_seed(2)
    outputs = Outputs(*(torch.randn(2, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (D, C)))
    weights = torch.tensor([0.2, 0.1], dtype=torch.float64)
    extra = NamedBatch(outputs, torch.tensor([7, 8]), torch.tensor([2, 1]), weights=weights)
    return dataclasses.replace(context, extra={EXTRA: extra})


def _outputs(context: BatchContext) -> list[Outputs]:
    return [context.source, context.target, *(batch.outputs for batch in context.extra.values())]


def _regressor(memory: IsraMemory, k: int, hidden: int) -> tuple[list[Tensor], Any]:
    """Return the parameters of one regressor, and the function that it is."""
    net, own = memory.regressors, slice(k * hidden, (k + 1) * hidden)
    first, bias = net.first.weight[own], net.first.bias[own]
    return [
        first,
        bias,
    ], lambda x: functional.linear(x, first, bias).clamp_min(0) @ net.last.weight[k] + net.last.bias[k]


def _attention(memory: IsraMemory, k: int, hidden: int, features: Tensor, topic: Tensor) -> Tensor:
    """Let autograd differentiate the regressor's squared error, as the official code does."""
    leaf = features.detach().clone().requires_grad_()
    loss = (_regressor(memory, k, hidden)[1](leaf) - topic.detach()).square().mean()
    (gradient,) = torch.autograd.grad(loss, leaf)
    return gradient.abs() / (gradient.abs().norm(p=2) / len(leaf))


def _added(context: BatchContext, memory: IsraMemory, method: Isra) -> dict[str, Tensor]:
    """Compute what ISRA adds to BA3US, topic by topic."""
    n, features = len(context.labels), torch.cat([part.features for part in _outputs(context)])
    e = (features @ memory.encoder.weight.T + memory.encoder.bias).clamp_min(0)
    rebuilt = (e @ memory.decoder.weight.T + memory.decoder.bias).clamp_min(0)
    regression, alignment = torch.zeros(()).double(), torch.zeros(()).double()
    for k in range(method.topics):
        first, regressor = _regressor(memory, k, method.regressor)
        error = functional.mse_loss(regressor(features.detach()), e[:, k].detach())
        regression = regression + (error + method.sparsity * sum(p.abs().sum() for p in first)) / method.topics
        response = features * _attention(memory, k, method.regressor, features, e[:, k])
        alignment = alignment + functional.mse_loss(response[:n].mean(0), response[n:].mean(0))
    near = torch.stack([memory.centroids[y] for y in context.labels])
    return {
        "reconstruction": functional.mse_loss(rebuilt, features),
        "alignment": alignment,
        "centroid": functional.mse_loss(e[:n], near) if memory.updates else torch.zeros(()).double(),
        "regression": regression,
    }


@pytest.mark.parametrize("further", [False, True])
@pytest.mark.parametrize("updates", [0, 1])
def test_loss_and_every_gradient_are_the_formula(batch: Any, further: bool, updates: int) -> None:
    context = batch(weights=UNEVEN)
    context, memory = _with_further(context) if further else context, _memory()
    memory.centroids.copy_(torch.randn(C, K, generator=torch.Generator().manual_seed(5)))
    memory.updates.fill_(updates)
    leaves = [part for outputs in _outputs(context) for part in outputs[:2]] + list(memory.parameters())

    result = SMALL.step(context, memory)
    found = torch.autograd.grad(result.loss, leaves, allow_unused=True)

    shared = Ba3us(hidden=8).step(context, memory)  # memory has a discriminator too; tested against its own formula
    added = _added(context, memory, SMALL)
    total = shared.loss + added["regression"]
    total = total + 0.7 * added["reconstruction"] + 1.3 * added["alignment"] + 0.9 * added["centroid"]
    wanted = torch.autograd.grad(total, leaves, allow_unused=True)

    assert float(result.loss.detach()) == pytest.approx(float(total.detach()), rel=1e-6)
    for name, value in {**shared.metrics, **added}.items():
        assert float(result.metrics[name]) == pytest.approx(float(value.detach()), rel=1e-6), name
    for mine, formula in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, formula, rtol=1e-6, atol=1e-12)
        assert mine.abs().max() > 1e-8
    torch.testing.assert_close(result.weights, UNEVEN / UNEVEN.sum(), rtol=1e-6, atol=0)


def test_the_terms_move_the_features_beyond_ba3us(batch: Any) -> None:
    """Reconstruction and alignment act on the features; the regressors' loss does not."""
    gradients = []
    for changes in ({}, {"alignment": 0.0}, {"alignment": 0.0, "reconstruction": 0.0}, {"sparsity": 3.0}):
        context = batch()
        dataclasses.replace(SMALL, **changes).step(context, _memory()).loss.backward()
        gradients.append(context.target.features.grad)
    context = batch()
    Ba3us(hidden=8).step(context, _memory()).loss.backward()
    assert not torch.equal(gradients[0], gradients[1])
    assert not torch.equal(gradients[1], gradients[2])
    torch.testing.assert_close(gradients[2], context.target.features.grad)
    torch.testing.assert_close(gradients[3], gradients[0])


def test_attention_has_the_norm_of_the_number_of_samples_and_survives_small_errors() -> None:
    net = TopicRegressors(K, D, 5, torch.Generator().manual_seed(0))
    x = torch.randn(7, D, generator=torch.Generator().manual_seed(1))
    hidden = net.hidden(x).detach()
    errors = torch.randn(7, K, generator=torch.Generator().manual_seed(2))
    attention = net.attention(hidden, errors)
    assert attention.shape == (K, 7, D)
    np.testing.assert_allclose(attention.flatten(1).norm(dim=1), 7.0, rtol=1e-6)
    assert attention.min() >= 0
    torch.testing.assert_close(net.attention(hidden, 1e-25 * errors), attention)
    assert not net.attention(hidden, torch.zeros(7, K)).any()


def _pass(features: dict[str, Tensor], labels: Tensor, logits: Tensor) -> DatasetPass:
    network = build_network(NetworkSettings(width=D), 9, C, seed=0)
    return DatasetPass(
        Outputs.of(features=features["s"]), Outputs.of(features=features["t"], logits=logits), labels, network
    )


def test_centroids_are_means_over_labelled_and_predicted_samples() -> None:
    rng, memory = torch.Generator().manual_seed(0), _memory()
    features = {"s": torch.randn(9, D, generator=rng), "t": torch.randn(5, D, generator=rng)}  # another precision
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1])  # none of class 2, which the target is predicted to have
    logits = torch.eye(C)[torch.tensor([2, 0, 2, 0, 1])]
    memory.seen.fill_(36)
    memory.batch.fill_(12)
    SMALL.refresh(memory, CLOCK, lambda: _pass(features, labels, logits))
    samples = torch.cat([features["s"], features["t"]]).double().numpy()
    e = np.maximum(samples @ memory.encoder.weight.detach().numpy().T + memory.encoder.bias.detach().numpy(), 0)
    classes = np.r_[labels.numpy(), [2, 0, 2, 0, 1]]
    truth = [e[classes == k].mean(axis=0) for k in range(C)]
    np.testing.assert_allclose(memory.centroids, truth, rtol=1e-6)
    assert (int(memory.updates), int(memory.seen)) == (1, 0)


def test_centroids_follow_passes_over_the_source(batch: Any) -> None:
    """40 samples are eight batches of 5: the ninth step is the first of the next pass."""
    memory, due = _memory(), []

    def request() -> DatasetPass:
        due.append(step)
        return _pass({"s": torch.ones(2, D), "t": torch.ones(2, D)}, torch.zeros(2).long(), torch.ones(2, C))

    for step in range(20):
        SMALL.refresh(memory, TrainProgress(step, 1000), request)
        SMALL.step(batch(), memory)
    assert due == [8, 16]
    memory.n_source = 3  # fewer than a batch
    SMALL.refresh(memory, TrainProgress(20, 1000), request)
    assert len(due) == 3


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in ("equal", torch.zeros(n, dtype=torch.float64)):
        context, memory = batch(n, m, weights=weights), _memory()
        memory.updates.fill_(1)
        result = SMALL.step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert all(torch.isfinite(p.grad).all() for p in (context.source.features, *memory.parameters()))


def test_dead_topics_and_regressors_are_finite(batch: Any) -> None:
    """No unit is active and the topic is 0 as predicted: there is no gradient to normalise."""
    context, memory = batch(), _memory()
    with torch.no_grad():
        for layer in (memory.encoder, memory.regressors.first, memory.regressors.last):
            layer.weight.zero_()
            layer.bias.zero_()
    result = SMALL.step(context, memory)
    result.loss.backward()
    assert float(result.metrics["alignment"]) == 0
    assert torch.isfinite(result.loss)
    assert all(torch.isfinite(p.grad).all() for p in (context.source.features, *memory.parameters()))


def test_memory_is_its_state_and_draws_from_no_global_generator(batch: Any) -> None:
    before = torch.get_rng_state()
    memory, other = _memory(), SMALL.make_memory(SIZES._replace(seed=4)).double().eval()
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(memory.encoder.weight, other.encoder.weight)
    for _ in range(3):
        SMALL.step(batch(), memory)
    memory.updates += 1
    other.load_state_dict(copy.deepcopy(memory.state_dict()))
    assert int(other.seen) == 15
    assert torch.equal(SMALL.step(batch(), memory).loss, SMALL.step(batch(), other).loss)


def test_regressors_start_as_pytorch_layers() -> None:
    net = TopicRegressors(50, 16, 25, torch.Generator().manual_seed(0))
    for part, bound in ((net.first.weight, 16**-0.5), (net.first.bias, 16**-0.5), (net.last.weight, 0.2)):
        assert part.abs().max() <= bound
        assert float(part.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
    x = torch.ones(2, 16)
    torch.testing.assert_close(net(x)[:, 7], net.first(x)[:, 175:200].relu() @ net.last.weight[7] + net.last.bias[7])


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_group_of_parameters_has_its_own_rate_and_decay(name: str) -> None:
    network, slow = build_network(NetworkSettings(width=D), 9, C, seed=0), torch.nn.Linear(2, 2)
    fast, settings = torch.nn.Linear(3, 3), OptimizerSettings(name=name, weight_decay=0.01, extra=4.0)
    group = ParamGroup(tuple(slow.parameters()), lr=0.25, weight_decay=5.0)
    groups = settings.build(network, fast.parameters(), [group]).param_groups
    assert [(g["lr_scale"], g["weight_decay"]) for g in groups[-2:]] == [(4.0, 0.01), (1.0, pytest.approx(0.05))]
    assert groups[-1]["params"][0] is slow.weight
    assert len(settings.build(network, fast.parameters()).param_groups) == len(groups) - 1


def test_a_run_trains_the_regressors_at_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step without momentum: the parameters move by lr .01 times the factors of the preset and of the method."""
    made: list[tuple[IsraMemory, dict[str, Tensor]]] = []
    make = Isra.make_memory

    def recording(self: Isra, setup: Setup) -> IsraMemory:
        memory = make(self, setup)
        made.append((memory, copy.deepcopy(memory.state_dict())))
        return memory

    monkeypatch.setattr(Isra, "make_memory", recording)
    rng = np.random.default_rng(0)
    task = Task(rng.normal(size=(20, 5)), np.arange(20) % 4, rng.normal(size=(15, 5)), tuple("abcd"))
    loop = {"steps": 1, "warmup": 0.0, "source_batch": 8, "target_batch": 8, "network": {"width": 4}}
    optimizer = {"momentum": 0.0, "weight_decay": 1e-3}
    changes = {"minibatch": {**loop, "optimizer": optimizer}, "params": {"topics": 3, "regressor": 6, "hidden": 8}}
    fit(task, load_config("isra-frozen", changes=changes), progress_bar=False)
    memory, start = made[0]
    for name, rate, decay in (("regressors.first.bias", 0.1, 5e-3), ("decoder.weight", 1.0, 1e-3)):
        part, before = memory.get_parameter(name), start[name]
        moved = before - 0.01 * rate * (part.grad + decay * before)
        assert part.grad.abs().max() > 0
        torch.testing.assert_close(part.detach(), moved, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(
    "bad", [{"alignment": -1.0}, {"sparsity": -0.1}, {"topics": 0}, {"regressor": 0}, {"entropy": -1.0}]
)
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Isra(**bad)


@pytest.mark.parametrize(
    ("preset", "steps", "lr", "periods", "sizes"),
    [
        ("isra", 8000, 1e-3, 16, {0: 9, 500: 8, 7000: 1, 7500: 0}),
        ("isra-office31", 4000, 1e-4, 20, {0: 9, 200: 8, 3400: 1, 3600: 0}),
        ("isra-imagenet", 40000, 1e-3, 10, {0: 9, 4000: 8, 32000: 1, 36000: 0}),
    ],
)
def test_the_recipes_are_the_official_ones(
    preset: str, steps: int, lr: float, periods: int, sizes: dict[int, int]
) -> None:
    config = load_config(preset)
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (steps, 36, 36, "shuffled")
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("linear", 512, False)
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == (lr, 1e-3, 1e-3)
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra) == (1.0, 10.0, 10.0, 10.0)
    assert config.params == {
        "adversarial": 1.0, "entropy": 0.1, "complement": 1.0, "augmentation": 0.25, "periods": periods, "slope": 10.0,
        "hidden": 1024, "reconstruction": 1.0, "alignment": 1.0, "centroid": 1.0, "topics": 256, "regressor": 128,
        "sparsity": 0.5,
    }  # fmt: skip
    weighting = config.weight_params
    assert (config.weights, weighting["hard"], weighting["periods"]) == ("class_share", False, periods)
    method = config.built_method
    found = {step: method.extra_batches(TrainProgress(step, steps), 36)[EXTRA].size for step in sizes}
    assert found == sizes == {step: int(9 * (1 - step / steps)) for step in sizes}


def test_the_regressors_learn_as_in_the_official_code() -> None:
    """There: 1 x lr and 10 x 5e-4; the discriminator has 10 x lr and 2 x 5e-4."""
    (group,) = _memory().param_groups()
    optimizer = load_config("isra").minibatch.optimizer
    assert optimizer.extra * group.lr == pytest.approx(1.0)
    assert optimizer.weight_decay * group.weight_decay == pytest.approx(10 * 5e-4)


def test_on_frozen_features_the_loop_is_the_shared_one() -> None:
    assert load_config("isra-frozen").minibatch == load_config("frozen").minibatch
