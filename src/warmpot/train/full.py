"""The full engine: block-coordinate minimisation of WARMPOT's objective over whole data sets.

Round by round: the exact plan over all pairs with the joint cost (Theorem 2), then the classifier refitted to the
source weighted by the plan's row sums and to the target with the plan's soft labels.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmpot._progress import Report
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.nets import Network, NetworkSettings, build_network
from warmpot.train.config import RunConfig
from warmpot.train.head import fit_head
from warmpot.train.health import Health
from warmpot.train.interrupt import asked_to_stop
from warmpot.train.rundir import RunDir
from warmpot.train.state import Checkpoint

__all__ = ["train_full"]

logger = logging.getLogger(__name__)


def train_full(
    task: Task, config: RunConfig, *, run: RunDir | None, start: Checkpoint | None, report: Report
) -> tuple[Network, NetworkSettings, list[dict[str, Any]]]:
    """Train a head on frozen features by alternating plans and refits; arguments as in `train_minibatch`."""
    settings, method, health = config.full, config.make_method(), Health()
    history = run.history() if run else []
    shape = NetworkSettings(scale="l2", bottleneck="none")
    network = build_network(shape, task.width, task.n_classes or 1, seed=config.seed).double()
    xs, xt = (network.scale(torch.as_tensor(x).double()) for x in (task.xs, task.xt))
    labels = torch.as_tensor(task.ys)
    onehot = _soft(labels, task.n_classes)
    costs = PairCosts(xs.numpy(), xt.numpy())
    head = torch.zeros(task.width + 1, task.n_classes or 1, dtype=torch.float64)
    p, q, soft = (
        torch.full((task.n_source,), 1.0 / task.n_source, dtype=torch.float64),
        torch.zeros(task.n_target),
        onehot[:0],
    )
    begin = 0
    if start is not None:
        begin, head = start.step, start.tensors["head"]
    both = torch.cat([xs, xt])
    if begin == 0:
        head = fit_head(xs, onehot, p, penalty=settings.penalty, loss=config.loss, start=head)
    with asked_to_stop() as stop:
        for done in range(begin + 1, settings.rounds + 1):
            logits = torch.addmm(head[-1], xt, head[:-1])
            solution = method.plan(costs, labels, logits, done / settings.rounds, config.loss)
            if solution is None:
                break
            p, q = torch.from_numpy(np.asarray(solution.p)), torch.from_numpy(np.asarray(solution.q))
            soft = torch.from_numpy(solution.plan.T @ onehot.numpy()) / q.clamp_min(1e-300)[:, None]
            head = fit_head(
                both, torch.cat([onehot, soft]), torch.cat([p, q]),
                penalty=settings.penalty, loss=config.loss, start=head,
            )  # fmt: skip
            probabilities = None if task.for_regression else torch.softmax(logits, dim=1)
            line = {"step": done, "transport": float(solution.value), "gap": solution.gap}
            line |= health.check(done, probabilities, p)
            history.append(line)
            if run is not None:
                run.log(line)
                run.save(Checkpoint(done, {"head": head}, {}))
            report(done / settings.rounds, f"round {done}")
            if stop():
                raise KeyboardInterrupt
    with torch.no_grad():
        network.head.weight.copy_(head[:-1].T)
        network.head.bias.copy_(head[-1])
    return network.eval(), shape, history


def _soft(labels: Tensor, n_classes: int) -> Tensor:
    if n_classes:
        return torch.nn.functional.one_hot(labels, n_classes).double()
    return labels.double()[:, None]
