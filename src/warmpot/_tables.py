"""One model of a table of results, and its renderings as Markdown, LaTeX and terminal output.

The HTML rendering is the page template of `warmpot.report`, which takes the same cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table as RichTable

__all__ = [
    "LATEX_PREAMBLE",
    "ResultTable",
    "TableCell",
    "TableColumn",
    "escape_latex",
    "escape_markdown",
    "markdown_grid",
    "printable",
    "to_latex",
    "to_markdown",
    "to_rich",
]

MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]|~$#@]|:(?=//))")  # "://": GitHub turns a bare address into a link
HTML_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
LATEX_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
}  # fmt: skip
LATEX_PREAMBLE = r"""% Written by warmpot bench. In the preamble: \usepackage{booktabs,graphicx}
\providecommand{\benchfit}[1]{\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{#1}}"""
"""Needed once before the tables of `to_latex`: shrinks those that are wider than the page."""


@dataclass(frozen=True)
class TableCell:
    """Plain text, whether it stands out, and the number to sort by."""

    text: str
    bold: bool = False
    value: float | None = None


@dataclass(frozen=True)
class TableColumn:
    """The head of a column. Adjacent columns of one group share a head above theirs; numbers are right-aligned."""

    name: str
    group: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class ResultTable:
    r"""A table in no particular format.

    Attributes
    ----------
    columns : sequence of TableColumn
    rows : sequence of sequences of TableCell
        A text is a cell too.
    title : str
    name : str
        Short and unique, for files and anchors.
    notes : sequence of str
        Sentences below the table.

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
    rows: Sequence[Sequence[TableCell | str]]
    title: str = ""
    name: str = ""
    notes: Sequence[str] = ()

    @property
    def cells(self) -> list[list[TableCell]]:
        """Its rows, every text as a cell."""
        return [[cell if isinstance(cell, TableCell) else TableCell(cell) for cell in row] for row in self.rows]


def printable(text: Any) -> str:
    """Replace line breaks and other invisible characters by blanks."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def escape_markdown(text: Any) -> str:
    r"""Write a user's text so that Markdown and HTML show it literally, on one line.

    Examples
    --------
    >>> print(escape_markdown("<b>a|b</b>\n*c*"))
    &lt;b&gt;a\|b&lt;/b&gt; \*c\*
    """
    escaped = MARKDOWN_SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
    return "".join(HTML_ENTITIES.get(letter, letter) for letter in escaped) or "(empty)"


def escape_latex(text: Any) -> str:
    r"""Write a text so that LaTeX prints it literally, on one line; ``->`` becomes an arrow.

    Examples
    --------
    >>> print(escape_latex("50% of A_1 -> B"))
    50\% of A\_1 $\to$ B
    """
    parts = " ".join(printable(text).split()).split("->")
    return r"$\to$".join("".join(LATEX_SPECIAL.get(letter, letter) for letter in part) for part in parts)


def markdown_grid(head: Sequence[str], rows: Iterable[Sequence[Any]], rules: Sequence[str] = ()) -> str:
    """Write a table whose cells are Markdown already; `rules` align its columns."""
    lines = (head, rules or ["---"] * len(head), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def to_markdown(table: ResultTable, *, level: int = 3, notes: Sequence[str] | None = None) -> str:
    """Render as Markdown, under a heading of this level if it has a title; `notes` replace its own."""
    head = [escape_markdown("; ".join(filter(None, (column.group, column.name)))) for column in table.columns]
    rules = ["---:" if column.numeric else "---" for column in table.columns]
    rows = [[f"**{text}**" if bold else text for text, bold in _escaped(row)] for row in table.cells]
    title = f"{'#' * level} {escape_markdown(table.title)}" if table.title else ""
    below = "\n".join(f"- {escape_markdown(note)}" for note in (table.notes if notes is None else notes))
    return "\n\n".join(filter(None, (title, markdown_grid(head, rows, rules), below)))


def _escaped(row: Sequence[TableCell]) -> list[tuple[str, bool]]:
    return [(escape_markdown(cell.text) if cell.text else "", cell.bold) for cell in row]


def to_latex(table: ResultTable) -> str:
    """Render as a LaTeX float with booktabs rules; `LATEX_PREAMBLE` comes before the first one."""
    form = "".join("r" if column.numeric else "l" for column in table.columns)
    head = [" & ".join(escape_latex(column.name) for column in table.columns) + r" \\"]
    if any(column.group for column in table.columns):
        head = [*_latex_groups(table.columns), *head]
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


def _latex_groups(columns: Sequence[TableColumn]) -> list[str]:
    """Write the heads that several columns share, and the rules below them."""
    heads, rules, first = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if group else []
        first += width
    return [" & ".join(heads) + r" \\", "".join(rules)]


def to_rich(table: ResultTable) -> RichTable:
    """Render for a terminal, with the title above and the notes below; brackets in texts are not markup."""
    from rich.table import Table as RichTable
    from rich.text import Text

    grid = RichTable(box=None, pad_edge=False, title_justify="left", caption_justify="left")
    grid.title = Text(table.title) if table.title else None
    grid.caption = Text("\n".join(table.notes)) if table.notes else None
    for column in table.columns:
        grid.add_column(Text(column.name), justify="right" if column.numeric else "left")
    for row in table.cells:
        grid.add_row(*(Text(cell.text, style="bold" if cell.bold else "") for cell in row))
    return grid
