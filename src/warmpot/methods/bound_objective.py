"""Training that minimises the computable part of Theorem 3.3, over the plan and the classifier in turn.

For a classifier ``w = softmax(W f + b)`` and a plan P of mass alpha, with p, q its row and column sums,

    B(w, P) = sum_i p_i l_i / alpha + sum_ij P_ij [gamma(W) ||f_i - f~_j|| + l(y_i, w(x~_j))] / alpha
              + 1/2 sum_j |1/n_t - q_j / alpha|

bounds the target loss up to L^_f, for *every* feasible plan. l is the Euclidean distance on the simplex over sqrt(2),
gamma its constant for the head (`warmpot.bounds.head_lipschitz`). Given w the tightest plan is a partial transport
problem; given a plan, which is sparse, B is differentiable in W, b and the metric under f.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.report import PlanRecord
from warmpot.bounds.theorems import BoundProblem
from warmpot.methods.refit import mapped
from warmpot.nets import Outputs

if TYPE_CHECKING:
    from scipy.sparse import csr_array


__all__ = ["PlannedBound", "descend", "tightest_plan"]

LOSS = "euclidean"


def tightest_plan(
    source: Outputs, labels: Tensor, target: Outputs, weight: Tensor, *, beta: float, feature_weight: float = 1.0
) -> tuple[csr_array, PlanRecord]:
    """Return the plan of all target mass that minimises B(w, P), and its certificate (`BoundProblem.planned`).

    Parameters
    ----------
    source, target : Outputs
        Features and logits of both domains.
    labels : (n_s,) tensor
        Class codes of the source.
    weight : (d, C) tensor
        Of the head.
    beta : float
        A source sample has capacity ``1 / (beta n_s)``.
    feature_weight : float
        Factor of the feature distances in the cost; 1 is the bound's.
    """
    proba_s, proba_t = (torch.softmax(outputs.logits.double(), dim=1) for outputs in (source, target))
    gamma = feature_weight * head_lipschitz(weight.T, LOSS).value
    problem = BoundProblem(
        "joint", source.features, labels, target.features, proba_s, proba_t, gamma=gamma, loss=LOSS
    )  # fmt: skip
    return problem.planned(1.0, beta)


class PlannedBound:
    """B(w, P) for one plan, differentiable in head and metric, in float64.

    Parameters
    ----------
    xs, xt : (n_s, d) and (n_t, d) tensors
        Both domains before the metric.
    labels : (n_s,) tensor
        Class codes of the source.
    plan : (n_s, n_t) sparse array
        Feasible; its sum is alpha.
    unit : bool
        Whether features are scaled to length 1 after the metric.
    """

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

    def total(self, head: Tensor, metric: Tensor) -> float:
        """Return B(w, P)."""
        return float(self.terms(head.double(), metric.double()).sum()) + self.left_out


def descend(
    bound: PlannedBound, head: Tensor, metric: Tensor, *, iterations: int, feature_weight: float, learn_metric: bool
) -> tuple[Tensor, Tensor]:
    """Minimise the bound of a plan over head and metric by L-BFGS; what comes back is never worse than the start.

    Parameters
    ----------
    bound : PlannedBound
    head, metric : (d + 1, C) and (d, d) tensors
        Where to begin; the last row of the head is b.
    iterations : int
    feature_weight : float
        Factor of the transport of features; 1 is the bound's.
    learn_metric : bool
        Else the metric stays as it is.

    Returns
    -------
    head, metric : tensors
        Of the dtype that came in.
    """
    factors = torch.tensor([1.0, feature_weight, 1.0], dtype=torch.float64)
    unknowns = [head.double().clone().requires_grad_(), metric.double().clone().requires_grad_(learn_metric)]
    solver = torch.optim.LBFGS(
        [unknown for unknown in unknowns if unknown.requires_grad],
        max_iter=iterations,
        tolerance_grad=1e-7,
        tolerance_change=1e-10,
        history_size=10,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        solver.zero_grad()
        value = factors @ bound.terms(*unknowns)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(closure)  # type: ignore[no-untyped-call]
    new_head, new_metric = (unknown.detach().to(head.dtype) for unknown in unknowns)
    pairs = ((head, metric), (new_head, new_metric))
    before, after = (float(factors @ bound.terms(h.double(), m.double())) for h, m in pairs)
    return (new_head, new_metric) if after <= before else (head, metric)
