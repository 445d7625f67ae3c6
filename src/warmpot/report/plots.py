"""The figures of a run's page as matplotlib axes, for notebooks and papers.

Each function draws what the page shows, with the same code. `run` is what `warmpot.fit` or `warmpot.load` returned, a
`Fitted`, a fitted estimator, or the folder of a run. Without `ax` a new figure is made, in the style of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from warmpot._checks import check_choice
from warmpot.data import Task, Truth
from warmpot.errors import InputError
from warmpot.report.run_page import locate_run
from warmpot.report.run_view import RunView, view_run
from warmpot.report.sections import answer, evaluation, projection, training, weights
from warmpot.report.sections.parts import Drawn
from warmpot.report.style import styled
from warmpot.train import Fitted
from warmpot.train.finished_run import FinishedRun, from_fitted
from warmpot.train.run_data import read_run_data
from warmpot.train.run_reader import read_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_class_weights", "plot_classes", "plot_confusion", "plot_projection", "plot_training", "plot_weights"]


class _Result(Protocol):
    """What this module needs of a `warmpot.Result`."""

    @property
    def run(self) -> FinishedRun: ...
    @property
    def fitted(self) -> Fitted | None: ...
    @property
    def truth(self) -> Truth | None: ...


Run: TypeAlias = "_Result | Fitted | RunView | Path | str"


def plot_classes(run: Run, ax: Axes | None = None) -> Axes:
    """Plot the share of the target that is predicted as each class, the largest first; at most 15 classes.

    Blue: the class is estimated present; orange: doubtful; grey: absent.

    Examples
    --------
    >>> import numpy as np, warmpot
    >>> rng, y = np.random.default_rng(0), np.repeat([0, 1, 2], 20)
    >>> X = 4 * np.eye(3)[y] + rng.normal(size=(60, 3)) / 2
    >>> ax = plot_classes(warmpot.fit((X, y), X[:40] + 0.2))
    >>> ax.get_xlabel()
    '% of the target samples'
    """
    view = _of_classes("plot_classes", run)
    return _plot(ax, lambda axes: answer.draw_classes(axes, view))


def plot_weights(run: Run, ax: Axes | None = None) -> Axes:
    """Plot the histogram of the training weights, as in the paper.

    Colours: shared and outlier classes if the target labels are known, else classes estimated present and absent.
    """
    view = _view(run)
    return _plot(ax, lambda axes: weights.draw_weights(axes, view))


def plot_class_weights(run: Run, ax: Axes | None = None) -> Axes:
    """Plot the share of the training weight of each class; the line is its share of the source samples."""
    view = _of_classes("plot_class_weights", run)
    return _plot(ax, lambda axes: weights.draw_class_weights(axes, view))


def plot_training(run: Run, panel: str = "mass", ax: Axes | None = None) -> Axes:
    """Plot a part of the log against rounds or steps.

    Parameters
    ----------
    run, ax
        As in all functions of this module.
    panel : str
        "losses", "transport" (the cost), "mass" (alpha and beta), "effective" (classes), "weights" (effective share of
        the source) or "score"; a run has those that its method logs.
    """
    view = _view(run)
    check_choice("panel", panel, tuple(training.curve_lines(view)))
    return _plot(ax, lambda axes: training.draw_curve(axes, view, panel))


def plot_projection(
    run: Run, stage: str = "after", ax: Axes | None = None, *, embedding: str = "auto", task: Task | None = None
) -> Axes:
    """Plot both domains in a plane: source samples as dots, target samples as triangles, coloured by class.

    Parameters
    ----------
    run, ax
        As in all functions of this module.
    stage : "before" or "after"
        The inputs, as scaled, or the features of the network.
    embedding : "auto", "pca" or "tsne"
        As for `warmpot.report.report_run`.
    task : Task, optional
        The data of the run; what `warmpot.fit` returned has its own, and a folder records its files.
    """
    check_choice("stage", stage, tuple(projection.STAGES))
    view = run if isinstance(run, RunView) else _with_data(run, task)
    stages = projection.project(view, embedding)
    if stage not in stages:
        got = view.missing or "images, whose inputs are pixels"
        remedy = "Pass `task`, which `warmpot.data.make_task` returns; of images, plot the stage after the network."
        raise InputError("run", got=got, allowed="a run with its data", remedy=remedy)
    return _plot(ax, lambda axes: projection.draw_projection(axes, view, stage, stages[stage]))


def plot_confusion(run: Run, ax: Axes | None = None, *, truth: Truth | None = None) -> Axes:
    """Plot the confusion matrix, or predicted against true values; for evaluation only.

    `truth` are the target labels; what `warmpot.fit` returned has them if the target had, and so have the files that a
    folder records.
    """
    view = _view(run, truth)
    if view.truth is None and view.run.folder is not None:
        view = replace(view, truth=read_run_data(view.run.folder)[1])
    if view.truth is None:
        remedy = "Pass `truth`, which `warmpot.data.make_task` returns."
        raise InputError("run", got="no target labels", allowed="a run with target labels", remedy=remedy)
    return _plot(
        ax, lambda axes: (evaluation.draw_confusion if view.classes else evaluation.draw_true_values)(axes, view)
    )


def _plot(ax: Axes | None, draw: Callable[[Axes], Drawn]) -> Axes:
    """Draw on axes, with a legend if there are several entries; names are never read as formulas."""
    from matplotlib.text import Text

    with styled():
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots(layout="constrained")[1]
        draw(ax)
        if len(ax.get_legend_handles_labels()[0]) > 1:
            ax.legend()
        for text in ax.findobj(Text):
            text.set_parse_math(False)
    return ax


def _view(run: Run, truth: Truth | None = None) -> RunView:
    """Return a run without its data, which most figures do not need."""
    run = _of_estimator(run)
    if isinstance(run, RunView):
        return run
    if isinstance(run, Fitted):
        return RunView(from_fitted(run), truth=truth)
    if isinstance(run, str | Path):
        return RunView(read_run(locate_run(run).run), truth=truth)
    return RunView(run.run, truth=truth or run.truth)


def _of_classes(what: str, run: Run) -> RunView:
    view = _view(run)
    if not view.classes:
        remedy = "Plot the weights, the training or the projection."
        raise InputError(what, got="a regression", allowed="a run on classes", remedy=remedy)
    return view


def _of_estimator(run: Any) -> Any:
    """Return the training of an estimator, or the folder that it was loaded from; anything else as it is."""
    return getattr(run, "_fitted", None) or getattr(run, "run_folder_", None) or run


def _with_data(run: Run, task: Task | None) -> RunView:
    run = _of_estimator(run)
    view, fitted = _view(run), run if isinstance(run, Fitted) else getattr(run, "fitted", None)
    task = task or (None if fitted is None else fitted.task)
    if task is not None or view.run.folder is None:
        return view_run(view.run, task, view.truth)
    return view_run(view.run, *read_run_data(view.run.folder))
