"""``warmpot bound``: bound the target loss of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from warmpot._run_files import BOUNDS, BOUNDS_FIGURE
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, DataFiles, held_out_task, remembered_files, warn_if_changed
from warmpot.cli._shared import check_out_file, messages, show, table_grid
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Task, Truth
    from warmpot.train import Predictor
    from warmpot.train.predictor import BoundInputs
    from warmpot.train.run_bounds import RunBounds

__all__ = ["bound"]

BETA = Annotated[
    float | None, Option(help="Share of the source. [default: 1, the estimate or the training's, whichever is tighter]")
]
NEW = "Target samples that nothing was fitted to, for a bound on new samples. [default: those held out by the run]"
FILE = Annotated[Path | None, Option("--fresh", metavar="FILE", help=NEW)]
MAX_ROWS = 12
"""Rows of a table that are shown; all are in bound.json."""


def bound(
    run: _flags.RUN,
    source: _flags.MOVED_SOURCE = None,
    target: _flags.MOVED_TARGET = None,
    fresh: FILE = None,
    alpha: Annotated[float | None, Option(help="Mass to move. [default: the value with the tightest bound]")] = None,
    beta: BETA = None,
    delta: Annotated[float, Option(help="Probability with which a bound on new samples may fail.")] = 0.05,
    label: _flags.RUN_LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Existing folder for the files. [default: RUN]")] = None,
    quiet: _flags.QUIET = False,
) -> None:
    """Bound the target loss of a finished RUN without target labels.

    Prints the bounds and writes bound.json and bound.png. With target samples that nothing was fitted to (--fresh, or
    `warmpot fit --holdout`), the bound is about new samples. If the target file has labels, they only add the true
    loss and the terms that cannot be computed without labels.
    """
    from warmpot.bounds.fresh import check_unseen
    from warmpot.report import draw_bounds
    from warmpot.train import Predictor, bound_inputs
    from warmpot.train.run_bounds import bound_run, check_target
    from warmpot.train.run_folder import has_same_data, read_config, read_use, write_bounds
    from warmpot.train.run_reader import read_run

    data = remembered_files(run, source, target, "RUN", ColumnFlags(label, ids, features or ()))
    folder = run if out is None else out
    if not folder.is_dir():
        remedy = "Name a folder." if folder.exists() else f"Make it first: mkdir -p '{folder}'"
        raise InputError("--out", got=str(folder), allowed="a folder that exists", remedy=remedy)
    for name in (BOUNDS, BOUNDS_FIGURE):
        check_out_file(folder / name, data.source, data.target, fresh, own=run / name)
    config, use = read_config(run), read_use(run)
    with messages(not quiet) as note:
        note(f"reading {data.source} and {data.target}")
        whole, all_labels = data.read_all(config.images)
        task, truth = held_out_task(whole, all_labels, data.holdout)
        if source is None:
            warn_if_changed(run, config, task)
        predictor = Predictor.load(run)
        inputs = bound_inputs(predictor, task)
        new, new_truth = _fresh(data, fresh, predictor, inputs, task, all_labels)
        if fresh is None and task.held_out is not None:
            check_target(run, predictor, task, held_out=True)
        if fresh is not None and new is not None:
            if not has_same_data(run, task):  # otherwise samples of the training would count as new ones
                check_target(run, predictor, task, held_out=False)
            check_unseen(str(fresh), inputs.target, new.target)
        note("solving plans on a grid of alpha and beta")
        finished = read_run(run)
        presence, last = finished.presence, finished.last_line
        found = bound_run(
            inputs, new, use=use, classes=task.classes, alpha=alpha, beta=beta, delta=delta,
            trained_beta=last.get("beta") if "bound" in last else None,
            presence=None if presence is None else presence.probability,
            truth=_labels(predictor, truth), fresh_truth=_labels(predictor, new_truth),
        )  # fmt: skip
    write_bounds(folder, found.reports, found.searches, found.tables)
    curves = {name: found.searches[name].curve for name in ("Theorem 3.3, sharp", "Theorem 3.3")}
    invalid = {
        name: f"not valid: {use.reason}" for name, r in found.reports.items() if r.needs_fixed_features and use.reason
    }
    draw_bounds(found.reports, folder / BOUNDS_FIGURE, curves=curves, remarks=invalid)
    if not quiet:
        _show_bounds(found, invalid, delta)
        show(f"Wrote {folder}: {BOUNDS}, {BOUNDS_FIGURE}")


def _fresh(
    data: DataFiles, file: Path | None, predictor: Predictor, inputs: BoundInputs, task: Task, labels: Truth | None
) -> tuple[BoundInputs | None, Truth | None]:
    """Return the classifier on samples that nothing was fitted to, and their labels if there are any."""
    if file is not None:
        from warmpot.data.task import match_labels

        table = DataFiles(data.source, file, data.flags, data.regression, data.root, data.classes).side("target")
        return inputs.with_target(predictor, table, str(file)), match_labels(table, predictor.classes, "run")
    if task.held_out is None:
        return None, None
    truth = None if labels is None else labels.of_rows(task.held_out.rows)
    return inputs.with_target(predictor, task.held_out.x, "held-out target"), truth


def _labels(predictor: Predictor, truth: Truth | None) -> Any:
    """Return target labels as the bounds take them, for evaluation; None unless all are known."""
    if truth is None or not len(truth.yt) or not truth.known.all():
        return None
    return truth.yt if predictor.classes else (truth.yt - predictor.centre) / predictor.scale


def _show_bounds(found: RunBounds, invalid: dict[str, str], delta: float) -> None:
    """Print what holds for new samples first, then the headline in full, and tables."""
    from warmpot.train.run_bounds import FRESH, FRESH_LABELS, LABELS, SHARP

    reports = found.reports
    if FRESH in reports:
        joint, labels = reports[FRESH], reports[FRESH_LABELS]
        show(f"New target samples, each line with probability {1 - delta:g}:", style="bold")
        show(f"  loss at most {joint.total:.3f} + what the best head loses on source and target (unknown)")
        guess = "" if labels.guess is None else f" ({labels.guess:.3f} with classes that seem absent)"
        unlike = "share matched with source samples of another class" if found.tables else "mean loss between labels"
        show(f"  loss at most {labels.total:.3f} + M, the {unlike}{guess}")
    else:
        show("New target samples: nothing; hold some out (warmpot fit --holdout 0.3), or name some: --fresh FILE.")
    headline = FRESH if FRESH in reports else SHARP
    show("", str(reports[headline]), "", str(reports[FRESH_LABELS if FRESH in reports else LABELS]), "")
    labelled = any(report.target_loss is not None for report in reports.values())
    columns = ["bound", "loss", "alpha", "beta", "total", *(["with labels", "true loss"] if labelled else []), ""]
    rows = []
    for name, report in reports.items():
        numbers: list[float | None] = [report.alpha, report.beta, report.total]
        whole = report.total_with_labels if report.total_refined is None else report.total_refined
        numbers += [whole, report.target_loss] if labelled else []
        remark = "not valid" if name in invalid else report.verdict
        rows.append([name, report.loss, *("" if value is None else f"{value:.3g}" for value in numbers), remark])
    show(table_grid(columns, rows, left=("bound", "loss", "")))
    if labelled:
        show("(with labels, true loss: the complete bound and the true loss; target labels, evaluation only)")
    else:
        show("Each total, plus a last term that needs target labels, bounds the target loss; "
             "without that term, a total below 1 decides nothing.")  # fmt: skip
    for name, reason in invalid.items():
        text = f"NOT A CERTIFICATE ({reason.removeprefix('not valid: ')}): it needs features that do not depend on the"
        show(f"{name} (new target samples): {text} target sample.")
    _show_tables(found, FRESH in reports, delta)


def _show_tables(found: RunBounds, new: bool, delta: float) -> None:
    """Print the bounds of parts of the target, and of the levels."""
    whose = f"new samples, each {{}} with probability {1 - delta:g}" if new else "these samples"
    for name in ("coverage", "classes"):
        rows = [[str(row["name"]), str(row["n"]), f"{row['joint']:.3f}", f"{row['labels']:.3f}"]
                for row in found.tables.get(name, [])]  # fmt: skip
        if rows:
            columns = ["most certain" if name == "coverage" else "predicted class", "samples", "+ ideal", "+ M"]
            show("", f"Loss at most ({whose.format('table')}):", table_grid(columns, rows[:MAX_ROWS], left=columns[:1]))
            show(*([f"and {len(rows) - MAX_ROWS} more in {BOUNDS}"] if len(rows) > MAX_ROWS else []))
    levels = found.tables.get("levels", [])
    if levels:
        columns = ["distances of", "total", "price", "ideal term over"]
        prices = ["" if row["price"] is None else f"{row['price']:.3f}" for row in levels]
        rows = [[row["level"], f"{row['total']:.3f}", price, row["heads"]]
                for row, price in zip(levels, prices, strict=True)]  # fmt: skip
        title = f"Theorem 3.3 (sharp) by level ({whose.format('line')}):"
        show("", title, table_grid(columns, rows, left=("distances of", "ideal term over")))
