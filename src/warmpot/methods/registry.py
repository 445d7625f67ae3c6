"""The methods and weightings by name: those of this package, and those that other packages register.

Every module of this package is imported, and the methods and weightings defined in it are known by their names: a new
one is a new file. Another package adds its own through entry points, in its ``pyproject.toml``:

    [project.entry-points."warmpot.methods"]
    mine = "my_package.my_module:MyMethod"

and likewise ``warmpot.weightings``. A script registers them with `register_method` and `register_weighting`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, TypeVar

from warmpot._settings import REGISTERING, from_mapping, nearest, suggestion
from warmpot.errors import InputError
from warmpot.methods.base import Component, Method
from warmpot.methods.warmpot import Warmpot
from warmpot.methods.weighting import Weighting

__all__ = ["DEFAULT_METHOD", "METHODS", "OWN", "WEIGHTINGS", "get_method", "get_weighting", "make_method",
           "make_weighting", "method_names", "register_method", "register_weighting", "weighting_names"]  # fmt: skip

METHODS: dict[str, type[Method[Any]]] = {}
"""The methods of this package, and those that a script has registered."""
WEIGHTINGS: dict[str, type[Weighting[Any]]] = {}
"""The weightings of this package, and those that a script has registered."""
DEFAULT_METHOD = Warmpot.name
OWN = "own"
"""The weights that a method computes itself, such as row sums of its own plan."""

C = TypeVar("C", bound=Component[Any])


@cache
def _installed(group: str) -> dict[str, Any]:
    """Return the entry points of a group by name; they are imported when they are used."""
    return {entry.name: entry for entry in entry_points(group=group)}


def _register(known: dict[str, type[C]], kind: type[C], what: str, cls: type[C]) -> type[C]:
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        remedy = f"Derive it from warmpot.methods.{kind.__name__}."
        raise InputError(what, got=repr(cls), allowed=f"a subclass of {kind.__name__}", remedy=remedy)
    if known.get(cls.name, cls).__qualname__ != cls.__qualname__:
        remedy = "Choose another name."
        raise InputError(what, got=f"{cls.name!r}, which is taken", allowed="a new name", remedy=remedy)
    known[cls.name] = cls
    return cls


def register_method(cls: type[Method[Any]]) -> type[Method[Any]]:
    """Make a method known under its name; usable as a decorator."""
    return _register(METHODS, Method, "method", cls)


def register_weighting(cls: type[Weighting[Any]]) -> type[Weighting[Any]]:
    """Make a weighting known under its name; usable as a decorator."""
    return _register(WEIGHTINGS, Weighting, "weights", cls)  # type: ignore[type-abstract]


def method_names() -> list[str]:
    """Return the names of all methods, those of other packages last."""
    return list(dict.fromkeys([*METHODS, *_installed("warmpot.methods")]))


def weighting_names() -> list[str]:
    """Return the names of all weightings, those of other packages last."""
    return list(dict.fromkeys([*WEIGHTINGS, *_installed("warmpot.weightings")]))


def get_method(name: str) -> type[Method[Any]]:
    """Return the class of a method; an unknown name is refused with the nearest known one."""
    _load("warmpot.methods", METHODS, name, register_method)
    return _lookup(METHODS, "method", name, method_names())


def get_weighting(name: str) -> type[Weighting[Any]]:
    """Return the class of a weighting; an unknown name is refused with the nearest known one."""
    _load("warmpot.weightings", WEIGHTINGS, name, register_weighting)
    return _lookup(WEIGHTINGS, "weights", name, [*weighting_names(), OWN])


def _load(group: str, known: Mapping[str, Any], name: str, register: Callable[[Any], Any]) -> None:
    """Register the entry point of a name that is not known yet, if there is one."""
    if name in known or name not in _installed(group):
        return
    try:
        cls = _installed(group)[name].load()
    except Exception as error:  # the other package may raise anything
        got = f"{name!r}, which fails to load ({type(error).__name__}: {error})"
        allowed, remedy = "a class that can be imported", "Repair or remove the package."
        raise InputError(f"entry point {group}", got=got, allowed=allowed, remedy=remedy) from error
    register(cls)


def _lookup(known: Mapping[str, type[C]], what: str, name: str, names: list[str]) -> type[C]:
    if name not in known:
        remedy = suggestion(str(name), names) + (f" {REGISTERING}" if what == "method" else "")
        raise InputError(what, got=repr(name), allowed=nearest(str(name), names), remedy=remedy)
    return known[name]


def make_method(name: str, params: Mapping[str, Any] | None = None) -> Method[Any]:
    """Make a method from its name and parameters; unknown ones are refused with the nearest known.

    Examples
    --------
    >>> make_method("warmpot", {"alpha": 0.5}).alpha
    0.5
    """
    return from_mapping(get_method(name), params or {}, "params")


def make_weighting(name: str, params: Mapping[str, Any] | None = None) -> Weighting[Any]:
    """Make a weighting from its name and parameters.

    Examples
    --------
    >>> make_weighting("class_share", {"hard": True}).hard
    True
    """
    return from_mapping(get_weighting(name), params or {}, "weight_params")


def _register_package() -> None:
    """Register what the modules of this package define, WARMPOT first."""
    package, folder = __name__.rpartition(".")[0], str(Path(__file__).parent)
    modules = sorted(f"{package}.{module.name}" for module in iter_modules([folder]))
    for name in sorted(modules, key=lambda name: name != Warmpot.__module__):
        for cls in vars(import_module(name)).values():
            if not isinstance(cls, type) or cls.__module__ != name or isabstract(cls) or "name" not in vars(cls):
                continue
            if issubclass(cls, Method):
                register_method(cls)
            elif issubclass(cls, Weighting):
                register_weighting(cls)


_register_package()
