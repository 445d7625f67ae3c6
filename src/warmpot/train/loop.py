"""The mini-batch engine: one loop on Lightning Fabric, for every method."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from warmpot._progress import ProgressCallback
from warmpot.data import Task
from warmpot.data.lazy import Rows
from warmpot.errors import DivergedError, InputError
from warmpot.methods import Clock, Labelled, Learner, Sizes, Step, View, Whole
from warmpot.nets import Network, Outputs, Pair, build_network
from warmpot.train.batches import Batch, Batches, Drawn, blocks
from warmpot.train.config import MinibatchSettings, OptimizerSettings, RunConfig
from warmpot.train.full import Trained
from warmpot.train.hardware import quiet_gathers
from warmpot.train.health import Health
from warmpot.train.images import make_backbone
from warmpot.train.interrupt import asked_to_stop
from warmpot.train.keep import Chooser, ChosenIterate, Snapshot
from warmpot.train.predictor import apply_network
from warmpot.train.rundir import RunDir
from warmpot.train.state import (
    Checkpoint,
    pack_optimizer,
    random_state,
    set_random_state,
    unpack_optimizer,
)

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["make_optimizer", "train_minibatch"]

logger = logging.getLogger(__name__)


def make_optimizer(
    network: Network, settings: OptimizerSettings, extra: Iterable[torch.nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Make the optimiser with one group a part of the network; ``lr_scale`` is the part's multiplier.

    Parameters
    ----------
    network : Network
    settings : OptimizerSettings
    extra : iterable of parameters
        What a method trains beside the network.
    """
    names = ("backbone", "bottleneck", "head")
    parts = {name: list(getattr(network, name).parameters()) for name in names} | {"extra": list(extra)}
    groups = [
        {"params": params, "lr_scale": getattr(settings, name)}
        for name, part in parts.items()
        if (params := [p for p in part if p.requires_grad])
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
        raise InputError("minibatch", got=got, allowed="at least 2", remedy=remedy)


class _Trainer:
    """Model, optimiser and batches of one run, and their state."""

    def __init__(self, task: Task, config: RunConfig, fabric: Fabric) -> None:
        self.config, self.settings, self.fabric = config, config.minibatch, fabric
        _check_batch_norm(self.settings, fabric.world_size)
        n_outputs = task.n_classes or 1
        network = self._build(task, n_outputs)
        method = config.make_method()
        if network.needs_scale:
            network.fit_scale(*map(torch.as_tensor, task.arrays()[: 1 + method.uses_target]))
        sizes = Sizes(task.n_source, task.n_target, n_outputs, network.head.in_features, network.n_inputs)
        warm, steps = self.settings.warmup_steps, self.settings.steps
        self.learner = Learner(method, config.make_weighting(), sizes, config.seed, warm).to(fabric.device)
        self._check_plan(fabric)
        optimizer = make_optimizer(network, self.settings.optimizer, self.learner.trained())
        self.model, self.optimizer = fabric.setup(Pair(network, joint=self.settings.network.joint), optimizer)
        self.network: Network = self.model.module.network
        most = self.learner.extra_samples(Clock(warm, steps), self.settings.source_batch)
        self.batches = Batches(
            task, self.settings, config.seed, rank=fabric.global_rank, world=fabric.world_size, extra=most
        )  # fmt: skip
        stages = ((warm + share * (steps - warm)) / steps for share in method.stages)
        self.health = Health(self.learner.expected_share, *stages)

    def _build(self, task: Task, n_outputs: int) -> Network:
        """Build the network; with a backbone when the samples are not features yet."""
        images, shape, seed = self.config.images, self.settings.network, self.config.seed
        if task.xs.ndim == 2:
            return build_network(shape, task.width, n_outputs, seed=seed)
        if images is None:
            remedy = "Set `images`, or extract features first."
            raise InputError(
                "images", got="none, for samples that are no features", allowed="settings of a backbone", remedy=remedy
            )
        backbone = make_backbone(images)
        if images.backbone.batch_norm == "sync" and self.fabric.world_size > 1 and self.fabric.device.type == "cpu":
            got, remedy = '"sync" over processes without GPUs', 'Set it to "train" or "frozen".'
            raise InputError("images.backbone.batch_norm", got=got, allowed="GPUs", remedy=remedy)
        return build_network(shape, backbone.width, n_outputs, seed=seed, backbone=backbone)

    def stream(self, begin: int) -> Generator[Batch, None, None]:
        """Yield this process's share of every batch from step `begin` on."""
        steps, size = self.settings.steps, self.settings.source_batch
        extra = [self.learner.extra_samples(Clock(step, steps), size) for step in range(begin, steps)]
        return self.batches.stream(begin, extra, self._workers)

    @property
    def _workers(self) -> int:
        """Processes that decode images."""
        return self.config.images.processes if self.config.images is not None and self.batches.decodes else 0

    def _check_plan(self, fabric: Fabric) -> None:
        if self.settings.hardware.plan == "rank" and fabric.world_size > 1 and self.learner.remembers:
            got = f'"rank" with {self.config.method!r} and the weights {self.config.weights!r}'
            remedy = "They remember samples or train networks beside the main one, the same in all processes."
            raise InputError("minibatch.hardware.plan", got=got, allowed='"gathered"', remedy=remedy)

    def step(self, step: int, batch: Batch) -> tuple[Step, Outputs]:
        """Train on one batch; return what the method said, and the outputs of the target batch."""
        factor = self.settings.optimizer.decay(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.optimizer.lr * group["lr_scale"] * factor
        clock = Clock(step, self.settings.steps)
        self.learner.refresh(clock, self.look)
        view = self._view(clock, batch.to(self.fabric.device))
        outputs = (*view.source[:2], *view.target[:2])  # what went into the bottleneck is finite if these are
        if not all(bool(torch.isfinite(part).all()) for part in outputs):
            raise _diverged(step, "outputs that are not finite")
        try:
            said = self.learner.step(view)
        except InputError as error:
            if step == 0:  # nothing can have grown yet: a setting is to blame, and the message names it
                raise
            raise _diverged(step, f"outputs beyond use ({error})") from error
        self.optimizer.zero_grad()
        self.fabric.backward(said.loss)
        self.optimizer.step()
        return said, view.target

    def _view(self, clock: Clock, batch: Batch) -> View:
        """Apply the network to the batch of a step; over several processes, to the joined batch."""
        drawn, further = batch.source, batch.extra
        source, target, extra = self.model(drawn.x, batch.target, None if further is None else further.x)
        if self.fabric.world_size > 1 and self.settings.hardware.plan == "gathered":
            source, target = self._gathered(source), self._gathered(target)
            extra = None if extra is None else self._gathered(extra)
            drawn, further = self._with_all(drawn), None if further is None else self._with_all(further)
            batch = batch._replace(target_rows=self._joined(batch.target_rows))
        return View(
            source, drawn.labels, target, clock, self.config.loss, drawn.rows, batch.target_rows, self.network.head,
            None if further is None else Labelled(extra, further.labels, further.rows),
        )  # fmt: skip

    def look(self) -> Whole:
        """Return both domains as the network sees them now, the same in all processes."""
        self.align()
        most = None if self.learner.pooled else 2
        source, target = (functools.partial(self.outputs, x, most) for x in (self.batches.xs, self.batches.xt))
        labels = self.batches.ys.to(self.fabric.device)
        return Whole(source, target, labels, self.network, self.config.loss)

    def align(self) -> None:
        """Give all processes the statistics of the first; each has taken those of BatchNorm from its own share."""
        if self.fabric.world_size > 1:
            for buffer in self.network.buffers():
                torch.distributed.broadcast(buffer, 0)

    def outputs(self, x: Rows, most: int | None = 2) -> Outputs:
        """Apply the network as it is now to all rows of a domain, every process to its share of them.

        `most` parts of what it says are kept; the third is wide.
        """
        world = self.fabric.world_size
        share = -(-len(x) // world)
        # Equal shares can be gathered: the last ones are filled up with the last row, and cut again.
        rows = np.minimum(np.arange(share) + share * self.fabric.global_rank, len(x) - 1)
        mine = x if world == 1 else x[rows] if isinstance(x, np.ndarray) else x.subset(rows)
        self.network.eval()
        with torch.no_grad():
            parts = [self.network(self._input(block))[:most] for block in blocks(mine, self._workers)]
        self.network.train()
        found = Outputs(*map(torch.cat, zip(*parts, strict=True)))
        if world == 1:
            return found
        gathered: Any = [self.fabric.all_gather(part) for part in found if part is not None]
        return Outputs(*(part.flatten(0, 1)[: len(x)] for part in gathered))

    def _input(self, block: Tensor) -> Tensor:
        moved = block.to(self.fabric.device)
        return moved if moved.dtype == torch.uint8 else moved.float()

    def _gathered(self, outputs: Outputs) -> Outputs:
        # Every process computes the loss of the joined batch. The gather's backward sums the processes' gradients,
        # the wrapper then takes their mean: what is left is the gradient of one process on the joined batch.
        return Outputs(*(self._joined(part, sync_grads=True) for part in outputs if part is not None))

    def _with_all(self, drawn: Drawn) -> Drawn:
        return drawn._replace(labels=self._joined(drawn.labels), rows=self._joined(drawn.rows))

    def _joined(self, part: Tensor, sync_grads: bool = False) -> Tensor:
        everywhere: Any = self.fabric.all_gather(part, sync_grads=sync_grads)
        joined: Tensor = everywhere.transpose(0, 1).flatten(0, 1)  # the order of one process, for dropout's sake
        return joined

    def agreed(self, flag: bool) -> bool:
        """Whether any process raised the flag: a signal may reach one of them only, but all must stop at one step."""
        if self.fabric.world_size == 1:
            return flag
        flags = self.fabric.all_gather(torch.tensor(float(flag), device=self.fabric.device))
        return bool(torch.as_tensor(flags).max() > 0)

    def snapshot(self, step: int, task: Task, said: Step) -> Snapshot:
        """Show the network as it is now, apart from the one that is trained."""
        self.align()
        network = copy.deepcopy(self.network).cpu().eval()
        source, target = self.results(network, task)
        cost, mass = said.metrics.get("transport"), float(said.metrics.get("alpha", 0.0))
        transport = float(cost) / mass if cost is not None and mass > 0 else None
        return Snapshot(step, network, source, target, transport)

    def results(self, network: Network, task: Task) -> tuple[Outputs, Outputs]:
        """Return what a network, the present one on the CPU, says of both domains.

        Features pass in the precision that they came in; what must be loaded passes where the training runs.
        """
        if task.xs.ndim == 2:
            return apply_network(network, task.xs), apply_network(network, task.xt)
        found = (self.outputs(x) for x in (task.xs, task.xt))
        source, target = (Outputs(*(part.cpu().double() for part in outputs[:2])) for outputs in found)
        return source, target

    def checkpoint(self, step: int, keeper: ChosenIterate) -> Checkpoint:
        tensors, facts = pack_optimizer(self.optimizer)
        named = {f"network.{name}": tensor for name, tensor in self.network.state_dict().items()}
        named |= {f"optimizer.{name}": tensor for name, tensor in tensors.items()}
        named |= {f"learner.{name}": tensor for name, tensor in self.learner.state_dict().items()}
        further = {}
        for key, optimizer in self.learner.optimizers().items():
            tensors, further[key] = pack_optimizer(optimizer)
            named |= {f"further.{key}.{name}": tensor for name, tensor in tensors.items()}
        named |= {f"random.{name}": tensor for name, tensor in random_state().items()}
        named |= {f"health.{name}": tensor for name, tensor in self.health.state().items()}
        others = {"optimizer": facts, "further": further, "sampler": {"seed": self.config.seed, "step": step}}
        others |= keeper.facts()
        return Checkpoint(step, named | keeper.tensors(), others)

    def restore(self, checkpoint: Checkpoint, keeper: ChosenIterate) -> int:
        def part(prefix: str) -> dict[str, Tensor]:
            found = checkpoint.tensors.items()
            return {name[len(prefix) :]: tensor for name, tensor in found if name.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        unpack_optimizer(self.optimizer, part("optimizer."), checkpoint.facts["optimizer"])
        self.learner.load_state_dict(part("learner."))
        for key, optimizer in self.learner.optimizers().items():
            unpack_optimizer(optimizer, part(f"further.{key}."), checkpoint.facts["further"][key])
        set_random_state(part("random."))
        self.health.load(part("health."))
        keeper.load(checkpoint.tensors, checkpoint.facts)
        return checkpoint.step


def _diverged(step: int, got: str) -> DivergedError:
    remedy = "Lower the learning rate (minibatch.optimizer.lr); for frozen features take the preset full or frozen."
    return DivergedError(f"training, step {step}", got=got, allowed="finite numbers", remedy=remedy)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed torch for dropout and the like, and leave the caller's generators as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def train_minibatch(
    task: Task,
    config: RunConfig,
    fabric: Fabric,
    *,
    run: RunDir | None,
    start: Checkpoint | None,
    report: ProgressCallback,
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
    report : ProgressCallback
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
    with _seeded(config.seed), quiet_gathers(), asked_to_stop() as stop:
        trainer = _Trainer(task, config, fabric)
        keeper = ChosenIterate(chooser, trainer.learner)
        begin = trainer.restore(start, keeper) if start is not None else 0
        trainer.model.train()
        with closing(trainer.stream(begin)) as batches:  # its processes end with it
            for step, batch in enumerate(batches, begin):
                said, target = trainer.step(step, batch)
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
        keeper.restore(trainer.network)
        trainer.align()
        network = copy.deepcopy(trainer.network).cpu().eval()
        source, target = trainer.results(network, task)
    step = settings.steps if keeper.step is None else keeper.step
    whole = Whole(source, target, torch.as_tensor(task.ys), network, config.loss)
    return Trained(network, settings.network, history, source, target, step, trainer.learner.cpu().finish(whole))


def _line(step: int, said: Step, signs: dict[str, float]) -> dict[str, Any]:
    numbers = {"loss": said.loss.detach(), **said.metrics, **signs}
    return {"step": step, **{name: float(np.float32(float(value))) for name, value in numbers.items()}}
