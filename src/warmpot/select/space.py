"""What a sweep may try: blocks of settings, each fixed, one of several, or in a range."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmpot._settings import merged, with_value
from warmpot.errors import InputError, explain
from warmpot.train import RunConfig, load_config

__all__ = ["DEFAULT_SPACE", "Range", "Space"]

DEFAULT_SPACE: tuple[dict[str, Any], ...] = (
    {"preset": "full"},
    {"preset": "bound"},
    {"preset": "frozen"},
)
"""What is tried when nothing is said, beside the source-only reference of every sweep."""

Choices = Mapping[str, Any]
"""One point of a space: the number of its block, and a value for every setting of the block that is not fixed."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; whole numbers if both are; even in the logarithm with `log`."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (self.low, self.high))
        good = numbers and math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        if not good or (self.log and self.low <= 0):
            remedy = "Write it as {low: 0.1, high: 10, log: true}."
            got = f"low {self.low!r}, high {self.high!r}, log {self.log}"
            raise InputError(explain("range", got=got, allowed="low < high, above 0 with log", remedy=remedy))

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space:
    """Blocks of settings by dotted name, as ``params.alpha``; ``preset`` names the recipe that a block starts from.

    Parameters
    ----------
    blocks : mapping or sequence of mappings
        A value is a fixed setting, a list of choices, or a mapping with ``low``, ``high`` and maybe ``log``. Every
        candidate comes from one block, so methods with different settings can be compared.

    Examples
    --------
    >>> space = Space([{"preset": "source-only"}, {"preset": "full", "params.alpha": [0.5, 0.8]}])
    >>> list(space.points())
    [{'block': 0}, {'block': 1, 'params.alpha': 0.5}, {'block': 1, 'params.alpha': 0.8}]
    >>> space.config({"block": 1, "params.alpha": 0.5}, {}).params["alpha"]
    0.5
    """

    def __init__(self, blocks: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        found = [blocks] if isinstance(blocks, Mapping) else list(blocks)
        if not found or not all(isinstance(block, Mapping) for block in found):
            remedy = "Write a mapping such as `params.alpha: [0.5, 0.8]`, or a list of them."
            raise InputError(explain("space", got=repr(blocks), allowed="mappings of settings", remedy=remedy))
        self.fixed: list[dict[str, Any]] = []
        self.free: list[dict[str, list[Any] | Range]] = []
        for block in found:
            values = {str(name): _value(str(name), value) for name, value in block.items()}
            self.free.append({name: value for name, value in values.items() if isinstance(value, (list, Range))})
            self.fixed.append({name: value for name, value in values.items() if name not in self.free[-1]})
        self.check({})

    def check(self, changes: Mapping[str, Any]) -> None:
        """Refuse a wrong name or value before any work."""
        for point in itertools.islice(self._corners(), 1000):
            self.config(point, changes)

    @property
    def finite(self) -> bool:
        """Whether all points can be listed."""
        return not any(isinstance(value, Range) for block in self.free for value in block.values())

    def points(self) -> Iterator[dict[str, Any]]:
        """All points, block by block; a range has none."""
        for number, block in enumerate(self.free):
            lists = [value if isinstance(value, list) else [] for value in block.values()]
            for values in itertools.product(*lists):
                yield {"block": number, **dict(zip(block, values, strict=True))}

    def _corners(self) -> Iterator[dict[str, Any]]:
        """Points at the ends of all ranges and lists: enough to find a setting that is not allowed."""
        for number, block in enumerate(self.free):
            ends = [value if isinstance(value, list) else [value.low, value.high] for value in block.values()]
            for values in itertools.product(*ends):
                yield {"block": number, **dict(zip(block, values, strict=True))}

    def config(self, point: Choices, changes: Mapping[str, Any]) -> RunConfig:
        """Resolve the run of a point; `changes` win, as far as they are not part of the space."""
        named = {**self.fixed[point["block"]], **{name: value for name, value in point.items() if name != "block"}}
        preset = named.pop("preset", None)
        found: dict[str, Any] = dict(changes)
        for name, value in named.items():
            found = merged(found, with_value(name, value))
        return load_config(preset, changes=found)


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping) and {"low", "high"} <= set(value):
        unknown = set(value) - {"low", "high", "log"}
        if unknown:
            remedy = "Leave it out."
            raise InputError(explain(f"{name}.{sorted(unknown)[0]}", got="an unknown key", allowed="low, high, log",
                                     remedy=remedy))  # fmt: skip
        return Range(value["low"], value["high"], bool(value.get("log", False)))
    if isinstance(value, list) and not value:
        raise InputError(explain(name, got="an empty list", allowed="one value or more", remedy="Give some values."))
    return value
