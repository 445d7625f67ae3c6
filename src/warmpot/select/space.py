"""What a sweep may try: blocks of settings, each fixed, one of several, or in a range."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmpot._settings import merged, with_value
from warmpot.errors import InputError
from warmpot.select.registry import make_validator
from warmpot.train import RunConfig, load_config
from warmpot.train.config import LAST
from warmpot.train.recipes import DEFAULT, preset_for

__all__ = ["DEFAULT_SPACE", "REFERENCE", "Range", "Space"]

REFERENCE = "source-only"
"""The preset that every sweep tries first; its point is empty."""

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
            raise InputError("range", got=got, allowed="low < high, above 0 with log", remedy=remedy)

    @property
    def whole(self) -> bool:
        """Whether it holds whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space:
    """Blocks of settings by dotted name, as ``params.alpha``; ``preset`` names the recipe that a block starts from.

    Parameters
    ----------
    blocks : mapping or sequence of mappings
        A value is a fixed setting, a list of choices, or a mapping with ``low``, ``high`` and maybe ``log``; any other
        mapping holds the settings below its name. Every candidate comes from one block, so methods with different
        settings can be compared.

    Examples
    --------
    >>> space = Space([{"preset": "source-only"}, {"preset": "full", "params.alpha": [0.5, 0.8]}])
    >>> list(space.points())
    [{'block': 0}, {'block': 1, 'params.alpha': 0.5}, {'block': 1, 'params.alpha': 0.8}]
    >>> space.config({"block": 1, "params.alpha": 0.5}, {}).params["alpha"]
    0.5
    """

    def __init__(self, blocks: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        found = [blocks] if isinstance(blocks, Mapping) else blocks
        listed = isinstance(found, Sequence) and len(found) > 0
        if not listed or not all(isinstance(block, Mapping) for block in found):
            remedy = "Write a mapping such as `params.alpha: [0.5, 0.8]`, or a list of them."
            got = "nothing" if blocks is None else repr(blocks)
            raise InputError("space", got=got, allowed="mappings of settings", remedy=remedy)
        self.fixed: list[dict[str, Any]] = []
        self.free: list[dict[str, list[Any] | Range]] = []
        for block in found:
            values = dict(_settings(block, ""))
            self.free.append({name: value for name, value in values.items() if isinstance(value, (list, Range))})
            self.fixed.append({name: value for name, value in values.items() if name not in self.free[-1]})
        self.check({})

    def check(self, changes: Mapping[str, Any]) -> None:
        """Refuse a wrong name or value before any work."""
        for point in itertools.islice(self._corners(), 1000):
            try:
                choose = self.config(point, changes).choose
            except InputError as error:
                raise error.within(f"space, {self.name(point)}: ") from None
            if choose != LAST:
                make_validator(choose)

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

    def name(self, point: Choices) -> str:
        """Name a point in a few words: its preset and what sets it apart.

        Examples
        --------
        >>> Space({"params.alpha": {"low": 0.1, "high": 0.9}}).name({"block": 0, "params.alpha": 1 / 3})
        'full, params.alpha 0.333'
        """
        if not point:
            return f"{REFERENCE} (reference)"
        free, fixed = self.free[point["block"]], self.fixed[point["block"]]
        method = point.get("method", fixed.get("method"))
        preset = point.get("preset", fixed.get("preset")) or (preset_for(method) if method else DEFAULT)
        alike = sum(preset == block.get("preset", "full") for block in self.fixed) > 1
        shown = {name: f"{value}" for name, value in fixed.items() if alike}
        for name in free:
            ranged = isinstance(free[name], Range) and isinstance(point[name], float)
            shown[name] = f"{point[name]:.3g}" if ranged else f"{point[name]}"
        return ", ".join([preset, *(f"{name} {value}" for name, value in shown.items() if name != "preset")])

    def config(self, point: Choices, changes: Mapping[str, Any]) -> RunConfig:
        """Resolve the run of a point; `changes` win, as far as they are not part of the space."""
        named = {**self.fixed[point["block"]], **{name: value for name, value in point.items() if name != "block"}}
        preset = named.pop("preset", None)
        found: dict[str, Any] = dict(changes)
        for name, value in named.items():
            found = merged(found, with_value(name, value))
        return load_config(preset, changes=found)


def _settings(block: Mapping[Any, Any], above: str) -> Iterator[tuple[str, Any]]:
    """Yield dotted names with their values, lists and ranges."""
    for key, value in block.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and not {"low", "high"} & set(value):
            yield from _settings(value, f"{name}.")
            continue
        if isinstance(value, list) and not value:
            got, remedy = "an empty list", "Give some values."
            raise InputError(name, got=got, allowed="one value or more", remedy=remedy)
        yield name, _range(name, value) if isinstance(value, Mapping) else value


def _range(name: str, ends: Mapping[Any, Any]) -> Range:
    unknown = sorted(map(str, set(ends) - {"low", "high", "log"}))
    if unknown:
        remedy = "Leave it out."
        raise InputError(f"{name}.{unknown[0]}", got="an unknown key", allowed="low, high, log", remedy=remedy)
    if not {"low", "high"} <= set(ends):
        got, remedy = f"{next(end for end in ('low', 'high') if end in ends)} alone", "Give the other end too."
        raise InputError(name, got=got, allowed="low and high: a range needs low and high", remedy=remedy)
    try:
        return Range(ends["low"], ends["high"], bool(ends.get("log", False)))
    except InputError as error:
        raise error.within(f"{name}: ") from None
