"""The training curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot.report.page import Picture, Section
from warmpot.report.run_view import RunView, cost_per_mass
from warmpot.report.sections.parts import Drawn, chosen_iterate, picture
from warmpot.report.style import INK, series
from warmpot.weights.verdict import CLUSTERS_GAIN, CONSENSUS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curve_lines", "draw_curve", "training_curves", "training_section"]

CURVES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "transport": (
        "transport value",
        {"transport": "cost of the plan", "per_mass": "cost per unit of mass", "bound": "bound that is minimised"},
    ),
    "mass": ("mass", {"alpha": "alpha: share of the target", "beta": "beta: share of the source", "rho": "rho"}),
    "effective": ("effective classes", {"effective_classes": "effective classes"}),
    "weights": ("effective share of the source", {"effective_weights": "effective share of the source"}),
    "score": ("score", {"score": "of the validator that chooses"}),
    "hypotheses": ("numbers of classes that are tried", {"classes": "classes", "support": "support of the hypothesis"}),
}
"""Panels of the training: title, and names of lines by their names in the log; other numbers are losses."""
NOT_LOSSES = ("step", "gap", "plan_ok", "mean_cost", "move", "clusters", CONSENSUS, CLUSTERS_GAIN)
LOSSES = "losses"
MAX_TIPS = 60
"""Points of a line up to which each has a text that is shown on hover."""


def training_section(view: RunView) -> Section | None:
    """Plot the log; None if nothing was logged."""
    curves = training_curves(view)
    lead = f"The result is {view.run.unit} {view.run.step}, {chosen_iterate(view.run)}."
    return Section("Training", list(curves), lead=lead) if curves else None


def training_curves(view: RunView) -> list[Picture]:
    """Plot the log of the training, with the final iterate marked."""
    return [
        picture(f"training-{panel}", lambda axes, panel=panel: draw_curve(axes, view, panel), 2.7)  # type: ignore[misc]
        for panel in curve_lines(view)
    ]


def curve_lines(view: RunView) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the lines of each panel of the log that has any: steps and values by name."""
    lines = [dict(line) for line in view.run.history]
    for line in lines:
        if (cost := cost_per_mass(line)) is not None:
            line["per_mass"] = cost
    others = {name for _, names in CURVES.values() for name in names} | set(NOT_LOSSES)
    losses = {name: name for line in lines for name in line if name not in others}
    panels: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for panel, (_, names) in {LOSSES: ("", losses), **CURVES}.items():
        drawn = {
            text.replace("_", " "): points for name, text in names.items()
            if (points := [(line["step"], line[name]) for line in lines if _finite(line.get(name))])
        }  # fmt: skip
        panels |= {panel: drawn} if drawn else {}
    return panels


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


def draw_curve(axes: Axes, view: RunView, panel: str) -> Drawn:
    """Draw one panel of `curve_lines` against the steps."""
    lines, title = curve_lines(view)[panel], CURVES[panel][0] if panel in CURVES else panel
    tips, ranges, unit = {}, [], view.run.unit
    few = max(len(points) for points in lines.values()) <= MAX_TIPS
    for index, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points, strict=True)
        axes.plot(steps, values, color=series(index), label=name)
        if few:
            axes.scatter(steps, values, s=16, color=series(index), gid=f"tip-{panel}{index}")
            tips[f"{panel}{index}"] = [f"{unit} {s}: {name} {v:.4g}" for s, v in points]
        ranges.append(f"{name} from {values[0]:.4g} to {values[-1]:.4g}")
    last = max(points[-1][0] for points in lines.values())
    if view.run.step != last or view.run.setting("choose") != "last":
        text = f"result: {unit} {view.run.step}"
        axes.axvline(view.run.step, color=INK, linewidth=1, linestyle=(0, (4, 3)), label=text)
    every = [value for points in lines.values() for _, value in points]
    if min(every) >= 0 and panel != "score":
        axes.set_ylim(0, 1.08 * max(every) or 1.0)
    only = next(iter(lines))
    named = len(axes.get_legend_handles_labels()[0]) > 1 or only == title
    axes.set(xlabel=unit, title=title if named else f"{title}: {only}")
    axes.locator_params(axis="x", integer=True)
    return Drawn(f"{title}: " + "; ".join(ranges), tips=tips or None)
