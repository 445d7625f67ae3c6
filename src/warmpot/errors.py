"""The exceptions and warnings of warmpot, and the one form of their messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "DivergedError",
    "InfeasibleError",
    "InputError",
    "MissingExtraError",
    "NotConvergedError",
    "WarmpotError",
    "WarmpotWarning",
    "explain",
    "listing",
]


def explain(what: str, *, got: object, allowed: str, remedy: str) -> str:
    """Write a message in the house form: what, got, allowed, remedy.

    Examples
    --------
    >>> print(explain("mass", got=-1.0, allowed="0 < mass <= 1", remedy="Pass a positive mass."))
    mass: got -1.0; allowed: 0 < mass <= 1. Pass a positive mass.
    """
    return f"{what}: got {got}; allowed: {allowed}. {remedy}"


def listing(names: Iterable[str], most: int = 5) -> str:
    """Show the first names, and how many there are more.

    Examples
    --------
    >>> listing(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    names = list(names)
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


class WarmpotError(Exception):
    """Base class: ``except WarmpotError`` catches everything this library raises on purpose."""


class InputError(WarmpotError, ValueError):
    """An argument, file or array cannot be used; the message names what would be allowed."""


class InfeasibleError(InputError):
    """More mass was asked for than can be moved.

    Attributes
    ----------
    mass : float
        The mass asked for.
    movable : float
        The largest mass that can be moved.
    """

    def __init__(self, message: str, *, mass: float, movable: float) -> None:
        super().__init__(message)
        self.mass = mass
        self.movable = movable


class NotConvergedError(WarmpotError, RuntimeError):
    """A solver stopped before its tolerance; ``solution`` holds what it had reached."""

    def __init__(self, message: str, *, solution: Any) -> None:
        super().__init__(message)
        self.solution = solution


class DivergedError(WarmpotError, RuntimeError):
    """A training left the finite numbers; the message says at which step and what to change."""


class MissingExtraError(WarmpotError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


class WarmpotWarning(UserWarning):
    """Something can be used but is probably not what was meant; the message says what was done about it."""
