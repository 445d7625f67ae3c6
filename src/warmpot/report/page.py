"""One self-contained HTML file from plain data: callers choose blocks, one template draws them and escapes every word.

The page asks no network for anything, needs no script to be read, follows the reader's light or dark theme, and can be
printed. Its policy (a meta element) forbids every request and every script but its own.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warmpot
from warmpot._files import atomic_write
from warmpot.errors import InputError
from warmpot.report.inline import Tips, draw_svg, inline_svg, save_figure
from warmpot.report.style import ABSENT, THEME, visible

if TYPE_CHECKING:
    import jinja2
    from matplotlib.figure import Figure

__all__ = [
    "Block",
    "Cell",
    "Code",
    "Details",
    "Facts",
    "Notice",
    "Picture",
    "Section",
    "Table",
    "Text",
    "Thumb",
    "Thumbnails",
    "Tiles",
    "write_page",
]

WORDS = {"good": ("✓", "Good"), "info": ("i", "Note"), "warning": ("!", "Warning"), "bad": ("✕", "Problem")}
"""Sign and word of a notice's level: colour alone says nothing to many."""
TONES = ("", "good", "info", "warning", "bad", "muted")
NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
WIDE = 6.0 * 72
"""Width of a figure, in points, above which it takes the whole page."""
IMAGES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Notice:
    """Something to know before reading on; `level` is good, info, warning or bad."""

    level: str
    text: str
    remedy: str = ""

    def __post_init__(self) -> None:
        _among("level", self.level, tuple(WORDS))

    @property
    def sign(self) -> str:
        """Its sign."""
        return WORDS[self.level][0]

    @property
    def word(self) -> str:
        """Its level in a word."""
        return WORDS[self.level][1]


@dataclass(frozen=True)
class Tiles:
    """The big numbers: value, label, note."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Facts:
    """Small facts: what, value, note."""

    rows: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    text : str
        What is shown.
    sort : float or str, optional
        What the column is sorted by instead; numbers come before words, and nothing comes last.
    bold : bool
        Whether it stands out.
    title : str
        What is shown on hover and focus.
    tone : str
        good, info, warning, bad or muted.
    """

    text: str
    sort: float | str | None = None
    bold: bool = False
    title: str = ""
    tone: str = ""

    def __post_init__(self) -> None:
        _among("tone", self.tone, TONES)

    @property
    def number(self) -> bool:
        """Whether it is sorted as a number."""
        return isinstance(self.sort, int | float)

    @property
    def key(self) -> str:
        """What the page sorts by; "" is last."""
        if isinstance(self.sort, int | float):
            return repr(float(self.sort)) if math.isfinite(self.sort) else ""
        return self.text if self.sort is None else self.sort


Value = str | float | int | None | Cell


@dataclass(frozen=True)
class Table:
    """A table which is sorted by a click on the head of a column.

    Parameters
    ----------
    head : sequence of str
        Names of the columns.
    rows : sequence of sequences
        Cells: words, numbers, None, or `Cell`. The first of a row is its name.
    caption, note : str
        Above and below.
    align : sequence of str, optional
        left, right or center for each column; by default numbers stand at the right.
    groups : sequence of str, optional
        A head above the heads: columns beside each other with the same word stand under it; "" is none.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""
    align: Sequence[str] | None = None
    note: str = ""
    groups: Sequence[str] | None = None

    def __post_init__(self) -> None:
        widths = {len(row) for row in (*self.rows, self.align, self.groups) if row is not None}
        if widths - {len(self.head)}:
            allowed = f"{len(self.head)}, as many as its head"
            remedy = "Give None for a cell that is empty."
            raise InputError("cells in a row of a table", got=sorted(widths), allowed=allowed, remedy=remedy)

    @property
    def cells(self) -> list[list[Cell]]:
        """Rows of what the template draws."""
        return [[_cell(value) for value in row] for row in self.rows]

    @property
    def spans(self) -> list[tuple[str, int]]:
        """Heads above the heads, and how many columns are under each; none unless one has words."""
        if not any(self.groups or ()):
            return []
        return [(name, len(list(same))) for name, same in itertools.groupby(self.groups or ())]

    @property
    def sides(self) -> list[str]:
        """Side at which each column stands."""
        if self.align is not None:
            return list(self.align)
        columns = zip(*self.cells, strict=True)
        found = ["right" if _numeric(list(column)) else "left" for column in columns]
        return found or ["left"] * len(self.head)


@dataclass(frozen=True)
class Picture:
    """A figure.

    Parameters
    ----------
    name : str
        Name of its files: small letters, digits and hyphens; another one for every figure of a page.
    figure : Figure
        From `warmpot.report.style.new_figure`.
    alt : str
        What one sees in it, for those who do not.
    caption : str
        Below it.
    tips : mapping, optional
        Texts shown on hover, see `warmpot.report.inline.inline_svg`.
    """

    name: str
    figure: Figure
    alt: str
    caption: str = ""
    tips: Tips | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            allowed = "small letters, digits and hyphens"
            raise InputError("name of a figure", got=repr(self.name), allowed=allowed, remedy="Rename it.")


@dataclass(frozen=True)
class Thumb:
    """A small image: bytes of a JPEG or PNG file."""

    data: bytes
    alt: str
    caption: str = ""

    @property
    def source(self) -> str:
        """The image as an address that holds it."""
        kind = next((kind for head, kind in IMAGES.items() if self.data.startswith(head)), None)
        if kind is None:
            got, remedy = repr(self.data[:8]), "Encode the image with Pillow first."
            raise InputError("thumbnail", got=got, allowed="bytes of a JPEG or PNG file", remedy=remedy)
        return f"data:image/{kind};base64,{base64.b64encode(self.data).decode()}"


@dataclass(frozen=True)
class Thumbnails:
    """Small images side by side."""

    items: Sequence[Thumb]
    caption: str = ""


@dataclass(frozen=True)
class Code:
    """Text to copy."""

    text: str


@dataclass(frozen=True)
class Details:
    """What is folded until asked for."""

    title: str
    blocks: Sequence[Block]


Block = Text | Notice | Tiles | Facts | Table | Picture | Thumbnails | Code | Details


@dataclass(frozen=True)
class Section:
    """A part of the page with its place in the table of contents."""

    title: str
    blocks: Sequence[Block] = field(default=())
    lead: str = ""


def write_page(
    path: Path, *, title: str, subtitle: str = "", sections: Sequence[Section], figures: Path | None = None
) -> int:
    """Write a page, whole or not at all.

    Parameters
    ----------
    path : Path
        The HTML file.
    title, subtitle : str
        What it is about.
    sections : sequence of Section
        The answer first.
    figures : Path, optional
        Folder that gets NAME.png and NAME.svg of every picture.

    Returns
    -------
    int
        Bytes of the page.

    Raises
    ------
    InputError
        If two pictures have the same name.
    """
    pictures = [block for section in sections for block in _all_pictures(section.blocks)]
    names = [picture.name for picture in pictures]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InputError("names of figures", got=twice, allowed="each once", remedy="Rename one of them.")
    drawn = {one.name: draw_svg(one.figure) for one in pictures}
    inline = {one.name: inline_svg(drawn[one.name], one.name, one.alt, one.tips) for one in pictures}
    html = _render(title=title, subtitle=subtitle, sections=sections, drawn=inline)
    data = html.encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as draft:
        draft.write_bytes(data)
    if figures is not None:
        figures.mkdir(parents=True, exist_ok=True)
        for picture in pictures:
            save_figure(picture.figure, drawn[picture.name], figures, picture.name)
    return len(data)


def _render(*, title: str, subtitle: str, sections: Sequence[Section], drawn: Mapping[str, tuple[str, float]]) -> str:
    from markupsafe import Markup

    folder = files("warmpot.report") / "templates"
    script = (folder / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            sections=[(_anchor(section.title, index), section) for index, section in enumerate(sections)],
            groups=_groups,
            wide=WIDE,
            drawn={name: (Markup(svg), width) for name, (svg, width) in drawn.items()},  # its texts are escaped by ET
            css=Markup((folder / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            digest=digest,
            light={name: light for name, (light, _) in THEME.items()},
            dark={name: dark for name, (_, dark) in THEME.items()},
            version=warmpot.__version__,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    def shown(value: Any) -> Any:
        return visible(value) if type(value) is str else value  # not what is marked as HTML

    return jinja2.Environment(
        loader=jinja2.PackageLoader("warmpot.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _groups(blocks: Sequence[Block]) -> list[tuple[str, Any]]:
    """Name the kind of each block; pictures that follow each other stand in one grid."""
    found: list[tuple[str, Any]] = []
    for block in blocks:
        if not isinstance(block, Picture):
            found.append((type(block).__name__, block))
        elif found and found[-1][0] == "Pictures":
            found[-1][1].append(block)
        else:
            found.append(("Pictures", [block]))
    return found


def _all_pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Details):
            yield from _all_pictures(block.blocks)


def _anchor(title: str, index: int) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return f"s{index + 1}-{words}" if words else f"s{index + 1}"


def _cell(value: Value) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return Cell(ABSENT, sort=math.nan, tone="muted")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell(str(value))
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", sort=value)


def _numeric(column: Sequence[Cell]) -> bool:
    return any(cell.number and cell.key for cell in column) and all(cell.number for cell in column)


def _among(what: str, got: str, allowed: Sequence[str]) -> None:
    if got not in allowed:
        raise InputError(what, got=repr(got), allowed=", ".join(map(repr, allowed)), remedy="Choose one.")
