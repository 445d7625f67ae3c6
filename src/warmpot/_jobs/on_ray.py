"""Jobs on Ray (extra ``ray``)."""

from __future__ import annotations

import os
import pickle
import re
import socket
import warnings
from importlib import import_module
from typing import Any

from warmpot._jobs.pool import Answer, Died, unpacked, worked
from warmpot.errors import InputError, MissingExtraError

__all__ = ["OnRay"]

PATIENCE_SECONDS = 5.0
"""For a cluster to answer the door."""


class OnRay:
    """Tasks of Ray.

    Deaths are counted here and not by Ray, so that they are treated as those of local processes: Ray would try jobs
    without end that run out of memory.
    """

    def __init__(self, packed: bytes, address: str, workers: int | None, threads: int, gpus: float = 0.0) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            remedy = "Install it: pip install 'warmpot[ray]', or run local processes by workers alone."
            raise MissingExtraError("ray", got="not installed", allowed="installed", remedy=remedy) from error
        self._ray, self._ours = ray, not ray.is_initialized()
        if self._ours:
            _join_ray(ray, address, workers and workers * threads)
        try:
            _check_resources(ray.nodes(), threads, gpus)
            self.workers = workers or max(int(ray.cluster_resources().get("CPU", 1)) // threads, 1)
            self._threads, self._packed = threads, ray.put(packed)
            self._task = ray.remote(max_retries=0, num_cpus=threads, num_gpus=gpus)(_ray_task)
        except BaseException:
            self.end(now=True)
            raise
        self._running: dict[Any, int] = {}

    def start(self, number: int, args: tuple[Any, ...]) -> None:
        # in a list, Ray hands over the reference: a worker that has the bytes already does not get them again
        self._running[self._task.remote([self._packed], self._threads, pickle.dumps(args))] = number

    def finished(self) -> list[tuple[int, Answer]]:
        ready, _ = self._ray.wait(list(self._running), num_returns=1)
        return [(self._running.pop(task), self._answer(task)) for task in ready]

    def _answer(self, task: Any) -> Answer:
        errors = self._ray.exceptions
        try:
            return unpacked(self._ray.get(task))
        except errors.RayTaskError as error:  # not of the job: warmpot could not be imported there, for instance
            return False, (type(error.cause or error).__name__, str(error.cause or error), str(error))
        except errors.RayError as error:
            return Died(f"died ({type(error).__name__}: {str(error).strip().splitlines()[0]})")

    def end(self, *, now: bool) -> None:  # noqa: ARG002 - what still runs is not wanted either way
        for task in getattr(self, "_running", ()):
            self._ray.cancel(task, force=True)
        if self._ours:
            self._ray.shutdown()


def _check_resources(nodes: list[dict[str, Any]], threads: int, gpus: float) -> None:
    """Refuse what no node has: Ray would wait for one, without a word."""
    for name, wanted in {"CPU": threads, "GPU": gpus}.items():
        most = max((node["Resources"].get(name, 0) for node in nodes if node["Alive"]), default=0)
        if wanted > most:
            got, remedy = f"{wanted:g} {name}s a job", "Ask for less, or add a node."
            raise InputError("Ray", got=got, allowed=f"up to {most:g}, what a node has", remedy=remedy)


def _ray_task(packed: list[Any], threads: int, job: bytes) -> bytes:
    import ray

    return worked(packed[0].hex(), lambda: ray.get(packed[0]), threads, job)


def _join_ray(ray: Any, address: str, cpus: int | None) -> None:
    """Start Ray on this machine, without its dashboard and its reports to its makers, or join a cluster."""
    allowed = "local, auto, or the host:port of a running cluster"
    place = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if place:  # Ray itself would wait for minutes
            socket.create_connection((place[1].strip("[]"), int(place[2])), timeout=PATIENCE_SECONDS).close()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
            own = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
            ray.init(address, logging_level="ERROR", log_to_driver=False, **own)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:  # RuntimeError: other versions of Ray there
        got, remedy = f"{address!r} ({' '.join(str(error).split())})", "Start a cluster by: ray start --head"
        raise InputError("Ray address", got=got, allowed=allowed, remedy=remedy) from error
