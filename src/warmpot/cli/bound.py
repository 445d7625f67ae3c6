"""``warmpot bound``: bound the target loss of a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from warmpot._run_files import BOUNDS, BOUNDS_FIGURE
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, remembered_files, warn_if_changed
from warmpot.cli._shared import check_out_file, messages, show, table_grid
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.bounds import BoundReport, BoundSearch
    from warmpot.train.predictor import BoundInputs

__all__ = ["bound"]

NOTHING_PROVEN = 0.995  # losses are at most 1, so a bound from here on proves nothing
POPULATION = "PAC-Bayes"
BETA = Annotated[float | None, Option(help="Share of the source. [default: 1 or the estimate, whichever is tighter]")]
FORMS = {
    "Theorem 3.2": ("features", "paper"),
    "Theorem 3.2, sharp": ("features", "sharp"),
    "Theorem 3.3": ("joint", "paper"),
    "Theorem 3.3, sharp": ("joint", "sharp"),
}


def bound(
    run: _flags.RUN,
    source: _flags.MOVED_SOURCE = None,
    target: _flags.MOVED_TARGET = None,
    alpha: Annotated[float | None, Option(help="Mass to move. [default: the value with the tightest bound]")] = None,
    beta: BETA = None,
    delta: Annotated[float, Option(help="Probability with which the PAC-Bayes bound may fail.")] = 0.05,
    label: _flags.RUN_LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Existing folder for the files. [default: RUN]")] = None,
    quiet: _flags.QUIET = False,
) -> None:
    """Bound the target loss of a finished RUN without target labels.

    Prints the bound term by term and writes bound.json and bound.png. If the target file has labels, they only add
    the true loss and the terms that cannot be computed without labels.
    """
    from warmpot.bounds import pac_bayes_bound, with_labels
    from warmpot.report import draw_bounds
    from warmpot.train import Predictor, bound_inputs
    from warmpot.train.run_folder import read_config, read_use, write_bounds

    data = remembered_files(run, source, target, "RUN", ColumnFlags(label, ids, features or ()))
    folder = run if out is None else out
    if not folder.is_dir():
        remedy = "Name a folder." if folder.exists() else f"Make it first: mkdir -p '{folder}'"
        raise InputError("--out", got=str(folder), allowed="a folder that exists", remedy=remedy)
    for name in (BOUNDS, BOUNDS_FIGURE):
        check_out_file(folder / name, data.source, data.target, own=run / name)
    config = read_config(run)
    use = read_use(run)
    with messages(not quiet) as note:
        note(f"reading {data.source} and {data.target}")
        task, truth = data.read(config.images)
        if source is None:
            warn_if_changed(run, config, task)
        inputs = bound_inputs(Predictor.load(run), task)
        note("solving plans on a grid of alpha and beta")
        searches = _search_theorems(inputs, alpha, beta)
        reports = {name: search.best for name, search in searches.items()}
        if truth is not None and truth.known.all() and len(truth.yt):  # evaluation only
            points = inputs.points
            reports = {name: with_labels(r, *points, target_labels=truth.yt) for name, r in reports.items()}
        note("sampling classifier heads for the PAC-Bayes bound")
        joint = reports["Theorem 3.3, sharp"]
        # Without target labels: its ideal term is a mean over heads, each of which has its own.
        # The prior uses no data, as a run does not keep its source-only head.
        reports[POPULATION] = pac_bayes_bound(
            inputs.source, inputs.labels, inputs.target, inputs.weight, inputs.bias,
            alpha=joint.alpha, beta=joint.beta, form="sharp", features_saw_target=bool(use.reason),
            candidates=use.candidates or 1, delta=0.8 * delta, delta_mc=0.2 * delta,
        )  # fmt: skip
    write_bounds(folder, reports, searches)
    curves = {name: searches[name].curve for name in ("Theorem 3.3", "Theorem 3.3, sharp")}
    invalid = {POPULATION: f"not valid: {use.reason}"} if use.reason else {}
    draw_bounds(reports, folder / BOUNDS_FIGURE, curves=curves, remarks=invalid)
    if not quiet:
        _show_bounds(reports, use.reason)
        show(f"Wrote {folder}: {BOUNDS}, {BOUNDS_FIGURE}")


def _search_theorems(inputs: BoundInputs, alpha: float | None, beta: float | None) -> dict[str, BoundSearch]:
    """Return both theorems as stated in the paper, and in the sharper form that their proofs give.

    A sharp bound that proves nothing is smallest with no mass moved at all; it is shown at the alpha and beta of the
    paper's form instead.
    """
    from warmpot.bounds import head_lipschitz, tightest_bound
    from warmpot.bounds.losses import DEFAULT_LOSS

    grid: dict[str, Any] = {"alphas": None if alpha is None else [alpha], "betas": None if beta is None else [beta]}
    searches: dict[str, BoundSearch] = {}
    for name, (kind, form) in FORMS.items():
        gamma, paper = head_lipschitz(inputs.weight, DEFAULT_LOSS[kind]), searches.get(name.removesuffix(", sharp"))
        search = tightest_bound(kind, *inputs.points, gamma=gamma, form=form, **grid)
        if paper is not None and search.best.total >= NOTHING_PROVEN:
            same = [r for r in search.curve if (r.alpha, r.beta) == (paper.best.alpha, paper.best.beta)]
            search = replace(search, best=same[0])
        searches[name] = search
    return searches


def _show_bounds(reports: dict[str, BoundReport], invalid: str) -> None:
    """Print the tighter form of Theorem 3.3 in full, and a table of all bounds."""
    joint = min(("Theorem 3.3", "Theorem 3.3, sharp"), key=lambda name: reports[name].total)
    labelled = any(report.target_loss is not None for report in reports.values())
    columns = ["bound", "loss", "alpha", "beta", "total", *(["with labels", "true loss"] if labelled else []), ""]
    rows = []
    for name, report in reports.items():
        numbers: list[float | None] = [report.alpha, report.beta, report.total]
        numbers += [report.total_refined, report.target_loss] if labelled else []
        remark = report.verdict
        remark = "not valid" if name == POPULATION and invalid else remark
        rows.append([name, report.loss, *("" if value is None else f"{value:.3g}" for value in numbers), remark])
    show(str(reports[joint]), "", table_grid(columns, rows, left=("bound", "loss", "")))
    if labelled:
        show("(with labels, true loss: the complete bound and the true loss; target labels, evaluation only)")
    else:
        show("Each total, plus a last term that needs target labels, bounds the target loss; "
             "without that term, a total below 1 decides nothing.")  # fmt: skip
    text = f"holds with probability {reports[POPULATION].confidence or 0.0:g}."
    if invalid:
        text = f"NOT A CERTIFICATE ({invalid}): it needs features that do not depend on the target sample."
    show(f"{POPULATION} (new target samples): {text}")
