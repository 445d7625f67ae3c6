"""Fit, and write a report: a single HTML file that needs no network.

python examples/report_of_a_run.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

from warmpot.data import digits_task, make_task
from warmpot.report import report_run
from warmpot.train import fit, load_config


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "report-demo")
    task, truth = make_task(*digits_task(n_source=500, seed=1))  # target labels are separate, in `truth`
    config = load_config("full", changes={"full": {"rounds": 2}})
    fit(task, config, out=folder, progress_bar=False)
    # Leave `truth` out if there are no labels. Every figure is also written as PNG and SVG, into FOLDER/figures.
    page = report_run(folder, task, truth)
    print(f"Wrote {page}, {page.stat().st_size / 1e6:.1f} MB. Open it in a browser.")
    print("For any run: warmpot report", folder)


if __name__ == "__main__":
    main()
