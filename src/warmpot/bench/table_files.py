"""The results of a grid as files: CSV and Parquet with one line per training and rule, tables in Markdown and LaTeX."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warmpot._files import atomic_write
from warmpot._tables import LATEX_PREAMBLE, escape_latex, escape_markdown, to_latex, to_markdown
from warmpot.bench.result_tables import table_sections
from warmpot.bench.store import FAILED, Record
from warmpot.bench.summary import PARTIAL, Summary, load_summary

__all__ = ["as_latex", "as_markdown", "tidy", "write_tables"]

logger = logging.getLogger(__name__)

BEFORE = ("key", "dataset", "task", "row", "method", "weights", "preset", "setting", "seed", "any_seed")
AFTER = ("seconds", "outlier_weight", "outlier_samples", "collapsed", "status", "error", "finished")
"""Columns before and after those of the varied settings and of the rule."""


def write_tables(folder: Path | str, summary: Summary | None = None) -> list[Path]:
    """Write results.csv, tables.md, tables.tex and results.parquet into a folder that ``warmpot bench`` wrote.

    Pass its summary if it was read already. Parquet needs the extra ``parquet``; without it, the file is left out, with
    a line in the log.
    """
    folder = Path(folder)
    summary = summary or load_summary(folder)
    columns = tidy(summary)
    paths = [folder / name for name in ("results.csv", "tables.md", "tables.tex")]
    with atomic_write(paths[0]) as draft, open(draft, "x", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    for path, text in ((paths[1], as_markdown(summary)), (paths[2], as_latex(summary))):
        with atomic_write(path) as draft:
            draft.write_text(text, encoding="utf-8")
    return [*paths, *_write_parquet(folder / "results.parquet", columns)]


def tidy(summary: Summary) -> dict[str, list[Any]]:
    """Return the columns of a table with one line per training and rule, and one per failed training.

    Accuracies and shares are in [0, 1]. Every setting that the grid varies is a column.
    """
    varied = list(dict.fromkeys(name for record in summary.records for name in record.point))
    lines = [line for record in summary.records for line in _tidy_lines(record, varied)]
    names = list(lines[0]) if lines else list(next(_tidy_lines(Record(status=FAILED), [])))

    def encodable(value: Any) -> Any:  # an error message may contain a file name in another encoding
        return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value

    return {name: [encodable(line[name]) for line in lines] for name in names}


def _tidy_lines(record: Record, varied: list[str]) -> Iterator[dict[str, Any]]:
    before = {name: getattr(record, name) for name in BEFORE} | {name: record.point.get(name) for name in varied}
    after = {name: getattr(record, name) for name in AFTER} | {"version": record.versions.get("warmpot", "")}
    for rule in record.accuracy if record.done else [""]:
        result = {"rule": rule, "accuracy": record.accuracy.get(rule), "step": record.steps.get(rule)}
        yield before | result | after


def _write_parquet(path: Path, columns: dict[str, list[Any]]) -> list[Path]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        logger.info("%s is not written: it needs pyarrow (pip install 'warmpot[parquet]')", path.name)
        return []
    types = {
        **dict.fromkeys(("seed", "step"), pyarrow.int64()),
        **dict.fromkeys(("any_seed", "collapsed"), pyarrow.bool_()),
        **dict.fromkeys(("accuracy", "seconds", "outlier_weight", "outlier_samples"), pyarrow.float64()),
    }  # given, since an empty column does not show its type
    for name, values in columns.items():
        numeric = any(isinstance(value, float) for value in values)
        types.setdefault(name, pyarrow.float64() if numeric else pyarrow.string())
    schema = pyarrow.schema([(name, types[name]) for name in columns])
    with atomic_write(path) as draft:
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema), draft)
    return [path]


def _facts(summary: Summary) -> list[str]:
    """Describe the results above the tables."""
    grid = summary.grid
    facts = [f"Setting: {grid.setting}."] if grid.setting else []
    facts += [f"{data.name}: {data.setting}." for data in grid.data if data.setting]
    failed = f", {len(summary.failed)} failed" if summary.failed else ""
    seeds = ", ".join(map(str, summary.seeds))
    facts.append(f"{summary.n_done} of {summary.n_trainings} trainings are done{failed}; seeds {seeds}.")
    if summary.foreign_records:
        facts.append(f"{summary.foreign_records} records of other grids in the same file are ignored.")
    facts.append("Accuracies of the last, label-free and oracle iterates are separate: the oracle uses target labels.")
    return facts


def as_markdown(summary: Summary) -> str:
    """Write all tables as Markdown; names are escaped."""
    parts = [f"# {escape_markdown(summary.grid.title)}", " ".join(map(escape_markdown, _facts(summary)))]
    for heading, tables in table_sections(summary).items():
        printed: set[str] = set()  # a note appears once per section
        parts.append(f"## {heading}")
        for table in tables:
            notes = [note for note in table.notes if note == PARTIAL or note not in printed]
            parts.append(to_markdown(table, notes=notes))
            printed.update(table.notes)
    return "\n\n".join(parts) + "\n"


def as_latex(summary: Summary) -> str:
    """Write all tables as LaTeX with booktabs, to be included in a document; names are escaped."""
    comments = [f"% {escape_latex(text)}" for text in (summary.grid.title, *_facts(summary))]
    tables = [to_latex(table) for tables in table_sections(summary).values() for table in tables]
    return "\n".join([LATEX_PREAMBLE, *comments, *tables]) + "\n"
