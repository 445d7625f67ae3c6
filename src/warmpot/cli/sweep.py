"""``warmpot sweep``: choose the settings without target labels."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._run_files import BEST_CONFIG, BEST_RUN, MODEL_FACTS, TRIALS
from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, DataFiles, describe_task, frozen_network
from warmpot.cli._interrupt import on_interrupt
from warmpot.cli._shared import (
    complain,
    default_out,
    facts_grid,
    messages,
    one_line,
    present_classes,
    quoted,
    score,
    show,
    show_written,
    table_grid,
)
from warmpot.cli.report import open_page, write_report
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Truth
    from warmpot.select import SweepResult

__all__ = ["sweep"]

MAX_SHOWN = 15
"""Number of candidates shown; all are in trials.jsonl."""
FOLDER = "Folder; an unfinished sweep in it is continued. [default: runs/SOURCE-TARGET-sweep]"
OUT = Annotated[Path | None, Option("--out", "-o", help=FOLDER)]
SPACE = Annotated[
    Path | None,
    Option(help="YAML file with the settings to try. [default: full, bound and frozen, next to source-only]"),
]
N_TRIALS = Annotated[
    int | None,
    Option(help="Number of candidates, for ranges or for fewer than all; needs Optuna. [default: all of a list]"),
]


def sweep(
    source: Annotated[
        Path, Argument(metavar="SOURCE", help="Labelled file or folder of images, as for `warmpot fit`.")
    ],
    target: Annotated[Path, Argument(metavar="TARGET", help="Target file or images; labels do not affect the choice.")],
    out: OUT = None,
    space: SPACE = None,
    validator: Annotated[
        str | None, Option(metavar="NAME", help="Validator that chooses; see `warmpot methods`.")
    ] = None,
    trials: N_TRIALS = None,
    jobs: _flags.JOBS = None,
    ray_address: _flags.RAY_ADDRESS = None,
    gpus: _flags.GPUS = 0.0,
    settings: _flags.SETTINGS = None,
    seed: Annotated[int, Option(help="Seed of all runs and of the choice of candidates.")] = 0,
    label: _flags.LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    backbone: _flags.BACKBONE = None,
    backbone_weights: _flags.BACKBONE_WEIGHTS = None,
    root: _flags.ROOT = None,
    classes: _flags.CLASSES = None,
    corrupt: _flags.CORRUPT_FILES = "raise",
    no_report: _flags.NO_REPORT = False,
    browse: _flags.OPEN = False,
    quiet: _flags.QUIET = False,
) -> None:
    """Choose the settings of a run without target labels.

    Tries settings on SOURCE and TARGET and keeps the best. Writes trials.jsonl (one line per candidate), best.yaml (the
    settings that won) and best/, a run like those of `warmpot fit`. Candidates whose predictions collapse to few
    classes cannot win. Features of images are extracted once, and the best run predicts images. After a stop, the same
    command continues. With a Ray cluster, only this machine reads SOURCE and TARGET and writes the folder, but images
    and shards must have the same path on every node.
    """
    out = out or default_out(source, target, "sweep", continues=True)
    if not quiet:
        complain(f"reading {source} and {target}", "dim")  # before the seconds that the following imports take
    from warmpot._checks import check_count

    if jobs is not None:
        check_count("--jobs", jobs)
    from warmpot.select import DEFAULT_SPACE, DEFAULT_VALIDATOR
    from warmpot.select import sweep as run

    blocks = DEFAULT_SPACE if space is None else _read_space(space)
    before, start = _result_files(out), time.time()
    columns = ColumnFlags(label, ids, features or ())
    data = DataFiles(source, target, columns, root=root, classes=classes, corrupt=corrupt)
    changes, images = frozen_network(data, settings or [], backbone, backbone_weights)
    on_interrupt(lambda: f"the same command continues in {quoted(out)}")
    with messages(not quiet) as note:
        task, truth = data.read(images, False if quiet else None)
        note(f"{describe_task(task)} -> {out}")
        result = run(
            task, out=out, space=blocks, validator=validator or DEFAULT_VALIDATOR, changes=changes, trials=trials,
            workers=jobs, ray_address=ray_address, gpus=gpus, seed=seed, progress_bar=False if quiet else None,
            facts=data.facts(),
        )  # fmt: skip
        page = None if no_report else write_report(out, task, truth, not quiet)
    if not quiet:
        _summarise(result, out, truth, time.time() - start, nothing_new=before == _result_files(out))
        if page is not None:
            show(f"Report: {page}")
    if browse and page is not None:
        open_page(page)


def _summarise(result: SweepResult, out: Path, truth: Truth | None, seconds: float, *, nothing_new: bool) -> None:
    """Print the candidates, what was chosen and by how much."""
    from warmpot.select.study import describe_lead

    _show_candidates(result)
    rows: list[tuple[str, ...]] = [
        ("chosen", result.space.name(result.best.point), f"by {result.validator}, without target labels"),
        ("time", f"{seconds:.1f} s", "nothing was left to train" if nothing_new else ""),
        *score(result.fitted.outputs, truth),
    ]
    scores = [(result.space.name(t.point), t.eligible_score) for t in result.ranked]
    lead = describe_lead([(name, score) for name, score in scores if score is not None])
    show(facts_grid(rows), *([lead] if lead else []))
    show(f"Classes estimated to be present: {present_classes(result.fitted)}")
    show_written(out)
    show(f"Use it with: warmpot predict {quoted(out / BEST_RUN)} DATA --out predictions.csv")


def _read_space(file: Path) -> Any:
    from warmpot._yaml import read_yaml

    try:
        return read_yaml(file)
    except InputError as error:
        remedy = "Write a list of mappings such as `- {preset: full, params.alpha: [0.5, 0.8]}`."
        raise InputError(f"--space {file}", got=error.got, allowed="a YAML file", remedy=remedy) from error


def _result_files(out: Path) -> list[bytes]:
    """Return the trials and the best settings of a finished sweep, as bytes to compare."""
    files = out / TRIALS, out / BEST_CONFIG, out / BEST_RUN / MODEL_FACTS
    return [file.read_bytes() for file in files[:2]] if all(file.is_file() for file in files) else []


def _show_candidates(result: SweepResult) -> None:
    """Print the table of candidates, the best first."""
    rows = []
    for trial in result.ranked[:MAX_SHOWN]:
        numbers = ["" if value is None else f"{value:.4g}" for value in (trial.score, trial.classes)]
        remark = "chosen" if trial is result.best else one_line(trial.problem or "")
        rows.append([result.space.name(trial.point), *numbers, str(trial.step), f"{trial.seconds:.1f}", remark])
    columns = ("candidate", result.validator, "classes", "iterate", "seconds", "")
    show(table_grid(columns, rows, left=("candidate", "")))
    if len(result.trials) > MAX_SHOWN:
        show(f"and {len(result.trials) - MAX_SHOWN} more")
