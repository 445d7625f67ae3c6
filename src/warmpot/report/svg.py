"""Figures as PNG and SVG files in the light colours, and as inline SVG that follows the theme of a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from warmpot._files import atomic_write
from warmpot.errors import InputError
from warmpot.report.style import MIN_TEXT, PAPER, THEME, styled, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Tips", "draw_svg", "inline_svg", "save_figure"]

Tips = Mapping[str, str | Sequence[str]]
"""Texts shown on hover, by group (artists with the gid ``tip-GROUP``): one for the group, or one for each element."""

TIP_PREFIX, BACKGROUND = "tip-", "background"
VARIABLES = {light: name for name, (light, _) in THEME.items()}
VARIABLES |= {"#000000": "ink", "#ffffff": "paper", "#cccccc": "grid"}  # defaults of matplotlib
COLOUR = re.compile(r"#[0-9a-f]{6}\b")
NUMBER = re.compile(r"-?\d+\.\d+")
REFERENCE = re.compile(r"#([\w.-]+)")
NO_ROTATION = re.compile(r"rotate\(-?0 [^)]*\)")
FONT_FAMILY = re.compile(r"font-family:[^;]*;?\s*")
FONT_SIZE = re.compile(r"font-size:\s*([\d.]+)px")
PNG_DPI = 160
CIRCLE_CURVES = 8
"""Number of Bezier curves with which matplotlib draws a circle."""
SHAPES = ("use", "path", "circle")
COORDINATES = ("d", "x", "y", "transform", "width", "height", "cx", "cy", "r")


def inline_svg(drawn: str, name: str, alt: str, tips: Tips | None = None) -> tuple[str, float]:
    """Turn a drawing of `draw_svg` into an element for a page; return it and its width in units of its view box.

    `name` is the prefix of the ids, so that they do not clash with those of other figures; `alt` is for screen readers.
    Several texts of a group of tips are assigned to its elements in the order of drawing; an `InputError` is raised if
    a group is missing, or its number of elements differs.
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
    _attach_tips(root, tips or {}, name)
    for element in root.iter():
        _adapt(element, name)
    _hoist_attributes(root)
    width = float(root.get("viewBox", "").split()[2])
    root.attrib = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": visible(alt)}
    return ElementTree.tostring(root, encoding="unicode"), width


def draw_svg(figure: Figure) -> str:
    """Draw a figure of `style.new_figure` as SVG in the light colours; its layout is fixed afterwards."""
    from matplotlib.backends import backend_svg

    backend: Any = backend_svg  # untyped
    stream = io.StringIO()
    with _drawing():
        _prepare(figure)
        figure.set_dpi(72)
        figure.set_facecolor(PAPER)
        figure.patch.set_gid(BACKGROUND)
        width, height = (72 * side for side in figure.get_size_inches())
        renderer = backend.RendererSVG(width, height, stream, image_dpi=72, metadata={"Date": None})
        canvas = backend.FigureCanvasSVG(figure)
        canvas.get_renderer = lambda: renderer  # the layout uses this renderer; savefig would draw everything twice
        figure.draw(renderer)
        renderer.finalize()
    figure.set_layout_engine("none")
    return stream.getvalue()


def save_figure(figure: Figure, drawn: str, folder: Path, name: str) -> None:
    """Write NAME.svg, from `draw_svg`, and NAME.png."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    with atomic_write(folder / f"{name}.svg") as draft:
        draft.write_text(drawn, encoding="utf-8")
    with _drawing():
        figure.set_dpi(PNG_DPI)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
    with atomic_write(folder / f"{name}.png") as draft:
        image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        image.save(draft, "PNG", dpi=(PNG_DPI, PNG_DPI), compress_level=4)


@contextmanager
def _drawing() -> Iterator[None]:
    """Draw in the style of the reports, without warnings about characters that matplotlib's font lacks."""
    with styled(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph|.*missing from", UserWarning)  # browsers have other fonts
        yield


def _prepare(figure: Figure) -> None:
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter, LogFormatter

    for axes in figure.axes:
        title = axes.get_title(loc="center")
        if title and not axes.get_title(loc="left"):  # titles are on the left in all figures
            axes.set_title("", loc="center")
            axes.set_title(title, loc="left")
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatter):  # writes formulas, which are not parsed here
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_formatter(FuncFormatter(lambda *_: ""))
            # Tick labels are formatted while the figure is drawn.
            formatter: Any = axis.get_major_formatter()
            formatter.format_ticks = partial(_visible_ticks, formatter)
    for text in figure.findobj(Text):
        text.set_parse_math(False)
        text.set_text(visible(text.get_text()))
        text.set_fontsize(max(text.get_fontsize(), MIN_TEXT))


def _visible_ticks(formatter: Any, values: Any) -> list[str]:
    return [visible(text) for text in type(formatter).format_ticks(formatter, values)]


def _attach_tips(root: ElementTree.Element, tips: Tips, name: str) -> None:
    groups: dict[str, list[ElementTree.Element]] = {}
    for element in root.iter("g"):
        if element.get("id", "").startswith(TIP_PREFIX):
            groups.setdefault(element.attrib.pop("id").removeprefix(TIP_PREFIX), []).append(element)
    for group, tip in tips.items():
        members = groups.get(group, [])
        elements = members if isinstance(tip, str) else [shape for member in members for shape in _shapes(member)]
        texts = [tip] * max(len(members), 1) if isinstance(tip, str) else list(tip)
        if len(elements) != len(texts):
            what, remedy = f"tips of {group!r} in figure {name!r}", f"Give its artists the gid {TIP_PREFIX + group!r}."
            allowed = f"{len(elements)} texts, one for each element drawn"
            raise InputError(what, got=len(texts), allowed=allowed, remedy=remedy)
        for element, text in zip(elements, texts, strict=True):
            element.set("data-tip", visible(text))


def _shapes(group: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the markers of a line or a collection, or its paths if there are no markers."""
    nested = ([child] if child.tag in SHAPES else _shapes(child) for child in group if child.tag != "defs")
    shapes = [shape for shapes in nested for shape in shapes]
    return [shape for shape in shapes if shape.tag == "use"] or shapes


def _adapt(element: ElementTree.Element, name: str) -> None:
    """Use unique ids, the theme's colours and the page's font, and round coordinates to 0.01 points."""
    if "id" in element.attrib and element.tag != "g":
        element.set("id", f"{name}-{element.get('id')}")
    elif element.tag == "g":
        element.attrib.pop("id", None)
    for key in ("href", "clip-path"):
        if key in element.attrib:
            element.set(key, REFERENCE.sub(rf"#{name}-\1", element.attrib[key]))
    if element.tag == "path":
        _replace_circle(element)
    if NO_ROTATION.fullmatch(element.get("transform", "")):
        del element.attrib["transform"]
    for key in COORDINATES:
        if key in element.attrib:
            short = NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), element.attrib[key])
            element.set(key, " ".join(short.split()))
    if "style" in element.attrib:
        style = COLOUR.sub(
            lambda colour: f"var(--{VARIABLES[colour[0]]})" if colour[0] in VARIABLES else colour[0],
            FONT_FAMILY.sub("", element.attrib["style"]),
        )
        style = FONT_SIZE.sub(r"font-size:calc(\1px*var(--text))", style)
        element.set("style", style.replace(": ", ":").replace("; ", ";"))


def _replace_circle(path: ElementTree.Element) -> None:
    """Replace the path that matplotlib draws for a circle by a circle element, which is ten times shorter."""
    # The path: M x y, then "C" and three points for each curve, then Z. It starts at the bottom of the circle.
    steps = path.get("d", "").split()
    if steps.count("C") != CIRCLE_CURVES or len(steps) != 3 + 7 * CIRCLE_CURVES + 1:
        return
    half, quarter = 3 + 7 * CIRCLE_CURVES // 2, 3 + 7 * CIRCLE_CURVES // 4
    (x, y), (_, top) = (map(float, steps[at : at + 2]) for at in (1, half - 2))
    side, middle = map(float, steps[quarter - 2 : quarter])
    radius = (y - top) / 2
    if abs(abs(side - x) - abs(radius)) > 1e-3 or abs(middle - (y + top) / 2) > 1e-3:
        return
    path.tag = "circle"
    del path.attrib["d"]
    path.attrib |= {"cx": f"{x:.6f}", "cy": f"{(y + top) / 2:.6f}", "r": f"{abs(radius):.6f}"}


def _hoist_attributes(parent: ElementTree.Element) -> None:
    """Move a clip path or style that all shapes of a group share to the group."""
    for child in parent:
        _hoist_attributes(child)
    for key in ("clip-path", "style"):
        if parent.tag == "g" and len(parent) > 1 and all(child.tag in SHAPES for child in parent):
            values = {child.get(key) for child in parent}
            if len(values) == 1 and None not in values and key not in parent.attrib:
                parent.set(key, parent[0].attrib[key])
                for child in parent:
                    del child.attrib[key]
