"""DRCN: losses and gradients against loops over whole kernel matrices, class shares, the kept block, odd batches."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from warmpot.data import Task
from warmpot.errors import InputError
from warmpot.methods import BatchContext, Setup, TrainProgress
from warmpot.methods.base import progress_at
from warmpot.methods.drcn import ADAPT, SOURCE, Drcn, ResidualMemory
from warmpot.nets import Network, NetworkSettings, Outputs, ResidualBlock, build_network, load_network, save_network
from warmpot.train import fit, load_config
from warmpot.train.batch_engine import _Trainer, train_in_batches
from warmpot.train.hardware import make_fabric
from warmpot.train.snapshots import Snapshot

N, C, D = 6, 3, 5
SIZES = Setup(n_source=40, n_target=9, n_classes=C, width=D, pooled=9, seed=3)
LABELS = torch.tensor([0, 1, 1, 0, 1, 1])  # none of class 2
CLOCK = TrainProgress(55, 100, ADAPT, 10, 100)
METHOD = Drcn(joint=0.7, by_class=0.6, threshold=0.3)


def _context(progress: TrainProgress = CLOCK, m: int = N) -> BatchContext:
    rng = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, k, generator=rng, dtype=torch.float64) for n in (N, m) for k in (D, C)]
    source, target = (Outputs(*(part.requires_grad_() for part in parts[k : k + 2])) for k in (0, 2))
    network = build_network(NetworkSettings(width=D), 9, C, seed=1).double()
    weights = torch.ones(N, dtype=torch.float64)
    return BatchContext(source, LABELS, target, progress, network=network, weights=weights)


def _memory() -> ResidualMemory:
    memory = METHOD.make_memory(SIZES).double()
    memory.shares.copy_(torch.tensor([0.5, 1.0, 0.2]))
    with torch.no_grad():
        for parameter in memory.trained():
            parameter.mul_(40.0)  # a block that matters
    return memory


def _kernels(x: torch.Tensor, number: int, width: float | None) -> torch.Tensor:
    """The matrix of the official kernel between all rows."""
    n = len(x)
    square = torch.stack([torch.stack([(a - b).square().sum() for b in x]) for a in x])
    h = float(square.detach().sum()) / (n * n - n) if width is None else width
    h /= 2.0 ** (number // 2)
    return sum(torch.exp(-square / (h * 2.0**j)) for j in range(number))  # type: ignore[return-value]


def _sum_by_loops(kernels: torch.Tensor, n: int, m: int) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for i in range(n):
        s1, s2 = i, (i + 1) % n
        t1, t2 = s1 + m, s2 + m
        total = total + kernels[s1, s2] + kernels[t1, t2] - kernels[s1, t2] - kernels[s2, t1]
    return total


def _by_hand(context: BatchContext, memory: ResidualMemory) -> tuple[torch.Tensor, set[tuple[int, int]]]:
    fs, zs = context.source.features, context.source.logits
    first_w, first_b, scale, shift, second_w, second_b = memory.trained()
    f = torch.cat([fs, context.target.features])
    x = f @ first_w.T + first_b
    x = scale * (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() + shift
    r = (f + x.clamp_min(0) @ second_w.T + second_b)[N:]
    p = torch.softmax(r @ context.head.weight.T + context.head.bias, 1)
    held = p.detach()  # as a factor and for the choice it is a constant
    both = _kernels(torch.cat([fs, r]), 5, None) * _kernels(torch.cat([torch.softmax(zs, 1), p]), 1, 1.68)
    loss = -torch.log_softmax(zs, 1)[range(N), LABELS].mean() + 0.7 * _sum_by_loops(both, N, N) / N
    sizes = set()
    for k in range(C):
        of_class = [fs[i] for i in range(N) if LABELS[i] == k]
        chosen = [j for j in range(N) if float(held[j, k]) > 0.3]
        if of_class and chosen:
            rows = torch.stack([*of_class, *(float(held[j, k]) * r[j] for j in chosen)])
            total = sum(float(held[j, k]) for j in chosen)
            part = _sum_by_loops(_kernels(rows, 5, None), len(of_class), len(chosen)) / (len(of_class) + total)
            loss = loss + 0.6 * float(memory.shares[k]) * part
            sizes.add((len(of_class), len(chosen)))
    return loss, sizes


def test_loss_and_every_gradient_are_the_formula() -> None:
    context, memory = _context(), _memory()
    result = METHOD.step(context, memory)
    result.loss.backward()
    other, again = _context(), _memory()
    loss, sizes = _by_hand(other, again)
    loss.backward()
    assert len(sizes) == 2
    assert any(n != m for n, m in sizes)  # where the official pairing differs from the formula's
    assert float(result.loss.detach()) == pytest.approx(float(loss.detach()), rel=1e-9)
    for mine, theirs in ((context.source, other.source), (context.target, other.target)):
        torch.testing.assert_close(mine.features.grad, theirs.features.grad, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(context.source.logits.grad, other.source.logits.grad, rtol=1e-6, atol=1e-9)
    assert context.target.logits.grad is None  # only the corrected features predict
    for mine, theirs in zip(memory.trained(), again.trained(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-6, atol=1e-9)
    assert context.head.weight.grad.abs().max() > 1e-4  # the joint distance trains the head
    torch.testing.assert_close(context.head.weight.grad, other.head.weight.grad, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(result.weights.numpy(), 1 / N)


def test_the_first_phase_is_the_source_alone() -> None:
    context, memory = _context(TrainProgress(1, 100, SOURCE, 0, 10)), _memory()
    loss = METHOD.step(context, memory).loss
    cross = -torch.log_softmax(context.source.logits, 1)[range(N), LABELS].mean()
    assert float(loss.detach()) == pytest.approx(float(cross.detach()), rel=1e-9)
    (mine,), (theirs,) = (torch.autograd.grad(x, context.source.logits) for x in (loss, cross))
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-9)
    assert not memory.sums.any()


def test_shares_are_those_of_the_last_whole_pass() -> None:
    memory = METHOD.make_memory(SIZES)  # 9 target samples
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(C), size=30).astype(np.float32)
    for start, done in ((0, 0), (6, 9), (12, 18), (18, 18), (24, 27)):  # samples of whole passes after each batch
        memory.see(torch.from_numpy(p[start : start + 6]))
        sums = p[done - 9 : done].sum(0) if done else np.ones(C)
        np.testing.assert_allclose(memory.shares.numpy(), sums / sums.max(), rtol=1e-5)
    memory = METHOD.make_memory(SIZES._replace(n_target=2))  # a batch of several passes
    memory.see(torch.from_numpy(p[:5]))
    np.testing.assert_allclose(memory.shares.numpy(), p[2:4].sum(0) / p[2:4].sum(0).max(), rtol=1e-5)
    np.testing.assert_allclose(memory.sums.numpy(), p[4], rtol=1e-5)


def _with_block() -> tuple[Network, ResidualMemory, torch.Tensor]:
    network = build_network(NetworkSettings(width=D), 9, C, seed=1)
    memory = METHOD.make_memory(SIZES)
    memory.residual.layers[1].running_mean.fill_(0.3)
    return (
        METHOD.final_network(memory, copy.deepcopy(network)).eval(),
        memory,
        torch.randn(4, 9, generator=torch.Generator().manual_seed(0)),
    )


def test_the_network_that_predicts_has_the_block_for_the_target_only() -> None:
    network, memory, x = _with_block()
    features = network.bottleneck(x)
    corrected = memory.residual.eval()(features)
    assert not torch.allclose(features, corrected)
    torch.testing.assert_close(network(x).features, corrected)
    torch.testing.assert_close(network(x).logits, network.head(corrected))
    torch.testing.assert_close(network.for_source()(x).features, features)
    assert network.residual is not None  # the twin is another network


def test_the_block_is_saved_and_loaded(tmp_path: Path) -> None:
    network, _, x = _with_block()
    save_network(tmp_path, network, NetworkSettings(width=D), {})
    loaded = load_network(tmp_path)[0]
    assert torch.equal(loaded(x).logits, network(x).logits)
    plain = build_network(NetworkSettings(width=D), 9, C, seed=1)
    save_network(tmp_path, plain, NetworkSettings(width=D), {})
    assert load_network(tmp_path)[0].residual is None


class SecondChosen:
    """A chooser that prefers the iterate of step 4, and keeps all that it is shown."""

    def __init__(self) -> None:
        self.shown: dict[int, Snapshot] = {}

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        self.shown[snapshot.step] = snapshot
        return snapshot.step == 4, {}

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        """Nothing is kept between runs."""


def test_an_iterate_is_chosen_with_its_block() -> None:
    """A chooser sees the network that would predict, block and all, and that very network is the result."""
    rng = np.random.default_rng(0)
    ys, yt = np.arange(40) % C, np.arange(30) % 2
    xs, xt = (3 * np.eye(C, D)[y] + rng.normal(size=(len(y), D)) for y in (ys, yt))
    task = Task(xs.astype(np.float32), ys, xt.astype(np.float32), tuple("abc"))
    loop = {"steps": 6, "source_batch": 8, "target_batch": 8, "checkpoint_every": 2, "network": {"width": 4}}
    config = load_config("drcn-frozen", changes={"minibatch": {**loop, "optimizer": {"extra": 10.0}}})
    chooser, fabric = SecondChosen(), make_fabric(config.minibatch.hardware)
    done = train_in_batches(task, config, fabric, run=None, start=None, report=lambda *_: None, chooser=chooser)
    chosen, last = chooser.shown[4], chooser.shown[6]
    assert chosen.network.residual is not None
    assert done.step == 4
    wanted, found = chosen.network.state_dict(), done.network.state_dict()
    assert wanted.keys() == found.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    weight = "residual.layers.0.weight"
    assert not torch.equal(wanted[weight], last.network.state_dict()[weight])  # the block was trained in between
    torch.testing.assert_close(done.target.logits, chosen.target.logits)
    plain = chosen.network.for_source()(torch.from_numpy(task.xt)).logits.double()
    assert (chosen.target.logits - plain).abs().max() > 1e-4  # what it saw is corrected


@pytest.mark.parametrize("case", ["no weight", "alike", "other size", "certain", "half precision"])
def test_odd_batches_are_finite(case: str) -> None:
    context, memory = _context(m=4 if case == "other size" else N), _memory()
    if case == "no weight":
        context = dataclasses.replace(context, weights=torch.zeros(N, dtype=torch.float64))
    if case == "alike":
        same = [
            Outputs(torch.ones(N, D).double().requires_grad_(), part.logits)
            for part in (context.source, context.target)
        ]
        context = dataclasses.replace(context, source=same[0], target=same[1])
    if case == "certain":
        with torch.no_grad():
            context.head.weight.mul_(1e4)
    if case == "half precision":
        source, target = (
            Outputs(part.features.detach().float().requires_grad_(), part.logits.detach().bfloat16().requires_grad_())
            for part in (context.source, context.target)
        )
        context, memory = dataclasses.replace(context, source=source, target=target), memory.float()
    result = METHOD.step(context, memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    for part in (context.source, context.target):
        assert torch.isfinite(part.features.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in memory.trained())
    assert torch.isfinite(memory.shares).all()


def test_the_block_draws_from_no_global_generator() -> None:
    before = torch.get_rng_state()
    one, same, other = (ResidualBlock(D, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(one.layers[0].weight, same.layers[0].weight)
    assert not torch.equal(one.layers[0].weight, other.layers[0].weight)


def test_the_phases_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the official code the target passes with the source in both, and the second has momentum of its own."""
    rng = np.random.default_rng(0)
    xs, xt = (rng.normal(size=(n, 5)).astype(np.float32) for n in (40, 30))
    momenta, rows = [], []
    step = _Trainer.step

    def recording(self: _Trainer, number: int, batches: Any) -> Any:
        weight = self.network.head.weight
        before = weight.detach().clone()
        result, target = step(self, number, batches)
        rows.append(len(target.logits))
        first = weight.grad + self.settings.optimizer.weight_decay * before
        momenta.append(torch.allclose(self.optimizer.state[weight]["momentum_buffer"], first, atol=1e-7))
        return result, target

    monkeypatch.setattr(_Trainer, "step", recording)
    loop = {"steps": 8, "warmup": 0.0, "source_batch": 8, "target_batch": 8, "network": {"width": 8}}
    changes = {"minibatch": loop, "params": {"pretrain": 0.5}}
    fit(Task(xs, np.arange(40) % C, xt, tuple("abc")), load_config("drcn-frozen", changes=changes))
    assert [step for step, restarted in enumerate(momenta) if restarted] == [0, 4]
    assert rows == [8] * 8


@pytest.mark.parametrize("bad", [{"joint": -1.0}, {"by_class": -1.0}, {"threshold": 0.0}, {"pretrain": 1.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Drcn(**bad)


def test_recipes_have_the_authors_numbers() -> None:
    config = load_config("drcn")
    loop, optimizer = config.minibatch, config.minibatch.optimizer
    assert (loop.steps, loop.source_batch, loop.target_batch, loop.sampler) == (11500, 36, 36, "shuffled")
    assert (loop.network.bottleneck, loop.network.joint) == ("none", True)
    assert (optimizer.lr, optimizer.weight_decay, optimizer.decay_rate) == (3e-4, 5e-4, 3e-4)
    assert (optimizer.backbone, optimizer.head, optimizer.extra) == (1.0, 10.0, 0.1)
    constants = {"joint": 0.1, "by_class": 0.05, "threshold": 0.4}
    for preset in ("drcn", "drcn-frozen"):
        assert constants.items() <= load_config(preset).params.items()
        assert load_config(preset).weights == "uniform"
    names = [progress_at(step, 11500, config.built_method.phases).phase for step in range(11500)]
    assert (names.count(SOURCE), names.count(ADAPT)) == (500, 11000)
