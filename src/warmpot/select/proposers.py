"""Proposers of the next candidate of a sweep: a list in turn, or Optuna (extra ``search``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from warmpot.errors import MissingExtraError
from warmpot.select.space import Point, Range, Space

__all__ = ["GridProposer", "OptunaProposer", "Proposer"]

ScoredPoints = Sequence[tuple[Point, float | None]]
"""Earlier points with their scores; None if a point has no score."""


class Proposer(Protocol):
    """Proposes points; knows those that were tried, also by an interrupted sweep."""

    def propose(self) -> Point | None:
        """Return the next point, None if there are no more."""

    def learn(self, point: Point, score: float | None) -> None:
        """Receive the score of a proposed point."""


class GridProposer:
    """Proposes all points of a finite space in turn."""

    def __init__(self, space: Space, tried: ScoredPoints) -> None:
        known = [point for point, _ in tried]
        self._remaining = [point for point in space.points() if point not in known]

    def propose(self) -> Point | None:
        """Return the next point of the list."""
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
        distributions: dict[str, Any] = {}
        for name, values in self._space.free[block].items():
            if isinstance(values, Range):
                kind = kinds.IntDistribution if values.whole else kinds.FloatDistribution
                distributions[f"{block}:{name}"] = kind(values.low, values.high, log=values.log)
            else:
                distributions[f"{block}:{name}"] = kinds.CategoricalDistribution(range(len(values)))
        return distributions

    def _replay(self, point: Point, score: float | None) -> None:
        block = point["block"]
        blocks = self._optuna.distributions.CategoricalDistribution(range(len(self._space.free)))
        params: dict[str, Any] = {"block": block}
        for name, values in self._space.free[block].items():
            params[f"{block}:{name}"] = values.index(point[name]) if isinstance(values, list) else point[name]
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                params=params, distributions={"block": blocks, **self._distributions(block)}, value=score,
                state=states.FAIL if score is None else states.COMPLETE,
            )
        )  # fmt: skip

    def propose(self) -> Point | None:
        """Ask the sampler."""
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
        """Report the score to Optuna."""
        index = next(k for k, (proposed, _) in enumerate(self._pending) if proposed is point)
        _, trial = self._pending.pop(index)
        self._study.tell(trial, score, state=None if score is not None else self._optuna.trial.TrialState.FAIL)
