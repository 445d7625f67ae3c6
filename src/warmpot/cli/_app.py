"""The commands, and how they end.

Commands import what they need when they run, so that ``warmpot --help`` answers quickly.
"""

from __future__ import annotations

import errno
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from warmpot import __version__
from warmpot.cli._command import HELP, Command
from warmpot.cli._interrupt import interruptible, last_line
from warmpot.cli._shared import complain, one_line
from warmpot.cli.bench import bench
from warmpot.cli.bound import bound
from warmpot.cli.demo import demo
from warmpot.cli.doctor import doctor
from warmpot.cli.evaluate import evaluate
from warmpot.cli.explain import explain
from warmpot.cli.export import export
from warmpot.cli.extract import extract
from warmpot.cli.fit import fit
from warmpot.cli.methods import methods
from warmpot.cli.predict import predict
from warmpot.cli.report import report
from warmpot.cli.sweep import sweep
from warmpot.cli.warmup import warmup
from warmpot.cli.weights import weights
from warmpot.errors import WarmpotError

__all__ = ["app"]


MEMORY = "Free some, raise the limit (ulimit -v, container), or use less data."


class _Commands(TyperGroup):
    """Runs a command. The library's own errors and interruptions end in one line; other errors keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        with interruptible():
            try:
                return super().invoke(ctx)
            except WarmpotError as error:
                complain(f"error: {one_line(error)}", "bold red")
                raise typer.Exit(2) from error
            except OSError as error:  # of the file system, where no check expected one; it is not an error in the code
                if error.errno == errno.EPIPE:  # the reader of the output has ended: typer ends without a word
                    raise
                place = f"{error.filename}: " if error.filename is not None else ""
                complain(f"error: {one_line(place + (error.strerror or str(error)))}", "bold red")
                raise typer.Exit(2) from error
            except MemoryError as error:  # where the memory was not compared with what is available, as in imports
                complain(f"error: {one_line(f'out of memory. {error}')} {MEMORY}", "bold red")
                raise typer.Exit(2) from error
            except KeyboardInterrupt as stop:
                line, code = last_line(stop)
                complain(line, "yellow")
                raise typer.Exit(code) from stop


def _show_version(asked: bool) -> None:
    if asked:
        print(f"warmpot {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=HELP,
)
NEED_DATA = (fit, sweep, predict, report, explain, bound, evaluate, weights, extract, export)
for command in (demo, *NEED_DATA, methods, doctor, warmup):
    app.command(cls=Command, no_args_is_help=command in NEED_DATA)(command)
app.add_typer(bench, name="bench")


VERSION = typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")


@app.callback()
def _options(version: Annotated[bool, VERSION] = False) -> None:
    """Partial domain adaptation by partial optimal transport."""
