"""What several verbs need: messages, checks of ``--out``, reading data under the names of the flags."""

from __future__ import annotations

import json
import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot.errors import InputError, WarmpotWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table as Grid

    from warmpot.data import Table, Truth

__all__ = [
    "LABEL_HELP",
    "REGRESSION_HELP",
    "check_out_file",
    "class_summary",
    "complain",
    "facts_grid",
    "messages",
    "one_line",
    "quoted",
    "read_side",
    "recorded",
    "score",
    "show",
]

LABEL_HELP = "Column (or key of a .npz) of the labels; default: y, label, class or target."
REGRESSION_HELP = "The labels are real numbers."
MOST_CLASSES = 8
"""Classes named in a summary."""

# The library speaks of arguments, its users here have flags.
FLAGS = {"task='regression'": "--regression", "task='classification'": "no --regression", "label=": "--label",
         "by root=.": "with --root.", "weights=PATH": "--backbone-weights FILE",
         "images.backbone.train_from=layer4": "--train-from layer4"}  # fmt: skip


def one_line(text: object) -> str:
    """Write a message without line breaks, in the words of the command line."""
    words = " ".join(str(text).split())
    for argument, flag in FLAGS.items():
        words = words.replace(argument, flag)
    return words


def quoted(path: Path) -> str:
    """Write a path as a shell takes it."""
    return shlex.quote(str(path))


def complain(text: str, style: str = "") -> None:
    """Print one line on standard error."""
    from rich.console import Console
    from rich.text import Text

    # A Text is taken as it is: brackets in a message are no markup. Soft wrap keeps it one line for grep.
    Console(stderr=True, highlight=False).print(Text(text, style=style), soft_wrap=True)


def show(*parts: Any, style: str | None = None) -> None:
    """Print texts, as they are, and tables on standard output."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for part in parts:
        # Texts are not cut at the width of the terminal: paths in them are there to be copied.
        console.print(part, style=style, markup=False, soft_wrap=isinstance(part, (str, Text)))


def facts_grid(rows: Iterable[Sequence[str]]) -> Grid:
    """Make the small table of a summary: what, value, and in dim letters what that means."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2))
    for what, value, *note in rows:
        grid.add_row(Text(what), Text(value), Text(note[0] if note else "", style="dim"))
    return grid


class _Lines(logging.Handler):
    """Log records as plain lines, on whatever standard error is now: a progress bar puts itself in between."""

    def emit(self, record: logging.LogRecord) -> None:
        mark = "warning: " if record.levelno >= logging.WARNING else ""
        print(f"{mark}{one_line(record.getMessage())}", file=sys.stderr)


@contextmanager
def messages(wanted: bool) -> Iterator[None]:
    """Show what the library logs and warns of, a plain line each; or nothing, when it is not wanted."""
    logger = logging.getLogger("warmpot")
    handler: logging.Handler = _Lines() if wanted else logging.NullHandler()  # without any, warnings are printed
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            _warn_in_lines(wanted)
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _warn_in_lines(wanted: bool) -> None:
    plain = warnings.showwarning

    def in_lines(message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any) -> None:
        if issubclass(category, WarmpotWarning):
            print(f"warning: {one_line(message)}", file=sys.stderr)
        else:
            plain(message, category, *args, **kwargs)

    warnings.showwarning = in_lines
    warnings.simplefilter("always" if wanted else "ignore", WarmpotWarning)


def check_out_file(out: Path, *inputs: Path) -> None:
    """Refuse, before any work, an output file that would fail or destroy something."""
    got, allowed, remedy = "", "a file", "Name another file with --out."
    try:
        folder = out.resolve().parent
        if out.exists() and any(path.exists() and path.samefile(out) for path in inputs):
            got, allowed = f"{out}, which is an input", "a file of its own"
        elif out.exists() and not out.is_file():
            got = f"{out}, a {'directory' if out.is_dir() else 'device'}"
        elif not folder.is_dir():
            got, allowed, remedy = f"folder {folder}", "a folder that exists", f"Make it first: mkdir -p '{folder}'"
        elif not os.access(folder, os.W_OK):
            got, allowed = f"folder {folder}", "a folder you may write to"
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
        got = str(error)
    if got:
        raise InputError("--out", got=got, allowed=allowed, remedy=remedy)


def read_side(path: Path, label: str | None, *, regression: bool, needed: bool) -> Table:
    """Read a file with its labels; those of a target are not `needed`: a named column may be absent there."""
    from warmpot.data import load_table

    task = "regression" if regression else "classification"
    try:
        return load_table(path, label=label, task=task)
    except InputError as error:
        absent = any(f"allowed: {what} {label!r}" in str(error) for what in ("a column", "a key", "labels"))
        if needed or not label or not absent:
            raise
    return load_table(path, label="", task=task)


def recorded(run: Path) -> dict[str, Any]:
    """Return what a run directory remembers of its data; empty without a ``run.json``."""
    try:
        found = json.loads((run / "run.json").read_text(encoding="utf-8"))
        return {"seed": found["seed"], **found.get("facts", {})}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def score(outputs: NDArray[Any], truth: Truth) -> tuple[str, str]:
    """Name and value of the measure of predictions: accuracy, or the mean absolute error of real labels."""
    if truth.classes:
        return "accuracy", f"{(outputs.argmax(axis=1) == truth.yt).mean():.1%}"
    return "mean absolute error", f"{abs(outputs - truth.yt).mean():.4g}"


def class_summary(shares: dict[str, float]) -> str:
    """Name the largest classes with their shares."""
    named = [f"{name} {share:.0%}" for name, share in list(shares.items())[:MOST_CLASSES]]
    more = f" and {len(shares) - MOST_CLASSES} more" if len(shares) > MOST_CLASSES else ""
    return ", ".join(named) + more
