"""Draw the figures of the documentation, and write the measured numbers into docs/which-solver.md and docs/cli.md.

python docs/figures.py

The time plot and the tables come from transport.json and commands.json in benchmarks/results: after a new measurement
run this again.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from warmpot.transport import Solution, partial_path, solve_partial

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
START, END = "<!-- numbers: written by docs/figures.py -->", "<!-- end of numbers -->"
BLUE, ORANGE, GREEN, PURPLE, GREY = "#2468b4", "#e07b20", "#2e9a5c", "#8e5bb5", "#555555"
MARKERS = ("o", "s", "^", "D")
Floats = NDArray[np.float64]


def toy() -> tuple[Floats, NDArray[np.int64], Floats]:
    """Four source classes; the target holds the first two, shifted, and four outliers."""
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [0.2, 3.6], [5.0, 3.9], [5.2, 0.2]])
    ys = np.repeat(np.arange(4), 14)
    xs = centres[ys] + 0.5 * rng.normal(size=(ys.size, 2))
    yt = np.repeat(np.arange(2), 14)
    xt = centres[yt] + [1.4, -0.2] + 0.45 * rng.normal(size=(yt.size, 2))
    strays = np.array([[2.3, 7.0], [3.0, 7.5], [1.8, 7.7], [2.7, 6.5]])
    return xs, ys, np.vstack([xt, strays])


def distances(xs: Floats, xt: Floats) -> Floats:
    result: Floats = np.linalg.norm(xs[:, None] - xt, axis=2)
    return result


def draw_plan(ax: Axes, xs: Floats, ys: NDArray[np.int64], xt: Floats, solution: Solution[Any], beta: float) -> None:
    rows, cols = np.nonzero(solution.plan > 1e-9)
    moved = solution.plan[rows, cols]
    lines = LineCollection(np.stack([xs[rows], xt[cols]], axis=1), colors=GREY, linewidths=1.0, zorder=1)
    lines.set_alpha(0.12 + 0.68 * moved / moved.max())
    ax.add_collection(lines)
    weight = solution.p * beta * len(xs)  # 0 to 1
    used_t = solution.q * len(xt) > 0.5
    for k, colour in enumerate((BLUE, GREEN, ORANGE, PURPLE)):
        part = ys == k
        size, tint = 8 + 42 * weight[part], 0.45 + 0.55 * weight[part]
        ax.scatter(*xs[part].T, s=size, marker=MARKERS[k], color=colour, alpha=tint, linewidths=0, zorder=3)
    ax.scatter(*xt[used_t].T, s=26, marker="X", color="black", linewidths=0, zorder=4)
    ax.scatter(*xt[~used_t].T, s=24, marker="X", facecolors="white", edgecolors="black", linewidths=0.9, zorder=4)
    ax.set(xticks=[], yticks=[], aspect="equal", xlim=(-1.7, 6.9), ylim=(-1.7, 8.3))
    for side in ax.spines.values():
        side.set_color("#cccccc")


def figure_partial_and_full() -> Figure:
    xs, ys, xt = toy()
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 5.3), layout="constrained")
    settings = (
        (1.0, 1.0, "Full transport: all mass must move"),
        (0.5, 0.85, "Partial transport: mass 0.85, beta 0.5"),
    )
    for ax, (beta, mass, title) in zip(axes, settings, strict=True):
        a = np.full(len(xs), 1 / (beta * len(xs)))
        solution = solve_partial(distances(xs, xt), a, mass=mass)
        draw_plan(ax, xs, ys, xt, solution, beta)
        outliers = solution.p[ys >= 2].sum() / mass
        ax.set_title(title, fontsize=11.5)
        ax.set_xlabel(f"source weight on classes absent from the target: {outliers:.0%}", fontsize=10)
    handles = [
        Line2D([], [], ls="", marker=m, color=c, ms=6.5, label=f"source class {k + 1}")
        for k, (m, c) in enumerate(zip(MARKERS, (BLUE, GREEN, ORANGE, PURPLE), strict=True))
    ]
    handles.append(Line2D([], [], ls="", marker="X", color="black", ms=6, label="target"))
    handles.append(Line2D([], [], ls="", marker="X", mfc="white", mec="black", ms=6, label="target, left out"))
    figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9, handletextpad=0.1)
    return figure


def figure_match() -> Figure:
    """Draw the figure of the README: the same data, matched as a whole and in part, in words that need no theory."""
    xs, ys, xt = toy()
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.9), layout="constrained")
    settings = ((1.0, 1.0, "Everything is matched"), (0.5, 28 / 32, "Only what fits is matched"))
    colours = (BLUE, GREEN, ORANGE, PURPLE)
    for ax, (beta, mass, title) in zip(axes, settings, strict=True):
        solution = solve_partial(distances(xs, xt), mass=mass, beta=beta)
        draw_plan(ax, xs, ys, xt, solution, beta)
        ax.set(title=title, xlim=(-2.3, 7.2), ylim=(-1.6, 8.3))
        ax.title.set(fontsize=14, fontweight="bold")
        absent = solution.p[ys >= 2].sum() / mass
        ax.set_xlabel(f"{absent:.0%} of the matches are with C and D,\nwhich the target does not have", fontsize=11.5)
        for k, (x, y) in enumerate(((-1.8, 0.0), (-1.6, 3.6), (6.6, 4.3), (6.7, 0.3))):
            ax.text(x, y, "ABCD"[k], color=colours[k], fontsize=17, fontweight="bold", ha="center", va="center")
    handles = [
        tuple(Line2D([], [], ls="", marker=m, color=c, ms=7) for m, c in zip(MARKERS, colours, strict=True)),
        Line2D([], [], ls="", marker="X", color="black", ms=7),
        Line2D([], [], ls="", marker="X", mfc="white", mec="black", ms=7),
    ]
    labels = ["source, classes A to D", "target, no labels", "target, left out"]
    spread = {tuple: HandlerTuple(ndivide=None, pad=0.6)}
    place = {"loc": "outside lower center", "ncols": 3, "handlelength": 4}
    figure.legend(handles, labels, handler_map=spread, frameon=False, fontsize=11.5, **place)
    return figure


def figure_mass_curve() -> Figure:
    xs, _, xt = toy()
    path = partial_path(distances(xs, xt), np.full(len(xs), 1 / (0.5 * len(xs))))
    knee = 28 / 32
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained")
    axes[0].plot(path.masses, path.values, color=BLUE, lw=2)
    axes[0].set(ylabel="value", title="Cost of moving this mass", ylim=(0, None))
    axes[1].stairs(path.slopes, path.masses, color=ORANGE, lw=2, baseline=None)
    axes[1].set(ylabel="slope", title="Cost of additional mass", ylim=(0, None))
    for ax in axes:
        ax.axvline(knee, color=GREY, lw=1, ls=":")
        ax.set(xlabel="mass", xlim=(0, 1))
        ax.spines[["top", "right"]].set_visible(False)
        ax.title.set_fontsize(11)
    axes[0].annotate(
        "28 of 32 target samples:\nonly outliers remain",
        (knee, 0.88 * path.values[-1]),
        (-8, 0),
        textcoords="offset points",
        ha="right",
        va="center",
        fontsize=9,
        color=GREY,
    )
    return figure


def figure_time(record: dict[str, Any]) -> Figure:
    styles = {
        "entropic": (BLUE, "-", "o", "warmpot, entropic"),
        "exact": (ORANGE, "-", "s", "warmpot, exact"),
        "POT entropic": (BLUE, "--", "o", "POT, entropic"),
        "POT exact": (ORANGE, "--", "s", "POT, exact"),
    }
    figure, ax = plt.subplots(figsize=(7.4, 4.2), layout="constrained")
    for name, (colour, dash, marker, label) in styles.items():
        n, taken = record[name]["n"], record[name]["seconds"]
        fill = colour if dash == "-" else "white"
        ax.loglog(n, taken, color=colour, ls=dash, marker=marker, mfc=fill, ms=5.5, lw=1.8, label=label)
    sizes = record["exact"]["n"]
    ax.set_xticks(sizes, [f"{n:,}" for n in sizes])
    ax.xaxis.set_minor_locator(NullLocator())
    decades = range(-4, 3)
    names = ("0.1 ms", "1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s")
    low, high = ax.get_ylim()
    ax.set_yticks([10.0**k for k in decades], names)
    ax.set(xlabel="n (problems of n x n)", ylim=(low, high))
    ax.grid(True, which="major", color="#e4e4e4", lw=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9.5, loc="lower right")
    ax.set_title("Time of one solve, compiled", fontsize=11.5)
    return figure


def duration(taken: float) -> str:
    amount, unit = (taken, "s") if taken >= 1 else (taken * 1e3, "ms")
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.2g} {unit}"


def growth(record: dict[str, Any]) -> str:
    """Say how much longer twice the n takes, solver by solver."""
    parts = []
    for name, curve in record.items():
        factors = [later / earlier for earlier, later in pairwise(curve["seconds"])]
        slope = np.polyfit(np.log(curve["n"]), np.log(curve["seconds"]), 1)[0]
        listed = ", ".join(f"{factor:.1f}" for factor in factors)
        parts.append(f"{name} {listed} times as long (n^{slope:.1f} over all, up to n = {curve['n'][-1]})")
    return f"Twice the n takes, from n = {curve['n'][0]} on: {'; '.join(parts)}."


def table_of(result: dict[str, Any], peer: str) -> str:
    """Write the measured rows, and where they were measured."""
    lines = [f"| case | warmpot | {peer} | ratio | notes |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        digits = ",.0f" if (row["ratio"] or 0.0) >= 10 else ".2g"
        other = ("", "") if row["peer"] is None else (duration(row["peer"]), f"{row['ratio']:{digits}}")
        cells = (row["case"], duration(row["ours"]), *other, row["notes"])
        lines.append("| " + " | ".join(cells) + " |")
    facts = result["machine"]
    versions = facts["versions"]
    lines += [
        "",
        f"{result['inputs']}; {facts['cpu']}, {facts['cores']} cores; Python {versions['python']}, "
        f"POT {versions['POT']}, numpy {versions['numpy']}, numba {versions['numba']}; "
        f"BLAS threads: {facts['blas_threads']}; load before the run: {facts['load_before']:.1f}.",
    ]
    return "\n".join(lines)


def measurements(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text()))


def numbers() -> dict[str, str]:
    """Return what is written between the marks of each page."""
    solvers = measurements("transport")
    return {
        "which-solver.md": f"{table_of(solvers, 'POT')}\n\n{growth(solvers['records']['scaling'])}",
        "cli.md": table_of(measurements("commands"), "peer"),
    }


def main() -> None:
    folder = DOCS / "img"
    folder.mkdir(exist_ok=True)
    figures = {
        "match": figure_match(),
        "partial-and-full": figure_partial_and_full(),
        "mass-curve": figure_mass_curve(),
        "time": figure_time(measurements("transport")["records"]["scaling"]),
    }
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        print(f"{path.relative_to(DOCS.parent)}: {path.stat().st_size / 1024:.0f} KB")
    for page, text in numbers().items():
        before, rest = (DOCS / page).read_text().split(START)
        (DOCS / page).write_text(f"{before}{START}\n\n{text}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
