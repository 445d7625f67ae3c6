"""The results of a bench as files: tidy CSV and Parquet, tables in Markdown and LaTeX."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from warmpot._files import atomic_write
from warmpot._tables import escape_markdown as safe
from warmpot._tables import markdown_grid as table
from warmpot._tables import printable
from warmpot.bench.sheet import PARTIAL, Column, Entry, Sheet
from warmpot.bench.sheets import sections
from warmpot.bench.store import Record
from warmpot.bench.summary import Summary, summarise

__all__ = ["as_latex", "as_markdown", "latex_safe", "sheet_as_markdown", "tidy", "write_tables"]

logger = logging.getLogger(__name__)

LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
}  # fmt: skip
PREAMBLE = r"""% Written by warmpot bench. In the preamble: \usepackage{booktabs,graphicx}
\providecommand{\benchfit}[1]{\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{#1}}"""


def write_tables(folder: Path | str) -> list[Path]:
    """Write results.csv, results.parquet, tables.md and tables.tex of a folder that ``warmpot bench`` wrote.

    Returns
    -------
    list of path
        What was written; Parquet needs the extra ``parquet`` and is left out, with a line in the log, without it.
    """
    folder = Path(folder)
    summary = summarise(folder)
    columns = tidy(summary)
    paths = [folder / name for name in ("results.csv", "tables.md", "tables.tex")]
    with atomic_write(paths[0]) as draft, open(draft, "x", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    for path, text in ((paths[1], as_markdown(summary)), (paths[2], as_latex(summary))):
        with atomic_write(path) as draft:
            draft.write_text(text, encoding="utf-8")
    return [*paths, *_parquet(folder / "results.parquet", columns)]


def tidy(summary: Summary) -> dict[str, list[Any]]:
    """Return the columns of the tidy table: a line per training and rule, and one for a training that failed.

    Accuracies and shares are in [0, 1]. Every setting that the grid varies is a column of its own.
    """
    varied = dict.fromkeys(name for record in summary.records for name in record.point)
    lines = [line for record in summary.records for line in _lines(record, list(varied))]
    names = list(lines[0]) if lines else list(next(_lines(Record(status="failed"), [])))
    return {name: [_writable(line[name]) for line in lines] for name in names}


def _writable(value: Any) -> Any:
    """Put a sign for what no file can hold: an error may name a file whose name is no UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _lines(record: Record, varied: list[str]) -> Iterator[dict[str, Any]]:
    what = {name: getattr(record, name) for name in (
        "key", "dataset", "task", "row", "method", "weights", "preset", "setting", "seed", "any_seed"
    )}  # fmt: skip
    what |= {name: record.point.get(name) for name in varied}
    came_to = {name: getattr(record, name) for name in (
        "seconds", "outlier_weight", "outlier_samples", "collapsed", "status", "error", "finished"
    )}  # fmt: skip
    came_to["version"] = record.versions.get("warmpot", "")
    for rule in record.accuracy if record.done else [""]:
        chosen = {"rule": rule, "accuracy": record.accuracy.get(rule), "step": record.steps.get(rule)}
        yield {**what, **chosen, **came_to}


def _parquet(path: Path, columns: dict[str, list[Any]]) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        logger.info("%s is not written: it needs pyarrow (pip install 'warmpot[parquet]')", path.name)
        return []
    kinds = {
        "seed": pyarrow.int64(),
        "step": pyarrow.int64(),
        "any_seed": pyarrow.bool_(),
        "collapsed": pyarrow.bool_(),
    }
    numbers = {"accuracy", "seconds", "outlier_weight", "outlier_samples"}
    fields = []
    for name, values in columns.items():  # all-empty columns keep their kind
        number = name in numbers or any(isinstance(value, float) for value in values)
        fields.append((name, kinds.get(name) or (pyarrow.float64() if number else pyarrow.string())))
    with atomic_write(path) as draft:
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=pyarrow.schema(fields)), draft)
    return [path]


def _facts(summary: Summary) -> list[str]:
    """Say what the tables are of."""
    grid = summary.grid
    facts = [f"Setting: {grid.setting}."] if grid.setting else []
    facts += [f"{data.name}: {data.setting}." for data in grid.data if data.setting]
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    facts.append(
        f"{summary.done} of {summary.asked} trainings are done{failed}; seeds {', '.join(map(str, summary.seeds))}."
    )
    if summary.others:
        facts.append(f"{summary.others} records of other grids in the same store are left out.")
    facts.append("Last, label-free and oracle accuracies stand apart: the oracle has seen target labels.")
    return facts


def as_markdown(summary: Summary) -> str:
    """Write all tables as Markdown; names are escaped."""
    parts = [f"# {safe(summary.grid.title)}", " ".join(map(safe, _facts(summary)))]
    for heading, listed in sections(summary).items():
        said: set[str] = set()  # within a section a note is read once
        parts.append(f"## {heading}")
        for sheet in listed:
            notes = [note for note in sheet.notes if note == PARTIAL or note not in said]
            parts.append(sheet_as_markdown(sheet, notes))
            said.update(sheet.notes)
    return "\n\n".join(parts) + "\n"


def sheet_as_markdown(sheet: Sheet, notes: Sequence[str] | None = None, level: int = 3) -> str:
    """Write one table under a heading of this level; `notes` in place of its own."""
    head = [safe(f"{column.group}; {column.name}" if column.group else column.name) for column in sheet.columns]
    rows = [[_marked(entry) for entry in row] for row in sheet.rows]
    lines = table(head, rows).split("\n")
    lines[1] = f"| {' | '.join('---:' if column.number else '---' for column in sheet.columns)} |"
    below = "\n".join(f"- {safe(note)}" for note in (sheet.notes if notes is None else notes))
    return "\n\n".join(part for part in (f"{'#' * level} {safe(sheet.title)}", "\n".join(lines), below) if part)


def _marked(entry: Entry) -> str:
    text = safe(entry.text) if entry.text else ""
    return f"**{text}**" if entry.bold else text


def latex_safe(text: Any) -> str:
    r"""Write a text so that LaTeX prints it as it is, on one line; an arrow becomes one.

    Examples
    --------
    >>> print(latex_safe("50% of A_1 -> B"))
    50\% of A\_1 $\to$ B
    """
    words = " ".join(printable(text).split())
    return r"$\to$".join("".join(LATEX.get(letter, letter) for letter in part) for part in words.split("->"))


def as_latex(summary: Summary) -> str:
    """Write all tables as LaTeX with booktabs, for a document to take in; names are escaped."""
    parts = [PREAMBLE, f"% {latex_safe(summary.grid.title)}", *(f"% {latex_safe(fact)}" for fact in _facts(summary))]
    return "\n".join([*parts, *(_latex(sheet) for listed in sections(summary).values() for sheet in listed)]) + "\n"


def _latex(sheet: Sheet) -> str:
    form = "".join("r" if column.number else "l" for column in sheet.columns)
    head = [" & ".join(latex_safe(column.name) for column in sheet.columns) + r" \\"]
    if any(column.group for column in sheet.columns):
        head = [*_groups(sheet.columns), *head]
    rows = [_row(row) for row in sheet.rows]
    body = "\n".join([rf"\begin{{tabular}}{{{form}}}", r"\toprule", *head, r"\midrule", *rows, r"\bottomrule",
                      r"\end{tabular}"])  # fmt: skip
    notes = " ".join(latex_safe(note) for note in sheet.notes)
    lines = [r"\begin{table*}[tp]", r"\centering", rf"\caption{{{latex_safe(sheet.title)}.}}",
             rf"\label{{bench:{_label(sheet.name)}}}", rf"\benchfit{{{body}}}"]  # fmt: skip
    lines += [rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {notes}}}"] if notes else []
    return "\n" + "\n".join([*lines, r"\end{table*}"])


def _row(row: tuple[Entry, ...]) -> str:
    cells = [latex_safe(entry.text) for entry in row]
    cells = [rf"\textbf{{{cell}}}" if entry.bold else cell for cell, entry in zip(cells, row, strict=True)]
    if cells[0][:1] in ("[", "*"):  # after a line break these would be read as its argument
        cells[0] = "{}" + cells[0]
    return " & ".join(cells) + r" \\"


def _groups(columns: tuple[Column, ...]) -> list[str]:
    """Write the heads that several columns share, with a rule below each."""
    cells, rules, place = [], [], 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{{latex_safe(group)}}}")
        rules += [rf"\cmidrule(lr){{{place}-{place + width - 1}}}"] if group else []
        place += width
    return [" & ".join(cells) + r" \\", "".join(rules)]


def _label(name: str) -> str:
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower())
