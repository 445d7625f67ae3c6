"""``warmpot weights``: how much each sample of a source and of a target counts."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from warmpot._files import atomic_write
from warmpot.cli._shared import check_out_file, messages

if TYPE_CHECKING:
    from warmpot._typing import FloatArray
    from warmpot.transport import Solution

__all__ = ["weights"]

PAPER = "The default is the paper's setting for Office-Home."


class _Side(NamedTuple):
    """The weights of one domain; `share` is the weight over the largest one allowed, in [0, 1]."""

    domain: str
    weight: FloatArray
    share: FloatArray


def weights(
    source: Annotated[Path, typer.Option(help="Source features: .npz (key X), .npy, .csv, .tsv or .parquet.")],
    target: Annotated[Path, typer.Option(help="Target features; as many columns as the source.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV file to write; an old one is replaced.")],
    beta: Annotated[float, typer.Option(help=f"Share of the source believed to matter, in (0, 1]. {PAPER}")] = 0.35,
    alpha: Annotated[float, typer.Option(help=f"Share of the target to match, in (0, 1]. {PAPER}")] = 0.8,
    normalize_features: Annotated[
        bool, typer.Option("--normalize-features/--no-normalize-features", help="Scale every row to length 1 first.")
    ] = False,
    max_memory: Annotated[float, typer.Option(help="GiB for blocks of distances; features come on top.")] = 1.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Weight the samples of two domains by partial transport.

    The share ALPHA of the target is matched to the source at the least total Euclidean distance; no source row
    gives more than 1 / (BETA * source rows). What stays unmatched has weight 0.

    The CSV has a line per row of both files: domain (source or target), row (counted from 0), weight, and
    normalized: the weight relative to the most that the row can have, from 0 (left out) to 1 (fully used).
    """
    check_out_file(out, source, target)

    import numpy as np

    from warmpot._checks import check_fraction, check_matrix, check_positive
    from warmpot.data import load_features
    from warmpot.transport import solve_partial_points

    # The solver checks these too, but only after the files are read, and not under the names of the flags.
    check_fraction("--beta", beta)
    check_fraction("--alpha", alpha)
    check_positive("--max-memory", max_memory, remedy="Give it in GiB.")
    xs = load_features(source)
    xt = check_matrix(str(target), load_features(target), width=xs.shape[1])
    if normalize_features:
        xs, xt = _unit_rows(xs), _unit_rows(xt)
    start = time.perf_counter()
    with messages(not quiet):
        bar = False if quiet else None
        solution = solve_partial_points(xs, xt, beta=beta, mass=alpha, max_memory=max_memory, progress_bar=bar)
    seconds = time.perf_counter() - start
    # Rounding takes 0.999999999999997 to the 1 it stands for.
    sides = (
        _Side("source", solution.p, np.round(solution.p * (beta * len(xs)), 12).clip(0, 1)),
        _Side("target", solution.q, np.round(solution.q * len(xt), 12).clip(0, 1)),
    )
    _write(out, sides)
    if not quiet:
        _show(f"{source.name} -> {target.name}, beta {beta:g}, alpha {alpha:g}", solution, sides, seconds, out)


def _unit_rows(x: FloatArray) -> FloatArray:
    """Scale rows to Euclidean length 1; rows of zeros stay."""
    import numpy as np

    x = x / np.maximum(np.abs(x).max(axis=1, keepdims=True), np.finfo(float).tiny)  # squares cannot overflow now
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(norms > 0, norms, 1.0)


def _write(out: Path, sides: tuple[_Side, ...]) -> None:
    """Write all of the CSV, or nothing."""
    with atomic_write(out) as draft, open(draft, "x", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["domain", "row", "weight", "normalized"])
        for side in sides:
            rows = enumerate(zip(side.weight.tolist(), side.share.tolist(), strict=True))
            writer.writerows((side.domain, row, weight, share) for row, (weight, share) in rows)


def _show(title: str, solution: Solution[Any], sides: tuple[_Side, ...], seconds: float, out: Path) -> None:
    """Print the certificate of the plan and what became of the rows."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    console.print(title, style="bold", markup=False, soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_row("value", f"{solution.value:.6g}", "[dim]total of distance times mass[/dim]")
    facts.add_row("gap", f"{solution.gap:.2g}", "[dim]no plan is better by more than this[/dim]")
    facts.add_row("slope", f"{solution.slope:.6g}", "[dim]value per unit of further alpha[/dim]")
    colour = "green" if solution.status.ok else "red"
    facts.add_row("status", f"[{colour}]{solution.status.name}[/{colour}]", f"[dim]{solution.n_iter} rounds[/dim]")
    facts.add_row("time", f"{seconds:.1f} s", "[dim]without reading the files[/dim]")
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    rows.add_column("")
    for heading in ("rows", "zero weight", "in part", "in full"):
        rows.add_column(heading, justify="right")
    for side in sides:
        zero, full = (side.share == 0).mean(), (side.share == 1).mean()
        rows.add_row(side.domain, f"{len(side.share)}", f"{zero:.1%}", f"{1 - zero - full:.1%}", f"{full:.1%}")
    console.print(facts)
    console.print()
    console.print(rows)
    console.print()
    console.print(f"Wrote {out}", markup=False, soft_wrap=True)
