"""The figures of a bench: tasks and gains, ranks, choices, weights, time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot.bench.contrasts import best_line, ranking
from warmpot.bench.store import BINS, LAST, ORACLE, Record
from warmpot.bench.summary import Line, Place, Score, Summary, rule_words
from warmpot.errors import InputError
from warmpot.report.page import Picture
from warmpot.report.style import ACCENT, COLOURS, INK, MUTED, PAPER, heat, label, legend, new_figure, series, ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "arrow",
    "draw_choices",
    "draw_gains",
    "draw_outliers",
    "draw_ranks",
    "draw_tasks",
    "draw_time",
    "draw_weights",
]

MOST_LINES = 30
"""Lines that a figure can name; more are a search, which the figures of sensitivity show."""
MOST_COLOURED = 8
ROW = 0.3
"""Inches of a line of text."""


def draw_tasks(summary: Summary, rule: str, number: int, dataset: str) -> Picture | None:
    """Draw every task of a data set: a dot for the mean of each line, a stroke from its worst to its best seed."""
    places = [place for place in summary.places if place[0] == dataset]
    there = any(summary.task(line, place, rule).values for line in summary.lines for place in places)
    if not there or not _drawable(summary, rule):
        return None
    few = len(summary.lines) <= MOST_COLOURED
    colours = _colours(summary, rule)
    step = 0.72 / max(len(summary.lines) - 1, 1) if few else 0.0
    slot = max(2 * ROW, 0.13 * len(summary.lines)) if few else 2 * ROW
    figure = new_figure(4.6, 1.3 + slot * len(places))
    axes = figure.add_subplot()
    tips: dict[str, list[str]] = {}
    handles = []
    for k, line in enumerate(summary.lines):
        scores = [(y, place, summary.task(line, place, rule)) for y, place in enumerate(places)]
        found = [(y, place, score) for y, place, score in scores if score.values]
        heights = [y + (k * step - 0.36 if few and step else 0.0) for y, _, _ in found]
        ends = [(min(score.values.values()), max(score.values.values())) for *_, score in found]
        axes.hlines(heights, [a for a, _ in ends], [b for _, b in ends], color=colours[line], linewidth=1.2, alpha=0.7)
        means = [float(score.mean or 0) for *_, score in found]
        loud = few or colours[line] != COLOURS["grey"]
        dots = axes.scatter(means, heights, s=26, color=colours[line], edgecolor=PAPER, linewidth=0.6, zorder=3 + loud)
        dots.set_gid(f"tip-line{k}")
        tips[f"line{k}"] = [f"{line.label}\n{arrow(place[1])}: {_seeds_words(score)}" for _, place, score in found]
        handles.append(dots)
    ticks(axes.yaxis, [arrow(task) for _, task in places], most=24, start=0.0)
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.set_xlabel("accuracy, per cent")
    axes.grid(visible=False, axis="y")
    for y in range(1, len(places)):
        axes.axhline(y - 0.5, color=MUTED, linewidth=0.5, alpha=0.35)
    _key(figure, handles, summary.lines, colours, few)
    axes.set_title(label(dataset, 40))
    caption = (
        f"{dataset}, {rule_words(rule)}: mean over seeds, and a stroke from the worst seed to the best. "
        "Point at a dot for its values."
    )
    alt = f"Accuracy of {len(summary.lines)} rows on {len(places)} tasks of {dataset}; the tables have the numbers."
    return Picture(f"tasks-{number}", figure, alt, caption, tips)


def draw_gains(summary: Summary, rule: str) -> Picture | None:
    """Draw what each line gains over the baseline on each task, in points."""
    base = summary.baseline
    lines = [line for line in summary.lines if line != base]
    if base is None or not lines or not _drawable(summary, rule):
        return None
    gains = np.full((len(lines), len(summary.places)), np.nan)
    for j, place in enumerate(summary.places):
        zero = summary.task(base, place, rule).mean
        for i, line in enumerate(lines):
            mean = summary.task(line, place, rule).mean
            gains[i, j] = math.nan if mean is None or zero is None else mean - zero
    if not np.isfinite(gains).any():
        return None
    width = max(4.6, 2.6 + 0.62 * len(summary.places))
    figure = new_figure(width, 1.7 + ROW * len(lines))
    axes = figure.add_subplot()
    heat(axes, gains, signed=True, form="{:+.1f}").set_gid("tip-gain")
    short = [arrow(task) for _, task in summary.places]
    names = [f"{data}, {task}" for (data, _), task in zip(summary.places, short, strict=True)]
    ticks(axes.yaxis, [line.label for line in lines])
    ticks(axes.xaxis, short if len(set(short)) == len(short) else names)
    axes.tick_params(axis="x", rotation=35)
    for text in axes.get_xticklabels():
        text.set(ha="right", rotation_mode="anchor")
    tips = [
        f"{line.label}\n{name}: " + ("not there" if math.isnan(gain) else f"{gain:+.1f} points")
        for line, row in zip(lines, gains, strict=True)
        for name, gain in zip(names, row, strict=True)
    ]
    caption = f"Points gained over {base.label} on each task, {rule_words(rule)}. Blue is a gain, orange a loss."
    alt = f"Gain of {len(lines)} rows over {base.label} on {len(names)} tasks; the tables have the numbers."
    return Picture("gains", figure, alt, caption, {"gain": tips})


def draw_ranks(summary: Summary, rule: str) -> Picture | None:
    """Draw the critical-difference diagram: mean ranks on a line, a bar over those that cannot be told apart."""
    found = ranking(summary, rule) if len(summary.lines) <= MOST_LINES else None
    if found is None:
        return None
    count = len(found.lines)
    half, first = (count + 1) // 2, 0.55 + 0.22 * len(found.groups)
    figure = new_figure(8.0, 1.5 + 0.22 * len(found.groups) + 0.24 * half)
    axes = figure.add_subplot()
    margin = 0.06 * (count - 1)
    axes.plot([1, count], [0, 0], color=MUTED, linewidth=1.2)
    for tick in range(1, count + 1):
        axes.plot([tick, tick], [0, -0.09], color=MUTED, linewidth=1.2)
        axes.text(tick, -0.2, str(tick), ha="center", va="bottom", color=MUTED, fontsize=9)
    for k, (line, rank) in enumerate(zip(found.lines, found.ranks, strict=True)):
        ahead = k < half
        height, end = first + 0.4 * (k if ahead else count - 1 - k), 1 - margin if ahead else count + margin
        axes.plot([rank, rank, end], [0, height, height], color=MUTED, linewidth=0.9)
        text, gap = f"{label(line.label)}  {rank:.2f}", -0.01 if ahead else 0.01
        axes.text(
            end + gap * count, height, text, ha="right" if ahead else "left", va="center", fontsize=9.5, color=INK
        )
    dots = axes.scatter(found.ranks, [0.0] * count, s=34, color=ACCENT, edgecolor=PAPER, linewidth=0.8, zorder=4)
    dots.set_gid("tip-rank")
    for k, group in enumerate(found.groups):
        ends = [found.ranks[group[0]] - 0.04, found.ranks[group[-1]] + 0.04]
        axes.plot(ends, [0.22 + 0.22 * k] * 2, color=INK, linewidth=3.5, solid_capstyle="round", zorder=3)
    axes.plot([1, 1 + found.difference], [-0.75] * 2, color=INK, linewidth=1.2, marker="|", markersize=6)
    words = f"critical difference {found.difference:.2f}"
    axes.text(1 + found.difference / 2, -0.85, words, ha="center", va="bottom", fontsize=9, color=INK)
    axes.set(ylim=(first + 0.4 * half, -1.3))
    axes.set_axis_off()
    told = [
        "cannot be told apart" if k in {place for group in found.groups for place in group} else "apart from the others"
        for k in range(count)
    ]
    tips = [f"{line.label}\nmean rank {found.ranks[k]:.2f}, {told[k]}" for k, line in enumerate(found.lines)]
    tests = f"Friedman's test that all are alike: p = {found.friedman.pvalue:.2g}. " if found.friedman else ""
    caption = (
        f"Mean ranks over {found.tasks} tasks, {rule_words(rule)}; 1 is best. A thick bar joins rows whose ranks "
        f"differ by less than Nemenyi's critical difference at 0.05. {tests}"
    )
    alt = "Mean ranks, the best first: " + "; ".join(
        f"{line.label} {rank:.2f}" for line, rank in zip(found.lines, found.ranks, strict=True)
    )
    return Picture("ranks", figure, alt, caption, {"rank": tips})


def draw_choices(summary: Summary) -> Picture | None:
    """Draw what the choice of the iterate is worth: last, label-free and oracle, mean over all tasks."""
    if not _drawable(summary, LAST) or len(summary.rules) < 2:
        return None
    scores = {line: [summary.mean(line, rule) for rule in summary.rules] for line in summary.lines}
    whole = [line for line in summary.lines if all(score.mean is not None for score in scores[line])]
    if not whole:
        return None
    whole.sort(key=lambda line: -(scores[line][0].mean or 0))
    figure = new_figure(4.6, 1.5 + ROW * len(whole))
    axes = figure.add_subplot()
    means = np.array([[float(score.mean or 0) for score in scores[line]] for line in whole])
    axes.hlines(range(len(whole)), means.min(axis=1), means.max(axis=1), color=MUTED, linewidth=1.2, alpha=0.5)
    handles, tips = [], {}
    for k, rule in enumerate(summary.rules):
        colour = COLOURS["grey"] if rule == ORACLE else series(k)
        marker = {LAST: "o", ORACLE: "|"}.get(rule, "Ds^v"[k % 4])
        size = 60 if rule == ORACLE else 30
        dots = axes.scatter(
            means[:, k], range(len(whole)), s=size, color=colour, marker=marker, linewidth=1.2, zorder=3
        )
        dots.set_gid(f"tip-rule{k}")
        tips[f"rule{k}"] = [f"{line.label}\n{rule}: {scores[line][k].text}" for line in whole]
        handles.append(dots)
    ticks(axes.yaxis, [line.label for line in whole], most=22, start=0.0)
    axes.set_ylim(len(whole) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    tasks = f"{summary.over()}" if summary.left_out else "all"
    axes.set_xlabel(f"accuracy, per cent, mean over {tasks} tasks")
    legend(figure, handles, summary.rules)
    caption = (
        "What the choice of the iterate is worth. The oracle looks at target labels, which nobody has: it is no "
        "result, only how far a better choice could go."
    )
    alt = f"Accuracy of {len(whole)} rows by {', '.join(summary.rules)}; the tables have the numbers."
    return Picture("choices", figure, alt, caption, tips)


def draw_outliers(summary: Summary) -> Picture | None:
    """Draw how much of the source's weight each line leaves on classes that the target lacks."""
    weights = {line: _mean_of(summary, line, "outlier_weight") for line in summary.lines}
    samples = [_mean_of(summary, line, "outlier_samples") for line in summary.lines]
    shown = {line: weight for line, weight in weights.items() if weight is not None}
    share = next((value for value in samples if value is not None), None)
    if not shown or share is None or len(summary.lines) > MOST_LINES:
        return None
    figure, axes, order = _bars(shown)
    axes.axvline(share, color=COLOURS["orange"], linewidth=1.4, linestyle=(0, (4, 3)))
    axes.set_xlim(0, max(100.0, share) if max(shown.values()) > 60 else None)
    axes.set_xlabel("share of the source's weight, per cent")
    tips = [f"{line.label}\n{shown[line]:.1f}% of the weight" for line in order]
    caption = (
        f"Weight on source classes that the target lacks, mean over tasks at the last iterate. The dashed line is "
        f"their share of the samples, {share:.1f}%: what equal weights would give them."
    )
    return Picture("outliers", figure, "Share of the weight on absent classes by row.", caption, {"bar": tips})


def draw_time(summary: Summary) -> Picture | None:
    """Draw the seconds of a training by line."""
    found = {line: _mean_of(summary, line, "seconds") for line in summary.lines}
    shown = {line: seconds for line, seconds in found.items() if seconds}
    if not shown or len(summary.lines) > MOST_LINES:
        return None
    figure, axes, order = _bars(shown)
    if max(shown.values()) > 50 * min(shown.values()):
        axes.set_xscale("log")
    axes.set_xlabel("seconds of a training, one thread")
    tips = [f"{line.label}\n{shown[line]:.1f} s a training" for line in order]
    caption = "Seconds of one training, mean over tasks and seeds."
    return Picture("time", figure, "Seconds of a training by row.", caption, {"bar": tips})


def draw_weights(summary: Summary, line: Line, place: Place, number: int, paper: str = "") -> Picture | None:
    """Draw the paper's three histograms of source weights: all samples, shared classes, outlier classes."""
    from matplotlib.collections import PolyCollection

    found = [summary.record(line, place, seed) for seed in summary.seeds]
    records = list({id(record): record for record in found if record is not None and record.histogram}.values())
    if not records:
        return None
    counts = {
        kind: np.sum([record.histogram.get(kind, [0] * BINS) for record in records], axis=0)
        for kind in ("shared", "outlier")
    }
    share = summary.task(line, place, "outlier_weight").mean
    names = {"all": "All source samples", "shared": "Shared classes", "outlier": "Outlier classes"}
    notes = {"all": "", "shared": "", "outlier": ""}
    if share is not None:
        notes |= {"shared": f"\n{100 - share:.2f}% of the weight", "outlier": f"\n{share:.2f}% of the weight"}
    over = "its cap" if all(_capped(summary, record) for record in records) else "the largest weight"
    panels = {"all": counts["shared"] + counts["outlier"], **counts}
    figure = new_figure(9.6, 2.9)
    tips = {}
    colours = {"all": INK, "shared": COLOURS["blue"], "outlier": COLOURS["orange"]}
    for axes, (kind, bins) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        heights = 100 * bins / max(int(bins.sum()), 1)
        left = np.arange(len(bins)) / len(bins)
        right = left + 0.9 / len(bins)
        corners = [[(a, 0.0), (a, h), (b, h), (b, 0.0)] for a, b, h in zip(left, right, heights, strict=True)]
        axes.add_collection(PolyCollection(corners, facecolor=colours[kind], linewidth=0, gid=f"tip-{kind}"))
        tips[kind] = [
            f"weight {a:.2f} to {a + 1 / len(bins):.2f} of {over}\n{height:.1f}% of these samples"
            for a, height in zip(left, heights, strict=True)
        ]
        axes.set_title(names[kind] + notes[kind])
        axes.set_xlabel(f"weight over {over}")
        axes.set(xlim=(0, 1), ylim=(0, 1.05 * max(heights.max(), 1e-9)))
        axes.grid(visible=False, axis="x")
    figure.axes[0].set_ylabel("samples, per cent")
    samples = summary.task(line, place, "outlier_samples").mean
    held = f" Outlier classes have {samples:.1f}% of the samples." if samples is not None else ""
    told = f"{line.label}, {place[0]}, {arrow(place[1])}"
    many = f"{len(records)} trainings together" if len(records) > 1 else "one training"
    what = over.replace("its", "their")
    caption = f"{told}: source weights over {what}, in {BINS} bins; {many}.{held} {paper}"
    alt = f"Histograms of the source weights of {told}" + (f": {share:.2f}% lie on outlier classes." if share else ".")
    return Picture(f"weights-{number}", figure, alt, caption.strip(), tips)


def _capped(summary: Summary, record: Record) -> bool:
    """Tell whether the histogram of a record is of weights over their cap; an older record does not say it."""
    if record.capped is not None:
        return record.capped
    from warmpot.bench.cell import weight_cap

    try:
        found = [cell for cell in summary.grid.cells() if cell.place[:4] == record.place[:4]]
    except InputError:  # a preset that is gone
        return False
    return any(weight_cap(cell.config, 1) is not None for cell in found)


def _drawable(summary: Summary, rule: str) -> bool:
    """Whether there is something to draw that a figure can name."""
    there = any(summary.task(line, place, rule).values for line in summary.lines for place in summary.places)
    return there and len(summary.lines) <= MOST_LINES


def _colours(summary: Summary, rule: str) -> dict[Line, str]:
    """Return a colour for each of few lines; of many, the best and the baseline stand out."""
    if len(summary.lines) <= MOST_COLOURED:
        return {line: series(k) for k, line in enumerate(summary.lines)}
    loud = {best_line(summary, rule): COLOURS["blue"], summary.baseline: COLOURS["orange"]}
    return {line: loud.get(line, COLOURS["grey"]) for line in summary.lines}


def _key(figure: Any, handles: Sequence[Any], lines: Sequence[Line], colours: Mapping[Line, str], few: bool) -> None:
    pairs = [(handle, line.label) for handle, line in zip(handles, lines, strict=True)
             if few or colours[line] != COLOURS["grey"]]  # fmt: skip
    if not few:
        other = next((h for h, line in zip(handles, lines, strict=True) if colours[line] == COLOURS["grey"]), None)
        pairs += [(other, "others")] if other is not None else []
    if pairs:
        legend(figure, [handle for handle, _ in pairs], [name for _, name in pairs])


def _bars(values: Mapping[Line, float]) -> tuple[Any, Axes, list[Line]]:
    """Draw horizontal bars, the smallest on top; return the order too."""
    order = sorted(values, key=lambda line: values[line])
    figure = new_figure(4.6, 1.0 + ROW * len(order))
    axes = figure.add_subplot()
    for bar in axes.barh(range(len(order)), [values[line] for line in order], height=0.62, color=COLOURS["blue"]):
        bar.set_gid("tip-bar")
    ticks(axes.yaxis, [line.label for line in order], most=22, start=0.0)
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    return figure, axes, order


def _mean_of(summary: Summary, line: Line, what: str) -> float | None:
    """Mean over the tasks that have it."""
    means: Iterable[float | None] = (summary.task(line, place, what).mean for place in summary.places)
    found = [mean for mean in means if mean is not None]
    return float(np.mean(found)) if found else None


def _seeds_words(score: Score) -> str:
    several = len(score.values) > 1 and not score.constant
    each = ", ".join(f"{value:.1f}" for value in score.values.values())
    return score.text + (f"\nseeds: {each}" if several else "")


def arrow(text: str) -> str:
    """Write the arrow of a task as one letter."""
    return text.replace("->", "→")
