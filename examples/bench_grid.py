"""A small bench on built-in data: a grid from YAML, an append-only store, tables with the spread over seeds.

python examples/bench_grid.py [FOLDER]

The same on the command line: warmpot bench grid.yaml --out FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

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
    for record in read_store(folder):
        chosen = ", ".join(f"{rule} {value:.0%}" for rule, value in record.accuracy.items())
        print(f"{record.row:<12} seed {record.seed}: {chosen}; weight on absent digits {record.outlier_weight:.0%}")
    print("Wrote", ", ".join(path.name for path in write_tables(folder)))


if __name__ == "__main__":
    main()
