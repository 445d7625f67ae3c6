"""Tables of the development suite: a summary by group of tasks, and the choice of a variant with a domain left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from _suite_tasks import SHARED, kind_of_data

Records = dict[str, dict[str, Any]]
"""The records of one variant by task."""
DRAWN = ("size-1", "size-2", "half", "all")
"""Kinds of targets with all samples of their classes, which are drawn by number: as many classes are the same ones."""


class Choice(NamedTuple):
    """The variant that is best without a domain, and mean accuracies with it, of that variant and of the default."""

    domain: str
    variant: str
    chosen: float
    default: float


def by_task(records: Iterable[dict[str, Any]], name: str) -> Records:
    """Return the successful runs of a variant, each target once.

    Where two domains share few classes, one, two, half and all of them can be the same target. It would count up to
    four times: one such pair moved the mean over families by 1.2 points.
    """
    runs = {r["task"]: r for r in records if r["name"] == name and "error" not in r}
    first: dict[tuple[str, str, int], str] = {}
    for kind in DRAWN:
        for task, record in runs.items():
            family, pair, its_kind = task.split("/")
            if family in SHARED and its_kind.split(".")[0] == kind:
                first.setdefault((family, pair, record["present"]), task)
    drawn = {t for t in runs if t.split("/")[0] in SHARED and t.split("/")[2].split(".")[0] in DRAWN}
    return {task: record for task, record in runs.items() if task not in drawn or task in first.values()}


def group_mean(runs: Iterable[dict[str, Any]], key: str = "accuracy") -> float:
    """Average within each group of tasks, then over the groups."""
    groups: dict[str, list[float]] = {}
    for record in runs:
        groups.setdefault(record["group"], []).append(record[key])
    return float(np.mean([np.mean(values) for values in groups.values()])) if groups else float("nan")


def choose(variants: dict[str, Records], domain: str) -> str:
    """Return the variant with the best mean accuracy on the tasks that do not contain the domain."""
    scores = {
        name: group_mean(r for r in runs.values() if domain not in r["domains"]) for name, runs in variants.items()
    }
    return max(scores, key=lambda name: scores[name])  # of equal ones the first, which is the default


def choices(records: Sequence[dict[str, Any]], names: Sequence[str]) -> list[Choice]:
    """Choose for every domain on the others, and judge on it; only tasks that all variants have count."""
    variants = {name: by_task(records, name) for name in names}
    common = set.intersection(*(set(runs) for runs in variants.values()))
    variants = {name: {t: r for t, r in runs.items() if t in common} for name, runs in variants.items()}
    first = variants[names[0]]
    rows = []
    for domain in sorted({d for r in first.values() for d in r["domains"]}):
        inside = [task for task, r in first.items() if domain in r["domains"]]
        if len(inside) == len(first):
            continue  # nothing is left to choose on
        best = choose(variants, domain)
        chosen, default = (group_mean(variants[name][task] for task in inside) for name in (best, names[0]))
        rows.append(Choice(domain, best, chosen, default))
    return rows


def choice_table(records: Sequence[dict[str, Any]], names: Sequence[str]) -> str:
    """Return the choices as a table, and what they rest on."""
    variants = {name: by_task(records, name) for name in names}
    if missing := [name for name, runs in variants.items() if not runs]:
        raise SystemExit(f"no results of {', '.join(missing)}")
    runs = [r for of_name in variants.values() for r in of_name.values()]
    if len({(r["preset"], r["known_classes"]) for r in runs}) > 1:
        raise SystemExit("the variants are of different presets, or only some are oracles")
    rows = choices(records, names)
    if not rows:
        raise SystemExit("no task that all variants have is without some domain: measure more tasks")
    lines = ["| domain left out | chosen variant | accuracy, chosen | accuracy, default |", "|---|---|---|---|"]
    lines += [f"| {r.domain} | {r.variant} | {100 * r.chosen:.2f} | {100 * r.default:.2f} |" for r in rows]
    means = [100 * np.mean([getattr(r, key) for r in rows]) for key in ("chosen", "default")]
    lines.append(f"| **mean** | | {means[0]:.2f} | {means[1]:.2f} |")
    tasks = [set(of_name) for of_name in variants.values()]
    common, every = set.intersection(*tasks), set.union(*tasks)
    lines += [
        "",
        f"{len(common)} tasks; {len(every - common)} more were not measured with all variants and do not count.",
    ]
    return "\n".join(lines + notes(runs))


def notes(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Say what makes results hard to compare."""
    names: dict[str, None] = dict.fromkeys(r["name"] for r in runs)
    mixed = [name for name in names if len({r["code"] for r in runs if r["name"] == name}) > 1]
    lines = [f"The runs of {', '.join(mixed)} are of several versions of the package."] if mixed else []
    if not mixed and len({r["code"] for r in runs}) > 1:
        lines.append("The variants were measured with different versions of the package.")
    return lines


def mean_text(runs: Records, tasks: Sequence[str], key: str, scale: float = 1.0, digits: int = 1) -> str:
    """Return the mean of a number over tasks; nothing unless every task has it."""
    values = [runs.get(task, {}).get(key) for task in tasks]
    return "" if None in values else f"{scale * np.mean(values):.{digits}f}"


def summary_row(group: str, tasks: Sequence[str], base: Records, runs: Records, known_classes: Records) -> str:
    """Return one line of the summary."""
    accuracies = [mean_text(of_name, tasks, "accuracy", 100.0) for of_name in (base, runs, known_classes)]
    lost = [mean_text(of_name, tasks, "lost", digits=2) for of_name in (base, runs)]
    aucs = [mean_text(runs, tasks, key, digits=3) for key in ("presence_auc", "share_auc")]
    gains = {task: 100 * (runs[task]["accuracy"] - base[task]["accuracy"]) for task in tasks}
    worst = min(gains, key=lambda task: gains[task])
    where = worst.split("/", 1)[1].replace(f"/{group.split('/')[1]}", "")
    return f"| {' | '.join([group, str(len(tasks)), *accuracies, *lost, *aucs, f'{gains[worst]:+.1f} ({where})'])} |"


def summary_table(records: Sequence[dict[str, Any]], name: str, total: int | None = None) -> str:
    """Return one line per group of tasks, over the tasks that both source-only and the variant have."""
    base, runs, known_classes = (by_task(records, n) for n in ("source-only", name, f"{name} known-classes"))
    groups: dict[str, list[str]] = {}
    for task in [task for task in runs if task in base]:
        groups.setdefault(runs[task]["group"], []).append(task)
    head = ["tasks", "number", "source-only", name, "known classes (oracle)", "lost, source-only", f"lost, {name}"]
    head += ["AUC of presence", "AUC of shares", "worst difference"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [summary_row(group, groups[group], base, runs, known_classes) for group in sorted(groups, key=group_order)]
    n = sum(map(len, groups.values()))
    failed = {(r["task"], r["name"]) for r in records if "error" in r}
    failed -= {(r["task"], r["name"]) for r in (*base.values(), *runs.values(), *known_classes.values())}
    failed = {key for key in failed if key[1] in ("source-only", name, f"{name} known-classes")}
    count = f"{n} tasks" + (f" of {total}" if total else "") + (f"; {len(failed)} runs failed" if failed else "") + "."
    return "\n".join([*lines, "", count, *notes([*base.values(), *runs.values(), *known_classes.values()])])


def family_row(tasks: Sequence[str], base: Records, runs: Records, known: Records) -> list[float]:
    """Return the numbers of one family: the mean over its groups of tasks, of each with the same weight."""
    gains = np.array([runs[task]["accuracy"] - base[task]["accuracy"] for task in tasks])
    both = [task for task in tasks if task in known]
    gap = [known[task]["accuracy"] - runs[task]["accuracy"] for task in both]
    lost = float(np.mean([runs[task]["lost"] for task in tasks]))
    means = [100 * group_mean(of_name[task] for task in tasks) for of_name in (base, runs)]
    return [
        len(tasks), *means, 100 * float(np.mean(gap)) if gap else float("nan"), 100 * float(gains.min()),
        100 * float(np.mean(gains < -0.05)), lost,
    ]  # fmt: skip


def family_table(records: Sequence[dict[str, Any]], name: str) -> str:
    """Return one line per family of data, and the mean over the families."""
    base, runs, known = (by_task(records, n) for n in ("source-only", name, f"{name} known-classes"))
    families: dict[str, list[str]] = {}
    for task in [task for task in runs if task in base]:
        families.setdefault(kind_of_data(task.split("/")[0]), []).append(task)
    head = ["family", "tasks", "source-only", name, "known classes minus it", "worst difference"]
    head += ["below source-only by more than 5, %", f"lost classes, {name}"]
    rows = {family: family_row(tasks, base, runs, known) for family, tasks in sorted(families.items())}
    table = np.array(list(rows.values()))
    gaps = table[~np.isnan(table[:, 3]), 3]
    total = [table[:, 0].sum(), *table[:, 1:3].mean(axis=0), float(gaps.mean()) if len(gaps) else float("nan")]
    total.append(table[:, 4].min())
    total += [float(table[:, 0] @ table[:, 5] / table[:, 0].sum()), float(np.mean(table[:, 6]))]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for family, numbers in [*rows.items(), ("**mean over families**", total)]:
        cells = ["" if np.isnan(x) else f"{x:{form}}" for x, form in zip(numbers, FORMS, strict=True)]
        lines.append(f"| {' | '.join([family, *cells])} |")
    return "\n".join([*lines, *notes([*base.values(), *runs.values(), *known.values()])])


FORMS = (".0f", ".1f", ".1f", "+.1f", "+.1f", ".1f", ".2f")
"""Of the numbers of `family_row`."""


def group_order(group: str) -> tuple[str, int, str]:
    """Sort by family, then sizes by number, then the other kinds."""
    family, kind = group.split("/")
    size = int(kind.removeprefix("size-")) if kind.startswith("size-") else 0
    return family, size, kind
