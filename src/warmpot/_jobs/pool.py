"""What all pools of workers share: their face, the answer to a job, its threads; and the pool of this process."""

from __future__ import annotations

import os
import pickle
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Answer", "Died", "Here", "Pool", "unpacked", "worked"]

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Died:
    """What a pool answers for a worker that is gone; `began` is false if it never came to its job."""

    reason: str
    began: bool = True


Answer = tuple[bool, Any] | Died
"""True and the value, false and (kind, text, trace), or a death."""


class Pool(Protocol):
    """Where jobs run."""

    workers: int

    def start(self, number: int, args: tuple[Any, ...]) -> None:
        """Begin a job under a number; at most `workers` are begun at a time."""

    def finished(self) -> list[tuple[int, Answer]]:
        """Wait for an answer; return all that are there."""

    def end(self, *, now: bool) -> None:
        """Stop what still runs, at once when something went wrong."""


class Here:
    """A pool of one: this process. Who dies here takes everything along, and Ctrl-C stops the job."""

    workers = 1

    def __init__(self, function: Callable[..., Any], shared: Any, threads: int) -> None:
        self._function, self._shared, self._answers = function, shared, list[tuple[int, Answer]]()
        self._undo = limit_threads(threads)

    def start(self, number: int, args: tuple[Any, ...]) -> None:
        self._answers.append((number, called(lambda: self._function(self._shared, *args))))

    def finished(self) -> list[tuple[int, Answer]]:
        found, self._answers = self._answers, []
        return found

    def end(self, *, now: bool) -> None:  # noqa: ARG002 - nothing runs any more
        self._undo()


def called(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Return true and the value, or false and what was raised, in words: not every exception can be pickled."""
    try:
        return True, work()
    except (Exception, SystemExit) as error:
        return False, (type(error).__name__, str(error), traceback.format_exc())


def limit_threads(threads: int) -> Callable[[], None]:
    """Limit the threads of the libraries that are loaded; return what undoes it.

    Libraries loaded later read `THREAD_VARIABLES`.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    limits = threadpool_limits(threads)
    if torch is not None:
        torch.set_num_threads(threads)

    def undo() -> None:
        limits.restore_original_limits()
        if torch is not None:
            torch.set_num_threads(before)

    return undo


_loaded: dict[str, Any] = {}
"""In a worker: the function and what its jobs share, under the name of the runner; one at a time."""


def worked(name: str, load: Callable[[], bytes], threads: int, job: bytes) -> bytes:
    """Do a job in a worker; return its answer, packed."""

    def work() -> bytes:
        if name not in _loaded:
            _loaded.clear()
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))  # for what is imported from here on
            _loaded[name] = pickle.loads(load())
            limit_threads(threads)
        function, shared = _loaded[name]
        return pickle.dumps(function(shared, *pickle.loads(job)))

    return pickle.dumps(called(work))


def unpacked(answer: bytes) -> Answer:
    """Read the answer of a worker."""
    good, found = pickle.loads(answer)
    return called(lambda: pickle.loads(found)) if good else (good, found)
