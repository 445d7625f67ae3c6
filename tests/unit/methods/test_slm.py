"""SLM: both phases against plain loops, loss and every gradient; draws, odd batches, weights, images, the recipes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup, TrainProgress
from warmpot.methods.base import progress_at
from warmpot.methods.slm import SelectorMemory, Slm, _mixture
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.train import load_config

N, M, C, D, INPUTS = 6, 5, 3, 4, 7
FIRST = TrainProgress(30, 300, "align", 0, 100)
SECOND = TrainProgress(150, 300, "select", 100, 300)
# a threshold that some samples pass, and a temperature at which pseudo-labels are soft
METHOD = Slm(slope=4.0, hidden=8, threshold=0.6, temperature=0.5, diversity=0.3, label=0.7, mix=0.6, margin=2.0,
             hausdorff=0.2, concentration=1.5, adversarial=0.8)  # fmt: skip
SHARE = {"align": 0.3, "select": 0.25}


def make_memory(method: Slm = METHOD) -> SelectorMemory:
    setup = Setup(n_source=40, n_target=30, n_classes=C, width=D, pooled=INPUTS, seed=4)
    return method.make_memory(setup).double().eval()  # without dropout


def make_network() -> Network:
    return build_network(NetworkSettings(width=D), INPUTS, C, seed=1).double()


def make_context(progress: TrainProgress = SECOND, n: int = N, m: int = M, weights: Any = None) -> BatchContext:
    rng, network = torch.Generator().manual_seed(0), make_network()

    def leaves(rows: int) -> Outputs:
        parts = (torch.randn(rows, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (D, C, INPUTS))
        return Outputs(*parts)

    source, target = leaves(n), leaves(m)
    inputs = [3 * torch.randn(rows, INPUTS, generator=rng, dtype=torch.float64) for rows in (n, m)]
    return BatchContext(
        source, torch.arange(n) % C, target, progress, weights=weights, inputs=inputs[0], target_inputs=inputs[1],
        network=network, forward=lambda x: network(x),
    )  # fmt: skip


def domain_loss(discriminator: Any, feature: Tensor, domain: int) -> Tensor:
    s = 1 / (1 + torch.exp(-discriminator(feature[None])[0]))
    return -torch.log(torch.exp(s[domain]) / (torch.exp(s[0]) + torch.exp(s[1])))


def softmax(z: Tensor) -> Tensor:
    return z.exp() / z.exp().sum()


def smoothed(z: Tensor, y: int) -> Tensor:
    p = softmax(z)
    return -sum(((0.8 if k == y else 0.0) + 0.2 / C) * p[k].log() for k in range(C))


def second_softmax(z: Tensor, q: Tensor) -> Tensor:
    inner = softmax(softmax(z))
    return -sum(q[k] * inner[k].log() for k in range(C))


def entropy(p: Tensor, guard: float = 0.0) -> Tensor:
    return -sum(x * torch.log(x + guard) for x in p)


class Formula:
    """The second phase in loops: losses of labels and of domains, as functions of what they have gradients of."""

    def __init__(self, context: BatchContext, memory: SelectorMemory, method: Slm, strength: float) -> None:
        self.x, self.memory, self.method = context, memory, method
        self.rest = 1 - strength + 1e-5
        self.n, self.m = len(context.labels), len(context.target.logits)
        self.draws = method._draw(int(memory.seed), context.progress.step, self.n, self.m)
        self.pairs = min(self.n, self.m)
        zt = context.target.logits.detach()
        self.q = [softmax(z / (method.temperature * self.rest)) for z in zt]
        self.sure = [float(softmax(z).max() >= method.threshold) for z in zt]

    def passed(self) -> tuple[list[Outputs], list[Outputs], list[Outputs]]:
        xs, xt, d = self.x.inputs, self.x.target_inputs, self.draws
        network = self.x.network
        between = [network((d.ratio * xs[i] + (1 - d.ratio) * xt[i])[None]) for i in range(self.pairs)]
        of = ((xs, d.source_ratio, d.source_order), (xt, d.target_ratio, d.target_order))
        source, target = ([network((r * x[i] + (1 - r) * x[o[i]])[None]) for i in range(len(x))] for x, r, o in of)
        return between, source, target

    def label_loss(self, a: list[float]) -> Tensor:
        """Everything that is neither a domain loss nor the selector's."""
        x, d, k = self.x, self.draws, self.method
        y, zs, zt = x.labels.tolist(), x.source.logits, x.target.logits
        loss = sum(a[i] * smoothed(zs[i], y[i]) for i in range(self.n)) / self.n
        loss = loss + k.label * sum(self.sure[j] * second_softmax(zt[j], self.q[j]) for j in range(self.m)) / self.m
        p = [softmax(z) for z in zt]
        diversity = sum(entropy(x, 1e-5) for x in p) / self.m - entropy(sum(p) / self.m, 1e-5)
        loss = loss + k.diversity * diversity
        between, source, target = self.passed()
        mixed = 0
        for i, out in enumerate(between):
            z = out.logits[0]
            mixed = mixed + d.ratio * a[i] * smoothed(z, y[i]) / self.pairs
            mixed = mixed + (1 - d.ratio) * a[i] * self.sure[i] * second_softmax(z, self.q[i]) / self.pairs
        for i, out in enumerate(source):
            o, r, z = int(d.source_order[i]), d.source_ratio, out.logits[0]
            mixed = mixed + a[i] * a[o] * (r * smoothed(z, y[i]) + (1 - r) * smoothed(z, y[o])) / self.n
        for j, out in enumerate(target):
            o, r = int(d.target_order[j]), d.target_ratio
            q = r * self.q[j] + (1 - r) * self.q[o]
            mixed = mixed + self.sure[j] * self.sure[o] * second_softmax(out.logits[0], q) / self.m
        return loss + k.mix * mixed

    def domain_loss(self, a: Tensor) -> Tensor:
        x, d, k, judge = self.x, self.draws, self.method, self.memory.discriminator
        hs, ht = ([entropy(softmax(z.detach())) for z in side.logits] for side in (x.source, x.target))
        loss = sum(a[i] * hs[i] * domain_loss(judge, x.source.features[i], 0) for i in range(self.n)) / self.n
        loss = loss + sum(ht[j] * domain_loss(judge, x.target.features[j], 1) for j in range(self.m)) / self.m
        between, source, target = self.passed()
        mixed = 0
        for i, out in enumerate(between):
            f = out.features[0]
            both = d.ratio * domain_loss(judge, f, 0) + (1 - d.ratio) * domain_loss(judge, f, 1)
            mixed = mixed + a[i] * both / self.pairs
        for i, out in enumerate(source):
            mixed = mixed + d.ratio * a[i] * a[d.source_order[i]] * domain_loss(judge, out.features[0], 0) / self.n
        for out in target:
            mixed = mixed + (1 - d.ratio) * domain_loss(judge, out.features[0], 1) / self.m
        return k.adversarial * (loss + k.mix * mixed)

    def select_loss(self, a: Tensor, scores: Tensor) -> Tensor:
        fs, ft = self.x.source.features.detach(), self.x.target.features.detach()

        def distance(count: Tensor) -> Tensor:
            d = torch.stack([torch.stack([count[i] * (f - g).norm() for g in ft]) for i, f in enumerate(fs)])
            # equal minima share a gradient: the mean over all entries that are as small
            rows = sum(r[r == r.min()].mean() for r in d) / self.n
            return rows + sum(r[r == r.min()].mean() for r in d.T) / self.m

        hinge = (distance(a) - distance(1 - a) + self.method.margin).clamp_min(0)
        return self.method.hausdorff * hinge + self.method.concentration * entropy(softmax(scores[:, 1]))


def test_loss_and_every_gradient_of_the_second_phase_are_the_formula() -> None:
    context, memory = make_context(), make_memory()
    result = METHOD.step(context, memory)
    strength = 2 / (1 + math.exp(-4.0 * SHARE["select"])) - 1
    formula = Formula(context, memory, METHOD, strength)
    scores = memory.selector(context.source.pooled.detach())
    noisy = scores + formula.draws.noise
    drawn = [float(row[1] > row[0]) for row in noisy]
    assert 0 < sum(drawn) < N
    assert 0 < sum(formula.sure) < M
    a = torch.tensor(drawn, dtype=torch.float64, requires_grad=True)
    labels, domains, select = formula.label_loss(drawn), formula.domain_loss(a), formula.select_loss(a, scores)
    assert float(select.detach()) > 0
    assert float(result.loss.detach()) == pytest.approx(float((labels + domains + select).detach()), rel=1e-9)
    np.testing.assert_allclose(result.weights, np.array(drawn) / sum(drawn), atol=1e-8)

    outputs = [*context.source[:2], *context.target[:2], *context.network.parameters()]

    def gradients(loss: Tensor, of: list[Tensor]) -> list[Tensor]:
        found = torch.autograd.grad(loss, of, retain_graph=True, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(of, found, strict=True)]

    wanted = [g - strength * h for g, h in zip(gradients(labels, outputs), gradients(domains, outputs), strict=True)]
    judge = list(memory.discriminator.parameters())
    wanted += gradients(domains, judge)
    # the selector: its gradient through a is reversed in the domain losses, and all of it is multiplied
    (through_domains,), (through_sets,) = gradients(domains, [a]), gradients(select, [a])
    slope = (through_sets - strength * through_domains).detach()
    soft = 1 / (1 + torch.exp((noisy[:, 0] - noisy[:, 1]) / formula.rest))
    selector = list(memory.selector.parameters())
    own = gradients((slope * soft).sum() + 1.5 * entropy(softmax(scores[:, 1])), selector)
    wanted += [10.0 * g for g in own]
    found = gradients(result.loss, [*outputs, *judge, *selector])
    for mine, formulas in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, formulas, rtol=1e-6, atol=1e-9)
    parts = found[:4], found[4:8], found[8:14], found[14:]
    assert all(max(float(g.abs().max()) for g in part) > 1e-5 for part in parts)
    assert all(g is None for g in torch.autograd.grad(
        result.loss, [context.source.pooled, *memory.first.parameters()], allow_unused=True
    ))  # fmt: skip


def test_the_first_phase_is_dann() -> None:
    context, memory = make_context(FIRST), make_memory()
    result = METHOD.step(context, memory)
    strength = 2 / (1 + math.exp(-4.0 * SHARE["align"])) - 1
    zs, y = context.source.logits, context.labels.tolist()
    plain = -sum(softmax(zs[i])[y[i]].log() for i in range(N)) / N
    domains = sum(domain_loss(memory.first, f, 0) for f in context.source.features) / N
    domains = domains + sum(domain_loss(memory.first, f, 1) for f in context.target.features) / M
    assert float(result.loss.detach()) == pytest.approx(float((plain + 0.8 * domains).detach()), rel=1e-9)
    features, judge = [context.source.features, context.target.features], list(memory.first.parameters())
    up = torch.autograd.grad(0.8 * domains, [*features, *judge], retain_graph=True)
    found = torch.autograd.grad(result.loss, [*features, *judge, zs])
    wanted = [-strength * up[0], -strength * up[1], *up[2:], torch.autograd.grad(plain, zs)[0]]
    for mine, formulas in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, formulas, rtol=1e-6, atol=1e-10)
    torch.testing.assert_close(result.weights, torch.full((N,), 1 / N, dtype=torch.float64), rtol=1e-6, atol=0)


def test_given_weights_replace_the_selection() -> None:
    weights = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.0, 0.08], dtype=torch.float64)
    context, memory = make_context(weights=weights), make_memory()
    result = METHOD.step(context, memory)
    formula = Formula(context, memory, METHOD, 2 / (1 + math.exp(-4.0 * SHARE["select"])) - 1)
    a = weights / weights.mean()
    total = formula.label_loss(a.tolist()) + formula.domain_loss(a)
    assert float(result.loss.detach()) == pytest.approx(float(total.detach()), rel=1e-9)
    np.testing.assert_allclose(result.weights, weights, atol=1e-8)
    none = torch.autograd.grad(result.loss, list(memory.selector.parameters()), allow_unused=True)
    assert all(g is None for g in none)


def test_without_mixtures_nothing_more_passes() -> None:
    def refuse(x: Tensor) -> Outputs:
        raise AssertionError("passed")

    context, memory = dataclasses.replace(make_context(), forward=refuse), make_memory()
    assert torch.isfinite(dataclasses.replace(METHOD, mix=0.0).step(context, memory).loss)
    with pytest.raises(AssertionError, match="passed"):
        METHOD.step(context, memory)


def test_draws_depend_on_seed_and_step_alone() -> None:
    one, same, other, seed = (METHOD._draw(s, step, N, M) for s, step in ((3, 7), (3, 7), (3, 8), (4, 7)))
    assert torch.equal(one.noise, same.noise)
    assert one[1:4] == same[1:4]
    assert torch.equal(one.target_order, same.target_order)
    assert not torch.equal(one.noise, other.noise)
    assert not torch.equal(one.noise, seed.noise)
    many = [METHOD._draw(0, step, N, M) for step in range(400)]
    ratios = np.array([draw.ratio for draw in many])
    assert not ((ratios > 0.4 + 1e-9) & (ratios < 0.6 - 1e-9)).any()
    assert (ratios == np.round(ratios, 2)).all()
    assert 0.05 < (ratios == 0.6).mean() < 0.35  # of Beta(2, 2), 15 % lie between .5 and .6
    assert 0.05 < (ratios == 0.4).mean() < 0.35
    inner = np.array([draw.source_ratio for draw in many])
    assert ((inner > 0.4) & (inner < 0.6)).any()
    assert inner.mean() == pytest.approx(0.5, abs=0.05)
    assert inner.var() == pytest.approx(1 / 20, abs=0.01)
    assert sorted(many[0].source_order.tolist()) == list(range(N))
    noise = torch.cat([draw.noise for draw in many])
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.05)  # Euler's constant: the mean of Gumbel noise


def test_what_is_selected_follows_the_scores_at_any_temperature() -> None:
    """A share ``softmax(scores)_1`` is selected; the temperature is for the gradient only."""
    context, memory = make_context(n=3000, m=4), make_memory()
    scores = memory.selector(context.source.pooled.detach()).detach()
    noise = METHOD._draw(4, 0, 3000, 4).noise
    warm, cold = (METHOD._select(context, memory, noise, rest).counts for rest in (1.0, 1e-5))
    assert torch.equal(warm, cold)
    assert set(warm.tolist()) == {0.0, 1.0}
    assert float(warm.detach().mean()) == pytest.approx(float(torch.softmax(scores, dim=1)[:, 1].mean()), abs=0.03)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (6, 1), (2, 7)])
@pytest.mark.parametrize("progress", [FIRST, SECOND, TrainProgress(299, 300, "select", 100, 300)], ids=str)
def test_odd_batches_have_finite_losses_and_gradients(n: int, m: int, progress: TrainProgress) -> None:
    context, memory = make_context(progress, n, m), make_memory(Slm(hidden=8))
    result = Slm(hidden=8).step(context, memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    grads = [context.source.features.grad, *(p.grad for p in memory.parameters() if p.grad is not None)]
    assert all(bool(torch.isfinite(g).all()) for g in grads)
    assert torch.isfinite(result.weights).all()


def test_weights_of_zero_leave_a_finite_loss() -> None:
    context, memory = make_context(weights=torch.zeros(N, dtype=torch.float64)), make_memory()
    result = METHOD.step(context, memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    assert torch.isfinite(context.target.logits.grad).all()
    assert result.weights.tolist() == [0.0] * N


def test_mixed_pixels_are_whole_numbers() -> None:
    first = torch.tensor([[0, 255, 10]], dtype=torch.uint8)
    second = torch.tensor([[255, 255, 20]], dtype=torch.uint8)
    mixed = _mixture(first, second, 0.25)
    assert mixed.dtype == torch.uint8
    assert mixed.tolist() == [[191, 255, 18]]


def test_phases_and_refused_parameters() -> None:
    phases = Slm().phases
    starts = [progress_at(step, 15000, phases).phase for step in (0, 4999, 5000, 14999)]
    assert starts == ["align", "align", "select", "select"]
    assert [phase.restarts_decay for phase in phases] == [False, True]
    for wrong in ({"align": 1.0}, {"mix": -1.0}, {"temperature": 0.0}, {"threshold": 1.5}, {"gap": 0.6}, {"hidden": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Slm(**wrong)


def test_recipes_have_the_authors_numbers() -> None:
    config = load_config("slm")
    assert config.params == {**dataclasses.asdict(Slm()), "align": pytest.approx(1 / 3, abs=1e-6)}
    settings, optimizer = config.minibatch, config.minibatch.optimizer
    assert (config.weights, settings.steps, settings.source_batch, settings.target_batch) == ("own", 15000, 64, 64)
    assert (settings.sampler, settings.network.bottleneck, settings.network.joint) == ("balanced", "linear", False)
    assert (optimizer.lr, optimizer.weight_decay, optimizer.momentum, optimizer.nesterov) == (5e-4, 5e-4, 0.9, False)
    assert optimizer.schedule == "cosine"
    assert (optimizer.backbone, optimizer.bottleneck, optimizer.head, optimizer.extra) == (0.1, 1.0, 1.0, 1.0)
    progress = progress_at(5000, settings.steps, config.built_method.phases)
    assert (progress.phase, progress.phase_start) == ("select", 5000)
    frozen = load_config("slm-frozen")
    changed = {key for key, value in frozen.params.items() if value != config.params[key]}
    assert changed == {"hidden"}
