"""``warmpot predict`` on millions of rows, compared with plain torch: the table of docs/how-to/serving.md.

    python benchmarks/predict.py                                  # 5,000,000 rows x 64 features: needs 5 GB of disk
    python benchmarks/predict.py --rows 200000 --formats csv      # a part of it; written only where --out says

Both read the same file and write a csv file with one line per row. Plain torch is what one would write first: numpy or
pandas reads the whole file, then one product with a softmax, and `DataFrame.to_csv` of row, class and confidence.
warmpot also checks every number, and writes whether to review a row and its score for unknown samples. Every
measurement is a process of its own, imports included; of several repeats, the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from _jobs import ROOT
from _rows import peak_bytes
from numpy.typing import NDArray

RESULTS = ROOT / "benchmarks" / "results" / "predict.json"
ROWS, WIDTH, CLASSES = 5_000_000, 64, 10
CHUNK = 1_000_000
"""Rows drawn at a time, and of a row group: about what pandas writes."""
FORMATS = ("npy", "csv", "parquet")


def draw(rows: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((CLASSES, WIDTH), np.float32)
    labels = rng.integers(CLASSES, size=rows)
    return centres[labels] + rng.standard_normal((rows, WIDTH), np.float32), labels


# --- one per process -------------------------------------------------------------------------------------------
def make(folder: Path, path: Path, rows: int) -> None:
    """Train a model, unless there is one, and write a file of samples."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    import warmpot

    if not (folder / "run").exists():
        warmpot.fit(draw(2000, 1), draw(2000, 2)[0], out=folder / "run", progress_bar=False)
    chunks = (draw(min(CHUNK, rows - start), 3 + start)[0] for start in range(0, rows, CHUNK))
    if path.suffix == ".npy":
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, WIDTH))
        for k, x in enumerate(chunks):
            out[k * CHUNK : (k + 1) * CHUNK] = x
        return
    schema = pa.schema([(f"f{j}", pa.float32()) for j in range(WIDTH)])
    writer = pyarrow.csv.CSVWriter if path.suffix == ".csv" else pyarrow.parquet.ParquetWriter
    with writer(path, schema) as stream:
        for x in chunks:
            stream.write_table(pa.table(list(np.ascontiguousarray(x.T)), schema=schema))


def warmpot_predict(folder: Path, path: Path, _: int) -> None:
    from warmpot.cli import app

    app(
        ["predict", str(folder / "run"), str(path), "--out", str(folder / "ours.csv"), "--quiet"], standalone_mode=False
    )


def plain_torch(folder: Path, path: Path, _: int) -> None:
    import pandas as pd
    import torch

    if path.suffix == ".npy":
        x = np.load(path)
    else:
        x = (pd.read_csv if path.suffix == ".csv" else pd.read_parquet)(path).to_numpy(np.float32)
    weight = torch.from_numpy(np.random.default_rng(0).standard_normal((WIDTH, CLASSES), np.float32))
    with torch.inference_mode():
        confidence, best = torch.softmax(torch.from_numpy(x) @ weight, dim=1).max(dim=1)
    names = np.array([f"class {k}" for k in range(CLASSES)])
    frame = pd.DataFrame({"prediction": names[best.numpy()], "confidence": confidence.numpy()})
    frame.to_csv(folder / "torch.csv", index_label="row")


JOBS = {"make": make, "warmpot": warmpot_predict, "torch": plain_torch}


# --- the table -------------------------------------------------------------------------------------------------
def measured(job: str, folder: Path, path: Path, rows: int) -> dict[str, Any]:
    words = [sys.executable, __file__, "--job", job, str(folder), str(path), str(rows)]
    return dict(json.loads(subprocess.check_output(words, text=True).splitlines()[-1]))


def measure(name: str, rows: int, repeats: int, parent: Path | None) -> dict[str, Any]:
    """Return what both took for a file of this format, which is removed afterwards."""
    best: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        path = Path(folder, f"x.{name}")
        measured("make", Path(folder), path, rows)
        for job in ("warmpot", "torch") * repeats:  # alternating: other load on the machine is the same for both
            found = measured(job, Path(folder), path, rows)
            best[job] = min(best.get(job, found), found, key=lambda one: one["seconds"])
        lines = [np.fromfile(Path(folder, file), np.uint8) for file in ("ours.csv", "torch.csv")]
        assert [(text == ord("\n")).sum() for text in lines] == [rows + 1, rows + 1]
        return {"format": name, "rows": rows, "bytes": path.stat().st_size, **best}


def line(row: dict[str, Any]) -> str:
    ours, peer = row["warmpot"], row["torch"]
    cells = [f"`.{row['format']}`, {row['bytes'] / 2**30:.1f} GiB"]
    cells += [f"{row['rows'] / one['seconds']:,.0f}" for one in (ours, peer)]
    cells += [f"{peer['seconds'] / ours['seconds']:.2f} x"]
    cells += [f"{one['cpu']:.0f}" for one in (ours, peer)] + [f"{one['peak'] / 2**30:.2f}" for one in (ours, peer)]
    return "| " + " | ".join(cells) + " |"


HEADER = """| file | rows / s | plain torch | ratio | CPU s | plain torch | peak GiB | plain torch |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where files are made, and removed; default: the temporary one")
    parser.add_argument("--out", type=Path, help=f"JSON file; a full run writes {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job, folder, path, rows = options.job
        start = time.perf_counter()
        JOBS[job](Path(folder), Path(path), int(rows))
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "cpu": time.process_time(), "peak": peak_bytes()}))
        return
    print(HEADER, flush=True)
    rows = []
    for name in options.formats:
        rows.append(measure(name, options.rows, options.repeats, options.folder))
        print(line(rows[-1]), flush=True)
    full = options.rows == ROWS and set(options.formats) == set(FORMATS)
    if out := options.out or (RESULTS if full else None):
        out.write_text(
            json.dumps({"machine": platform.processor() or platform.machine(), "rows": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
