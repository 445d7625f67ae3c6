"""The page of one run: what ``warmpot report RUN`` writes, and fit, demo and sweep at their end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from warmpot._checks import check_choice
from warmpot._files import read_json
from warmpot._run_files import BEST_RUN, DEMO, PAGE, STORE, STUDY, figures_folder
from warmpot.data import Task, Truth
from warmpot.errors import InputError
from warmpot.report.page import Section, write_page
from warmpot.report.run_view import RunView, view_run
from warmpot.report.sections.answer import answer_section
from warmpot.report.sections.bounds import bound_section, run_bounds
from warmpot.report.sections.evaluation import evaluation_section
from warmpot.report.sections.projection import EMBEDDINGS, projection_section
from warmpot.report.sections.provenance import provenance_section
from warmpot.report.sections.samples import samples_section
from warmpot.report.sections.training import training_section
from warmpot.report.sections.trust import baselines_section, candidates_section, trust_section
from warmpot.report.sections.weights import left_out_section, weights_section
from warmpot.train import Fitted
from warmpot.train.finished_run import from_fitted, shareable
from warmpot.train.run_reader import read_run

__all__ = ["RunLocation", "locate_run", "report_run", "run_sections"]


@dataclass(frozen=True)
class RunLocation:
    """The run that a page is about (`run`), the folder of the page (`home`), and runs to compare it with, by name."""

    run: Path
    home: Path
    baselines: Mapping[str, Path] = field(default_factory=dict)


def locate_run(folder: Path | str) -> RunLocation:
    """Return the run in the folder of a fit, a demo or a sweep."""
    folder = Path(folder)
    if (folder / DEMO).is_file():
        try:
            names = list(read_json(folder / DEMO)["accuracy"])
            *others, last = [name for name in names if (folder / name).is_dir()]
        except (ValueError, KeyError, TypeError) as error:
            got, remedy = "a demo that did not finish", "Run it again: warmpot demo"
            raise InputError(str(folder), got=got, allowed="a finished demo", remedy=remedy) from error
        return RunLocation(folder / last, folder, {name: folder / name for name in others})
    return RunLocation(folder / BEST_RUN if (folder / STUDY).is_file() else folder, folder)


def report_run(
    run: Path | str | Fitted | Any,
    task: Task | None = None,
    truth: Truth | None = None,
    *,
    out: Path | str | None = None,
    embedding: str = "auto",
    figures: bool = True,
    missing: str = "",
) -> Path:
    """Write the page of a run: one HTML file that needs no other files.

    Parameters
    ----------
    run : path, Fitted, Result or estimator
        Folder that `warmpot fit`, `demo` or `sweep` wrote (for that of `warmpot bench`, the page of the grid is
        written), or what `warmpot.train.fit` returned; then nothing but the paths of the data is read from files. A
        `warmpot.Result` or an estimator writes its own page.
    task : Task, optional
        The data that it was trained on; a `Fitted` has its own. Without it, or with other data, the page shows the
        content of the folder only.
    truth : Truth, optional
        Target labels, for evaluation only: accuracy, confusion, which classes are shared.
    out : path, optional
        The file. Default: ``report.html`` in the folder; required for a `Fitted` without a folder.
    embedding : "auto", "pca" or "tsne"
        How features are projected to a plane. "auto": by principal axes, or by t-SNE of at most 400 samples per domain
        if two axes show less than 20 % of the variance.
    figures : bool
        Whether to write every figure as PNG and SVG, too, into the folder ``figures`` next to the page.
    missing : str
        Reason why there is no task, to be shown on the page.

    Returns
    -------
    Path
        The file.
    """
    check_choice("embedding", embedding, EMBEDDINGS)
    if not isinstance(run, Fitted | Path | str):
        page: Path = run.report(out, embedding=embedding, figures=figures)
        return page
    if isinstance(run, Fitted):
        task = task or run.task
        if task is None or (out is None and run.folder is None):
            got, remedy = "none", "Give the data that it was trained on, and a file to write."
            raise InputError("task" if task is None else "out", got=got, allowed="one, for a `Fitted`", remedy=remedy)
        finished, home, paths = from_fitted(run, task), run.folder, {}
    elif (Path(run) / STORE).is_file():
        from warmpot.report.grid_page import write_grid_page

        return write_grid_page(Path(run), out=None if out is None else Path(out), files=figures)
    else:
        location = locate_run(run)
        finished, home, paths = read_run(location.run), location.home, dict(location.baselines)
    command = f"warmpot report {'RUN' if home is None else shareable(Path(home))}"
    command += "" if out is None or home is None else f" --out {shareable(Path(out))}"
    view = replace(view_run(finished, task, truth, missing), command=command)
    baselines = {name: view_run(read_run(folder), task, truth) for name, folder in paths.items()}
    file = Path(out) if out is not None else Path(home or "") / PAGE
    title = str(finished.facts.get("title") or f"{finished.data_name('source')} -> {finished.data_name('target')}")
    write_page(
        file,
        title=title.replace(" -> ", " \N{RIGHTWARDS ARROW} "),
        subtitle=f"{finished.setting('method')}, preset {finished.setting('preset')}, seed {finished.seed}",
        sections=run_sections(view, baselines, home=home, embedding=embedding),
        figures=figures_folder(file) if figures else None,
    )
    return file


def run_sections(
    view: RunView, baselines: Mapping[str, RunView] | None = None, *, home: Path | None = None, embedding: str = "auto"
) -> list[Section]:
    """Return the sections of the page; `home` is the folder of the run, or of the sweep that it won."""
    baselines, bounds = baselines or {}, run_bounds(view)
    sections = [
        answer_section(view),
        candidates_section(home),
        trust_section(view, bounds[0], baselines),
        baselines_section(view, baselines),
        samples_section(view),
        weights_section(view),
        left_out_section(view),
        training_section(view),
        projection_section(view, embedding),
        evaluation_section(view),
        bound_section(view, bounds),
        provenance_section(view),
    ]
    return [section for section in sections if section is not None]
