"""The full engine: block-coordinate minimisation of WARMPOT's objective over whole data sets.

Round by round: the exact plan over all pairs with the joint cost (Theorem 2), then the classifier refitted to the
source weighted by the plan's row sums and to the target with the plan's soft labels; alpha grows over the rounds.
With ``objective="bound"`` further rounds minimise the bound of Theorem 2 from there. docs/engines.md tells what each
step adds.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from warmpot._progress import ProgressCallback
from warmpot._typing import FloatArray
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.errors import DivergedError, InputError
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.nets.network import NARROW, Projection
from warmpot.train.bound_objective import PlannedBound, descend, tightest_plan
from warmpot.train.config import RunConfig
from warmpot.train.head import fit_classifier, fit_ridge, mapped
from warmpot.train.health import Health
from warmpot.train.interrupt import asked_to_stop
from warmpot.train.keep import Chooser, ChosenIterate, Snapshot
from warmpot.train.predictor import apply_network
from warmpot.train.rundir import RunDir
from warmpot.train.state import Checkpoint
from warmpot.weights import class_means, estimate_beta, predicted_shares

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from warmpot.transport import Solution

__all__ = ["Trained", "train_full"]

logger = logging.getLogger(__name__)


class Trained(NamedTuple):
    """What an engine hands over.

    Attributes
    ----------
    network, settings
        The network and its shape.
    history : list of dict
        What was logged.
    source, target : Outputs
        Both domains' features and outputs.
    step : int
        Whose they are.
    weights : Solution, tensor or None
        Of the whole source: a plan over all pairs, numbers that sum to 1, or None when all are equal.
    """

    network: Network
    settings: NetworkSettings
    history: list[dict[str, Any]]
    source: Outputs
    target: Outputs
    step: int
    weights: Solution[csr_array] | Tensor | None


@dataclass
class _State:
    """The unknowns of the alternation, in the coordinates of the projection.

    Attributes
    ----------
    head, metric
        Of `fit_classifier`.
    source_centre, target_centre
        Means of the matched parts of both domains, taken off their features.
    """

    head: Tensor
    metric: Tensor
    source_centre: Tensor
    target_centre: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return dict(vars(self))


class _Alternation:
    """The data in the coordinates of the projection, and the two half-steps of a round."""

    def __init__(self, task: Task, config: RunConfig) -> None:
        self.task, self.config, self.settings = task, config, config.full
        self.method = config.make_method()
        if self.settings.objective == "bound" and (task.for_regression or not self.method.uses_target):
            got = "real labels" if task.for_regression else f"{config.method!r}, which does not see the target"
            allowed = "classes, and a method that adapts: the loss of the bound is a metric on class probabilities"
            remedy = 'Use "cross_entropy".'
            raise InputError('full.objective "bound"', got=got, allowed=allowed, remedy=remedy)
        self.labels = torch.as_tensor(task.ys)
        self.n_outputs = task.n_classes or 1
        if task.for_regression:
            self.targets = self.labels.float()[:, None]
        else:
            self.targets = torch.nn.functional.one_hot(self.labels, task.n_classes).float()
        # Narrow tables are measurements: their rows have no common length worth imposing.
        self.unit = task.width >= NARROW
        width = min(self.settings.width, task.width)
        self.shape = NetworkSettings(
            scale=self.settings.scale, bottleneck="projection", width=width, unit_features=self.unit
        )
        self.network = build_network(self.shape, task.width, self.n_outputs, seed=config.seed)
        xs, xt = map(torch.as_tensor, task.arrays())
        self.network.fit_scale(*(xs, xt)[: 1 + self.method.uses_target])
        xs, xt = self.network.scale(xs).float(), self.network.scale(xt).float()
        self.centre, self.axes = _principal_axes(torch.cat([xs, xt]) if self.method.uses_target else xs, width)
        self.xs, self.xt = (xs - self.centre) @ self.axes, (xt - self.centre) @ self.axes

    def begin(self) -> _State:
        """Fit the head on the source alone."""
        width = self.xs.shape[1]
        head, metric = torch.zeros(width + 1, self.n_outputs), torch.eye(width)
        state = _State(head, metric, torch.zeros(width), torch.zeros(width))  # a checkpoint shares no memory
        weights = torch.full((len(self.xs),), 1.0 / len(self.xs))
        self._fit(state, self.xs, self.targets, weights, 2 * self.settings.iterations, None)
        return state

    def _fit(
        self, state: _State, x: Tensor, targets: Tensor, weights: Tensor, iterations: int, metric_penalty: float | None
    ) -> None:
        settings = self.settings
        if self.task.for_regression:
            features = mapped(x, state.metric, self.unit).double()
            state.head = fit_ridge(features, targets.double(), weights.double(), penalty=settings.penalty).float()
        else:
            state.head, state.metric = fit_classifier(
                x, targets, weights, state.head, state.metric,
                penalty=settings.penalty, metric_penalty=metric_penalty, iterations=iterations, unit=self.unit,
            )  # fmt: skip
        if not (state.head.isfinite().all() and state.metric.isfinite().all()):
            remedy = 'Leave full.scale at "auto", or bring the features to a length of about 1.'
            raise DivergedError("refit", got="weights that overflow", allowed="finite numbers", remedy=remedy)

    def outputs(self, state: _State) -> tuple[Outputs, Outputs]:
        """Features and outputs of both domains."""
        pair = ((self.xs, state.source_centre), (self.xt, state.target_centre))
        source, target = (mapped(x - centre, state.metric, self.unit) for x, centre in pair)
        bias, weight = state.head[-1], state.head[:-1]
        return Outputs(source, torch.addmm(bias, source, weight)), Outputs(target, torch.addmm(bias, target, weight))

    def round(self, state: _State, number: int) -> dict[str, Any] | None:
        """Solve the plan and refit; return what to log, or None if the method has no plan."""
        settings = self.settings
        if number > settings.rounds:
            return self._bound_round(state, number - settings.rounds)
        progress = (number - 1) / max(settings.rounds - 1, 1)
        source, target = self.outputs(state)
        smooth = settings.smooth if number > settings.smooth_after and not self.task.for_regression else 0.0
        features = source.features.numpy(), target.features.numpy()
        costs = PairCosts(*features, neighbours=settings.neighbours, smooth=smooth)
        solution = self.method.plan(costs, self.labels, target.logits, progress, self.config.loss)
        if solution is None:
            return None
        p, q = np.asarray(solution.p), np.asarray(solution.q)
        carried = torch.from_numpy(np.asarray(solution.plan.T @ self.targets.numpy(), np.float32))
        weights = torch.from_numpy(np.concatenate([self._source_weights(p, target.logits), q])).float()
        targets = torch.cat([self.targets, carried / torch.from_numpy(q).float().clamp_min(1e-12)[:, None]])
        x = torch.cat([self.xs - state.source_centre, self.xt - state.target_centre])
        if self.unit:
            x = torch.nn.functional.normalize(x, dim=1)
        self._fit(state, x, targets, weights, settings.iterations, settings.metric_penalty)
        # A mean that moved may be a shift of the whole domain among classes; in regression it may be the labels' own.
        if settings.recentre and not self.task.for_regression and number < settings.rounds:
            state.source_centre = torch.from_numpy(p / p.sum()).float() @ self.xs
            state.target_centre = torch.from_numpy(q / q.sum()).float() @ self.xt
        return {"transport": float(solution.value), "gap": solution.gap, "alpha": float(p.sum()), "weights": p}

    def _bound_round(self, state: _State, number: int) -> dict[str, Any]:
        """Solve the tightest plan and descend its bound (`warmpot.train.bound_objective`).

        Feature distances count little at first: taken in full they drown the labels in the first plan, and the descent
        would rather flatten the head than draw classes together.
        """
        settings = self.settings
        weight = settings.feature_weight(number)
        source, target = self.outputs(state)
        plan, record = tightest_plan(
            source, self.labels, target, state.head[:-1], beta=settings.bound_beta, feature_weight=weight
        )
        xs, xt = self.xs - state.source_centre, self.xt - state.target_centre
        bound = PlannedBound(xs, self.labels, xt, plan, unit=self.unit)
        state.head, state.metric = descend(
            bound, state.head, state.metric,
            iterations=settings.iterations, feature_weight=weight, learn_metric=settings.metric_penalty is not None,
        )  # fmt: skip
        terms = bound.terms(state.head.double(), state.metric.double())
        return {
            "transport": float(terms[1:].sum()),
            "gap": record.gap,
            "alpha": 1.0,
            "bound": float(terms.sum()) + bound.left_out,
            "weights": np.asarray(plan.sum(axis=1)),
        }

    def _source_weights(self, p: FloatArray, logits: Tensor) -> FloatArray:
        """Half of each weight is its class's mean; the whole source joins in, the more the less partial it looks."""
        if self.task.for_regression:
            return p
        settings, labels, n_classes = self.settings, self.task.ys, self.task.n_classes
        mixed = settings.class_share * class_means(p, labels, n_classes) + (1 - settings.class_share) * p
        counts, beta = np.bincount(labels, minlength=n_classes), estimate_beta(logits, labels)
        # Its own classes keep those that the target's predictions lose; the predicted ones leave outlier classes out.
        classes = beta * counts / len(labels) + (1 - beta) * predicted_shares(logits)
        return mixed + settings.fill * beta * (classes / np.maximum(counts, 1))[labels]

    def snapshot(self, state: _State, number: int, transport: float | None) -> Snapshot:
        """Show a state as the network that it stands for."""
        return Snapshot(number, self.finish(state), *self.outputs(state), transport)

    def finish(self, state: _State) -> Network:
        """Put a state into the network."""
        projection = self.network.bottleneck[0]
        assert isinstance(projection, Projection)
        with torch.no_grad():
            projection.centre.copy_(self.centre + self.axes @ state.target_centre)
            projection.source_centre.copy_(self.centre + self.axes @ state.source_centre)
            projection.matrix.copy_(self.axes @ state.metric)
            self.network.head.weight.copy_(state.head[:-1].T)
            self.network.head.bias.copy_(state.head[-1])
        return self.network.eval()


def _principal_axes(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Mean and leading principal axes."""
    x = x.double()
    centre = x.mean(dim=0)
    x = x - centre
    n = x.shape[1]
    axes = eigh((x.T @ x).numpy(), subset_by_index=[n - width, n - 1])[1][:, ::-1]
    # An eigenvector's sign is the library's choice; fix it, so that results do not depend on it.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(width)] < 0, -1.0, 1.0)
    return centre.float(), torch.from_numpy(np.ascontiguousarray(axes)).float()


def train_full(
    task: Task,
    config: RunConfig,
    *,
    run: RunDir | None,
    start: Checkpoint | None,
    report: ProgressCallback,
    chooser: Chooser | None = None,
) -> Trained:
    """Train a head on frozen features by alternating plans and refits; arguments as in `train_minibatch`."""
    settings = config.full
    history = run.history() if run else []
    work = _Alternation(task, config)
    health, keeper = Health(work.method.expected_share), ChosenIterate(chooser)
    if start is not None:
        # Cloned: products of tensors that lie elsewhere in memory, as a file has them, may round otherwise.
        state = _State(**{name: start.tensors[name].clone() for name in _State.__dataclass_fields__})
        health.load({name: start.tensors[name] for name in health.state()})
        keeper.load(start.tensors, start.facts)
    else:
        state = work.begin()
        health.see(work.outputs(state)[1].logits)
        health.check(0.0, torch.ones(1))  # what the source alone says is what later rounds are compared with
        said = keeper.offer(work.snapshot(state, 0, None)) if chooser is not None else {}
        if said:
            history.append({"step": 0, **said})
            if run is not None:
                run.log(history[-1])
    done = start.step if start else 0
    with asked_to_stop() as stop:
        for number in range(done + 1, settings.all_rounds + 1):
            line = work.round(state, number)
            if line is None:
                break
            done = number
            if not task.for_regression:
                health.see(work.outputs(state)[1].logits)
            weights = torch.from_numpy(line.pop("weights"))
            line = {"step": number, **line, **health.check(number / settings.all_rounds, weights)}
            if chooser is not None:
                line |= keeper.offer(work.snapshot(state, number, line["transport"] / line["alpha"]))
            history.append(line)
            report(number / settings.all_rounds, f"round {number} of {settings.all_rounds}")
            if run is not None:
                run.log(line)
                tensors = {**state.tensors(), **health.state(), **keeper.tensors()}
                run.save(Checkpoint(number, tensors, keeper.facts()))
            if stop():
                if run is not None:
                    logger.warning("stopped after round %d; saved", number)
                raise KeyboardInterrupt
    network = work.finish(state)
    if keeper.step is None or keeper.step == done:
        source, target, step = *work.outputs(state), done
    else:
        keeper.restore(network)
        source, target = apply_network(network.for_source(), task.xs), apply_network(network, task.xt)
        step = keeper.step
    solution = None
    if step > 0:  # round 0 was trained without a plan
        costs = PairCosts(source.features.numpy(), target.features.numpy())
        solution = work.method.plan(costs, work.labels, target.logits, 1.0, config.loss)
    return Trained(network, work.shape, history, source, target, step, solution)
