"""The refits of the full engine: to weighted samples with soft labels, and to the bound of Theorem 3.3.

For a classifier ``w = softmax(W f + b)`` and a plan P of mass alpha, with p, q its row and column sums,

    B(w, P) = sum_i p_i l_i / alpha + sum_ij P_ij [gamma(W) ||f_i - f~_j|| + l(y_i, w(x~_j))] / alpha
              + 1/2 sum_j |1/n_t - q_j / alpha|

bounds the target loss up to L^_f, for *every* feasible plan. l is the Euclidean distance on the simplex over sqrt(2),
gamma its constant for the head (`warmpot.bounds.head_lipschitz`). Given w the tightest plan is a partial transport
problem; given a plan, which is sparse, B is differentiable in W, b and the metric under f.

A head is a (k + 1, C) tensor whose last row is b, a metric is (d, k); `unit` scales features to length 1 after it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.nn import functional

from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.report import PlanRecord
from warmpot.bounds.theorems import BoundProblem
from warmpot.nets import Outputs

__all__ = ["PlannedBound", "descend", "fit_classifier", "fit_ridge", "mapped", "tightest_plan"]

LOSS = "euclidean"
"""Of the bound."""
BLOCK = 2**20
"""Logits that are computed at a time: 4 MiB."""


def mapped(x: Tensor, metric: Tensor, unit: bool) -> Tensor:
    """Features after the metric, of length 1 if asked for."""
    y = x @ metric
    return functional.normalize(y, dim=1) if unit else y


class _LBFGS(torch.optim.LBFGS):
    """L-BFGS whose methods were not prepared for `torch.compile`: their first call would import the compiler, 1 s."""

    add_param_group = inspect.unwrap(torch.optim.LBFGS.add_param_group)


def _minimise(loss: Callable[[], Tensor], unknowns: Sequence[Tensor], steps: int, grad: float, change: float) -> None:
    """Minimise by L-BFGS; `loss` leaves its gradient in the unknowns, `grad` and `change` are tolerances."""
    solver = _LBFGS(
        unknowns, max_iter=steps, tolerance_grad=grad, tolerance_change=change, history_size=10,
        line_search_fn="strong_wolfe",
    )  # fmt: skip
    solver.step(loss)  # type: ignore[no-untyped-call]


def fit_classifier(
    x: Tensor, targets: Tensor, weights: Tensor, head: Tensor, *, penalty: float, iterations: int
) -> Tensor:
    """Minimise the weighted cross-entropy over the head, by L-BFGS from `head`.

        sum_k w_k CE(targets_k, softmax(W x_k + b)) / sum w + penalty/2 ||W||^2

    The targets are rows of class probabilities; rows of weight 0 cost nothing.
    """
    used = weights > 0
    weights = weights[used] / weights[used].sum()
    # One column per sample: a softmax over rows of few classes takes ten times as long as one over columns.
    x, goals, head = x[used].T.contiguous(), (targets[used] * weights[:, None]).T.contiguous(), head.clone()
    sizes = goals.sum(dim=0)
    size = max(BLOCK // head.shape[1], 1)  # with many classes, tensors of all logits take more time than the products

    def loss() -> Tensor:
        weight, bias = head[:-1], head[-1]
        total, gradient = penalty / 2 * weight.square().sum(), penalty * head
        gradient[-1] = 0.0
        for start in range(0, x.shape[1], size):
            part = slice(start, start + size)
            logs = torch.log_softmax(torch.addmm(bias[:, None], weight.T, x[:, part]), dim=0)
            total -= (goals[:, part] * logs).sum()
            slopes = logs.exp_().mul_(sizes[part]).sub_(goals[:, part])  # of the loss, by logits
            gradient[:-1].addmm_(x[:, part], slopes.T)
            gradient[-1] += slopes.sum(dim=1)
        head.grad = gradient
        return total

    _minimise(loss, [head], iterations, 1e-6, 1e-8)
    return head.detach()


def fit_ridge(x: Tensor, targets: Tensor, weights: Tensor, *, penalty: float) -> Tensor:
    """Weighted ridge regression in closed form; returns the head as `fit_classifier` does."""
    weights = weights / weights.sum()
    centre, mean = weights @ x, weights @ targets
    x, targets = x - centre, targets - mean
    gram = x.T @ (x * weights[:, None]) + penalty * torch.eye(x.shape[1], dtype=x.dtype)
    slopes = torch.linalg.solve(gram, x.T @ (targets * weights[:, None]))
    return torch.cat([slopes, (mean - centre @ slopes)[None]])


def tightest_plan(
    source: Outputs, labels: Tensor, target: Outputs, weight: Tensor, *, beta: float, feature_weight: float = 1.0
) -> tuple[csr_array, PlanRecord]:
    """Return the plan of all target mass that minimises B(w, P), and its certificate (`BoundProblem.planned`).

    `weight` is the head's, (d, C). A source sample has capacity ``1 / (beta n_s)``. `feature_weight` is a factor of the
    feature distances in the cost; 1 is the bound's.
    """
    proba_s, proba_t = (torch.softmax(outputs.logits.double(), dim=1) for outputs in (source, target))
    gamma = feature_weight * head_lipschitz(weight.T, LOSS).value
    points = source.features, labels, target.features, proba_s, proba_t
    return BoundProblem("joint", *points, gamma=gamma, loss=LOSS).planned(1.0, beta)


class PlannedBound:
    """B(w, P) for one feasible plan P, differentiable in head and metric, in float64."""

    def __init__(self, xs: Tensor, labels: Tensor, xt: Tensor, plan: csr_array, *, unit: bool) -> None:
        entries = plan.tocoo()
        alpha, q = float(plan.sum()), np.asarray(plan.sum(axis=0))
        used, rows = np.unique(entries.row, return_inverse=True)
        self._xs, self._xt, self._unit = xs[torch.from_numpy(used)].double(), xt.double(), unit
        self._labels = labels[torch.from_numpy(used)]
        self._rows, self._cols = torch.from_numpy(rows), torch.from_numpy(entries.col.astype(np.int64))
        self._mass = torch.from_numpy(entries.data / alpha)
        self.left_out = 0.5 * float(np.abs(1.0 / q.size - q / alpha).sum())

    def terms(self, head: Tensor, metric: Tensor) -> Tensor:
        """Return source loss, transport of features, transport of labels; `left_out` comes on top."""
        source, target = (mapped(x, metric, self._unit) for x in (self._xs, self._xt))
        weight, bias = head[:-1], head[-1]
        corners = functional.one_hot(self._labels, head.shape[1]).to(head.dtype)
        proba_s, proba_t = (torch.softmax(torch.addmm(bias, x, weight), dim=1) for x in (source, target))
        rows, cols = self._rows, self._cols
        parts = proba_s[rows] - corners[rows], source[rows] - target[cols], proba_t[cols] - corners[rows]
        sums = [self._mass @ torch.linalg.vector_norm(part, dim=1) for part in parts]
        # The mean over classes does not change softmax; without it the norm is smaller.
        steepness = torch.linalg.matrix_norm(weight - weight.mean(dim=1, keepdim=True), 2) / 2
        return torch.stack([sums[0], steepness * sums[1], sums[2]]) / math.sqrt(2)

    def length(self, metric: Tensor) -> float:
        """Return the mean length of the target's features before they are scaled to length 1; 1 if they are not.

        A metric divided by it gives the same features, and slopes that do not vanish with its scale.
        """
        return float((self._xt @ metric.double()).norm(dim=1).mean().clamp_min(1e-30)) if self._unit else 1.0

    def total(self, head: Tensor, metric: Tensor) -> float:
        """Return B(w, P)."""
        return float(self.terms(head.double(), metric.double()).sum()) + self.left_out


def descend(
    bound: PlannedBound, head: Tensor, metric: Tensor, *, iterations: int, feature_weight: float
) -> tuple[Tensor, Tensor]:
    """Minimise the bound of a plan over head and metric by L-BFGS; what comes back is never worse than the start.

    `feature_weight` is a factor of the transport of features; 1 is the bound's.
    """
    factors = torch.tensor([1.0, feature_weight, 1.0], dtype=torch.float64)
    unknowns = [head.double().clone().requires_grad_(), (metric.double() / bound.length(metric)).requires_grad_()]

    def loss() -> Tensor:
        value = factors @ bound.terms(*unknowns)
        for unknown, gradient in zip(unknowns, torch.autograd.grad(value, unknowns), strict=True):
            unknown.grad = gradient
        return value.detach()

    _minimise(loss, unknowns, iterations, 1e-7, 1e-10)
    new_head, new_metric = (unknown.detach().to(head.dtype) for unknown in unknowns)
    pairs = ((head, metric), (new_head, new_metric))
    before, after = (float(factors @ bound.terms(h.double(), m.double())) for h, m in pairs)
    return (new_head, new_metric) if after <= before else (head, metric)
