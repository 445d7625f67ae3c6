"""The page of a grid: the result first, then tables and figures, and how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import product
from pathlib import Path

from warmpot._progress import format_duration
from warmpot._run_files import PAGE, figures_folder
from warmpot._tables import ResultTable, TableCell
from warmpot.bench.grid import GRID
from warmpot.bench.paper_comparison import paper, reported_table
from warmpot.bench.result_tables import FAILURES, MEANS, OVERVIEW, PAPER, TASKS, TESTS, table_sections
from warmpot.bench.significance import LEVEL, VariantComparison, best_variant, compare_variants, verdict
from warmpot.bench.store import LAST
from warmpot.bench.summary import ABSENT, Summary, Variant, describe_rule, group_failures, load_summary, variant_of
from warmpot.report import grid_figures as figures
from warmpot.report.page import Block, Code, Details, Facts, Notice, Picture, Section, Text, Tiles, write_page

__all__ = ["write_grid_page"]

MAX_OPEN_HISTOGRAMS, MAX_HISTOGRAMS = 2, 6
"""Histograms shown, and drawn at all; those beyond the first limit are folded."""
MAX_OPEN_ROWS = 12
"""Rows of the table of missing trainings above which it is folded."""
MAX_TRACES = 20
MAX_LISTED = 8
"""Names in a sentence."""
MAX_NOTES = 3
"""Notes shown below the comparison with the paper; the others are folded."""
FEWER = "*: fewer seeds or tasks than requested."
PAPER_OUTLIERS = ("office-home", "P->A", 6.04, 58.41)
"""The paper's histograms: table and task, per cent of the weight and of the samples that are of outlier classes."""


def write_grid_page(
    folder: Path | str, *, out: Path | None = None, files: bool = True, summary: Summary | None = None
) -> Path:
    """Write ``report.html`` and ``figures/`` into a folder that ``warmpot bench`` wrote; return the page.

    The grid may be trained in part. `out` is another file for the page; figures are written next to it. `files` writes
    every figure as PNG and SVG, too; `summary` are the results of the folder, if they were read already.
    """
    folder = Path(folder)
    summary = (summary or load_summary(folder)).ranked()
    tables = table_sections(summary)
    varied = bool(summary.grid.vary)  # one row at many points: curves and maps, no comparison of the points
    sections = [
        _result(summary),
        Section("Sensitivity", figures.draw_sensitivity(summary, LAST) if varied else []),
        _weights(summary) if summary.grid.figure == "histogram" else Section("Weights", []),
        _means(summary, tables.get(MEANS, []), varied),
        _paper(tables.get(PAPER, [])),
        _tasks(summary, tables.get(TASKS, []), varied),
        _tests(summary, tables.get(TESTS, []), varied),
        _failures(summary, tables.get(FAILURES, [])),
        _reproduction(summary, folder),
    ]
    path, seeds = out or folder / PAGE, _count(len(summary.seeds), "seed")
    write_page(
        path,
        title=summary.grid.title,
        subtitle=" · ".join(filter(None, [", ".join(summary.datasets), summary.grid.setting, seeds])),
        sections=[section for section in sections if section.blocks],
        figures=figures_folder(path) if files else None,
    )
    return path


def _result(summary: Summary) -> Section:
    best = best_variant(summary, LAST)
    tiles: list[tuple[str, str, str]] = []
    if best is not None:
        score, clear = summary.mean(best, LAST), summary.grid.vary or not _rivals(summary, best)
        label = "best point" if summary.grid.vary else "best row" if clear else "highest mean, no clear winner"
        tiles.append((best.label, label, f"{describe_rule(LAST)}, mean over {_number_of_tasks(summary)}"))
        spread = f"± {score.std:.1f} over {len(score.values)} seeds" if score.std is not None else "one run"
        tiles.append((f"{score.mean:.1f}%", "its accuracy", spread))
        gain = None if summary.grid.vary else _gain(summary, best)
        if gain is not None:
            p = "p < 0.001" if gain.tasks_holm < 0.001 else f"p = {gain.tasks_holm:.3f}"
            note = "too few tasks to test" if gain.tasks.too_few else f"conservative test over tasks: {p}"
            note += ", but mixed" if verdict(gain.tasks, gain.tasks_holm) == "mixed" else ""
            tiles.append((f"{gain.tasks.difference:+.1f}", f"points over {gain.other.label}", note))
    time = format_duration(sum(record.seconds for record in summary.records))
    finished = f"{summary.n_done} of {summary.n_trainings}"
    tiles.append((finished, "trainings finished", f"{time} in total, one thread each"))
    finished_note = Notice("info", "Every training of the grid is finished, and none failed or collapsed.")
    return Section("Result", [Tiles(tiles), *(list(_notices(summary)) or [finished_note])], _conclusion(summary, best))


def _conclusion(summary: Summary, best: Variant | None) -> str:
    """Name the best variant, its lead, and whether the lead is significant."""
    if best is None:
        missing = "No row has results for all tasks yet, so there is no best row."
        return " ".join(filter(None, [missing, figures.arrow(summary.excluded_note)]))
    means = {variant: mean for variant in summary.variants if (mean := summary.mean(variant, LAST).mean) is not None}
    others = [variant for variant in summary.variants if variant not in means]
    rank = "the only one with results for all tasks" if others and len(means) == 1 else "best"
    average = f"{means[best]:.1f}% on average over {_number_of_tasks(summary)}"
    sentences = [f"{best.label} is {rank}: {average}.", figures.arrow(summary.excluded_note)]
    if not summary.grid.vary and _rivals(summary, best):
        sentences[0] = f"There is no clear winner. {best.label} has the highest mean: {average}."
    if summary.grid.vary:
        low, high, points = min(means.values()), max(means.values()), _count(len(means), "point")
        sentences.append(f"The {points} with results for all of these range from {low:.1f}% to {high:.1f}%.")
        return " ".join(filter(None, sentences))
    if (gain := _gain(summary, best)) is not None:
        texts = {"better": "which is significant", "": "which is not significant"}
        text = texts.get(verdict(gain.tasks, gain.tasks_holm), _mixed(gain.tasks.better, gain.tasks.worse))
        sentences.append(f"Compared with {gain.other.label}, that is {gain.tasks.difference:+.1f} points, {text}.")
    sentences += _significance(summary, _compared(summary, best))
    if others:
        names = _listed([variant.label for variant in others])
        sentences.append(f"Not compared, since results of some tasks are missing: {names}.")
    return " ".join(filter(None, sentences))


def _compared(summary: Summary, best: Variant) -> list[VariantComparison]:
    """Compare the other variants that have a mean with the best one."""
    return [
        comparison for comparison in compare_variants(summary, LAST, best)
        if summary.mean(comparison.variant, LAST).mean is not None
    ]  # fmt: skip


def _rivals(summary: Summary, best: Variant) -> list[Variant]:
    """Return the variants that the best one does not beat significantly, on average and on most tasks."""
    return [c.variant for c in _compared(summary, best) if verdict(c.tasks, c.tasks_holm) != "worse"]


def _significance(summary: Summary, comparisons: Sequence[VariantComparison]) -> list[str]:
    """List the other variants that the best one beats significantly, on average and on most tasks, and those not."""
    if not comparisons:
        return []
    verdicts = [(comparison, verdict(comparison.tasks, comparison.tasks_holm)) for comparison in comparisons]
    similar = [comparison.variant.label for comparison, text in verdicts if not text]
    mixed = [comparison for comparison, text in verdicts if text in ("mixed", "better")]
    sentences = []
    if not similar and not mixed:
        sentences.append("It is significantly better than every other row.")
    elif len(similar) == len(comparisons):
        sentences.append("No other row differs significantly from it in the conservative test over tasks.")
    elif similar:
        test = "In the conservative test over tasks"
        sentences.append(f"{test} it does not differ significantly from {_listed(similar)}.")
    sentences += [f"Compared with {c.variant.label} it is {_mixed(c.tasks.worse, c.tasks.better)}." for c in mixed]
    n_tasks = len(summary.finished_tasks)
    if 0.5 ** (n_tasks - 1) * len(comparisons) >= LEVEL:  # the smallest possible p-value after Holm's correction
        sentences.append(f"With {_count(n_tasks, 'task')} that test can hardly be significant.")
    return sentences


def _mixed(better: int, worse: int) -> str:
    return f"mixed: better on {_count(better, 'task')}, worse on {worse}"


def _number_of_tasks(summary: Summary) -> str:
    return f"{summary.task_count()} tasks" if summary.excluded_note else _count(len(summary.tasks), "task")


def _notices(summary: Summary) -> Iterator[Notice]:
    if summary.failed:
        failed = f"{_count(len(summary.failed), 'training')} failed."
        yield Notice("bad", failed, "The same command tries them again; their errors are below.")
    if missing := sum(len(entry.untrained) for entry in summary.missing):
        text = (
            f"Not trained yet: {missing:,} of {summary.n_trainings:,}. Means use the seeds with results for all tasks."
        )
        yield Notice("warning", text, "The same command continues.")
    if collapsed := [record for record in summary.records if record.done and record.collapsed]:
        rows = _listed(list(dict.fromkeys(replace(variant_of(record), point=()).label for record in collapsed)))
        count = _count(len(collapsed), "training")
        yield Notice("warning", f"{count} collapsed: most classes were no longer predicted at the end: {rows}.")
    if summary.foreign_records:
        records = _count(summary.foreign_records, "record")
        yield Notice("info", f"results.jsonl also contains {records} of other grids, which are ignored.")


def _weights(summary: Summary) -> Section:
    table, paper_task, share, samples = PAPER_OUTLIERS
    reported = reported_table(table)
    quote = f"The paper's WARMPOT ({reported.setting}): {share}% of the weight on {samples}% of the samples."
    pictures: list[Picture] = []
    for variant, task in product(summary.variants, summary.tasks):
        same = reported.same_dataset(task[0]) and reported.task_of(task[1]) == paper_task
        if len(pictures) < MAX_HISTOGRAMS:
            picture = figures.draw_weights(summary, variant, task, len(pictures) + 1, quote if same else "")
            pictures += _drawn([picture])
    blocks: list[Block] = [*pictures[:MAX_OPEN_HISTOGRAMS]]
    if folded := pictures[MAX_OPEN_HISTOGRAMS:]:
        blocks.append(Details(_count(len(folded), "more histogram"), folded))
    if any(quote in picture.caption for picture in pictures):
        blocks.append(Text(f"The paper: {paper()}"))
    lead = "Good weights are small for source classes that the target does not have, and large for shared classes."
    return Section("Distribution of the weights", blocks, lead)


def _means(summary: Summary, result_tables: Sequence[ResultTable], varied: bool) -> Section:
    draw = () if varied else (figures.draw_choices, figures.draw_outliers, figures.draw_time)
    tables = [_for_page(table) for table in result_tables]
    overviews = [table for table in tables if table.name.startswith(OVERVIEW)]  # means by data set
    shown = [table for table in tables if table not in overviews]
    choice = ", the label-free choice" if summary.grid.choose else ""
    lead = f"The last iterate{choice} and the oracle, which uses target labels, are separate columns."
    return Section("All rows", [*shown, *_drawn([each(summary) for each in draw]), *map(_folded, overviews)], lead)


def _paper(result_tables: Sequence[ResultTable]) -> Section:
    tables = [_for_page(replace(table, notes=table.notes[:MAX_NOTES])) for table in result_tables]
    folded = [_folded(table) for table in tables[1:]]
    notes = [note for table in result_tables[:1] for note in table.notes[MAX_NOTES:]]
    folded += [Details("Notes on the paper's numbers", [Text(note) for note in notes])] if notes else []
    lead = "Our numbers on the left, the paper's on the right. The settings differ: compare within a column only."
    return Section(PAPER, [*tables[:1], *folded], lead)


def _tasks(summary: Summary, result_tables: Sequence[ResultTable], varied: bool) -> Section:
    pictures = [] if varied else [
        *(figures.draw_tasks(summary, LAST, number + 1, name) for number, name in enumerate(summary.datasets)),
        figures.draw_gains(summary, LAST),
    ]  # fmt: skip
    finished = {data for data, _ in summary.finished_tasks}
    unfinished = [name for name in summary.datasets if name not in finished]
    notes = [Text(f"No training is finished on {_listed(unfinished)}: there is nothing to draw.")] if unfinished else []
    return Section(TASKS, [*_drawn(pictures), *notes, *(_folded(_for_page(table)) for table in result_tables)])


def _tests(summary: Summary, result_tables: Sequence[ResultTable], varied: bool) -> Section:
    pictures = [] if varied else [figures.draw_ranks(summary, LAST)]
    lead = "Paired tests. Seeds of a task share its data, so that the test over tasks is the reliable one."
    return Section(TESTS, [*_drawn(pictures), *(_folded(_for_page(table)) for table in result_tables)], lead)


def _failures(summary: Summary, result_tables: Sequence[ResultTable]) -> Section:
    tables = [_for_page(table) for table in result_tables]
    blocks: list[Block] = [_folded(table) if len(table.rows) > MAX_OPEN_ROWS else table for table in tables]
    for group in group_failures(summary.failed)[:MAX_TRACES]:
        seeds = ["" if record.any_seed else f", seed {record.seed}" for record in group]
        first, where = group[0], [f"{record.dataset}, {figures.arrow(record.task)}" for record in group]
        names = [f"{variant_of(r).label}, {at}{seed}" for r, at, seed in zip(group, where, seeds, strict=True)]
        title = names[0] if len(group) == 1 else f"{len(group)} trainings of {first.dataset} with the same error"
        listed = [Text(f"{_listed(names[:MAX_TRACES])}.")] if len(group) > 1 else []
        blocks.append(Details(title, [*listed, Code(first.trace or first.error)]))
    return Section(FAILURES, blocks)


def _reproduction(summary: Summary, folder: Path) -> Section:
    grid = summary.grid
    versions: dict[str, set[str]] = {}
    for record in summary.records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    times = sorted(record.finished for record in summary.records if record.finished)
    once = f"{_count(summary.n_any_seed, 'training')} for all seeds, since nothing is drawn"
    tasks = "; ".join(f"{name}: {_count(len(tasks), 'task')}" for name, tasks in summary.datasets.items())
    packages = ", ".join(f"{name} {' and '.join(sorted(numbers))}" for name, numbers in sorted(versions.items()))
    facts = [
        ("setting", grid.setting, ""),
        *((f"setting of {data.name}", data.setting, "") for data in grid.data if data.setting),
        ("data sets", tasks, ""),
        ("rows", ", ".join(f"{row.name} ({row.preset or row.method})" for row in grid.rows), "with their presets"),
        ("baseline", grid.baseline, ""),
        ("seeds", ", ".join(map(str, summary.seeds)), once if summary.n_any_seed else ""),
        ("rules", ", ".join(summary.rules), "the oracle uses target labels, the others do not"),
        ("finished", _time(times[-1]) if times else "", ""),
        ("versions", packages, ""),
    ]
    command = f"warmpot bench {shlex.quote(str(folder / GRID))} --data DATA --out {shlex.quote(str(folder))}"
    text = "The command continues where it stopped: finished trainings are not repeated. "
    text += "DATA is the folder of the data."
    blocks: list[Block] = [Facts([fact for fact in facts if fact[1]]), Text(text), Code(command)]
    return Section("How to reproduce it", [*blocks, Details("The grid", [Code(grid.dump())])])


def _for_page(table: ResultTable) -> ResultTable:
    """Shorten the cells of a table for a page: arrows, and tooltips instead of the counts of incomplete means."""
    rows = [[_cell(cell) for cell in row] for row in table.cells]
    fewer = [FEWER] if any(cell and cell.title for row in rows for cell in row) else []
    columns = [replace(column, name=figures.arrow(column.name)) for column in table.columns]
    notes = [*map(figures.arrow, table.notes), *fewer]
    return replace(table, columns=columns, rows=rows, title=figures.arrow(table.title), notes=notes)


def _folded(table: ResultTable) -> Details:
    return Details(table.title, [replace(table, title="")])


def _cell(cell: TableCell) -> TableCell | None:
    """Convert a cell; missing seeds or tasks become a star with a tooltip."""
    if cell.text == ABSENT:
        return None
    text, fewer, counts = cell.text.partition(", ") if cell.value is not None else (cell.text, "", "")
    return replace(cell, text=figures.arrow(text) + "*" * bool(fewer), title=counts)


def _gain(summary: Summary, variant: Variant) -> VariantComparison | None:
    """Compare a variant with the baseline; None for the baseline itself, or without a complete baseline."""
    base = summary.baseline
    if base is None or summary.mean(base, LAST).mean is None:
        return None
    comparisons = compare_variants(summary, LAST, base)
    return next((comparison for comparison in comparisons if comparison.variant == variant), None)


def _drawn(pictures: Sequence[Picture | None]) -> list[Picture]:
    return [picture for picture in pictures if picture is not None]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _listed(names: Sequence[str]) -> str:
    if len(names) > MAX_LISTED + 1:
        return f"{', '.join(names[:MAX_LISTED])} and {len(names) - MAX_LISTED} more"
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _time(text: str) -> str:
    """Write the time of a record in UTC; a text in another form is returned unchanged."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{time.astimezone(timezone.utc) if time.tzinfo else time:%Y-%m-%d %H:%M} UTC"
