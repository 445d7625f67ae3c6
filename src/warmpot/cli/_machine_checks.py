"""What ``warmpot doctor`` checks on a machine: versions, devices, threads, caches, memory, and two tiny plans."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

__all__ = ["CHECKS", "Finding"]

GIB = 2**30
LITTLE_MEMORY = 2.0
"""In GiB. With less, the default blocks of distances (1 to 2 GiB) may not fit."""
LARGEST_GAP = 1e-8
"""Largest duality gap and residual accepted for a tiny plan whose costs are at most 1."""


class Finding(NamedTuple):
    """One line of the doctor: "ok", "warn" or "fail", what was checked, and the result with what to do about it."""

    level: str
    subject: str
    text: str


def check_versions() -> Iterator[Finding]:
    """Compare Python and the installed packages with the requirements of warmpot."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, required = platform.python_version(), importlib.metadata.metadata("warmpot")["Requires-Python"] or ""
    good = SpecifierSet(required).contains(python, prereleases=True)
    yield Finding("ok" if good else "fail", "Python", python if good else f"{python}: install Python {required}")
    known = importlib.metadata.metadata("warmpot").get_all("Provides-Extra") or []
    for text in importlib.metadata.requires("warmpot") or []:
        requirement = Requirement(text)
        extras = [extra for extra in known if requirement.marker and requirement.marker.evaluate({"extra": extra})]
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement.name, requirement.specifier, "")
        elif extras and extras != ["dev"] and requirement.name != "warmpot":
            yield _package(requirement.name, requirement.specifier, extras[0])


def _package(name: str, required: SpecifierSet, extra: str) -> Finding:
    install = f"'warmpot[{extra}]'" if extra else f"'{name}{required}'"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if extra:
            return Finding("ok", name, f"not installed (optional). For the extra {extra}: pip install {install}")
        return Finding("fail", name, f"not installed. Run: pip install {install}")
    if not required.contains(version, prereleases=True):
        return Finding("fail", name, f"{version}, but {required} is needed. Run: pip install --upgrade {install}")
    return Finding("ok", name, f"{version}{f' (extra {extra})' if extra else ''}")


def check_devices() -> Iterator[Finding]:
    """List CPUs and GPUs."""
    import torch

    yield Finding("ok", "CPU", f"{_cpus()} of {os.cpu_count()} cores available, {platform.machine()}")
    if torch.cuda.is_available():
        names = sorted({torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())})
        yield Finding("ok", "CUDA", f"{torch.cuda.device_count()} device(s): {', '.join(names)}")
    elif torch.backends.mps.is_available():
        yield Finding("ok", "MPS", "present, but not used: it lacks float64")
    else:
        yield Finding("ok", "GPU", "none; everything runs on the CPU")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads() -> Iterator[Finding]:
    """Compare the number of threads with the number of cores."""
    import torch
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    pools = {f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpool_info()}
    most = max([pool["num_threads"] for pool in threadpool_info()] + [torch.get_num_threads()])
    text = f"torch {torch.get_num_threads()}{''.join(f', {pool}' for pool in sorted(pools))}"
    if most > _cpus():
        yield Finding("warn", "threads", f"{text}: more than {_cpus()} cores. Set OMP_NUM_THREADS={_cpus()}")
    else:
        yield Finding("ok", "threads", text)


def check_cache() -> Iterator[Finding]:
    """Check that compiled kernels can be cached."""
    try:
        from warmpot.transport import _entropic
    except RuntimeError as error:  # numba found no folder at all
        yield Finding("fail", "numba cache", f"{error}. Set NUMBA_CACHE_DIR to a folder you may write to")
        return
    kernels = [
        value for value in vars(_entropic).values() if getattr(getattr(value, "stats", None), "cache_path", None)
    ]
    folder = Path(kernels[0].stats.cache_path) if kernels else None
    if folder is None:
        yield Finding("warn", "numba cache", "none: kernels are compiled again in every process. Set NUMBA_CACHE_DIR")
    elif not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        text = (
            f"{folder} is not writable: kernels are compiled in every process. Set NUMBA_CACHE_DIR to a writable folder"
        )
        yield Finding("warn", "numba cache", text)
    else:
        yield Finding("ok", "numba cache", str(folder))


def check_memory() -> Iterator[Finding]:
    """Check that enough memory is free."""
    free = _free_memory()
    if free is None:
        yield Finding("ok", "memory", "unknown on this system")
    elif free < LITTLE_MEMORY:
        text = f"{free:.1f} GiB free. Close other programs, or give `warmpot weights` a small --max-memory"
        yield Finding("warn", "memory", text)
    else:
        yield Finding("ok", "memory", f"{free:.1f} GiB free")


def _free_memory() -> float | None:
    """Return the free memory of the machine or of the container, whichever is less, in GiB; None if unknown."""
    free = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free.append(int(lines["MemAvailable"].split()[0]) * 1024 / GIB)
    except (OSError, KeyError, ValueError):
        if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
            free.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB)
    try:
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        free.append((limit - used) / GIB)
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return min(free, default=None)


def check_plans() -> Iterator[Finding]:
    """Solve two tiny problems and check their certificates."""
    import numpy as np

    from warmpot.transport import solve_partial

    cost = np.random.default_rng(0).uniform(size=(6, 5))
    for name, eps in (("exact plan", None), ("entropic plan", 0.1)):
        solution = solve_partial(cost, a=np.full(6, 1 / 3), mass=0.8, eps=eps, throw=False)
        good = solution.status.ok and 0 <= solution.gap <= LARGEST_GAP and solution.residuals.worst <= LARGEST_GAP
        text = f"gap {solution.gap:.1e}, status {solution.status.name}"
        repair = "Reinstall: pip install --force-reinstall warmpot"
        yield Finding("ok" if good else "fail", name, text if good else f"{text}. {repair}")


CHECKS: dict[str, Callable[[], Iterator[Finding]]] = {
    "versions": check_versions,
    "devices": check_devices,
    "threads": check_threads,
    "numba cache": check_cache,
    "memory": check_memory,
    "plans": check_plans,
}
"""All checks; a check that raises is reported under its name."""
