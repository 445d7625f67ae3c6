"""Ctrl-C and SIGTERM in all commands: a line that says how to continue, then exit code 130 or 143, never a traceback.

Imports nothing heavy, so that the signals are handled while everything else is imported.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

__all__ = ["handle_signals", "interruptible", "last_line", "on_interrupt", "start_again"]

_how: ContextVar[Callable[[], str] | None] = ContextVar("how to continue", default=None)
"""What the line says; None if no command runs."""


def start_again() -> str:
    """Return how to continue a command that stores nothing before its end."""
    return "the same command starts again"


def on_interrupt(how: Callable[[], str]) -> None:
    """Set what the line of an interruption says, from here to the end of the command."""
    _how.set(how)


def last_line(stop: KeyboardInterrupt) -> tuple[str, int]:
    """Return the line and the exit code of an interrupted command; from here on, signals end the process at once.

    An interruption carries the number of its signal. Without one, as Python itself raises it, it was Ctrl-C.
    """
    how = _how.get() or start_again
    _how.set(None)
    return f"interrupted; {how()}", 128 + (signal.SIGTERM if stop.args == (signal.SIGTERM,) else signal.SIGINT)


@contextmanager
def interruptible() -> Iterator[None]:
    """Run a command: in this block signals raise ``KeyboardInterrupt``, outside they end the process."""
    token = _how.set(start_again)
    try:
        yield
    finally:
        _how.reset(token)


def handle_signals() -> None:
    """Handle both signals from now on, unless the process was started with one ignored, as by ``nohup``."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise, so that a command can clean up.

    But end at once if nothing runs yet, or a module is imported: packages turn what is raised while they are imported
    into errors of their own (numpy: "the C-extensions failed"), and importlib prints what is raised in its callbacks.
    """
    if _how.get() is None:
        os._exit(128 + number)
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib."):
            line, code = last_line(KeyboardInterrupt(number))
            os.write(2, f"{line}\n".encode())  # not a stream, which may be in use
            os._exit(code)
        frame = frame.f_back
    raise KeyboardInterrupt(number)
