"""Run independent jobs in this process, in local processes or on Ray (extra ``ray``).

A job is a call ``function(shared, *args)``. Its outcome is yielded as soon as it is available, so that the caller can
store it at once; an exception is an outcome too. A worker that dies takes only its own job with it, and that job is
retried. A finished job never runs twice.

Every job runs with one thread, wherever it runs: floating-point sums depend on their order, and a result must not
depend on the number of workers.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

from warmpot._threads import one_thread
from warmpot.errors import WarmpotError

__all__ = ["Done", "Failed", "Job", "Runner", "runner"]

# read by libraries that a worker imports later
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

Result = tuple[bool, Any]
"""True and the returned value, or False and the exception's (class name, message, traceback)."""


class WorkerDied(Exception):  # noqa: N818 - its name is shown as the kind of failure
    """A worker ended without a result; `started` is false if it did not reach its first job."""

    def __init__(self, reason: str, started: bool = True) -> None:
        super().__init__(reason)
        self.started = started


class Pool(Protocol):
    """Where jobs run, at most `workers` at a time; `result` may raise `WorkerDied`, `close` stops jobs at work too."""

    workers: int

    def submit(self, args: tuple[Any, ...]) -> Future[Any]: ...
    def result(self, future: Future[Any]) -> Result: ...
    def close(self) -> None: ...


class Job(NamedTuple):
    """One call; its outcome has the same `key`."""

    key: Any
    args: tuple[Any, ...] = ()


class Done(NamedTuple):
    """A job that returned `value`."""

    key: Any
    value: Any
    attempts: int = 1


class Failed(NamedTuple):
    """A job that raised an exception of class `kind`, or whose worker died in every attempt (``WorkerDied``)."""

    key: Any
    kind: str
    text: str
    trace: str = ""
    attempts: int = 1

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Runner(NamedTuple):
    """Calls one function many times; made by `runner`."""

    pool: Pool
    retries: int

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
                if succeeded:
                    yield Done(job.key, value, attempt)
                else:
                    yield Failed(job.key, value[0], value[1], value[2], attempt)


@contextmanager
def runner(
    function: Callable[..., Any],
    shared: Any = None,
    *,
    workers: int | None = None,
    ray_address: str | None = None,
    retries: int = 2,
    gpus: float = 0.0,
) -> Iterator[Runner]:
    """Yield a `Runner` of ``function(shared, *args)``; its workers end with the block.

    The function is in a module that workers can import; arguments and results must be picklable. With one worker and no
    Ray it is called in this process, without these restrictions. `shared` is sent once to every worker.

    On Ray, the default of `workers` is as many as the cluster has CPUs for. ``local`` starts it on this machine,
    ``auto`` connects to the one that runs here (or at ``RAY_ADDRESS``), ``host:port`` or ``ray://host:port`` to a
    cluster. If the caller is already connected, that connection is used and stays open. All nodes need the same version
    of warmpot. `gpus` are those per job on Ray, which hides the others; a job in a local process sees all GPUs.
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


class InProcess:
    """A pool of one worker: this process."""

    workers = 1

    def __init__(self, function: Callable[..., Any], shared: Any) -> None:
        self._function, self._shared = function, shared
        self.close = one_thread().close

    def submit(self, args: tuple[Any, ...]) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(_attempt(lambda: self._function(self._shared, *args)))
        return future

    def result(self, future: Future[Any]) -> Result:
        return future.result()  # type: ignore[no-any-return]


class LocalProcesses:
    """Local processes, each in an executor of its own: one that dies breaks that executor, and fails only its job."""

    def __init__(self, packed: bytes, workers: int) -> None:
        self.workers, self._packed = workers, packed
        self._context = multiprocessing.get_context("spawn")  # a fork would copy the locks of running threads
        self._lifeline, self._parent_end = self._context.Pipe(duplex=False)
        self._idle: list[_LocalWorker] = []
        self._busy: dict[Future[Any], _LocalWorker] = {}

    def submit(self, args: tuple[Any, ...]) -> Future[Any]:
        with _signals_blocked():  # workers inherit it: signals are for this process, which then stops them
            worker = self._idle.pop() if self._idle else self._start()
        future: Future[Any] = worker.executor.submit(_run_locally, pickle.dumps(args))
        self._busy[future] = worker
        return future

    def _start(self) -> _LocalWorker:
        executor = ProcessPoolExecutor(1, self._context, _start_worker, (self._packed, self._lifeline))
        before = set(multiprocessing.active_children())
        started = executor.submit(os.getpid)  # starts the process; executors do not tell which one it is
        (process,) = set(multiprocessing.active_children()) - before
        return _LocalWorker(executor, process, started)

    def result(self, future: Future[Any]) -> Result:
        worker = self._busy.pop(future)
        try:
            result = unpack(future.result())
        except BrokenProcessPool:
            raise worker.death() from None
        self._idle.append(worker)
        return result

    def close(self) -> None:
        self._parent_end.close()  # all workers die, also those at work
        self._lifeline.close()
        for worker in (*self._idle, *self._busy.values()):
            worker.executor.shutdown(cancel_futures=True)


class _LocalWorker(NamedTuple):
    executor: ProcessPoolExecutor
    process: BaseProcess
    started: Future[int]

    def death(self) -> WorkerDied:
        self.executor.shutdown()  # after which the exit code is known
        if self.process.pid is not None:
            _kill_group(self.process.pid)  # what the worker had started
        code = self.process.exitcode or 0
        if code < 0:
            name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
            reason = f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
        else:
            reason = f"ended with exit code {code}"
        return WorkerDied(reason, started=self.started.exception() is None)


def _start_worker(packed: bytes, lifeline: Connection) -> None:
    """Set up a local worker; it dies, with all it has started, when the parent closes the lifeline or dies itself."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    threading.Thread(target=_die_with_parent, args=(lifeline,), daemon=True).start()
    _worker["packed"] = packed


def _die_with_parent(lifeline: Connection) -> None:
    with suppress(EOFError, OSError):
        lifeline.recv_bytes()  # nothing is ever sent
    _kill_group(os.getpid())
    os._exit(1)


def _kill_group(pid: int) -> None:
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """Postpone Ctrl-C and SIGTERM, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # else the first worker starts it, which unblocks both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker: dict[str, Any] = {}
"""State of a worker process: `packed` of a local one, and under the key of a runner its function and shared object."""


def _run_locally(args: bytes) -> bytes:
    return run_in_worker("local", lambda: _worker["packed"], args)


def run_in_worker(key: str, fetch: Callable[[], bytes], args: bytes) -> bytes:
    """Run a job in a worker, whose first job fetches function and shared object; `unpack` its result."""

    def call() -> bytes:
        if key not in _worker:
            os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
            loaded = pickle.loads(fetch())
            _worker.clear()  # what it holds is not needed any more, or of another runner
            _worker[key] = loaded
            one_thread()
        function, shared = _worker[key]
        return pickle.dumps(function(shared, *pickle.loads(args)))

    return pickle.dumps(_attempt(call))


def unpack(packed: bytes) -> Result:
    succeeded, value = pickle.loads(packed)
    return _attempt(lambda: pickle.loads(value)) if succeeded else (False, value)


def _attempt(call: Callable[[], Any]) -> Result:
    """Call; an exception becomes text, since not every exception can be pickled."""
    try:
        return True, call()
    except (Exception, SystemExit) as error:
        return False, (type(error).__name__, str(error), traceback.format_exc())
