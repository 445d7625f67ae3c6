"""What ``warmpot doctor`` looks at of a machine: versions, devices, threads, caches, memory, and two tiny plans."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CHECKS", "Finding"]

GIB = 2**30
LITTLE_MEMORY = 2.0
"""GiB below which the default blocks of distances (1 to 2 GiB) may not fit."""
CERTIFIED = 1e-8
"""Largest gap of a tiny plan, whose costs are of size 1."""


class Finding(NamedTuple):
    """One line: "ok", "warn" or "fail", what was looked at, and what was found with what to do about it."""

    level: str
    what: str
    text: str


def check_versions() -> Iterator[Finding]:
    """Compare Python and the packages with what warmpot's metadata asks for."""
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    python, asked = platform.python_version(), importlib.metadata.metadata("warmpot")["Requires-Python"] or ""
    good = SpecifierSet(asked).contains(python, prereleases=True)
    yield Finding("ok" if good else "fail", "Python", python if good else f"{python}: install Python {asked}")
    for text in importlib.metadata.requires("warmpot") or []:
        requirement = Requirement(text)
        extras = [extra for extra in _extras() if requirement.marker and requirement.marker.evaluate({"extra": extra})]
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield _package(requirement.name, requirement.specifier, "")
        elif extras and extras != ["dev"] and requirement.name != "warmpot":
            yield _package(requirement.name, requirement.specifier, extras[0])


def _extras() -> list[str]:
    return importlib.metadata.metadata("warmpot").get_all("Provides-Extra") or []


def _package(name: str, asked: object, extra: str) -> Finding:
    wanted = f"'warmpot[{extra}]'" if extra else f"'{name}{asked}'"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        if extra:
            return Finding("ok", name, f"absent, and optional. For the extra {extra}: pip install {wanted}")
        return Finding("fail", name, f"absent. Run: pip install {wanted}")
    if not asked.contains(found, prereleases=True):  # type: ignore[attr-defined]
        return Finding("fail", name, f"{found}, but {asked} is needed. Run: pip install --upgrade {wanted}")
    return Finding("ok", name, f"{found}{f' (extra {extra})' if extra else ''}")


def check_devices() -> Iterator[Finding]:
    """Count what can compute."""
    import torch

    yield Finding("ok", "CPU", f"{_cpus()} of {os.cpu_count()} cores may be used, {platform.machine()}")
    if torch.cuda.is_available():
        names = sorted({torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())})
        yield Finding("ok", "CUDA", f"{torch.cuda.device_count()} device(s): {', '.join(names)}")
    elif torch.backends.mps.is_available():
        yield Finding("ok", "MPS", "there, but not used: it lacks float64")
    else:
        yield Finding("ok", "GPU", "none; everything runs on the CPU")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads() -> Iterator[Finding]:
    """Compare the threads of linear algebra with the cores."""
    import torch
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    found = {f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpool_info()}
    most = max([pool["num_threads"] for pool in threadpool_info()] + [torch.get_num_threads()])
    text = f"torch {torch.get_num_threads()}{''.join(f', {entry}' for entry in sorted(found))}"
    if most > _cpus():
        yield Finding("warn", "threads", f"{text}: more than {_cpus()} cores. Set OMP_NUM_THREADS={_cpus()}")
    else:
        yield Finding("ok", "threads", text)


def check_cache() -> Iterator[Finding]:
    """See whether compiled kernels can be kept."""
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
        yield Finding("warn", "numba cache", "kernels are compiled anew in every process. Set NUMBA_CACHE_DIR")
    elif not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        text = f"{folder} may not be written: kernels are compiled anew. Set NUMBA_CACHE_DIR to a folder of yours"
        yield Finding("warn", "numba cache", text)
    else:
        yield Finding("ok", "numba cache", str(folder))


def check_memory() -> Iterator[Finding]:
    """Read the memory that is left."""
    free = _free_memory()
    if free is None:
        yield Finding("ok", "memory", "unknown on this system")
    elif free < LITTLE_MEMORY:
        text = f"{free:.1f} GiB free. Close other programs, or give `warmpot weights` a small --max-memory"
        yield Finding("warn", "memory", text)
    else:
        yield Finding("ok", "memory", f"{free:.1f} GiB free")


def _free_memory() -> float | None:
    """GiB free in the machine or in the container, whichever is less; None where it cannot be read."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(int(lines["MemAvailable"].split()[0]) * 1024 / GIB)
    except (OSError, KeyError, ValueError):
        if "SC_AVPHYS_PAGES" in getattr(os, "sysconf_names", {}):
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB)
    try:
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        found.append((limit - used) / GIB)
    except (OSError, ValueError):  # no container, or one without limit ("max")
        pass
    return min(found, default=None)


def check_plans() -> Iterator[Finding]:
    """Solve two tiny problems to their certificates."""
    import numpy as np

    from warmpot.transport import solve_partial

    cost = np.random.default_rng(0).uniform(size=(6, 5))
    for name, eps in (("exact plan", None), ("entropic plan", 0.1)):
        solution = solve_partial(cost, a=np.full(6, 1 / 3), mass=0.8, eps=eps, throw=False)
        good = solution.status.ok and 0 <= solution.gap <= CERTIFIED and solution.residuals.worst <= CERTIFIED
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
"""What to look at, under the name that a check which breaks is reported by."""
