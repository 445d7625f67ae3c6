"""Reports of bounds: every term by name, its meaning, and the certificate of the plan."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from warmpot._typing import FloatArray
from warmpot.bounds.lipschitz import Lipschitz

__all__ = ["BoundReport", "BoundSearch", "PlanRecord", "Term"]

PAC_BAYES = "PAC-Bayes"
"""What the theorem of a report begins with that follows from Lemma 3.4."""


@dataclass(frozen=True)
class Term:
    """One summand of a bound; `computable` if it is known without target labels."""

    name: str
    value: float | None  # what it adds to the bound, factors included; None while unknown
    meaning: str
    computable: bool = True


@dataclass(frozen=True)
class PlanRecord:
    """Which plan a bound was written with, and how good it is proven to be.

    Attributes
    ----------
    kind : str
        Where the plan comes from.
    status : str
        Name of the solver's `Status`; "GIVEN" for a plan that the user gave.
    gap : float or None
        Proven distance of the plan's cost from the least one, in units of the bound: how much a better plan could
        still take off the transport and source terms. None for a given plan, which is used as it is.
    residual : float
        Worst relative violation of a constraint; within 1e-12, or the plan would have been refused.
    """

    kind: str
    status: str
    gap: float | None
    residual: float


@dataclass(frozen=True)
class BoundReport:
    """An upper bound of the target loss, term by term.

    Attributes
    ----------
    theorem : str
        Which bound, for example "Theorem 3.2 (features)".
    terms : tuple of Term
    alpha, beta : float
        Mass moved, and fraction of the source that is expected to be useful.
    loss : str
        Name of the loss, see `warmpot.bounds.losses`.
    lipschitz : Lipschitz
        Constant of the head with respect to the loss, and where it comes from.
    plan : PlanRecord
    form : "paper", "mixed" or "sharp"
        See `warmpot.bounds.theorems`.
    union_bound : str
        The price of choosing alpha, beta or anything else after seeing the data.
    confidence : float or None
        Probability with which the bound holds; None if it always does.
    target_loss : float or None
        The true loss on the target sample, if its labels were given.
    total_refined : float or None
        The tighter form of the bound that labels allow (see `warmpot.bounds.oracle`).
    guess : float or None
        An estimate of the term that needs labels, without any guarantee.
    notes : tuple of str
    p, q : arrays or None
        Source and target weights of the plan.
    """

    theorem: str
    terms: tuple[Term, ...]
    alpha: float
    beta: float
    loss: str
    lipschitz: Lipschitz
    plan: PlanRecord
    form: str = "paper"
    union_bound: str = "none"
    confidence: float | None = None
    target_loss: float | None = None
    total_refined: float | None = None
    guess: float | None = None
    notes: tuple[str, ...] = ()
    p: FloatArray | None = field(default=None, repr=False, compare=False)
    q: FloatArray | None = field(default=None, repr=False, compare=False)

    @property
    def total(self) -> float:
        """Sum of the computable terms; a bound of the target loss up to the term that needs labels."""
        return sum(term.value or 0.0 for term in self.terms if term.computable)

    @property
    def ideal(self) -> float | None:
        """Sum of the terms that need target labels, when known."""
        values = [term.value for term in self.terms if not term.computable]
        return None if any(value is None for value in values) else sum(value or 0.0 for value in values)

    @property
    def total_with_labels(self) -> float | None:
        """The whole bound, when the labels were given."""
        return None if self.ideal is None else self.total + self.ideal

    @property
    def needs_fixed_features(self) -> bool:
        """Whether it holds only for features that do not depend on the target sample."""
        return self.theorem.startswith(PAC_BAYES)

    @property
    def vacuous(self) -> bool | None:
        """Whether the bound is at least 1, as every loss is below 1 anyway; None while that is undecided.

        A computable part of 1 or more decides it. One below 1 does not: the term that needs labels may be anything.
        """
        known = self.total_with_labels if self.total_refined is None else self.total_refined
        return True if self.total >= 1.0 else None if known is None else known >= 1.0

    @property
    def verdict(self) -> str:
        """What is known about it: "vacuous", "non-vacuous" or "undecided"."""
        return {True: "vacuous", False: "non-vacuous", None: "undecided"}[self.vacuous]

    @property
    def dominant(self) -> Term:
        """The largest computable term."""
        return max((term for term in self.terms if term.computable), key=lambda term: term.value or 0.0)

    def __getitem__(self, name: str) -> Term:
        for term in self.terms:
            if term.name == name:
                return term
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the weights, ready for JSON."""
        names = (
            "theorem alpha beta loss form terms total ideal guess total_with_labels total_refined target_loss vacuous"
        )
        keys = (*names.split(), "verdict", "dominant", "lipschitz", "plan", "union_bound", "confidence", "notes")
        return {key: getattr(self, key) for key in keys} | {
            "terms": [vars(term).copy() for term in self.terms],
            "dominant": self.dominant.name,
            "lipschitz": vars(self.lipschitz).copy(),
            "plan": vars(self.plan).copy(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        rows = [(term.name, term.value, term.meaning) for term in self.terms if term.computable]
        verdict = f"mostly {self.dominant.name}" + (", vacuous" if self.total >= 1 else "")
        verdict += ", undecided: it bounds nothing without the next term" if self.vacuous is None else ""
        rows.append(("total", self.total, f"what is known without target labels: {verdict}"))
        rows += [(f"+ {term.name}", term.value, term.meaning) for term in self.terms if not term.computable]
        if self.total_with_labels is not None:
            rows.append(("total with labels", self.total_with_labels, self.verdict))
        if self.total_refined is not None:
            rows.append(("refined total", self.total_refined, "the proof's tighter form, with labels"))
        if self.target_loss is not None:
            meaning = "what the bound is a bound of" if self.confidence is None else "of these samples, by their labels"
            rows.append(("true target loss", self.target_loss, meaning))
        width = max(len(name) for name, _, _ in rows)
        gap = "" if self.plan.gap is None else f", gap {self.plan.gap:.1g}"
        form = "" if self.form == "paper" else f", {self.form} form"
        lines = [
            f"{self.theorem}: alpha {self.alpha:.4g}, beta {self.beta:.4g}, loss {self.loss}{form}",
            *(f"  {name:<{width}}  {_number(value)}  {meaning}".rstrip() for name, value, meaning in rows),
            f"  gamma {self.lipschitz.value:.4g} ({self.lipschitz.origin})",
            f"  plan: {self.plan.kind} ({self.plan.status}{gap}, residual {self.plan.residual:.1g})",
            f"  union bound: {self.union_bound}",
        ]
        if self.confidence is not None:
            lines.append(f"  holds with probability {self.confidence:g}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:7.4f}"


@dataclass(frozen=True)
class BoundSearch:
    """The bounds of a grid: the one of least computable total, and all of them, by beta, then alpha."""

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
