"""The (alpha, beta) of the tightest bound; the search costs nothing, as the theorems hold for all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warmpot._checks import check_choice, check_matrix
from warmpot._typing import Array
from warmpot.bounds.lipschitz import Lipschitz
from warmpot.bounds.losses import DEFAULT_LOSS
from warmpot.bounds.report import BoundReport
from warmpot.bounds.theorems import FORMS, BoundProblem
from warmpot.errors import InputError
from warmpot.weights import estimate_beta

__all__ = ["ALPHAS", "BoundSearch", "tightest_bound"]

ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class BoundSearch:
    """The bounds of a grid.

    Attributes
    ----------
    best : BoundReport
        The one of least computable total.
    curve : tuple of BoundReport
        All of them, by beta, then alpha.
    """

    best: BoundReport
    curve: tuple[BoundReport, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the best report and the curve as rows, ready for JSON."""
        return {"best": self.best.to_dict(), "curve": [_row(report) for report in self.curve]}

    def __str__(self) -> str:
        names = [term.name for term in self.best.terms if term.computable]
        widths = [max(len(name), 7) for name in names]
        head = "  ".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
        lines = [f"  alpha   beta  {head}    total"]
        for report in self.curve:
            values = (report[name].value or 0.0 for name in names)
            body = "  ".join(f"{value:>{width}.4f}" for value, width in zip(values, widths, strict=True))
            mark = " <" if report is self.best else ""
            lines.append(f"{report.alpha:7.3f}{report.beta:7.3f}  {body}  {report.total:7.4f}{mark}")
        return "\n".join(lines)


def _row(report: BoundReport) -> dict[str, Any]:
    terms = {term.name: term.value for term in report.terms if term.computable}
    return {"alpha": report.alpha, "beta": report.beta, "terms": terms, "total": report.total}


def _alphas(problem: BoundProblem, beta: float, form: str) -> list[float]:
    if check_choice("form", form, FORMS) == "paper":
        return list(ALPHAS)
    return sorted({*ALPHAS, problem.best_alpha(beta, form=form)})


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

    Returns
    -------
    BoundSearch
    """
    for name, grid in (("alphas", alphas), ("betas", betas)):
        if grid is not None and len(grid) == 0:
            raise InputError(name, got="nothing", allowed="at least one number in (0, 1]", remedy="Pass one.")
    loss = DEFAULT_LOSS.get(kind, "tv") if loss is None else loss
    labelled = target_proba if kind == "joint" else None
    problem = BoundProblem(kind, source, labels, target, source_proba, labelled, gamma=gamma, loss=loss)
    if betas is None:
        outputs = None if target_proba is None else check_matrix("target_proba", target_proba)
        betas = sorted({1.0} if outputs is None else {1.0, estimate_beta(outputs, problem.labels)})
    curve = tuple(
        problem.report(alpha, beta, plan=plan, eps=eps, form=form)
        for beta in betas
        for alpha in (alphas if alphas is not None else _alphas(problem, beta, form))
    )
    return BoundSearch(min(curve, key=lambda report: report.total), curve)
