"""Colours and figures: one palette for the page's two themes, and the figures that are drawn in it.

A figure is drawn in the light colours. Each of them is also a sentinel: `warmpot.report.inline` puts the CSS variable
of the same name in its place, so that the figure inside a page follows the theme of the reader.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

__all__ = [
    "ABSENT",
    "ACCENT",
    "COLD",
    "COLOURS",
    "GRID",
    "HEAT",
    "INK",
    "MUTED",
    "PAPER",
    "THEME",
    "heat",
    "label",
    "legend",
    "new_figure",
    "series",
    "styled",
    "ticks",
    "visible",
]

THEME: Mapping[str, tuple[str, str]] = {
    "page": ("#f7f8fa", "#0f1216"),
    "paper": ("#fffffe", "#171b21"),
    "ink": ("#1a1f26", "#e8ebef"),
    "muted": ("#57606d", "#a4adb9"),
    "grid": ("#e3e6ea", "#2c333c"),
    "edge": ("#7b8491", "#6f7986"),
    "accent": ("#1d5fc4", "#82b4ff"),
    "heat": ("#7fb2f7", "#2457a6"),
    "cold": ("#f2a46b", "#8f4a16"),
    "blue": ("#2b6cd4", "#6aa5ff"),
    "orange": ("#c4570d", "#f5a05f"),
    "green": ("#18804a", "#4cc28a"),
    "purple": ("#7a4cc9", "#b798f7"),
    "red": ("#c73939", "#f58585"),
    "teal": ("#0e7b89", "#46c2d0"),
    "pink": ("#bd3787", "#f18dc5"),
    "brown": ("#885829", "#d3a87b"),
    "grey": ("#6d7580", "#98a2ae"),
    "good-ink": ("#146c3e", "#5fd39b"),
    "good-tint": ("#eaf7f0", "#13291f"),
    "info-ink": ("#1a58b8", "#8cbaff"),
    "info-tint": ("#ecf3fd", "#15243a"),
    "warning-ink": ("#8a5200", "#f0b35c"),
    "warning-tint": ("#fdf5e6", "#2e2413"),
    "bad-ink": ("#b02a2a", "#ff9c9c"),
    "bad-tint": ("#fdeeee", "#341a1c"),
}
"""Name of a CSS variable: its value in the light and in the dark theme."""
PAPER, INK, MUTED, GRID, ACCENT, HEAT, COLD = (
    THEME[name][0] for name in ("paper", "ink", "muted", "grid", "accent", "heat", "cold")
)
COLOURS: Mapping[str, str] = {
    name: THEME[name][0] for name in ("blue", "orange", "green", "purple", "red", "teal", "pink", "brown", "grey")
}
"""Colours of series; each has a contrast of 3 or more to the page in both themes."""

ABSENT = "\N{EN DASH}"
"""Stands where there is no value."""
HIDDEN = {"Cc", "Cs", "Cn"}
TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Letters that turn the direction of what stands behind them."""


def visible(text: Any) -> str:
    """Put a sign for every letter that cannot be shown; ends of lines and tabs stay."""
    words = str(text)
    if words.isprintable():  # nearly all are
        return words
    return "".join(
        "\ufffd" if (unicodedata.category(letter) in HIDDEN and letter not in "\n\t") or letter in TURNING else letter
        for letter in words
    )


def label(text: Any, most: int = 28) -> str:
    r"""Write a name on one line of a figure, shortened in its middle.

    Examples
    --------
    >>> label("a\nb"), label("Alarm_Clock_of_the_grandmother", most=11)
    ('a b', 'Alarm…other')
    """
    words = " ".join(visible(text).split()) or "(empty)"
    head = most // 2
    return words if len(words) <= most else words[:head] + "…" + words[len(words) - (most - head - 1) :]


def series(index: int) -> str:
    """Return the colour of the series number `index`; they come again after the last (grey is left to the rest)."""
    names = [name for name in COLOURS if name != "grey"]
    return COLOURS[names[index % len(names)]]


@cache
def _settings() -> Any:
    from cycler import cycler

    return {
        "axes.axisbelow": True,
        "axes.edgecolor": MUTED,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": MUTED,
        "axes.labelsize": 9.5,
        "axes.linewidth": 0.8,
        "axes.prop_cycle": cycler(color=[series(index) for index in range(len(COLOURS) - 1)]),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.titlepad": 8,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "figure.facecolor": "none",
        "font.size": 9.5,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "legend.labelcolor": INK,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
        "savefig.facecolor": PAPER,
        "svg.fonttype": "none",
        "svg.hashsalt": "warmpot",
        "text.color": INK,
        "text.parse_math": False,
        "xtick.color": MUTED,
        "xtick.labelsize": 9,
        "xtick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.color": MUTED,
        "ytick.labelsize": 9,
        "ytick.major.size": 0,
        "ytick.minor.size": 0,
    }


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the house style inside of the block; names in texts stand as they are ($ starts no formula)."""
    import matplotlib as mpl

    with mpl.rc_context(_settings()):
        yield


@cache
def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        """A figure whose axes are made in the house style, whoever asks for them."""

        def add_subplot(self, *args: Any, **kwargs: Any) -> Any:
            with styled():
                return super().add_subplot(*args, **kwargs)

    return StyledFigure


def new_figure(width: float = 4.6, height: float = 3.0) -> Figure:
    """Make an empty figure in the house style, without pyplot's global state.

    Parameters
    ----------
    width, height : float
        Inches. Up to 6 inches wide a figure is one of two columns; a wider one takes the width of the page.

    Returns
    -------
    Figure
        Its axes come from `add_subplot` or `subplots`.
    """
    with styled():
        return _figure_class()(figsize=(width, height), layout="constrained")


def heat(
    axes: Axes,
    values: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    signed: bool = False,
    gap: float = 1.0,
    form: str = "",
) -> QuadMesh:
    """Draw a matrix as tinted cells, first row on top; ink is readable on every one of them in both themes.

    Parameters
    ----------
    axes : Axes
        Where.
    values : array of shape (rows, columns)
        A value that is no number leaves its cell blank.
    low, high : float, optional
        Values of the faintest and of the fullest tint; by default those of the values.
    signed : bool
        Whether values below 0 have a tint of their own; the faintest is 0 then.
    gap : float
        Width of the lines between cells.
    form : str
        How the values are written into the cells, such as ``{:.1f}``; not at all by default.

    Returns
    -------
    QuadMesh
        Its elements are the cells, row by row.
    """
    import numpy as np
    from matplotlib.colors import to_rgb

    matrix = np.asarray(values, dtype=float)
    shown = np.isfinite(matrix)
    size = np.abs(matrix) if signed else matrix
    bottom, top = (float(size[shown].min()), float(size[shown].max())) if shown.any() else (0.0, 1.0)
    low, high = 0.0 if signed else bottom if low is None else low, top if high is None else high
    share = np.clip((np.where(shown, size, low) - low) / (high - low or 1.0), 0, 1)
    tint = np.empty((*matrix.shape, 4))
    tint[..., :3] = np.where((signed & (matrix < 0))[..., None], to_rgb(COLD), to_rgb(HEAT))
    tint[..., 3] = np.where(shown, 0.06 + 0.94 * share, 0.0)
    mesh: QuadMesh = axes.pcolormesh(tint, edgecolors=PAPER, linewidth=gap)
    axes.invert_yaxis()
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (i, j), value in np.ndenumerate(matrix if form else np.empty((0, 0))):
        text = form.format(value) if shown[i, j] else ABSENT
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=9, color=INK)
    return mesh


def ticks(axis: Any, names: Sequence[Any], *, most: int = 28, start: float = 0.5) -> None:
    """Name the places `start`, `start` + 1, ... of an axis."""
    axis.set_ticks([index + start for index in range(len(names))], labels=[label(name, most) for name in names])


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[Any], columns: int = 4) -> None:
    """Name series above the axes, in as many columns as there is room for."""
    labels = [label(name, 24) for name in names]
    shown = [" " * text.startswith("_") + text for text in labels]  # matplotlib hides those that start with it
    room = figure.get_figwidth() * 72 / (6 * (5 + max(map(len, shown))))  # columns that fit, at six points a letter
    with styled():
        most = max(1, min(columns, len(shown), int(room)))
        figure.legend(handles, shown, loc="outside upper left", ncols=most, columnspacing=1.4, handletextpad=0.4)
