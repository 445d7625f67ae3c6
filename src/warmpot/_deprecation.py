"""Names that have moved: they work for one more release, and say what to use instead."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["moved_names", "warn_deprecated"]


def warn_deprecated(old: str, new: str, *, stacklevel: int = 3) -> None:
    """Warn that a name goes away; `stacklevel` counts from here up to the line that used it."""
    message = f"{old} is deprecated and will be removed in the next release; use {new}"
    warnings.warn(message, DeprecationWarning, stacklevel=stacklevel)


def moved_names(module: str, moved: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for `module` that finds names in their new places, with a warning.

    `moved` has the new places as ``module:attribute``, by old name.

    Examples
    --------
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     moved_names("warmpot.old", {"nothing": "warmpot.errors:listing"})("nothing")(["a"])
    "'a'"
    """

    def find(name: str) -> Any:
        if name not in moved:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, attribute = moved[name].partition(":")
        warn_deprecated(f"{module}.{name}", f"{place}.{attribute}")
        return getattr(import_module(place), attribute)

    return find
