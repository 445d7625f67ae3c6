"""Figures of a grid that varies settings: a curve with error bars for one setting, a map for two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from warmpot.bench.summary import Summary, Variant, describe_rule
from warmpot.report.page import Picture
from warmpot.report.style import PAPER, heat, label, legend, new_figure, series, ticks

__all__ = ["draw_sensitivity"]


def draw_sensitivity(summary: Summary, rule: str) -> list[Picture]:
    """Draw accuracy against the varied settings: a curve with error bars for one setting, a map for two."""
    pictures: list[Picture | None] = []
    drawn: set[str] = set()
    for block in sorted(summary.grid.vary, key=len):
        if len(block) == 1:
            [(name, values)] = block.items()
            variants = {(row.name, data): [Variant(row.name, ((name, value),)) for value in values]
                     for row in summary.grid.rows for data in summary.datasets}  # fmt: skip
            pictures.append(_curve(summary, rule, name, values, variants, len(pictures)))
            drawn.add(name)
        if len(block) == 2:
            for name, other in (tuple(block), tuple(block)[::-1]):
                if name not in drawn:
                    pictures.append(
                        _curve(summary, rule, name, block[name], _slices(summary, block, name, other), len(pictures))
                    )
            pictures += [
                _map(summary, rule, row.name, block, len(pictures) + k) for k, row in enumerate(summary.grid.rows)
            ]
    return [picture for picture in pictures if picture is not None]


def _slices(
    summary: Summary, block: Mapping[str, Sequence[float]], name: str, other: str
) -> dict[tuple[str, str], list[Variant]]:
    """Return the variants along one of two settings, for each value of the other."""
    return {
        (f"{row.name}, {_short(other)} {value:g}", data): [
            Variant(row.name, tuple(sorted({name: x, other: value}.items()))) for x in block[name]
        ]
        for row in summary.grid.rows
        for data in summary.datasets
        for value in block[other]
    }


def _curve(
    summary: Summary,
    rule: str,
    name: str,
    values: Sequence[float],
    variants: Mapping[tuple[str, str], Sequence[Variant]],
    number: int,
) -> Picture | None:
    figure = new_figure(4.6, 3.2)
    axes = figure.add_subplot()
    tips, handles, names = {}, [], []
    for k, ((row, data), along) in enumerate(variants.items()):
        scores = [(x, summary.mean(variant, rule, data)) for x, variant in zip(values, along, strict=True)]
        present = [(x, float(score.mean), score) for x, score in scores if score.mean is not None]
        if not present:
            continue
        x, y = [a for a, _, _ in present], [b for _, b, _ in present]
        spread = [score.std or 0.0 for *_, score in present]
        axes.errorbar(x, y, yerr=spread, color=series(k), linewidth=1.6, elinewidth=1.1, capsize=3)
        dots = axes.scatter(x, y, s=26, color=series(k), edgecolor=PAPER, linewidth=0.6, zorder=4)
        dots.set_gid(f"tip-curve{k}")
        title = f"{row}, {data}" if len(summary.datasets) > 1 else row
        tips[f"curve{k}"] = [f"{title}\n{_short(name)} {a:g}: {score.text}" for a, _, score in present]
        handles.append(dots)
        names.append(title)
    if not handles:
        return None
    if min(values) > 0 and max(values) >= 10 * min(values):
        axes.set_xscale("log")
        axes.xaxis.set_ticks(list(values), labels=[f"{value:g}" for value in values])
        axes.xaxis.set_ticks([], minor=True)
    axes.set_xlabel(_short(name))
    axes.set_ylabel("accuracy, per cent")
    if len(handles) > 1:
        legend(figure, handles, names, columns=2)
    caption = f"Accuracy against {_short(name)}, mean over tasks, {describe_rule(rule)}; bars are one std over seeds."
    alt = f"Accuracy for {len(values)} values of {_short(name)}; the tables have the numbers."
    return Picture(f"curve-{number + 1}", figure, alt, caption, tips)


def _map(summary: Summary, rule: str, row: str, block: Mapping[str, Sequence[float]], number: int) -> Picture | None:
    (across, xs), (down, ys) = block.items()
    points = [[Variant(row, tuple(sorted({across: x, down: y}.items()))) for x in xs] for y in ys]
    scores = [[summary.mean(variant, rule) for variant in point_row] for point_row in points]
    means = np.array([[math.nan if s.mean is None else s.mean for s in score_row] for score_row in scores])
    if not np.isfinite(means).any():
        return None
    figure = new_figure(4.6, 1.2 + 0.34 * len(ys))
    axes = figure.add_subplot()
    heat(axes, means, form="{:.1f}").set_gid("tip-map")
    ticks(axes.xaxis, [f"{x:g}" for x in xs])
    ticks(axes.yaxis, [f"{y:g}" for y in ys])
    axes.set_xlabel(_short(across))
    axes.set_ylabel(_short(down))
    axes.set_title(label(row))
    tips = [
        f"{_short(across)} {x:g}, {_short(down)} {y:g}\n{scores[j][i].text}"
        for j, y in enumerate(ys)
        for i, x in enumerate(xs)
    ]
    caption = (
        f"{row}: accuracy in per cent, mean over tasks and seeds, {describe_rule(rule)}. Stronger colours are higher."
    )
    ends = f"from {np.nanmin(means):.1f} to {np.nanmax(means):.1f}"
    alt = f"Accuracy for every pair of {_short(across)} and {_short(down)}, {ends}."
    return Picture(f"map-{number + 1}", figure, alt, caption, {"map": tips})


def _short(name: str) -> str:
    return name.rpartition(".")[2]
