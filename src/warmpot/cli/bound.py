"""``warmpot bound``: what can be proven of a finished run on its target."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot._files import replacing
from warmpot.cli._data_files import remembered_files
from warmpot.cli._shared import complain, messages, one_line, show
from warmpot.errors import InputError, explain

if TYPE_CHECKING:
    from warmpot._typing import FloatArray, IntArray
    from warmpot.bounds import BoundReport, BoundSearch
    from warmpot.data import Truth

__all__ = ["bound"]

NOTHING_PROVEN = 0.995
"""A bound from here on says as little as 1 does."""


@dataclass(frozen=True)
class _Classifier:
    """A run on its data, as the bounds take it."""

    source: FloatArray
    labels: IntArray
    target: FloatArray
    source_proba: FloatArray
    target_proba: FloatArray
    weight: FloatArray
    bias: FloatArray
    saw_target: bool

    @property
    def points(self) -> tuple[Any, ...]:
        return self.source, self.labels, self.target, self.source_proba, self.target_proba


def bound(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `warmpot fit` wrote.")],
    source: Annotated[Path | None, typer.Argument(metavar="[SOURCE]", help="Its files, if they moved.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="[TARGET]")] = None,
    alpha: Annotated[float | None, typer.Option(help="Mass to move. [default: the tightest]")] = None,
    beta: Annotated[float | None, typer.Option(help="Share of the source. [default: the tightest of two]")] = None,
    delta: Annotated[float, typer.Option(help="Probability with which the PAC-Bayes bound may fail.")] = 0.05,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the files. [default: RUN]")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Bound the target loss of a finished RUN, term by term, without target labels.

    Prints the terms and writes bound.json and bound.png. Target labels, if the file of the target has any, only add
    the terms that nobody can compute without, and the true loss.
    """
    data = remembered_files(run, source, target, "RUN")
    folder = run if out is None else out
    if not folder.is_dir():
        remedy = f"Make it first: mkdir -p '{folder}'"
        raise InputError(explain("--out", got=str(folder), allowed="a folder that exists", remedy=remedy))
    with messages(not quiet):
        if not quiet:
            complain(f"reading {data.source} and {data.target}", "dim")
        try:
            task, truth = data.read()
        except InputError as error:
            raise InputError(one_line(error)) from error
        classifier = _of_run(run, task)
        searches = _searched(classifier, alpha, beta)
        reports = {name: search.best for name, search in searches.items()}
        reports["PAC-Bayes"] = _pac_bayes(classifier, reports["Theorem 2"], delta)
        if truth is not None and truth.known.all() and len(truth.yt):
            reports = _with_labels(reports, classifier, truth)
    _write(folder, reports, searches)
    if not quiet:
        _tell(reports, folder)


def _of_run(run: Path, task: Any) -> _Classifier:
    import torch

    from warmpot.train import Predictor, load_config

    predictor, config = Predictor.load(run), load_config(file=run / "config.yaml")
    if not predictor.classes:
        remedy = "The theorems need a loss that is a metric with values in [0, 1]."
        raise InputError(explain(str(run), got="a run on real labels", allowed="a run on classes", remedy=remedy))
    if predictor.classes != task.classes or predictor.width != task.width:
        got, remedy = "a run on other classes or features", "Name the files that it was trained on."
        raise InputError(explain(str(run), got=got, allowed="a run on these files", remedy=remedy))
    source, target = predictor.outputs(task.xs, source=True), predictor.outputs(task.xt)
    head = predictor.network.head
    return _Classifier(
        source.features.numpy(),
        task.ys,
        target.features.numpy(),
        torch.softmax(source.logits, dim=1).numpy(),
        torch.softmax(target.logits, dim=1).numpy(),
        head.weight.detach().double().numpy(),
        head.bias.detach().double().numpy(),
        saw_target=config.make_method().uses_target,
    )


def _searched(classifier: _Classifier, alpha: float | None, beta: float | None) -> dict[str, BoundSearch]:
    """Both theorems as the paper has them, and in the sharper form that their proofs give.

    Where a sharp bound is vacuous it is least with no mass moved at all, which says nothing: all of it is moved then.
    """
    from warmpot.bounds import head_lipschitz, tightest_bound

    grid: dict[str, Any] = {
        "alphas": None if alpha is None else [alpha],
        "betas": None if beta is None else [beta],
    }
    found = {}
    for name, kind, form in (
        ("Theorem 1", "features", "paper"),
        ("Theorem 1, sharp", "features", "sharp"),
        ("Theorem 2", "joint", "paper"),
        ("Theorem 2, sharp", "joint", "sharp"),
    ):
        gamma = head_lipschitz(classifier.weight, "tv" if kind == "features" else "euclidean")
        search = tightest_bound(kind, *classifier.points, gamma=gamma, form=form, **grid)
        if form == "sharp" and search.best.total >= NOTHING_PROVEN:
            whole = [report for report in search.curve if report.alpha == 1.0] or [search.best]
            search = replace(search, best=min(whole, key=lambda report: report.total))
        found[name] = search
    return found


def _pac_bayes(classifier: _Classifier, joint: BoundReport, delta: float) -> BoundReport:
    """Bound the loss on new target samples, with the prior of no data: the run does not hold its source-only head."""
    from warmpot.bounds import pac_bayes_bound

    return pac_bayes_bound(
        classifier.source, classifier.labels, classifier.target, classifier.weight, classifier.bias,
        alpha=joint.alpha, beta=joint.beta, form="sharp", features_saw_target=classifier.saw_target,
        delta=0.8 * delta, delta_mc=0.2 * delta,
    )  # fmt: skip


def _with_labels(reports: dict[str, BoundReport], classifier: _Classifier, truth: Truth) -> dict[str, BoundReport]:
    """Add what needs target labels; evaluation only."""
    from warmpot.bounds import with_labels

    def completed(report: BoundReport) -> BoundReport:
        return with_labels(
            report, classifier.source, classifier.labels, classifier.target, classifier.source_proba,
            classifier.target_proba, truth.yt,
        )  # fmt: skip

    # the ideal term of PAC-Bayes is a mean over heads, each with its own
    return {name: report if report.confidence is not None else completed(report) for name, report in reports.items()}


def _write(folder: Path, reports: dict[str, BoundReport], searches: dict[str, BoundSearch]) -> None:
    from warmpot.report import draw_bounds

    found = {
        name: {**report.to_dict(), "curve": searches[name].to_dict()["curve"] if name in searches else []}
        for name, report in reports.items()
    }
    with replacing(folder / "bound.json") as draft:
        draft.write_text(json.dumps(found, indent=1), encoding="utf-8")
    draw_bounds(reports, folder / "bound.png")


def _tell(reports: dict[str, BoundReport], folder: Path) -> None:
    """Print the tightest bound in full and the others as totals."""
    best = min((name for name in reports if name != "PAC-Bayes"), key=lambda name: reports[name].total)
    show(str(reports[best]), "")
    from rich.table import Table as Grid

    labelled = reports[best].total_with_labels is not None
    grid = Grid(box=None, pad_edge=False)
    heads = ["bound", "alpha", "beta", "no labels", *(["labels", "true loss"] if labelled else []), "mostly", ""]
    for head in heads:
        grid.add_column(head, justify="left" if head in ("bound", "mostly", "") else "right")
    for name, report in reports.items():
        numbers: list[float | None] = [report.alpha, report.beta, report.total]
        numbers += [report.total_with_labels, report.target_loss] if labelled else []
        cells = ["" if value is None else f"{value:.3g}" for value in numbers]
        grid.add_row(name, *cells, report.dominant.name, "vacuous" if report.vacuous else "")
    show(grid)
    if labelled:
        show("(labels, true loss: by target labels, evaluation only)")
    for note in reports["PAC-Bayes"].notes[-1:]:
        show(f"PAC-Bayes: {note}")
    show(f"Wrote {folder}: bound.json, bound.png")
