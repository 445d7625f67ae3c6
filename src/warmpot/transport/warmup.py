"""Compiling all kernels ahead of their first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from warmpot.transport.large import solve_partial_points
from warmpot.transport.solve import partial_path, solve_partial
from warmpot.transport.unbalanced import solve_unbalanced

__all__ = ["cache_folder", "kernels", "warmup"]


def warmup() -> Iterator[str]:
    """Compile the kernels by solving small problems; yields the name of each kind of solver once it is done.

    Kernels are kept on disk (`cache_folder`): processes that start later load them. Not compiled are those in float32,
    for 1e8 pairs of points and more, which take longer than their compilation.
    """
    from warmpot.transport._kernels import augment_to, smallest_entries

    rng = np.random.default_rng(0)
    cost, xs, xt = rng.random((7, 5)), rng.random((40, 3)), rng.random((30, 3))
    forbidden = np.where(cost > 0.9, np.inf, cost)
    solvers: dict[str, Callable[[], Any]] = {
        "exact": lambda: solve_partial(cost, mass=0.5),
        "all masses": lambda: partial_path(cost, beta=0.5),
        "points": lambda: solve_partial_points(xs, xt, beta=0.5, mass=0.5),
        "neighbours": lambda: smallest_entries(cost, np.empty((7, 2), np.int64)),
        "forbidden pairs": lambda: augment_to(0.0 * cost, np.zeros((5, 7)), np.ones(7), np.ones(5), 1.0),
        "entropic": lambda: [solve_partial(c, mass=0.5, eps=0.1) for c in (cost, forbidden)],
        "unbalanced": lambda: solve_unbalanced(cost, tau=1.0, eps=0.1),
    }
    for name, solve in solvers.items():
        solve()
        yield name


def kernels() -> dict[str, Any]:
    """Return the compiled functions that Python calls, by module and name."""
    from warmpot.transport import _entropic_whole, _exact_small, _kernels, _unbalanced

    modules: tuple[ModuleType, ...] = (_entropic_whole, _exact_small, _kernels, _unbalanced)
    found = ((module, name, getattr(module, name)) for module in modules for name in module.__all__)
    return {
        f"{module.__name__}.{name}": value
        for module, name, value in found
        if hasattr(value, "signatures") and not value.targetoptions.get("no_cpython_wrapper")  # a part of kernels
    }


def cache_folder() -> Path | None:
    """Return the folder that keeps compiled kernels; None if numba finds none to write to."""
    paths = (value.stats.cache_path for value in kernels().values())
    return next((Path(path) for path in paths if path), None)
