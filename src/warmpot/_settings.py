"""Settings: frozen dataclasses from plain mappings with checks, and back."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from warmpot.errors import InputError

__all__ = ["REGISTERING", "from_mapping", "merged", "nearest", "suggestion", "to_mapping", "with_value"]

T = TypeVar("T")
MANY, SHOWN = 12, 5
"""Of more names than the first number, a message lists the second number."""
REGISTERING = "One of your own is registered by an entry point (warmpot.methods), or by a script (register_method)."
"""Remedy for a method that is not known."""


def suggestion(word: str, known: typing.Iterable[str]) -> str:
    """Return the remedy for an unknown name: the closest known one."""
    known = list(known)
    if not known:
        return "Leave it out."
    close = get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else "Choose one of these."


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """List known names; of many only those closest to an unknown one."""
    known = list(known)
    if len(known) <= MANY:
        return ", ".join(known)
    return f"{', '.join(get_close_matches(word, known, n=SHOWN, cutoff=0.0))} and {len(known) - SHOWN} more"


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_mapping(cls: type[T], mapping: Mapping[str, Any], where: str) -> T:
    """Make a dataclass from a mapping (named `where` in messages); keys must be fields, values of their types.

    Fields are bool, int, float, str, each optional or with literal words (``float | Literal["auto"]``), a mapping or
    another such dataclass.
    """
    if not isinstance(mapping, Mapping):
        remedy = "Write `name: value` lines."
        raise InputError(where, got=repr(mapping), allowed="a mapping of settings", remedy=remedy)
    hints = _hints(cls)  # type: ignore[arg-type]
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for key in mapping:
        if key not in names:
            allowed, remedy = ", ".join(names) or "none", suggestion(str(key), names)
            raise InputError(f"{where}.{key}", got="an unknown setting", allowed=allowed, remedy=remedy)
    values = {key: _converted(hints[key], value, f"{where}.{key}") for key, value in mapping.items()}
    try:
        return cls(**values)
    except InputError as error:
        raise error.within(f"{where}.") from None
    except TypeError as error:  # a field without default is missing
        remedy = "Give every setting that has no default."
        raise InputError(where, got=str(error), allowed=", ".join(names), remedy=remedy) from error


def _converted(hint: Any, value: Any, where: str) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if value is None and type(None) in options:
        return None
    literal_types = [option for option in options if typing.get_origin(option) is typing.Literal]
    literals = [literal for option in literal_types for literal in typing.get_args(option)]
    if isinstance(value, str) and value in literals:
        return value
    hint = next(option for option in options if option is not type(None))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else from_mapping(hint, value, where)
    wanted = typing.get_origin(hint) or hint
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is float and isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            return float(value)
        except ValueError:
            pass
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        allowed = {"Mapping": "a mapping"}.get(wanted.__name__, f"a value of type {wanted.__name__}")
        allowed = " or ".join([allowed, *map(repr, literals)])
        raise InputError(where, got=repr(value), allowed=allowed, remedy="Correct the setting.")
    return dict(value) if isinstance(value, Mapping) else value


def to_mapping(settings: Any) -> dict[str, Any]:
    """Return settings as plain dictionaries for YAML and JSON, without computed fields."""

    def plain(value: Any) -> Any:
        if dataclasses.is_dataclass(value):
            return to_mapping(value)
        if isinstance(value, Mapping):
            return {key: plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return {each.name: plain(getattr(settings, each.name)) for each in dataclasses.fields(settings) if each.init}


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` applied, deeply.

    Examples
    --------
    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def with_value(path: str, value: Any) -> dict[str, Any]:
    """Nest a value under a dotted path.

    Examples
    --------
    >>> with_value("minibatch.steps", 100)
    {'minibatch': {'steps': 100}}
    """
    for key in reversed(path.split(".")):
        value = {key: value}
    return value  # type: ignore[no-any-return]
