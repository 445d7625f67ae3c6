"""What the target sample has touched in a run: the one place that decides whether a bound for new samples is valid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot import _run_files as names

if TYPE_CHECKING:
    from warmpot.train.config import RunConfig

__all__ = ["TARGET_USE", "TargetUse", "recorded_use", "target_use"]

TARGET_USE = "target_use"
"""Where the record of a run has it."""


@dataclass(frozen=True)
class TargetUse:
    """What depends on the target samples of the training.

    Attributes
    ----------
    features : bool
        The features, or their scaling.
    iterate : bool
        Which iterate is the result.
    candidates : int or None
        How many settings, listed in advance, the target chose from; 1 if it did not choose, None if the settings that
        were tried depend on the target as well.
    """

    features: bool
    iterate: bool
    candidates: int | None = 1

    @property
    def reason(self) -> str:
        """Why a PAC-Bayes bound that takes the features as fixed is not valid; empty if it is."""
        if self.features:
            return "adapted features"
        if self.iterate:
            return "iterate chosen on the target"
        return "" if self.candidates is not None else "settings searched on the target"


def target_use(config: RunConfig) -> TargetUse:
    """Return what the target touches in a run with these settings, as this version trains it."""
    from warmpot.train.config import LAST

    return TargetUse(config.built_method.uses_target, config.choose != LAST, config.candidates)


def recorded_use(record: Mapping[str, Any], config: RunConfig | None, folder: Path | None) -> TargetUse:
    """Return what a run recorded. Older runs recorded nothing: there everything counts that may have been touched.

    Before it was recorded, target batches went through BatchNorm in source-only training, too; and the winner of a
    sweep, in the folder ``best`` next to ``study.json``, did not say that it was chosen.
    """
    written = record.get(TARGET_USE)
    if isinstance(written, Mapping):
        number = written.get("candidates")
        number = number if isinstance(number, int) and number > 0 else None
        return TargetUse(written.get("features") is not False, written.get("iterate") is not False, number)
    if config is None:
        return TargetUse(features=True, iterate=True, candidates=None)
    use = target_use(config)
    normalised = config.engine == "minibatch" and (config.minibatch.network.has_batch_norm or config.images is not None)
    swept = folder is not None and (folder.resolve().parent / names.STUDY).exists()
    return TargetUse(use.features or normalised, use.iterate, None if swept else use.candidates)
