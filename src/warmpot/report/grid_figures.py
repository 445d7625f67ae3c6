"""The figures of a grid: tasks and gains, ranks, rules, weights, time, and sensitivity to settings that it varies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot.bench.significance import best_variant, rank_variants
from warmpot.bench.store import BINS, LAST, ORACLE, Record
from warmpot.bench.summary import Score, Summary, TaskKey, Variant, describe_rule
from warmpot.errors import InputError
from warmpot.report.page import Picture
from warmpot.report.style import ACCENT, COLOURS, INK, MUTED, PAPER, WIDTH, heat, label, legend, new_axes, series, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "arrow", "draw_choices", "draw_gains", "draw_outliers", "draw_ranks", "draw_sensitivity", "draw_tasks", "draw_time",
    "draw_weights",
]  # fmt: skip

MAX_VARIANTS = 40
"""Variants that a figure can name; grids with more vary settings, and have figures of sensitivity."""
MAX_COLOURED = 8
ROW = 0.3
"""Height of a line of text in inches."""


def draw_tasks(summary: Summary, rule: str, number: int, dataset: str) -> Picture | None:
    """Draw every task of a data set: a dot for the mean of each variant, a stroke from its worst to its best seed."""
    tasks = [task for task in summary.finished_tasks if task[0] == dataset]
    if not _drawable(summary, rule, tasks):
        return None
    few = len(summary.variants) <= MAX_COLOURED
    colours = _colours(summary, rule)
    step = 0.72 / max(len(summary.variants) - 1, 1) if few else 0.0
    slot = max(2 * ROW, 0.13 * len(summary.variants)) if few else 2 * ROW
    figure, axes = new_axes(WIDTH, 1.3 + slot * len(tasks))
    tips: dict[str, list[str]] = {}
    entries: list[tuple[Any, str]] = []
    others = None
    for k, variant in enumerate(summary.variants):
        scores = [(y, task, summary.score(variant, task, rule)) for y, task in enumerate(tasks)]
        present = [(y, task, score) for y, task, score in scores if score.values]
        heights = [y + (k * step - 0.36 if few and step else 0.0) for y, _, _ in present]
        low, high = ([end(score.values.values()) for *_, score in present] for end in (min, max))
        colour = colours[variant]
        axes.hlines(heights, low, high, color=colour, linewidth=1.2, alpha=0.7)
        means = [float(score.mean or 0) for *_, score in present]
        prominent = few or colour != COLOURS["grey"]
        dots = axes.scatter(means, heights, s=26, color=colour, edgecolor=PAPER, linewidth=0.6, zorder=3 + prominent)
        dots.set_gid(f"tip-line{k}")
        tips[f"line{k}"] = [f"{variant.label}\n{arrow(task[1])}: {_seeds_text(score)}" for _, task, score in present]
        entries += [(dots, variant.label)] if prominent else []
        others = others or (None if prominent else dots)
    _name_rows(axes, [arrow(task) for _, task in tasks], 24)
    axes.set_xlabel("accuracy, per cent")
    for y in range(1, len(tasks)):
        axes.axhline(y - 0.5, color=MUTED, linewidth=0.5, alpha=0.35)
    entries += [(others, "others")] if others is not None else []
    legend(figure, [dots for dots, _ in entries], [name for _, name in entries])
    axes.set_title(label(dataset, 40))
    caption = f"{dataset}, {describe_rule(rule)}: mean over seeds, and a stroke from the worst seed to the best. "
    caption += "Point at a dot for its values."
    alt = f"Accuracy of {len(summary.variants)} rows on {len(tasks)} tasks of {dataset}; the tables have the numbers."
    return Picture(f"tasks-{number}", figure, alt, caption, tips)


def draw_gains(summary: Summary, rule: str) -> Picture | None:
    """Draw the gain of each variant over the baseline on each task, in points."""
    base, tasks = summary.baseline, summary.finished_tasks
    variants = [variant for variant in summary.variants if variant != base]
    if base is None or not variants or not _drawable(summary, rule, tasks):
        return None
    means = [[summary.score(variant, task, rule).mean for task in tasks] for variant in (base, *variants)]
    scores = np.array(means, float)  # None becomes NaN
    gains = scores[1:] - scores[0]
    if not np.isfinite(gains).any():
        return None
    figure, axes = new_axes(max(WIDTH, 3.0 + 0.66 * len(tasks)), 1.7 + ROW * len(variants))
    heat(axes, gains, signed=True, form="{:+.1f}").set_gid("tip-gain")
    short = [arrow(task) for _, task in tasks]
    names = [f"{data}, {task}" for (data, _), task in zip(tasks, short, strict=True)]
    ticks(axes.yaxis, [variant.label for variant in variants])
    ticks(axes.xaxis, short if len(set(short)) == len(short) else names)
    axes.tick_params(axis="x", rotation=35)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor")
    tips = [
        f"{variant.label}\n{name}: " + ("missing" if math.isnan(gain) else f"{gain:+.1f} points")
        for variant, row in zip(variants, gains, strict=True)
        for name, gain in zip(names, row, strict=True)
    ]
    caption = f"Points gained over {base.label} on each task, {describe_rule(rule)}. Blue is a gain, orange a loss."
    alt = f"Gain of {len(variants)} rows over {base.label} on {len(names)} tasks; the tables have the numbers."
    return Picture("gains", figure, alt, caption, {"gain": tips})


def draw_ranks(summary: Summary, rule: str) -> Picture | None:
    """Draw the critical-difference diagram: mean ranks on an axis, bars over those without a significant difference."""
    ranking = rank_variants(summary, rule) if len(summary.variants) <= MAX_VARIANTS else None
    if ranking is None:
        return None
    count = len(ranking.variants)
    half, first = (count + 1) // 2, 0.55 + 0.22 * len(ranking.groups)
    figure, axes = new_axes(8.0, 1.5 + 0.22 * len(ranking.groups) + 0.24 * half)
    margin = 0.06 * (count - 1)
    axes.plot([1, count], [0, 0], color=MUTED, linewidth=1.2)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, -0.09], color=MUTED, linewidth=1.2)
        if tick % (1 + count // 14) == 0 or tick == 1:  # numbers side by side must not touch
            axes.text(tick, -0.2, str(tick), ha="center", va="bottom", color=MUTED)
    for k, (variant, rank) in enumerate(zip(ranking.variants, ranking.ranks, strict=True)):
        ahead = k < half
        height, end = first + 0.4 * (k if ahead else count - 1 - k), 1 - margin if ahead else count + margin
        axes.plot([rank, rank, end], [0, height, height], color=MUTED, linewidth=0.9)
        text, gap = f"{label(variant.label)}  {rank:.2f}", -0.01 if ahead else 0.01
        side = "right" if ahead else "left"
        axes.text(end + gap * count, height, text, ha=side, va="center", color=INK)
    dots = {"s": 34, "color": ACCENT, "edgecolor": PAPER, "linewidth": 0.8, "zorder": 4, "gid": "tip-rank"}
    axes.scatter(ranking.ranks, [0.0] * count, **dots)
    for k, group in enumerate(ranking.groups):
        ends = [ranking.ranks[group[0]] - 0.04, ranking.ranks[group[-1]] + 0.04]
        axes.plot(ends, [0.22 + 0.22 * k] * 2, color=INK, linewidth=3.5, solid_capstyle="round", zorder=3)
    axes.plot([1, 1 + ranking.difference], [-0.75] * 2, color=INK, linewidth=1.2, marker="|", markersize=6)
    words = f"critical difference {ranking.difference:.2f}"
    axes.text(1 + ranking.difference / 2, -0.85, words, ha="center", va="bottom", color=INK)
    axes.set(ylim=(first + 0.4 * half, -1.3))
    axes.set_axis_off()
    grouped = {index for group in ranking.groups for index in group}
    notes = ["similar to others" if k in grouped else "significantly different from all others" for k in range(count)]
    named = list(zip(ranking.variants, ranking.ranks, notes, strict=True))
    tips = [f"{variant.label}\nmean rank {rank:.2f}, {note}" for variant, rank, note in named]
    tests = f"Friedman's test of equal performance: p = {ranking.friedman.pvalue:.2g}. " if ranking.friedman else ""
    caption = f"Mean ranks over {ranking.tasks} tasks, {describe_rule(rule)}; 1 is best. Thick bars join rows whose "
    caption += f"ranks differ by less than Nemenyi's critical difference at 0.05. {tests}"
    ranks = "; ".join(f"{variant.label} {rank:.2f}" for variant, rank, _ in named)
    return Picture("ranks", figure, f"Mean ranks, the best first: {ranks}", caption, {"rank": tips})


def draw_choices(summary: Summary) -> Picture | None:
    """Draw the accuracy of the iterates of each rule: last, label-free and oracle, mean over all tasks."""
    if not _drawable(summary, LAST, summary.tasks) or len(summary.rules) < 2:
        return None
    scores = {variant: [summary.mean(variant, rule) for rule in summary.rules] for variant in summary.variants}
    complete = [variant for variant in summary.variants if all(score.mean is not None for score in scores[variant])]
    if not complete:
        return None
    complete.sort(key=lambda variant: -(scores[variant][0].mean or 0))
    figure, axes = new_axes(WIDTH, 1.5 + ROW * len(complete))
    means = np.array([[float(score.mean or 0) for score in scores[variant]] for variant in complete])
    axes.hlines(range(len(complete)), means.min(axis=1), means.max(axis=1), color=MUTED, linewidth=1.2, alpha=0.5)
    handles, tips = [], {}
    for k, rule in enumerate(summary.rules):
        colour = COLOURS["grey"] if rule == ORACLE else series(k)
        marker = {LAST: "o", ORACLE: "|"}.get(rule, "Ds^v"[k % 4])
        size = 60 if rule == ORACLE else 30
        style = {"s": size, "color": colour, "marker": marker, "linewidth": 1.2, "zorder": 3}
        handles.append(axes.scatter(means[:, k], range(len(complete)), gid=f"tip-rule{k}", **style))
        tips[f"rule{k}"] = [f"{variant.label}\n{rule}: {scores[variant][k].text}" for variant in complete]
    _name_rows(axes, [variant.label for variant in complete])
    axes.set_xlabel("accuracy, per cent")
    legend(figure, handles, summary.rules)
    tasks = f"{summary.task_count()}" if summary.excluded_note else "all"
    caption = f"Effect of the choice of the iterate, mean over {tasks} tasks. The oracle uses target labels, "
    caption += "which are not available in practice: it shows how much a better choice could gain."
    alt = f"Accuracy of {len(complete)} rows by {', '.join(summary.rules)}; the tables have the numbers."
    return Picture("choices", figure, alt, caption, tips)


def draw_outliers(summary: Summary) -> Picture | None:
    """Draw the share of the source weight on classes that the target does not have, by variant."""
    shown = _means_of(summary, "outlier_weight")
    share = next(iter(_means_of(summary, "outlier_samples").values()), None)
    if not shown or share is None or len(summary.variants) > MAX_VARIANTS:
        return None
    figure, axes, order = _bars(shown)
    axes.axvline(share, color=COLOURS["orange"], linewidth=1.4, linestyle=(0, (4, 3)))
    axes.set_xlim(0, max(100.0, share) if max(shown.values()) > 60 else None)
    axes.set_xlabel("% of the source weight")
    tips = [f"{variant.label}\n{shown[variant]:.1f}% of the weight" for variant in order]
    caption = "Weight on source classes that the target does not have, mean over tasks at the last iterate. The dashed "
    caption += f"line is their share of the samples, {share:.1f}%: their weight if all samples had equal weights."
    return Picture("outliers", figure, "Share of the weight on outlier classes by row.", caption, {"bar": tips})


def draw_time(summary: Summary) -> Picture | None:
    """Draw the seconds per training by variant."""
    shown = {variant: seconds for variant, seconds in _means_of(summary, "seconds").items() if seconds}
    if not shown or len(summary.variants) > MAX_VARIANTS:
        return None
    figure, axes, order = _bars(shown)
    if max(shown.values()) > 50 * min(shown.values()):
        axes.set_xscale("log")
    axes.set_xlabel("seconds per training")
    tips = [f"{variant.label}\n{shown[variant]:.1f} s per training" for variant in order]
    caption = "Seconds per training on one thread, mean over tasks and seeds."
    return Picture("time", figure, "Seconds per training by row.", caption, {"bar": tips})


def draw_weights(summary: Summary, variant: Variant, task: TaskKey, number: int, paper: str = "") -> Picture | None:
    """Draw the paper's three histograms of source weights: all samples, shared classes, outlier classes."""
    from matplotlib.collections import PolyCollection

    by_seed = [summary.record(variant, task, seed) for seed in summary.seeds]
    records = list({id(record): record for record in by_seed if record is not None and record.histogram}.values())
    if not records:
        return None
    shared, outlier = (
        np.sum([record.histogram.get(kind, [0] * BINS) for record in records], axis=0) for kind in ("shared", "outlier")
    )
    share = summary.score(variant, task, "outlier_weight").mean
    parts = ["", ""] if share is None else [f"\n{part:.2f}% of the weight" for part in (100 - share, share)]
    over = "its cap" if all(_capped(summary, record) for record in records) else "the largest weight"
    panels = (
        ("all", "All source samples", shared + outlier, INK),
        ("shared", f"Shared classes{parts[0]}", shared, COLOURS["blue"]),
        ("outlier", f"Outlier classes{parts[1]}", outlier, COLOURS["orange"]),
    )
    (figure, row), tips = new_axes(9.6, 2.9, panels=3), {}
    for axes, (kind, title, bins, colour) in zip(row, panels, strict=True):
        heights = 100 * bins / max(int(bins.sum()), 1)
        left = np.arange(len(bins)) / len(bins)
        right = left + 0.9 / len(bins)
        corners = [[(a, 0.0), (a, h), (b, h), (b, 0.0)] for a, b, h in zip(left, right, heights, strict=True)]
        axes.add_collection(PolyCollection(corners, facecolor=colour, linewidth=0, gid=f"tip-{kind}"))
        tips[kind] = [
            f"weight {a:.2f} to {a + 1 / len(bins):.2f} of {over}\n{height:.1f}% of these samples"
            for a, height in zip(left, heights, strict=True)
        ]
        axes.set_title(title)
        axes.set_xlabel(f"weight over {over}")
        axes.set(xlim=(0, 1), ylim=(0, 1.05 * max(heights.max(), 1e-9)))
        axes.grid(visible=False, axis="x")
    figure.axes[0].set_ylabel("samples, per cent")
    samples = summary.score(variant, task, "outlier_samples").mean
    outliers = f" Outlier classes have {samples:.1f}% of the samples." if samples is not None else ""
    name = f"{variant.label}, {task[0]}, {arrow(task[1])}"
    many = f"{len(records)} trainings together" if len(records) > 1 else "one training"
    what = over.replace("its", "their")
    caption = f"{name}: source weights over {what}, in {BINS} bins; {many}.{outliers} {paper}"
    belong = f": {share:.2f}% belong to outlier classes" if share else ""
    alt = f"Histograms of the source weights of {name}{belong}."
    return Picture(f"weights-{number}", figure, alt, caption.strip(), tips)


def draw_sensitivity(summary: Summary, rule: str) -> list[Picture]:
    """Draw accuracy against the settings that the grid varies: a curve with error bars for one, a map for two."""
    pictures: list[Picture | None] = []
    drawn: set[str] = set()
    for block in sorted(summary.grid.vary, key=len):
        if len(block) > 2:
            continue
        for name in block:
            if len(block) == 1 or name not in drawn:
                pictures.append(_curve(summary, rule, block, name, len(pictures)))
        for row in summary.grid.rows if len(block) == 2 else ():
            pictures.append(_map(summary, rule, row.name, block, len(pictures)))
        drawn.update(block if len(block) == 1 else ())
    return [picture for picture in pictures if picture is not None]


def _curve(summary: Summary, rule: str, block: Mapping[str, Sequence[float]], name: str, number: int) -> Picture | None:
    """Draw accuracy against one setting of a block, for each value of the other if there are two."""
    values, (other, others) = block[name], next((pair for pair in block.items() if pair[0] != name), ("", [math.nan]))
    figure, axes = new_axes(WIDTH, 3.2)
    tips, handles, names = {}, [], []
    for k, (row, data, value) in enumerate(product(summary.grid.rows, summary.datasets, others)):
        fixed = {other: value} if other else {}
        scores = [(x, summary.mean(_variant(row.name, {name: x, **fixed}), rule, data)) for x in values]
        present = [(x, float(score.mean), score) for x, score in scores if score.mean is not None]
        if not present:
            continue
        x, y = [a for a, _, _ in present], [b for _, b, _ in present]
        spread = [score.std or 0.0 for *_, score in present]
        axes.errorbar(x, y, yerr=spread, color=series(k), linewidth=1.6, elinewidth=1.1, capsize=3)
        style = {"s": 26, "color": series(k), "edgecolor": PAPER, "linewidth": 0.6, "zorder": 4}
        handles.append(axes.scatter(x, y, gid=f"tip-curve{k}", **style))
        title = f"{row.name}, {_short(other)} {value:g}" if other else row.name
        title += f", {data}" if len(summary.datasets) > 1 else ""
        tips[f"curve{k}"] = [f"{title}\n{_short(name)} {a:g}: {score.text}" for a, _, score in present]
        names.append(title)
    if not handles:
        return None
    if min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_ticks(list(values), labels=[f"{value:g}" for value in values])
        axes.xaxis.set_ticks([], minor=True)
    axes.set(xlabel=_short(name), ylabel="accuracy, per cent")
    if len(handles) > 1:
        legend(figure, handles, names)
    caption = f"Accuracy against {_short(name)}, mean over tasks, {describe_rule(rule)}; bars are one std over seeds."
    alt = f"Accuracy for {len(values)} values of {_short(name)}; the tables have the numbers."
    return Picture(f"curve-{number + 1}", figure, alt, caption, tips)


def _map(summary: Summary, rule: str, row: str, block: Mapping[str, Sequence[float]], number: int) -> Picture | None:
    (across, xs), (down, ys) = block.items()
    scores = [[summary.mean(_variant(row, {across: x, down: y}), rule) for x in xs] for y in ys]
    means = np.array([[score.mean for score in score_row] for score_row in scores], float)  # None becomes NaN
    if not np.isfinite(means).any():
        return None
    figure, axes = new_axes(WIDTH, 1.2 + 0.34 * len(ys))
    heat(axes, means, form="{:.1f}").set_gid("tip-map")
    ticks(axes.xaxis, [f"{x:g}" for x in xs])
    ticks(axes.yaxis, [f"{y:g}" for y in ys])
    axes.set(xlabel=_short(across), ylabel=_short(down), title=label(row))
    tips = [
        f"{_short(across)} {x:g}, {_short(down)} {y:g}\n{scores[j][i].text}"
        for (j, y), (i, x) in product(enumerate(ys), enumerate(xs))
    ]
    what = f"accuracy in per cent, mean over tasks and seeds, {describe_rule(rule)}"
    ends = f"from {np.nanmin(means):.1f} to {np.nanmax(means):.1f}"
    alt = f"Accuracy for every pair of {_short(across)} and {_short(down)}, {ends}."
    return Picture(f"map-{number + 1}", figure, alt, f"{row}: {what}. Stronger colours are higher.", {"map": tips})


def _variant(row: str, point: Mapping[str, float]) -> Variant:
    return Variant(row, tuple(sorted(point.items())))


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _capped(summary: Summary, record: Record) -> bool:
    """Whether the histogram of a record is relative to the cap of the weights; older records do not contain it."""
    if record.capped is not None:
        return record.capped
    from warmpot.bench.training import weight_cap

    try:
        cells = [cell for cell in summary.grid.cells() if cell.coordinates[:4] == record.coordinates[:4]]
    except InputError:  # an unknown preset
        return False
    return any(weight_cap(cell.config, 1) is not None for cell in cells)


def _drawable(summary: Summary, rule: str, tasks: Sequence[TaskKey]) -> bool:
    """Whether there are results, and few enough variants to name."""
    finished = any(summary.score(variant, task, rule).values for variant in summary.variants for task in tasks)
    return finished and len(summary.variants) <= MAX_VARIANTS


def _colours(summary: Summary, rule: str) -> dict[Variant, str]:
    """Return a colour for each of few variants; of many, only for the best and the baseline."""
    if len(summary.variants) <= MAX_COLOURED:
        return {variant: series(k) for k, variant in enumerate(summary.variants)}
    prominent = {best_variant(summary, rule): COLOURS["blue"], summary.baseline: COLOURS["orange"]}
    return {variant: prominent.get(variant, COLOURS["grey"]) for variant in summary.variants}


def _name_rows(axes: Axes, names: Sequence[str], most: int = 22) -> None:
    """Write the names of rows, the first on top, without lines between them."""
    ticks(axes.yaxis, names, most=most, start=0.0)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _bars(values: Mapping[Variant, float]) -> tuple[Any, Axes, list[Variant]]:
    """Draw horizontal bars, the smallest on top; return the order as well."""
    order = sorted(values, key=lambda variant: values[variant])
    figure, axes = new_axes(WIDTH, 1.0 + ROW * len(order))
    for bar in axes.barh(range(len(order)), [values[variant] for variant in order], height=0.62, color=COLOURS["blue"]):
        bar.set_gid("tip-bar")
    _name_rows(axes, [variant.label for variant in order])
    return figure, axes, order


def _means_of(summary: Summary, what: str) -> dict[Variant, float]:
    """Return the mean over the tasks with results, by variant."""
    means = {v: [summary.score(v, task, what).mean for task in summary.tasks] for v in summary.variants}
    present = {variant: [mean for mean in values if mean is not None] for variant, values in means.items()}
    return {variant: float(np.mean(values)) for variant, values in present.items() if values}


def _seeds_text(score: Score) -> str:
    several = len(score.values) > 1 and not score.constant
    each = ", ".join(f"{value:.1f}" for value in score.values.values())
    return score.text + (f"\nseeds: {each}" if several else "")


def arrow(text: str) -> str:
    """Replace the arrow of a task by one character."""
    return text.replace("->", "→")
