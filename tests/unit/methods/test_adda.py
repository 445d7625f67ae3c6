"""ADDA: both phases against the formula, the frozen encoder and head, weights, the recipe."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import BatchContext, NamedBatch, Setup, TrainProgress
from warmpot.methods.adda import Adda, EncoderMemory
from warmpot.methods.base import progress_at
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.train import fit, load_config

STRENGTH = 2 * (2 / (1 + math.exp(-0.3)) - 1)
UNEVEN = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0], dtype=torch.float64)
SECOND = TrainProgress(400, 1100, "target", 100, 1100)


def make_memory(n_inputs: int = 4) -> EncoderMemory:
    network = build_network(NetworkSettings(width=6, bottleneck="bn_relu"), n_inputs, 3, seed=1)
    setup = Setup(n_source=40, n_target=30, n_classes=3, width=6, pooled=n_inputs, seed=3, network=network)
    return Adda(hidden=8).make_memory(setup).double()


def second_phase(batch: Any, weights: torch.Tensor, n: int = 5, m: int = 4) -> BatchContext:
    rng = torch.Generator().manual_seed(5)
    context = batch(n, m)
    nothing = Outputs(*(part[:0] for part in context.source[:2]))
    return dataclasses.replace(
        context, source=nothing, progress=SECOND, weights=None, rows=torch.arange(n),
        inputs=torch.randn(n, 4, generator=rng, dtype=torch.float64),
        forward=lambda x, network: network(x), weigh=lambda named: weights[named.rows],
    )  # fmt: skip


def formula(context: BatchContext, memory: Any) -> tuple[Any, Any]:
    n, m = len(context.labels), len(context.target.features)
    w = context.weigh(NamedBatch(context.source, context.rows))
    bottleneck = memory.encoder.bottleneck  # in evaluation mode: linear, running statistics, ReLU
    norm, layer = bottleneck[1], bottleneck[0]
    x = context.inputs @ layer.weight.T + layer.bias
    features = ((x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()).clamp_min(0)
    d = torch.sigmoid(memory.discriminator(torch.cat([features, context.target.features])))
    source = -sum(w[i] / w.mean() * d[i].log() for i in range(n)) / n
    target = -sum((1 - d[n + j]).log() for j in range(m)) / m
    return torch.zeros(()), [((source + target) / 2, STRENGTH)]


@pytest.mark.parametrize("weights", [torch.ones(5).double(), UNEVEN], ids=["equal", "uneven"])
def test_loss_and_gradients_of_the_second_phase_are_the_formula(batch: Any, weights: torch.Tensor) -> None:
    context, memory = second_phase(batch, weights), make_memory()
    result = Adda(hidden=8).step(context, memory)
    _, [(term, strength)] = formula(context, memory)
    assert float(result.loss.detach()) == pytest.approx(float(term.detach()), rel=1e-6)
    wanted = [context.target.features, *memory.trained()]
    found, free = (torch.autograd.grad(loss, wanted) for loss in (result.loss, term))
    assert free[0].abs().max() > 1e-6
    torch.testing.assert_close(found[0], -strength * free[0], rtol=1e-6, atol=1e-12)
    for mine, theirs in zip(found[1:], free[1:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(result.weights, weights / weights.sum(), rtol=1e-6)


@pytest.mark.parametrize("weights", ["equal", UNEVEN], ids=["equal", "uneven"])
def test_the_first_phase_is_the_source_alone(batch: Any, weights: Any) -> None:
    first = dataclasses.replace(batch(weights=weights), progress=TrainProgress(5, 1100, "source", 0, 100))
    result = Adda(hidden=8).step(first, make_memory())
    losses = torch.nn.functional.cross_entropy(first.source.logits, first.labels, reduction="none")
    truth = (first.weights * losses).sum() / first.weights.sum()
    assert float(result.loss.detach()) == pytest.approx(float(truth.detach()), rel=1e-6)
    for mine, theirs in zip(
        *(torch.autograd.grad(x, [first.source.logits]) for x in (result.loss, truth)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (4, 1)])
def test_odd_batches_are_finite(batch: Any, n: int, m: int) -> None:
    for weights in (torch.ones(n).double(), torch.zeros(n).double()):
        context, memory = second_phase(batch, weights, n, m), make_memory()
        result = Adda(hidden=8).step(context, memory)
        result.loss.backward()
        assert torch.isfinite(result.loss)
        assert torch.isfinite(context.target.features.grad).all()


def test_the_encoder_of_the_source_is_never_trained_or_in_training_mode() -> None:
    memory = make_memory()
    assert not memory.train().encoder.training
    assert memory.discriminator.training
    encoder = {id(p) for p in memory.encoder.parameters()}
    assert not encoder & {id(p) for p in memory.trained()}
    assert not any(p.requires_grad for p in memory.encoder.parameters())


def test_the_phases_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first phase the head and the source encoder stay; the target's bottleneck moves."""
    rng = np.random.default_rng(0)
    xs, xt = (rng.normal(size=(n, 5)).astype(np.float32) for n in (40, 30))
    task = Task(xs, np.arange(40) % 4, xt + 1, tuple("abcd"))
    copies, memories, refresh = [], [], Adda.refresh

    def recording(self: Adda, memory: Any, progress: Any, request: Any) -> None:
        refresh(self, memory, progress, request)
        if progress.phase == "target" and progress.starts_phase:
            copies.append(copy.deepcopy(request().network.state_dict()))
            memories.append(memory)

    monkeypatch.setattr(Adda, "refresh", recording)
    minibatch = {"steps": 12, "warmup": 0.0, "source_batch": 8, "target_batch": 8, "network": {"bottleneck": "bn_relu"}}
    changes = {"minibatch": minibatch, "params": {"pretraining": 0.25, "hidden": 8}}
    fitted = fit(task, load_config("adda-frozen", changes=changes))
    (start,), (memory,) = copies, memories
    network = fitted.predictor.network
    for name, tensor in memory.encoder.state_dict().items():
        assert torch.equal(tensor, start[name]), name
    assert torch.equal(network.head.weight, start["head.weight"])
    assert torch.equal(network.head.bias, start["head.bias"])
    assert not torch.equal(network.bottleneck[0].weight, start["bottleneck.0.weight"])
    # 3 steps with the source only, then 9 with the target only
    assert int(network.bottleneck[1].num_batches_tracked) == 3 + 9


@pytest.mark.parametrize("bad", [{"pretraining": 1.0}, {"pretraining": -0.1}, {"ceiling": -1.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Adda(**bad)


def test_the_recipe_is_that_of_the_library() -> None:
    for preset, later in (("adda", 30000), ("adda-office31", 20000)):
        config = load_config(preset)
        loop, optimizer = config.minibatch, config.minibatch.optimizer
        assert (loop.steps, loop.source_batch, loop.target_batch) == (3000 + later, 32, 32)
        phases = config.built_method.phases
        assert progress_at(3000, loop.steps, phases).starts_phase
        assert progress_at(2999, loop.steps, phases).phase == phases[0].name
        assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == (1e-3, 1e-3, 3e-4)
        assert (optimizer.backbone, optimizer.head, loop.network.bottleneck) == (0.1, 1.0, "bn_relu")
        assert (config.params["ceiling"], config.params["slope"], config.params["horizon"]) == (2.0, 1.0, 1000)
    phases = Adda().phases
    assert [phase.frozen for phase in phases] == [(), ("head",)]
    assert [phase.uses_source for phase in phases] == [True, False]
    assert [phase.restarts_decay for phase in phases] == [False, True]
    assert [phase.restarts_momentum for phase in phases] == [False, True]
    assert not Adda(pretraining=0.0).phases[1].restarts_momentum  # the steps before are those of the common loop
    # the encoder on frozen features, the bottleneck, learns as slowly as the library's backbone
    slower = {"minibatch": {"optimizer": {"bottleneck": load_config("adda").minibatch.optimizer.backbone}}}
    assert load_config("adda-frozen").minibatch == load_config("frozen", changes=slower).minibatch
