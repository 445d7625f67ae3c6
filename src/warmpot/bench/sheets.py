"""All tables of a grid, in the order of a page: the answer first, then task by task, tests, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from warmpot.bench.beside import paper_by_task, paper_comparison
from warmpot.bench.contrasts import best_line, contrasts, ranking
from warmpot.bench.sheet import Column, Columns, Entry, Sheet, assembled, plain, ranked
from warmpot.bench.store import LAST, ORACLE
from warmpot.bench.summary import ABSENT, Line, Place, Summary, alike, line_of, points, rule_words

__all__ = ["sections", "sheets"]

MOST_NAMED = 3
"""Tasks named in the list of what is missing; the rest is counted."""


def sections(summary: Summary) -> dict[str, list[Sheet]]:
    """Return the tables under their headings; headings without any are left out."""
    several = len(summary.datasets) > 1
    overviews = [_overview(summary, rule) for rule in summary.rules] if several else []
    found: dict[str, Sequence[Sheet | None]] = {
        "Summary": [*overviews, _rules(summary)],
        "Beside the paper": [paper_comparison(summary), paper_by_task(summary)],
        "Task by task": [_by_task(summary, name, rule) for name in summary.datasets for rule in summary.rules],
        "Can the rows be told apart?": _tests(summary),
        "What is missing": [_failed(summary), _missing(summary)],
    }
    kept = {heading: [sheet for sheet in listed if sheet is not None] for heading, listed in found.items()}
    return {heading: listed for heading, listed in kept.items() if listed}


def sheets(summary: Summary) -> list[Sheet]:
    """Return all tables."""
    return [sheet for listed in sections(summary).values() for sheet in listed]


def _names(lines: Sequence[Line]) -> tuple[Column, list[Entry]]:
    return Column("row", number=False), plain(line.label for line in lines)


def _spread(summary: Summary) -> str:
    seeds = ", ".join(map(str, summary.seeds))
    text = (
        f"Accuracy in per cent: mean (std) over the seeds {seeds}; of a mean over tasks, the std of the seeds' means."
    )
    alone = any(record.any_seed for record in summary.records)
    return text + (" Without one: a single run, which no seed changes." if alone else "")


def _notes(summary: Summary) -> list[str]:
    return [_spread(summary), *([summary.left_out] if summary.left_out else [])]


def _overview(summary: Summary, rule: str) -> Sheet:
    columns: Columns = [_names(summary.lines)]
    for name in summary.datasets:
        scores = [summary.mean(line, rule, name) for line in summary.lines]
        columns.append((Column(f"{name} ({summary.over(name)})"), ranked(scores)))
    overall = ranked([summary.mean(line, rule) for line in summary.lines])
    columns.append((Column(f"all tasks ({summary.over()})"), overall))
    return assembled(f"overview-{rule}", f"Mean over tasks, {rule_words(rule)}", columns, _notes(summary))


def _rules(summary: Summary) -> Sheet:
    """Return the rules side by side, and what a line costs."""
    lines = summary.lines
    columns: Columns = [_names(lines)]
    columns += [(Column(rule), ranked([summary.mean(line, rule) for line in lines])) for rule in summary.rules]
    notes = _notes(summary)
    if summary.baseline is not None:
        columns.append((Column(f"tasks below {summary.baseline.label}"), [_below(summary, line) for line in lines]))
        notes.append(f"Tasks below {summary.baseline.label}: by the mean of the last iterates.")
    columns.append((Column("weight on outliers, %"), [_score(summary, line, "outlier_weight") for line in lines]))
    columns.append((Column("seconds a run"), [_score(summary, line, "seconds") for line in lines]))
    notes.append("Weight on outliers: of the source's weight, the share on classes that the target lacks, at the end.")
    tasks = summary.over() if summary.left_out else f"all {summary.over()}"
    title = f"The rules side by side, mean over {tasks} tasks"
    return assembled("rules", title, columns, notes)


def _below(summary: Summary, line: Line) -> Entry:
    if summary.baseline is None or line == summary.baseline:
        return Entry("")
    below, both = summary.below(line, summary.baseline, LAST)
    return Entry(f"{below} of {both}" if both else ABSENT, value=below if both else None)


def _score(summary: Summary, line: Line, what: str) -> Entry:
    """Mean over the tasks that have it, however many: no comparison is made."""
    places = [place for place in summary.places if summary.task(line, place, what).mean is not None]
    mean = summary.score(line, places, what).mean if places else None
    few = "" if len(places) == len(summary.present) else f", {len(places)} of {len(summary.present)} tasks"
    return Entry(ABSENT if mean is None else f"{mean:.1f}{few}", value=mean)


def _by_task(summary: Summary, dataset: str, rule: str) -> Sheet | None:
    places: list[Place] = [place for place in summary.places if place[0] == dataset]
    if len(places) == 1:  # a column of the summary
        return None
    columns: Columns = [_names(summary.lines)]
    columns += [
        (Column(place[1]), ranked([summary.task(line, place, rule) for line in summary.lines])) for place in places
    ]
    mean = [summary.mean(line, rule, dataset) for line in summary.lines]
    columns.append((Column(f"mean ({summary.over(dataset)})"), ranked(mean)))
    return assembled(f"tasks-{dataset}-{rule}", f"{dataset}, {rule_words(rule)}", columns, [_spread(summary)])


def _tests(summary: Summary) -> list[Sheet | None]:
    if summary.grid.vary:  # points of a search, not rows to be compared
        return []
    found: list[Sheet | None] = []
    for rule in summary.rules:
        if rule == ORACLE:  # no choice that anybody can make
            continue
        found.append(_ranks(summary, rule))
        top = best_line(summary, rule)
        if summary.baseline is not None:
            found.append(_against(summary, rule, summary.baseline, "baseline"))
        if top is not None and top != summary.baseline:
            found.append(_against(summary, rule, top, "best"))
    return found


def _ranks(summary: Summary, rule: str) -> Sheet | None:
    found = ranking(summary, rule)
    if found is None:
        return None
    letters = ["".join(chr(97 + k % 26) for k, group in enumerate(found.groups) if place in group)
               for place in range(len(found.lines))]  # fmt: skip
    columns: Columns = [
        _names(found.lines),
        (Column("mean rank"), [Entry(f"{rank:.2f}", value=rank) for rank in found.ranks]),
        (Column("group", number=False), plain(letters)),
    ]
    notes = [
        f"Ranks of the means over seeds within each of {found.tasks} tasks; 1 is best, ties share theirs.",
        f"Nemenyi's critical difference at 0.05: {found.difference:.2f}. Rows that share a letter lie within it.",
    ]
    if found.friedman is not None:
        words = f"chi2 = {found.friedman.statistic:.1f}, p {_p(found.friedman.pvalue, True)}"
        notes.insert(1, f"Friedman's test that all are alike: {words}.")
    few = [
        line.label for line in found.lines
        if any(len(summary.task(line, place, rule).values) < len(summary.seeds) for place in summary.present)
    ]  # fmt: skip
    if few:
        notes.append(f"Ranked by fewer seeds than asked: {', '.join(few)}.")
    if summary.left_out:
        notes.append(summary.left_out)
    if found.left_out:
        notes.append(f"Left out, as a task is missing: {', '.join(line.label for line in found.left_out)}.")
    return assembled(f"ranks-{rule}", f"Ranks, {rule_words(rule)}", columns, notes)


def _against(summary: Summary, rule: str, other: Line, role: str) -> Sheet | None:
    found = contrasts(summary, rule, other)
    if not found:
        return None
    by_task, by_pair = "over tasks (the cautious test)", "over tasks and seeds"
    columns: Columns = [
        _names([contrast.line for contrast in found]),
        (Column("points"), [Entry(points(c.tasks.difference), value=c.tasks.difference) for c in found]),
    ]
    for group, pick in ((by_task, 0), (by_pair, 1)):
        tests = [(c.pairs, c.pairs_holm) if pick else (c.tasks, c.tasks_holm) for c in found]
        columns += [
            (Column("better / worse", group), plain(f"{t.better} / {t.worse} of {t.pairs}" for t, _ in tests)),
            (Column("p", group), [Entry(_p(t.pvalue), value=t.pvalue) for t, _ in tests]),
            (Column("p, Holm", group), [Entry(_p(p), p < 0.05, p) for _, p in tests]),
        ]
    notes = [
        "Wilcoxon's signed ranks, two-sided; ties as Pratt has them. Bold: below 0.05 after Holm's correction for "
        f"{len(found)} comparisons.",
        "Seeds of a task share its data, so pairs over seeds are not independent: that test is too sure of itself.",
    ]
    if role == "best":
        notes.append("The best was found on these same numbers, which favours it.")
    return assembled(f"against-{role}-{rule}", f"Against {other.label} ({role}), {rule_words(rule)}", columns, notes)


def _p(value: float, sign: bool = False) -> str:
    return "< 0.001" if value < 0.001 else f"{'= ' if sign else ''}{value:.3f}"


def _failed(summary: Summary) -> Sheet | None:
    if not summary.failed:
        return None
    groups = alike(summary.failed)
    columns: Columns = [
        (Column("row", number=False), plain(_each(line_of(r).label for r in group) for group in groups)),
        (Column("task", number=False), plain(_each(f"{r.dataset}, {r.task}" for r in group) for group in groups)),
        (Column("seed"), plain(_each("any" if r.any_seed else str(r.seed) for r in group) for group in groups)),
        (Column("trainings"), [Entry(str(len(group)), value=len(group)) for group in groups]),
        (Column("error", number=False), plain(group[0].error for group in groups)),
    ]
    return assembled("failed", f"Failed trainings: {len(summary.failed)}", columns)


def _each(texts: Iterable[str]) -> str:
    """List texts, each once; of many the first."""
    names = list(dict.fromkeys(texts))
    more = len(names) - MOST_NAMED
    return "; ".join(names[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _missing(summary: Summary) -> Sheet | None:
    """List what nobody trained yet, the tasks of a line with the same seeds together."""
    tasks: dict[tuple[Line, tuple[int, ...]], list[Place]] = {}
    for missing in summary.missing:
        if missing.open:
            tasks.setdefault((missing.line, missing.open), []).append(missing.place)
    if not tasks:
        return None
    columns: Columns = [
        _names([line for line, _ in tasks]),
        (Column("tasks", number=False), plain(_place_names(summary, places) for places in tasks.values())),
        (Column("seeds", number=False), plain(", ".join(map(str, seeds)) for _, seeds in tasks)),
    ]
    total = sum(len(seeds) * len(places) for (_, seeds), places in tasks.items())
    return assembled("missing", f"Not trained yet: {total} of {summary.asked}", columns)


def _place_names(summary: Summary, places: Sequence[Place]) -> str:
    if len(places) == len(summary.places):
        return "all"
    return _each(f"{data}, {task}" for data, task in places)
