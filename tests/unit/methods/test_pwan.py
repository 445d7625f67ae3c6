"""PWAN: the loss and the critic against independent computations, who moves and who does not, resuming."""

from __future__ import annotations

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Memory, Setup, TrainProgress
from warmpot.methods.pwan import CriticMemory, Pwan, _matched_share
from warmpot.nets import NetworkSettings, Outputs, build_network

N, M, C, D = 5, 4, 4, 6
SIZES = Setup(n_source=40, n_target=30, n_classes=C, width=D, pooled=9)
ALONE = {"entropy": 0.0, "complement": 0.0, "smoothing": 0.0}


def _outputs(n: int, seed: int) -> Outputs:
    rng = torch.Generator().manual_seed(seed)
    return Outputs(*(torch.randn(n, k, generator=rng, dtype=torch.float64).requires_grad_() for k in (D, C)))


def _context(clock: TrainProgress = TrainProgress(250, 1000)) -> BatchContext:  # noqa: B008 - a constant
    weights = torch.tensor([0.5, 0.1, 0.3, 0.02, 0.3], dtype=torch.float64)
    return BatchContext(_outputs(N, 0), torch.tensor([0, 1, 2, 3, 0]), _outputs(M, 1), clock, weights=weights)


def _memory(method: Pwan, seed: int = 3) -> CriticMemory:
    found = method.make_memory(SIZES._replace(seed=seed)).double()
    assert isinstance(found, CriticMemory)
    return found


def _points(context: BatchContext) -> tuple[np.ndarray, np.ndarray]:
    source = np.hstack([context.source.features.detach().numpy(), 0.01 * np.eye(C)[context.labels.numpy()]])
    odds = np.exp(context.target.logits.detach().numpy())
    return source, np.hstack([context.target.features.detach().numpy(), 0.01 * odds / odds.sum(1, keepdims=True)])


def _layers(memory: CriticMemory) -> list[tuple[np.ndarray, np.ndarray]]:
    state = {name: tensor.detach().numpy() for name, tensor in memory.critic.state_dict().items()}
    names = sorted({name.rsplit(".", 1)[0] for name in state})
    return [(state[f"{name}.weight"], state[f"{name}.bias"]) for name in names]


def _potential(layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> tuple[float, np.ndarray]:
    """Return ``-|MLP(x)|`` of one point and its gradient, by hand."""
    jacobian = np.eye(len(x))
    for index, (weight, bias) in enumerate(layers):
        x, jacobian = weight @ x + bias, weight @ jacobian
        if index < len(layers) - 1:
            slope = np.where(x > 0, 1.0, 0.2)
            x, jacobian = slope * x, slope[:, None] * jacobian
    return -abs(float(x[0])), -np.sign(x[0]) * jacobian[0]


def test_terms_are_the_formulas() -> None:
    method = Pwan(rho0=0.4, kappa=0.1)
    context, memory = _context(), _memory(method)
    result = method.step(context, memory)
    source, target = _points(context)
    layers = _layers(memory)  # after the critic's steps
    rho = 0.4 * 0.1**0.25
    h_s, h_t = ([_potential(layers, x)[0] for x in part] for part in (source, target))
    distance = np.mean(h_s) / rho - np.mean(h_t)
    c, y = context.weights.numpy(), context.labels.numpy()
    p_s, p_t = (np.exp(part.logits.detach().numpy()) for part in (context.source, context.target))
    p_s, p_t = p_s / p_s.sum(1, keepdims=True), p_t / p_t.sum(1, keepdims=True)
    mixed = 0.9 * np.eye(C)[y] + 0.1 / C
    classification = (c * -(mixed * np.log(p_s)).sum(1)).sum() / (c.sum() + 1e-5)
    entropy = -(p_t * np.log(p_t)).sum(1).mean()
    values, doubt = [], 1 - p_s[np.arange(N), y]
    for row, label in zip(p_s, y, strict=True):
        q = np.delete(row, label) / (1 - row[label])
        values.append((q * np.log(q)).sum() / math.log(C - 1))
    complement = np.dot(doubt, values) / doubt.sum()  # not weighted by class
    for name, truth in (("classification", classification), ("partial_distance", distance), ("entropy", entropy),
                        ("complement", complement), ("rho", rho)):  # fmt: skip
        assert float(result.metrics[name]) == pytest.approx(truth, rel=1e-5), name
    total = classification + 0.05 * distance + 0.1 * entropy + complement
    assert float(result.loss.detach()) == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(result.weights.numpy(), c / (c.sum() + 1e-5), rtol=1e-6)
    assert not result.weights.requires_grad


def _first_critic_gradient(method: Pwan, context: BatchContext, memory: CriticMemory) -> list[torch.Tensor]:
    """Return the gradients that the critic's optimiser was given at its first step."""
    seen: list[torch.Tensor] = []
    (optimizer,) = memory.optimizers().values()
    parameters = list(memory.critic.parameters())
    hook = optimizer.register_step_pre_hook(
        lambda *_: seen.extend(p.grad.clone() for p in parameters) if not seen else None
    )
    method.step(context, memory)
    hook.remove()
    return seen


def test_the_critic_descends_on_the_gap_and_the_penalty_of_each_point() -> None:
    """Central differences of the loss by hand, with slopes far above 1 so that the penalty counts."""
    method = Pwan(rho0=0.5, critic_steps=1, hidden=8)
    context, memory = _context(), _memory(method)
    with torch.no_grad():
        for p in memory.critic.parameters():
            p.mul_(3.0)
    start = copy.deepcopy(memory)
    source, target = _points(context)
    rho = 0.5 * 0.03162**0.25

    def loss(penalised: float) -> float:
        layers = _layers(start)
        found_s, found_t = ([_potential(layers, x) for x in part] for part in (source, target))
        steep = [max(np.linalg.norm(g) - 1, 0) ** 2 for _, g in (*found_s, *found_t)]
        gap = np.mean([h for h, _ in found_t]) - np.mean([h for h, _ in found_s]) / rho
        return float(gap + penalised * np.mean(steep))

    assert loss(1000.0) > loss(0.0) + 1.0
    found = _first_critic_gradient(method, context, memory)
    for p, gradient in zip(start.critic.parameters(), found, strict=True):
        flat = p.data.view(-1)
        for index in (0, len(flat) // 2, len(flat) - 1):
            ends = []
            for move in (1e-6, -2e-6):
                flat[index] += move
                ends.append(loss(1000.0))
            flat[index] += 1e-6
            assert float(gradient.view(-1)[index]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-3, abs=1e-3)


def test_only_the_first_critic_step_is_penalised() -> None:
    context = _context()
    found = []
    for penalty in (1000.0, 0.0):
        seen: list[torch.Tensor] = []
        method = Pwan(rho0=0.5, critic_steps=3, penalty=penalty, critic_lr=1e-12)  # stays where it is
        memory = _memory(method)
        with torch.no_grad():
            for p in memory.critic.parameters():
                p.mul_(3.0)
        (optimizer,) = memory.optimizers().values()
        first = next(iter(memory.critic.parameters()))
        optimizer.register_step_pre_hook(lambda *_, seen=seen, first=first: seen.append(first.grad.clone()))
        method.step(context, memory)
        found.append(seen)
    assert [len(seen) for seen in found] == [3, 3]
    assert (found[0][0] - found[1][0]).abs().max() > 1.0
    for with_penalty, without in zip(found[0][1:], found[1][1:], strict=True):
        torch.testing.assert_close(with_penalty, without, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("rho", [1.0, 0.5])
def test_the_critic_finds_the_distance_of_two_points(rho: float) -> None:
    """All mass of the target is 2 away from the source, however much more the source has: the distance is 2."""
    method = Pwan(rho0=rho, kappa=1.0, critic_lr=1e-3, hidden=32)
    memory = _memory(method)
    source = Outputs(torch.zeros(N, D).double(), torch.zeros(N, C).double())
    target = Outputs(torch.eye(D)[:1].repeat(M, 1).double() * 2.0, torch.eye(C)[:1].repeat(M, 1).double() * 50.0)
    context = dataclasses.replace(_context(), source=source, target=target, labels=torch.zeros(N, dtype=torch.int64))
    distances = [float(method.step(context, memory).metrics["partial_distance"]) for _ in range(60)]
    assert np.mean(distances[-20:]) == pytest.approx(2.0, rel=0.2)


def test_only_target_features_move_to_the_potential() -> None:
    method = Pwan(rho0=0.4, **ALONE)
    context, memory = _context(), _memory(method)
    method.step(context, memory).loss.backward()
    assert context.source.features.grad is None  # the weighted loss goes through logits, which are leaves here
    layers, (_, target) = _layers(memory), _points(context)
    slopes = np.array([_potential(layers, x)[1][:D] for x in target])
    np.testing.assert_allclose(context.target.features.grad.numpy(), -0.05 * slopes / M, rtol=1e-6, atol=1e-12)
    assert context.target.logits.grad.abs().max() > 0  # predictions are part of the point


def test_the_critic_leaves_no_gradient_behind() -> None:
    """Neither its own steps on the network, nor the loss on the critic."""
    network = build_network(NetworkSettings(width=D), 9, C, seed=0).double()
    rng = torch.Generator().manual_seed(0)
    source, target = (network(torch.randn(n, 9, dtype=torch.float64, generator=rng)) for n in (N, M))
    method = Pwan()
    memory = _memory(method)
    result = method.step(dataclasses.replace(_context(), source=source, target=target), memory)
    assert all(p.grad is None for p in (*network.parameters(), *memory.parameters()))
    result.loss.backward()
    assert all(p.grad is None for p in memory.parameters())
    assert all(p.grad is not None for p in network.parameters())
    assert list(memory.trained()) == []


def test_mass_follows_its_schedule() -> None:
    method = Pwan(rho0=0.4, kappa=0.1)
    memory = _memory(method)
    found = [float(method.step(_context(TrainProgress(step, 100)), memory).metrics["rho"]) for step in (0, 50, 100)]
    assert found == pytest.approx([0.4, 0.4 * 0.1**0.5, 0.04], rel=1e-6)


def _blobs(n_classes: int, present: int, *, pooled: bool) -> DatasetPass:
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.standard_normal((n_classes, 20))
    ys, yt = np.arange(20 * n_classes) % n_classes, np.arange(20 * present) % present
    x, t = (torch.from_numpy(centres[y] + rng.standard_normal((len(y), 20)) + 5.0) for y in (ys, yt))

    def outputs(z: torch.Tensor) -> Outputs:
        logits = torch.zeros(len(z), n_classes)
        return Outputs(torch.zeros_like(z), logits, z) if pooled else Outputs(z, logits)

    network = build_network(NetworkSettings(), 20, n_classes, seed=0)
    return DatasetPass(outputs(x), outputs(t), torch.from_numpy(ys), network)


@pytest.mark.parametrize("pooled", [True, False])
def test_rho0_is_the_share_of_frequent_classes(pooled: bool) -> None:
    assert _matched_share(_blobs(10, 4, pooled=pooled)) == 0.4


def test_classes_without_a_sample_are_not_predicted() -> None:
    whole = _blobs(10, 4, pooled=True)
    wider = build_network(NetworkSettings(), 20, 20, seed=0)
    assert _matched_share(DatasetPass(whole.source, whole.target, whole.labels, wider)) == 0.2


def test_equal_frequencies_mean_the_whole_source() -> None:
    assert _matched_share(_blobs(5, 5, pooled=True)) == 1.0


def test_rho0_is_estimated_once_and_kept() -> None:
    method, looks = Pwan(), []

    def look() -> DatasetPass:
        looks.append(1)
        return _blobs(10, 4, pooled=True)

    memory = method.make_memory(SIZES._replace(seed=0))
    for step in range(3):
        method.refresh(memory, TrainProgress(step, 3), look)
    assert len(looks) == 1
    assert float(memory.state_dict()["rho0"]) == pytest.approx(0.4)
    fixed = Pwan(rho0=0.3)
    fixed.refresh(fixed.make_memory(SIZES._replace(seed=0)), TrainProgress(0, 3), look)
    assert len(looks) == 1


def test_memory_is_its_state() -> None:
    """After a round trip through state and optimiser the next step is the same, bit for bit."""
    method = Pwan(rho0=0.4)
    memory, other = _memory(method), _memory(method, seed=4)
    for _ in range(3):
        method.step(_context(), memory)

    def carried(keep: bool) -> torch.Tensor:
        other.load_state_dict(copy.deepcopy(memory.state_dict()))
        state = memory.optimizers()["critic"].state_dict() if keep else _fresh(method)
        other.optimizers()["critic"].load_state_dict(copy.deepcopy(state))
        return method.step(_context(), other).loss

    same, changed = carried(keep=True), carried(keep=False)
    own = method.step(_context(), memory).loss
    assert torch.equal(own, same)
    assert not torch.equal(own, changed)  # the optimiser's state matters


def _fresh(method: Pwan) -> dict[str, object]:
    return _memory(method).optimizers()["critic"].state_dict()


def test_certain_predictions_are_finite_in_float32() -> None:
    context = _context()
    parts = [Outputs(part.features.detach().float(), 1e5 * part.logits.detach().float())
             for part in (context.source, context.target)]  # fmt: skip
    for part in parts:
        for tensor in (part.features, part.logits):
            tensor.requires_grad_()
    memory: Memory = Pwan().make_memory(SIZES._replace(seed=0))
    result = Pwan().step(dataclasses.replace(context, source=parts[0], target=parts[1]), memory)
    result.loss.backward()
    assert torch.isfinite(result.loss)
    for part in parts:
        assert part.logits.grad is not None
        assert torch.isfinite(part.logits.grad).all()


@pytest.mark.parametrize(
    "bad", [{"transfer": -1.0}, {"rho0": 0.0}, {"rho0": 1.5}, {"kappa": 0.0}, {"critic_steps": 0}, {"smoothing": 2.0}]
)
def test_bad_parameters_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Pwan(**bad)  # type: ignore[arg-type]
