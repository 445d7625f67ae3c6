"""``warmpot report``: write the page of a run or a grid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from warmpot._run_files import CONFIG, PAGE, STORE
from warmpot.cli import _flags
from warmpot.cli._data_files import DataFiles, recorded_data, remembered_files, warn_if_changed
from warmpot.cli._shared import check_out_file, complain, heavy_imports, messages, one_line, quoted, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Task, Truth
    from warmpot.train import Fitted

__all__ = ["open_page", "report", "write_report"]

PLANE = "How features are projected to a plane. auto: pca, or tsne if that shows less than 20 % of the variance."
EMBEDDING = Annotated[str, Option(metavar="auto|pca|tsne", help=PLANE)]


def report(
    run: Annotated[Path, Argument(metavar="RUN", help="Folder that fit, demo, sweep or bench wrote.")],
    source: Annotated[Path | None, Argument(metavar="SOURCE", help="Its data, if it has moved.")] = None,
    target: Annotated[Path | None, Argument(metavar="TARGET")] = None,
    embedding: EMBEDDING = "auto",
    out: Annotated[Path | None, Option("--out", "-o", help="HTML file. [default: RUN/report.html]")] = None,
    figures: Annotated[
        bool,
        Option("--figures/--no-figures", help="Also write the figures as PNG and SVG."),
    ] = True,
    browse: _flags.OPEN = False,
    quiet: _flags.QUIET = False,
) -> None:
    """Write the page of RUN: one HTML file, with the result first.

    Target labels, if the target file has any, are used for evaluation only, and marked as such. If the data is
    missing, the page shows what the run folder contains.
    """
    with heavy_imports():
        from warmpot.report.run_page import report_run

    if out is not None:
        check_out_file(out, source, target, *recorded_data(run), own=run / PAGE, new_folder=True)
    with messages(not quiet) as note:
        task, truth, missing = _data(run, source, target, note, False if quiet else None)
        note("writing the page")
        page = report_run(run, task, truth, out=out, embedding=embedding, figures=figures, missing=missing)
    if not quiet:
        show(f"Wrote {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if browse:
        open_page(page)


def _data(
    run: Path, source: Path | None, target: Path | None, note: Callable[..., None], progress_bar: bool | None
) -> tuple[Task | None, Truth | None, str]:
    """Read the data of a run; without it, return the reason, or raise if the user named the files."""
    from warmpot.report.run_page import locate_run
    from warmpot.train.run_data import read_run_data
    from warmpot.train.run_folder import check_finished, read_config, read_facts

    if (run / STORE).is_file():  # a grid has its own page
        return None, None, ""
    folder = locate_run(run).run
    check_finished(folder)
    if not (folder / CONFIG).is_file():
        got, remedy = "not a run folder", "Name the folder that `warmpot fit` wrote."
        raise InputError(str(run), got=got, allowed="a run folder", remedy=remedy)
    if source is None:
        note(f"reading the data of {run}")
        task, truth, missing = read_run_data(folder, progress_bar)
        if task is not None:
            warn_if_changed(folder, read_config(folder), task)
        return task, truth, missing
    try:
        data = DataFiles(source, target) if target and not read_facts(folder) else None  # an incomplete record
        data = data or remembered_files(folder, source, target, "RUN")
        note(f"reading {data.source} and {data.target}")
        return *data.read(read_config(folder).images, progress_bar), ""
    except InputError as error:
        raise InputError(one_line(error)) from error


def open_page(page: Path) -> None:
    """Open a page in a browser; without one, say where it is."""
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        complain(f"no browser available; open {page.resolve()} in one", "yellow")


def write_report(run: Path | Fitted, task: Task, truth: Truth | None, verbose: bool) -> Path | None:
    """Write the page at the end of another command; a failure is only reported, because the run is complete."""
    from warmpot.report.run_page import report_run

    if verbose:
        complain("writing the report", "dim")
    try:
        return report_run(run, task, truth)
    except Exception as error:  # of any kind: the results of the run are already written
        folder = run if isinstance(run, Path) else run.folder or Path("RUN")
        text = f"the run is complete, but its report failed ({one_line(error)})"
        complain(f"warning: {text}; try again: warmpot report {quoted(folder)}", "yellow")
        return None
