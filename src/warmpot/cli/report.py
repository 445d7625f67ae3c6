"""``warmpot report``: the page of a run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warmpot.cli._data_files import DataFiles, remembered_files
from warmpot.cli._shared import complain, messages, one_line, recorded, show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Task, Truth

__all__ = ["report", "write_report"]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that fit, demo, sweep or bench wrote.")],
    source: Annotated[Path | None, typer.Argument(metavar="SOURCE", help="Its files, if they moved.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TARGET")] = None,
    embedding: Annotated[
        str, typer.Option(metavar="pca|tsne", help="How features are drawn in a plane; tsne takes longer.")
    ] = "pca",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="HTML file. [default: RUN/report.html]")] = None,
    figures: Annotated[
        bool, typer.Option("--figures/--no-figures", help="Write each figure as PNG and SVG too.")
    ] = True,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Write the page of RUN: one HTML file with the answer first, then what it rests on.

    Target labels, if the file of the target has any, are used for evaluation only, and marked so. Without its data the
    page shows what the folder of the run holds.
    """
    from warmpot.report.run import report_run

    with messages(not quiet):
        task, truth, missing = _data(run, source, target, quiet)
        if not quiet:
            complain("writing the page", "dim")
        page = report_run(run, task, truth, out=out, embedding=embedding, figures=figures, missing=missing)
    if not quiet:
        show(f"Wrote {page} ({page.stat().st_size / 1e6:.1f} MB)")
    if browse:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            complain(f"no browser was found; open {page.resolve()} in one", "yellow")


def _data(run: Path, source: Path | None, target: Path | None, quiet: bool) -> tuple[Task | None, Truth | None, str]:
    """Read the data of a run; what is not there is said, unless it was asked for by name."""
    from warmpot.report.run import reported
    from warmpot.train import load_config

    if (run / "results.jsonl").is_file():  # a bench has its own page
        return None, None, ""
    folder = reported(run).run
    if recorded(folder) and not (folder / "model.json").exists():
        got, remedy = "a run that is not finished", f"Finish it first: warmpot fit --resume {shlex.quote(str(folder))}"
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy)
    if not (folder / "config.yaml").is_file():
        got, remedy = "no run", "Name the folder that `warmpot fit` wrote."
        raise InputError(str(run), got=got, allowed="the folder of a run", remedy=remedy)
    try:
        if source is not None and target is not None and not recorded(folder):  # a run.json that says too little
            data = DataFiles(source, target, None, regression=False)
        else:
            data = remembered_files(folder, source, target, "RUN")
        gone = [path for path in (data.source, data.target) if not path.exists()]
        if gone and source is None:
            return None, None, f"its data is not where it was ({', '.join(map(str, gone))})"
        if not quiet:
            complain(f"reading {data.source} and {data.target}", "dim")
        images = load_config(file=folder / "config.yaml").images
        return (*data.read(images, False if quiet else None), "")
    except InputError as error:
        if source is not None:
            raise InputError(one_line(error)) from error
        return None, None, f"its data could not be read: {one_line(error)}"


def write_report(folder: Path, task: Task, truth: Truth | None, wanted: bool) -> None:
    """Write the page at the end of another verb; a failure is told, and loses nothing: the run is complete.

    Parameters
    ----------
    folder : path
        Of a fit, a demo or a sweep.
    task, truth
        Its data, still in memory.
    wanted : bool
        Whether to say what is going on.
    """
    from warmpot.report.run import report_run

    if wanted:
        complain("writing the report", "dim")
    try:
        report_run(folder, task, truth)
    except Exception as error:  # whatever it is, the run is there and whole
        again = f"warmpot report {shlex.quote(str(folder))}"
        complain(f"warning: the run is complete, but not its report ({one_line(error)}); try again: {again}", "yellow")
