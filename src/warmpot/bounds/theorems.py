"""Theorem 3.2 (features, Eq. (5)) and Theorem 3.3 (features and labels, Eq. (9)) as numbers.

With p, q the row and column sums of a plan P of mass alpha, row capacities ``1/(beta n_s)``, column capacities
``1/n_t``, and l_i the loss of source sample i, both theorems read

    L_target  <=  sum_i p_i l_i / alpha  +  k <C, P> / alpha  +  1/2 sum_j |1/n_t - q_j/alpha|  +  ideal term,

with k = 2, ``C_ij = gamma ||f_i - f~_j||`` and ideal term ``2 L_f`` in Theorem 3.2; with k = 1,
``C_ij = gamma ||f_i - f~_j|| + l(y_i, w(x~_j))`` and ideal term ``L^_f`` in Theorem 3.3 (gamma as in
`warmpot.bounds.losses`). The ideal term needs target labels and is left unknown here; see `warmpot.bounds.oracle`.

What the proofs (Appendices B and C) give beyond the statements:

- They use of the plan only that it is feasible, so the bound holds for *every* feasible plan. The sum of the first two
  terms is linear in P: its least value is reached by the plan of the cost ``k C_ij + l_i``, not of C_ij. That plan is
  the default (``plan="tightest"``); ``plan="paper"`` is the optimum of C.
- They are deterministic and hold for all alpha and beta at once. Choosing these after seeing the data costs no union
  bound. A smaller beta only loosens constraints, so source loss + transport of the tightest plan at one alpha can only
  fall with it. In Theorem 3.2 that is free, since L_f does not depend on the plan; in Theorem 3.3 its price is hidden
  in L^_f: a plan with enough freedom finds source labels that agree with any prediction.
- The third term is at most ``1 - alpha``, since ``sum_j (q_j/alpha - 1/n_t)_+ <= sum_j (q_j/alpha - q_j)``, and equal
  to it when every q_j is 0 or ``1/n_t``. In that case splitting the target loss as
  ``sum_j q_j l~_j + sum_j (1/n_t - q_j) l~_j`` and bounding the second sum by ``1 - alpha`` is tighter (ours):

      L_target  <=  sum_i p_i l_i  +  k <C, P>  +  (1 - alpha)  +  alpha * ideal term        (``form="mixed"``).

- Labels are corners of the simplex, 1 apart. In Theorem 3.2 a matched pair with ``y_i = y~_j`` has
  ``l~_j <= l_i + gamma ||f_i - f~_j||`` since g is Lipschitz, and one with ``y_i != y~_j`` has
  ``l~_j <= 1 = l(y_i, y~_j) <= L_f + gamma ||f_i - f~_j|| + L_f`` through the best head. So k = 1 is enough (ours):
  ``form="sharp"`` is the mixed form with k = 1 in both theorems. It is never above the mixed form. Continuous labels
  are not 1 apart: for the loss ``"absolute"`` the sharp form of Theorem 3.2 is the mixed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import check_choice, check_fraction, check_matrix, check_positive
from warmpot._typing import Array, FloatArray, IntArray
from warmpot.bounds._plans import PlanCost, WithUnitRow, check_given
from warmpot.bounds.lipschitz import LOSS_TOLERANCE, Lipschitz, as_lipschitz, check_slope, largest_slope
from warmpot.bounds.losses import DEFAULT_LOSS, check_both_features, get_bound_loss
from warmpot.bounds.report import BoundReport, BoundSearch, PlanRecord, Term
from warmpot.costs import PairCosts
from warmpot.errors import InputError
from warmpot.transport import Solution, certify, solve_partial, solve_partial_blocks
from warmpot.weights.formulas import estimate_beta

__all__ = ["ALPHAS", "FORMS", "PLANS", "THEOREMS", "BoundProblem", "feature_bound", "joint_bound", "tightest_bound"]

THEOREMS = {"features": "Theorem 3.2 (features)", "joint": "Theorem 3.3 (features and labels)"}
PLANS = ("tightest", "paper")
FORMS = ("paper", "mixed", "sharp")
ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
UNCHECKED = "gamma was given, and is not checked on the target: the bound is false if the head is steeper there"
FREE = "none to pay: the bound holds for every alpha and beta at once"


def feature_bound(
    source: Array,
    labels: Array,
    target: Array,
    source_proba: Array,
    target_proba: Array | None = None,
    *,
    gamma: Lipschitz | float,
    alpha: float = 1.0,
    beta: float = 1.0,
    plan: Any = "tightest",
    eps: float | None = None,
    loss: str = "tv",
    form: str = "paper",
) -> BoundReport:
    """Bound the target loss of a classifier by its source loss and the transport of features (Theorem 3.2).

    Parameters
    ----------
    source, target : (n_s, d) and (n_t, d) arrays or tensors
        Features f(x) of both domains.
    labels : (n_s,) array or tensor
        Class codes of the source samples.
    source_proba : (n_s, C) array or tensor
        Class probabilities that the head gives the source samples.
    target_proba : (n_t, C) array or tensor, optional
        Class probabilities that the head gives the target samples, to check `gamma` with.
    gamma : Lipschitz or float
        Lipschitz constant of the head with respect to the loss; see `head_lipschitz` and `module_lipschitz`. It defines
        the set of heads that the ideal term ranges over. A number of your own is refused if the predictions for
        samples that the plan matches (without `target_proba`: for two source samples) differ by more than it allows:
        the bound would not hold.
    alpha, beta : float
        In (0, 1]: mass moved, and fraction of the source that is expected to be useful.
    plan : "tightest", "paper", Solution, array or scipy sparse matrix
        See the module. A plan of your own must be feasible.
    eps : float, optional
        Use the entropic plan, which is rounded to feasible, instead of the exact one; in units of the cost.
    loss : "tv" or "euclidean"
    form : "paper", "mixed" or "sharp"
        See the module.

    Examples
    --------
    >>> source, target = np.array([[0.0], [1.0]]), np.array([[0.25], [1.0]])
    >>> proba = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> report = feature_bound(source, np.array([0, 1]), target, proba, gamma=0.5)
    >>> report["source loss"].value, report["transport"].value, report.total
    (0.25, 0.125, 0.375)
    """
    problem = BoundProblem("features", source, labels, target, source_proba, target_proba, gamma=gamma, loss=loss)
    return problem.report(alpha, beta, plan=plan, eps=eps, form=form)


def joint_bound(
    source: Array,
    labels: Array,
    target: Array,
    source_proba: Array,
    target_proba: Array,
    *,
    gamma: Lipschitz | float,
    alpha: float = 1.0,
    beta: float = 1.0,
    plan: Any = "tightest",
    eps: float | None = None,
    loss: str = "euclidean",
    form: str = "paper",
) -> BoundReport:
    """Bound the target loss by source loss and the transport of features with labels (Theorem 3.3).

    Parameters
    ----------
    source, labels, target, source_proba, alpha, beta, plan, eps, loss, form
        As in `feature_bound`.
    target_proba : (n_t, C) array or tensor
        Class probabilities that the head gives the target samples.
    gamma : Lipschitz or float
        Lipschitz constant of the head with respect to the loss: the paper's product ``zeta * gamma``. A number of your
        own is checked as in `feature_bound`.

    Returns
    -------
    BoundReport
        The transport term comes in two parts, features and labels.
    """
    problem = BoundProblem("joint", source, labels, target, source_proba, target_proba, gamma=gamma, loss=loss)
    return problem.report(alpha, beta, plan=plan, eps=eps, form=form)


def tightest_bound(
    kind: str,
    source: Array,
    labels: Array,
    target: Array,
    source_proba: Array,
    target_proba: Array | None = None,
    *,
    gamma: Lipschitz | float,
    alphas: Sequence[float] | None = None,
    betas: Sequence[float] | None = None,
    plan: str = "tightest",
    eps: float | None = None,
    loss: str | None = None,
    form: str = "paper",
) -> BoundSearch:
    """Evaluate a bound on a grid of (alpha, beta) and pick the least computable total.

    No union bound is needed: the theorems are deterministic and hold for every alpha and beta at once. A smaller
    beta never raises the computable part; its price is in the ideal term.

    Parameters
    ----------
    kind : "features" or "joint"
        `feature_bound` or `joint_bound`, whose arguments the others are.
    alphas : sequence of float, optional
        Default: .5, .6, ... .95, 1 and, unless the form is the paper's, the exactly best one (`best_alpha`).
    betas : sequence of float, optional
        Default: 1 and, when `target_proba` is given, the one estimated from its predictions (`estimate_beta`).
    loss : str, optional
        Default: that of the theorem.
    """
    for name, grid in (("alphas", alphas), ("betas", betas)):
        if grid is not None and len(grid) == 0:
            raise InputError(name, got="nothing", allowed="at least one number in (0, 1]", remedy="Pass one.")
    loss = DEFAULT_LOSS.get(kind, "tv") if loss is None else loss
    problem = BoundProblem(kind, source, labels, target, source_proba, target_proba, gamma=gamma, loss=loss)
    if betas is None:
        outputs = None if target_proba is None else check_matrix("target_proba", target_proba)
        betas = sorted({1.0} if outputs is None else {1.0, estimate_beta(outputs, problem.labels)})

    def grid_of(beta: float) -> list[float]:
        best = [] if check_choice("form", form, FORMS) == "paper" else [problem.best_alpha(beta, form=form)]
        return sorted({*ALPHAS, *best})

    curve = tuple(
        problem.report(alpha, beta, plan=plan, eps=eps, form=form)
        for beta in betas
        for alpha in (grid_of(beta) if alphas is None else alphas)
    )
    return BoundSearch(min(curve, key=lambda report: report.total), curve)


class BoundProblem:
    """One classifier on one pair of samples, ready for bounds at many (alpha, beta).

    Parameters
    ----------
    kind : "features" or "joint"
        Theorem 3.2 or 3.3.
    source, labels, target, source_proba, target_proba, gamma, loss
        As in `feature_bound` and `joint_bound`.
    costs : PairCosts, optional
        Of `source` and `target`, to share their distances among problems.
    """

    def __init__(
        self,
        kind: str,
        source: Array,
        labels: Array,
        target: Array,
        source_proba: Array,
        target_proba: Array | None = None,
        *,
        gamma: Lipschitz | float,
        loss: str,
        costs: PairCosts | None = None,
    ) -> None:
        self.kind, self.loss = check_choice("kind", kind, THEOREMS), get_bound_loss(loss)
        self.lipschitz = as_lipschitz(gamma, loss)
        self.source, self.target = check_both_features(source, target)
        n, m = self.shape = (len(self.source), len(self.target))
        self.source_proba = proba = self.loss.check_predictions("source_proba", source_proba, n)
        self.labels = self.loss.check_labels("labels", labels, n, proba.shape[1])
        self.target_proba: FloatArray | None = None
        self.class_losses: FloatArray | None = None  # of every class against the prediction on every target sample
        if kind == "joint" or target_proba is not None:
            self.target_proba = self.loss.check_predictions("target_proba", target_proba, m, proba.shape[1])
            if kind == "joint" and not self.loss.continuous:
                self.class_losses = self.loss.of_pairs(np.arange(proba.shape[1]), self.target_proba)
        self.source_losses = self.loss.of_labels(proba, self.labels)  # the l_i of the module's formula
        self.factor = 2 if kind == "features" else 1  # its k, in the paper's form
        self.costs = PairCosts(self.source, self.target) if costs is None else costs

    def report(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        *,
        plan: Any = "tightest",
        eps: float | None = None,
        form: str = "paper",
    ) -> BoundReport:
        """Return the bound at one (alpha, beta); the arguments are those of `feature_bound`."""
        alpha, beta = check_fraction("alpha", alpha), check_fraction("beta", beta)
        scale, factor = self.coefficients(alpha, form)
        matrix, record = self.planned(alpha, beta, plan=plan, eps=eps, form=form)
        notes = self._check_constant(matrix)
        p, q = np.asarray(matrix.sum(axis=1)), np.asarray(matrix.sum(axis=0))
        left_out = 0.5 * float(np.abs(1.0 / q.size - q / alpha).sum()) if form == "paper" else max(0.0, 1.0 - alpha)
        terms = (
            Term("source loss", scale * float(p @ self.source_losses), "loss on the source, weighted by the plan"),
            *self.transport_terms(matrix, scale, factor),
            Term("target left out", left_out, "target mass the plan does not match or matches unevenly"),
            self._ideal_term(alpha, form),
        )
        theorem, loss = THEOREMS[self.kind], self.loss.name
        extra: dict[str, Any] = {"form": form, "union_bound": FREE, "notes": notes, "p": p, "q": q}
        return BoundReport(theorem, terms, alpha, beta, loss, self.lipschitz, record, **extra)

    def coefficients(self, alpha: float, form: str) -> tuple[float, int]:
        """Return what a form multiplies source loss and transport with, and the k of the transport."""
        scale = 1.0 / alpha if check_choice("form", form, FORMS) == "paper" else 1.0
        return scale, 1 if form == "sharp" and not self.loss.continuous else self.factor

    def best_alpha(self, beta: float = 1.0, *, form: str = "sharp") -> float:
        """Return the alpha of the smallest total in the mixed or the sharp form; at least what one pair moves.

        There a target sample left out costs 1 per unit of mass, so the best plan of any mass moves whatever costs less:
        one transport of mass 1 with one more source sample, of capacity 1 and cost 1 to every target sample.
        """
        solution = self._best_of_any_mass(beta, form)
        n, m = self.shape
        least = min(1.0 / m, 1.0 / (beta * n))  # what one pair can move
        return min(max(1.0 - float(solution.p[n]), least), 1.0)

    def prices(self, beta: float = 1.0, *, whole: bool = False) -> FloatArray:
        """Return what a unit of the capacity of each source sample is worth, in the sharp form at the best alpha.

        These are the dual variables of that problem; with `whole`, of the one at alpha 1. A new target sample is
        matched at the least cost plus price; see `warmpot.bounds.fresh`.
        """
        if whole:
            solution = self._solved(PlanCost(self, True, self.coefficients(1.0, "sharp")[1]), 1.0, beta)
        else:
            solution = self._best_of_any_mass(beta, "sharp")
        return np.maximum(np.asarray(solution.potentials.u, np.float64)[: self.shape[0]], 0.0)

    def _solved(self, cost: PlanCost, alpha: float, beta: float) -> Solution[Any]:
        n, m = self.shape
        a, b = np.full(n, 1.0 / (check_fraction("beta", beta) * n)), np.full(m, 1.0 / m)
        return solve_partial_blocks(cost, a=a, b=b, mass=alpha, progress_bar=False, throw=False)

    def _best_of_any_mass(self, beta: float, form: str) -> Solution[Any]:
        n = self.shape[0]
        _, factor = self.coefficients(1.0, check_choice("form", form, FORMS[1:]))
        capacity = np.append(np.full(n, 1.0 / (check_fraction("beta", beta) * n)), 1.0)
        cost = WithUnitRow(PlanCost(self, True, factor))
        return solve_partial_blocks(cost, a=capacity, mass=1.0, progress_bar=False, throw=False)

    def label_block(self, rows: IntArray) -> FloatArray:
        """Return the losses of source labels against the predictions on all target samples."""
        if self.class_losses is not None:
            block: FloatArray = self.class_losses[self.labels[rows]]
            return block
        assert self.target_proba is not None
        return self.loss.of_pairs(self.labels[rows], self.target_proba)

    def matched_label_losses(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Return the losses of source labels against the predictions on matched target samples."""
        if self.class_losses is not None:
            losses: FloatArray = self.class_losses[self.labels[rows], cols]
            return losses
        assert self.target_proba is not None
        return self.loss.of_labels(self.target_proba[cols], self.labels[rows])

    def _ideal_term(self, alpha: float, form: str) -> Term:
        name, what = {
            "features": ("2 L_f", "worst loss of the best head on all labelled points, twice"),
            "joint": ("L^_f", "what the best head loses on target and source at once"),
        }[self.kind]
        if form != "paper" and alpha < 1.0:
            name, what = f"alpha * {name}", f"{what}, times alpha"
        return Term(name, None, f"{what}; needs target labels", computable=False)

    def transport_terms(self, plan: csr_array, scale: float, factor: int) -> tuple[Term, ...]:
        """Return the terms of the distance that a plan moves; `scale` and `factor` as in `coefficients`."""
        entries = plan.tocoo()
        rows, cols, mass = entries.row, entries.col, entries.data
        near = self.lipschitz.value * float(mass @ self.matched_distances(rows, cols))
        if self.kind == "features":
            times = f"times {'2 ' if factor == 2 else ''}gamma"
            return (Term("transport", scale * factor * near, f"distance between matched features, {times}"),)
        unlike = float(mass @ self.matched_label_losses(rows, cols))
        return (
            Term("transport, features", scale * near, "distance between matched features, times gamma"),
            Term("transport, labels", scale * unlike, "source labels against predictions on the matched target"),
        )

    def matched_distances(self, rows: IntArray, cols: IntArray) -> FloatArray:
        """Return the distances of matched pairs, computed from differences: no product form, no cancellation."""
        distances = np.empty(rows.size)
        step = max(1, 2**22 // self.source.shape[1])
        for k in range(0, rows.size, step):
            part = slice(k, k + step)
            distances[part] = np.linalg.norm(self.source[rows[part]] - self.target[cols[part]], axis=1)
        return distances

    def _check_constant(self, plan: csr_array) -> tuple[str, ...]:
        """Refuse a constant that is smaller than a slope of the head: the bound would not hold.

        The proofs use the constant between matched samples only, so these are compared wherever the constant comes
        from: that of the weights is too small for probabilities at another temperature. If one of the pairs is
        steeper, the error names a value that is large enough for every plan. Without predictions for the target, a
        constant of the user's own is compared between source samples, and a note is returned.
        """
        if self.target_proba is None:
            if self.lipschitz.loss is not None:  # computed from the head
                return ()
            check_slope(self.lipschitz, self._largest_slope)
            return (UNCHECKED,)
        pairs = plan.tocoo()
        far = self.matched_distances(pairs.row, pairs.col)
        unlike = self.loss.between(self.source_proba[pairs.row], self.target_proba[pairs.col])
        if not (unlike <= self.lipschitz.value * far + LOSS_TOLERANCE).all():
            check_slope(self.lipschitz, self._largest_slope)
        return ()

    @cached_property
    def _largest_slope(self) -> float:
        if self.target_proba is None:
            return largest_slope(self.loss, self.source, self.source_proba, self.source, self.source_proba)
        return largest_slope(self.loss, self.source, self.source_proba, self.target, self.target_proba)

    def planned(
        self, alpha: float, beta: float, *, plan: Any = "tightest", eps: float | None = None, form: str = "paper"
    ) -> tuple[csr_array, PlanRecord]:
        """Solve for the plan, or check the one that was given."""
        n, m = self.shape
        a, b = np.full(n, 1.0 / (beta * n)), np.full(m, 1.0 / m)
        if not isinstance(plan, str):
            return check_given(plan, a, b, alpha)
        scale, k = self.coefficients(alpha, form)
        tightest = check_choice("plan", plan, PLANS) == "tightest"
        aim = "of least source loss + transport" if tightest else "of least transport"
        unit = scale * (1 if tightest else k)  # of the plan's cost in the bound
        cost = PlanCost(self, tightest, k)
        if eps is None:
            solution = self._solved(cost, alpha, beta)
            # A plan that misses its tolerance is still feasible, so its bound holds; the status shows it.
            record = PlanRecord(f"exact, {aim}", solution.status.name, unit * solution.gap, solution.residuals.worst)
            return solution.plan, record
        check_positive("eps", eps, remedy="Pass a positive regularisation, or None for the exact plan.")
        matrix = cost.block(np.arange(n))
        solution = solve_partial(matrix, a, b, mass=alpha, eps=eps, throw=False)
        proof = certify(solution.plan, matrix, a, b, alpha, potentials=solution.potentials)
        kind = f"entropic (eps {eps:g}) rounded to feasible, {aim}"
        return csr_array(solution.plan), PlanRecord(kind, solution.status.name, unit * proof.gap, proof.residuals.worst)
