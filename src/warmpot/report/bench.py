"""The page of a bench: the answer first, then tables and figures, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from warmpot._progress import format_duration
from warmpot._tables import ResultTable
from warmpot.bench.contrasts import LEVEL, Contrast, best_line, contrasts, verdict
from warmpot.bench.grid import GRID
from warmpot.bench.sheet import Entry, Sheet
from warmpot.bench.sheets import sections as sheet_sections
from warmpot.bench.store import LAST, Record
from warmpot.bench.summary import ABSENT, Line, Summary, alike, line_of, rule_words, summarise
from warmpot.report import bench_figures as figures
from warmpot.report.bench_sensitivity import draw_sensitivity
from warmpot.report.page import (
    Block,
    Cell,
    Code,
    Details,
    Facts,
    Notice,
    Picture,
    Section,
    Table,
    Text,
    Tiles,
    write_page,
)

__all__ = ["write_bench_page"]

PAGE, FIGURES = "report.html", "figures"
MOST_HISTOGRAMS, ALL_HISTOGRAMS = 2, 6
"""Drawn in sight, and drawn at all; those between are folded."""
MOST_TRACES = 20
MOST_NOTES = 3
"""Notes in sight below a table."""
FEWER = "*: of fewer seeds or tasks than asked."
PAPER_OUTLIERS = ("office-home", "P->A", 6.04, 58.41)
"""The paper's figure of weights: table and task, per cent of the weight and of the samples on outlier classes."""


def write_bench_page(folder: Path | str, *, files: bool = True) -> Path:
    """Write ``report.html`` and ``figures/`` into the folder of a bench.

    Parameters
    ----------
    folder : Path
        What ``warmpot bench`` wrote; a grid of which only a part is trained will do.
    files : bool
        Write every figure as PNG and SVG, too.

    Returns
    -------
    Path
        The page.
    """
    folder = Path(folder)
    summary = summarise(folder)
    sheets = sheet_sections(summary)
    searched = bool(summary.grid.vary)  # one row at many points: curves and maps, no race between its points
    found = [
        _answer(summary),
        Section("Sensitivity", draw_sensitivity(summary, LAST)) if searched else None,
        _weights(summary) if summary.grid.figure == "histogram" else None,
        _means(summary, sheets.get("Summary", []), searched),
        _beside(sheets.get("Beside the paper", [])),
        _tasks(summary, sheets.get("Task by task", []), searched),
        _apart(summary, sheets.get("Can the rows be told apart?", []), searched),
        _lost(summary, sheets.get("What is missing", [])),
        _made(summary, folder),
    ]
    path = folder / PAGE
    subtitle = " · ".join(filter(None, [", ".join(summary.datasets), summary.grid.setting, _seeds(summary)]))
    sections = [section for section in found if section is not None and section.blocks]
    place = folder / FIGURES if files else None
    write_page(path, title=summary.grid.title, subtitle=subtitle, sections=sections, figures=place)
    return path


def _answer(summary: Summary) -> Section:
    top = best_line(summary, LAST)
    tiles: list[tuple[str, str, str]] = []
    if top is not None:
        score = summary.mean(top, LAST)
        label = "best point" if summary.grid.vary else "best row"
        tiles.append((top.label, label, f"{rule_words(LAST)}, mean over {_tasks_words(summary)}"))
        spread = f"± {score.std:.1f} over {len(score.values)} seeds" if score.std is not None else "one run"
        tiles.append((f"{score.mean:.1f}%", "its accuracy", spread))
        gain = None if summary.grid.vary else _gain(summary, top)
        if gain is not None:
            told = "too few tasks to test" if gain.tasks.too_few else f"cautious test over tasks: {_p(gain.tasks_holm)}"
            told += ", but mixed" if verdict(gain.tasks, gain.tasks_holm) == "mixed" else ""
            tiles.append((f"{gain.tasks.difference:+.1f}", f"points over {gain.other.label}", told))
    spent = format_duration(sum(record.seconds for record in summary.records))
    tiles.append((f"{summary.done} of {summary.asked}", "trainings finished", f"{spent} in all, one thread each"))
    return Section("The answer", [Tiles(tiles), *_notices(summary)], _sentence(summary, top))


def _sentence(summary: Summary, top: Line | None) -> str:
    """Say which line is best, by how much, and whether that can be told from chance."""
    if top is None:
        return " ".join(
            filter(None, ["No row has all of its tasks yet, so none can be called the best.", summary.left_out])
        )
    means = {line: mean for line in summary.lines if (mean := summary.mean(line, LAST).mean) is not None}
    others = [line for line in summary.lines if line not in means]
    place = "the only one with all of its tasks" if others and len(means) == 1 else "best"
    words = [f"{top.label} is {place}: {means[top]:.1f}% on the average of {_tasks_words(summary)}.", summary.left_out]
    if summary.grid.vary:
        low, high = min(means.values()), max(means.values())
        words.append(
            f"Over the {_count(len(means), 'point')} trained on all of these it goes from {low:.1f}% to {high:.1f}%."
        )
        return " ".join(filter(None, words))
    gain = _gain(summary, top)
    if gain is not None:
        sure = {"better": "more than chance explains", "": "which chance may explain"}
        told = sure.get(verdict(gain.tasks, gain.tasks_holm), _mixed(gain.tasks.better, gain.tasks.worse))
        words.append(f"That is {gain.tasks.difference:+.1f} points against {gain.other.label}, {told}.")
    words += _apart_words(summary, [rival for rival in contrasts(summary, LAST, top) if rival.line in means])
    if others:
        words.append(f"Not compared, as tasks are missing: {_listed([line.label for line in others])}.")
    return " ".join(filter(None, words))


def _apart_words(summary: Summary, rivals: Sequence[Contrast]) -> list[str]:
    """Say which of the others the best line beats: by the test, on average and on most tasks."""
    if not rivals:
        return []
    found = [(rival, verdict(rival.tasks, rival.tasks_holm)) for rival in rivals]
    near = [rival.line.label for rival, told in found if not told]
    mixed = [rival for rival, told in found if told in ("mixed", "better")]
    words = []
    if not near and not mixed:
        words.append("It beats every other row by more than chance explains.")
    elif len(near) == len(rivals):
        words.append("No other row can be told apart from it by the cautious test over tasks.")
    elif near:
        words.append(f"By the cautious test over tasks it cannot be told apart from {_listed(near)}.")
    words += [f"Against {rival.line.label} it is {_mixed(rival.tasks.worse, rival.tasks.better)}." for rival in mixed]
    if 0.5 ** (len(summary.present) - 1) * len(rivals) >= LEVEL:
        words.append(f"With {_count(len(summary.present), 'task')} that test can hardly find anything.")
    return words


def _mixed(better: int, worse: int) -> str:
    return f"mixed: better on {_count(better, 'task')}, worse on {worse}"


def _tasks_words(summary: Summary) -> str:
    return f"{summary.over()} tasks" if summary.left_out else _count(len(summary.places), "task")


def _notices(summary: Summary) -> list[Block]:
    found: list[Block] = []
    if summary.failed:
        told = f"{_count(len(summary.failed), 'training')} failed."
        found.append(Notice("bad", told, "The same command tries them again; their errors are below."))
    missing = sum(len(place.open) for place in summary.missing)
    if missing:
        told = f"Still to be trained: {missing:,} of {summary.asked:,}. Means are of the seeds that are whole."
        found.append(Notice("warning", told, "The same command goes on."))
    fallen = [record for record in summary.records if record.done and record.collapsed]
    if fallen:
        rows = _listed(list(dict.fromkeys(record.row for record in fallen)))
        told = f"{_count(len(fallen), 'training')} collapsed, that is lost most classes on the way: {rows}."
        found.append(Notice("warning", told))
    if summary.others:
        found.append(
            Notice(
                "info", f"The store holds {_count(summary.others, 'record')} of other grids too, which are not here."
            )
        )
    if not found:
        found.append(Notice("good", "Every training of the grid is finished, and none failed or collapsed."))
    return found


def _weights(summary: Summary) -> Section:
    """Lay out the histograms, the paper's number beside ours where it is of the same task."""
    from warmpot.bench.reported import paper, reported_table

    table, task, share, samples = PAPER_OUTLIERS
    known = reported_table(table)
    drawn: list[Picture] = []
    quoted = False
    for line in summary.lines:
        for place in summary.places:
            same = known.same_dataset(place[0]) and known.task_of(place[1]) == task
            words = f"The paper's WARMPOT ({known.setting}): {share}% of the weight on {samples}% of the samples."
            number = len(drawn) + 1
            picture = (
                figures.draw_weights(summary, line, place, number, words if same else "")
                if number <= ALL_HISTOGRAMS
                else None
            )
            quoted = quoted or (same and picture is not None)
            drawn += [picture] if picture is not None else []
    blocks: list[Block] = [*drawn[:MOST_HISTOGRAMS]]
    if drawn[MOST_HISTOGRAMS:]:
        blocks.append(Details(f"{_count(len(drawn) - MOST_HISTOGRAMS, 'more histogram')}", drawn[MOST_HISTOGRAMS:]))
    if quoted:
        blocks.append(Text(f"The paper: {paper()}"))
    lead = "Good weights are small on source classes that the target lacks, and large on those that it shares."
    return Section("Where the weight goes", blocks, lead)


def _means(summary: Summary, sheets: Sequence[Sheet], searched: bool) -> Section:
    drawn = (
        [] if searched else [figures.draw_choices(summary), figures.draw_outliers(summary), figures.draw_time(summary)]
    )
    tables = [_table(sheet) for sheet in sheets]
    folded = [_folded(table) for table in tables[:-1]]  # by data set; the last has the rules beside each other
    lead = "The last iterate, the one chosen without target labels, and the oracle that sees them are never mixed."
    return Section("All rows", [*tables[-1:], *_there(drawn), *folded], lead)


def _beside(sheets: Sequence[Sheet]) -> Section:
    tables = [_table(replace(sheet, notes=sheet.notes[:MOST_NOTES])) for sheet in sheets]
    folded = [_folded(table) for table in tables[1:]]
    others = [note for sheet in sheets[:1] for note in sheet.notes[MOST_NOTES:]]
    folded += [Details("Notes on the paper's numbers", [Text(note) for note in others])] if others else []
    lead = "Ours on the left, the paper's on the right. The settings differ, so read along a column, not across."
    return Section("Beside the paper", [*tables[:1], *folded], lead)


def _tasks(summary: Summary, sheets: Sequence[Sheet], searched: bool) -> Section:
    drawn = [] if searched else [
        *(figures.draw_tasks(summary, LAST, number + 1, name) for number, name in enumerate(summary.datasets)),
        figures.draw_gains(summary, LAST),
    ]  # fmt: skip
    tables = [_folded(_table(sheet)) for sheet in sheets]
    there = {data for data, _ in summary.present}
    bare = [name for name in summary.datasets if name not in there]
    told = [Text(f"No training is finished on {_listed(bare)}: there is nothing to draw.")] if bare else []
    return Section("Task by task", [*_there(drawn), *told, *tables])


def _apart(summary: Summary, sheets: Sequence[Sheet], searched: bool) -> Section:
    drawn = [] if searched else [figures.draw_ranks(summary, LAST)]
    tables = [_folded(_table(sheet)) for sheet in sheets]
    lead = "Paired tests; seeds of one task share its data, so the test over tasks is the one to trust."
    return Section("Can the rows be told apart?", [*_there(drawn), *tables], lead)


def _lost(summary: Summary, sheets: Sequence[Sheet]) -> Section:
    blocks: list[Block] = [_table(sheet) for sheet in sheets]
    for group in alike(summary.failed)[:MOST_TRACES]:
        names = [_cell_name(record) for record in group]
        first = group[0]
        title = names[0] if len(group) == 1 else f"{len(group)} trainings of {first.dataset} with the same error"
        told = [Text(f"{_listed(names[:MOST_TRACES])}.")] if len(group) > 1 else []
        blocks.append(Details(title, [*told, Code(first.trace or first.error)]))
    return Section("What is missing", blocks)


def _cell_name(record: Record) -> str:
    seed = "" if record.any_seed else f", seed {record.seed}"
    return f"{line_of(record).label}, {record.dataset}, {figures.arrow(record.task)}{seed}"


def _made(summary: Summary, folder: Path) -> Section:
    grid = summary.grid
    versions: dict[str, set[str]] = {}
    for record in summary.records:
        for name, version in record.versions.items():
            versions.setdefault(name, set()).add(version)
    days = sorted(record.finished for record in summary.records if record.finished)
    stand = summary.for_all_seeds
    once = f"{_count(stand, 'training')} for all of them, as nothing is drawn" if stand else ""
    facts = [
        ("setting", grid.setting, ""),
        *((f"setting of {data.name}", data.setting, "") for data in grid.data if data.setting),
        (
            "data sets",
            "; ".join(f"{name}: {_count(len(tasks), 'task')}" for name, tasks in summary.datasets.items()),
            "",
        ),
        ("rows", ", ".join(f"{row.name} ({row.preset})" for row in grid.rows), "with their presets"),
        ("baseline", grid.baseline, ""),
        ("seeds", ", ".join(map(str, summary.seeds)), once),
        ("choices", ", ".join(summary.rules), "the oracle sees target labels, the others do not"),
        ("finished", _time(days[-1]) if days else "", ""),
        (
            "versions",
            ", ".join(f"{name} {' and '.join(sorted(found))}" for name, found in sorted(versions.items())),
            "",
        ),
    ]
    command = f"warmpot bench {shlex.quote(str(folder / GRID))} --data DATA --out {shlex.quote(str(folder))}"
    told = "Finished trainings are kept: the command goes on where it stopped. DATA is the folder of the data sets."
    blocks: list[Block] = [Facts([fact for fact in facts if fact[1]]), Text(told), Code(command)]
    return Section("How it was made", [*blocks, Details("The grid", [Code(grid.dump())])])


def _table(sheet: Sheet) -> Table:
    """Turn a table of the bench into one of the page."""
    rows = [[_cell(entry) for entry in row] for row in sheet.rows]
    return Table(
        head=[figures.arrow(column.name) for column in sheet.columns],
        rows=rows,
        caption=figures.arrow(sheet.title),
        align=["right" if column.number else "left" for column in sheet.columns],
        note=" ".join([*sheet.notes, *([FEWER] if any(cell and cell.title for row in rows for cell in row) else [])]),
        groups=[column.group for column in sheet.columns],
    )


def _folded(table: Table) -> Details:
    return Details(table.title, [ResultTable(table.columns, table.rows, notes=table.notes)])


def _cell(entry: Entry) -> Cell | None:
    """Turn a cell; that it is of fewer seeds than asked is a star and a tip."""
    if entry.text == ABSENT:
        return None
    text, few, seeds = entry.text.partition(", ") if entry.value is not None else (entry.text, "", "")
    return Cell(figures.arrow(text) + "*" * bool(few), entry.value, entry.bold, title=seeds)


def _gain(summary: Summary, line: Line) -> Contrast | None:
    """Compare a line with the baseline; None when it is the baseline, or there is none that has all tasks."""
    base = summary.baseline
    if base is None or summary.mean(base, LAST).mean is None:
        return None
    return next((contrast for contrast in contrasts(summary, LAST, base) if contrast.line == line), None)


def _there(drawn: Sequence[Picture | None]) -> list[Picture]:
    return [picture for picture in drawn if picture is not None]


def _seeds(summary: Summary) -> str:
    return _count(len(summary.seeds), "seed")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + "s" * (number != 1)


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _time(text: str) -> str:
    """Write a time of a record for people; one of another form as it is."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return text
    return f"{found.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC" if found.tzinfo else f"{found:%Y-%m-%d %H:%M} UTC"


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
