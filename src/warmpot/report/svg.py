"""A figure as files in the paper's light colours, and as SVG that lives in a page and follows its theme."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from warmpot._files import atomic_write
from warmpot.errors import InputError
from warmpot.report.style import PAPER, THEME, styled, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Tips", "draw_svg", "inline_svg", "save_figure"]

Tips = Mapping[str, str | Sequence[str]]
"""Name of a group (artists with the gid ``tip-NAME``): a text for all of it, or a text for each element as drawn."""

TIP, BACKGROUND = "tip-", "background"
MARKS = {light: name for name, (light, _) in THEME.items()}
MARKS |= {"#000000": "ink", "#ffffff": "paper", "#cccccc": "grid"}  # what matplotlib takes unless told
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
NUMBER = re.compile(r"-?\d+\.\d+")
REFERENCE = re.compile(r"#([\w.-]+)")
TURN = re.compile(r"rotate\(-?0 [^)]*\)")
DOTS = 160
"""Of a PNG, to the inch."""
CURVES = 8
"""Of which matplotlib makes a circle."""
SHAPES = ("use", "path", "circle")
SMOOTH = ("d", "x", "y", "transform", "width", "height", "cx", "cy", "r")
TEXT_STYLE = re.compile(r"font-family:[^;]*;?\s*")


def inline_svg(drawn: str, name: str, alt: str, tips: Tips | None = None) -> tuple[str, float]:
    """Turn a drawing into an SVG element that can stand in a page beside others.

    Parameters
    ----------
    drawn : str
        From `draw_svg`.
    name : str
        Prefix of its ids.
    alt : str
        What one sees, for those who do not.
    tips : mapping, optional
        Group: text or texts. All elements of artists with the gid ``tip-GROUP``, in the order in which they are drawn,
        get the texts one by one; one text is for the whole group.

    Returns
    -------
    tuple of str and float
        The element, and the figure's width in units of its view box.

    Raises
    ------
    InputError
        If a group is not there, or has another number of elements than texts.
    """
    root = ElementTree.fromstring(drawn)
    for parent in root.iter():
        parent.tag = parent.tag.rpartition("}")[2]
        parent.text = parent.text if parent.tag == "text" else None
        parent.tail = None
        for key in [key for key in parent.attrib if "}" in key]:
            parent.set(key.rpartition("}")[2], parent.attrib.pop(key))
    for parent in root.iter():
        for child in [child for child in parent if child.tag in ("metadata", "style") or child.get("id") == BACKGROUND]:
            parent.remove(child)
    _attach(root, tips or {}, name)
    for element in root.iter():
        _tidy(element, name)
    _merge(root)
    width = float(root.get("viewBox", "").split()[2])
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": visible(alt)}
    return ElementTree.tostring(root, encoding="unicode"), width


def draw_svg(figure: Figure) -> str:
    """Draw a figure once, as SVG in the light colours: its file, and what `inline_svg` makes the page's from.

    Parameters
    ----------
    figure : Figure
        From `warmpot.report.style.new_figure`. Its parts have their places afterwards.
    """
    from matplotlib.backends import backend_svg

    backend: Any = backend_svg  # it has no types
    stream = io.StringIO()
    with _drawing():
        _prepare(figure)
        figure.set_dpi(72)
        figure.set_facecolor(PAPER)
        figure.patch.set_gid(BACKGROUND)
        width, height = (72 * side for side in figure.get_size_inches())
        renderer = backend.RendererSVG(width, height, stream, image_dpi=72, metadata={"Date": None})
        canvas = backend.FigureCanvasSVG(figure)
        canvas.get_renderer = lambda: renderer  # texts are measured once: savefig would draw all of it twice
        figure.draw(renderer)
        renderer.finalize()
    figure.set_layout_engine("none")
    return stream.getvalue()


def save_figure(figure: Figure, drawn: str, folder: Path, name: str) -> None:
    """Write NAME.svg, which `draw_svg` drew, and NAME.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    with atomic_write(folder / f"{name}.svg") as draft:
        draft.write_text(drawn, encoding="utf-8")
    with _drawing():
        figure.set_dpi(DOTS)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
    with atomic_write(folder / f"{name}.png") as draft:
        Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB").save(
            draft, "PNG", dpi=(DOTS, DOTS), compress_level=4
        )


@contextmanager
def _drawing() -> Iterator[None]:
    """Inside of the block figures are drawn in the house style, whatever letters their texts have."""
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph|.*missing from", category=UserWarning)  # browsers have more
        yield


def _prepare(figure: Figure) -> None:
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter

    for axes in figure.axes:
        title = axes.get_title(loc="center")
        if title and not axes.get_title(loc="left"):  # where the house puts it
            axes.set_title("", loc="center")
            axes.set_title(title, loc="left")
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):  # it writes formulas
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
            _clean_ticks(axis.get_major_formatter())
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(visible(text.get_text()))


def _clean_ticks(formatter: Any) -> None:
    """Make a formatter write only letters that can be shown; its texts are made while the figure is drawn."""
    plain = type(formatter).format_ticks
    formatter.format_ticks = lambda values: [visible(text) for text in plain(formatter, values)]


def _attach(root: ElementTree.Element, tips: Tips, name: str) -> None:
    """Give the elements of named groups their texts."""
    groups: dict[str, list[ElementTree.Element]] = {}
    for element in root.iter("g"):
        if element.get("id", "").startswith(TIP):
            groups.setdefault(element.attrib.pop("id").removeprefix(TIP), []).append(element)
    for group, texts in tips.items():
        found = groups.get(group, [])
        elements = found if isinstance(texts, str) else [shape for part in found for shape in _shapes(part)]
        wanted = [texts] * max(len(found), 1) if isinstance(texts, str) else list(texts)
        if len(elements) != len(wanted):
            what, remedy = f"tips of {group!r} in figure {name!r}", f"Give its artists the gid {TIP + group!r}."
            allowed = f"{len(elements)} texts, one for each element drawn"
            raise InputError(what, got=len(wanted), allowed=allowed, remedy=remedy)
        for element, text in zip(elements, wanted, strict=True):
            element.set("data-tip", visible(text))


def _shapes(group: ElementTree.Element) -> list[ElementTree.Element]:
    """Return what was drawn: the marks of a line or a collection, or else its paths."""
    shapes = list(_drawn(group))
    return [shape for shape in shapes if shape.tag == "use"] or shapes


def _drawn(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    for child in element:
        if child.tag in SHAPES:
            yield child
        elif child.tag != "defs":
            yield from _drawn(child)


def _tidy(element: ElementTree.Element, name: str) -> None:
    """Own ids, the theme's colours, the page's font, no more digits than can be seen."""
    if "id" in element.attrib and element.tag != "g":
        element.set("id", f"{name}-{element.get('id')}")
    elif element.tag == "g":
        element.attrib.pop("id", None)
    for key in ("href", "clip-path"):
        if key in element.attrib:
            element.set(key, REFERENCE.sub(rf"#{name}-\1", element.attrib[key]))
    if element.tag == "path":
        _round_off(element)
    if TURN.fullmatch(element.get("transform", "")):
        del element.attrib["transform"]
    for key in SMOOTH:
        if key in element.attrib:
            short = NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), element.attrib[key])
            element.set(key, " ".join(short.split()))
    if "style" in element.attrib:
        style = TEXT_STYLE.sub("", element.attrib["style"])
        element.set("style", COLOUR.sub(lambda found: _variable(found[0]), style).replace(": ", ":").replace("; ", ";"))


def _variable(colour: str) -> str:
    return f"var(--{MARKS[colour]})" if colour in MARKS else colour


def _round_off(path: ElementTree.Element) -> None:
    """Write the eight curves that matplotlib draws for a circle as a circle: a tenth of the letters."""
    steps = path.get("d", "").split()
    if steps.count("C") != CURVES or len(steps) != 3 + 7 * CURVES + 1:
        return
    (x, y), (_, top) = (map(float, steps[at : at + 2]) for at in (1, 3 + 7 * CURVES // 2 - 2))
    (side, middle) = map(float, steps[3 + 7 * CURVES // 4 - 2 : 3 + 7 * CURVES // 4])
    radius = (y - top) / 2
    if abs(abs(side - x) - abs(radius)) > 1e-3 or abs(middle - (y + top) / 2) > 1e-3:
        return
    path.tag = "circle"
    del path.attrib["d"]
    path.attrib |= {"cx": f"{x:.6f}", "cy": f"{(y + top) / 2:.6f}", "r": f"{abs(radius):.6f}"}


def _merge(parent: ElementTree.Element) -> None:
    """Say once what several elements say: of the same clip and the same style."""
    for child in parent:
        _merge(child)
    for key in ("clip-path", "style"):
        if parent.tag == "g" and len(parent) > 1 and all(child.tag in SHAPES for child in parent):
            values = {child.get(key) for child in parent}
            if len(values) == 1 and None not in values and key not in parent.attrib:
                parent.set(key, parent[0].attrib[key])
                for child in parent:
                    del child.attrib[key]
