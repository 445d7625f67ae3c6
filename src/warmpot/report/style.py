"""The colours of both themes, the style of figures, and parts that several figures have.

Figures are drawn in the light colours. `warmpot.report.svg` replaces each of them by the CSS variable of the same name,
so that a figure in a page follows the reader's theme. No two names may therefore share a light colour.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from warmpot._tables import ABSENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

__all__ = [
    "ACCENT", "COLD", "COLOURS", "GRID", "HEAT", "INK", "MIN_TEXT", "MUTED", "PAPER", "THEME", "WIDTH", "heat",
    "label", "legend", "new_axes", "new_figure", "series", "styled", "ticks", "visible",
]  # fmt: skip

THEME: Mapping[str, tuple[str, str]] = {
    "page": ("#f7f8fa", "#0f1216"), "paper": ("#fffffe", "#171b21"),
    "ink": ("#1a1f26", "#e8ebef"), "muted": ("#57606d", "#a4adb9"),
    "grid": ("#e3e6ea", "#2c333c"), "edge": ("#7b8491", "#6f7986"),
    "accent": ("#1d5fc4", "#82b4ff"), "heat": ("#7fb2f7", "#2457a6"),
    "cold": ("#f2a46b", "#8f4a16"), "blue": ("#2b6cd4", "#6aa5ff"),
    "orange": ("#c4570d", "#f5a05f"), "green": ("#18804a", "#4cc28a"),
    "purple": ("#7a4cc9", "#b798f7"), "red": ("#c73939", "#f58585"),
    "teal": ("#0e7b89", "#46c2d0"), "pink": ("#bd3787", "#f18dc5"),
    "brown": ("#885829", "#d3a87b"), "grey": ("#6d7580", "#98a2ae"),
    "good-ink": ("#146c3e", "#5fd39b"), "good-tint": ("#eaf7f0", "#13291f"),
    "info-ink": ("#1a58b8", "#8cbaff"), "info-tint": ("#ecf3fd", "#15243a"),
    "warning-ink": ("#8a5200", "#f0b35c"), "warning-tint": ("#fdf5e6", "#2e2413"),
    "bad-ink": ("#b02a2a", "#ff9c9c"), "bad-tint": ("#fdeeee", "#341a1c"),
}  # fmt: skip
"""Colours in the light and in the dark theme, by the name of the CSS variable."""
PAPER, INK, MUTED, GRID, ACCENT, HEAT, COLD = (
    THEME[name][0] for name in ("paper", "ink", "muted", "grid", "accent", "heat", "cold")
)
COLOURS: Mapping[str, str] = {
    name: THEME[name][0] for name in ("blue", "orange", "green", "purple", "red", "teal", "pink", "brown", "grey")
}
"""Colours of series; each has a contrast of at least 3 with the page in both themes."""

MIN_TEXT = 12.0
"""Smallest size of text in points. On a phone one point of a figure is at least one pixel; see ``page.css``."""
WIDTH = 4.4
"""Width of a figure in inches that a phone shows completely at one pixel per point."""
LETTER = 7.0
"""Width of a letter of that size, about."""
LINE = 0.26
"""Height of a line of a legend in inches."""

HIDDEN_CATEGORIES = {"Cc", "Cs", "Cn"}
"""Unicode categories without a glyph: control characters, surrogates, unassigned."""
BIDI_CONTROLS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that reverse the direction of the text after them, also that of the page."""


def visible(text: Any) -> str:
    """Replace characters that cannot be shown by U+FFFD, except line breaks and tabs."""
    shown = str(text)
    if shown.isprintable():  # fast path for nearly all texts
        return shown
    hidden = {c for c in {*shown} - {"\n", "\t"} if unicodedata.category(c) in HIDDEN_CATEGORIES or c in BIDI_CONTROLS}
    return "".join("\ufffd" if letter in hidden else letter for letter in shown)


def label(text: Any, most: int = 28) -> str:
    r"""Write a name on one line of at most `most` characters, with the middle left out if it is longer.

    Examples
    --------
    >>> label("a\nb"), label("Alarm_Clock_of_the_grandmother", most=11)
    ('a b', 'Alarm…other')
    """
    name = " ".join(visible(text).split()) or "(empty)"
    head = most // 2
    return name if len(name) <= most else name[:head] + "…" + name[len(name) - (most - head - 1) :]


def series(index: int) -> str:
    """Return the colour of series number `index`, cyclic; grey is reserved for "others"."""
    colours = [colour for name, colour in COLOURS.items() if name != "grey"]
    return colours[index % len(colours)]


@cache
def _settings() -> Any:
    from cycler import cycler

    size: float = MIN_TEXT
    axes: dict[str, Any] = {
        "axisbelow": True, "edgecolor": MUTED, "facecolor": "none", "grid": True, "labelcolor": MUTED,
        "labelsize": size, "linewidth": 0.8,
        "prop_cycle": cycler(color=[series(index) for index in range(len(COLOURS) - 1)]),
        "spines.right": False, "spines.top": False, "titlecolor": INK, "titlelocation": "left", "titlepad": 8,
        "titlesize": 12.5, "titleweight": "bold",
    }  # fmt: skip
    ticks = {"color": MUTED, "labelsize": size, "major.size": 0, "minor.size": 0}
    groups: dict[str, dict[str, Any]] = {
        "axes": axes, "figure": {"facecolor": "none"}, "font": {"size": size},
        "grid": {"color": GRID, "linewidth": 0.8}, "legend": {"fontsize": size, "frameon": False, "labelcolor": INK},
        "lines": {"linewidth": 1.8, "markersize": 5},
        "savefig": {"facecolor": PAPER}, "svg": {"fonttype": "none", "hashsalt": "warmpot"},
        "text": {"color": INK, "parse_math": False}, "xtick": ticks, "ytick": ticks,
    }  # fmt: skip
    return {f"{group}.{name}": value for group, settings in groups.items() for name, value in settings.items()}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of the reports; ``$`` in texts does not start a formula."""
    import matplotlib as mpl

    with mpl.rc_context(_settings()):
        yield


@cache
def _figure_class() -> type[Figure]:
    from matplotlib.figure import Figure

    class StyledFigure(Figure):
        """A figure that creates its axes in the style of the reports."""

        def add_subplot(self, *args: Any, **kwargs: Any) -> Any:
            with styled():
                return super().add_subplot(*args, **kwargs)

    return StyledFigure


def new_figure(width: float = WIDTH, height: float = 3.0) -> Figure:
    """Create an empty figure, without pyplot's global state; up to 6 inches wide it takes one of two columns."""
    with styled():
        return _figure_class()(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float, panels: int = 1) -> tuple[Figure, Any]:
    """Create a figure with one panel, or several side by side."""
    figure = new_figure(width, height)
    return figure, figure.subplots(1, panels)


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
    """Draw a heat map, first row on top; text is readable on every cell in both themes.

    The faintest and strongest tints are `low` and `high`, by default the range of the values; if `signed`, 0 is the
    faintest and values below have another colour. Values that are not finite stay blank. `gap` is the width of the
    lines between cells, and `form` the format of the values in them. The elements of the mesh are the cells, by row.
    """
    import numpy as np
    from matplotlib.colors import to_rgb

    matrix = np.asarray(values, dtype=float)
    shown = np.isfinite(matrix)
    size = np.abs(matrix) if signed else matrix
    bottom, top = (float(size[shown].min()), float(size[shown].max())) if shown.any() else (0.0, 1.0)
    low, high = 0.0 if signed else bottom if low is None else low, top if high is None else high
    strength = np.clip((np.where(shown, size, low) - low) / (high - low or 1.0), 0, 1)
    rgba = np.empty((*matrix.shape, 4))
    rgba[..., :3] = np.where((signed & (matrix < 0))[..., None], to_rgb(COLD), to_rgb(HEAT))
    rgba[..., 3] = np.where(shown, 0.06 + 0.94 * strength, 0.0)  # 0.06: the smallest value is not blank
    mesh: QuadMesh = axes.pcolormesh(rgba, edgecolors=PAPER, linewidth=gap)
    axes.invert_yaxis()
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (i, j), value in np.ndenumerate(matrix if form else np.empty((0, 0))):
        text = form.format(value) if shown[i, j] else ABSENT
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=INK)
    return mesh


def ticks(axis: Any, names: Sequence[Any], *, most: int = 28, start: float = 0.5) -> None:
    """Write names at the positions `start`, `start` + 1, ... of an axis."""
    axis.set_ticks([index + start for index in range(len(names))], labels=[label(name, most) for name in names])


def legend(figure: Figure, handles: Sequence[Any], names: Sequence[Any], place: str = "upper") -> None:
    """Draw the legend of a figure, "upper" or "lower" than its axes, in as many columns as fit."""
    labels = [label(name, 40) for name in names]
    labels = [" " * text.startswith("_") + text for text in labels]  # matplotlib hides labels that start with "_"
    # the handle and the spaces take about 5 letters
    fitting = int(figure.get_figwidth() * 72 / (LETTER * (5 + max(map(len, labels)))))
    with styled():
        style: dict[str, Any] = {"columnspacing": 1.2, "handletextpad": 0.4, "handlelength": 1.6}
        style["loc"] = f"outside {place} left"
        count = max(1, min(len(labels), fitting))
        figure.set_figheight(figure.get_figheight() + LINE * -(-len(labels) // count))  # the axes keep their size
        figure.legend(handles, labels, ncols=count, **style)
