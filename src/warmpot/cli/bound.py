"""``warmpot bound``: what can be proven of a finished run on its target."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot._files import atomic_write
from warmpot.cli._data_files import remembered_files
from warmpot.cli._shared import complain, messages, one_line, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from warmpot.bounds import BoundReport, BoundSearch
    from warmpot.data import Task, Truth
    from warmpot.train.certificates import BoundInputs

__all__ = ["bound"]

NOTHING_PROVEN = 0.995
"""A bound from here on says as little as 1 does."""
POPULATION = "PAC-Bayes"
FORMS = {
    "Theorem 3.2": ("features", "paper"),
    "Theorem 3.2, sharp": ("features", "sharp"),
    "Theorem 3.3": ("joint", "paper"),
    "Theorem 3.3, sharp": ("joint", "sharp"),
}


@dataclass(frozen=True)
class _Run:
    """A run on its data, and whether its features were fitted with the target."""

    inputs: BoundInputs
    saw_target: bool


def bound(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `warmpot fit` wrote.")],
    source: Annotated[Path | None, typer.Argument(metavar="SOURCE", help="Its files, if they moved.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TARGET")] = None,
    alpha: Annotated[float | None, typer.Option(help="Mass to move. [default: the tightest]")] = None,
    beta: Annotated[
        float | None, typer.Option(help="Share of the source. [default: the tighter of 1 and the believed one]")
    ] = None,
    delta: Annotated[float, typer.Option(help="Probability with which the PAC-Bayes bound may fail.")] = 0.05,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Existing folder for the files. [default: RUN]")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Bound the target loss of a finished RUN, term by term, without target labels.

    Prints the terms and writes bound.json and bound.png. Target labels, if the file of the target has any, only add
    the terms that nobody can compute without, and the true loss.
    """
    from warmpot.train import load_config

    data = remembered_files(run, source, target, "RUN")
    folder = run if out is None else out
    if not folder.is_dir():
        remedy = f"Make it first: mkdir -p '{folder}'"
        raise InputError("--out", got=str(folder), allowed="a folder that exists", remedy=remedy)
    with messages(not quiet):
        _note(quiet, f"reading {data.source} and {data.target}")
        try:
            task, truth = data.read(load_config(file=run / "config.yaml").images)
        except InputError as error:
            raise InputError(one_line(error)) from error
        found = _of_run(run, task)
        _note(quiet, "solving plans on a grid of alpha and beta")
        searches = _searched(found.inputs, alpha, beta)
        reports = {name: search.best for name, search in searches.items()}
        _note(quiet, "drawing heads for the PAC-Bayes bound")
        reports[POPULATION] = _pac_bayes(found, reports["Theorem 3.3, sharp"], delta)
        if truth is not None and truth.known.all() and len(truth.yt):
            reports = _with_labels(reports, found.inputs, truth)
    _write(folder, reports, searches, found.saw_target)
    if not quiet:
        _tell(reports, found.saw_target)
        show(f"Wrote {folder}: bound.json, bound.png")


def _note(quiet: bool, text: str) -> None:
    if not quiet:
        complain(text, "dim")


def _of_run(run: Path, task: Task) -> _Run:
    from warmpot.train import Predictor, bound_inputs, load_config
    from warmpot.train.config import LAST

    config = load_config(file=run / "config.yaml")
    # features of a checkpoint that the target sample has chosen are features that it has fitted
    saw_target = config.built_method.uses_target or config.choose != LAST
    return _Run(bound_inputs(Predictor.load(run), task), saw_target)


def _searched(inputs: BoundInputs, alpha: float | None, beta: float | None) -> dict[str, BoundSearch]:
    """Both theorems as the paper has them, and in the sharper form that their proofs give.

    A sharp bound that proves nothing is least with no mass moved at all; it is shown where the paper's form is least.
    """
    from warmpot.bounds import head_lipschitz, tightest_bound
    from warmpot.train.certificates import LOSSES

    found: dict[str, BoundSearch] = {}
    for name, (kind, form) in FORMS.items():
        gamma, paper = head_lipschitz(inputs.weight, LOSSES[kind]), found.get(name.removesuffix(", sharp"))
        grid: dict[str, Any] = {"alphas": None if alpha is None else [alpha], "betas": None if beta is None else [beta]}
        search = tightest_bound(kind, *inputs.points, gamma=gamma, form=form, **grid)
        if paper is not None and search.best.total >= NOTHING_PROVEN:
            same = [r for r in search.curve if (r.alpha, r.beta) == (paper.best.alpha, paper.best.beta)]
            search = replace(search, best=same[0])
        found[name] = search
    return found


def _pac_bayes(run: _Run, joint: BoundReport, delta: float) -> BoundReport:
    """Bound the loss on new target samples, with the prior of no data: the run does not hold its source-only head."""
    from warmpot.bounds import pac_bayes_bound

    inputs = run.inputs
    return pac_bayes_bound(
        inputs.source, inputs.labels, inputs.target, inputs.weight, inputs.bias,
        alpha=joint.alpha, beta=joint.beta, form="sharp", features_saw_target=run.saw_target,
        delta=0.8 * delta, delta_mc=0.2 * delta,
    )  # fmt: skip


def _with_labels(reports: dict[str, BoundReport], inputs: BoundInputs, truth: Truth) -> dict[str, BoundReport]:
    """Add what needs target labels; evaluation only."""
    from warmpot.bounds import with_labels

    # the ideal term of PAC-Bayes is a mean over heads, each with its own
    return {
        name: report if name == POPULATION else with_labels(report, *inputs.points, target_labels=truth.yt)
        for name, report in reports.items()
    }


def _write(folder: Path, reports: dict[str, BoundReport], searches: dict[str, BoundSearch], saw_target: bool) -> None:
    from warmpot.report import draw_bounds

    found = {
        name: {**report.to_dict(), "curve": searches[name].to_dict()["curve"] if name in searches else []}
        for name, report in reports.items()
    }
    with atomic_write(folder / "bound.json") as draft:
        draft.write_text(json.dumps(found, indent=1), encoding="utf-8")
    curves = {name: searches[name].curve for name in ("Theorem 3.3", "Theorem 3.3, sharp")}
    invalid = {POPULATION: "not valid: adapted features"} if saw_target else {}
    draw_bounds(reports, folder / "bound.png", curves=curves, remarks=invalid)


def _tell(reports: dict[str, BoundReport], saw_target: bool) -> None:
    """Print Theorem 3.3 in full, in the form that proves more, and all bounds in a table."""
    joint = min(("Theorem 3.3", "Theorem 3.3, sharp"), key=lambda name: reports[name].total)
    show(str(reports[joint]), "", _table(reports, saw_target))
    if any(report.target_loss is not None for report in reports.values()):
        show("(labels, true: the whole bound and the true loss, by target labels, evaluation only)")
    else:
        show("Each is a bound of the target loss together with its last term, which needs target labels.")
    text = f"holds with probability {reports[POPULATION].confidence or 0.0:g}."
    if saw_target:
        text = "NOT A CERTIFICATE. Its features must not have seen the target; those of this run have."
    show(f"{POPULATION} (new target samples): {text}")


def _table(reports: dict[str, BoundReport], saw_target: bool) -> Grid:
    from rich.table import Table as Grid

    labelled = any(report.target_loss is not None for report in reports.values())
    grid = Grid(box=None, pad_edge=False)
    heads = ["bound", "loss", "alpha", "beta", "total", *(["labels", "true"] if labelled else []), ""]
    for head in heads:
        grid.add_column(head, justify="left" if head in ("bound", "loss", "") else "right", no_wrap=head != "")
    for name, report in reports.items():
        numbers: list[float | None] = [report.alpha, report.beta, report.total]
        numbers += [report.total_refined, report.target_loss] if labelled else []
        cells = ["" if value is None else f"{value:.3g}" for value in numbers]
        remark = "vacuous" if report.total >= 1 else ""
        grid.add_row(name, report.loss, *cells, "not valid" if name == POPULATION and saw_target else remark)
    return grid
