"""Jobs in local processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from warmpot._jobs.pool import Answer, Died, unpacked, worked

__all__ = ["Processes"]

PATIENCE_SECONDS = 5.0
"""For an idle worker to end by itself before it is killed."""


class Processes:
    """Local processes, begun when they are needed.

    Not an executor of the standard library: there, one process that dies breaks the pool and loses all its jobs.
    """

    def __init__(self, packed: bytes, workers: int, threads: int) -> None:
        self.workers, self._packed, self._threads = workers, packed, threads
        self._all: list[_Process] = []
        self._idle: list[_Process] = []
        self._busy: dict[int, _Process] = {}

    def start(self, number: int, args: tuple[Any, ...]) -> None:
        job = pickle.dumps(args)
        if not self._idle:
            with _interrupts_wait():  # a process begins with the signals blocked that are blocked here
                worker = _Process(self._threads)
                self._all.append(worker)
            worker.send(self._packed)
            self._idle.append(worker)
        worker = self._busy[number] = self._idle.pop()
        worker.send(job)

    def finished(self) -> list[tuple[int, Answer]]:
        found: list[tuple[int, Answer]] = []
        while not found:
            watched: dict[Any, int] = {}
            for number, worker in self._busy.items():
                watched[worker.pipe] = watched[worker.process.sentinel] = number
            for number in sorted({watched[each] for each in wait(list(watched))}):
                worker = self._busy[number]
                answer = worker.receive()
                if answer is None:
                    continue
                del self._busy[number]
                if isinstance(answer, Died):
                    self._all.remove(worker)
                else:
                    self._idle.append(worker)
                found.append((number, answer))
        return found

    def end(self, *, now: bool) -> None:
        for worker in self._all:
            if now or worker not in self._idle:
                worker.kill()
            worker.pipe.close()  # an idle one reads its end from this
        for worker in self._all:
            worker.process.join(PATIENCE_SECONDS)
            worker.kill()
            worker.process.join()


class _Process:
    """One worker process and the pipe to it."""

    def __init__(self, threads: int) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would copy the locks of running threads
        self.pipe, theirs = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(theirs, threads))  # no daemon: it may have its own workers
        self.process.start()
        theirs.close()
        self._began = False

    def send(self, message: bytes) -> None:
        with suppress(OSError):  # it is dead; `receive` will say so
            self.pipe.send_bytes(message)

    def receive(self) -> Answer | None:
        """Return its answer; None when it has only said that it began."""
        dead = not self.process.is_alive()
        if dead:
            self.kill()  # processes of its own might keep the pipe open
        try:
            message = self.pipe.recv_bytes() if not dead or self.pipe.poll() else None
        except (EOFError, OSError):
            message = None
        if message is None:
            return self._death()
        if not message:
            self._began = True
            return None
        return unpacked(message)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        if hasattr(os, "killpg") and self.process.pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)  # `_serve` made it the head of a group
        self.process.kill()

    def _death(self) -> Died:
        self.process.join(PATIENCE_SECONDS)
        self.kill()
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            return Died(f"ended with exit code {code}", self._began)
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        return Died(f"was killed by {name}{hint}", self._began)


def _serve(pipe: Connection, threads: int) -> None:
    """Live as a worker: read what is shared, then answer jobs until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, who ends its workers
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    threading.Thread(target=_follow_parent, daemon=True).start()
    pipe.send_bytes(b"")
    with suppress(EOFError, OSError):
        shared = [pipe.recv_bytes()]
        while True:
            pipe.send_bytes(worked("", lambda: shared[0], threads, pipe.recv_bytes()))


def _follow_parent() -> None:
    """End this process, and what it has started, when its parent is gone, killed perhaps."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    if hasattr(os, "killpg"):
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Put off Ctrl-C, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
