"""Ctrl-C between two steps, never inside one."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["asked_to_stop"]

logger = logging.getLogger(__name__)


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C was pressed (or SIGTERM received); a second one interrupts at once.

    An interrupt within an optimiser step would leave a state that no uninterrupted run can have. Signals can only be
    caught in the main thread; in other threads nothing is changed.
    """
    pressed = False

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        logger.warning("stopping after this step; press again to stop at once, without finishing it")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
