"""Training over whole data sets in rounds: what the full engine asks of a method, and WARMPOT's alternation.

The alternation is block-coordinate minimisation of WARMPOT's objective. A round solves the exact plan over all pairs
with the joint cost (Theorem 3.3), then refits a linear classifier to the source, weighted by the plan's row sums,
and to the target, with the plan's soft labels; alpha grows over the rounds. With ``objective="bound"`` further rounds
minimise the bound of Theorem 3.3 from there. docs/engines.md shows what each step adds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_choice, check_count, check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.errors import DivergedError, InputError
from warmpot.losses import LabelLoss
from warmpot.methods.base import Method
from warmpot.methods.refit import PlannedBound, descend, fit_classifier, fit_ridge, mapped, tightest_plan
from warmpot.nets import SCALES, Network, NetworkSettings, Outputs, build_network
from warmpot.nets.network import NARROW, Projection
from warmpot.transport import Solution
from warmpot.weights import class_means, estimate_beta, predicted_shares

__all__ = ["Alternation", "DatasetPlan", "FullSettings", "RoundResult", "Rounds"]

OBJECTIVES = ("cross_entropy", "bound")
UNKNOWNS = ("head", "metric", "source_centre", "target_centre")


class DatasetPlan(NamedTuple):
    """The exact plan over all pairs, and the beta of its capacities ``1 / (beta n_s)``."""

    solution: Solution[csr_array]
    beta: float


class RoundResult(NamedTuple):
    """Numbers of a round to log, and the row sums of its plan (Theorem 3.2), which sum to alpha; None without a plan.

    Of the numbers, "transport" with "alpha" are the cost and the mass of the plan.
    """

    metrics: dict[str, Any]
    plan_weights: FloatArray | None = None


class Rounds(ABC):
    """A classifier on whole data sets that is improved in rounds after a start; made by `Method.rounds`.

    `training_weights` (n_s,) are what each source sample counted when the current classifier was fitted; they sum to 1.
    """

    n_rounds: int
    settings: NetworkSettings
    expected_share: float = 1.0
    training_weights: Tensor

    @abstractmethod
    def start(self) -> None:
        """Fit on the source alone: the iterate 0."""

    @abstractmethod
    def round(self, number: int) -> RoundResult | None:
        """Do the round `number`, from 1; None when there is nothing (more) to do."""

    @abstractmethod
    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and outputs of both domains by the current classifier."""

    @abstractmethod
    def network(self) -> Network:
        """Return the current classifier as a network in evaluation mode; the same object every time."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return what a resumed run needs."""

    @abstractmethod
    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan of a finished classifier with these outputs; None for a method without plans."""
        return None


@dataclass(frozen=True)
class FullSettings:
    """The full engine: a plan over all pairs, a refit of a linear classifier, and again (ours).

    Attributes
    ----------
    rounds : int
        Plans solved.
    scale : str
        Of the inputs, as in `NetworkSettings`.
    width : int
        Principal axes of both domains that are kept.
    penalty : float
        Ridge on the head's weights.
    metric_penalty : float or None
        Ridge that holds the metric under the head to the identity; None: no metric is learned.
    iterations : int
        L-BFGS steps of a refit.
    recentre : bool
        Subtract from each domain the mean of its matched part, so that both agree.
    class_share : float
        Part of a source weight that is its class's mean weight.
    fill : float
        Weight of the whole source, times the estimated beta; its classes count as in the source by that share, as
        predicted on the target by the rest: adaptation to a target that is not partial must not forget classes.
    smooth, neighbours, smooth_after
        Outputs in the plan's cost are averaged with those of this many nearest target samples, by this share, after
        this many rounds (averaging the first predictions would wipe out classes).
    objective : "cross_entropy" or "bound"
        What the classifier is fitted to: the labels that the plan carries; or, from where that ends, the computable
        part of Theorem 3.3 (`warmpot.methods.refit`), for a certificate below 1.
    bound_rounds : int
        Plans solved for the bound.
    bound_beta : float
        Share of the source that the bound's plan uses at least. The theorem holds for any.
    feature_start : float
        Weight of feature distances in the first of these rounds; it grows to 1 over the first half of them, and from
        then on the bound cannot rise. 1 minimises the bound from the start: tighter, but further from the labels that
        the first rounds found.
    """

    rounds: int = 6
    scale: str = "auto"
    width: int = 256
    penalty: float = 3e-5
    metric_penalty: float | None = 0.03
    iterations: int = 25
    recentre: bool = True
    class_share: float = 0.5
    fill: float = 1.0
    smooth: float = 0.5
    neighbours: int = 7
    smooth_after: int = 2
    objective: str = "cross_entropy"
    bound_rounds: int = 8
    bound_beta: float = 0.1
    feature_start: float = 0.1

    def __post_init__(self) -> None:
        for name in ("rounds", "width", "iterations", "neighbours"):
            check_count(name, getattr(self, name))
        check_count("smooth_after", self.smooth_after, minimum=0)
        check_choice("scale", self.scale, SCALES)
        check_positive("penalty", self.penalty)
        if self.metric_penalty is not None:
            check_positive("metric_penalty", self.metric_penalty)
        for name in ("class_share", "smooth"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        check_nonnegative("fill", self.fill)
        check_choice("objective", self.objective, OBJECTIVES)
        check_count("bound_rounds", self.bound_rounds)
        for name in ("bound_beta", "feature_start"):
            check_fraction(name, getattr(self, name))

    @property
    def all_rounds(self) -> int:
        """Rounds of both kinds."""
        return self.rounds + (self.bound_rounds if self.objective == "bound" else 0)

    def feature_weight(self, number: int) -> float:
        """Return the factor of feature distances in the bound's round `number`, from 1."""
        ramp = self.bound_rounds // 2
        return float(self.feature_start ** (1 - (number - 1) / ramp)) if number <= ramp else 1.0


class Alternation(Rounds):
    """The data in the coordinates of their principal axes, the unknowns, and the two half-steps of a round.

    The method's `plan` is solved in every round; a method without a plan has no rounds. The unknowns are head and
    metric as in `warmpot.methods.refit`, and the means of the matched parts of both domains, which are subtracted.
    """

    head: Tensor
    metric: Tensor
    source_centre: Tensor
    target_centre: Tensor

    def __init__(self, method: Method[Any], task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> None:
        if settings.objective == "bound" and (task.for_regression or not method.uses_target):
            got = "continuous targets" if task.for_regression else f"{method.name!r}, which does not see the target"
            allowed = "classes, and a method that adapts: the loss of the bound is a metric on class probabilities"
            raise InputError('full.objective "bound"', got=got, allowed=allowed, remedy='Use "cross_entropy".')
        self.method, self.task, self.full, self.loss = method, task, settings, loss
        self.n_rounds, self.expected_share = settings.all_rounds, method.expected_share
        self.labels = torch.as_tensor(task.ys)
        n_outputs, classes = task.n_classes or 1, not task.for_regression
        targets = functional.one_hot(self.labels, n_outputs) if classes else self.labels[:, None]
        self.targets = targets.float()
        # Narrow tables are measurements: their rows have no common length worth imposing.
        self.unit = task.width >= NARROW
        width = min(settings.width, task.width)
        self.settings = NetworkSettings(
            scale=settings.scale, bottleneck="projection", width=width, unit_features=self.unit
        )
        self._network = build_network(self.settings, task.width, n_outputs, seed=seed)
        xs, xt = map(torch.as_tensor, task.arrays())
        self._network.fit_scale(*(xs, xt)[: 1 + method.uses_target])
        xs, xt = self._network.scale(xs).float(), self._network.scale(xt).float()
        self.centre, self.axes = principal_axes(torch.cat([xs, xt]) if method.uses_target else xs, width)
        self.xs, self.xt = (xs - self.centre) @ self.axes, (xt - self.centre) @ self.axes
        self.training_weights = torch.full((len(self.xs),), 1.0 / len(self.xs), dtype=torch.float64)

    def start(self) -> None:
        """Fit the head on the source alone."""
        width = self.xs.shape[1]
        self.head, self.metric = torch.zeros(width + 1, self.targets.shape[1]), torch.eye(width)
        self.source_centre, self.target_centre = torch.zeros(width), torch.zeros(width)
        self._fit(self.xs, self.targets, self.training_weights.float(), 2 * self.full.iterations, None)

    def _fit(
        self, x: Tensor, targets: Tensor, weights: Tensor, iterations: int, metric_penalty: float | None
    ) -> None:  # fmt: skip
        if self.task.for_regression:
            features = mapped(x, self.metric, self.unit).double()
            self.head = fit_ridge(features, targets.double(), weights.double(), penalty=self.full.penalty).float()
        else:
            self.head, self.metric = fit_classifier(
                x, targets, weights, self.head, self.metric,
                penalty=self.full.penalty, metric_penalty=metric_penalty, iterations=iterations, unit=self.unit,
            )  # fmt: skip
        if not (self.head.isfinite().all() and self.metric.isfinite().all()):
            remedy = 'Leave full.scale at "auto", or bring the features to a length of about 1.'
            raise DivergedError("refit", got="weights that overflow", allowed="finite numbers", remedy=remedy)

    def state(self) -> dict[str, Tensor]:
        """Return the unknowns."""
        return {name: getattr(self, name) for name in (*UNKNOWNS, "training_weights")}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from unknowns; those of version 0.1 have no training weights."""
        for name in UNKNOWNS:
            # Cloned: products of tensors that lie elsewhere in memory, as a file has them, may round otherwise.
            setattr(self, name, state[name].clone())
        self.training_weights = state.get("training_weights", self.training_weights).clone()

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and outputs of both domains."""
        pair = ((self.xs, self.source_centre), (self.xt, self.target_centre))
        source, target = (mapped(x - centre, self.metric, self.unit) for x, centre in pair)
        bias, weight = self.head[-1], self.head[:-1]
        return Outputs(source, torch.addmm(bias, source, weight)), Outputs(target, torch.addmm(bias, target, weight))

    def round(self, number: int) -> RoundResult | None:
        """Solve the plan and refit; None if the method has no plan."""
        if number > self.full.rounds:
            return self._bound_round(number - self.full.rounds)
        progress = (number - 1) / max(self.full.rounds - 1, 1)
        source, target = self.outputs()
        smooth = self.full.smooth if number > self.full.smooth_after and not self.task.for_regression else 0.0
        features = source.features.numpy(), target.features.numpy()
        costs = PairCosts(*features, neighbours=self.full.neighbours, smooth=smooth)
        plan = self.method.plan(costs, self.labels, target.logits, progress, self.loss)
        if plan is None:
            return None
        solution = plan.solution
        p, q = np.asarray(solution.p), np.asarray(solution.q)
        carried = torch.from_numpy(np.asarray(solution.plan.T @ self.targets.numpy(), np.float32))
        source_weights = self._source_weights(p, target.logits)
        weights = torch.from_numpy(np.concatenate([source_weights, q])).float()
        targets = torch.cat([self.targets, carried / torch.from_numpy(q).float().clamp_min(1e-12)[:, None]])
        x = torch.cat([self.xs - self.source_centre, self.xt - self.target_centre])
        if self.unit:
            x = functional.normalize(x, dim=1)
        self._fit(x, targets, weights, self.full.iterations, self.full.metric_penalty)
        self.training_weights = torch.from_numpy(source_weights / source_weights.sum())
        # A mean that moved may be a shift of the whole domain among classes; in regression it may be the labels' own.
        if self.full.recentre and not self.task.for_regression and number < self.full.rounds:
            self.source_centre = torch.from_numpy(p / p.sum()).float() @ self.xs
            self.target_centre = torch.from_numpy(q / q.sum()).float() @ self.xt
        metrics = {"transport": float(solution.value), "gap": solution.gap, "alpha": float(p.sum()), "beta": plan.beta}
        return RoundResult(metrics, p)

    def _bound_round(self, number: int) -> RoundResult:
        """Solve the tightest plan and descend its bound (`warmpot.methods.refit`).

        Feature distances count little at first: taken in full they dominate the labels in the first plan, and the
        descent would rather flatten the head than draw classes together.
        """
        weight, beta = self.full.feature_weight(number), self.full.bound_beta
        source, target = self.outputs()
        head = self.head[:-1]
        plan, record = tightest_plan(source, self.labels, target, head, beta=beta, feature_weight=weight)
        xs, xt = self.xs - self.source_centre, self.xt - self.target_centre
        bound = PlannedBound(xs, self.labels, xt, plan, unit=self.unit)
        self.head, self.metric = descend(
            bound, self.head, self.metric,
            iterations=self.full.iterations, feature_weight=weight, learn_metric=self.full.metric_penalty is not None,
        )  # fmt: skip
        terms = bound.terms(self.head.double(), self.metric.double())
        p = np.asarray(plan.sum(axis=1))
        self.training_weights = torch.from_numpy(p / p.sum())
        metrics = {"transport": float(terms[1:].sum()), "gap": record.gap, "alpha": 1.0, "beta": beta}
        return RoundResult(metrics | {"bound": float(terms.sum()) + bound.left_out}, p)

    def _source_weights(self, p: FloatArray, logits: Tensor) -> FloatArray:
        """Half of each weight is its class's mean; the whole source joins in, the more the less partial it looks."""
        if self.task.for_regression:
            return p
        labels, n_classes = self.task.ys, self.task.n_classes
        mixed = self.full.class_share * class_means(p, labels, n_classes) + (1 - self.full.class_share) * p
        counts, beta = np.bincount(labels, minlength=n_classes), estimate_beta(logits, labels)
        # Its own classes keep those that the target's predictions lose; the predicted ones leave outlier classes out.
        classes = beta * counts / len(labels) + (1 - beta) * predicted_shares(logits)
        return mixed + self.full.fill * beta * (classes / np.maximum(counts, 1))[labels]

    def network(self) -> Network:
        """Put the unknowns into the network."""
        projection = self._network.bottleneck[0]
        assert isinstance(projection, Projection)
        with torch.no_grad():
            projection.centre.copy_(self.centre + self.axes @ self.target_centre)
            projection.source_centre.copy_(self.centre + self.axes @ self.source_centre)
            projection.matrix.copy_(self.axes @ self.metric)
            self._network.head.weight.copy_(self.head[:-1].T)
            self._network.head.bias.copy_(self.head[-1])
        return self._network.eval()

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:
        """Return the method's plan at its full mass, without smoothed outputs."""
        costs = PairCosts(source.features.numpy(), target.features.numpy())
        return self.method.plan(costs, self.labels, target.logits, 1.0, self.loss)


def principal_axes(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Mean and leading principal axes."""
    x = x.double()
    centre = x.mean(dim=0)
    x = x - centre
    n = x.shape[1]
    axes = eigh((x.T @ x).numpy(), subset_by_index=[n - width, n - 1])[1][:, ::-1]
    # An eigenvector's sign is the library's choice; fix it, so that results do not depend on it.
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(width)] < 0, -1.0, 1.0)
    return centre.float(), torch.from_numpy(np.ascontiguousarray(axes)).float()
