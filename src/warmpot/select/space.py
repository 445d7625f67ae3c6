"""What a sweep tries: blocks of fixed settings, lists and ranges, proposed in turn or by Optuna (extra ``search``)."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warmpot._settings import merged, with_value
from warmpot.errors import InputError, MissingExtraError
from warmpot.select.validators import make_validator
from warmpot.train import RunConfig, load_config
from warmpot.train.config import LAST
from warmpot.train.recipes import DEFAULT, preset_for

__all__ = ["DEFAULT_SPACE", "REFERENCE", "GridProposer", "OptunaProposer", "Point", "Range", "Space"]

REFERENCE = "source-only"
"""The preset that every sweep tries first; its point is empty."""
DEFAULT_SPACE: tuple[dict[str, Any], ...] = ({"preset": "full"}, {"preset": "bound"}, {"preset": "frozen"})
"""What a sweep tries by default, after the reference."""
MAX_CHECKED = 1000
"""Number of points that are checked before a sweep starts: a longer check would delay it noticeably."""

Point = dict[str, Any]
"""The number of a block (key ``block``), and a value for every setting of the block that is not fixed."""


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, integers if both are; uniform in the logarithm if `log`."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (self.low, self.high))
        valid = numbers and math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high
        if not valid or (self.log and self.low <= 0):
            remedy = "Write it as {low: 0.1, high: 10, log: true}."
            got = f"low {self.low!r}, high {self.high!r}, log {self.log}"
            raise InputError("range", got=got, allowed="low < high, above 0 with log", remedy=remedy)

    @property
    def whole(self) -> bool:
        """Whether the numbers are integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)


class Space:
    """Blocks of settings by dotted name, as ``params.alpha``; ``preset`` names the recipe that a block starts from.

    Parameters
    ----------
    blocks : mapping or sequence of mappings
        A value is a fixed setting, a list of choices, or a range: a mapping with ``low``, ``high`` and optionally
        ``log``. Any other mapping holds nested settings. Every candidate comes from one block, so methods with
        different settings can be compared.
    changes : mapping, optional
        Nested settings of all candidates, unless a block sets them.

    Examples
    --------
    >>> space = Space([{"preset": "source-only"}, {"preset": "full", "params.alpha": [0.5, 0.8]}])
    >>> list(space.points())
    [{'block': 0}, {'block': 1, 'params.alpha': 0.5}, {'block': 1, 'params.alpha': 0.8}]
    >>> space.config({"block": 1, "params.alpha": 0.5}).params["alpha"]
    0.5
    """

    def __init__(
        self, blocks: Mapping[str, Any] | Sequence[Mapping[str, Any]], changes: Mapping[str, Any] | None = None
    ) -> None:
        block_list = [blocks] if isinstance(blocks, Mapping) else blocks
        nonempty = isinstance(block_list, Sequence) and len(block_list) > 0
        if not nonempty or not all(isinstance(block, Mapping) for block in block_list):
            remedy = "Write a mapping such as `params.alpha: [0.5, 0.8]`, or a list of them."
            got = "nothing" if blocks is None else repr(blocks)
            raise InputError("space", got=got, allowed="mappings of settings", remedy=remedy)
        self.fixed: list[dict[str, Any]] = []
        self.free: list[dict[str, list[Any] | Range]] = []
        for block in block_list:
            values = dict(_flatten(block, ""))
            self.free.append({name: value for name, value in values.items() if isinstance(value, (list, Range))})
            self.fixed.append({name: value for name, value in values.items() if name not in self.free[-1]})
            if "holdout" in values:  # the scores would depend on samples that are meant for a certificate
                allowed, remedy = "the same for all candidates", "Give it once: `--set holdout=0.3`."
                raise InputError("space: holdout", got="a setting to try", allowed=allowed, remedy=remedy)
        self._changes = dict(changes or {})
        self._configs: dict[str, RunConfig] = {}
        for point in itertools.islice(self._combinations(ends=True), MAX_CHECKED):
            try:
                choose = self.config(point).choose
            except InputError as error:
                raise error.within(f"space, {self.name(point)}: ") from None
            if choose != LAST:
                make_validator(choose)

    @property
    def finite(self) -> bool:
        """Whether all points can be listed."""
        return not any(isinstance(values, Range) for block in self.free for values in block.values())

    def points(self) -> Iterator[Point]:
        """Yield all points, block by block; a block with a range has none."""
        return self._combinations(ends=False)

    def _combinations(self, *, ends: bool) -> Iterator[Point]:
        """Yield all combinations of values; of a range, both ends or nothing."""
        for number, block in enumerate(self.free):
            lists = [
                values if isinstance(values, list) else [values.low, values.high] * ends for values in block.values()
            ]
            for combination in itertools.product(*lists):
                yield {"block": number, **dict(zip(block, combination, strict=True))}

    def name(self, point: Point) -> str:
        """Describe a point in a few words: its preset and what distinguishes it.

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
        ambiguous = sum(preset == block.get("preset", "full") for block in self.fixed) > 1
        shown = {name: f"{value}" for name, value in fixed.items() if ambiguous}
        for name in free:
            rounded = isinstance(free[name], Range) and isinstance(point[name], float)
            shown[name] = f"{point[name]:.3g}" if rounded else f"{point[name]}"
        return ", ".join([preset, *(f"{name} {value}" for name, value in shown.items() if name != "preset")])

    def config(self, point: Point) -> RunConfig:
        """Return the settings of a point, resolved once."""
        key = json.dumps(point, default=repr)
        if key not in self._configs:
            settings = {**self.fixed[point["block"]], **point}
            del settings["block"]
            preset, changes = settings.pop("preset", None), self._changes
            for name, value in settings.items():
                changes = merged(changes, with_value(name, value))
            self._configs[key] = load_config(preset, changes=changes)
        return self._configs[key]


def _flatten(block: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in block.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and not {"low", "high"} & set(value):
            yield from _flatten(value, f"{name}.")
            continue
        if isinstance(value, list) and not value:
            raise InputError(name, got="an empty list", allowed="one value or more", remedy="Give some values.")
        yield name, _range(name, value) if isinstance(value, Mapping) else value


def _range(name: str, ends: Mapping[Any, Any]) -> Range:
    unknown = sorted(map(str, set(ends) - {"low", "high", "log"}))
    if unknown:
        remedy = "Leave it out."
        raise InputError(f"{name}.{unknown[0]}", got="an unknown key", allowed="low, high, log", remedy=remedy)
    if not {"low", "high"} <= set(ends):
        got, remedy = f"{'low' if 'low' in ends else 'high'} alone", "Give the other end too."
        raise InputError(name, got=got, allowed="low and high: a range needs low and high", remedy=remedy)
    try:
        return Range(ends["low"], ends["high"], bool(ends.get("log", False)))
    except InputError as error:
        raise error.within(f"{name}: ") from None


ScoredPoints = Sequence[tuple[Point, float | None]]
"""Earlier points with their scores; None if a point has no score."""


class GridProposer:
    """Proposes all points of a finite space in turn, except those that were tried before."""

    def __init__(self, space: Space, tried: ScoredPoints) -> None:
        known = [point for point, _ in tried]
        self._remaining = [point for point in space.points() if point not in known]

    def propose(self) -> Point | None:
        """Return the next point; None if there are no more."""
        return self._remaining.pop(0) if self._remaining else None

    def learn(self, point: Point, score: float | None) -> None:
        """Do nothing: the order of the list is fixed."""


class OptunaProposer:
    """Proposes points by Optuna's TPE sampler; its study is in memory and is rebuilt from earlier trials."""

    def __init__(self, space: Space, tried: ScoredPoints, trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            remedy = "Install it: pip install 'warmpot[search]', or list values instead of ranges and leave out trials."
            raise MissingExtraError("optuna", got="not installed", allowed="installed", remedy=remedy) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._space, self._remaining = optuna, space, trials - len(tried)
        sampler = optuna.samplers.TPESampler(seed=seed + len(tried), constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._pending: list[tuple[Point, Any]] = []
        for point, score in tried:
            self._replay(point, score)

    def _distributions(self, block: int) -> dict[str, Any]:
        """Return Optuna's distributions of a block's settings; lists by index, since Optuna takes plain values only."""
        kinds = self._optuna.distributions
        distributions: dict[str, Any] = {"block": kinds.CategoricalDistribution(range(len(self._space.free)))}
        for name, values in self._space.free[block].items():
            if isinstance(values, Range):
                kind = kinds.IntDistribution if values.whole else kinds.FloatDistribution
                distributions[f"{block}:{name}"] = kind(values.low, values.high, log=values.log)
            else:
                distributions[f"{block}:{name}"] = kinds.CategoricalDistribution(range(len(values)))
        return distributions

    def _replay(self, point: Point, score: float | None) -> None:
        block = point["block"]
        params: dict[str, Any] = {"block": block}
        for name, values in self._space.free[block].items():
            params[f"{block}:{name}"] = values.index(point[name]) if isinstance(values, list) else point[name]
        states = self._optuna.trial.TrialState
        state = states.FAIL if score is None else states.COMPLETE
        distributions = self._distributions(block)
        trial = self._optuna.trial.create_trial(params=params, distributions=distributions, value=score, state=state)
        self._study.add_trial(trial)

    def propose(self) -> Point | None:
        """Return the next point; None after the last trial."""
        if self._remaining <= 0:
            return None
        self._remaining -= 1
        trial = self._study.ask()
        block = trial.suggest_categorical("block", range(len(self._space.free)))
        point: Point = {"block": block}
        for name, values in self._space.free[block].items():
            key = f"{block}:{name}"
            if isinstance(values, list):
                point[name] = values[trial.suggest_categorical(key, range(len(values)))]
            elif values.whole:
                point[name] = trial.suggest_int(key, int(values.low), int(values.high), log=values.log)
            else:
                point[name] = trial.suggest_float(key, values.low, values.high, log=values.log)
        self._pending.append((point, trial))
        return point

    def learn(self, point: Point, score: float | None) -> None:
        """Report the score of a proposed point to Optuna."""
        index = next(k for k, (proposed, _) in enumerate(self._pending) if proposed is point)
        _, trial = self._pending.pop(index)
        self._study.tell(trial, score, state=None if score is not None else self._optuna.trial.TrialState.FAIL)


Proposer = GridProposer | OptunaProposer
