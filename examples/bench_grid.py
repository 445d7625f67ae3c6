"""A small bench on built-in data: a grid from YAML, an append-only store, tables with the spread over seeds.

python examples/bench_grid.py [FOLDER]

Writes results, tables and bench_grid.png into FOLDER. On the command line: `warmpot bench grid.yaml --out FOLDER`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml
from matplotlib.figure import Figure

from warmpot.bench import Grid, read_store
from warmpot.bench.result_tables import write_tables
from warmpot.bench.runner import run_grid

GRID = """
title: Does adaptation pay on the built-in digits?
data:
  - {name: digits, built_in: 300}
rows:
  - {name: source-only, preset: source-only}
  - {name: full, preset: full, set: {full: {rounds: 2, iterations: 10}}}
seeds: 2
choose: [neighbours]
baseline: source-only
"""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "bench-demo")
    grid = Grid.load(yaml.safe_load(GRID))
    run_grid(grid, data=".", out=folder, progress_bar=False)  # what the folder has is not trained again
    records = read_store(folder)
    for record in records:
        chosen = ", ".join(f"{rule} {value:.0%}" for rule, value in record.accuracy.items())
        print(f"{record.row:<12} seed {record.seed}: {chosen}; weight on absent digits {record.outlier_weight:.0%}")
    figure = Figure(figsize=(5.5, 2.4), layout="constrained")
    ax = figure.subplots()
    for seed in range(2):
        of_seed = [record for record in records if record.seed == seed]
        ax.plot([100 * r.accuracy["last"] for r in of_seed], [r.row for r in of_seed], "o", label=f"seed {seed}")
    ax.set(xlabel="accuracy on the target, per cent", ylim=(-0.5, 1.5))
    ax.legend(frameon=False)
    figure.savefig(folder / "bench_grid.png", dpi=110)
    print("Wrote", ", ".join(path.name for path in write_tables(folder)))


if __name__ == "__main__":
    main()
