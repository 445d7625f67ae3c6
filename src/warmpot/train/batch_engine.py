"""The mini-batch engine: one loop on Lightning Fabric, for every method."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Collection, Generator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from warmpot._progress import ProgressCallback
from warmpot.data import Task
from warmpot.data.table import Rows
from warmpot.errors import DivergedError, InputError
from warmpot.methods import BatchContext, DatasetPass, Learner, NamedBatch, Setup, StepResult, TrainProgress
from warmpot.nets import Network, Outputs, Pair, build_network
from warmpot.nets.backbone import freeze_statistics
from warmpot.train.batches import Batches, DomainBatch, StepBatches, blocks
from warmpot.train.config import RunConfig
from warmpot.train.hardware import asked_to_stop, quiet_gathers
from warmpot.train.health import Health
from warmpot.train.images import make_backbone
from warmpot.train.predictor import apply_network, check_pass_memory
from warmpot.train.run_folder import Checkpoint, RunFolder
from warmpot.train.snapshots import Chooser, ChosenIterate, Snapshot, Trained

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["train_in_batches"]

logger = logging.getLogger(__name__)


class _Trainer:
    """Model, optimiser and batches of one run, and their state."""

    def __init__(self, task: Task, config: RunConfig, fabric: Fabric) -> None:
        self.config, self.settings, self.fabric = config, config.minibatch, fabric
        smallest = min(self.settings.source_batch, self.settings.target_batch) // fabric.world_size
        if self.settings.network.has_batch_norm and smallest < 2:
            got = f"{smallest} samples per process under BatchNorm"
            remedy = "Choose larger batches, or the bottleneck `linear`."
            raise InputError("minibatch", got=got, allowed="at least 2", remedy=remedy)
        n_outputs = task.n_classes or 1
        network = self._build(task, n_outputs)
        method = config.built_method
        if network.needs_scale:
            network.fit_scale(*map(torch.as_tensor, task.arrays()[: 1 + method.uses_target]))
        if config.built_weighting is None:  # otherwise a part of the source may be enough at the end
            remedy = "Train on a sample of the rows, or with narrower features."
            check_pass_memory("minibatch, outputs at the end", network, task.n_source + task.n_target, 0, remedy)
        widths = network.head.in_features, network.n_inputs
        setup = Setup(task.n_source, task.n_target, n_outputs, *widths, config.seed, network)
        steps, warmup = self.settings.steps, self.settings.warmup_steps
        self.learner = Learner(method, config.built_weighting, setup, steps=steps, warmup=warmup).to(fabric.device)
        if self.settings.hardware.plan == "rank" and fabric.world_size > 1 and self.learner.has_state:
            got = f'"rank" with {self.config.method!r} and the weights {self.config.weights!r}'
            remedy = "They remember samples or train networks besides the main one, the same in all processes."
            raise InputError("minibatch.hardware.plan", got=got, allowed='"gathered"', remedy=remedy)
        optimizer = self.settings.optimizer.build(network, self.learner.trained(), self.learner.param_groups())
        self.model, self.optimizer = fabric.setup(Pair(network, joint=self.settings.network.joint), optimizer)
        self.network: Network = self.model.module.network
        extra = [self.learner.extra_batches(step, self.settings.source_batch) for step in range(steps)]
        rank, world = fabric.global_rank, fabric.world_size
        # A target that is passed only to be ignored would still move the statistics of BatchNorm.
        self.batches = Batches(
            task, self.settings, config.seed, rank=rank, world=world, extra=extra, target=method.uses_target
        )
        self.health = Health(self.learner.expected_share, self.learner.adapts_from, self.learner.settles_at)

    def _build(self, task: Task, n_outputs: int) -> Network:
        """Build the network; with a backbone when the samples are not features yet."""
        images, shape, seed = self.config.images, self.settings.network, self.config.seed
        if task.xs.ndim == 2:
            return build_network(shape, task.width, n_outputs, seed=seed)
        if images is None:
            remedy = "Set `images`, or extract features first."
            got = "none, for inputs that are not features"
            raise InputError("images", got=got, allowed="settings of a backbone", remedy=remedy)
        backbone = make_backbone(images)
        if images.backbone.compile:
            backbone.tail.compile()
        if images.backbone.batch_norm == "sync" and self.fabric.world_size > 1 and self.fabric.device.type == "cpu":
            got, remedy = '"sync" over processes without GPUs', 'Set it to "train" or "frozen".'
            raise InputError("images.backbone.batch_norm", got=got, allowed="GPUs", remedy=remedy)
        return build_network(shape, backbone.width, n_outputs, seed=seed, backbone=backbone)

    def steps(self, begin: int) -> Generator[tuple[int, StepBatches], None, None]:
        """Yield the steps from `begin` on with this process's share of their batches, after what is due before each."""
        stream: Generator[StepBatches, None, None] | None = None
        try:
            for step in range(begin, self.settings.steps):
                self.learner.refresh(step, self.request_pass)
                if self.batches.set_pools(self.learner.pools()) and stream is not None:
                    stream.close()  # batches that were made ahead are not drawn from the new pools
                    stream = None
                stream = stream or self.batches.stream(range(step, self.settings.steps), self._workers)
                yield step, next(stream)
        finally:
            if stream is not None:
                stream.close()  # its processes end with it

    @property
    def _workers(self) -> int:
        """Processes that decode images."""
        return self.config.images.processes if self.config.images is not None and self.batches.decodes else 0

    def step(self, step: int, batches: StepBatches) -> tuple[StepResult, Outputs]:
        """Train on the batches of a step; return the method's result, and the outputs of the target batch.

        They have no rows for a method that does not use the target.
        """
        factor = self.settings.optimizer.decay(*self.learner.decay_span(step))
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.optimizer.lr * group["lr_scale"] * factor
        if self.learner.restarts_momentum(step):
            self.optimizer.optimizer.state.clear()  # momentum
        frozen = [getattr(self.network, part) for part in self.learner.phase(step).frozen]
        for part in frozen:
            part.eval()
        if self.learner.phase(step).keeps_statistics:
            freeze_statistics(self.network)
        context = self._context(step, {name: batch.to(self.fabric.device) for name, batch in batches.items()})
        outputs = (*context.source[:2], *context.target[:2])  # what went into the bottleneck is finite if these are
        if not all(bool(torch.isfinite(part).all()) for part in outputs):
            raise _diverged(step, "outputs that are not finite")
        try:
            result = self.learner.step(step, context)
        except InputError as error:
            if step == 0:  # nothing can have grown yet: a setting is to blame, and the message names it
                raise
            raise _diverged(step, f"outputs beyond use ({error})") from error
        loss = result.loss
        if frozen and self.fabric.world_size > 1:
            # A loss may leave out a frozen part (ADDA's head); the wrapper expects a gradient of every parameter.
            loss = loss + 0.0 * (context.source.logits.sum() + context.target.logits.sum())
        self.optimizer.zero_grad()
        self.fabric.backward(loss)
        for part in frozen:
            part.zero_grad()  # an optimiser leaves alone what has no gradient, its decay and momentum too
            part.train()
        self.optimizer.step()
        return result, context.target

    def _context(self, step: int, batches: StepBatches) -> BatchContext:
        """Apply the network to the batches of a step; over several processes, to the joined batches."""
        inputs = {name: batch.x for name, batch in batches.items()}
        used = {"source": self.learner.phase(step).uses_source, "target": self.learner.uses_target(step)}
        passed = {name: x for name, x in inputs.items() if used.get(name, True)}
        outputs: dict[str, Outputs] = self.model(passed)
        for name, other in (("source", "target"), ("target", "source")):
            if name not in outputs:
                outputs[name] = Outputs(*(part[:0] for part in outputs[other] if part is not None))
        if self._joins:
            outputs = {name: self._gathered(part) for name, part in outputs.items()}
            batches = {name: self._with_all(batch) for name, batch in batches.items()}
        source, target = batches["source"], batches.get("target")
        rows, pseudo_labels = (None, None) if target is None else (target.rows, target.labels)
        assert source.labels is not None
        extra = {
            name: NamedBatch(outputs[name], batch.rows, batch.labels, batch.x, domain=self.batches.domain(name))
            for name, batch in batches.items()
            if name not in ("source", "target")
        }
        return BatchContext(
            outputs["source"], source.labels, outputs["target"], TrainProgress(step, self.settings.steps),
            self.config.label_loss, source.rows, rows, extra=extra, inputs=inputs["source"],
            target_inputs=inputs.get("target"), network=self.network, forward=self._forward,
            pseudo_labels=pseudo_labels, gather=self._gather, own_rows=self._own_rows,
        )  # fmt: skip

    @property
    def _joins(self) -> bool:
        """Whether every process sees the batches of all."""
        return self.fabric.world_size > 1 and self.settings.hardware.plan == "gathered"

    def _forward(self, x: Tensor, network: nn.Module | None = None) -> Outputs:
        """Apply the network, or another one, to further inputs of a step."""
        outputs: Outputs = (self.network if network is None else network)(x)
        return self._gathered(outputs) if self._joins else outputs

    def _gather(self, x: Tensor) -> Tensor:
        return self._joined(x) if self._joins else x

    def _own_rows(self, x: Tensor) -> Tensor:
        return x[self.fabric.global_rank :: self.fabric.world_size] if self._joins else x

    def request_pass(self) -> DatasetPass:
        """Return both domains as the network sees them now, the same in all processes."""
        self.align()

        def source(rows: Tensor | None = None) -> Outputs:
            return self.outputs(_rows(self.batches.xs, rows), self.learner.pass_parts("source"))

        target = functools.partial(self.outputs, self.batches.xt, self.learner.pass_parts("target"))
        labels = self.batches.ys.to(self.fabric.device)
        return DatasetPass(source, target, labels, self.network, self.config.label_loss)

    def align(self) -> None:
        """Give all processes the statistics of the first; each has taken those of BatchNorm from its own share."""
        if self.fabric.world_size > 1:
            for buffer in self.network.buffers():
                torch.distributed.broadcast(buffer, 0)

    def outputs(
        self, x: Rows, parts: Collection[str] = ("features", "logits"), network: Network | None = None
    ) -> Outputs:
        """Apply the network as it is now, or another one, to all rows of a domain; every process to its share of them.

        Only the named parts are kept; the others are None.
        """
        applied = self.network if network is None else network
        world = self.fabric.world_size
        share = -(-len(x) // world)
        # Equal shares can be gathered: the last ones are filled up with the last row, and cut again.
        rows = np.minimum(np.arange(share) + share * self.fabric.global_rank, len(x) - 1)
        mine = x if world == 1 else _rows(x, torch.from_numpy(rows))
        tensors: dict[str, Tensor] = {}
        applied.eval()
        with torch.no_grad():
            start = 0
            for block in blocks(mine, self._workers):
                for part, values in self._parts(applied, block, parts).items():
                    # Filled in place: joining the blocks at the end would need the memory twice.
                    whole = tensors.setdefault(part, values.new_empty(len(mine), *values.shape[1:]))
                    whole[start : start + len(block)] = values
                start += len(block)
        if network is None:
            applied.train()
        if world > 1:
            gathered: dict[str, Any] = {part: self.fabric.all_gather(tensor) for part, tensor in tensors.items()}
            tensors = {part: tensor.flatten(0, 1)[: len(x)] for part, tensor in gathered.items()}
        return Outputs.of(**tensors)

    def _parts(self, network: Network, block: Tensor, parts: Collection[str]) -> dict[str, Tensor]:
        x = block.to(self.fabric.device)
        outputs = network(x if x.dtype == torch.uint8 else x.float())
        return {part: getattr(outputs, part) for part in parts}

    def _gathered(self, outputs: Outputs) -> Outputs:
        # Every process computes the loss of the joined batch. The gather's backward sums the processes' gradients,
        # the wrapper then takes their mean: what is left is the gradient of one process on the joined batch.
        return Outputs(*(self._joined(part, sync_grads=True) for part in outputs if part is not None))

    def _with_all(self, batch: DomainBatch) -> DomainBatch:
        labels = None if batch.labels is None else self._joined(batch.labels)
        return batch._replace(labels=labels, rows=self._joined(batch.rows))

    def _joined(self, part: Tensor, sync_grads: bool = False) -> Tensor:
        everywhere: Any = self.fabric.all_gather(part, sync_grads=sync_grads)
        joined: Tensor = everywhere.transpose(0, 1).flatten(0, 1)  # the order of one process, for dropout's sake
        return joined

    def agreed(self, number: int) -> int:
        """Return the largest number: a signal may reach one process only, but all must stop at one step."""
        if self.fabric.world_size == 1:
            return number
        numbers = self.fabric.all_gather(torch.tensor(float(number), device=self.fabric.device))
        return int(torch.as_tensor(numbers).max())

    def snapshot(self, step: int, task: Task, metrics: Mapping[str, Any]) -> Snapshot:
        """Show the network as it is now, apart from the one that is trained; `metrics` are those of the last step."""
        self.align()
        network, rows = self.predicting_network(), self.learner.source_rows()
        source, target = self.results(network, task, rows)
        cost, mass = metrics.get("transport"), float(metrics.get("alpha", 0.0))
        transport = float(cost) / mass if cost is not None and mass > 0 else None
        return Snapshot(step, network, source, target, transport, None if rows is None else rows.cpu())

    def predicting_network(self) -> Network:
        """Return the network that predicts if the training ends now, on the CPU."""
        return self.learner.final_network(copy.deepcopy(self.network)).cpu().eval()

    def results(self, network: Network, task: Task, rows: Tensor | None = None) -> tuple[Outputs, Outputs]:
        """Return the outputs of a network on the CPU for both domains.

        Features pass in the precision that they came in; what must be loaded passes where the training runs. `rows` are
        the source samples to pass; default: all.
        """
        xs = _rows(task.xs, rows)
        if task.xs.ndim == 2:
            return apply_network(network.for_source(), xs), apply_network(network, task.xt)
        parts = ("features", "logits")
        domains = ((xs, network.for_source()), (task.xt, network))
        passes = [self.outputs(x, parts, applied.to(self.fabric.device)) for x, applied in domains]
        network.cpu()
        source, target = (Outputs(*(part.cpu().double() for part in outputs[:2])) for outputs in passes)
        return source, target

    def checkpoint(self, step: int, chosen: ChosenIterate) -> Checkpoint:
        tensors, facts = _pack_optimizer(self.optimizer)
        parts = {"network": self.network.state_dict(), "optimizer": tensors, "learner": self.learner.state_dict()}
        further = {}
        for key, optimizer in self.learner.optimizers().items():
            parts[f"further.{key}"], further[key] = _pack_optimizer(optimizer)
        parts |= {"random": _random_state(), "health": self.health.state()}
        named = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        others = {"optimizer": facts, "further": further, "sampler": {"seed": self.config.seed, "step": step}}
        return Checkpoint(step, named | chosen.tensors(), others | chosen.facts())

    def restore(self, checkpoint: Checkpoint, chosen: ChosenIterate) -> int:
        def part(prefix: str) -> dict[str, Tensor]:
            tensors = checkpoint.tensors.items()
            return {name[len(prefix) :]: tensor for name, tensor in tensors if name.startswith(prefix)}

        self.network.load_state_dict(part("network."))
        _unpack_optimizer(self.optimizer, part("optimizer."), checkpoint.facts["optimizer"])
        # checkpoints of version 0.1 have no weights of batches
        self.learner.load_state_dict({"batch_weights": self.learner.batch_weights} | part("learner."))
        for key, optimizer in self.learner.optimizers().items():
            _unpack_optimizer(optimizer, part(f"further.{key}."), checkpoint.facts["further"][key])
        _set_random_state(part("random."))
        self.health.load(part("health."))
        chosen.load(checkpoint.tensors, checkpoint.facts)
        return checkpoint.step


def _rows(x: Rows, rows: Tensor | None) -> Rows:
    """Return some rows of a domain, or all."""
    if rows is None:
        return x
    picked = rows.cpu().numpy()
    return x[picked] if isinstance(x, np.ndarray) else x.subset(picked)


def _diverged(step: int, got: str) -> DivergedError:
    remedy = "Lower the learning rate (minibatch.optimizer.lr); for frozen features take the preset full or frozen."
    return DivergedError(f"training, step {step}", got=got, allowed="finite numbers", remedy=remedy)


def train_in_batches(
    task: Task, config: RunConfig, fabric: Fabric, *, run: RunFolder | None, start: Checkpoint | None,
    report: ProgressCallback, chooser: Chooser | None = None,
) -> Trained:  # fmt: skip
    """Train a network by mini-batches, from the checkpoint `start` if there is one.

    The fabric is launched (`make_fabric`). Metrics and checkpoints go to `run`. The chooser chooses among the iterates
    of every ``checkpoint_every`` steps; default: the last. The network returned is on the CPU, in evaluation mode.
    """
    settings, history = config.minibatch, (run.history() if run else [])

    def log(line: dict[str, Any]) -> None:
        history.append(line)
        if run is not None and fabric.is_global_zero:
            run.log(line)

    # For dropout and the like torch is seeded; the caller's generators are left as they were.
    with torch.random.fork_rng(), quiet_gathers(), asked_to_stop() as stop:
        torch.manual_seed(config.seed)
        trainer = _Trainer(task, config, fabric)
        chosen = ChosenIterate(chooser, trainer.learner)
        begin = 0
        if start is not None and run is not None:
            with run.restoring(start):
                begin = trainer.restore(start, chosen)
        trainer.model.train()
        with closing(trainer.steps(begin)) as steps:
            for step, batches in steps:
                if step == 0 and chooser is not None and config.built_method.starts_trained:
                    log({"step": 0, **chosen.offer(trainer.snapshot(0, task, {}), trainer.network)})
                result, target = trainer.step(step, batches)
                done = step + 1
                if len(target.logits):
                    trainer.health.see(target.logits, done / settings.steps)
                if done % settings.log_every == 0 or done == settings.steps:
                    weights = torch.ones(1) if result.weights is None else result.weights
                    line = _line(done, result, trainer.health.check(done / settings.steps, weights))
                    log(line)
                    report(done / settings.steps, f"step {done}, loss {line['loss']:.3f}")
                stopping = trainer.agreed(stop())
                due = done % settings.checkpoint_every == 0 or done == settings.steps
                if due and chooser is not None:
                    log({"step": done, **chosen.offer(trainer.snapshot(done, task, result.metrics), trainer.network)})
                if run is not None and (due or stopping):
                    if fabric.is_global_zero:
                        run.save(trainer.checkpoint(done, chosen))
                    fabric.barrier()
                if stopping:
                    if run is not None and fabric.is_global_zero:
                        logger.warning("stopped after step %d; saved. Continue with --resume %s", done, run.folder)
                    raise KeyboardInterrupt(stopping)
        chosen.restore(trainer.network)
        trainer.align()
        learner = trainer.learner
        network = trainer.predicting_network()
        rows = learner.source_rows()  # without a plan over all pairs, a large source need not pass as a whole
        source, target = trainer.results(network, task, rows)
    step = settings.steps if chosen.step is None else chosen.step
    labels = torch.as_tensor(task.ys)
    of_source = labels if rows is None else labels[rows.cpu()]
    plan = learner.final_plan(DatasetPass(source, target, of_source, network, config.label_loss))
    solution, weights = None if plan is None else plan.solution, learner.training_weights(labels)
    rows = None if rows is None else rows.cpu()
    return Trained(network, settings.network, history, source, target, step, solution, weights, source_rows=rows)


def _line(step: int, result: StepResult, signs: dict[str, float]) -> dict[str, Any]:
    numbers = {"loss": result.loss.detach(), **result.metrics, **signs}
    return {"step": step, **{name: float(np.float32(float(value))) for name, value in numbers.items()}}


def _random_state() -> dict[str, Tensor]:
    """Return the states of torch's generators, CPU and devices."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{k}": state for k, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _set_random_state(states: dict[str, Tensor]) -> None:
    """Undo `_random_state`; devices that are not here are left out."""
    torch.set_rng_state(states["cpu"])
    for name, state in states.items():
        if name.startswith("cuda") and int(name[4:]) < torch.cuda.device_count():
            torch.cuda.set_rng_state(state, int(name[4:]))


def _pack_optimizer(optimizer: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into tensors and what JSON can hold."""
    state = optimizer.state_dict()
    entries = {f"{index}.{name}": value for index, part in state["state"].items() for name, value in part.items()}
    tensors = {key: value for key, value in entries.items() if isinstance(value, Tensor)}
    numbers = {key: value for key, value in entries.items() if key not in tensors}
    return tensors, {"numbers": numbers, "groups": state["param_groups"]}


def _unpack_optimizer(optimizer: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Undo `_pack_optimizer`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **facts["numbers"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": facts["groups"]})
