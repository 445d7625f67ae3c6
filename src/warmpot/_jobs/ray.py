"""Jobs on Ray (extra ``ray``)."""

from __future__ import annotations

import os
import pickle
import re
import socket
import warnings
from concurrent.futures import Future
from importlib import import_module
from typing import Any

from warmpot._jobs import Result, WorkerDied, run_in_worker, unpack
from warmpot.errors import InputError, MissingExtraError

__all__ = ["RayPool"]

CONNECT_SECONDS = 5.0
"""How long a cluster may take to accept a connection; Ray itself would wait for minutes."""


class RayPool:
    """Tasks of Ray.

    Retries are counted by the `Runner` and not by Ray, which would retry jobs that run out of memory forever.
    """

    def __init__(self, packed: bytes, address: str, workers: int | None, gpus: float) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            remedy = "Install it: pip install 'warmpot[ray]', or run local processes by workers alone."
            raise MissingExtraError("ray", got="not installed", allowed="installed", remedy=remedy) from error
        self._ray, self._connected_here = ray, not ray.is_initialized()
        self._tasks: dict[Future[Any], Any] = {}
        if self._connected_here:
            connect(ray, address, workers)
        try:
            _check_resources(ray.nodes(), gpus)
            self.workers = workers or max(int(ray.cluster_resources().get("CPU", 1)), 1)
            self._packed = ray.put(packed)
            self._task = ray.remote(max_retries=0, num_cpus=1, num_gpus=gpus)(_run_on_ray)
        except BaseException:
            self.close()
            raise

    def submit(self, args: tuple[Any, ...]) -> Future[Any]:
        # in a list, Ray passes the reference: a worker that has the bytes already does not receive them again
        task = self._task.remote([self._packed], pickle.dumps(args))
        future: Future[Any] = task.future()
        self._tasks[future] = task
        return future

    def result(self, future: Future[Any]) -> Result:
        del self._tasks[future]
        errors = self._ray.exceptions
        try:
            return unpack(future.result())
        except errors.RayTaskError as error:  # not of the job; for instance, warmpot cannot be imported there
            return False, (type(error.cause or error).__name__, str(error.cause or error), str(error))
        except errors.RayError as error:
            raise WorkerDied(f"died ({type(error).__name__}: {str(error).strip().splitlines()[0]})") from None

    def close(self) -> None:
        for task in self._tasks.values():
            self._ray.cancel(task, force=True)
        if self._connected_here:
            self._ray.shutdown()


def _run_on_ray(packed: list[Any], args: bytes) -> bytes:
    import ray

    return run_in_worker(packed[0].hex(), lambda: ray.get(packed[0]), args)


def _check_resources(nodes: list[dict[str, Any]], gpus: float) -> None:
    """Refuse requests that no node can meet: Ray would wait for such a node silently."""
    for name, wanted in {"CPU": 1, "GPU": gpus}.items():
        most = max((node["Resources"].get(name, 0) for node in nodes if node["Alive"]), default=0)
        if wanted > most:
            got, remedy = f"{wanted:g} {name}s per job", "Request fewer, or add a node."
            raise InputError("Ray", got=got, allowed=f"up to {most:g}, the most of any node", remedy=remedy)


def connect(ray: Any, address: str, cpus: int | None) -> None:
    """Start Ray on this machine, without dashboard and usage reports, or connect to a cluster."""
    host_port = re.fullmatch(r"(?:ray://)?(.+):(\d+)", address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        if host_port:
            socket.create_connection((host_port[1].strip("[]"), int(host_port[2])), timeout=CONNECT_SECONDS).close()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
            local = {"num_cpus": cpus, "include_dashboard": False} if address == "local" else {}
            ray.init(address, logging_level="ERROR", log_to_driver=False, **local)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:  # RuntimeError: another version of Ray there
        got, remedy = f"{address!r} ({' '.join(str(error).split())})", "Start a cluster by: ray start --head"
        allowed = "local, auto, or the host:port of a running cluster"
        raise InputError("Ray address", got=got, allowed=allowed, remedy=remedy) from error
