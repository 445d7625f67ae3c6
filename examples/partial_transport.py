"""Which source samples are relevant for the target? Partial transport on synthetic data, in seconds.

python examples/partial_transport.py [--out transport-demo] [--mass 0.8] [--beta 0.5] [--seed 0]

The source has 10 classes, the target only 5 of them, and some outliers that belong to no class. No target labels are
used. The exact plan gives the source samples weights, which should concentrate on the 5 shared classes.
Writes plan.png and report.md.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist

from warmpot.transport import Certificate, Solution, certify, solve_partial_points

CLASSES, SHARED, DIM = 10, 5, 16
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Domains:
    """Two domains: labelled source, unlabelled target; `stray` marks target samples that belong to no class."""

    xs: Floats
    ys: NDArray[np.int64]
    xt: Floats
    stray: NDArray[np.bool_]


@dataclass(frozen=True)
class Run:
    """One plan, and the weight it puts on the shared classes."""

    name: str
    mass: float
    beta: float
    seconds: float
    solution: Solution[Any]
    certificate: Certificate
    shared: float
    strays_left_out: float


def make_domains(seed: int) -> Domains:
    """Draw 2000 source samples of 10 classes and 600 target samples: 540 of the first 5 classes, 60 outliers."""
    rng = np.random.default_rng(seed)
    centres = 1.8 * rng.normal(size=(CLASSES, DIM))
    ys = np.repeat(np.arange(CLASSES), 200)
    xs = centres[ys] + rng.normal(size=(ys.size, DIM))
    yt = rng.integers(SHARED, size=540)
    xt = centres[yt] + rng.normal(size=(yt.size, DIM)) + 0.8 * rng.normal(size=DIM)  # the domain shift
    strays = 3.5 * rng.normal(size=(60, DIM))
    return Domains(xs, ys, np.vstack([xt, strays]), np.arange(600) >= 540)


def run(name: str, data: Domains, mass: float, beta: float) -> Run:
    start = time.perf_counter()
    solution = solve_partial_points(data.xs, data.xt, mass=mass, beta=beta, progress_bar=False)
    taken = time.perf_counter() - start
    a = np.full(len(data.xs), 1 / (beta * len(data.xs)))
    cost = cdist(data.xs, data.xt)
    certificate = certify(solution.plan, cost, a, None, mass, potentials=solution.potentials)
    shared = float(solution.p[data.ys < SHARED].sum() / mass)
    left_out = 1 - float(solution.q[data.stray].sum() * len(data.xt) / data.stray.sum())
    return Run(name, mass, beta, taken, solution, certificate, shared, left_out)


def facts(runs: list[Run]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of the table of plans."""
    head = [
        "",
        "mass",
        "beta",
        "value",
        "gap",
        "slope",
        "time",
        "weight on shared",
        "on outlier classes",
        "outliers left out",
    ]
    rows = [
        [
            r.name, f"{r.mass:g}", f"{r.beta:g}", f"{r.solution.value:.4f}", f"{r.solution.gap:.0e}",
            f"{r.solution.slope:.3f}", f"{r.seconds * 1e3:.0f} ms", f"{r.shared:.1%}", f"{1 - r.shared:.1%}",
            f"{r.strays_left_out:.0%}",
        ]
        for r in runs
    ]  # fmt: skip
    return head, rows


def show(console: Console, runs: list[Run]) -> None:
    head, rows = facts(runs)
    table = Table(title="Exact plans between 2000 source and 600 target samples")
    for name in head:
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def proof(r: Run) -> str:
    """Describe what the certificate of a run proves."""
    c = r.certificate
    kind = "feasible" if c.feasible else "NOT feasible"
    return (
        f"Certificate: the plan is {kind} (largest violation {c.residuals.worst:.0e} of the mass); "
        f"its value {c.value:.6f} is at most {max(0.0, c.gap):.0e} above the minimum."
    )


def write_report(path: Path, runs: list[Run], has_figure: bool) -> None:
    head, rows = facts(runs)
    table = [head, ["---"] * len(head), *rows]
    lines = [
        "# Partial transport demo",
        "",
        f"Source: {CLASSES} classes. Target: {SHARED} of them, and 10 % outliers. Target labels are not used.",
        "",
        *("| " + " | ".join(row) + " |" for row in table),
        "",
        proof(runs[-1]),
        "",
        "value: cost of the plan. gap: proven distance to the best plan. slope: marginal cost of mass.",
        "Full transport must use every source sample, so its weights are uniform.",
        "",
        *(["![weights of the source samples](plan.png)", ""] if has_figure else []),
    ]
    path.write_text("\n".join(lines))


def draw(path: Path, data: Domains, last: Run) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MultipleLocator

    both = np.vstack([data.xs, data.xt])
    centre = both.mean(axis=0)
    axes2d = np.linalg.svd(both - centre, full_matrices=False)[2][:2].T
    s, t = (data.xs - centre) @ axes2d, (data.xt - centre) @ axes2d
    weight = last.solution.p * last.beta * len(data.xs)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4), layout="constrained", width_ratios=(1.25, 1))
    for part, colour, label in ((data.ys < SHARED, "#2468b4", "shared"), (data.ys >= SHARED, "#e07b20", "outlier")):
        left.scatter(*s[part].T, s=1 + 14 * weight[part], color=colour, alpha=0.7, lw=0, label=f"source, {label} class")
    left.scatter(*t.T, s=9, marker="x", lw=0.6, color="black", label="target")
    left.set(xticks=[], yticks=[], title="Source samples, sized by weight (two main directions)")
    left.legend(frameon=False, fontsize=8.5, markerscale=1.5)
    share = np.bincount(data.ys, last.solution.p, CLASSES) / last.mass
    colours = ["#2468b4"] * SHARED + ["#e07b20"] * (CLASSES - SHARED)
    right.bar(np.arange(CLASSES), share, color=colours)
    right.axhline(1 / CLASSES, color="#555555", ls="--", lw=1)
    right.text(CLASSES - 0.5, 1 / CLASSES, "uniform", ha="right", va="bottom", fontsize=9, color="#555555")
    right.set(xlabel="class", title="Share of the weight", xticks=range(CLASSES))
    right.yaxis.set_major_locator(MultipleLocator(0.05))
    right.yaxis.set_major_formatter(lambda y, _: f"{y:.0%}")
    right.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("transport-demo"), help="folder for plan.png and report.md")
    parser.add_argument("--mass", type=float, default=0.8, help="mass to move, in (0, 1]")
    parser.add_argument("--beta", type=float, default=0.5, help="share of the source that is relevant, in (0, 1]")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    console = Console(width=max(Console().width, 130))
    console.print("Loading the solvers (the first time on a machine they are compiled, which takes some seconds) ...")
    start = time.perf_counter()
    solve_partial_points(np.arange(6.0)[:, None], np.arange(6.0)[:, None], beta=1.0, mass=0.5, progress_bar=False)
    console.print(f"Loaded in {time.perf_counter() - start:.1f} s.\n")
    data = make_domains(options.seed)
    runs = [
        run("full transport", data, 1.0, 1.0),
        run("part of the source", data, 1.0, options.beta),
        run("part of both", data, options.mass, options.beta),
    ]
    show(console, runs)
    console.print(proof(runs[-1]))
    console.print("Full transport must use every source sample, so its weights are uniform.\n")
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        draw(options.out / "plan.png", data, runs[-1])
        has_figure = True
    except ImportError:
        has_figure = False
        console.print("No figure: matplotlib is missing (pip install 'warmpot\\[plot]').")
    write_report(options.out / "report.md", runs, has_figure)
    console.print(f"Written: {options.out / 'report.md'}" + (f" and {options.out / 'plan.png'}" if has_figure else ""))


if __name__ == "__main__":
    main()
