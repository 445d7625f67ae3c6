"""Training over whole data sets in rounds: what the full engine asks of a method, and WARMPOT's alternation.

The alternation minimises WARMPOT's objective over plan, projection and head in turn, given the probability of each
class to be in the target (`warmpot.weights.estimate_presence`). A round

- solves the exact plan over all pairs with the joint cost (Theorem 3.3), where a class can supply what the target is
  expected to have of it, and moves the mass alpha, which grows over the rounds: the most certain samples come first;
- refits to the source, weighted by the probability of its classes, and to the target, with the soft labels that the
  plan carries and the mass it moves: the projection by Fisher's discriminant, in closed form, then the head by the
  weighted cross-entropy.

Directions in which the domains differ within classes count as noise in the discriminant: this aligns the domains. With
``objective="bound"`` further rounds minimise the bound of Theorem 3.3 from there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, vstack
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_choice, check_count, check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray, IntArray
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.errors import DivergedError, InputError
from warmpot.losses import LabelLoss
from warmpot.methods.base import Method
from warmpot.methods.coordinates import centre_and_axes, for_sums, group_counts, split_classes, variance_follows_mean
from warmpot.methods.refit import PlannedBound, descend, fit_classifier, fit_ridge, mapped, tightest_plan
from warmpot.methods.sizes import DataSize
from warmpot.methods.structured import structured_probabilities
from warmpot.nets import SCALES, Network, NetworkSettings, Outputs, build_network
from warmpot.nets.network import NARROW, Projection
from warmpot.transport import Duals, Solution
from warmpot.weights import ClassPresence, estimate_presence, predicted_shares
from warmpot.weights.axes import indicators
from warmpot.weights.presence import FEW, discriminant_axes

__all__ = ["Alternation", "DatasetPlan", "FullSettings", "RoundResult", "Rounds", "alternation_size"]

OBJECTIVES = ("cross_entropy", "bound")
UNKNOWNS = ("head", "metric", "origin", "shift")
LEAST = 1e-4
"""Added to averaged probabilities, so that no pair is ruled out."""
OWN_ROUNDS = 2
"""Rounds after those that average with structured prediction, which use the classifier's outputs alone."""


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
    `presence` is the estimate of which classes are in the target, if the training made one.
    """

    n_rounds: int
    settings: NetworkSettings
    expected_share: float = 1.0
    training_weights: Tensor
    presence: ClassPresence | None = None

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

    def second_labels(self, unadapted: Tensor | None) -> Tensor | None:  # noqa: ARG002
        """Class codes of the target by another classifier, to calibrate confidences; None leaves them as they are.

        `unadapted` are those by the fit on the source alone, if they are known.
        """
        return None

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:  # noqa: ARG002
        """Return the plan of a finished classifier with these outputs; None for a method without plans."""
        return None


@dataclass(frozen=True)
class FullSettings:
    """The full engine: a plan over all pairs, a refit of projection and head, and again (ours).

    Attributes
    ----------
    rounds : int
        Plans solved while alpha grows; two more follow if the outputs were averaged with structured prediction.
    scale : str
        Of the inputs, as in `NetworkSettings`; but "auto" is "roots" for 64 columns or more whose variance within
        classes follows their mean (`variance_follows_mean`), as it does after a ReLU; not for a method that does not
        see the target.
    width : int
        Principal axes of both domains that are kept.
    penalty : float
        Ridge on the head's weights.
    iterations : int
        L-BFGS steps of a refit.
    smooth, neighbours, smooth_after
        Outputs in the plan's cost are averaged with those of this many nearest target samples, by this share, after
        this many rounds (averaging the first predictions would wipe out classes).
    objective : "cross_entropy" or "bound"
        What the classifier is fitted to: the labels that the plan carries; or, from where that ends, the computable
        part of Theorem 3.3 (`warmpot.methods.refit`), for a certificate below 1.
    bound_rounds : int
        Plans solved for the bound.
    bound_beta : float
        Share of the source that the bound's plan uses at least, or half of the share of the classes that are estimated
        to be in the target, if that is less: a larger one forces matches with other classes. The theorem holds for any.
    feature_start : float
        Weight of feature distances in the first of these rounds; it grows to 1 over the first half of them, and from
        then on the bound cannot rise. 1 minimises the bound from the start: tighter, but further from the labels that
        the first rounds found.
    """

    rounds: int = 6
    scale: str = "auto"
    width: int = 512
    penalty: float = 1e-4
    iterations: int = 40
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
        check_nonnegative("smooth", self.smooth, maximum=1.0)
        check_choice("objective", self.objective, OBJECTIVES)
        check_count("bound_rounds", self.bound_rounds)
        for name in ("bound_beta", "feature_start"):
            check_fraction(name, getattr(self, name))

    def feature_weight(self, number: int) -> float:
        """Return the factor of feature distances in the bound's round `number`, from 1."""
        ramp = self.bound_rounds // 2
        return float(self.feature_start ** (1 - (number - 1) / ramp)) if number <= ramp else 1.0


def _group_counts(task: Task, settings: FullSettings) -> IntArray:
    """Return the number of groups of each class in the discriminant.

    More axes than classes - 1 help the plan, but distances in them add to the bound.
    """
    counts = group_counts(np.asarray(task.ys), task.n_classes)
    return np.ones_like(counts) if settings.objective == "bound" else counts


def alternation_size(method: Method[Any], task: Task, settings: FullSettings) -> DataSize:
    """Return the sizes of an `Alternation`."""
    axes, rounds, outputs = min(settings.width, task.width), 0, task.n_classes or 1
    width = axes
    if method.uses_target:
        rounds = settings.rounds + OWN_ROUNDS + settings.bound_rounds * (settings.objective == "bound")
        if task.n_classes:
            width = min(axes, max(int(_group_counts(task, settings).sum()) - 1, 2))
    return DataSize(task.n_source, task.n_target, task.width, outputs, axes, width, rounds)


class Alternation(Rounds):
    """The data in the coordinates of their principal axes, the unknowns, and the two half-steps of a round.

    The method's `plan` is solved in every round; a method without a plan has no rounds. The unknowns are head and
    metric (a projection) as in `warmpot.methods.refit`, the origin that is subtracted from both domains, and
    the shift of the matched part of the target, which is subtracted from the target before. In regression, and for a
    method that does not see the target, the metric is the identity and origin and shift are 0.
    """

    head: Tensor
    metric: Tensor
    origin: Tensor
    shift: Tensor

    def __init__(self, method: Method[Any], task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> None:
        if settings.objective == "bound" and (task.for_regression or not method.uses_target):
            got = "continuous targets" if task.for_regression else f"{method.name!r}, which does not see the target"
            allowed = "classes, and a method that adapts: the loss of the bound is a metric on class probabilities"
            raise InputError('full.objective "bound"', got=got, allowed=allowed, remedy='Use "cross_entropy".')
        self.method, self.task, self.full, self.loss = method, task, settings, loss
        self.expected_share = method.expected_share
        self.labels = torch.as_tensor(task.ys)
        n_outputs, classes = task.n_classes or 1, not task.for_regression
        targets = functional.one_hot(self.labels, n_outputs) if classes else self.labels[:, None]
        self.targets = targets.float()
        # Narrow tables are measurements: their rows have no common length worth imposing.
        self.unit = task.width >= NARROW
        self.discriminant = classes and method.uses_target
        size = alternation_size(method, task, settings)
        xs, xt = map(torch.as_tensor, task.arrays())
        roots = settings.scale == "auto" and self.unit and self.discriminant and not (xt < 0).any()
        roots = roots and variance_follows_mean(xs, self.targets)
        scale = "roots" if roots else settings.scale
        self.settings = NetworkSettings(scale=scale, bottleneck="projection", width=size.width, unit_features=self.unit)
        self._network = build_network(self.settings, task.width, n_outputs, seed=seed)
        self._network.fit_scale(*(xs, xt)[: 1 + method.uses_target])
        xs, xt = self._network.scale(xs).float(), self._network.scale(xt).float()
        self.centre, self.axes = centre_and_axes((xs, xt)[: 1 + method.uses_target], size.axes)
        self.xs, self.xt = (xs - self.centre) @ self.axes, (xt - self.centre) @ self.axes
        if self.discriminant:
            codes, counts = self.labels.numpy(), _group_counts(task, settings)
            codes = split_classes(self.xs.numpy(), codes, n_outputs) if counts.max() > 1 else codes
            self.groups = indicators(codes, int(counts.sum()))
        self.training_weights = torch.full((len(self.xs),), 1.0 / len(self.xs), dtype=torch.float64)
        self.duals = torch.empty(0, dtype=torch.float64)  # u, v and t of the last plan
        self.beta = torch.tensor(torch.nan, dtype=torch.float64)  # of the bound's plans, from their first round on
        # Structured prediction works on the sphere, where narrow tables do not lie. With few classes, one too many
        # would split the cluster of another.
        self.averaged = self.unit and self.presence is not None and self.presence.expected_number >= FEW
        self.first_rounds = settings.rounds + OWN_ROUNDS * self.averaged
        self.n_rounds = self.first_rounds + (settings.bound_rounds if settings.objective == "bound" else 0)

    @cached_property
    def structured(self) -> Tensor:
        """Class probabilities of the target by structured prediction."""
        assert self.presence is not None
        xs, xt = self.xs.numpy(), self.xt.numpy()
        return torch.from_numpy(structured_probabilities(xs, self.labels.numpy(), xt, self.presence))

    @cached_property
    def presence(self) -> ClassPresence | None:  # type: ignore[override]
        """Which classes are in the target; None in regression and for a method that does not see it."""
        if not self.discriminant:
            return None
        xs, xt = self.xs.numpy(), self.xt.numpy()
        return estimate_presence(xs, self.task.ys, xt, n_classes=self.targets.shape[1], unit=self.unit)

    def start(self) -> None:
        """Fit on the source alone."""
        weights = torch.ones(len(self.xs), dtype=torch.float64)
        self.shift = torch.zeros(self.xs.shape[1])
        self._refit(weights, csr_array((len(self.xs), len(self.xt))))

    def _refit(self, weights: Tensor, plan: csr_array) -> None:
        """Fit projection and head to the source with weights, and to the target with the labels that the plan carries.

        `weights` have a sum of at most n_s, and a target sample counts as much of 1 as the plan matches: a sample of
        either domain counts the same.
        """
        self.training_weights = weights / weights.sum()
        q = np.asarray(plan.sum(axis=0))
        mass = torch.from_numpy(q * len(q))
        carried = diags_array(1 / np.maximum(q, 1e-12)) @ plan.T  # what a target sample gets of each source sample
        soft_labels = torch.from_numpy(np.asarray(carried @ self.targets.numpy(), np.float32))
        x, targets = torch.cat([self.xs, self.xt - self.shift]), torch.cat([self.targets, soft_labels])
        total = torch.cat([weights, mass])
        if self.discriminant:
            everyone = torch.cat([weights, torch.ones(len(self.xt), dtype=torch.float64)]).float()
            self.origin = (everyone / everyone.sum()) @ x
            x = x - self.origin
            groups = vstack([self.groups, carried @ self.groups], "csr")
            samples = for_sums(x.numpy(), many=self.task.width > self.full.width)
            axes = discriminant_axes(samples, groups, total.numpy())
            # In units of the scatter within classes: lengths matter where features are not scaled to 1.
            self.metric = torch.from_numpy(axes * math.sqrt(float(total.sum()))).float()
        else:
            width = x.shape[1]
            self.metric = torch.eye(width)
            self.origin = torch.zeros(width)
        features = mapped(x, self.metric, self.unit)
        if self.task.for_regression:
            self.head = fit_ridge(features.double(), targets.double(), total, penalty=self.full.penalty).float()
        else:
            # From 0: the axes are new, and a head that has fitted one plan's labels to the end keeps them in the next.
            start = torch.zeros(features.shape[1] + 1, targets.shape[1])
            steps = self.full.iterations
            penalty = self.full.penalty
            self.head = fit_classifier(features, targets, total.float(), start, penalty=penalty, iterations=steps)
        if not (self.head.isfinite().all() and self.metric.isfinite().all()):
            remedy = 'Leave full.scale at "auto", or bring the features to a length of about 1.'
            raise DivergedError("refit", got="weights that overflow", allowed="finite numbers", remedy=remedy)

    def state(self) -> dict[str, Tensor]:
        """Return the unknowns."""
        return {name: getattr(self, name) for name in (*UNKNOWNS, "training_weights", "beta", "duals")}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from unknowns."""
        for name in UNKNOWNS:
            # Cloned: products of tensors that lie elsewhere in memory, as a file has them, may round otherwise.
            setattr(self, name, state[name].clone())
        self.training_weights = state["training_weights"].clone()
        for name in ("beta", "duals"):  # absent from older checkpoints
            setattr(self, name, state.get(name, getattr(self, name)).clone())

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and outputs of both domains."""
        source, target = (mapped(x - self.origin, self.metric, self.unit) for x in (self.xs, self.xt - self.shift))
        bias, weight = self.head[-1], self.head[:-1]
        return Outputs(source, torch.addmm(bias, source, weight)), Outputs(target, torch.addmm(bias, target, weight))

    def round(self, number: int) -> RoundResult | None:
        """Solve the plan and refit; None if the method has no plan."""
        if number > self.first_rounds:
            return self._bound_round(number - self.first_rounds)
        progress = min((number - 1) / max(self.full.rounds - 1, 1), 1.0)
        source, target = self.outputs()
        logits = target.logits
        if self.averaged and number <= self.full.rounds:
            logits = (0.5 * (logits.double().softmax(dim=1) + self.structured) + LEAST).log()
        smooth = self.full.smooth if number > self.full.smooth_after and not self.task.for_regression else 0.0
        features = source.features.numpy(), target.features.numpy()
        costs = PairCosts(*features, neighbours=self.full.neighbours, smooth=smooth)
        presence = self._presence_given(logits)
        plan = self.method.plan(costs, self.labels, logits, progress, self.loss, presence, self._duals())
        if plan is None:
            return None
        solution = plan.solution
        self.duals = torch.from_numpy(np.concatenate([*solution.potentials, [solution.slope]]))
        p, q = np.asarray(solution.p), np.asarray(solution.q)
        if self.discriminant:  # in regression a mean that moved may be the labels' own
            means = [torch.from_numpy(w / w.sum()).float() @ x for w, x in ((p, self.xs), (q, self.xt))]
            self.shift = means[1] - means[0]
        weights = p * len(p) if presence is None else presence[self.task.ys]
        self._refit(torch.from_numpy(weights), solution.plan)
        metrics = {"transport": float(solution.value), "gap": solution.gap, "alpha": float(p.sum()), "beta": plan.beta}
        return RoundResult(metrics, p)

    def _presence_given(self, logits: Tensor) -> FloatArray | None:
        """Return the factors of the classes' weights and capacities, given the current predictions of the target."""
        if self.presence is None:
            return None
        return self.presence.given(predicted_shares(logits), len(logits)).factors

    def _bound_beta(self, logits: Tensor) -> float:
        """Return beta of the bound's plans: at most half of the share of the classes estimated to be shared."""
        presence = self._presence_given(logits)
        shared = 1.0 if presence is None else float(presence[self.task.ys].mean())
        return min(self.full.bound_beta, max(shared / 2, 1.0 / len(self.xs)))

    def _bound_round(self, number: int) -> RoundResult:
        """Solve the tightest plan and descend its bound (`warmpot.methods.refit`).

        Feature distances count little at first: taken in full they dominate the labels in the first plan, and the
        descent would rather flatten the head than draw classes together.
        """
        weight = self.full.feature_weight(number)
        source, target = self.outputs()
        if self.beta.isnan():  # once: with another beta in a later round the bound could rise
            self.beta = torch.tensor(self._bound_beta(target.logits), dtype=torch.float64)
        beta = float(self.beta)
        head = self.head[:-1]
        plan, record = tightest_plan(source, self.labels, target, head, beta=beta, feature_weight=weight)
        xs, xt = self.xs - self.origin, self.xt - self.shift - self.origin
        bound = PlannedBound(xs, self.labels, xt, plan, unit=self.unit)
        self.head, self.metric = descend(
            bound, self.head, self.metric,
            iterations=self.full.iterations, feature_weight=weight,
        )  # fmt: skip
        terms = bound.terms(self.head.double(), self.metric.double())
        p = np.asarray(plan.sum(axis=1))
        self.training_weights = torch.from_numpy(p / p.sum())
        metrics = {"transport": float(terms[1:].sum()), "gap": record.gap, "alpha": 1.0, "beta": beta}
        return RoundResult(metrics | {"bound": float(terms.sum()) + bound.left_out}, p)

    def network(self) -> Network:
        """Put the unknowns into the network."""
        projection = self._network.bottleneck[0]
        assert isinstance(projection, Projection)
        with torch.no_grad():
            projection.centre.copy_(self.centre + self.axes @ (self.origin + self.shift))
            projection.source_centre.copy_(self.centre + self.axes @ self.origin)
            projection.matrix.copy_(self.axes @ self.metric)
            self._network.head.weight.copy_(self.head[:-1].T)
            self._network.head.bias.copy_(self.head[-1])
        return self._network.eval()

    def second_labels(self, unadapted: Tensor | None) -> Tensor | None:
        """Return those of structured prediction where it is used; None where calibration was not measured."""
        if not self.discriminant or self.full.objective == "bound":
            return None
        return self.structured.argmax(dim=1) if self.averaged else unadapted

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:
        """Return the method's plan at its full mass, without smoothed outputs."""
        costs = PairCosts(source.features.numpy(), target.features.numpy())
        presence = self._presence_given(target.logits)
        return self.method.plan(costs, self.labels, target.logits, 1.0, self.loss, presence, self._duals())

    def _duals(self) -> Duals | None:
        """Return the dual variables of the last plan, if there was one."""
        duals, n = self.duals.numpy(), len(self.xs)
        if duals.size != n + len(self.xt) + 1:
            return None
        return Duals(duals[:n], duals[n:-1], float(duals[-1]))
