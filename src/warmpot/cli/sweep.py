"""``warmpot sweep``: choose the settings without target labels."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot.cli._data_files import DataFiles, nested_changes
from warmpot.cli._grid_flags import AT_A_TIME, GPUS, RAY_ADDRESS
from warmpot.cli._shared import LABEL_HELP, class_summary, complain, facts_grid, messages, one_line, score, show
from warmpot.cli.fit import sizes
from warmpot.cli.report import NO_REPORT_HELP, write_report
from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from warmpot.select import Swept
    from warmpot.select.space import Space

__all__ = ["sweep"]

MOST_TRIALS = 15
"""Candidates shown; all are in trials.jsonl."""


def sweep(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Labelled file, as for `warmpot fit`; images: `extract` first.")
    ],
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="File of the target; labels in it do not choose.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder; a sweep in it is continued.")],
    space: Annotated[
        Path | None,
        typer.Option(help="YAML file of what to try. [default: full, bound, frozen, beside source-only]"),
    ] = None,
    validator: Annotated[str | None, typer.Option(help="Who chooses; `warmpot methods` lists them.")] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Candidates to try, of ranges or fewer than all; needs Optuna. [default: all of the lists]"),
    ] = None,
    workers: AT_A_TIME = None,
    ray_address: RAY_ADDRESS = None,
    gpus: GPUS = 0.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of all candidates.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all runs and of the choice of candidates.")] = 0,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP)] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help=NO_REPORT_HELP)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Try settings on SOURCE and TARGET, and keep the best without target labels.

    Writes trials.jsonl (a line per candidate), best.yaml (the settings that won) and best/, a run as `warmpot fit`
    writes it. Candidates whose predictions collapse to few classes cannot win. The same command goes on after a stop.
    With a cluster of Ray, this machine alone reads SOURCE and TARGET and writes the folder; but images and shards must
    have the same path on every node.
    """
    from warmpot.select import DEFAULT_SPACE, DEFAULT_VALIDATOR
    from warmpot.select import sweep as run
    from warmpot.select.space import Space

    blocks = DEFAULT_SPACE if space is None else _read_space(space)
    places, before = Space(blocks), _written(out)
    changes, data, start = nested_changes(settings or [], {}), DataFiles(source, target, label, False), time.time()
    with messages(not quiet):
        try:
            task, truth = data.read()
        except InputError as error:
            raise InputError(one_line(error)) from error
        if not quiet:
            complain(f"{sizes(task)} -> {out}", "dim")
        try:
            found = run(
                task, out=out, space=blocks, validator=validator or DEFAULT_VALIDATOR, changes=changes, trials=trials,
                workers=workers, ray_address=ray_address, gpus=gpus, seed=seed, progress_bar=False if quiet else None,
                facts=data.facts(),
            )  # fmt: skip
        except KeyboardInterrupt:
            complain(f"interrupted; the same command goes on in {shlex.quote(str(out))}", "yellow")
            raise typer.Exit(130) from None
        if not no_report:
            write_report(out, task, truth, not quiet)
    if quiet:
        return
    show(_table(found, places))
    rows: list[tuple[str, ...]] = [
        ("chosen", places.name(found.best.point), f"by {found.validator}, without target labels"),
        ("time", f"{time.time() - start:.1f} s", "nothing was left to train" if before == _written(out) else ""),
    ]
    if truth is not None and truth.known.any():
        rows.append((*score(found.fitted.outputs, truth), "(target labels, evaluation only)"))
    show(facts_grid(rows))
    show(f"Believed present: {class_summary(found.fitted.predictor.class_shares(found.fitted.outputs))}")
    show(f"Wrote {out}: {', '.join(sorted(entry.name for entry in out.iterdir()))}")
    show(f"Use it with: warmpot predict {shlex.quote(str(out / 'best'))} DATA --out predictions.csv")


def _read_space(file: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        got = " ".join(str(getattr(error, "strerror", None) or error).split())
        remedy = "Write a list of mappings such as `- {preset: full, params.alpha: [0.5, 0.8]}`."
        raise InputError(f"--space {file}", got=got, allowed="a YAML file", remedy=remedy) from error


def _written(out: Path) -> tuple[bytes, bytes] | None:
    """Return the candidates and the winner of a finished sweep."""
    files = out / "trials.jsonl", out / "best.yaml", out / "best" / "model.json"
    return (files[0].read_bytes(), files[1].read_bytes()) if all(file.is_file() for file in files) else None


def _table(found: Swept, places: Space) -> Grid:
    """Candidates, the best first."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, pad_edge=False)
    for name in ("candidate", found.validator, "classes", "iterate", "seconds", ""):
        grid.add_column(name, justify="left" if name in ("candidate", "") else "right")
    ranked = sorted(
        found.trials,
        key=lambda t: (t is not found.best, t.problem is not None, -(t.score if t.score is not None else -1e300)),
    )
    for trial in ranked[:MOST_TRIALS]:
        mark = "chosen" if trial is found.best else one_line(trial.problem or "")
        cells = [f"{value:.4g}" if value is not None else "" for value in (trial.score, trial.classes)]
        candidate = Text(places.name(trial.point))  # a list in it is no markup
        grid.add_row(candidate, *cells, str(trial.step), f"{trial.seconds:.1f}", Text(mark))
    if len(ranked) > MOST_TRIALS:
        grid.add_row(f"and {len(ranked) - MOST_TRIALS} more")
    return grid
