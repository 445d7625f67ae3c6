"""Progress of long work: a bar on a terminal, log lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

__all__ = ["ProgressCallback", "format_duration", "progress"]

LINE_EVERY_SECONDS = 5.0


class ProgressCallback(Protocol):
    """Call with the share done (0 to 1) and a short text.

    `expected` are the seconds that all of it is expected to take; shown as long as no more have passed.
    """

    def __call__(self, share: float, text: str, expected: float = 0.0) -> None: ...


@contextmanager
def progress(title: str, logger: logging.Logger, show: bool | None = None) -> Iterator[ProgressCallback]:
    """Yield a `ProgressCallback` that shows a bar or logs lines at INFO, at most one every few seconds.

    `show`: None shows a bar when standard error is a terminal, True always, False never.
    """
    if show if show is not None else sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.text import Text

        class Detail(TextColumn):
            def render(self, task: Task) -> Text:
                return super().render(task).append(_in_all(task.fields["expected"], task.elapsed or 0.0))

        description, detail = TextColumn("{task.description}"), Detail("{task.fields[text]}")
        columns = (description, BarColumn(), detail, TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(title, total=1.0, text="", expected=0.0)

            def update(share: float, text: str, expected: float = 0.0) -> None:
                # a bar at its end counts as finished and stops its clock, but another pass may follow
                bar.update(task, completed=min(share, 0.999), text=text, expected=expected)

            yield update
        return
    start = last = begin = time.monotonic()
    first = done = 0.0

    def line(share: float, text: str, expected: float = 0.0) -> None:
        nonlocal last, begin, first, done
        now = time.monotonic()
        # Another pass, or its start: what came before is not its time. And what is reported at once was done before.
        if share < done or share == first or now - start < 1.0:
            begin, first = now, share
        done = share
        if now - last >= LINE_EVERY_SECONDS:
            last = now
            left = (now - begin) * (1 - share) / (share - first) if first < share < 1 else 0.0
            about = f", about {format_duration(left)} left" if left > LINE_EVERY_SECONDS else ""
            text += _in_all(expected, now - start)
            logger.info("%s: %.0f%% %s (%.0f s%s)", title, 100 * share, text, now - start, about)

    yield line


def _in_all(expected: float, elapsed: float) -> str:
    """Return the expected total time as text; nothing if it is below a second or has already passed."""
    return f", about {format_duration(expected)} in all" if expected >= 1.0 and elapsed < expected else ""


def format_duration(seconds: float) -> str:
    """Return a duration as text.

    Examples
    --------
    >>> [format_duration(seconds) for seconds in (0.4, 42, 600, 9000, 200000)]
    ['0.4 s', '42 s', '10 min', '2.5 h', '2.3 days']
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
