"""The exceptions and warnings of warmpot: what was wrong, what was given, what is allowed, and what to do about it."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

__all__ = [
    "DivergedError",
    "InfeasibleError",
    "InputError",
    "MissingColumnError",
    "MissingExtraError",
    "MissingLabelsError",
    "NotConvergedError",
    "WarmpotError",
    "WarmpotWarning",
    "explain",
    "listing",
    "translate",
]

_E = TypeVar("_E", bound="_Explained")
CODE = re.compile(r"`([^`]+)`")


def listing(names: Iterable[str], most: int = 5) -> str:
    """Show the first names, and how many more there are.

    Examples
    --------
    >>> listing(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    names = list(names)
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def translate(text: str, names: Mapping[str, str]) -> str:
    """Replace code between backticks that is a key of `names` by its value."""
    return CODE.sub(lambda code: names.get(code[1], code[0]), text)


class _Explained:
    """A message in four parts.

    Parameters
    ----------
    what : str
        The argument, file or setting that is wrong; or the whole message, when the other parts are left out.
    got : object
        What was given.
    allowed : str
        What can be given instead.
    remedy : str
        What to do, as sentences. Code that callers write differently, such as an argument that has a flag on the
        command line, is written between backticks, for `render` to translate.

    Examples
    --------
    >>> print(InputError("mass", got=-1.0, allowed="0 < mass <= 1", remedy="Pass a positive mass."))
    mass: got -1.0; allowed: 0 < mass <= 1. Pass a positive mass.
    """

    args: tuple[Any, ...]

    def __init__(self, what: str, *, got: object = None, allowed: str = "", remedy: str = "") -> None:
        # Exception keeps `what` in args, all that unpickling needs: the fields come back with the instance's __dict__.
        super().__init__(what)  # type: ignore[call-arg]
        self.what, self.got, self.allowed, self.remedy = what, got, allowed, remedy

    def __str__(self) -> str:
        return self.render()

    def render(self, names: Mapping[str, str] | None = None) -> str:
        """Write the message; `what`, and code between backticks, that is a key of `names` is replaced by its value.

        Examples
        --------
        >>> error = InputError("y", got="text", allowed="numbers", remedy="Pass `task='classification'`.")
        >>> error.render({"task='classification'": "no --regression"})
        'y: got text; allowed: numbers. Pass no --regression.'
        """
        what = (names or {}).get(self.what, self.what)
        if not self.allowed:
            return what
        text = f"{what}: got {self.got}; allowed: {self.allowed}. {self.remedy}"
        return translate(text, names or {})

    def within(self: _E, prefix: str) -> _E:
        """Return the same error with a prefix before `what`, for an argument that is part of something larger.

        Examples
        --------
        >>> print(InputError("lr", got=-1, allowed="> 0", remedy="Raise it.").within("optimizer."))
        optimizer.lr: got -1; allowed: > 0. Raise it.
        """
        error = copy.copy(self)
        error.what = prefix + self.what
        error.args = (error.what,)
        return error


class WarmpotError(_Explained, Exception):
    """Base class: ``except WarmpotError`` catches everything this library raises on purpose.

    Attributes
    ----------
    what, got, allowed, remedy
        The parts of the message.
    """


class InputError(WarmpotError, ValueError):
    """An argument, file or array cannot be used."""


class MissingColumnError(InputError):
    """A file has no column, or key, of the name that was asked for."""


class MissingLabelsError(MissingColumnError):
    """A file has no labels under the name that was asked for."""


class InfeasibleError(InputError):
    """More mass was asked for than can be moved.

    Attributes
    ----------
    mass : float
        The mass asked for.
    movable : float
        The largest mass that can be moved.
    """

    def __init__(self, what: str, *, mass: float = math.nan, movable: float = math.nan, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.mass, self.movable = mass, movable


class NotConvergedError(WarmpotError, RuntimeError):
    """A solver stopped before its tolerance; ``solution`` is its last result."""

    def __init__(self, what: str, *, solution: Any = None, **parts: Any) -> None:
        super().__init__(what, **parts)
        self.solution = solution


class DivergedError(WarmpotError, RuntimeError):
    """Training produced NaN or infinite numbers; the message contains the step and what to change."""


class MissingExtraError(WarmpotError, ImportError):
    """An optional package is not installed; the message names the extra that installs it."""


class WarmpotWarning(_Explained, UserWarning):
    """An input is valid but probably not what was meant; the message contains what was done instead."""


def explain(what: str, *, got: object, allowed: str, remedy: str) -> str:
    """Write a message in four parts; deprecated, the errors take the parts themselves."""
    from warmpot._deprecation import warn_deprecated

    warn_deprecated("warmpot.errors.explain", "InputError(what, got=..., allowed=..., remedy=...)")
    return str(WarmpotError(what, got=got, allowed=allowed, remedy=remedy))
