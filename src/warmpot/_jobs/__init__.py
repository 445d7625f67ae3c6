"""Independent jobs, as of a grid: in this process, in local processes, or on Ray (extra ``ray``).

A job is a call ``function(shared, *args)``. Its outcome comes back as soon as it is there, so that the caller can keep
it at once. A job that raises is an outcome too. A worker that dies takes only its own job with it, and that job is
tried again; no finished job is ever run twice.

Every job runs with the same number of threads (one, unless told otherwise), wherever it runs: sums in another order
are other numbers, and a result must not depend on how many workers there were.
"""

from __future__ import annotations

import itertools
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from warmpot._jobs.pool import Answer, Died, Here, Pool
from warmpot.errors import WarmpotError

__all__ = ["RETRIES", "Done", "Failed", "Job", "Runner", "runner"]

RETRIES = 2
"""Times that a job is tried again when its worker dies."""


@dataclass(frozen=True)
class Job:
    """One call; the `key` comes back with its outcome."""

    key: Any
    args: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Done:
    """A job that returned `value`."""

    key: Any
    value: Any
    attempts: int = 1


@dataclass(frozen=True)
class Failed:
    """A job without a value.

    Attributes
    ----------
    key : object
        Of the job.
    kind : str
        Name of the exception's class; of a worker that died, ``WorkerDied``.
    text : str
        Its message, or what is known of the death.
    trace : str
        Its traceback; empty when the worker died.
    attempts : int
    """

    key: Any
    kind: str
    text: str
    trace: str = ""
    attempts: int = 1

    @property
    def died(self) -> bool:
        """Whether the worker died, each time: on another machine, or with fewer at a time, it may not."""
        return self.kind == "WorkerDied"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Runner:
    """Calls one function many times; made by `runner`."""

    pool: Pool
    retries: int = RETRIES
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def workers(self) -> int:
        """Jobs at a time."""
        return self.pool.workers

    def __call__(self, jobs: Iterable[Job]) -> Iterator[Done | Failed]:
        """Yield the outcomes in the order in which they come.

        `jobs` is asked for the next one only when a worker is free and the caller has seen all outcomes before it.
        """
        left, again = iter(jobs), deque[tuple[Job, int]]()
        running: dict[int, tuple[Job, int]] = {}
        while True:
            while len(running) < self.workers:
                job, attempt = again.popleft() if again else (next(left, None), 1)
                if job is None:
                    break
                running[number := next(self._numbers)] = job, attempt
                self.pool.start(number, job.args)
            if not running:
                return
            for which, answer in self.pool.finished():
                if which not in running:  # of a call whose iterator was left
                    continue
                job, attempt = running.pop(which)
                if isinstance(answer, Died) and attempt <= self.retries:
                    again.append((job, attempt + 1))
                else:
                    yield _outcome(job.key, answer, attempt)


def _outcome(key: Any, answer: Answer, attempt: int) -> Done | Failed:
    if not isinstance(answer, Died):
        good, found = answer
        if good:
            return Done(key, found, attempt)
        kind, text, trace = found
        return Failed(key, kind, text, trace, attempt)
    if not answer.began:
        got, remedy = f"one that {answer.reason}", "In a script, guard what starts it: if __name__ == '__main__':"
        raise WarmpotError("worker process", got=got, allowed="one that begins to work", remedy=remedy)
    times = f", in each of {attempt} attempts" if attempt > 1 else ""
    return Failed(key, "WorkerDied", f"the worker {answer.reason}{times}", attempts=attempt)


@contextmanager
def runner(
    function: Callable[..., Any],
    shared: Any = None,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    retries: int = RETRIES,
    threads: int = 1,
    gpus: float = 0.0,
) -> Iterator[Runner]:
    """Yield a `Runner` of ``function(shared, *args)``; its workers end with the block.

    Parameters
    ----------
    function : callable
        Of a module that workers can import; what it takes and returns must be picklable. With one worker and no Ray
        it is called here, and neither matters.
    shared : object
        What all jobs need; sent once to every worker, which has its own copy.
    workers : int, optional
        Jobs at a time; default: one, or with Ray as many as the cluster has CPUs for.
    ray_address : str, optional
        Run on Ray: ``local`` starts one on this machine, ``auto`` finds the one that runs here (or ``RAY_ADDRESS``),
        ``host:port`` or ``ray://host:port`` joins a cluster. A connection that the caller has made is used, and left.
        warmpot must be installed on all nodes, in one version; function, data and results travel through Ray's object
        store. Files that the data points to (images, memory-mapped shards) must have the same path on all nodes.
    retries : int
        Times that a job is tried again when its worker dies. A job that raises is not: it would raise again.
    threads : int
        Of every job; keep ``workers * threads`` within the cores.
    gpus : float
        Share of a GPU that Ray gives to every job, which sees no other; local processes see all of them.
    """
    pool: Pool
    if ray_address is not None:
        from warmpot._jobs.on_ray import OnRay

        pool = OnRay(pickle.dumps((function, shared)), ray_address, workers, threads, gpus)
    elif workers is None or workers == 1:
        pool = Here(function, shared, threads)
    else:
        from warmpot._jobs.processes import Processes

        pool = Processes(pickle.dumps((function, shared)), workers, threads)
    try:
        yield Runner(pool, retries)
    except BaseException:
        pool.end(now=True)
        raise
    pool.end(now=False)
