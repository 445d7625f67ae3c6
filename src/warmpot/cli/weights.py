"""``warmpot weights``: how much each source and target sample is used by a partial transport plan."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._files import make_folder, write_csv
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, DataFiles, frozen_network
from warmpot.cli._shared import (
    check_out_file,
    complain,
    default_out,
    facts_grid,
    given_once,
    messages,
    show,
    table_grid,
)
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot._typing import FloatArray
    from warmpot.data import Table
    from warmpot.train.images import ImageSettings
    from warmpot.transport import Solution

__all__ = ["weights"]

PAPER = "The default is the paper's setting for Office-Home."
SOURCE_FORMS = "Source features (.npz with key X, .npy, .csv, .tsv or .parquet), or a folder of images."
SOURCE = Annotated[Path | None, Argument(metavar="SOURCE", help=SOURCE_FORMS)]
TARGET = Annotated[Path | None, Argument(metavar="TARGET", help="Target file with the same features, or images.")]
FILE = "CSV file; an existing file is replaced. [default: runs/SOURCE-TARGET-weights.csv]"
OUT = Annotated[Path | None, Option("--out", "-o", help=FILE)]
BETA = Annotated[float, Option(help=f"Share of the source that is relevant, in (0, 1]. {PAPER}")]
FLAG = "--normalize-features/--no-normalize-features"


def weights(
    source: SOURCE = None,
    target: TARGET = None,
    source_: _flags.SOURCE_OPTION = None,
    target_: _flags.TARGET_OPTION = None,
    out: OUT = None,
    beta: BETA = 0.35,
    alpha: Annotated[float, Option(help=f"Share of the target to match, in (0, 1]. {PAPER}")] = 0.8,
    normalize_features: Annotated[bool, Option(FLAG, help="Scale every row to length 1 first.")] = False,
    tol: Annotated[
        float, Option(help="Error at which to stop, relative to the value; 0.001 is faster on large data.")
    ] = 1e-9,
    max_memory: Annotated[float, Option(help="GiB for blocks of distances, in addition to the features.")] = 1.0,
    label: _flags.LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    backbone: _flags.BACKBONE = None,
    backbone_weights: _flags.BACKBONE_WEIGHTS = None,
    root: _flags.ROOT = None,
    classes: _flags.CLASSES = None,
    corrupt: _flags.CORRUPT_FILES = "raise",
    quiet: _flags.QUIET = False,
) -> None:
    """Weight the samples of two domains by partial transport.

    The share ALPHA of the target is matched to the source at the least total Euclidean distance; no source row
    gives more than 1 / (BETA * source rows). Unmatched rows have weight 0.

    The CSV file has one line per row of both files: domain (source or target), row (counted from 0), name (the id, with
    --id), weight, and normalized: the weight divided by the largest weight that the row can have, from 0 (left out) to
    1 (fully used). Labels in the files are not used.
    """
    source, target = given_once("SOURCE", source, source_), given_once("TARGET", target, target_)
    if source is None or target is None:
        got, remedy = "no target" if source else "no data", "Run: warmpot weights SOURCE TARGET"
        raise InputError("SOURCE TARGET", got=got, allowed="two files", remedy=remedy)
    named = out is not None
    out = out or default_out(source, target, "weights", suffix=".csv")
    check_out_file(out, source, target, classes, new_folder=not named)
    if not quiet:
        complain(f"reading {source} and {target}", "dim")  # before the seconds that the following imports take
    import numpy as np

    from warmpot._checks import check_fraction, check_matrix, check_positive
    from warmpot.transport import solve_partial_points

    # The solver checks these too, but only after the files are read, and without the names of the flags.
    check_fraction("--beta", beta)
    check_fraction("--alpha", alpha)
    check_positive("--tol", tol, maximum=0.1)
    check_positive("--max-memory", max_memory, remedy="Give it in GiB.")
    columns = ColumnFlags(label, ids, features or ())
    data = DataFiles(source, target, columns, root=root, classes=classes, corrupt=corrupt)
    images = frozen_network(data, [], backbone, backbone_weights)[1]
    with messages(not quiet):
        tables = _read(data, images, False if quiet else None)
    xs = check_matrix(str(source), tables[0].x[:])
    xt = check_matrix(str(target), tables[1].x[:], width=xs.shape[1])
    if normalize_features:
        xs, xt = _unit_rows(xs), _unit_rows(xt)
    start = time.perf_counter()
    with messages(not quiet):
        bar = False if quiet else None
        solution = solve_partial_points(xs, xt, beta=beta, mass=alpha, tol=tol, max_memory=max_memory, progress_bar=bar)
    seconds = time.perf_counter() - start
    # Rounding turns 0.999999999999997 into 1, so that fully used rows can be counted.
    used = {
        "source": np.round(solution.p * (beta * len(xs)), 12).clip(0, 1),
        "target": np.round(solution.q * len(xt), 12).clip(0, 1),
    }
    rows: list[tuple[Any, ...]] = []
    has_names = any(table.names for table in tables)
    for (domain, share), table, weight in zip(used.items(), tables, (solution.p, solution.q), strict=True):
        names = [table.names or [""] * table.n] if has_names else []
        rows += zip([domain] * table.n, range(table.n), *names, weight.tolist(), share.tolist(), strict=True)
    make_folder(out.parent)
    write_csv(out, ["domain", "row", *["name"] * has_names, "weight", "normalized"], rows)
    if not quiet:
        show(f"{source.name} -> {target.name}, beta {beta:g}, alpha {alpha:g}", style="bold")
        _summarise(solution, used, seconds)
        show("", f"Wrote {out}")


def _read(data: DataFiles, images: ImageSettings | None, progress_bar: bool | None) -> list[Table]:
    """Read both sides without labels; images as the features of a network."""
    from warmpot.data import read_samples
    from warmpot.data.task import match_columns, warn_of_repeated_names

    if images is not None:
        from warmpot.train.images import prepare

        options: dict[str, Any] = {"corrupt": data.corrupt, "progress_bar": progress_bar}
        return list(prepare(data.side("source"), data.side("target"), settings=images, **options))
    flags: dict[str, Any] = {**data.flags.asdict(), "labelled": False}
    source = read_samples(data.source, needs_label=True, **flags)
    target = read_samples(data.target, needs_ids=True, **flags)
    warn_of_repeated_names(target)
    return [source, match_columns(target, source.columns, f"the columns of {data.source}")]


def _unit_rows(x: FloatArray) -> FloatArray:
    """Scale rows to Euclidean length 1; rows of zeros are left unchanged."""
    import numpy as np

    x = x / np.maximum(np.abs(x).max(axis=1, keepdims=True), np.finfo(float).tiny)  # squares cannot overflow now
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)


def _summarise(solution: Solution[Any], used: dict[str, FloatArray], seconds: float) -> None:
    """Print the certificate of the plan and how many rows it uses."""
    facts = [
        ("value", f"{solution.value:.6g}", "sum of distance times mass"),
        ("gap", f"{solution.gap:.2g}", "no plan is better by more than this"),
        ("slope", f"{solution.slope:.6g}", "increase of the value per unit of alpha"),
        ("status", solution.status.name, f"{solution.n_iter} rounds"),
        ("time", f"{seconds:.1f} s", "without reading the files"),
    ]
    rows = []
    for domain, share in used.items():
        zero, full = (share == 0).mean(), (share == 1).mean()
        rows.append([domain, f"{len(share)}", f"{zero:.1%}", f"{1 - zero - full:.1%}", f"{full:.1%}"])
    columns = ("domain", "rows", "zero weight", "partly used", "fully used")
    show(facts_grid(facts), "", table_grid(columns, rows, left=("domain",)))
