"""Threads of the numerical libraries of this process."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["one_thread"]


def one_thread() -> ExitStack:
    """Limit all loaded libraries to one thread until what is returned, a context manager, is closed.

    It is to be closed in the thread that called: the limits of OpenMP and of torch belong to it, and where several
    threads ask for limits of BLAS, which are those of the process, threadpoolctl listens to the first.

    Examples
    --------
    >>> with one_thread():
    ...     pass  # small products of matrices
    """
    limits = ExitStack()
    limits.enter_context(threadpool_limits(1))
    if (torch := sys.modules.get("torch")) is not None:
        limits.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
    return limits
