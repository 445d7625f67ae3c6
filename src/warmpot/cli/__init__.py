"""The command line: one file per command.

``from warmpot.cli import main`` is light, so that Ctrl-C is handled before anything heavy is imported.
"""

from __future__ import annotations

import os
import sys
from importlib.util import cache_from_source, find_spec
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from warmpot.cli._interrupt import handle_signals

if TYPE_CHECKING:
    from warmpot.cli._app import app

__all__ = ["app", "keep_byte_code", "main"]


def main() -> None:
    """Run the command line (the ``warmpot`` script)."""
    handle_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be text, nor fit the terminal
    keep_byte_code("torch")
    # POT imports every array library it finds. This process only passes it numpy arrays.
    for library in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{library}", "1")
    # Waiting threads that spin slow each other down several times over when the machine is busy.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from warmpot.cli._app import app

    app(prog_name="warmpot")


def keep_byte_code(package: str) -> None:
    """Keep byte code in our cache folder where it cannot be kept beside `package`, and is not there already.

    Otherwise every command compiles the two thousand modules of torch again: PYTHONDONTWRITEBYTECODE keeps folders of
    code clean, and a folder of packages may be read-only.
    """
    spec = None if sys.pycache_prefix else find_spec(package)
    if spec is None or spec.origin is None or os.path.exists(cache_from_source(spec.origin)):
        return
    if sys.dont_write_bytecode or not os.access(os.path.dirname(spec.origin), os.W_OK):
        from warmpot._files import cache_folder

        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(cache_folder() / "byte-code")  # also of workers
        sys.dont_write_bytecode = False


def __getattr__(name: str) -> Any:
    if name == "app":
        from warmpot.cli._app import app

        return app
    raise AttributeError(f"module 'warmpot.cli' has no attribute {name!r}")
