"""The validators by name; not the oracle, which is made explicitly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warmpot._settings import from_mapping, suggestion
from warmpot.errors import InputError
from warmpot.select.base import Validator
from warmpot.select.predictions import Confusion, Entropy, Infomax, NuclearNorm, SoftNeighbourhood
from warmpot.select.source import DeepEmbedded, SourceAccuracy
from warmpot.select.structure import Neighbours, Reverse
from warmpot.select.transport import Bound, PlanValue, TransportValue

__all__ = ["DEFAULT_VALIDATOR", "VALIDATORS", "make_validator"]

_ALL: tuple[type[Validator], ...] = (
    *(SourceAccuracy, DeepEmbedded),
    *(Entropy, Infomax, NuclearNorm, Confusion, SoftNeighbourhood),
    *(Neighbours, Reverse),
    *(PlanValue, TransportValue, Bound),
)
DEFAULT_VALIDATOR = "neighbours"
"""The default validator; docs/selection.md has the comparison behind this choice."""
VALIDATORS: dict[str, type[Validator]] = {cls.name: cls for cls in _ALL}


def make_validator(name: str, params: Mapping[str, Any] | None = None) -> Validator:
    """Make a validator from its name and parameters.

    Examples
    --------
    >>> make_validator("snd", {"temperature": 0.1}).temperature
    0.1
    """
    if name not in VALIDATORS:
        remedy = suggestion(str(name), VALIDATORS)
        if name == "oracle":
            remedy = "The oracle needs target labels; it is only in Python, as warmpot.select.Oracle."
        raise InputError("validator", got=repr(name), allowed=", ".join(VALIDATORS), remedy=remedy)
    return from_mapping(VALIDATORS[name], params or {}, "params")
