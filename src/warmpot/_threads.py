"""Threads of the numerical libraries of this process."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from threading import Lock

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["one_thread"]


class _Limit:
    """The limit, of the whole process, and how many want it: fits in several threads end in any order."""

    def __init__(self) -> None:
        self.lock, self.wanted, self.restore = Lock(), 0, ExitStack()

    def take(self) -> None:
        with self.lock:
            if not self.wanted:
                self.restore.enter_context(threadpool_limits(1))
                if (torch := sys.modules.get("torch")) is not None:
                    self.restore.callback(torch.set_num_threads, torch.get_num_threads())
                    torch.set_num_threads(1)
            self.wanted += 1  # not if that failed

    def release(self) -> None:
        with self.lock:
            self.wanted -= 1
            if not self.wanted:
                self.restore.close()


_limit = _Limit()


def one_thread() -> ExitStack:
    """Limit all loaded libraries to one thread until what is returned, a context manager, is closed.

    Examples
    --------
    >>> with one_thread():
    ...     pass  # small products of matrices
    """
    limits = ExitStack()
    _limit.take()
    limits.callback(_limit.release)
    return limits
