"""The mini-batch engine: one loop on Lightning Fabric, for every method."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from warmpot._progress import Report
from warmpot.data import Task, make_sampler
from warmpot.errors import DivergedError, InputError, explain
from warmpot.methods import Method, Step
from warmpot.nets import Network, Outputs, Pair, build_network
from warmpot.train.config import HardwareSettings, MinibatchSettings, OptimizerSettings, RunConfig
from warmpot.train.full import Trained
from warmpot.train.health import Health
from warmpot.train.interrupt import asked_to_stop
from warmpot.train.keep import Chooser, Keeper, Snapshot
from warmpot.train.predictor import apply_network
from warmpot.train.rundir import RunDir
from warmpot.train.state import (
    Checkpoint,
    pack_optimizer,
    random_state,
    set_random_state,
    unpack_optimizer,
)

__all__ = ["Batch", "Batches", "make_fabric", "make_optimizer", "train_minibatch"]

logger = logging.getLogger(__name__)


class Batch(NamedTuple):
    """What training sees of one step. There is no field for target labels."""

    source: Tensor
    labels: Tensor
    target: Tensor


class Batches:
    """Batches of a task as a pure function of the step: every process takes its share of the same joined batch."""

    def __init__(self, task: Task, settings: MinibatchSettings, seed: int, *, rank: int = 0, world: int = 1) -> None:
        for name in ("source_batch", "target_batch"):
            if getattr(settings, name) % world:
                got = f"{getattr(settings, name)} samples over {world} processes"
                remedy = f"Choose a multiple of {world}."
                raise InputError(explain(f"minibatch.{name}", got=got, allowed="equal shares", remedy=remedy))
        kind = "shuffled" if task.for_regression else settings.sampler
        self._source = make_sampler(kind, settings.source_batch, 2 * seed, labels=task.ys)
        self._target = make_sampler("shuffled", settings.target_batch, 2 * seed + 1, n=task.n_target)
        self._mine = slice(rank, None, world)
        self._xs, self._xt = torch.as_tensor(task.xs).float(), torch.as_tensor(task.xt).float()
        self._ys = torch.as_tensor(task.ys)

    def at(self, step: int, device: torch.device) -> Batch:
        """Return this process's share of batch `step`."""
        source = torch.from_numpy(self._source.batch(step)[self._mine])
        target = torch.from_numpy(self._target.batch(step)[self._mine])
        return Batch(*(part.to(device) for part in (self._xs[source], self._ys[source], self._xt[target])))


def make_optimizer(network: Network, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Make the optimiser with one group a part of the network; ``lr_scale`` is the part's multiplier."""
    parts = {"backbone": network.backbone, "bottleneck": network.bottleneck, "head": network.head}
    groups = [
        {"params": params, "lr_scale": getattr(settings, name)}
        for name, part in parts.items()
        if (params := [p for p in part.parameters() if p.requires_grad])
    ]
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov and settings.momentum > 0,
        weight_decay=settings.weight_decay,
    )


def _check_batch_norm(settings: MinibatchSettings, world: int) -> None:
    smallest = min(settings.source_batch, settings.target_batch) // world
    if settings.network.bottleneck == "bn_relu" and smallest < 2:
        remedy = "Choose larger batches, or the bottleneck `linear`."
        got = f"{smallest} samples a process under BatchNorm"
        raise InputError(explain("minibatch", got=got, allowed="at least 2", remedy=remedy))


class _Trainer:
    """Model, optimiser and batches of one run, and their state."""

    def __init__(self, task: Task, config: RunConfig, fabric: Fabric) -> None:
        self.config, self.settings, self.fabric = config, config.minibatch, fabric
        _check_batch_norm(self.settings, fabric.world_size)
        network = build_network(self.settings.network, task.width, task.n_classes or 1, seed=config.seed)
        self.method: Method = config.make_method()
        domains = (torch.as_tensor(task.xs), torch.as_tensor(task.xt))
        network.fit_scale(*domains[: 1 + self.method.uses_target])
        pair, optimizer = Pair(network), make_optimizer(network, self.settings.optimizer)
        self.model, self.optimizer = fabric.setup(pair, optimizer)
        self.network: Network = self.model.module.network
        self.batches = Batches(
            task, self.settings, config.seed, rank=fabric.global_rank, world=fabric.world_size
        )  # fmt: skip
        self.health = Health(self.method.expected_share, *self.method.stages)

    def step(self, step: int) -> tuple[Step, Outputs]:
        """Train on one batch; return what the method said, and the outputs of the target batch."""
        factor = self.settings.optimizer.decay(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.optimizer.lr * group["lr_scale"] * factor
        batch = self.batches.at(step, self.fabric.device)
        source, target = self.model(batch.source, batch.target)
        labels = batch.labels
        if self.fabric.world_size > 1 and self.settings.hardware.plan == "gathered":
            source, target = self._gathered(source), self._gathered(target)
            labels = self._joined(labels)
        if not all(bool(torch.isfinite(part).all()) for part in (*source, *target)):
            raise _diverged(step, "outputs that are not finite")
        try:
            said = self.method.step(source, labels, target, step / self.settings.steps, self.config.loss)
        except InputError as error:
            if step == 0:  # nothing can have grown yet: a setting is to blame, and the message names it
                raise
            raise _diverged(step, f"outputs beyond use ({error})") from error
        self.optimizer.zero_grad()
        self.fabric.backward(said.loss)
        self.optimizer.step()
        return said, target

    def _gathered(self, outputs: Outputs) -> Outputs:
        # Every process computes the loss of the joined batch. The gather's backward sums the processes' gradients,
        # the wrapper then takes their mean: what is left is the gradient of one process on the joined batch.
        return Outputs(*(self._joined(part, sync_grads=True) for part in outputs))

    def _joined(self, part: Tensor, sync_grads: bool = False) -> Tensor:
        everywhere: Any = self.fabric.all_gather(part, sync_grads=sync_grads)
        joined: Tensor = everywhere.flatten(0, 1)
        return joined

    def agreed(self, flag: bool) -> bool:
        """Whether any process raised the flag: a signal may reach one of them only, but all must stop at one step."""
        if self.fabric.world_size == 1:
            return flag
        flags = self.fabric.all_gather(torch.tensor(float(flag), device=self.fabric.device))
        return bool(torch.as_tensor(flags).max() > 0)

    def snapshot(self, step: int, task: Task, said: Step) -> Snapshot:
        """Show the network as it is now, apart from the one that is trained."""
        network = copy.deepcopy(self.network).cpu().eval()
        source, target = apply_network(network, task.xs), apply_network(network, task.xt)
        has_plan = "transport" in said.metrics
        transport = float(said.metrics["transport"]) / float(said.metrics["alpha"]) if has_plan else None
        return Snapshot(step, network, source, target, transport)

    def checkpoint(self, step: int, keeper: Keeper) -> Checkpoint:
        tensors, facts = pack_optimizer(self.optimizer)
        named = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        named |= {f"optimizer.{name}": tensor for name, tensor in tensors.items()}
        named |= {f"random.{name}": tensor for name, tensor in random_state().items()}
        named |= {f"health.{name}": tensor for name, tensor in self.health.state().items()}
        others = {"optimizer": facts, "sampler": {"seed": self.config.seed, "step": step}, **keeper.facts()}
        return Checkpoint(step, named | keeper.tensors(), others)

    def restore(self, checkpoint: Checkpoint, keeper: Keeper) -> int:
        def part(prefix: str) -> dict[str, Tensor]:
            found = checkpoint.tensors.items()
            return {name[len(prefix) :]: tensor for name, tensor in found if name.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        unpack_optimizer(self.optimizer, part("optimizer."), checkpoint.facts["optimizer"])
        set_random_state(part("random."))
        self.health.load(part("health."))
        keeper.load(checkpoint.tensors, checkpoint.facts)
        return checkpoint.step


def _diverged(step: int, got: str) -> DivergedError:
    remedy = "Lower the learning rate (minibatch.optimizer.lr); for frozen features take the preset full or frozen."
    return DivergedError(explain(f"training, step {step}", got=got, allowed="finite numbers", remedy=remedy))


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch for dropout and the like, and leave the caller's generators as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def make_fabric(hardware: HardwareSettings) -> Fabric:
    """Start Fabric as the settings say; bad flags get our message."""
    try:
        fabric = Fabric(
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            strategy=hardware.strategy,
            precision=hardware.precision,  # type: ignore[arg-type]
        )
    except (ValueError, RuntimeError, TypeError) as error:
        got, remedy = " ".join(str(error).split()), "`warmpot doctor` lists the devices of this machine."
        raise InputError(explain("minibatch.hardware", got=got, allowed="Fabric's flags", remedy=remedy)) from error
    fabric.launch()
    return fabric


def train_minibatch(
    task: Task,
    config: RunConfig,
    fabric: Fabric,
    *,
    run: RunDir | None,
    start: Checkpoint | None,
    report: Report,
    chooser: Chooser | None = None,
) -> Trained:
    """Train a network by mini-batches.

    Parameters
    ----------
    task : Task
        Has no target labels.
    config : RunConfig
    fabric : Fabric
        Launched; see `make_fabric`.
    run : RunDir or None
        Where metrics and checkpoints go.
    start : Checkpoint or None
        Where to go on.
    report : Report
        Called with the share of the work that is done.
    chooser : Chooser, optional
        Says which of the iterates, one every ``checkpoint_every`` steps, is the result; default: the last.

    Returns
    -------
    Trained
        The network on the CPU, in evaluation mode, with its history (what ``metrics.jsonl`` holds) and what it says
        of both domains.
    """
    settings, history = config.minibatch, (run.history() if run else [])
    with _seeded(config.seed), asked_to_stop() as stop:
        trainer = _Trainer(task, config, fabric)
        keeper = Keeper(chooser)
        begin = trainer.restore(start, keeper) if start is not None else 0
        trainer.model.train()
        for step in range(begin, settings.steps):
            said, target = trainer.step(step)
            trainer.health.see(target.logits)
            done = step + 1
            if done % settings.log_every == 0 or done == settings.steps:
                line = _line(done, said, trainer.health.check(done / settings.steps, said.weights))
                history.append(line)
                if run is not None and fabric.is_global_zero:
                    run.log(line)
                report(done / settings.steps, f"step {done}, loss {line['loss']:.3f}")
            stopping = trainer.agreed(stop())
            due = done % settings.checkpoint_every == 0 or done == settings.steps
            if due and chooser is not None:
                line = {"step": done, **keeper.offer(trainer.snapshot(done, task, said))}
                history.append(line)
                if run is not None and fabric.is_global_zero:
                    run.log(line)
            if run is not None and (due or stopping):
                if fabric.is_global_zero:
                    run.save(trainer.checkpoint(done, keeper))
                fabric.barrier()
            if stopping:
                if run is not None and fabric.is_global_zero:
                    logger.warning("stopped after step %d; saved. Go on with --resume %s", done, run.folder)
                raise KeyboardInterrupt
    network = trainer.network.cpu().eval()
    keeper.restore(network)
    source, target = apply_network(network, task.xs), apply_network(network, task.xt)
    step = settings.steps if keeper.step is None else keeper.step
    return Trained(network, settings.network, history, source, target, step)


def _line(step: int, said: Step, signs: dict[str, float]) -> dict[str, Any]:
    numbers = {"loss": said.loss.detach(), **said.metrics, **signs}
    return {"step": step, **{name: float(np.float32(value)) for name, value in numbers.items()}}
