"""Fine-tuning by plans over the whole data sets, against the full engine and an independent formula."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from warmpot.data import Task, read_samples
from warmpot.errors import InputError
from warmpot.methods import BatchContext, DatasetPass, Setup, TrainProgress
from warmpot.methods.deep import AnswerMemory, Deep
from warmpot.nets import NetworkSettings, Outputs, build_network
from warmpot.select import fit_chosen
from warmpot.select.validators import DEFAULT_VALIDATOR
from warmpot.train import fit, load_config

CLASSES, WIDTH, N_SOURCE, N_TARGET = 4, 6, 60, 30


def domains(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    ys, yt = np.arange(N_SOURCE) % CLASSES, np.arange(N_TARGET) % 2
    xs, xt = (4 * np.eye(CLASSES, WIDTH)[y] + rng.normal(scale=0.5, size=(len(y), WIDTH)) for y in (ys, yt))
    return xs.astype(np.float32), ys, (xt + 0.5).astype(np.float32), yt


def solved(method: Deep) -> tuple[AnswerMemory, Any, Any]:
    xs, ys, xt, _ = domains()
    network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)
    memory = method.make_memory(Setup(N_SOURCE, N_TARGET, CLASSES, WIDTH, WIDTH))
    outputs = [Outputs(torch.from_numpy(x), torch.zeros(len(x), CLASSES)) for x in (xs, xt)]
    data = DatasetPass(*outputs, torch.from_numpy(ys), network)
    method.refresh(memory, TrainProgress(0, 10), lambda: data)
    return memory, network, (xs, ys, xt)


def test_weights_and_labels_are_those_of_the_full_engine() -> None:
    memory, _, (xs, ys, xt) = solved(Deep())
    full = fit(Task(xs, ys, xt, tuple("0123")), load_config("full"))
    assert full.solution is not None
    assert memory.weights.numpy() == pytest.approx(N_SOURCE * full.training_weights, abs=1e-5)
    plan = full.solution.plan.toarray()
    matched = plan.sum(axis=0)
    # the engine sorts the samples: sums are rounded otherwise, and so is what is left out
    assert memory.mass.numpy() == pytest.approx(N_TARGET * matched, abs=0.02)
    labels = np.array([[plan[ys == k, j].sum() for k in range(CLASSES)] for j in range(N_TARGET)])
    assert memory.labels.numpy() * matched[:, None] == pytest.approx(labels, abs=1e-3)
    absent = np.isin(ys, [2, 3])
    assert memory.weights.numpy()[absent].max() < 0.2 * memory.weights.numpy()[~absent].min()


def test_the_head_is_the_regularised_optimum() -> None:
    method = Deep()
    memory, network, (xs, ys, xt) = solved(method)
    weight, bias = network.head.weight.detach().double(), network.head.bias.detach().double()
    x = torch.from_numpy(np.concatenate([xs, xt])).double()
    full = fit(Task(xs, ys, xt, tuple("0123")), load_config("full"))
    targets = torch.eye(CLASSES, dtype=torch.float64)[np.concatenate([ys, full.outputs.argmax(axis=1)])]
    counts = torch.cat([memory.weights.double(), torch.ones(N_TARGET, dtype=torch.float64)])
    error = (torch.softmax(x @ weight.T + bias, dim=1) * targets.sum(dim=1, keepdim=True) - targets) * counts[:, None]
    gradient = error.T @ x / counts.sum() + method.penalty * weight
    assert float(gradient.abs().max()) < 1e-3 * float((method.penalty * weight).abs().max())


def test_before_the_first_step_it_predicts_what_the_full_engine_does() -> None:
    """Also for samples that the plan does not match."""
    rng = np.random.default_rng(3)
    ys, yt = np.arange(200) % CLASSES, np.arange(120) % 2
    centres = rng.normal(size=(CLASSES, 80))
    xs, xt = (centres[y] + rng.normal(scale=2.2, size=(len(y), 80)) for y in (ys, yt))
    task = Task(xs.astype(np.float32), ys, (xt + 0.5).astype(np.float32), tuple("0123"))
    network = build_network(NetworkSettings(bottleneck="none"), 80, CLASSES, seed=0)
    memory = Deep().make_memory(Setup(200, 120, CLASSES, 80, 80))
    outputs = [Outputs(torch.from_numpy(x), torch.zeros(len(x), CLASSES)) for x in (task.xs, task.xt)]
    Deep().refresh(memory, TrainProgress(0, 10), lambda: DatasetPass(*outputs, torch.from_numpy(ys), network))
    assert float(memory.mass.min()) < 0.99  # how much less depends on rounding
    predicted = network(torch.from_numpy(task.xt)).logits.argmax(dim=1).numpy()
    assert (predicted == fit(task, load_config("full")).outputs.argmax(axis=1)).mean() > 0.99


def test_a_step_against_the_formula() -> None:
    method = Deep()
    memory, _, _ = solved(method)
    generator = torch.Generator().manual_seed(0)
    rows, target_rows = torch.tensor([0, 5, 9, 22]), torch.tensor([3, 11, 29])
    logits_s, logits_t = (torch.randn(n, CLASSES, generator=generator, dtype=torch.float64) for n in (4, 3))
    logits_s.requires_grad_()
    logits_t.requires_grad_()
    labels = torch.tensor([0, 1, 1, 2])
    context = BatchContext(
        Outputs(logits_s, logits_s), labels, Outputs(logits_t, logits_t), TrainProgress(1, 10), rows=rows,
        target_rows=target_rows,
    )  # fmt: skip
    result = method.step(context, memory)
    found = torch.autograd.grad(result.loss, [logits_s, logits_t])
    w = memory.weights.double()[rows] / memory.weights.double()[rows].sum()
    q, soft = memory.mass.double()[target_rows], memory.labels.double()[target_rows]
    p_s, p_t = torch.softmax(logits_s.detach(), dim=1), torch.softmax(logits_t.detach(), dim=1)
    loss = -(w * p_s[torch.arange(4), labels].log()).sum() - (q[:, None] * soft * p_t.log()).sum() / 3
    assert float(result.loss.detach()) == pytest.approx(float(loss), rel=1e-6)
    assert torch.allclose(found[0], w[:, None] * (p_s - torch.eye(CLASSES)[labels]), atol=1e-6)
    mass = (q * soft.sum(dim=1))[:, None]
    assert torch.allclose(found[1], 1 / 3 * (mass * p_t - q[:, None] * soft), atol=1e-6)


def test_plans_are_solved_at_the_start_and_once_per_period() -> None:
    method, asked = Deep(periods=3), []
    memory = method.make_memory(Setup(N_SOURCE, N_TARGET, CLASSES, WIDTH, WIDTH))

    def request() -> DatasetPass:
        asked.append(step)
        xs, ys, xt, _ = domains()
        network = build_network(NetworkSettings(bottleneck="none"), WIDTH, CLASSES, seed=0)
        outputs = [Outputs(torch.from_numpy(x), torch.zeros(len(x), CLASSES)) for x in (xs, xt)]
        return DatasetPass(*outputs, torch.from_numpy(ys), network)

    for step in range(9):
        method.refresh(memory, TrainProgress(step, 9), request)
    assert asked == [0, 3, 6]
    ys = domains()[1]
    memory.weights[torch.from_numpy(ys >= 2)] = 0.0
    (pool,) = method.pools(memory).values()
    assert set(ys[pool.rows]) == {0, 1}  # samples without weight are not drawn


@pytest.mark.parametrize("bad", [{"periods": 0}, {"penalty": 0.0}])
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(bad))):
        Deep(**bad)


def test_the_recipe_has_the_plans_of_full() -> None:
    deep, full = load_config("deep"), load_config("full")
    assert full.params.items() <= deep.params.items()
    assert Deep(**dict(deep.params)) == Deep()
    assert (deep.engine, deep.minibatch.network.bottleneck) == ("minibatch", "none")
    assert deep.choose == DEFAULT_VALIDATOR


@pytest.mark.parametrize("cache", [False, True])
def test_images(cache: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("timm") is None:
        pytest.skip("the extra `vision` is not installed")
    monkeypatch.setenv("WARMPOT_CACHE", str(tmp_path))
    rng = np.random.default_rng(0)
    colours = np.array([[220, 30, 30], [30, 200, 40], [30, 40, 210]])

    def pictures(y: Any, dark: int) -> list[Image.Image]:
        pixels = colours[y][:, None, None] + rng.integers(-20, 20, size=(len(y), 36, 36, 3)) - dark
        return [Image.fromarray(image.astype(np.uint8)) for image in pixels.clip(0, 255)]

    ys, yt = np.repeat([0, 1, 2], 8), np.repeat([0, 2], 6)
    source, target = read_samples((pictures(ys, 0), ys)), read_samples(pictures(yt, 30))
    backbone = {"name": "test_resnet", "weights": "none", "train_from": "layer4"}
    images = {"backbone": backbone, "cache": cache, "workers": 0, "view": {"resize": 32, "crop": 32}}
    small = {"images": images, "minibatch": {"steps": 6, "source_batch": 8, "target_batch": 8, "log_every": 1}}
    assert source.y is not None
    task = Task(source.x, np.asarray(source.y), target.x, source.classes)
    fitted = fit(task, load_config("deep", changes={**small, "choose": "last"}))
    assert (fitted.outputs.argmax(axis=1) == yt).mean() > 0.9
    assert fitted.history[0]["loss"] < 0.7  # the head was fitted before the first step
    tail = fitted.predictor.network.backbone.tail.state_dict()
    assert all(int(count) == 0 for name, count in tail.items() if name.endswith("num_batches_tracked"))
    wild = {**small, "params": {"periods": 1}, "minibatch": {**small["minibatch"], "optimizer": {"lr": 3.0}}}
    spoilt = fit(task, load_config("deep", changes={**wild, "choose": "last"}))
    chosen = fit_chosen(task, load_config("deep", changes=wild))
    assert (spoilt.outputs.argmax(axis=1) == yt).mean() < 0.7
    assert (chosen.step, (chosen.outputs.argmax(axis=1) == yt).mean()) == (0, 1.0)


class First:
    """A chooser of the first iterate."""

    def offer(self, snapshot: Any) -> tuple[bool, dict[str, Any]]:
        return snapshot.step == 0, {"score": -snapshot.step}

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: dict[str, Any]) -> None:
        pass


def test_the_answer_before_the_first_step_can_be_chosen() -> None:
    xs, ys, xt, yt = domains()
    task = Task(xs, ys, xt, tuple("0123"))
    short = {"choose": "last", "minibatch": {"steps": 6, "checkpoint_every": 3}, "params": {"periods": 1}}
    found = fit(task, load_config("deep", changes=short), chooser=First())
    assert [line["step"] for line in found.history if "score" in line] == [0, 3, 6]
    assert found.step == 0
    assert (found.outputs.argmax(axis=1) == yt).all()
    last = fit(task, load_config("deep", changes=short))
    assert not torch.equal(found.predictor.network.head.weight, last.predictor.network.head.weight)
