"""Who proposes the next candidate of a sweep: all points of a list in turn, or Optuna (extra ``search``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from warmpot.errors import MissingExtraError
from warmpot.select.space import Range, Space

__all__ = ["Listed", "Proposer", "Searched"]

Seen = Sequence[tuple[dict[str, Any], float | None]]
"""Earlier points with their scores; None where there is none."""


class Proposer(Protocol):
    """Knows the points that were tried, also by a sweep that was stopped."""

    def propose(self) -> dict[str, Any] | None:
        """Return the next point, None when there are no more."""

    def learn(self, point: dict[str, Any], score: float | None) -> None:
        """Hear what became of a point."""


class Listed:
    """All points of a finite space in turn."""

    def __init__(self, space: Space, seen: Seen) -> None:
        known = [point for point, _ in seen]
        self._left = [point for point in space.points() if point not in known]

    def propose(self) -> dict[str, Any] | None:
        """Return the next point of the list."""
        return self._left.pop(0) if self._left else None

    def learn(self, point: dict[str, Any], score: float | None) -> None:
        """Nothing to learn."""


class Searched:
    """Points that Optuna's sampler proposes; the study lives in memory and hears of earlier trials again."""

    def __init__(self, space: Space, seen: Seen, trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            remedy = "Install it: pip install 'warmpot[search]', or list values instead of ranges and leave out trials."
            raise MissingExtraError("optuna", got="not installed", allowed="installed", remedy=remedy) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._space, self._left = optuna, space, trials - len(seen)
        sampler = optuna.samplers.TPESampler(seed=seed + len(seen), constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._asked: list[tuple[dict[str, Any], Any]] = []
        for point, score in seen:
            self._replay(point, score)

    def _distributions(self, block: int) -> dict[str, Any]:
        found = {"block": self._optuna.distributions.CategoricalDistribution(list(range(len(self._space.free))))}
        for name, value in self._space.free[block].items():
            found[f"{block}:{name}"] = self._distribution(value)
        return found

    def _distribution(self, value: list[Any] | Range) -> Any:
        kinds = self._optuna.distributions
        if isinstance(value, list):  # by number: Optuna takes plain values only
            return kinds.CategoricalDistribution(list(range(len(value))))
        if value.whole:
            return kinds.IntDistribution(int(value.low), int(value.high), log=value.log)
        return kinds.FloatDistribution(value.low, value.high, log=value.log)

    def _replay(self, point: dict[str, Any], score: float | None) -> None:
        block = point["block"]
        params: dict[str, Any] = {"block": block}
        for name, value in self._space.free[block].items():
            found = point[name]
            params[f"{block}:{name}"] = value.index(found) if isinstance(value, list) else found
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=params, distributions=self._distributions(block), value=score,
                state=states.FAIL if score is None else states.COMPLETE,
            )
        )  # fmt: skip

    def propose(self) -> dict[str, Any] | None:
        """Ask the sampler."""
        if self._left <= 0:
            return None
        self._left -= 1
        trial = self._study.ask()
        block = trial.suggest_categorical("block", list(range(len(self._space.free))))
        point: dict[str, Any] = {"block": block}
        for name, value in self._space.free[block].items():
            point[name] = _suggested(trial, f"{block}:{name}", value)
        self._asked.append((point, trial))
        return point

    def learn(self, point: dict[str, Any], score: float | None) -> None:
        """Tell the study."""
        place = next(k for k, (asked, _) in enumerate(self._asked) if asked is point)
        _, trial = self._asked.pop(place)
        self._study.tell(trial, score, state=None if score is not None else self._optuna.trial.TrialState.FAIL)


def _suggested(trial: Any, name: str, value: list[Any] | Range) -> Any:
    if isinstance(value, list):
        return value[trial.suggest_categorical(name, list(range(len(value))))]
    if value.whole:
        return trial.suggest_int(name, int(value.low), int(value.high), log=value.log)
    return trial.suggest_float(name, value.low, value.high, log=value.log)
