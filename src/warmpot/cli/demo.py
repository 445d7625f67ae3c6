"""``warmpot demo``: the built-in task, without and with adaptation."""

from __future__ import annotations

import json
import shlex
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from warmpot._files import atomic_write
from warmpot.cli._shared import class_summary, complain, messages, show
from warmpot.cli.report import write_report
from warmpot.errors import InputError, WarmpotError

if TYPE_CHECKING:
    from warmpot.data import Table
    from warmpot.train import Fitted

__all__ = ["demo"]

MARK = "demo.json"
"""Is written first and says that the folder is a demo's, which the next demo may replace."""
BASELINE = "source-only"
TITLE = "printed digits 0-9 -> handwritten digits 0-4"


class _Result(NamedTuple):
    """One run of the demo."""

    name: str
    folder: Path
    fitted: Fitted
    accuracy: float
    seconds: float


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder to write; an earlier demo there is replaced.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the data and of the training.")] = 0,
    preset: Annotated[str, typer.Option(help="What is set beside source-only; see `warmpot methods`.")] = "full",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Adapt from printed to handwritten digits; no download.

    The source is printed digits 0-9. The target, handwritten digits 0-4, lacks half of these classes, and nobody tells
    the method which. Labels of the target are used for the accuracies that are printed, and for nothing else.
    """
    _check_out(out)
    if not quiet:
        complain("drawing the digits", "dim")
    with messages(not quiet):
        from warmpot.data import digits_task, make_task
        from warmpot.train import fit, load_config

        configs = {name: load_config(name, changes={"seed": seed}) for name in (BASELINE, preset)}
        source, target = digits_task(seed=seed)
        task, truth = make_task(source, target)
        if truth is None:
            raise AssertionError("the built-in target is labelled")
        facts = _prepare(out, list(configs), {"source.npz": source, "target.npz": target})
        results = []
        for name, config in configs.items():
            start = time.perf_counter()
            bar = False if quiet else None
            fitted = fit(task, config, out=out / name, progress_bar=bar, facts=facts)
            seconds = time.perf_counter() - start
            accuracy = float((fitted.outputs.argmax(axis=1) == truth.yt).mean())
            results.append(_Result(name, out / name, fitted, accuracy, seconds))
        _mark(out, {result.name: result.accuracy for result in results})
        write_report(out, task, truth, not quiet)
    if not quiet:
        _show(results, out)


def _check_out(out: Path) -> None:
    """Refuse a folder that is in use and not a demo's."""
    if not out.exists() or (out / MARK).is_file() or (out.is_dir() and not any(out.iterdir())):
        return
    remedy = "Name another folder with --out."
    got, allowed = "something that is no demo", "a new folder or an earlier demo"
    raise InputError(f"--out {out}", got=got, allowed=allowed, remedy=remedy)


def _prepare(out: Path, runs: list[str], tables: dict[str, Table]) -> dict[str, Any]:
    """Make the folder, drop the runs of an earlier demo (and nothing else), write the data; return where it is."""
    import numpy as np

    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in _earlier(out):
            if (out / name).is_dir():
                shutil.rmtree(out / name)
    except OSError as error:
        got, remedy = error.strerror or error, "Name another folder with --out."
        raise WarmpotError(f"--out {out}", got=got, allowed="a folder to write", remedy=remedy) from error
    _mark(out, dict.fromkeys(runs))
    for name, table in tables.items():
        with atomic_write(out / name) as draft, open(draft, "xb") as stream:
            np.savez(stream, X=table.x[:], y=np.asarray(table.y), classes=np.array(table.classes))
    paths = {Path(name).stem: str((out / name).resolve()) for name in tables}
    return {**paths, "label": None, "regression": False, "title": TITLE, "picture": [8, 8]}


def _earlier(out: Path) -> list[str]:
    """Name the runs that an earlier demo wrote; only names that a demo can give."""
    from warmpot.train import preset_names

    try:
        found = json.loads((out / MARK).read_text(encoding="utf-8"))["accuracy"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in preset_names() if name in found]


def _mark(out: Path, accuracy: dict[str, Any]) -> None:
    with atomic_write(out / MARK) as draft:
        draft.write_text(json.dumps({"accuracy": accuracy}, indent=1), encoding="utf-8")


def _show(results: list[_Result], out: Path) -> None:
    """Print the accuracies side by side, and what to do next."""
    from rich.table import Table
    from rich.text import Text

    show(TITLE, style="bold")
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    grid.add_column("preset")
    grid.add_column("method")
    for heading in ("accuracy", "gain", "time"):
        grid.add_column(heading, justify="right")
    grid.add_column("run")
    first = results[0].accuracy
    for result in results:
        gain = "" if result is results[0] else f"{100 * (result.accuracy - first):+.1f}"
        grid.add_row(
            Text(result.name), Text(result.fitted.config.method), f"{result.accuracy:.1%}", gain,
            f"{result.seconds:.1f} s", Text(str(result.folder)),
        )  # fmt: skip
    show(grid, "(accuracy on the target; its labels are used for evaluation only)", "")
    last = results[-1]
    shares = last.fitted.predictor.class_shares(last.fitted.outputs)
    show(f"{last.name} believes present: {class_summary(shares)}", "")
    show(f"Wrote {out}: {', '.join(sorted(entry.name for entry in out.iterdir()))}")
    show(f"Look at it: {out / 'report.html'}")
    files = f"{shlex.quote(str(out / 'source.npz'))} {shlex.quote(str(out / 'target.npz'))}"
    show(f"The same by hand: warmpot fit {files}")
    show(f"What can be proven of it: warmpot bound {shlex.quote(str(last.folder))}")
