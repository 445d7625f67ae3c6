"""``warmpot explain``: the source samples that one target sample was matched with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from warmpot.cli import _flags
from warmpot.cli._data_files import recorded_data, remembered_files
from warmpot.cli._shared import check_out_file, class_summary, facts_grid, messages, one_line, show, table_grid
from warmpot.cli.report import open_page
from warmpot.errors import WarmpotError

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.train import Explanation

__all__ = ["explain"]

MAX_MATCHES = 10
MIN_SHOWN = 0.005  # smaller probabilities would be shown as 0%
FILE = "HTML page. [default: RUN/explain-ROW.html for images, else none]"
OUT = Annotated[Path | None, Option("--out", "-o", help=FILE)]
OPEN = Annotated[bool, Option("--open", help="Open the page in a browser.")]
SAMPLE = Annotated[str, Argument(metavar="ID", help="Id or file name of a target sample, or its row, from 0.")]
ALL = Annotated[bool, Option("--all", "-a", help=f"Show all matched samples, not only {MAX_MATCHES}.")]


def explain(
    run: _flags.RUN,
    sample: SAMPLE,
    target: _flags.MOVED_TARGET = None,
    everything: ALL = False,
    out: OUT = None,
    browse: OPEN = False,
) -> None:
    """Show which source samples a target sample was matched with.

    The matches are those of the plan of RUN: which share of the target sample goes to which source sample, with its
    label and its weight in training (1: as much as the average source sample). A share that is left out was matched
    with nothing; unknown is a score for samples of no source class, from 0 to 1. If the data can be read, the
    probabilities of all classes are shown, too. For images, a page with thumbnails of the sample and its matches is
    written.
    """
    if out is not None:
        check_out_file(out, target, *recorded_data(run))
    with messages(True) as note:
        from warmpot.train import explain_sample
        from warmpot.train.run_folder import check_finished

        check_finished(run)
        result = explain_sample(run, sample, _read_target(run, target, note))
    _show(result, None if everything else MAX_MATCHES)
    if out is not None or result.image or any(match.image for match in result.matches):
        from warmpot.report.explanation_page import write_explanation

        page = write_explanation(result, out or run / f"explain-{result.row}.html")
        show("", f"Wrote {page}")
        if browse:
            open_page(page)


def _read_target(run: Path, target: Path | None, note: Callable[..., None]) -> Table | None:
    """Return the target data of a run; without it, say why."""
    try:
        return remembered_files(run, target, target, "RUN").side("target")  # the source is not read
    except WarmpotError as error:
        if target is not None:
            raise
        note(f"only the probability of the predicted class is known: {one_line(error)}")
        return None


def _show(result: Explanation, most: int | None) -> None:
    title = f"target sample {result.row}" + (f", {result.name}" if result.name else "")
    sure = "" if result.confidence is None else f"{result.confidence:.0%}"
    rows = [("prediction", _text(result.prediction), sure)]
    if result.probabilities:
        likely = {name: share for name, share in result.probabilities.items() if share >= MIN_SHOWN}
        rows.append(("probabilities", class_summary(likely), ""))
    rows.append(("matched", f"{1 - result.left_out:.0%}", f"{result.left_out:.0%} left out"))
    if result.unknown is not None:
        rows.append(("unknown", f"{result.unknown[0]:.2f}", f"higher than for {result.unknown[1]:.0%} of the target"))
    if result.labels:
        rows.append(("labels of matches", class_summary(result.labels), ""))
    show(title, style="bold")
    show(facts_grid(rows))
    if not result.matches:
        show("", "The plan leaves it out: it is matched with no source sample.")
        return
    named = any(match.name for match in result.matches)
    shown = [
        [f"{match.share:.1%}", _text(match.label), f"{match.training_weight * result.n_source:.2f}", f"{match.row}",
         *([match.name] if named else [])]
        for match in result.matches[:most]
    ]  # fmt: skip
    columns = ("share", "label", "weight", "source row", *(["name"] if named else []))
    show("", table_grid(columns, shown, left=("label", "name")))
    if (more := len(result.matches) - len(shown)) > 0:
        show(f"and {more} more: --all shows them")


def _text(label: str | float) -> str:
    return label if isinstance(label, str) else f"{label:.4g}"
