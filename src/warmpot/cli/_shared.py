"""What several commands need: messages, checks of ``--out``, and the parts of a summary."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._run_files import is_run_file
from warmpot.errors import InputError, WarmpotError, WarmpotWarning, translate

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table as Grid

    from warmpot.data import Truth
    from warmpot.train import Fitted

__all__ = [
    "SETTING_OF_FLAG", "check_out_file", "class_summary", "complain", "default_out", "facts_grid", "given_once",
    "heavy_imports", "messages", "one_line", "present_classes", "quoted", "score", "show", "show_written", "table_grid",
]  # fmt: skip

RUNS = Path("runs")  # what commands write by default, unless it belongs to a run
MAX_CLASSES = 8  # number of classes named in a summary
LONGEST = 2000  # characters of an error: names in it may be of any length
HARDWARE = ("devices", "num_nodes", "accelerator", "strategy", "precision")
SETTING_OF_FLAG = {
    "method": "method", "weights": "weights", "alpha": "params.alpha", "beta": "params.beta", "seed": "seed",
    "choose": "choose", "holdout": "holdout", **{name: f"minibatch.hardware.{name}" for name in HARDWARE},
    "backbone": "images.backbone.name", "backbone_weights": "images.backbone.weights",
    "train_from": "images.backbone.train_from", "cache": "images.cache", "workers": "images.workers",
}  # fmt: skip
FLAGS = {
    **{f"config.{setting}": f"--{flag.replace('_', '-')}" for flag, setting in SETTING_OF_FLAG.items()},
    "preset": "--preset", "method": "--method",
    "task='regression'": "--regression", "task='classification'": "no --regression", "label=": "--label",
    "ids=": "--id", "features=": "--feature",
    "root=": "--root", "weights=PATH": "--backbone-weights FILE",
    "images.backbone.train_from=BLOCK": "--train-from BLOCK", "images.cache=true": "--cache",
    "fine_tune=True": "--fine-tune", "fine_tune=False": "--frozen", "source, target": "SOURCE TARGET",
}  # fmt: skip
"""Flags for the settings that errors are about, and for the arguments that messages write between backticks."""


def one_line(message: object) -> str:
    """Write an error, a warning or a text as one line, with flags in place of arguments of the library."""
    if isinstance(message, (WarmpotError, WarmpotWarning)):
        text = message.render(FLAGS)
    else:
        text = translate(str(message), FLAGS)
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def quoted(path: Path) -> str:
    """Quote a path for a shell."""
    return shlex.quote(str(path))


def complain(text: str, style: str = "") -> None:
    """Print one line on standard error."""
    from rich.console import Console
    from rich.text import Text

    # Text, because brackets in a message are not markup. Soft wrap keeps it one line for grep.
    Console(stderr=True, highlight=False).print(Text(text, style=style), soft_wrap=True)


def show(*parts: Any, style: str | None = None) -> None:
    """Print texts and tables on standard output."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for part in parts:
        # Texts are not wrapped at the width of the terminal, so that paths in them can be copied.
        console.print(part, style=style, markup=False, soft_wrap=isinstance(part, (str, Text)))


def show_written(folder: Path) -> None:
    """Print what a folder holds now."""
    show(f"Wrote {folder}: {', '.join(sorted(entry.name for entry in folder.iterdir()))}")


def facts_grid(rows: Iterable[Sequence[str]]) -> Grid:
    """Lay out a summary: per row a name, a value, and optionally a dimmed explanation."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2))
    for name, value, *note in rows:
        grid.add_row(Text(name), Text(value), Text(note[0] if note else "", style="dim"))
    return grid


def table_grid(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[str]) -> Grid:
    """Lay out a table. Columns are right-aligned, for numbers, except those named in `left`."""
    from warmpot._tables import ResultTable, TableColumn, to_rich

    return to_rich(ResultTable([TableColumn(name, numeric=name not in left) for name in columns], rows))


class _StderrLines(logging.Handler):
    """Prints log records as plain lines. Looks up sys.stderr each time, because a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{prefix}{one_line(record.getMessage())}", file=sys.stderr)


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Import torch and what needs it in this block, with the garbage collector off: it takes a fifth of the time.

    Later collections do not look at what was imported either: it stays. The one at the end looks at nothing.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)


@contextmanager
def messages(verbose: bool) -> Iterator[Callable[..., None]]:
    """Show the log lines and warnings of the library as plain lines, if `verbose`; otherwise drop them.

    Yields a function of a text, and optionally a style, that prints a status line under the same condition.
    """
    logger = logging.getLogger("warmpot")
    # Without any handler, logging would print warnings itself.
    handler: logging.Handler = _StderrLines() if verbose else logging.NullHandler()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    show_others = warnings.showwarning

    def showwarning(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if issubclass(category, WarmpotWarning):
            print(f"warning: {one_line(message)}", file=sys.stderr)
        else:
            show_others(message, category, *args, **kwargs)

    def note(text: str, style: str = "dim") -> None:
        if verbose:
            complain(text, style)

    try:
        with warnings.catch_warnings():
            warnings.showwarning = showwarning
            warnings.simplefilter("always" if verbose else "ignore", WarmpotWarning)
            yield note
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def check_out_file(out: Path, *inputs: Path | None, own: Path | None = None, new_folder: bool = False) -> None:
    """Refuse, before any work, an output file that cannot be written, or would overwrite an input or a file of a run.

    `own` is the file of a run that the command is meant to write, `new_folder` says that the command makes its folder.
    """
    got, allowed, remedy = "", "a file", "Name another file with --out."
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            out.resolve(strict=True)  # raises if symbolic links go in a circle; since Python 3.13, only if strict
        folder = out.resolve().parent
        if out.exists() and any(path.exists() and _holds(path, out) for path in inputs if path is not None):
            got, allowed = f"{out}, which is an input", "a file that is not an input"
        elif is_run_file(out) and not (own is not None and out.resolve() == own.resolve()):
            got, allowed = f"{out}, a name of a file of the run in that folder", "a file that is not part of a run"
        elif out.exists() and not out.is_file():
            got = f"{out}, a {'directory' if out.is_dir() else 'pipe or device'}"
        elif (file := next(filter(Path.is_file, out.resolve().parents), None)) is not None:
            got, allowed = f"{out}, in the file {file}", "a file in a folder"
        elif not folder.is_dir() and not new_folder:
            got, allowed, remedy = f"folder {folder}", "a folder that exists", f"Make it first: mkdir -p '{folder}'"
        elif folder.is_dir() and not os.access(folder, os.W_OK):
            got, allowed = f"folder {folder}", "a folder you may write to"
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle, before Python 3.13
        got = str(error)
    if got:
        raise InputError("--out", got=got, allowed=allowed, remedy=remedy)


def default_out(*parts: str | Path, suffix: str = "", folder: Path = RUNS, continues: bool = False) -> Path:
    """Return where a command writes without --out: its inputs and what it makes of them, joined, in `folder`.

    A number follows if that is in use, unless the command continues what it finds there.
    """
    # not the name as given, because . and .. have none
    names = [Path(os.path.abspath(part)).stem if isinstance(part, Path) else part for part in parts]
    default = folder / ("-".join(names) + suffix)
    out, number = default, 2
    while out.exists() and not continues:
        out, number = default.with_name(f"{default.name.removesuffix(suffix)}-{number}{suffix}"), number + 1
    return out


def given_once(name: str, argument: Path | None, option: Path | None) -> Path | None:
    """Return what was given as an argument, or as an option as in earlier versions."""
    if argument is not None and option is not None:
        got = f"{name} as well"
        raise InputError(f"--{name.lower()}", got=got, allowed="one of the two", remedy="Give it once.")
    return argument if option is None else option


def _holds(place: Path, file: Path) -> bool:
    """Whether a file is this one, or is in this folder."""
    return place.samefile(file) or (place.is_dir() and place.resolve() in file.resolve().parents)


def score(outputs: NDArray[Any], truth: Truth | None) -> list[tuple[str, str, str]]:
    """Return the row of a summary for the accuracy, or the mean absolute error; none without known labels."""
    if truth is None or not truth.known.any():
        return []
    if truth.classes:
        name, value = "accuracy", f"{truth.accuracy(outputs):.1%}"
    else:
        name, value = "mean absolute error", f"{abs(outputs - truth.yt).mean():.4g}"
    return [(name, value, "(target labels, evaluation only)")]


def present_classes(fitted: Fitted) -> str:
    """Name the classes estimated to be in the target with their shares, those that are doubtful at the end."""
    states = dict(zip(fitted.predictor.classes, fitted.presence.states if fitted.presence else (), strict=False))
    sure = {name: share for name, share in fitted.target_classes.items() if states[name] == "present"}
    doubtful = {name: share for name, share in fitted.target_classes.items() if name not in sure}
    parts = [class_summary(sure), f"doubtful: {class_summary(doubtful)}" if doubtful else ""]
    return "; ".join(part for part in parts if part)


def class_summary(shares: dict[str, float]) -> str:
    """Name the largest classes with their shares."""
    named = [f"{name} {share:.0%}" for name, share in list(shares.items())[:MAX_CLASSES]]
    more = f" and {len(shares) - MAX_CLASSES} more" if len(shares) > MAX_CLASSES else ""
    return ", ".join(named) + more
