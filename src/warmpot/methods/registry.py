"""The methods by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmpot._settings import from_mapping, suggestion
from warmpot.errors import InputError, explain
from warmpot.methods.base import Method
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot

__all__ = ["METHODS", "make_method"]

METHODS: dict[str, type[Method]] = {cls.name: cls for cls in (Warmpot, SourceOnly)}


def make_method(name: str, params: Mapping[str, Any] | None = None) -> Method:
    """Make a method from its name and parameters; unknown ones are refused with the nearest known.

    Examples
    --------
    >>> make_method("warmpot", {"alpha": 0.5}).alpha
    0.5
    """
    if name not in METHODS:
        allowed = ", ".join(METHODS)
        raise InputError(explain("method", got=repr(name), allowed=allowed, remedy=suggestion(str(name), METHODS)))
    return from_mapping(METHODS[name], params or {}, "params")
