"""The methods and weightings by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from warmpot._settings import from_mapping, suggestion
from warmpot.errors import InputError
from warmpot.methods.ar import Ar
from warmpot.methods.arpm import Arpm
from warmpot.methods.ba3us import Ba3us
from warmpot.methods.base import Method, Part
from warmpot.methods.critic_weighting import Capped, Chi2Ball
from warmpot.methods.jumbot import Jumbot
from warmpot.methods.mpot import Mpot
from warmpot.methods.pwan import Pwan
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.warmpot import Warmpot
from warmpot.methods.weighting import ClassShare, Plan, Uniform, Weighting

__all__ = ["METHODS", "OWN", "WEIGHTINGS", "make_method", "make_weighting"]

METHODS: dict[str, type[Method]] = {cls.name: cls for cls in (Warmpot, Mpot, Jumbot, Ba3us, Pwan, Ar, Arpm, SourceOnly)}
WEIGHTINGS: dict[str, type[Weighting]] = {cls.name: cls for cls in (Uniform, ClassShare, Chi2Ball, Capped, Plan)}
OWN = "own"
"""The weighting of a method by row sums of its own plan."""

P = TypeVar("P", bound=Part)


def _made(known: Mapping[str, type[P]], what: str, name: str, params: Mapping[str, Any], where: str) -> P:
    if name not in known:
        names = [*known, OWN] if what == "weights" else list(known)
        remedy = suggestion(str(name), names)
        raise InputError(what, got=repr(name), allowed=", ".join(names), remedy=remedy)
    return from_mapping(known[name], params, where)


def make_method(name: str, params: Mapping[str, Any] | None = None) -> Method:
    """Make a method from its name and parameters; unknown ones are refused with the nearest known.

    Examples
    --------
    >>> make_method("warmpot", {"alpha": 0.5}).alpha
    0.5
    """
    return _made(METHODS, "method", name, params or {}, "params")


def make_weighting(name: str, params: Mapping[str, Any] | None = None) -> Weighting:
    """Make a weighting from its name and parameters.

    Examples
    --------
    >>> make_weighting("class_share", {"hard": True}).hard
    True
    """
    return _made(WEIGHTINGS, "weights", name, params or {}, "weight_params")
