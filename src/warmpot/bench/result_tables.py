"""All tables of a grid, in the order of its page; and as files: CSV, Parquet, Markdown and LaTeX."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from warmpot._files import atomic_write
from warmpot._tables import (
    LATEX_PREAMBLE,
    ResultTable,
    TableCell,
    TableColumn,
    escape_latex,
    escape_markdown,
    to_latex,
    to_markdown,
)
from warmpot.bench.oracle_tables import KNOWN_CLASSES_NOTE, known_classes_by_task, known_classes_columns, presence_table
from warmpot.bench.paper_comparison import compare_with_paper, paper_by_task
from warmpot.bench.significance import LEVEL, best_variant, compare_variants, rank_variants
from warmpot.bench.store import FAILED, LAST, ORACLE, Record
from warmpot.bench.summary import (
    ABSENT,
    PARTIAL,
    Columns,
    Summary,
    TaskKey,
    Variant,
    describe_rule,
    format_points,
    group_failures,
    join_columns,
    load_summary,
    mean_cell,
    score_cells,
    text_column,
    variant_of,
)

__all__ = ["FAILURES", "MEANS", "OVERVIEW", "PAPER", "TASKS", "TESTS", "all_tables", "table_sections", "write_tables"]

logger = logging.getLogger(__name__)

BEFORE = (
    "key", "dataset", "task", "row", "method", "weights", "preset", "setting", "seed", "any_seed", "known_classes",
)  # fmt: skip
PRESENCE = ("share_auc", "presence_auc", "presence_brier", "lost_classes")
AFTER = ("seconds", "outlier_weight", "outlier_samples", *PRESENCE, "collapsed", "status", "error", "finished")
"""Columns before and after those of the varied settings and of the rule."""
MEANS, PAPER, TASKS = "Summary", "Comparison with the paper", "Task by task"
TESTS, FAILURES = "Are the differences significant?", "Failed and missing trainings"
"""Headings."""
OVERVIEW = "overview"
"""Start of the names of tables with means by data set."""
MAX_NAMED = 3
"""Tasks that a list of failures names; the others are counted."""


def table_sections(summary: Summary) -> dict[str, list[ResultTable]]:
    """Return the tables by heading; headings without tables are left out."""
    several = len(summary.datasets) > 1
    overviews = [_overview(summary, rule) for rule in summary.rules] if several else []
    sections: dict[str, Sequence[ResultTable | None]] = {
        MEANS: [*overviews, _rules(summary), presence_table(summary)],
        PAPER: [compare_with_paper(summary), paper_by_task(summary)],
        TASKS: [
            *(_by_task(summary, name, rule) for name in summary.datasets for rule in summary.rules),
            *(known_classes_by_task(summary, name) for name in summary.datasets),
        ],
        TESTS: _tests(summary),
        FAILURES: [_failed(summary), _missing(summary)],
    }
    present = {heading: [table for table in tables if table is not None] for heading, tables in sections.items()}
    return {heading: tables for heading, tables in present.items() if tables}


def all_tables(summary: Summary) -> list[ResultTable]:
    """Return all tables."""
    return [table for tables in table_sections(summary).values() for table in tables]


def _names(variants: Sequence[Variant]) -> tuple[TableColumn, list[TableCell]]:
    return text_column("row", (variant.label for variant in variants))


def _spread(summary: Summary) -> str:
    if len(summary.seeds) == 1:
        return f"Accuracy in per cent, seed {summary.seeds[0]}."
    seeds = ", ".join(map(str, summary.seeds))
    text = f"Accuracy in per cent: mean (std) over the seeds {seeds}. Over tasks, the std is that of the seeds' means."
    constant = any(record.any_seed for record in summary.records)
    return text + (" Without std: one run, since nothing depends on the seed." if constant else "")


def _overview(summary: Summary, rule: str) -> ResultTable:
    columns: Columns = [_names(summary.variants)]
    for name in summary.datasets:
        scores = [summary.mean(variant, rule, name) for variant in summary.variants]
        columns.append((TableColumn(f"{name} ({summary.task_count(name)})"), score_cells(scores)))
    overall = score_cells([summary.mean(variant, rule) for variant in summary.variants])
    columns.append((TableColumn(f"all tasks ({summary.task_count()})"), overall))
    notes = filter(None, [_spread(summary), summary.excluded_note])
    return join_columns(f"{OVERVIEW}-{rule}", f"Mean over tasks, {describe_rule(rule)}", columns, notes)


def _rules(summary: Summary) -> ResultTable:
    """Return the means by rule, and the costs."""
    variants = summary.variants
    columns: Columns = [_names(variants)]
    columns += [(TableColumn(rule), score_cells([summary.mean(v, rule) for v in variants])) for rule in summary.rules]
    columns += known_classes_columns(summary)
    notes = list(
        filter(
            None, [_spread(summary), summary.excluded_note, KNOWN_CLASSES_NOTE if summary.grid.known_classes else ""]
        )
    )
    if summary.baseline is not None:
        cells = [_below(summary, variant, summary.baseline) for variant in variants]
        columns.append((TableColumn(f"tasks below {summary.baseline.label}"), cells))
        notes.append(f"Tasks below {summary.baseline.label}: by the mean of the last iterates.")
    for head, quantity in (("weight on outliers, %", "outlier_weight"), ("seconds per run", "seconds")):
        columns.append((TableColumn(head), [mean_cell(summary, variant, quantity) for variant in variants]))
    notes.append("Weight on outliers: share of the final source weight on classes that the target does not have.")
    tasks = summary.task_count() if summary.excluded_note else f"all {summary.task_count()}"
    title = f"Comparison of the rules, mean over {tasks} tasks"
    return join_columns("rules", title, columns, notes)


def _below(summary: Summary, variant: Variant, baseline: Variant) -> TableCell:
    if variant == baseline:
        return TableCell("")
    below, both = summary.count_below(variant, baseline, LAST)
    return TableCell(f"{below} of {both}" if both else ABSENT, value=below if both else None)


def _by_task(summary: Summary, dataset: str, rule: str) -> ResultTable | None:
    tasks: list[TaskKey] = [task for task in summary.tasks if task[0] == dataset]
    if len(tasks) == 1:  # already a column of the summary
        return None
    columns: Columns = [_names(summary.variants)]
    for task in tasks:
        columns.append((TableColumn(task[1]), score_cells([summary.score(v, task, rule) for v in summary.variants])))
    mean = [summary.mean(variant, rule, dataset) for variant in summary.variants]
    columns.append((TableColumn(f"mean ({summary.task_count(dataset)})"), score_cells(mean)))
    return join_columns(f"tasks-{dataset}-{rule}", f"{dataset}, {describe_rule(rule)}", columns, [_spread(summary)])


def _tests(summary: Summary) -> list[ResultTable | None]:
    if summary.grid.vary:  # points of one row, not methods to be compared
        return []
    tables: list[ResultTable | None] = []
    for rule in (rule for rule in summary.rules if rule != ORACLE):  # which cannot be used without labels
        tables.append(_ranks(summary, rule))
        best = best_variant(summary, rule)
        if summary.baseline is not None:
            tables.append(_against(summary, rule, summary.baseline, "baseline"))
        if best is not None and best != summary.baseline:
            tables.append(_against(summary, rule, best, "best"))
    return tables


def _ranks(summary: Summary, rule: str) -> ResultTable | None:
    ranking = rank_variants(summary, rule)
    if ranking is None:
        return None
    letters = [
        "".join(chr(97 + k % 26) for k, group in enumerate(ranking.groups) if index in group)
        for index in range(len(ranking.variants))
    ]
    columns: Columns = [
        _names(ranking.variants),
        (TableColumn("mean rank"), [TableCell(f"{rank:.2f}", value=rank) for rank in ranking.ranks]),
        text_column("group", letters),
    ]
    notes = [
        f"Ranks of the means over seeds within each of {ranking.tasks} tasks; 1 is best, ties share their mean rank.",
        f"Nemenyi's critical difference at 0.05: {ranking.difference:.2f}. Rows with a common letter differ by less.",
    ]
    if (test := ranking.friedman) is not None:
        result = f"chi2 = {test.statistic:.1f}, p {_p(test.pvalue, True)}"
        notes.insert(1, f"Friedman's test of equal performance: {result}.")
    few = [
        variant.label for variant in ranking.variants
        if any(len(summary.score(variant, task, rule).values) < len(summary.seeds) for task in summary.finished_tasks)
    ]  # fmt: skip
    if few:
        notes.append(f"Ranked by fewer seeds than requested: {', '.join(few)}.")
    if summary.excluded_note:
        notes.append(summary.excluded_note)
    if ranking.excluded:
        labels = ", ".join(variant.label for variant in ranking.excluded)
        notes.append(f"Not ranked, since results of a task are missing: {labels}.")
    return join_columns(f"ranks-{rule}", f"Ranks, {describe_rule(rule)}", columns, notes)


def _against(summary: Summary, rule: str, other: Variant, role: str) -> ResultTable | None:
    comparisons = compare_variants(summary, rule, other)
    if not comparisons:
        return None
    points = [TableCell(format_points(c.tasks.difference), value=c.tasks.difference) for c in comparisons]
    columns: Columns = [_names([comparison.variant for comparison in comparisons]), (TableColumn("points"), points)]
    groups = {
        "over tasks (conservative)": [(c.tasks, c.tasks_holm) for c in comparisons],
        "over tasks and seeds": [(c.pairs, c.pairs_holm) for c in comparisons],
    }
    for group, tests in groups.items():
        counts = [TableCell(f"{t.better} / {t.worse} of {t.pairs}") for t, _ in tests]
        columns.append((TableColumn("better / worse", group), counts))
        columns.append((TableColumn("p", group), [TableCell(_p(t.pvalue), value=t.pvalue) for t, _ in tests]))
        columns.append((TableColumn("p, Holm", group), [TableCell(_p(p), p < LEVEL, p) for _, p in tests]))
    notes = [
        "Wilcoxon's signed-rank test, two-sided, zeros as by Pratt. Bold: below 0.05 after Holm's correction for "
        f"{len(comparisons)} comparisons.",
        "Seeds of a task share its data, so that pairs over seeds are not independent: that test is too optimistic.",
    ]
    if role == "best":
        notes.append("The best row was selected on the same numbers, which favours it.")
    title = f"Compared with {other.label} ({role}), {describe_rule(rule)}"
    return join_columns(f"against-{role}-{rule}", title, columns, notes)


def _p(value: float, sign: bool = False) -> str:
    return "< 0.001" if value < 0.001 else f"{'= ' if sign else ''}{value:.3f}"


def _failed(summary: Summary) -> ResultTable | None:
    if not summary.failed:
        return None
    groups = group_failures(summary.failed)
    seeds = [_each("any" if r.any_seed else str(r.seed) for r in group) for group in groups]
    columns: Columns = [
        text_column("row", (_each(variant_of(r).label for r in group) for group in groups)),
        text_column("task", (_each(f"{r.dataset}, {r.task}" for r in group) for group in groups)),
        (TableColumn("seed"), [TableCell(text) for text in seeds]),
        (TableColumn("trainings"), [TableCell(str(len(group)), value=len(group)) for group in groups]),
        text_column("error", (group[0].error for group in groups)),
    ]
    return join_columns("failed", f"Failed trainings: {len(summary.failed)}", columns)


def _each(texts: Iterable[str]) -> str:
    """List distinct texts; only the first of many."""
    names = list(dict.fromkeys(texts))
    more = len(names) - MAX_NAMED
    return "; ".join(names[:MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _missing(summary: Summary) -> ResultTable | None:
    """List untrained cells; tasks of a variant with the same seeds are grouped."""
    groups: dict[tuple[Variant, tuple[int, ...]], list[TaskKey]] = {}
    for missing in summary.missing:
        if missing.untrained:
            groups.setdefault((missing.variant, missing.untrained), []).append(missing.task)
    if not groups:
        return None
    names = [
        "all" if len(tasks) == len(summary.tasks) else _each(", ".join(task) for task in tasks)
        for tasks in groups.values()
    ]
    columns: Columns = [
        _names([variant for variant, _ in groups]),
        text_column("tasks", names),
        text_column("seeds", (", ".join(map(str, seeds)) for _, seeds in groups)),
    ]
    total = sum(len(seeds) * len(tasks) for (_, seeds), tasks in groups.items())
    return join_columns("missing", f"Not trained yet: {total} of {summary.n_trainings}", columns)


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
        **dict.fromkeys(("seed", "step", "lost_classes"), pyarrow.int64()),
        **dict.fromkeys(("any_seed", "known_classes", "collapsed"), pyarrow.bool_()),
        **dict.fromkeys(("accuracy", "seconds", "outlier_weight", "outlier_samples", *PRESENCE[:3]), pyarrow.float64()),
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
    tables = [to_latex(table) for table in all_tables(summary)]
    return "\n".join([LATEX_PREAMBLE, *comments, *tables]) + "\n"
