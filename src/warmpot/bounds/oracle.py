"""The terms that need target labels; the only module of this layer that receives them.

L_f and L^_f are minima over all heads of constant at most gamma. Any one such head g' gives an upper bound of both, so
what is reported never understates the paper's term:

- Theorem 3.2: ``L_f <= max over all labelled points of l(g'(f(x)), y)``.
- Theorem 3.3: ``L^_f = min T + Xi = min (S + T) - min S <= S(g') + T(g')``, with S and T the losses on source and
  target weighted by ``p/alpha`` and ``q/alpha`` (Eqs. (13) and (63); ``min S >= 0``).

Heads tried: the trained one, the constant one, and affine heads fitted to the labels of both
domains under the constraint ``constant <= gamma``, which holds by construction.

Both proofs give more for a given g' (Lemma A.4, and Eq. (62) before the last step), reported as
`BoundReport.total_refined`. With ``R = S(g') + T(g')``:

- Theorem 3.2: ``2 L_f`` may be replaced by R, an average where L_f is a maximum.
- Theorem 3.3: the source loss of w may be dropped: ``L_target <= <C, P>/alpha + TV + R``.

Both hold in every form of `warmpot.bounds.theorems`, with R times alpha in the mixed and the sharp one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import check_count
from warmpot._typing import Array, FloatArray, IntArray
from warmpot.bounds.lipschitz import head_lipschitz
from warmpot.bounds.losses import BoundLoss, SimplexLoss, check_both_features, get_bound_loss
from warmpot.bounds.report import BoundReport
from warmpot.bounds.theorems import THEOREMS, BoundProblem
from warmpot.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["with_labels", "with_plan_labels"]

OWN = "that head is the learnt one: the term contains the true loss, and that the bound is above it shows nothing"
SHARPNESS = 0.05  # temperature of the smooth maximum that a head for L_f is fitted to


def with_labels(
    report: BoundReport,
    source: Array,
    labels: Array,
    target: Array,
    source_proba: Array,
    target_proba: Array,
    target_labels: Array,
    *,
    iterations: int = 50,
) -> BoundReport:
    """Complete a bound with its ideal term and the true target loss. For evaluation only.

    Parameters
    ----------
    report : BoundReport
        Of `feature_bound` or `joint_bound`, for the same samples.
    source, labels, target, source_proba, target_proba
        As in `joint_bound`.
    target_labels : (n_t,) array or tensor
        Class codes of the target samples.
    iterations : int
        Of L-BFGS for each fitted head; 0 tries only the trained and the constant head.

    Returns
    -------
    BoundReport
        With values for the ideal term (an upper bound of the paper's), `target_loss` and `total_refined`.
    """
    if not report.theorem.startswith(tuple(THEOREMS.values())) or report.p is None or report.q is None:
        allowed = "a report of feature_bound or joint_bound"
        raise InputError("report", got=report.theorem, allowed=allowed, remedy="Pass one of these.")
    loss, first = get_bound_loss(report.loss), report.theorem.startswith(THEOREMS["features"])
    n, m = len(report.p), len(report.q)
    xs, xt = check_both_features(source, target)
    for name, points, count in (("source", xs, n), ("target", xt, m)):
        if len(points) != count:
            remedy = "Pass the samples of the report."
            raise InputError(name, got=f"{len(points)} rows", allowed=f"{count}, as the report", remedy=remedy)
    x = np.concatenate([xs, xt])
    known = loss.check_predictions("source_proba", source_proba, n)
    width = known.shape[1]
    proba = np.concatenate([known, loss.check_predictions("target_proba", target_proba, m, width)])
    sides = (("labels", labels, n), ("target_labels", target_labels, m))
    y = np.concatenate([loss.check_labels(name, values, count, width) for name, values, count in sides])
    weights = np.concatenate([report.p, report.q]) * (1.0 / report.alpha if report.form == "paper" else 1.0)
    iterations, gamma = check_count("iterations", iterations, 0), report.lipschitz.value
    if isinstance(loss, SimplexLoss):
        others = _Heads(x, y, weights, width, gamma, loss).losses(iterations, worst=first)
    else:
        others = _linear_regressors(x, y, weights, gamma, loss)
    losses = [loss.of_labels(proba, y), *others]
    means, worst = [float(weights @ of_head) for of_head in losses], [float(of_head.max()) for of_head in losses]
    refined = min(means)
    factor = 2.0 * (1.0 if report.form == "paper" else report.alpha)
    ideal = factor * min(worst) if first else refined
    notes = ["the term that needs labels is bounded from above by the best head found"]
    if int(np.argmin(worst if first else means)) == 0:
        notes.append(OWN)
    return replace(
        report,
        terms=tuple(term if term.computable else replace(term, value=ideal) for term in report.terms),
        target_loss=float(losses[0][n:].mean()),
        total_refined=report.total + refined - (0.0 if first else report["source loss"].value or 0.0),
        notes=(*report.notes, *notes),
    )


def with_plan_labels(report: BoundReport, problem: BoundProblem, plan: csr_array, target_labels: Array) -> BoundReport:
    """Complete a plan-label bound with the mass M that joins different classes, and the true loss. For evaluation only.

    Parameters
    ----------
    report : BoundReport
        Of `plan_label_bound` or `fresh_bounds`.
    problem, plan
        What it was computed from.
    target_labels : (n_t,) array or tensor
        Labels of the target samples.
    """
    assert problem.target_proba is not None, "plan labels are those of a joint problem"
    loss, (_, m) = problem.loss, problem.shape
    y, entries = loss.check_labels("target_labels", target_labels, m, problem.target_proba.shape[1]), plan.tocoo()
    first, second = problem.labels[entries.row], y[entries.col]
    unlike = np.minimum(1.0, np.abs(first - second)) if loss.continuous else (first != second).astype(np.float64)
    terms = tuple(t if t.computable else replace(t, value=float(entries.data @ unlike)) for t in report.terms)
    return replace(report, terms=terms, target_loss=float(loss.of_labels(problem.target_proba, y).mean()))


def _linear_regressors(
    x: FloatArray, y: FloatArray, weights: FloatArray, gamma: float, loss: BoundLoss
) -> list[FloatArray]:
    """Losses at every point of the best constant, and of a least-squares fit made no steeper than gamma."""
    share, centred = weights / weights.sum(), x - x.mean(axis=0)
    root = np.sqrt(share)[:, None]
    slope = np.linalg.lstsq(root * centred, root[:, 0] * (y - share @ y), rcond=None)[0]
    slope *= min(1.0, gamma / max(float(np.linalg.norm(slope)), 1e-300)) * (1.0 - 1e-12)
    found = []
    for values in (np.zeros(len(y)), centred @ slope):
        order = np.argsort(y - values)
        middle = order[min(int(np.searchsorted(np.cumsum(share[order]), 0.5)), len(y) - 1)]
        found.append(loss.of_labels((values + (y - values)[middle])[:, None], y))
    return found


class _Heads:
    """Affine heads of constant at most gamma, fitted to labelled points.

    Centring the points and one common scale leave the set of heads as it is and condition the fit.
    """

    def __init__(
        self, x: FloatArray, y: IntArray, weights: FloatArray, n_classes: int, gamma: float, loss: SimplexLoss
    ) -> None:
        centred = x - x.mean(axis=0)
        size = float(np.sqrt(np.square(centred).sum(axis=1).mean())) or 1.0
        self.x, self.y, self.weights, self.n_classes = centred / size, y, weights / weights.sum(), n_classes
        self.gamma, self.loss = gamma * size, loss

    def losses(self, iterations: int, worst: bool) -> list[FloatArray]:
        """Losses at every point of the constant head and, with any iterations, of the fitted ones."""
        heads = [np.zeros((self.n_classes, self.x.shape[1] + 1))]
        if iterations:
            heads += [np.asarray(head, np.float64) for head in self._fitted(iterations, worst)]
        return [self.loss.of_labels(_softmax(self._allowed(head), self.x), self.y) for head in heads]

    def _allowed(self, head: FloatArray) -> FloatArray:
        """Scale a head down until its constant is at most gamma, also after rounding."""
        constant = head_lipschitz(head[:, :-1], self.loss.name).value
        factor = np.ones(head.shape[1])
        factor[:-1] = 1.0 if constant <= self.gamma else self.gamma / constant * (1.0 - 1e-12)
        return head * factor

    def _fitted(self, iterations: int, worst: bool) -> list[Tensor]:
        """Fit ``W = V min(1, gamma / constant(V))`` to cross-entropy, and from there to mean and worst loss."""
        import torch

        # float32 halves the time; the losses of the fitted heads are computed in float64 afterwards.
        x, y, every = torch.from_numpy(self.x).float(), torch.from_numpy(self.y), torch.arange(len(self.y))
        weights = torch.from_numpy(self.weights).float()

        def logs(head: Tensor) -> Tensor:
            V = head[:, :-1]
            stretch = (self.gamma / self.loss.smooth_head_constant(V).clamp_min(1e-30)).clamp_max(1.0)
            return torch.log_softmax(torch.addmm(head[:, -1], x, stretch * V.T), dim=1)

        def losses(head: Tensor) -> Tensor:
            return self.loss.smooth_of_labels(logs(head).exp(), y)

        start = _class_means(self.x, self.y, self.n_classes)
        entropy = _minimise(lambda head: -(weights @ logs(head)[every, y]), start, iterations)
        heads = [entropy, _minimise(lambda head: weights @ losses(head), entropy, iterations)]
        if worst:
            sharp = _minimise(lambda head: torch.logsumexp(losses(head) / SHARPNESS, dim=0), entropy, iterations)
            heads.append(sharp)
        return heads


def _softmax(head: FloatArray, x: FloatArray) -> FloatArray:
    logits = x @ head[:, :-1].T + head[:, -1]
    proba: FloatArray = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    return proba


def _class_means(x: FloatArray, y: IntArray, n_classes: int) -> Tensor:
    """Class means as a first head."""
    import torch

    sums = np.zeros((n_classes, x.shape[1] + 1))
    np.add.at(sums[:, :-1], y, x)
    sums /= np.maximum(np.bincount(y, minlength=n_classes), 1)[:, None]
    sums[:, :-1] += 1e-6 * np.eye(n_classes, x.shape[1])  # never all equal: a norm has no gradient at 0
    return torch.from_numpy(sums).float()


def _minimise(objective: Callable[[Tensor], Tensor], start: Tensor, iterations: int) -> Tensor:
    import torch

    head = start.clone().requires_grad_()
    solver = torch.optim.LBFGS([head], max_iter=iterations, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        value = objective(head)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    solver.step(closure)  # type: ignore[no-untyped-call]
    fitted = head.detach()
    return fitted if bool(torch.isfinite(fitted).all()) else start
