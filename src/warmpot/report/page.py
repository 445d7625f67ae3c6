"""Self-contained HTML pages: callers choose blocks, one template renders them and escapes every text.

A page makes no network requests, can be read without JavaScript, follows the reader's light or dark theme, and can be
printed. Its content security policy forbids all requests, and all scripts except its own.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warmpot
from warmpot._files import atomic_write, make_folder
from warmpot._tables import ResultTable, TableColumn, TableValue, column_groups
from warmpot.errors import InputError
from warmpot.report.style import THEME, visible
from warmpot.report.svg import Tips, draw_svg, inline_svg, save_figure

if TYPE_CHECKING:
    import jinja2
    from matplotlib.figure import Figure

__all__ = [
    "EVALUATION", "Block", "Code", "Details", "Facts", "Notice", "Pair", "Picture", "Section", "Text", "Thumb",
    "Thumbnails", "Tiles", "make_table", "write_page",
]  # fmt: skip

LEVELS = {"good": ("✓", "Good"), "info": ("i", "Note"), "warning": ("!", "Warning"), "bad": ("✕", "Problem")}
"""Icon and word for the level of a notice: many readers cannot tell the colours apart."""
PICTURE_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
EVALUATION = "computed from target labels, for evaluation only"
"""What every number is called that was."""
WIDE = 6.0 * 72
"""Width in points above which a figure takes the whole width of the page."""
IMAGE_TYPES = {b"\xff\xd8\xff": "jpeg", b"\x89PNG\r\n\x1a\n": "png"}
"""Image types by the first bytes of the file."""


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Notice:
    """A message in a coloured box; `level` is "good", "info", "warning" or "bad"."""

    level: str
    text: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise InputError("level", got=repr(self.level), allowed=", ".join(LEVELS), remedy="Choose one.")


@dataclass(frozen=True)
class Tiles:
    """The main numbers, in large type: value, label, note."""

    items: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Facts:
    """A list of facts: name, value, note."""

    rows: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Picture:
    """A figure from `warmpot.report.style.new_figure`.

    `name` is that of its files, unique on the page; `alt` is for screen readers; `tips` are texts shown on hover, see
    `warmpot.report.svg.inline_svg`.
    """

    name: str
    figure: Figure
    alt: str
    caption: str = ""
    tips: Tips | None = None

    def __post_init__(self) -> None:
        if not PICTURE_NAME.fullmatch(self.name):
            allowed = "lower-case letters, digits and hyphens"
            raise InputError("name of a figure", got=repr(self.name), allowed=allowed, remedy="Rename it.")


@dataclass(frozen=True)
class Thumb:
    """A small image; `data` are the bytes of a JPEG or PNG file."""

    data: bytes
    alt: str
    caption: str = ""

    @property
    def source(self) -> str:
        """Data URL of the image."""
        kind = next((kind for head, kind in IMAGE_TYPES.items() if self.data.startswith(head)), None)
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
    """Preformatted text with a button to copy it."""

    text: str


@dataclass(frozen=True)
class Details:
    """Blocks that are folded until the reader opens them."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Pair:
    """Two blocks side by side, such as a chart and its table; one below the other on a narrow screen."""

    blocks: Sequence[Block]


Block = Text | Notice | Tiles | Facts | ResultTable | Picture | Thumbnails | Code | Details | Pair


@dataclass(frozen=True)
class Section:
    """A part of the page with an entry in the table of contents."""

    title: str
    blocks: Sequence[Block] = ()
    lead: str = ""


def make_table(
    head: Sequence[str], rows: Sequence[Sequence[TableValue]], caption: str = "", note: str = ""
) -> ResultTable:
    """Make a table from the names of its columns; those whose cells are numbers or absent are right-aligned."""
    table = ResultTable([TableColumn(name) for name in head], rows, caption, notes=(note,) if note else ())
    cells = table.cells
    numeric = [
        all(row[k].value is not None for row in cells) and any(row[k].sort_key for row in cells)
        for k in range(len(head))
    ]
    return replace(table, columns=[TableColumn(name, numeric=flag) for name, flag in zip(head, numeric, strict=True)])


def write_page(
    path: Path, *, title: str, subtitle: str = "", sections: Sequence[Section], figures: Path | None = None
) -> int:
    """Write a page, atomically, and NAME.png and NAME.svg of its pictures to `figures`; return its size in bytes."""
    pictures = [block for section in sections for block in _all_pictures(section.blocks)]
    names = [picture.name for picture in pictures]
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise InputError("names of figures", got=repeated, allowed="each once", remedy="Rename one of them.")
    drawings = {one.name: draw_svg(one.figure) for one in pictures}
    inline = {one.name: inline_svg(drawings[one.name], one.name, one.alt, one.tips) for one in pictures}
    data = _render(title, subtitle, sections, inline).encode("utf-8")
    make_folder(path.parent)
    with atomic_write(path) as draft:
        draft.write_bytes(data)
    if figures is not None:
        make_folder(figures)
        for picture in pictures:
            save_figure(picture.figure, drawings[picture.name], figures, picture.name)
    return len(data)


def _render(title: str, subtitle: str, sections: Sequence[Section], svgs: Mapping[str, tuple[str, float]]) -> str:
    from markupsafe import Markup

    folder = files("warmpot.report") / "templates"
    script = (folder / "page.js").read_text(encoding="utf-8")
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            subtitle=subtitle,
            sections=[(_anchor(section.title, index), section) for index, section in enumerate(sections)],
            by_kind=_by_kind,
            column_groups=column_groups,
            levels=LEVELS,
            wide=WIDE,
            svgs={name: (Markup(svg), width) for name, (svg, width) in svgs.items()},  # ElementTree escaped the texts
            css=Markup((folder / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            digest=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode(),
            light={name: light for name, (light, _) in THEME.items()},
            dark={name: dark for name, (_, dark) in THEME.items()},
            version=warmpot.__version__,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("warmpot.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,  # Markup, a subclass of str, stays
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["commands"] = _mark_commands
    return environment


def _mark_commands(text: str) -> Any:
    """Escape a text, and set the commands in it, between backticks, as code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`(warmpot [^`]+)`", r"<code>\1</code>", str(escape(visible(text)))))


def _by_kind(blocks: Sequence[Block]) -> Iterator[tuple[str, Any]]:
    """Yield the kind of each block with the block; adjacent pictures are one block, a list."""
    for kind, members in groupby(blocks, key=lambda block: type(block).__name__):
        group = list(members)
        yield from [(kind, group)] if kind == "Picture" else [(kind, block) for block in group]


def _all_pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Details | Pair):
            yield from _all_pictures(block.blocks)


def _anchor(title: str, index: int) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return f"s{index + 1}-{words}" if words else f"s{index + 1}"
