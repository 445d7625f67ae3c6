"""The full engine: rounds over whole data sets, with checkpoints, health checks and resume."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn

from warmpot._memory import GIB
from warmpot._progress import LINE_EVERY_SECONDS, ProgressCallback, format_duration
from warmpot._threads import one_thread
from warmpot.data import Task
from warmpot.methods.rounds import DatasetPlan
from warmpot.nets import Outputs
from warmpot.train.config import RunConfig
from warmpot.train.hardware import asked_to_stop
from warmpot.train.health import Health
from warmpot.train.predictor import apply_network
from warmpot.train.run_folder import Checkpoint, RunFolder
from warmpot.train.snapshots import Chooser, ChosenIterate, Snapshot, Trained
from warmpot.transport import Solution
from warmpot.weights import relative_entropy
from warmpot.weights.axes import without_order

__all__ = ["train_in_rounds"]

logger = logging.getLogger(__name__)

UNADAPTED, UNKNOWN, FIRST = "unadapted", "unknown", "first."
"""Names, in checkpoints, of the target's predictions by the fit on the source alone, and of their entropies; prefix of
the names of its tensors."""
LONG = LINE_EVERY_SECONDS
"""Seconds from which the expected time is logged at the start: with less, the first line of progress is not far."""
LARGE = 100.0
"""Seconds on one core, as `DataSize` expects them, from which several threads are faster. On two free cores, 4,400 x
1,800 samples took 8.8 s with two threads and 4.4 s with one, 10,000 x 4,000 (67 s expected) 14.5 and 12.6 s, 20,000 x
8,000 (172 s) 43 and 53 s."""


class _Order:
    """An order of the samples that depends on what they contain only, in which they are trained on.

    Sums in another order are rounded otherwise, and plans and L-BFGS can turn that into other answers.
    """

    def __init__(self, task: Task) -> None:
        xs, xt = task.arrays()
        self.source, self.target = (torch.from_numpy(rows) for rows in (without_order(xs, task.ys), without_order(xt)))

    def sorted(self, task: Task) -> Task:
        """Return the task in this order."""
        xs, xt = task.arrays()
        rows, columns = self.source.numpy(), self.target.numpy()  # a tensor of one row would index as a number
        return replace(task, xs=xs[rows], ys=np.asarray(task.ys)[rows], xt=xt[columns])

    def sorted_outputs(self, source: Outputs, target: Outputs) -> tuple[Outputs, Outputs]:
        """Return outputs for samples in the data's order in this order."""
        sides = ((source, self.source), (target, self.target))
        first, second = (Outputs(side.features[order], side.logits[order]) for side, order in sides)
        return first, second

    def outputs(self, source: Outputs, target: Outputs) -> tuple[Outputs, Outputs]:
        """Undo `sorted_outputs`."""
        sides = ((source, self.source), (target, self.target))
        first, second = (Outputs(_placed(side.features, order), _placed(side.logits, order)) for side, order in sides)
        return first, second

    def solution(self, plan: DatasetPlan | None) -> Solution[csr_array] | None:
        """Return a solution in this order in the data's."""
        if plan is None:
            return None
        old, (rows, columns) = plan.solution, (order.argsort().numpy() for order in (self.source, self.target))
        u, v = old.potentials
        parts = {"plan": old.plan[rows][:, columns], "p": old.p[rows], "q": old.q[columns]}
        return replace(old, **parts, potentials=type(old.potentials)(u[rows], v[columns]))


def _placed(x: Tensor, order: Tensor) -> Tensor:
    """Put rows that were taken in an order back where they were."""
    return x[order.argsort()]


class _RoundTrainer:
    """One run of the full engine."""

    def __init__(self, task: Task, config: RunConfig, run: RunFolder | None, chooser: Chooser | None) -> None:
        self.task, self.run, self.chooser, self.order = task, run, chooser, _Order(task)
        self.rounds = config.built_method.rounds(self.order.sorted(task), config.full, config.label_loss, config.seed)
        self.health = Health(self.rounds.expected_share)
        companion = nn.Module()  # the form in which `ChosenIterate` keeps the training weights of the current iterate
        companion.register_buffer("training_weights", self.rounds.training_weights.double())
        self.weights, self.chosen = companion.get_buffer("training_weights"), ChosenIterate(chooser, companion)
        self.history: list[dict[str, Any]] = run.history() if run else []
        self.first: dict[str, Tensor] = {}  # what the fit on the source alone says of the target

    def begin(self, start: Checkpoint | None) -> int:
        """Start, or continue from a checkpoint; return the number of rounds done."""
        if self.rounds.presence is not None:
            self.health.expected_classes = self.rounds.presence.expected_number
        if start is not None and self.run is not None:
            with self.run.restoring(start):
                self.rounds.load(start.tensors)
                state = self.health.state()
                self.health.load({name: tensor for name, tensor in start.tensors.items() if name in state})
                self.chosen.load(start.tensors, start.facts)
                # absent from checkpoints of older versions
                names = (UNADAPTED, UNKNOWN, *(name for name in start.tensors if name.startswith(FIRST)))
                self.first = {name: start.tensors[name] for name in names if name in start.tensors}
                self.rounds.outputs()  # raises for tensors that are not of this run
            return start.step
        self.rounds.start()
        logits = self._outputs()[1].logits
        if self.task.for_regression:
            self.first = {UNADAPTED: logits[:, 0].double()}
        else:
            unknown = torch.from_numpy(relative_entropy(logits.numpy()))
            self.first = {UNADAPTED: logits.argmax(dim=1), UNKNOWN: unknown}
            network = self.rounds.network()
            weights = nn.Sequential(network.bottleneck, network.head).state_dict()
            self.first |= {f"{FIRST}{name}": tensor.clone() for name, tensor in weights.items()}
        self.health.see(logits)
        self.health.check(0.0, torch.ones(1))  # what the source alone predicts is what later rounds are compared with
        if scores := self._offer(0, None):
            self._log({"step": 0, **scores})
        return 0

    def _offer(self, number: int, transport: float | None) -> dict[str, Any]:
        """Offer the current iterate to the chooser; return what to log."""
        if self.chooser is None:
            return {}
        self.weights.copy_(_placed(self.rounds.training_weights, self.order.source))
        return self.chosen.offer(Snapshot(number, self.rounds.network(), *self._outputs(), transport))

    def _outputs(self) -> tuple[Outputs, Outputs]:
        """Return the outputs of the current classifier in the data's order."""
        return self.order.outputs(*self.rounds.outputs())

    def _log(self, line: dict[str, Any]) -> None:
        self.history.append(line)
        if self.run is not None:
            self.run.log(line)

    def round(self, number: int) -> bool:
        """Do one round, log it and save it; False when there is nothing (more) to do."""
        result = self.rounds.round(number)
        if result is None:
            return False
        if not self.task.for_regression and number > self.rounds.trials:
            self.health.see(self.rounds.outputs()[1].logits)
        p, metrics = result.plan_weights, result.metrics
        weights = self.rounds.training_weights if p is None else torch.from_numpy(p)
        signs = self.health.check(number / self.rounds.n_rounds, weights)
        transport = None if p is None else metrics["transport"] / metrics["alpha"]
        self._log({"step": number, **metrics, **signs} | self._offer(number, transport))
        if self.run is not None:
            tensors = {**self.rounds.state(), **self.health.state(), **self.chosen.tensors(), **self.first}
            self.run.save(Checkpoint(number, tensors, self.chosen.facts()))
        return True

    def finish(self, done: int) -> Trained:
        """Return the last iterate, or the one that the chooser preferred."""
        rounds, network, step = self.rounds, self.rounds.network(), self.chosen.step
        self.weights.copy_(_placed(rounds.training_weights, self.order.source))
        if step is None or step == done:
            (source, target), step = self._outputs(), done
        else:
            self.chosen.restore(network)
            source, target = apply_network(network.for_source(), self.task.xs), apply_network(network, self.task.xt)
        if weights := {name.removeprefix(FIRST): part for name, part in self.first.items() if name.startswith(FIRST)}:
            network.add_unadapted().load_state_dict(weights)
        # round 0 was trained without a plan
        plan = rounds.final_plan(*self.order.sorted_outputs(source, target)) if step > 0 else None
        solution = self.order.solution(plan)
        result = network, rounds.settings, self.history, source, target, step, solution, self.weights
        unadapted = self.first.get(UNADAPTED)
        second = rounds.second_labels(None if unadapted is None else unadapted[self.order.target])
        labels = target.logits[self.order.target].argmax(dim=1)
        agreement = None if second is None else float((labels == second).double().mean())
        if agreement is not None:  # squared: the calibration takes the root of an agreement
            agreement *= rounds.consensus**2
        unknown = self.first.get(UNKNOWN)
        return Trained(*result, presence=rounds.presence, unadapted=unadapted, unknown=unknown, agreement=agreement)


def train_in_rounds(
    task: Task, config: RunConfig, *, run: RunFolder | None, start: Checkpoint | None, report: ProgressCallback,
    chooser: Chooser | None = None,
) -> Trained:  # fmt: skip
    """Train on frozen features, round by round over whole data sets; arguments as in `train_in_batches`."""
    size = config.built_method.data_size(task, config.full)
    if size is not None:
        size.check_memory()
        if size.seconds >= LONG:
            text = "%s: about %s on one free core, %.1f GiB of memory at most"
            logger.info(text, size, format_duration(size.seconds), size.memory / GIB)
    expected = 0.0 if size is None else size.seconds  # until a round is done
    report(0.0, "round 0", expected)
    with one_thread() if size is not None and expected < LARGE else nullcontext():
        trainer = _RoundTrainer(task, config, run, chooser)
        done, total = trainer.begin(start), trainer.rounds.n_rounds
        report(done / total, f"round {done} of {total}", expected if done == 0 else 0.0)
        with asked_to_stop() as stop:
            for number in range(done + 1, total + 1):
                if not trainer.round(number):
                    break
                done = number
                report(number / total, f"round {number} of {total}")
                if stop():
                    if run is not None:
                        logger.warning("stopped after round %d; saved", number)
                    raise KeyboardInterrupt(stop())
        return trainer.finish(done)
