"""WARMPOT's alternation: the full engine, over whole data sets.

The alternation minimises WARMPOT's objective over plan, projection and head in turn, given the probability of each
class to be in the target, once for each of several hypotheses (`warmpot.methods.hypotheses`). In turn it

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
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array, vstack
from torch import Tensor
from torch.nn import functional

from warmpot._typing import FloatArray, IntArray
from warmpot.costs import PairCosts
from warmpot.data import Task
from warmpot.errors import DivergedError, InputError
from warmpot.losses import LabelLoss
from warmpot.methods.base import Method
from warmpot.methods.coordinates import centre_and_axes, for_sums, group_counts, split_classes, variance_follows_mean
from warmpot.methods.hypotheses import STEPS, Hypotheses
from warmpot.methods.refit import PlannedBound, descend, fit_classifier, fit_ridge, mapped, tightest_plan
from warmpot.methods.rounds import DatasetPlan, FullSettings, RoundResult, Rounds
from warmpot.methods.sizes import DataSize
from warmpot.methods.structured import structured_probabilities
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.nets.network import NARROW, Projection
from warmpot.transport import Duals, Solution
from warmpot.weights import ClassPresence, estimate_presence
from warmpot.weights.axes import indicators
from warmpot.weights.evidence import LabelEvidence
from warmpot.weights.presence import discriminant_axes
from warmpot.weights.verdict import CLUSTERS_GAIN, CONSENSUS

__all__ = ["Alternation", "alternation_size"]

SOLUTION = ("head", "metric", "origin", "shift", "training_weights")
"""The unknowns, and what each source sample counted."""
LEAST = 1e-4
"""Added to averaged probabilities, so that no pair is ruled out."""
CERTAIN = 10.0
"""Logit of the one class of a target that has no other."""
BEST = "best."
"""Prefix of names in checkpoints."""
LOOKED_AT = 128
"""Principal axes that the evidence for labels is computed on."""
OWN_ROUNDS = 2
"""Rounds after those that average with structured prediction, which use the classifier's outputs alone."""
FEW = 5
"""Fewer classes are few: structured prediction with one too many would split the cluster of another."""


def _group_counts(task: Task, settings: FullSettings) -> IntArray:
    """Return the number of groups of each class in the discriminant.

    More axes than classes - 1 help the plan, but distances in them add to the bound.
    """
    counts = group_counts(np.asarray(task.ys), task.n_classes)
    return np.ones_like(counts) if settings.objective == "bound" else counts


def _numbers(plan: DatasetPlan) -> dict[str, float]:
    """Return what is logged of a plan."""
    solution = plan.solution
    alpha = float(np.asarray(solution.p).sum())
    return {"transport": float(solution.value), "gap": solution.gap, "alpha": alpha, "beta": plan.beta}


def _joined(solution: Solution[csr_array]) -> Tensor:
    """Return the dual variables of a plan as one tensor."""
    return torch.from_numpy(np.concatenate([*solution.potentials, [solution.slope]]))


def _logarithm(probabilities: Tensor) -> Tensor:
    return (probabilities + LEAST).log()


def alternation_size(method: Method[Any], task: Task, settings: FullSettings) -> DataSize:
    """Return the sizes of an `Alternation`."""
    axes, rounds, outputs = min(settings.width, task.width), 0, task.n_classes or 1
    width = axes
    if method.uses_target:
        rounds = (settings.rounds + OWN_ROUNDS) * (len(STEPS) + 1 if task.n_classes else 1)
        rounds += settings.bound_rounds * (settings.objective == "bound")
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
        self._best: dict[str, Tensor] = {}  # unknowns under the best supported hypothesis so far
        self.hypotheses = self._hypotheses() if self.discriminant else None
        self.trials = 0 if self.hypotheses is None else len(self.hypotheses.numbers)
        self.first_rounds = self.trials + 1 if self.trials else settings.rounds
        self.n_rounds = self.first_rounds + (settings.bound_rounds if settings.objective == "bound" else 0)

    def _hypotheses(self) -> Hypotheses:
        """Estimate which classes are in the target."""
        xs, xt, n_classes = self.xs.numpy(), self.xt.numpy(), self.targets.shape[1]
        self.presence = estimate_presence(xs, self.task.ys, xt, n_classes=n_classes, unit=self.unit)
        evidence = LabelEvidence(xs[:, :LOOKED_AT], self.labels.numpy(), xt[:, :LOOKED_AT], n_classes)
        return Hypotheses(self.presence, evidence, len(xt))

    def _structured(self, presence: ClassPresence) -> Tensor | None:
        """Class probabilities of the target by structured prediction; None where it does not help.

        It works on the sphere, where narrow tables do not lie.
        """
        if not self.unit or presence.expected_number < FEW:
            return None
        xs, xt = self.xs.numpy(), self.xt.numpy()
        return torch.from_numpy(structured_probabilities(xs, self.labels.numpy(), xt, presence))

    def start(self) -> None:
        """Fit on the source alone."""
        for name, tensor in self._unadapted.items():
            setattr(self, name, tensor.clone())

    @cached_property
    def _unadapted(self) -> dict[str, Tensor]:
        """The unknowns of the fit on the source alone."""
        weights = torch.ones(len(self.xs), dtype=torch.float64)
        self.shift = torch.zeros(self.xs.shape[1])
        self._refit(weights, csr_array((len(self.xs), len(self.xt))))
        return {name: getattr(self, name) for name in SOLUTION}

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
        x, total = torch.cat([self.xs, self.xt - self.shift]), torch.cat([weights, mass])
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
        self._fit_head(features[: len(self.xs)], features[len(self.xs) :], soft_labels, weights, mass)

    def _fit_head(self, source: Tensor, target: Tensor, soft_labels: Tensor, weights: Tensor, mass: Tensor) -> None:
        """Fit the head to features of the source with weights, and of the target with soft labels and their mass."""
        features, targets = torch.cat([source, target]), torch.cat([self.targets, soft_labels])
        total = torch.cat([weights, mass])
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
        state = {name: getattr(self, name) for name in (*SOLUTION, "beta", "duals")}
        best = {f"{BEST}{name}": tensor for name, tensor in self._best.items()}
        return state | best | ({} if self.hypotheses is None else self.hypotheses.state())

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from unknowns."""
        for name in (*SOLUTION, "beta", "duals"):
            # Cloned: products of tensors that lie elsewhere in memory, as a file has them, may round otherwise.
            setattr(self, name, state[name].clone())
        self._best = {name.removeprefix(BEST): tensor for name, tensor in state.items() if name.startswith(BEST)}
        if self.hypotheses is not None:
            self.hypotheses.load(state)
            if self.hypotheses.tried:
                self.presence = self.hypotheses.combined_presence()
                self.consensus = self.hypotheses.consensus(self.outputs()[1].logits.argmax(dim=1))

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and outputs of both domains."""
        source, target = (mapped(x - self.origin, self.metric, self.unit) for x in (self.xs, self.xt - self.shift))
        bias, weight = self.head[-1], self.head[:-1]
        return Outputs(source, torch.addmm(bias, source, weight)), Outputs(target, torch.addmm(bias, target, weight))

    def round(self, number: int) -> RoundResult | None:
        """Carry a hypothesis through all plans, or decide; in regression, solve one plan and refit.

        None if the method has no plan.
        """
        if number > self.first_rounds:
            return self._bound_round(number - self.first_rounds)
        if self.hypotheses is None:
            last = self.full.rounds - 1
            progress = min((number - 1) / max(last, 1), 1.0)
            return self._planned(progress, None, smooth=False) if self.method.uses_target else None
        return self._trial(self.hypotheses, number - 1) if number <= self.trials else self._decide(self.hypotheses)

    def _trial(self, hypotheses: Hypotheses, k: int) -> RoundResult:
        """Carry hypothesis k through all plans, from the fit on the source alone."""
        presence = hypotheses.presence(k)
        self.start()
        if hypotheses.numbers[k] == 1:  # there is nothing to adapt
            certain = functional.one_hot(torch.tensor(int(presence.probability.argmax())), self.targets.shape[1])
            self.head = torch.zeros_like(self.head)
            self.head[-1] = CERTAIN * certain
            return RoundResult(self._judged(hypotheses, k))
        structured, rounds = self._structured(presence), self.full.rounds
        for number in range(rounds + OWN_ROUNDS * (structured is not None)):
            logits = self.outputs()[1].logits
            if structured is not None and number < rounds:
                logits = _logarithm(0.5 * (logits.double().softmax(dim=1) + structured))
            progress = min(number / max(rounds - 1, 1), 1.0)
            result = self._planned(progress, presence, logits, smooth=number >= self.full.smooth_after)
        return RoundResult({**result.metrics, **self._judged(hypotheses, k)}, result.plan_weights)

    def _judged(self, hypotheses: Hypotheses, k: int) -> dict[str, float]:
        """Add the answer of hypothesis k, and keep its classifier if it is the best supported so far."""
        numbers = hypotheses.judge(k, self.outputs()[1].logits.argmax(dim=1))
        if int(hypotheses.supports.argmax()) == k:
            self._best = {name: getattr(self, name).clone() for name in SOLUTION}
        return numbers

    def _decide(self, hypotheses: Hypotheses) -> RoundResult:
        """Take the classifier of the best supported hypothesis; the estimate of the classes is the mean over all."""
        for name, tensor in self._best.items():
            setattr(self, name, tensor.clone())
        self.presence, number = hypotheses.combined_presence(), hypotheses.numbers[hypotheses.first]
        plan = self.final_plan(*self.outputs())
        assert plan is not None, "a method without plans has no rounds"
        self.duals, labels = _joined(plan.solution), self.outputs()[1].logits.argmax(dim=1)
        self.consensus = hypotheses.consensus(labels)
        decided = {"classes": float(number), CONSENSUS: self.consensus}
        decided[CLUSTERS_GAIN] = hypotheses.clusters_gain(labels.numpy(), self._unadapted_labels())
        return RoundResult({**decided, **_numbers(plan)}, plan.solution.p)

    def _unadapted_labels(self) -> IntArray:
        """Return the class codes that the fit on the source alone gives the target."""
        found = {name: getattr(self, name) for name in SOLUTION}
        self.start()
        labels = self.outputs()[1].logits.argmax(dim=1).numpy()
        for name, tensor in found.items():
            setattr(self, name, tensor)
        return labels

    def _planned(
        self, progress: float, presence: ClassPresence | None, logits: Tensor | None = None, *, smooth: bool
    ) -> RoundResult:
        """Solve the plan and refit; `logits` of the target are by default those of the classifier."""
        source, target = self.outputs()
        logits = target.logits if logits is None else logits
        features = source.features.numpy(), target.features.numpy()
        costs = PairCosts(*features, neighbours=self.full.neighbours, smooth=self.full.smooth if smooth else 0.0)
        factors = None if presence is None else presence.factors
        plan = self.method.plan(costs, self.labels, logits, progress, self.loss, factors, self._duals())
        assert plan is not None, "a method without plans has no rounds"
        solution = plan.solution
        self.duals = _joined(solution)
        p, q = np.asarray(solution.p), np.asarray(solution.q)
        if self.discriminant:  # in regression a mean that moved may be the labels' own
            means = [torch.from_numpy(w / w.sum()).float() @ x for w, x in ((p, self.xs), (q, self.xt))]
            self.shift = means[1] - means[0]
        weights = p * len(p) if factors is None else factors[self.task.ys]
        self._refit(torch.from_numpy(weights), solution.plan)
        return RoundResult(_numbers(plan), p)

    def _factors(self) -> FloatArray | None:
        """Return the factors of the classes' weights and capacities under the best supported hypothesis."""
        return None if self.hypotheses is None else self.hypotheses.best.factors

    def _bound_beta(self) -> float:
        """Return beta of the bound's plans: at most half of the share of the classes estimated to be shared."""
        factors = self._factors()
        shared = 1.0 if factors is None else float(factors[self.task.ys].mean())
        return min(self.full.bound_beta, max(shared / 2, 1.0 / len(self.xs)))

    def _bound_round(self, number: int) -> RoundResult:
        """Solve the tightest plan and descend its bound (`warmpot.methods.refit`).

        Feature distances count little at first: taken in full they dominate the labels in the first plan, and the
        descent would rather flatten the head than draw classes together.
        """
        weight = self.full.feature_weight(number)
        source, target = self.outputs()
        if self.beta.isnan():  # once: with another beta in a later round the bound could rise
            self.beta = torch.tensor(self._bound_beta(), dtype=torch.float64)
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
        structured = None if self.presence is None else self._structured(self.presence)
        return unadapted if structured is None else structured.argmax(dim=1)

    def final_plan(self, source: Outputs, target: Outputs) -> DatasetPlan | None:
        """Return the method's plan at its full mass, without smoothed outputs."""
        costs = PairCosts(source.features.numpy(), target.features.numpy())
        return self.method.plan(costs, self.labels, target.logits, 1.0, self.loss, self._factors(), self._duals())

    def _duals(self) -> Duals | None:
        """Return the dual variables of the last plan, if there was one."""
        duals, n = self.duals.numpy(), len(self.xs)
        if duals.size != n + len(self.xt) + 1:
            return None
        return Duals(duals[:n], duals[n:-1], float(duals[-1]))
