"""The figures of the page as axes, and the projection that shows the samples best."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

import warmpot
from warmpot.errors import InputError
from warmpot.report import (
    plot_class_weights,
    plot_classes,
    plot_confusion,
    plot_projection,
    plot_training,
    plot_weights,
)
from warmpot.report.run_view import Points, RunView
from warmpot.report.sections import projection

mpl.use("agg")
from matplotlib import pyplot as plt

rng = np.random.default_rng(0)
NAMES = np.array(["$x_1$ ${", "_b", "c"])
YS, YT = np.repeat([0, 1, 2], 12), np.repeat([0, 1], 10)
XS, XT = (4.0 * np.eye(3)[y] + rng.normal(size=(len(y), 3)) / 2 for y in (YS, YT))
PLOTS: list[Any] = [plot_classes, plot_weights, plot_class_weights, plot_training, plot_projection, plot_confusion]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> warmpot.Result:
    folder = tmp_path_factory.mktemp("plots") / "run"
    options: dict[str, Any] = {"settings": {"full.rounds": 2}, "progress_bar": False, "out": folder}
    return warmpot.fit((XS, NAMES[YS]), (XT, NAMES[YT]), **options)


@pytest.mark.parametrize("plot", PLOTS)
def test_it_draws_on_the_axes_it_is_given_or_on_new_ones(plot: Any, result: warmpot.Result) -> None:
    figure, axes = plt.subplots(1, 2)
    assert plot(result, ax=axes[1]) is axes[1]
    assert not axes[0].has_data()
    assert axes[1].has_data() or axes[1].collections
    figure.canvas.draw()  # names of classes are not formulas
    other = plot(result)
    assert other.figure is not figure
    other.figure.canvas.draw()


def test_they_show_the_numbers_of_the_run(result: warmpot.Result) -> None:
    run = result.run
    shares = np.sort(np.bincount(run.predictions, minlength=3) / len(YT))[::-1]
    bars = [bar.get_width() for bar in plot_classes(result).patches]
    np.testing.assert_allclose(bars, 100 * shares[shares > 0])
    counts = sum(stairs.get_data().values - stairs.get_data().baseline for stairs in plot_weights(result).patches)
    assert counts.sum() == len(YS)
    by_class = np.bincount(YS, run.training_weights) / run.training_weights.sum()
    widths = [bar.get_width() for bar in plot_class_weights(result).patches]
    np.testing.assert_allclose(widths, 100 * np.sort(by_class)[::-1])
    line = plot_training(result, "mass").lines[0]
    np.testing.assert_allclose(line.get_ydata(), [entry["alpha"] for entry in run.history if "alpha" in entry])
    cells = plot_confusion(result).texts
    assert sum(int(cell.get_text()) for cell in cells) == len(YT)
    points = sum(len(dots.get_offsets()) for dots in plot_projection(result).collections)
    assert points == len(YS) + len(YT)


def test_a_fit_a_folder_and_a_loaded_run_give_the_same(result: warmpot.Result) -> None:
    assert result.fitted is not None
    folder = result.run.folder
    assert isinstance(folder, Path)
    widths = [[bar.get_width() for bar in plot_classes(run).patches]
              for run in (result, result.fitted, folder, str(folder), warmpot.load(folder))]  # fmt: skip
    for other in widths[1:]:
        np.testing.assert_allclose(other, widths[0])
    plot_projection(folder, task=result.fitted.task)
    with pytest.raises(InputError, match=r"Pass `task`"):
        plot_projection(folder)
    with pytest.raises(InputError, match=r"Pass `truth`"):
        plot_confusion(folder)
    with pytest.raises(InputError, match="panel: got 'loss'"):
        plot_training(result, "loss")


def test_the_data_of_a_folder_is_read_from_its_files(tmp_path: Path) -> None:
    for name, x, y in (("s", XS, YS), ("t", XT, YT)):
        np.savez(tmp_path / f"{name}.npz", X=x, y=NAMES[y])
    live = warmpot.fit(tmp_path / "s.npz", tmp_path / "t.npz", out=tmp_path / "run", progress_bar=False)
    offsets = [
        np.concatenate([dots.get_offsets() for dots in plot_projection(run).collections])
        for run in (live, warmpot.load(tmp_path / "run"), tmp_path / "run")
    ]
    np.testing.assert_allclose(offsets[1], offsets[0], atol=1e-4)
    np.testing.assert_array_equal(offsets[2], offsets[1])
    texts = [[cell.get_text() for cell in plot_confusion(run).texts] for run in (live, tmp_path / "run")]
    assert texts[0] == texts[1]
    (tmp_path / "t.npz").unlink()
    with pytest.raises(InputError, match=r"moved or was deleted \(t.npz\)"):  # the name alone: pages show it, too
        plot_projection(tmp_path / "run")


def view_of(xs: np.ndarray, xt: np.ndarray) -> RunView:
    """Return a view of samples with these features, before and after the network."""
    run: Any = None
    sides = [Points(np.arange(len(x)), x, x, np.zeros((len(x), 2))) for x in (xs, xt)]
    return RunView(run, source=sides[0], target=sides[1])


def test_t_sne_is_used_where_two_axes_show_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projection, "MAX_AUTO", 30)
    flat, round_ = rng.normal(size=(100, 40)), rng.normal(size=(70, 40))
    wide = flat * np.r_[20.0, 20.0, np.ones(38)]
    for xs, how, most in ((flat, "tsne", 30), (wide, "pca", 100)):
        stages = projection.project(view_of(xs, round_))
        for drawn in stages.values():
            assert drawn.how == how
            assert max(len(drawn.rows_s), len(drawn.rows_t)) <= most
            assert len(drawn.points) == len(drawn.rows_s) + len(drawn.rows_t)
        again = projection.project(view_of(xs, round_))
        np.testing.assert_array_equal(stages["after"].points, again["after"].points)
    shares = projection.shown_variance(wide, round_), projection.shown_variance(flat, round_)
    assert shares[0] > 0.5
    assert shares[1] < projection.MIN_VARIANCE
    assert {drawn.how for drawn in projection.project(view_of(flat, round_), "pca").values()} == {"pca"}


def test_the_page_says_which_projection_it_shows(result: warmpot.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert result.fitted is not None
    view = projection_view(result)
    section = projection.projection_section(view, "auto")
    assert section is not None
    assert section.lead.startswith("The first two principal components")
    monkeypatch.setattr(projection, "MIN_VARIANCE", 1.1)
    section = projection.projection_section(view, "auto")
    assert section is not None
    assert section.lead.startswith("t-SNE of both domains together")
    assert "Two principal components would show less than 110% of the variance." in section.lead
    figures: list[Any] = [block.figure for block in section.blocks]  # type: ignore[union-attr]
    assert [len(figure.legends) for figure in figures] == [0, 1]  # one legend for both
    titles = [figure.axes[0].get_title() or figure.axes[0].get_title(loc="left") for figure in figures]
    assert all(title.endswith(", t-SNE") for title in titles)


def projection_view(result: warmpot.Result) -> RunView:
    from warmpot.report.run_view import view_run

    assert result.fitted is not None
    return view_run(result.run, result.fitted.task, result.truth)
