"""The measured part of docs/bench.md: tables and figures of the grids on features, from benchmarks/results.

    make bench-methods            # trains what is missing there, then calls this
    python benchmarks/tables.py   # tables and figures only

The stores are what `warmpot bench GRID --out benchmarks/results/NAME` writes; `grid.yaml` and `results.jsonl` are kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from _jobs import ROOT, between

from warmpot.bench.sheets import sheets
from warmpot.bench.summary import Summary, summarise
from warmpot.bench.tables import sheet_as_markdown
from warmpot.report.bench_figures import draw_gains, draw_ranks, draw_weights
from warmpot.report.bench_sensitivity import draw_sensitivity
from warmpot.report.page import Picture

RESULTS = ROOT / "benchmarks" / "results"
DPI = 100
PAGE = ROOT / "docs" / "bench.md"


def chosen(summary: Summary, names: Sequence[str]) -> str:
    """Return the tables of these names, as far as the grid has them."""
    found = {sheet.name: sheet for sheet in sheets(summary)}
    return "\n\n".join(sheet_as_markdown(found[name], level=4) for name in names if name in found)


def folded(summary: Summary, title: str, names: Sequence[str]) -> str:
    """Return tables that a reader unfolds."""
    return f'<details markdown="1"><summary>{title}</summary>\n\n{chosen(summary, names)}\n\n</details>'


def drawn(picture: Picture | None, name: str) -> str:
    """Write a figure and return the link to it, with its caption."""
    if picture is None:
        return ""
    picture.figure.savefig(ROOT / "docs" / "img" / f"{name}.png", dpi=DPI, metadata={"Software": None})
    return f"![{picture.alt}](img/{name}.png)\n\n{picture.caption}"


def by_task(summary: Summary) -> list[str]:
    return [f"tasks-{dataset}-last" for dataset in summary.datasets]


def spent(summary: Summary) -> float:
    """Hours of training, of one thread."""
    return sum(record.seconds for record in summary.records) / 3600


def main() -> int:
    grids = {name: summarise(RESULTS / name) for name in ("comparison", "ablation", "sensitivity", "weights")}
    comparison, ablation = grids["comparison"], grids["ablation"]
    parts = {
        "bench-comparison": [
            chosen(comparison, ["overview-last", "rules", "ranks-last", "against-baseline-last"]),
            drawn(draw_ranks(comparison, "last"), "bench-ranks"),
            drawn(draw_gains(comparison, "last"), "bench-gains"),
            chosen(comparison, ["paper"]),
            choice(comparison),
            folded(comparison, "Task by task, last iterate", by_task(comparison)),
        ],
        "bench-ablation": [
            chosen(ablation, ["overview-last", "rules", "against-baseline-last", "paper"]),
            folded(ablation, "Task by task, last iterate", by_task(ablation)),
        ],
        "bench-sensitivity": [
            drawn(picture, f"bench-{picture.name}") for picture in draw_sensitivity(grids["sensitivity"], "last")
        ],
        "bench-histogram": weights(grids["weights"]),
        "bench-measured": [
            "| grid | trainings | hours of one thread |\n|---|---|---|\n"
            + "\n".join(
                f"| {name} | {summary.done} of {summary.asked} | {spent(summary):.1f} |"
                for name, summary in grids.items()
            )
        ],
    }
    for marker, texts in parts.items():
        between(PAGE, marker, "\n\n".join(text for text in texts if text))
    return 0


def choice(summary: Summary, rule: str = "neighbours") -> str:
    """Return what comes of choosing one row for each task and seed by a label-free score of its last iterate."""
    lines = [line for line in summary.lines if not line.label.endswith("full")]  # one engine, one kind of features
    found: list[tuple[float, float, float, str]] = []
    for place in summary.places:
        for seed in summary.seeds:
            runs = [run for line in lines if (run := summary.record(line, place, seed)) and rule in run.scores]
            if len(runs) == len(lines):
                best = max(runs, key=lambda run: run.scores[rule])
                base = next(run.accuracy["last"] for run in runs if run.row == summary.grid.baseline)
                found.append((best.accuracy["last"], max(run.accuracy["last"] for run in runs), base, best.row))
    if not found:
        return ""
    chosen, top, base = (100 * np.array([line[k] for line in found], float) for k in range(3))
    names = [line[3] for line in found]
    often = ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names), key=names.count, reverse=True))
    return (
        f"One row for each task and seed, chosen among the last iterates of the {len(lines)} mini-batch rows by "
        f"`{rule}`, without target labels: {chosen.mean():.1f} on average over {len(found)} tasks and seeds, "
        f"{(top - chosen).mean():.1f} below the best by target labels (oracle; worst {(top - chosen).max():.1f}), "
        f"below {summary.grid.baseline} in {int((chosen < base - 1e-9).sum())}. Chosen: {often}."
    )


def weights(summary: Summary) -> list[str]:
    """Return the histograms of every row, and the shares of outliers beside the paper's."""
    place = next(iter(summary.places))
    rows = [
        (line.label, summary.task(line, place, "outlier_weight"), summary.task(line, place, "outlier_samples"))
        for line in summary.lines
    ]
    table = "| row | weight on outlier classes, % | their share of the samples, % |\n|---|---|---|\n"
    table += "\n".join(f"| {name} | {weight.text} | {samples.mean:.2f} |" for name, weight, samples in rows)
    table += "\n| the paper, ResNet-50 trained | 6.04 | 58.41 |"
    pictures = [
        drawn(draw_weights(summary, line, place, number), f"bench-weights-{number}")
        for number, line in enumerate(summary.lines)
    ]
    return [table, *pictures]


if __name__ == "__main__":
    raise SystemExit(main())
