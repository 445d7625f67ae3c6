"""The measured part of docs/bench.md: the tables and figures of the grids on features, from benchmarks/results.

    make bench-methods            # trains what is missing there, then calls this
    python benchmarks/tables.py   # only writes tables and figures

`warmpot bench GRID --out benchmarks/results/NAME` writes the results; their `grid.yaml` and `results.jsonl` are in the
repository.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from _jobs import ROOT, between
from PIL import Image

from warmpot._tables import to_markdown
from warmpot.bench.result_tables import all_tables
from warmpot.bench.summary import Summary, load_summary
from warmpot.report.grid_figures import draw_gains, draw_ranks, draw_sensitivity, draw_weights
from warmpot.report.page import Picture

RESULTS = ROOT / "benchmarks" / "results"
DPI = 85
PAGE = ROOT / "docs" / "bench.md"


def chosen(summary: Summary, names: Sequence[str]) -> str:
    """Return the tables of these names that the grid has."""
    tables = {table.name: table for table in all_tables(summary)}
    return "\n\n".join(to_markdown(tables[name], level=4) for name in names if name in tables)


def folded(summary: Summary, title: str, names: Sequence[str]) -> str:
    """Return tables in a folded block."""
    return f'<details markdown="1"><summary>{title}</summary>\n\n{chosen(summary, names)}\n\n</details>'


def drawn(picture: Picture | None, name: str) -> str:
    """Write a figure and return the link to it, with its caption."""
    if picture is None:
        return ""
    drawing = io.BytesIO()
    picture.figure.savefig(drawing, dpi=DPI)
    indexed = Image.open(drawing).quantize(method=Image.Quantize.FASTOCTREE)  # a quarter of the size, with transparency
    indexed.save(ROOT / "docs" / "img" / f"{name}.png", optimize=True)
    return f"![{picture.alt}](img/{name}.png)\n\n{picture.caption}"


def by_task(summary: Summary) -> list[str]:
    return [f"tasks-{dataset}-last" for dataset in summary.datasets]


def spent(summary: Summary) -> float:
    """Return the hours of training on one thread."""
    return sum(record.seconds for record in summary.records) / 3600


def main() -> int:
    grids = {name: load_summary(RESULTS / name) for name in ("comparison", "ablation", "sensitivity", "weights")}
    comparison, ablation = grids["comparison"].ranked(), grids["ablation"]
    parts = {
        "bench-comparison": [
            chosen(comparison, ["overview-last", "rules"]),
            folded(comparison, "Ranks, tests, classes", ["ranks-last", "against-baseline-last", "presence"]),
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
                f"| {name} | {summary.n_done} of {summary.n_trainings} | {spent(summary):.1f} |"
                for name, summary in grids.items()
            )
        ],
    }
    for marker, texts in parts.items():
        between(PAGE, marker, "\n\n".join(text for text in texts if text))
    return 0


def choice(summary: Summary, rule: str = "neighbours") -> str:
    """Return the result of choosing one row for each task and seed by a label-free score of its last iterate."""
    in_batches = {cell.row.name for cell in summary.grid.cells() if cell.config.engine == "minibatch"}
    variants = [v for v in summary.variants if v.row in in_batches]  # scores of one engine are comparable
    choices: list[tuple[float, float, float, str]] = []
    for task in summary.tasks:
        for seed in summary.seeds:
            runs = [run for v in variants if (run := summary.record(v, task, seed)) and rule in run.scores]
            if len(runs) == len(variants):
                best = max(runs, key=lambda run: run.scores[rule])
                base = next(run.accuracy["last"] for run in runs if run.row == summary.grid.baseline)
                choices.append((best.accuracy["last"], max(run.accuracy["last"] for run in runs), base, best.row))
    if not choices:
        return ""
    chosen, top, base = (100 * np.array([line[k] for line in choices], float) for k in range(3))
    names = [line[3] for line in choices]
    by_count = sorted(dict.fromkeys(names), key=names.count, reverse=True)
    often = ", ".join(f"{name} {names.count(name)}" for name in by_count)
    return (
        f"One row for each task and seed, chosen among the last iterates of the {len(variants)} mini-batch rows by "
        f"`{rule}`, without target labels: {chosen.mean():.1f} on average over {len(choices)} tasks and seeds, "
        f"{(top - chosen).mean():.1f} below the best by target labels (oracle; worst {(top - chosen).max():.1f}), "
        f"below {summary.grid.baseline} in {int((chosen < base - 1e-9).sum())}. Chosen: {often}."
    )


def weights(summary: Summary) -> list[str]:
    """Return the histograms of every row, and the shares of outliers next to the paper's."""
    task = next(iter(summary.tasks))
    rows = [
        (v.label, summary.score(v, task, "outlier_weight"), summary.score(v, task, "outlier_samples"))
        for v in summary.variants
    ]
    table = "| row | weight on outlier classes, % | their share of the samples, % |\n|---|---|---|\n"
    table += "\n".join(f"| {name} | {weight.text} | {samples.mean:.2f} |" for name, weight, samples in rows)
    table += "\n| the paper, ResNet-50 trained | 6.04 | 58.41 |"
    pictures = [
        drawn(draw_weights(summary, variant, task, number), f"bench-weights-{number}")
        for number, variant in enumerate(summary.variants)
    ]
    return [table, *pictures]


if __name__ == "__main__":
    raise SystemExit(main())
