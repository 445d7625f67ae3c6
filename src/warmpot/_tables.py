"""One model of a table, rendered as Markdown, LaTeX or terminal output here and as HTML by `warmpot.report.page`."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = [
    "ABSENT", "LATEX_PREAMBLE", "ResultTable", "TableCell", "TableColumn", "TableValue", "column_groups",
    "escape_latex", "escape_markdown", "markdown_grid", "printable", "to_latex", "to_markdown", "to_rich",
]  # fmt: skip

ABSENT = "\N{EN DASH}"
"""Text of a cell without a value."""
TONES = ("", "good", "info", "warning", "bad", "muted")
MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$#@]|:(?=//))")  # "://": GitHub turns a bare address into a link
LATEX_SPECIAL = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
})  # fmt: skip
LATEX_PREAMBLE = r"""% Written by warmpot bench. In the preamble: \usepackage{booktabs,graphicx}
\providecommand{\benchfit}[1]{\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{#1}}"""
"""Needed once before the tables of `to_latex`: shrinks those that are wider than the page."""


@dataclass(frozen=True)
class TableCell:
    """A cell of a table: plain text, bold or not, with the number to sort by; by default, the text is sorted by.

    HTML also shows a title on hover and focus, and a tone: "good", "info", "warning", "bad" or "muted".
    """

    text: str
    bold: bool = False
    value: float | None = None
    title: str = ""
    tone: str = ""

    def __post_init__(self) -> None:
        if self.tone not in TONES:
            raise InputError("tone", got=repr(self.tone), allowed=", ".join(TONES[1:]), remedy="Choose one.")

    @property
    def sort_key(self) -> str:
        """What a page sorts by: a number, a text, or "" for the end."""
        if self.value is None:
            return "" if self.text in ("-", ABSENT) else self.text
        return repr(float(self.value)) if math.isfinite(self.value) else ""


TableValue = TableCell | str | float | int | None
"""What a row can hold. Numbers are written with four digits; None and NaN are absent."""


@dataclass(frozen=True)
class TableColumn:
    """Head of a column. Adjacent columns of one group share a head above theirs; numeric ones are right-aligned."""

    name: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class ResultTable:
    r"""A table, independent of the output format; the first cell of a row names it.

    The name is short and unique, for file names and labels. Notes are sentences below the table.

    Examples
    --------
    >>> columns = [TableColumn("row", numeric=False), TableColumn("accuracy")]
    >>> print(to_markdown(ResultTable(columns, [["full", TableCell("81.2", bold=True)], ["a_b", "80.0"]])))
    | row | accuracy |
    | --- | ---: |
    | full | **81.2** |
    | a\_b | 80.0 |
    """

    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[TableValue]]
    title: str = ""
    name: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        widths = {len(row) for row in self.rows} - {len(self.columns)}
        if widths:
            allowed, remedy = f"{len(self.columns)}, one per column", "Give None for an empty cell."
            raise InputError("cells in a row of a table", got=sorted(widths), allowed=allowed, remedy=remedy)

    @property
    def cells(self) -> list[list[TableCell]]:
        """Rows with every value as a cell."""
        return [[_as_cell(value) for value in row] for row in self.rows]


def _as_cell(value: TableValue) -> TableCell:
    if isinstance(value, TableCell):
        return value
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return TableCell(ABSENT, value=math.nan, tone="muted")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return TableCell(str(value))
    return TableCell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", value=value)


def column_groups(columns: Sequence[TableColumn]) -> list[tuple[str, int]]:
    """Return the heads above the heads with their numbers of columns; empty if no column has a group."""
    if not any(column.group for column in columns):
        return []
    return [(group, len(list(members))) for group, members in groupby(columns, key=lambda column: column.group)]


def printable(text: Any) -> str:
    """Replace line breaks and other invisible characters by spaces."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def escape_markdown(text: Any) -> str:
    r"""Escape a text so that Markdown and HTML show it literally, on one line.

    Examples
    --------
    >>> print(escape_markdown("<b>a|b</b>\n*c*"))
    &lt;b&gt;a\|b&lt;/b&gt; \*c\*
    """
    escaped = MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
    return html.escape(escaped, quote=False) or "(empty)"


def escape_latex(text: Any) -> str:
    r"""Escape a text so that LaTeX prints it literally, on one line; ``->`` becomes an arrow.

    Examples
    --------
    >>> print(escape_latex("50% of A_1 -> B"))
    50\% of A\_1 $\to$ B
    """
    parts = " ".join(printable(text).split()).split("->")
    return r"$\to$".join(part.translate(LATEX_SPECIAL) for part in parts)


def markdown_grid(head: Sequence[str], rows: Iterable[Sequence[Any]], rules: Sequence[str] = ()) -> str:
    """Write a table from cells in Markdown; `rules` such as ``---:`` align the columns."""
    lines = (head, rules or ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def to_markdown(table: ResultTable, *, level: int = 3, notes: Sequence[str] | None = None) -> str:
    """Render as Markdown, under a heading of this level if it has a title; `notes` replace its own."""
    head = [escape_markdown("; ".join(filter(None, (column.group, column.name)))) for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row] for row in table.cells]
    title = f"{'#' * level} {escape_markdown(table.title)}" if table.title else ""
    below = "\n".join(f"- {escape_markdown(note)}" for note in (table.notes if notes is None else notes))
    return "\n\n".join(filter(None, (title, markdown_grid(head, rows, rules), below)))


def _markdown_cell(cell: TableCell) -> str:
    text = escape_markdown(cell.text) if cell.text else ""
    return f"**{text}**" if cell.bold else text


def to_latex(table: ResultTable) -> str:
    """Render as a LaTeX float with booktabs rules; `LATEX_PREAMBLE` comes before the first one."""
    form = "".join("r" if column.numeric else "l" for column in table.columns)
    head = [" & ".join(escape_latex(column.name) for column in table.columns) + r" \\"]
    if groups := column_groups(table.columns):
        head = [*_latex_groups(groups), *head]
    rows = [_latex_row(row) for row in table.cells]
    body = "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", *head, r"\midrule", *rows, r"\bottomrule",
                      r"\end{tabular}"])  # fmt: skip
    label = re.sub(r"[^a-z0-9]", "-", table.name.lower())
    lines = [r"\begin{table*}[tp]", r"\centering", rf"\caption{{{escape_latex(table.title)}.}}",
             rf"\label{{bench:{label}}}", rf"\benchfit{{{body}}}"]  # fmt: skip
    if table.notes:
        notes = " ".join(map(escape_latex, table.notes))
        lines.append(rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {notes}}}")
    return "\n" + "\n".join([*lines, r"\end{table*}"])


def _latex_row(row: Sequence[TableCell]) -> str:
    texts = [rf"\textbf{{{escape_latex(cell.text)}}}" if cell.bold else escape_latex(cell.text) for cell in row]
    if texts[0][:1] in ("[", "*"):  # LaTeX would read these as arguments of the line break before
        texts[0] = "{}" + texts[0]
    return " & ".join(texts) + r" \\"


def _latex_groups(groups: Sequence[tuple[str, int]]) -> list[str]:
    """Write the heads that several columns share, and the rules below them."""
    heads, rules, first = [], [], 1
    for group, width in groups:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if group else []
        first += width
    return [" & ".join(heads) + r" \\", "".join(rules)]


def to_rich(table: ResultTable) -> RichTable:
    """Render for a terminal, with the title above and the notes below."""
    from rich.table import Table as RichTable
    from rich.text import Text

    # Text, because brackets in texts are not markup.
    grid = RichTable(box=None, pad_edge=False, title_justify="left", caption_justify="left")
    grid.title = Text(table.title) if table.title else None
    grid.caption = Text("\n".join(table.notes)) if table.notes else None
    for column in table.columns:
        grid.add_column(Text(column.name), justify="right" if column.numeric else "left")
    for row in table.cells:
        grid.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in row))
    return grid
