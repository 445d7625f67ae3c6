"""A process that has imported the heavy packages once and forks children, which therefore start at once.

`tests/conftest.py` starts it and exchanges lines of JSON with it; tests use its fixture `nursery`.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any

__all__: list[str] = []


HEAVY = ("lightning_fabric", "numba", "ot.lp.emd_wrap", "pydantic", "pytest", "warmpot.cli._app", "warmpot.train")
"""Packages that nearly every child needs. Importing them starts no thread, so that forking is safe."""


def prepare() -> None:
    """Import the heavy packages, and let numba load its compiled functions."""
    for name in HEAVY:
        with suppress(ImportError):
            importlib.import_module(name)
    import numpy as np

    from warmpot.transport import solve_partial

    for eps in (None, 0.1):
        solve_partial(np.eye(2), mass=0.5, eps=eps)


def run_child(code: str, words: list[str], folder: str, environment: dict[str, str], files: list[str]) -> int:
    """Run ``python -c CODE WORDS`` in this (child) process, in its own session; return the exit code."""
    os.setsid()
    os.chdir(folder)
    for number, file in enumerate(files):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = os.fdopen(number, "w" if number else "r", buffering=1 if number == 2 else -1, closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored when pytest runs in the background of a script
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *words]
    try:
        exec(compile(code, "<child>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)  # noqa: T201 - as Python does
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def answer(request: dict[str, Any]) -> int | None:
    """Return the process id of a new child, or the exit code of an old one: negative for a signal, None if it runs."""
    if "poll" in request:
        ended, status = os.waitpid(request["poll"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    child = os.fork()
    if not child:
        code = 1
        try:
            code = run_child(**request)
            sys.stdout.flush()
        finally:
            os._exit(code)
    return child


if __name__ == "__main__":
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints must not look like a reply
    prepare()
    for line in sys.stdin:
        replies.write(json.dumps(answer(json.loads(line))) + "\n")
        replies.flush()
