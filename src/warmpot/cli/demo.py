"""``warmpot demo``: the built-in task, without and with adaptation."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from warmpot._files import atomic_write, is_unused, read_json, write_text
from warmpot._run_files import DEMO, PAGE
from warmpot.cli import _flags
from warmpot.cli._shared import heavy_imports, messages, present_classes, quoted, show, show_written, table_grid
from warmpot.cli.report import write_report
from warmpot.errors import InputError, WarmpotError

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.train import Fitted

__all__ = ["demo"]

BASELINE = "source-only"
TITLE = "printed digits 0-9 -> handwritten digits 0-4"
OUT = Annotated[Path, Option("--out", "-o", help="Folder to write; an earlier demo in it is replaced.")]
PRESET = Annotated[str, Option(metavar="NAME", help="Preset to compare with source-only; see `warmpot methods --all`.")]


class _Result(NamedTuple):
    preset: str
    fitted: Fitted
    accuracy: float
    seconds: float


def demo(
    out: OUT = Path("demo"),
    seed: Annotated[int, Option(help="Seed of the data and of the training.")] = 0,
    preset: PRESET = "full",
    quiet: _flags.QUIET = False,
) -> None:
    """Adapt from printed to handwritten digits; no download.

    The source is printed digits 0-9. The target is handwritten digits 0-4: half of the classes are absent, and the
    method does not know which. Target labels are used only for the accuracies that are printed.
    """
    if not is_unused(out) and not (out / DEMO).is_file():
        got, allowed = "a folder or file that is not a demo", "a new folder or an earlier demo"
        raise InputError(f"--out {out}", got=got, allowed=allowed, remedy="Name another folder with --out.")
    with messages(not quiet) as note:
        note("drawing the digits")

        with heavy_imports():
            from warmpot.data import digits_task, make_task
            from warmpot.train import fit, load_config

        configs = {name: load_config(name, changes={"seed": seed}) for name in (BASELINE, preset)}
        source, target = digits_task(seed=seed)
        task, truth = make_task(source, target)
        assert truth is not None
        facts = _prepare(out, list(configs), {"source.npz": source, "target.npz": target})
        results = []
        for name, config in configs.items():
            start = time.perf_counter()
            fitted = fit(task, config, out=out / name, progress_bar=False if quiet else None, facts=facts)
            results.append(_Result(name, fitted, truth.accuracy(fitted.outputs), time.perf_counter() - start))
        _mark(out, {result.preset: result.accuracy for result in results})
        write_report(out, task, truth, not quiet)
    if not quiet:
        _show_results(results, out)


def _prepare(out: Path, runs: list[str], tables: dict[str, Table]) -> dict[str, Any]:
    """Make the folder, delete the runs of an earlier demo (and nothing else), write the data; return its facts."""
    import numpy as np

    from warmpot.train import preset_names

    try:
        earlier = read_json(out / DEMO)["accuracy"]
    except (ValueError, KeyError, TypeError):
        earlier = ()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in preset_names():  # only names of presets, so that nothing else can be deleted
            if name in earlier and (out / name).is_dir():
                shutil.rmtree(out / name)
    except OSError as error:
        got, remedy = error.strerror or error, "Name another folder with --out."
        raise WarmpotError(f"--out {out}", got=got, allowed="a folder you may write to", remedy=remedy) from error
    _mark(out, dict.fromkeys(runs))
    for name, table in tables.items():
        with atomic_write(out / name) as draft, open(draft, "xb") as stream:
            np.savez(stream, X=table.x[:], y=np.asarray(table.y), classes=np.array(table.classes))
    paths = {Path(name).stem: str((out / name).resolve()) for name in tables}
    return {**paths, "label": None, "regression": False, "title": TITLE, "picture": [8, 8]}


def _mark(out: Path, accuracy: dict[str, Any]) -> None:
    write_text(out / DEMO, json.dumps({"accuracy": accuracy}, indent=1))


def _show_results(results: list[_Result], out: Path) -> None:
    """Print the accuracies, and what to do next."""
    baseline, last = results[0], results[-1]
    rows = []
    for result in results:
        gain = "" if result is baseline else f"{100 * (result.accuracy - baseline.accuracy):+.1f}"
        numbers = f"{result.accuracy:.1%}", gain, f"{result.seconds:.1f} s"
        rows.append([result.preset, result.fitted.config.method, *numbers, str(out / result.preset)])
    show(TITLE, style="bold")
    columns = ("preset", "method", "accuracy", "gain", "time", "run")
    show(table_grid(columns, rows, left=("preset", "method", "run")))
    show("(accuracy on the target; its labels are used for evaluation only)", "")
    show(f"Classes estimated to be present by {last.preset}: {present_classes(last.fitted)}", "")
    show_written(out)
    if (out / PAGE).exists():
        show(f"Report: {out / PAGE}")
    show(f"Train on the same files: warmpot fit {quoted(out / 'source.npz')} {quoted(out / 'target.npz')}")
    show(f"Bound the target loss of the last run: warmpot bound {quoted(out / last.preset)}")
