"""APDA-CI: losses, weights and gradients against plain loops, the moving centres, phases, odd batches, recipes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Setup, TrainProgress
from warmpot.methods.apda_ci import ADAPT, CENTRING, SOURCE, ApdaCi, CentreMemory
from warmpot.methods.base import progress_at
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.train import load_config

N, M, C, D = 6, 4, 3, 5
SIZES = Setup(n_source=40, n_target=30, n_classes=C, width=D, pooled=9, seed=3)
LABELS = torch.tensor([0, 1, 1, 0, 1, 0])  # none of class 2
CLOCK = TrainProgress(55, 100, ADAPT, 10, 100)
OFFICE = ApdaCi(source_centre=0.5, target_centre=0.3, momentum=0.9, mixing=0.4, temperature=2.0, slope=3.0, hidden=7)


def _network() -> Network:
    return build_network(NetworkSettings(width=D), 9, C, seed=1).double()


def _context(progress: TrainProgress = CLOCK) -> BatchContext:
    rng = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, k, generator=rng, dtype=torch.float64) for n in (N, M) for k in (D, C)]
    source, target = (Outputs(*(part.requires_grad_() for part in parts[k : k + 2])) for k in (0, 2))
    return BatchContext(source, LABELS, target, progress, network=_network())


def _memory(method: ApdaCi = OFFICE) -> CentreMemory:
    memory, rng = method.make_memory(SIZES).double(), torch.Generator().manual_seed(5)
    memory.source_centres.copy_(torch.randn(C, D, generator=rng, dtype=torch.float64))
    memory.target_centres.copy_(torch.randn(C, D, generator=rng, dtype=torch.float64))
    return memory


def _softmax(z: list[float]) -> list[float]:
    return [math.exp(x) / sum(map(math.exp, z)) for x in z]


def _moved(f: list[float], centres: list[list[float]], temperature: float) -> list[float]:
    share = _softmax([-sum((a - b) ** 2 for a, b in zip(f, m, strict=True)) / temperature for m in centres])
    return [sum(s * m[k] for s, m in zip(share, centres, strict=True)) for k in range(D)]


def _weights_by_loops(context: BatchContext, memory: CentreMemory, method: ApdaCi) -> np.ndarray:
    weight, bias = context.head.weight.tolist(), context.head.bias.tolist()
    p1, p2, sure = [], [], []
    for f, y in zip(context.source.features.tolist(), LABELS.tolist(), strict=True):
        there = _moved(f, memory.target_centres.tolist(), method.temperature)
        back = _moved(there, memory.source_centres.tolist(), method.temperature)
        ps = [
            _softmax(
                [sum(a * b for a, b in zip(row, x, strict=True)) + b0 for row, b0 in zip(weight, bias, strict=True)]
            )
            for x in (there, back)
        ]
        p1.append(ps[0][y])
        p2.append(ps[1][y])
        sure.append(1 + math.exp(sum(p * math.log(p) for p in ps[0])))
    a, b, e = (np.array(x) / np.mean(x) for x in (p1, p2, sure))
    w = method.mixing * a * e + (1 - method.mixing) * b
    return w / w.mean()


def _judged_by_hand(memory: CentreMemory, features: torch.Tensor) -> torch.Tensor:
    """Apply the discriminator's matrices, with BatchNorm by the statistics of the batch."""
    x, parameters = features, list(memory.discriminator.parameters())
    for w, b, scale, shift in (parameters[:4], parameters[4:8]):
        x = x @ w.T + b
        x = scale * (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() + shift
        x = x.clamp_min(0)
    return (x @ parameters[8].T + parameters[9])[:, 0]


def test_loss_weights_and_every_gradient_are_the_formula() -> None:
    context, memory = _context(), _memory()
    result = OFFICE.step(context, memory)
    result.loss.backward()

    other, again = _context(), _memory()
    w = torch.from_numpy(_weights_by_loops(other, again, OFFICE))
    assert w.std() > 0.1
    np.testing.assert_allclose(result.weights.numpy(), w.numpy() / N, rtol=1e-10)
    strength = 2 / (1 + math.exp(-3.0 * 0.5)) - 1
    fs, ft, zs, zt = other.source.features, other.target.features, other.source.logits, other.target.logits
    nearest = [min(range(C), key=lambda k: float((f - again.target_centres[k]).square().sum().detach())) for f in ft]
    plain = sum(w[i] * (torch.logsumexp(zs[i], 0) - zs[i, LABELS[i]]) for i in range(N)) / N
    plain = plain + 0.5 * sum((fs[i] - again.source_centres[LABELS[i]]).square().sum() for i in range(N)) / (N * D)
    plain = plain + 0.3 * sum((ft[j] - again.target_centres[nearest[j]]).square().sum() for j in range(M)) / (M * D)
    p = zt.exp() / zt.exp().sum(1, keepdim=True)
    plain = plain - 0.1 * (p * p.log()).sum() / M

    def adversarial(features: torch.Tensor) -> torch.Tensor:
        d = torch.sigmoid(_judged_by_hand(again, features))
        return 0.5 * (-(w * d[:N].log()).mean() - (1 - d[N:]).log().mean())

    # the discriminator descends on it, the features ascend `strength` times as fast
    features = torch.cat([fs, ft]).detach()
    total = plain + adversarial(features)
    total.backward()
    free = features.clone().requires_grad_()
    (up,) = torch.autograd.grad(adversarial(free), free)
    assert up.abs().max() > 1e-4
    assert float(result.loss.detach()) == pytest.approx(float(total.detach()), rel=1e-9)
    torch.testing.assert_close(context.source.features.grad, fs.grad - strength * up[:N], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(context.target.features.grad, ft.grad - strength * up[N:], rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(context.source.logits.grad, zs.grad, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(context.target.logits.grad, zt.grad, rtol=1e-6, atol=1e-9)
    for mine, theirs in zip(memory.trained(), again.trained(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    assert all(p.grad is None for p in context.network.parameters())  # no gradient goes through the weights


def test_centres_move_to_the_means_of_their_samples() -> None:
    context, memory, before = _context(), _memory(), _memory()
    OFFICE.step(context, memory)
    fs, ft = context.source.features.detach(), context.target.features.detach()
    for k in range(C):
        rows = [i for i in range(N) if LABELS[i] == k]
        m = before.source_centres[k]
        truth = 0.9 * m + 0.1 * fs[rows].mean(0) if rows else m
        torch.testing.assert_close(memory.source_centres[k], truth)
        rows = [j for j in range(M) if k == int((ft[j] - before.target_centres).norm(dim=1).argmin())]
        m = before.target_centres[k]
        torch.testing.assert_close(memory.target_centres[k], 0.9 * m + 0.1 * ft[rows].mean(0) if rows else m)


def test_the_second_phase_draws_the_classes_together() -> None:
    context, memory, before = _context(TrainProgress(5, 100, CENTRING, 0, 10)), _memory(), _memory()
    result = OFFICE.step(context, memory)
    cross = -torch.log_softmax(context.source.logits, 1)[range(N), LABELS].mean()
    distance = (context.source.features - before.source_centres[LABELS]).square().mean()
    truth = cross + 0.1 * distance
    assert float(result.loss.detach()) == pytest.approx(float(truth.detach()), rel=1e-9)
    for mine, theirs in zip(
        *(torch.autograd.grad(loss, context.source[:2]) for loss in (result.loss, truth)), strict=True
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    others = [*context.target[:2], *memory.trained()]
    assert all(g is None for g in torch.autograd.grad(OFFICE.step(context, _memory()).loss, others, allow_unused=True))
    torch.testing.assert_close(memory.target_centres, before.target_centres)
    assert not torch.equal(memory.source_centres[0], before.source_centres[0])
    torch.testing.assert_close(result.weights, torch.full((N,), 1 / N, dtype=torch.float64))


def test_the_first_phase_is_the_source_alone() -> None:
    context, memory, before = _context(TrainProgress(1, 100, SOURCE, 0, 10)), _memory(), _memory()
    loss = OFFICE.step(context, memory).loss
    cross = -torch.log_softmax(context.source.logits, 1)[range(N), LABELS].mean()
    assert float(loss.detach()) == pytest.approx(float(cross.detach()), rel=1e-9)
    (mine,), (theirs,) = (torch.autograd.grad(x, context.source.logits) for x in (loss, cross))
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    assert torch.equal(memory.source_centres, before.source_centres)


def test_centres_of_the_whole_data() -> None:
    rng = torch.Generator().manual_seed(0)
    places = 50 * torch.eye(C, D)
    ft = places[torch.arange(30) % C] + 0.01 * torch.randn(30, D, generator=rng)
    fs, labels = torch.randn(20, D, generator=rng), torch.arange(20) % 2  # class 2 has no sample
    data = DatasetPass(Outputs.of(features=fs), Outputs.of(features=ft), labels, _network())
    memory = OFFICE.make_memory(SIZES)
    for phase in (SOURCE, CENTRING, ADAPT):
        OFFICE.refresh(memory, TrainProgress(7, 100, phase, 5, 20), lambda: data)  # within a phase nothing is due
        assert not memory.source_centres.any()
    OFFICE.refresh(memory, TrainProgress(0, 100, SOURCE, 0, 20), lambda: data)
    assert not memory.source_centres.any()
    OFFICE.refresh(memory, TrainProgress(5, 100, CENTRING, 5, 20), lambda: data)
    for k in (0, 1):
        torch.testing.assert_close(memory.source_centres[k], fs[labels == k].mean(0))
    torch.testing.assert_close(memory.source_centres[2], fs.mean(0))
    assert not memory.target_centres.any()
    OFFICE.refresh(memory, TrainProgress(20, 100, ADAPT, 20, 100), lambda: data)
    distance = torch.cdist(memory.target_centres, places)
    assert distance.min(0).values.max() < 0.1  # every true cluster has its centre
    assert OFFICE.make_memory(SIZES._replace(n_target=2)).target_centres.shape == (2, D)


def test_phases_have_the_official_lengths() -> None:
    def lengths(method: ApdaCi, steps: int) -> list[int]:
        names = [progress_at(step, steps, method.phases).phase for step in range(steps)]
        return [names.count(name) for name in (SOURCE, CENTRING, ADAPT)]

    assert lengths(load_config("apda-ci").built_method, 33000) == [2500, 500, 30000]  # type: ignore[arg-type]
    assert lengths(load_config("apda-ci-office31").built_method, 3500) == [500, 0, 3000]  # type: ignore[arg-type]
    assert lengths(load_config("apda-ci-frozen").built_method, 1250) == [0, 50, 1200]  # type: ignore[arg-type]
    assert all(phase.restarts_decay for phase in OFFICE.phases[1:])


def test_the_reversal_is_that_of_1000_steps() -> None:
    """The features' gradient after 1500 steps of the third phase: the official strength is 2 / (1 + e^-1.5) - 1."""
    for preset, steps in (("apda-ci", 30000), ("apda-ci-office31", 3000)):
        method = load_config(preset).built_method
        method = dataclasses.replace(method, entropy=0.0, target_centre=0.0, source_centre=0.0, hidden=7)  # type: ignore[type-var]
        gradients = []
        for step in (1500, steps):
            context = _context(TrainProgress(step, steps, ADAPT, 0, steps))
            method.step(context, _memory(OFFICE)).loss.backward()
            gradients.append(context.target.features.grad)
        full = 2 / (1 + math.exp(-steps / 1000)) - 1
        torch.testing.assert_close(gradients[0] * full, gradients[1] * (2 / (1 + math.exp(-1.5)) - 1))


def test_other_weights_replace_its_own() -> None:
    given = torch.tensor([3.0, 0.0, 1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    result = OFFICE.step(dataclasses.replace(_context(), weights=given), _memory())
    np.testing.assert_allclose(result.weights.numpy(), given.numpy() / 6)


@pytest.mark.parametrize("case", ["no weight", "one sample", "far", "half precision"])
def test_odd_batches_are_finite(case: str) -> None:
    context, memory = _context(), _memory()
    if case == "no weight":
        context = dataclasses.replace(context, weights=torch.zeros(N, dtype=torch.float64))
    if case == "one sample":
        source = Outputs(*(part.detach()[:1].requires_grad_() for part in context.source[:2]))
        context = dataclasses.replace(context, source=source, labels=LABELS[:1])
    if case == "far":  # no cluster is like the source: probabilities of the labels underflow
        far = Outputs((1e3 * context.source.features).detach().requires_grad_(), context.source.logits)
        context = dataclasses.replace(context, source=far)
        memory.target_centres.mul_(1e4)
    if case == "half precision":
        source, target = (
            Outputs(part.features.detach().float().requires_grad_(), part.logits.detach().bfloat16().requires_grad_())
            for part in (context.source, context.target)
        )
        context, memory = dataclasses.replace(context, source=source, target=target), memory.float()
    result = OFFICE.step(context, memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(result.weights).all()
    for part in (context.source, context.target):
        assert torch.isfinite(part.features.grad).all()
        assert torch.isfinite(part.logits.grad).all()
    assert torch.isfinite(memory.source_centres).all()


def test_the_memory_draws_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    OFFICE.make_memory(SIZES)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    "bad", [{"entropy": -1.0}, {"mixing": 2.0}, {"momentum": 1.5}, {"temperature": 0.0}, {"hidden": 0},
            {"pretrain": 0.5, "centring": 0.5}]
)  # fmt: skip
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        ApdaCi(**bad)


def test_recipes_have_the_authors_numbers() -> None:
    home, office = load_config("apda-ci"), load_config("apda-ci-office31")
    loop, optimizer = home.minibatch, home.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (33000, 36, 36, "shuffled")
    assert (loop.network.bottleneck, loop.network.width, loop.network.joint) == ("bn_relu", 256, True)
    assert (optimizer.name, optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == ("sgd", 1e-3, 1e-3, 1e-3)
    scales = (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra)
    assert scales == (0.1, 1.0, 1.0, 1.0)
    constants = {"adversarial": 1.0, "entropy": 0.1, "mixing": 0.5, "temperature": 1.0, "centring_weight": 0.1}
    for config, own in (
        (home, {"source_centre": 0.0, "target_centre": 0.1, "momentum": 0.99, "slope": 30.0}),
        (office, {"source_centre": 0.5, "target_centre": 0.5, "momentum": 0.9, "slope": 3.0}),
        (load_config("apda-ci-frozen"), {"source_centre": 0.0, "target_centre": 0.1, "momentum": 0.99}),
    ):
        assert {**constants, **own}.items() <= config.params.items()
        assert config.weights == "own"
    assert home.params["hidden"] == 1024
    assert office.minibatch.steps == 3500
