"""Run independent jobs in this process, in local processes or on Ray (extra ``ray``).

A job is a call ``function(shared, *args)``. Its outcome is yielded as soon as it is available, so that the caller can
store it at once; an exception is an outcome too. A worker that dies takes only its own job with it, and that job is
retried. A finished job never runs twice.

Every job runs with one thread, wherever it runs: floating-point sums depend on their order, and a result must not
depend on the number of workers.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warmpot._jobs.pools import InProcess, LocalProcesses, Pool, WorkerDied
from warmpot.errors import WarmpotError

__all__ = ["RETRIES", "Done", "Failed", "Job", "Runner", "runner"]

RETRIES = 2
"""How often a job is retried when its worker dies."""


@dataclass(frozen=True)
class Job:
    """One call; its outcome has the same `key`."""

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
    """A job that raised an exception of class `kind`, or whose worker died in every attempt (``WorkerDied``).

    `text` is the message or the cause of death; `trace` is the traceback, empty for a death.
    """

    key: Any
    kind: str
    text: str
    trace: str = ""
    attempts: int = 1

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclass(frozen=True)
class Runner:
    """Calls one function many times; made by `runner`."""

    pool: Pool
    retries: int = RETRIES

    @property
    def workers(self) -> int:
        """Number of jobs that run at the same time."""
        return self.pool.workers

    def __call__(self, jobs: Iterable[Job]) -> Iterator[Done | Failed]:
        """Yield outcomes in the order in which jobs finish.

        The next job is taken from `jobs` only when a worker is free and the caller has received all earlier outcomes.
        """
        remaining, retried = iter(jobs), deque[tuple[Job, int]]()
        running: dict[Future[Any], tuple[Job, int]] = {}
        while True:
            while len(running) < self.workers:
                job, attempt = retried.popleft() if retried else (next(remaining, None), 1)
                if job is None:
                    break
                running[self.pool.submit(job.args)] = job, attempt
            if not running:
                return
            wait(running, return_when=FIRST_COMPLETED)
            for future in [future for future in running if future.done()]:
                job, attempt = running.pop(future)
                try:
                    succeeded, value = self.pool.result(future)
                except WorkerDied as death:
                    if attempt <= self.retries:
                        retried.append((job, attempt + 1))
                        continue
                    if not death.started:
                        remedy = "In a script, guard what starts it: if __name__ == '__main__':"
                        got, allowed = f"one that {death}", "one that starts"
                        raise WarmpotError("worker process", got=got, allowed=allowed, remedy=remedy) from None
                    times = f", in each of {attempt} attempts" if attempt > 1 else ""
                    succeeded, value = False, ("WorkerDied", f"the worker {death}{times}", "")
                yield (
                    Done(job.key, value, attempt)
                    if succeeded
                    else Failed(job.key, value[0], value[1], value[2], attempt)
                )


@contextmanager
def runner(
    function: Callable[..., Any],
    shared: Any = None,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    retries: int = RETRIES,
    gpus: float = 0.0,
) -> Iterator[Runner]:
    """Yield a `Runner` of ``function(shared, *args)``; its workers end with the block.

    Parameters
    ----------
    function : callable
        In a module that workers can import; its arguments and results must be picklable. With one worker and no Ray
        it is called in this process, without these restrictions.
    shared : object
        What all jobs need. It is sent once to every worker, which has its own copy.
    workers : int, optional
        Number of jobs at the same time. Default: one, or with Ray as many as the cluster has CPUs for.
    ray_address : str, optional
        Run on Ray: ``local`` starts it on this machine, ``auto`` connects to the one that runs here (or at
        ``RAY_ADDRESS``), ``host:port`` or ``ray://host:port`` to a cluster. If the caller is already connected, that
        connection is used and stays open. All nodes need the same version of warmpot; function, data and results are
        sent through Ray's object store. Files that the data refers to (images, memory-mapped shards) must have the
        same path on all nodes.
    retries : int
        How often a job is retried when its worker dies. A job that raises an exception is not retried.
    gpus : float
        GPUs per job on Ray, which hides the others from it; a job in a local process sees all GPUs.
    """
    pool: Pool
    if ray_address is not None:
        from warmpot._jobs.ray import RayPool

        pool = RayPool(pickle.dumps((function, shared)), ray_address, workers, gpus)
    elif workers is None or workers == 1:
        pool = InProcess(function, shared)
    else:
        pool = LocalProcesses(pickle.dumps((function, shared)), workers)
    try:
        yield Runner(pool, retries)
    finally:
        pool.close()
