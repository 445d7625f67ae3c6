"""The command line: one file per command.

``from warmpot.cli import main`` is light, so that Ctrl-C is handled before anything heavy is imported.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from warmpot.cli._interrupt import handle_signals

if TYPE_CHECKING:
    from warmpot.cli._app import app

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line (the ``warmpot`` script)."""
    handle_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text, nor fit the terminal
    # POT imports every array library it finds. This process only passes it numpy arrays.
    for library in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{library}", "1")
    # Waiting threads that spin slow each other down several times over when the machine is busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from warmpot.cli._app import app

    app(prog_name="warmpot")


def __getattr__(name: str) -> Any:
    if name == "app":
        from warmpot.cli._app import app

        return app
    raise AttributeError(f"module 'warmpot.cli' has no attribute {name!r}")
