"""Jobs computed ahead by worker processes, in order."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from warmpot._checks import check_count
from warmpot.errors import WarmpotError

__all__ = ["map_in_workers"]

Job = TypeVar("Job")
Result = TypeVar("Result")


def map_in_workers(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int = 0) -> Iterator[Result]:
    """Yield ``function(job)`` for all jobs in order, computed ahead by processes when `workers` > 0.

    `function` must be picklable and depend on its job only; a `WarmpotError` that it raises is raised here unchanged.
    `jobs` may be endless; it is read a few jobs ahead.
    """
    if check_count("workers", workers, minimum=0) == 0:
        return map(function, jobs)
    return _prefetch(function, jobs, workers)


def _prefetch(function: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    import torch
    from torch.utils.data import DataLoader

    options: dict[str, Any] = {"sampler": jobs, "batch_size": None, "num_workers": workers}
    options["collate_fn"] = _unchanged  # the default would turn arrays into tensors
    options["worker_init_fn"] = _ignore_signals
    options["generator"] = torch.Generator()  # the loader draws a seed, which must not come from the training's stream
    failure: WarmpotError | None = None
    try:
        with warnings.catch_warnings():
            # More workers than cores, and forks next to threads, are the caller's choice.
            warnings.filterwarnings("ignore", r"This (DataLoader will create|process .* is multi-threaded)")
            results = iter(DataLoader(cast(Any, _JobDataset(function)), **options))
        for result in results:
            if isinstance(result, WarmpotError):
                failure = result  # raised below, after the workers have ended
                break
            yield result
        del results
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        got, remedy = f"a dead process ({error})", "Pass --workers 0, or give the machine more (shared) memory."
        raise WarmpotError("workers", got=got, allowed="processes that live", remedy=remedy) from error
    if failure is not None:
        raise failure


def _unchanged(result: Result) -> Result:
    return result


def _ignore_signals(worker: int) -> None:  # noqa: ARG001
    """Leave signals to the main process, which may finish its step first; workers end when it does."""
    for name in ("SIGINT", "SIGTERM"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)


@dataclass(frozen=True, eq=False)
class _JobDataset:
    """A dataset whose indices are jobs."""

    function: Callable[[Any], Any]

    def __getitem__(self, job: Any) -> Any:
        try:
            return self.function(job)
        except WarmpotError as error:
            return error  # if a worker raised it, the loader would wrap it in the text of a traceback
