"""The mini-batch engine: resume, determinism, health, distribution."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from warmpot.data import Task, as_table, make_task
from warmpot.errors import DivergedError, InputError
from warmpot.train import fit, load_config
from warmpot.train.hardware import asked_to_stop
from warmpot.train.health import Health, effective_classes
from warmpot.train.run_folder import latest_checkpoint, load_checkpoint


def make_small_task(seed: int = 0, n: int = 60, m: int = 40, width: int = 5, classes: int = 4) -> Task:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(classes, width))
    ys, yt = np.arange(n) % classes, np.arange(m) % 2
    xs = centres[ys] + rng.normal(size=(n, width))
    xt = centres[yt] + rng.normal(size=(m, width)) + 0.5
    return make_task(as_table(xs, ys), as_table(xt))[0]


def small_config(preset: str = "official", steps: int = 40, **minibatch: Any) -> Any:
    settings = {
        "steps": steps, "source_batch": 16, "target_batch": 12, "log_every": 5, "checkpoint_every": 10,
        "network": {"width": 8}, **minibatch,
    }  # fmt: skip
    return load_config(preset, changes={"minibatch": settings, "seed": 3})


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_same_model(one: Path, other: Path) -> None:
    first, second = model_of(one), model_of(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name  # bit for bit


def test_same_seed_same_result_and_the_caller_keeps_its_generator() -> None:
    task, config = make_small_task(), small_config()
    torch.manual_seed(11)
    before = torch.get_rng_state()
    one, two = fit(task, config), fit(task, config)
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(one.outputs, two.outputs)
    assert one.history == two.history
    other = fit(task, load_config("official", changes={**_as_changes(config), "seed": 4}))
    assert not np.array_equal(one.outputs, other.outputs)


def _as_changes(config: Any) -> dict[str, Any]:
    from warmpot._settings import to_mapping

    found = to_mapping(config)
    return {"minibatch": found["minibatch"]}


@pytest.mark.parametrize("preset", ["official", "imagenet-caltech"], ids=["sgd", "adam-batchnorm"])
@pytest.mark.parametrize("kill_after", [3, 10, 27])
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, nursery: Any, preset: str, kill_after: int) -> None:
    """SIGKILL leaves no chance to clean up: whatever is on disk at that moment must do."""
    task, config = make_small_task(), small_config(preset)
    whole = fit(task, config, out=tmp_path / "whole")
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import test_batch_engine as here
from warmpot.methods import Warmpot
from pathlib import Path

calls = 0
step = Warmpot.step
def dying(self, *args):
    global calls
    calls += 1
    if calls > {kill_after}:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, *args)
Warmpot.step = dying
here.fit(here.make_small_task(), here.small_config({preset!r}), out=Path({str(tmp_path / "killed")!r}))
"""
    code, _, said = nursery.run(script, folder=tmp_path)
    assert code == -signal.SIGKILL, said
    assert not (tmp_path / "killed" / "model.safetensors").exists()
    resumed = fit(task, config, out=tmp_path / "killed", resume=True)
    assert_same_model(tmp_path / "whole", tmp_path / "killed")
    assert (tmp_path / "whole" / "metrics.jsonl").read_text() == (tmp_path / "killed" / "metrics.jsonl").read_text()
    assert np.array_equal(whole.outputs, resumed.outputs)


def test_ctrl_c_saves_between_steps_and_resumes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from warmpot.methods import Warmpot

    task, config = make_small_task(), small_config()
    fit(task, config, out=tmp_path / "whole")
    calls, step = 0, Warmpot.step

    def pressing(self: Warmpot, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 7:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Warmpot, "step", pressing)
        with pytest.raises(KeyboardInterrupt):
            fit(task, config, out=tmp_path / "run")
    assert calls == 7
    assert "--resume" in caplog.text
    place = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert place is not None
    assert load_checkpoint(place).step == 7
    fit(task, config, out=tmp_path / "run", resume=True)
    assert_same_model(tmp_path / "whole", tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_step_is_not_lost(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt) as caught, asked_to_stop():
        signal.raise_signal(number)  # and nobody asks any more
    assert caught.value.args == (number,)


def test_training_works_outside_the_main_thread() -> None:
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(fit(make_small_task(), small_config(steps=4))))
    worker.start()
    worker.join()
    assert np.isfinite(found[0].outputs).all()


def test_a_torn_checkpoint_is_named_and_an_older_one_used_instead(tmp_path: Path) -> None:
    task, config = make_small_task(), small_config()
    fit(task, config, out=tmp_path / "run")
    newest = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert newest is not None
    (newest / "state.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match="Remove"):
        fit(task, config, out=tmp_path / "run", resume=True)
    for entry in newest.iterdir():
        entry.unlink()
    newest.rmdir()
    fit(task, config, out=tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "checkpoints" / "step-00000040").is_dir()


def test_resuming_refuses_other_data_and_other_settings(tmp_path: Path) -> None:
    task, config = make_small_task(), small_config()
    fit(task, config, out=tmp_path / "run")
    with pytest.raises(InputError, match="other data"):
        fit(make_small_task(seed=1), config, out=tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="another configuration"):
        fit(task, small_config(steps=50), out=tmp_path / "run", resume=True)
    with pytest.raises(InputError, match="--resume"):
        fit(task, config, out=tmp_path / "run")


def test_no_pickle_is_written(tmp_path: Path) -> None:
    fit(make_small_task(), small_config(), out=tmp_path / "run")
    files = {path.suffix for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert files <= {".yaml", ".json", ".jsonl", ".csv", ".safetensors", ".npz"}  # npz: of numbers only, see below
    plan = np.load(tmp_path / "run" / "plan.npz", allow_pickle=False)
    assert all(plan[name].dtype.kind != "O" for name in plan.files)
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["seed"] == 3
    assert recorded["versions"]["torch"] == torch.__version__.split("+")[0] or recorded["versions"]["torch"]


def test_divergence_is_an_error_with_a_remedy() -> None:
    config = small_config(optimizer={"lr": 1e6, "decay_rate": 0.0})
    with pytest.raises(DivergedError, match="Lower the learning rate"):
        fit(make_small_task(), config)


def _entropies(health: Health, *sharpness: float, steps: int = 200) -> None:
    """Show logits that are sharpened step by step, from the first to the last number."""
    logits = torch.eye(8).repeat(4, 1)
    for step, factor in enumerate(torch.linspace(*sharpness, 60).tolist() + [sharpness[-1]] * (steps - 60)):
        health.see(factor * logits, (steps + step) / (2 * steps))


def test_health_warns_when_predictions_become_certain_at_once(caplog: pytest.LogCaptureFixture) -> None:
    def text(health: Health, *sharpness: float, resumed: bool = False) -> str:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for step in range(100):
                health.see(sharpness[0] * torch.eye(8), step / 200)
            if resumed:
                state, health = health.state(), Health(0.28, 0.5)
                health.load(state)
            _entropies(health, *sharpness)
        return caplog.text

    fell = text(Health(0.28, 0.5), 1.0, 8.0)
    assert "the entropy of target predictions fell from" in fell
    assert "later start" in fell
    assert fell.count("collapse?") == 1
    assert text(Health(0.28, 0.5), 1.0, 8.0, resumed=True) == fell
    assert text(Health(0.28, 0.5), 1.0, 2.5) == ""  # to about a half
    assert text(Health(0.28, 0.0), 1.0, 8.0) == ""  # no steps on the source to compare with
    assert text(Health(0.28, 1.0), 1.0, 8.0) == ""  # the source alone
    assert text(Health(0.28, 0.5), 5.0, 12.0) == ""  # certain before


def test_health_does_not_count_what_fell_before_the_adaptation(caplog: pytest.LogCaptureFixture) -> None:
    health = Health(0.28, 0.5)
    with caplog.at_level(logging.WARNING):
        for step in range(200):
            health.see((1.0 if step < 90 else 8.0) * torch.eye(8), step / 200)  # the head learns until step 100
    assert caplog.text == ""


def _watch(health: Health, caplog: pytest.LogCaptureFixture, *seen: tuple[float, torch.Tensor, torch.Tensor]) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for progress, logits, weights in seen:
            health.see(logits)
            health.check(progress, weights)
    return caplog.text


def test_each_sign_of_collapse_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    even, few = torch.full((100,), 0.01), torch.eye(100)[0]
    all_classes, half, one = 50 * torch.eye(8), 50 * torch.eye(8)[:4], 50 * torch.eye(8)[:1]
    assert _watch(Health(0.28), caplog, (0.2, all_classes, even), (0.9, half, even)) == ""
    text = _watch(Health(0.28), caplog, (0.2, one, even), (0.3, one, even))
    assert text.count("collapse?") == 1
    assert "1.00 classes" in text
    assert "weights sit on 1.0%" in _watch(Health(0.28), caplog, (0.2, half, few))
    assert "spread over 8.0 classes" in _watch(Health(0.28), caplog, (0.6, half, even), (0.9, all_classes, even))
    for expected, warns in ((1.2, False), (2.5, True)):
        few_classes = Health(0.28, 0.1)
        few_classes.expected_classes = expected
        assert bool(_watch(few_classes, caplog, (0.1, all_classes, even), (0.3, one, even))) == warns
    lost = _watch(Health(0.28, 0.1), caplog, (0.1, all_classes, even), (0.3, one, even))
    assert "8.0 before" in lost
    assert effective_classes(torch.eye(4)) == pytest.approx(4.0)


def test_a_real_collapse_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    """Weights from an untrained head at full strength, the smallest mass: the feedback of docs/engines.md."""
    rng = np.random.default_rng(0)
    ys = np.arange(400) % 40
    centres = 6 * rng.normal(size=(40, 30))
    xs, xt = centres[ys] + rng.normal(size=(400, 30)), centres[np.arange(200) % 15] + rng.normal(size=(200, 30)) + 2
    task = make_task(as_table(xs, ys), as_table(xt))[0]
    changes = {
        "params": {"ramp": 1.0, "alpha_start": 0.005, "eps": 0.5},
        "minibatch": {"steps": 150, "source_batch": 40, "target_batch": 40, "log_every": 10},
    }
    with caplog.at_level(logging.WARNING):
        fit(task, load_config("official", changes=changes))
    assert "collapse?" in caplog.text


def test_batches_larger_than_the_data_work() -> None:
    fitted = fit(make_small_task(n=9, m=5), small_config(steps=3))
    assert np.isfinite(fitted.outputs).all()


DISTRIBUTED = """
import json, sys
sys.path.insert(0, {here!r})
import test_batch_engine as here
import torch
from warmpot.train.hardware import make_fabric
from warmpot.train.batch_engine import train_in_batches

plan, devices = sys.argv[1], int(sys.argv[2])
hardware = dict(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto", plan=plan,
                precision="64-true")
config = here.small_config(steps=8, hardware=hardware, log_every=1, source_batch=16, target_batch=12)
fabric = make_fabric(config.minibatch.hardware)
task, silent = here.make_small_task(), lambda *a: None
network, _, history, *_ = train_in_batches(task, config, fabric, run=None, start=None, report=silent)
if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
    print(json.dumps([[line["loss"] for line in history], [p.double().sum().item() for p in network.parameters()]]))
"""


def test_two_processes_train_as_one_on_the_gathered_batch(tmp_path: Path, nursery: Any) -> None:
    script = DISTRIBUTED.format(here=str(Path(__file__).parent))
    code, alone, said = nursery.run(script, "gathered", "1", folder=tmp_path)
    assert code == 0, said
    together, by_rank = (nursery.launch(script, plan, "2", folder=tmp_path) for plan in ("gathered", "rank"))
    (one, parameters), (two, same), (own, _) = map(json.loads, (alone, together[0], by_rank[0]))
    np.testing.assert_allclose(two, one, rtol=1e-6)
    np.testing.assert_allclose(same, parameters, rtol=1e-6, atol=1e-7)
    assert np.isfinite(own).all()
    assert not np.allclose(own, one, rtol=1e-6)  # a plan per rank is another (noisier) problem


def test_a_signal_to_one_process_stops_all(tmp_path: Path, nursery: Any) -> None:
    script = STOPPING.format(here=str(Path(__file__).parent), out=str(tmp_path / "run"))
    assert nursery.launch(script, folder=tmp_path) == ["stopped 15\n"] * 2
    place = latest_checkpoint(tmp_path / "run" / "checkpoints")
    assert place is not None
    assert load_checkpoint(place).step == 5


STOPPING = """
import os, signal, sys
sys.path.insert(0, {here!r})
import test_batch_engine as here
from pathlib import Path
from warmpot.methods import Warmpot

calls, step = 0, Warmpot.step
def pressing(self, *args):
    global calls
    calls += 1
    if calls == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGTERM)
    return step(self, *args)
Warmpot.step = pressing
hardware = dict(accelerator="cpu", devices=2, strategy="ddp")
try:
    here.fit(here.make_small_task(), here.small_config(steps=30, hardware=hardware), out=Path({out!r}))
except KeyboardInterrupt as stop:
    print("stopped", *stop.args, flush=True)
"""


def test_a_batch_that_does_not_divide_is_refused() -> None:
    from warmpot.train.batches import Batches

    with pytest.raises(InputError, match="multiple of 3"):
        Batches(make_small_task(), small_config().minibatch, 0, rank=0, world=3)


def test_tensorboard_gets_the_metrics(tmp_path: Path) -> None:
    config = load_config("official", changes={**_as_changes(small_config(steps=10)), "tensorboard": True})
    fit(make_small_task(), config, out=tmp_path / "run")
    assert list((tmp_path / "run" / "tensorboard").glob("events.out.tfevents.*"))


def test_a_run_that_fails_at_once_frees_its_place(tmp_path: Path) -> None:
    task = make_small_task()
    with pytest.raises(DivergedError):
        fit(task, small_config(optimizer={"lr": 1e6, "decay_rate": 0.0}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    fit(task, small_config(steps=2), out=tmp_path / "run")


def test_a_bad_setting_is_not_called_divergence() -> None:
    config = load_config("official", changes={**_as_changes(small_config(steps=2)), "params": {"eps": 1e-300}})
    with pytest.raises(InputError, match="eps"):
        fit(make_small_task(), config)


def test_batch_norm_needs_two_samples() -> None:
    with pytest.raises(InputError, match="BatchNorm"):
        fit(make_small_task(), small_config("imagenet-caltech", steps=2, source_batch=1, target_batch=1))


def test_half_precision_inputs_are_scaled_within_their_range() -> None:
    from warmpot.nets import NetworkSettings, build_network

    network = build_network(NetworkSettings(scale="columns"), 3, 2, seed=0)
    network.fit_scale(torch.randn(9, 3))
    scaled = network.scale.half()(torch.full((1, 3), 60000.0, dtype=torch.float16))
    assert torch.isfinite(scaled).all()


def test_what_lives_on_a_device_can_be_logged() -> None:
    from warmpot.methods import StepResult
    from warmpot.train.batch_engine import _line

    class Elsewhere(float):
        def __array__(self, *args: Any) -> Any:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")  # what torch says

        def detach(self) -> Elsewhere:
            return self

    said = StepResult(Elsewhere(1.5), torch.ones(1), {"transport": Elsewhere(0.1)})  # type: ignore[arg-type]
    assert _line(3, said, {}) == {"step": 3, "loss": 1.5, "transport": float(np.float32(0.1))}


def test_apples_accelerator_is_refused() -> None:
    with pytest.raises(InputError, match="float64"):
        fit(make_small_task(), small_config(hardware={"accelerator": "mps"}))
