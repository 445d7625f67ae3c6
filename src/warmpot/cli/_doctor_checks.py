"""What ``warmpot doctor`` checks: versions, devices, threads, caches, memory and two tiny plans; source and target."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import platform
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from warmpot._memory import GIB, available_memory
from warmpot.cli._shared import one_line
from warmpot.errors import WarmpotError, WarmpotWarning

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from warmpot._typing import FloatArray
    from warmpot.cli._data_files import DataFiles
    from warmpot.data import Table, Task
    from warmpot.nets.backbone import BackboneSettings

__all__ = ["CHECKS", "Finding", "check_data"]

logger = logging.getLogger(__name__)

LARGEST_SPREAD_RATIO = 100.0
"""Standard deviation of the widest feature over the median one; above this, one feature dominates distances."""
LARGEST_LENGTH_RATIO = 5.0
"""Median row length of one side over that of the other; above this, the two sides probably differ in units."""
LONG = 100.0  # row length above which mini-batch training on unscaled features tends to diverge
MAX_NAMED = 5  # number of broken images, or of features, that are named
LITTLE_MEMORY = 2.0  # in GiB. With less, the default blocks of distances (1 to 2 GiB) may not fit
LARGEST_GAP = 1e-8  # largest duality gap and residual accepted for a tiny plan whose costs are at most 1


class Finding(NamedTuple):
    """One line of the doctor: "ok", "warn" or "fail", what was checked, and the result with what to do about it."""

    level: str
    subject: str
    text: str


def _check_versions() -> Iterator[Finding]:
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


def _check_devices() -> Iterator[Finding]:
    import torch

    yield Finding("ok", "CPU", f"{_cpus()} of {os.cpu_count()} cores available, {platform.machine()}")
    if torch.cuda.is_available():
        names = sorted({torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())})
        yield Finding("ok", "CUDA", f"{torch.cuda.device_count()} x {', '.join(names)}")
    elif torch.backends.mps.is_available():
        yield Finding("ok", "MPS", "present, but not used: it lacks float64")
    else:
        yield Finding("ok", "GPU", "none; everything runs on the CPU")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check_threads() -> Iterator[Finding]:
    import torch
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    pools = {f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpool_info()}
    most = max([pool["num_threads"] for pool in threadpool_info()] + [torch.get_num_threads()])
    text = f"torch {torch.get_num_threads()}{''.join(f', {pool}' for pool in sorted(pools))}"
    if most > _cpus():
        yield Finding("warn", "threads", f"{text}: more than {_cpus()} cores. Set OMP_NUM_THREADS={_cpus()}")
    else:
        yield Finding("ok", "threads", text)


def _check_cache() -> Iterator[Finding]:
    """Check that compiled kernels can be cached."""
    from warmpot.transport.warmup import cache_folder

    folder = cache_folder()
    if folder is None:
        yield Finding("warn", "numba cache", "none: kernels are compiled again in every process. Set NUMBA_CACHE_DIR")
    elif not os.access(folder if folder.exists() else folder.parent, os.W_OK):
        text = f"{folder} is not writable: kernels are compiled in every process"
        yield Finding("warn", "numba cache", f"{text}. Set NUMBA_CACHE_DIR to a writable folder")
    else:
        yield Finding("ok", "numba cache", f"{folder} (filled by `warmpot warmup`)")


def check_memory() -> Iterator[Finding]:
    """Check that enough memory is free."""
    free = available_memory()
    if free is None:
        yield Finding("ok", "memory", "unknown on this system")
    elif free < LITTLE_MEMORY * GIB:
        text = f"{free / GIB:.1f} GiB free. Close other programs, or give `warmpot weights` a small --max-memory"
        yield Finding("warn", "memory", text)
    else:
        yield Finding("ok", "memory", f"{free / GIB:.1f} GiB free")


def _check_plans() -> Iterator[Finding]:
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
    "versions": _check_versions, "devices": _check_devices, "threads": _check_threads,
    "numba cache": _check_cache, "memory": check_memory, "plans": _check_plans,
}  # fmt: skip
"""All checks; a check that raises is reported under its name."""


def _check_network(backbone: BackboneSettings) -> Iterator[Finding]:
    """Check that the network of images and its weights can be loaded, without downloading anything."""
    from warmpot.nets.backbone import are_weights_here, build_backbone, train_from_names

    try:
        if not are_weights_here(backbone):
            text = f"the weights of {backbone.name} are not on this machine: a run downloads them"
            yield Finding("warn", "network", f"{text}. Without a connection, name a file with --backbone-weights")
            return
        built = build_backbone(backbone)
        blocks = ", ".join(train_from_names(backbone.name))
    except WarmpotError as error:
        yield Finding("fail", "network", one_line(error))
        return
    text = f"{backbone.name}: {built.width} features, weights {Path(backbone.weights).name}"
    yield Finding("ok", "network", f"{text}; blocks for --train-from: {blocks}")


def check_data(data: DataFiles, backbone: BackboneSettings) -> Iterator[Finding]:
    """Check what a training would be given."""
    tables: list[Table] = []
    try:
        of_images = data.of_images
    except WarmpotError as error:
        yield Finding("fail", "kinds", one_line(error))
        return
    for side in ("source", "target"):
        try:
            table = data.side(side)
        except WarmpotError as error:
            yield Finding("fail", side, one_line(error))
            continue
        if of_images:
            if side == "source":
                yield from _check_network(backbone)
            decoded = yield from _check_images(side, table)
            if decoded is None:
                continue
            table = decoded
        else:
            facts = f"{table.n} samples, {table.width} features, {table.x.dtype}, all finite"
            yield Finding("ok", side, f"{table.name}: {facts}")
        tables.append(table)
    if len(tables) == 2:
        yield from _check_pair(*tables)


def _check_images(side: str, table: Table) -> Generator[Finding, None, Table | None]:
    """Decode every image of a domain; return those that can be decoded, None without any."""
    from warmpot._progress import progress
    from warmpot.data.images import drop_samples
    from warmpot.data.pixels import Pixels, find_corrupt
    from warmpot.train.images import ImageSettings

    assert isinstance(table.x, Pixels)
    with progress(f"decoding {table.name}", logger, None) as report:
        bad = find_corrupt(table.x, ImageSettings().processes, report)
    yield Finding("ok", side, f"{table.name}: {table.n} images, {table.n - len(bad)} of them decoded")
    for row, reason in list(bad.items())[:MAX_NAMED]:
        yield Finding("fail", side, f"{table.names[row]}: {reason}. Replace it, or pass --corrupt skip")
    if len(bad) > MAX_NAMED:
        yield Finding("fail", side, f"{len(bad) - MAX_NAMED} more images are broken")
    if len(bad) == table.n:
        return None
    return drop_samples(table, sorted(bad)) if bad else table


def _check_pair(source: Table, target: Table) -> Iterator[Finding]:
    import numpy as np

    from warmpot.data import make_task

    names = list(_check_names(source, target))
    yield from names
    if any(finding.level == "fail" for finding in names):
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", WarmpotWarning)
        try:
            task, truth = make_task(source, target)
        except WarmpotError as error:
            yield Finding("fail", "task", one_line(error))
            return
    if task.xs.ndim == 2:
        yield Finding("ok", "widths", f"{task.width} features on both sides")
    if task.classes:
        counts = np.bincount(task.ys, minlength=task.n_classes)
        small, large = int(counts.argmin()), int(counts.argmax())
        text = f"the smallest, {task.classes[small]!r}, has {counts[small]} samples, "
        text += f"the largest, {task.classes[large]!r}, {counts[large]}"
        same = f"{counts[small]} source samples each"
        yield Finding("ok", "classes", f"{task.n_classes}; {same if counts[small] == counts[large] else text}")
    for warning in caught:
        yield Finding("warn", "classes", one_line(warning.message))
    unused = "present; training ignores them, only the accuracy at the end uses them"
    yield Finding("ok", "target labels", "none, as training expects" if truth is None else unused)
    if task.xs.ndim == 2:
        yield from _check_columns(task)
        # Adding 0 turns -0.0 into 0.0, which is equal but has other bits.
        xs, xt = ([row.tobytes() for row in np.ascontiguousarray(x + 0.0)] for x in task.arrays())
        yield _copies(xs, xt, "row")
        yield from _check_scale(task)
    else:
        yield _copies(_file_hashes(source), _file_hashes(target), "image")


def _check_names(source: Table, target: Table) -> Iterator[Finding]:
    """Compare the column names, if there are any."""
    from warmpot.data.task import match_columns

    try:
        match_columns(target, source.columns, f"the columns of {source.name}")
    except WarmpotError as error:
        yield Finding("fail", "names", one_line(error))
        return
    if bool(source.columns) != bool(target.columns):
        side = "source" if source.columns else "target"
        text = f"only the {side} has column names, so columns are matched by position. Check that the order is the same"
        yield Finding("warn", "names", text)
    elif source.columns != target.columns:
        yield Finding("ok", "names", "the same columns in another order; they are matched by name")
    elif source.columns:
        yield Finding("ok", "names", f"the same {len(source.columns)} columns in the same order")


def _check_columns(task: Task) -> Iterator[Finding]:
    """Find features that never change, on both sides or on one of them."""
    still = [(x == x[:1]).all(axis=0) for x in task.arrays()]
    both, one = still[0] & still[1], still[0] ^ still[1]
    if both.any():
        text = f"{_columns(task, both)} constant on both sides, without information. Leave out what is constant"
        yield Finding("warn", "constant", text)
    if one.any():
        text = f"{_columns(task, one)} constant on one side only. Check that both sides were computed in the same way"
        yield Finding("warn", "constant", text)
    if not both.any() and not one.any():
        yield Finding("ok", "constant", "none of the features")


def _columns(task: Task, which: FloatArray) -> str:
    """Name some features, by their columns or by their numbers, as the beginning of a sentence."""
    indices = [int(k) for k in which.nonzero()[0]]
    names = [repr(task.columns[k]) if task.columns else str(k) for k in indices[:MAX_NAMED]]
    shown = ", ".join(names) + (" ..." if len(indices) > MAX_NAMED else "")
    counted = "" if task.columns else "; counted from 0"
    number, verb = ("1 feature", "is") if len(indices) == 1 else (f"{len(indices)} features", "are")
    return f"{number} ({shown}{counted}) {verb}"


def _file_hashes(table: Table) -> list[str]:
    from warmpot.data.pixels import Pixels

    assert isinstance(table.x, Pixels)
    return [hashlib.sha256(Path(table.x.name(item)).read_bytes()).hexdigest() for item in table.x.items]


def _copies(source: Sequence[Hashable], target: Sequence[Hashable], thing: str) -> Finding:
    """Count target samples that are also source samples."""
    same = sum(map(set(source).__contains__, target))
    if same == len(target):
        return Finding("fail", "duplicates", f"every target {thing} is also a source {thing}. Name two different files")
    if same:
        share = f"{same} of {len(target)} target {thing}s ({same / len(target):.0%})"
        text = f"{share} are also source {thing}s. Drop them, or accuracies will be too high"
        return Finding("warn", "duplicates", text)
    return Finding("ok", "duplicates", f"no target {thing} is a source {thing}")


def _check_scale(task: Task) -> Iterator[Finding]:
    """Compare the standard deviations of features, and the lengths of rows."""
    import numpy as np

    from warmpot.nets.network import NARROW

    spread = np.sqrt(np.mean(np.stack([x.std(axis=0, dtype=np.float64) ** 2 for x in task.arrays()]), axis=0))
    moving = spread[spread > 0]
    ratio = float(moving.max() / np.median(moving)) if len(moving) else 1.0
    if ratio > LARGEST_SPREAD_RATIO:
        text = f"feature {int(spread.argmax())} varies {ratio:.0f} times as much as the median one, and dominates"
        remedy = "Standardize columns over both sides, for `weights` and for presets that do not scale features"
        if task.width < NARROW:
            remedy += "; full and frozen do so automatically (scale auto)"
        yield Finding("warn", "spread", f"{text} distances. {remedy}")
    else:
        yield Finding("ok", "spread", f"the most variable feature varies {ratio:.1f} times as much as the median one")
    lengths = [float(np.median(np.linalg.norm(x.astype(np.float64), axis=1))) for x in task.arrays()]
    text = f"median length {lengths[0]:.3g} (source), {lengths[1]:.3g} (target)"
    low, high = sorted(lengths)
    if high > LARGEST_LENGTH_RATIO * low:
        yield Finding("warn", "rows", f"{text}: different units? Compute both sides the same way")
    elif high > LONG:
        remedy = f"use preset full or frozen, which scale features automatically, or divide by {high:.0f}"
        yield Finding("warn", "rows", f"{text}: {remedy}")
    else:
        yield Finding("ok", "rows", text)
