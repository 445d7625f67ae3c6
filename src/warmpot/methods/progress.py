"""How far a training is, and its phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from warmpot._checks import check_nonnegative

__all__ = ["Phase", "TrainProgress", "progress_at"]


@dataclass(frozen=True)
class Phase:
    """A part of a method's training with its own progress.

    Attributes
    ----------
    name : str
    share : float
        Share of the method's steps; the last phase takes what the others leave.
    frozen : tuple of str
        Parts of the network ("backbone", "bottleneck", "head") that are not trained in it, and stay in evaluation mode.
    adapts : bool
        Whether the target takes part.
    uses_source, uses_target : bool
        Whether the batches of a domain go through the network. If not, they do not change its BatchNorm statistics
        either, and `BatchContext.source` or `.target` has no rows; inputs, labels and rows are still there.
    keeps_statistics : bool
        Whether BatchNorm normalises by its running statistics, which stay as they are, whatever `images.backbone` says.
    restarts_decay : bool
        Whether the decay of the learning rate starts again with the phase.
    restarts_momentum : bool
        Whether momentum starts from zero with it, as in a new optimiser.
    separate : bool
        Whether it is like a training of its own: momentum starts from zero, and the learning rate decays as much as
        over a whole training, however short the phase is (SHOT++).
    """

    name: str
    share: float = 1.0
    frozen: tuple[str, ...] = ()
    adapts: bool = True
    uses_source: bool = True
    uses_target: bool = True
    keeps_statistics: bool = False
    restarts_decay: bool = False
    restarts_momentum: bool = False
    separate: bool = False

    def __post_init__(self) -> None:
        check_nonnegative("share", self.share, maximum=1.0)


class TrainProgress(NamedTuple):
    """Steps done, and all steps of a method; name, first step and end of its current phase.

    Steps on the source alone before the method starts are not counted.
    """

    step: int
    steps: int
    phase: str = ""
    phase_start: int = 0
    phase_end: int = 0

    @property
    def share(self) -> float:
        """Share of the training that is done, in [0, 1]."""
        return self.step / self.steps

    @property
    def phase_share(self) -> float:
        """Share of the phase that is done, in [0, 1]."""
        return (self.step - self.phase_start) / max(self.phase_end - self.phase_start, 1)

    @property
    def starts_phase(self) -> bool:
        """Whether this is the first step of a phase."""
        return self.step == self.phase_start

    def period(self, periods: int) -> int:
        """Return which of `periods` equal parts of the training this step is in, from 0.

        Examples
        --------
        >>> [TrainProgress(step, 10).period(4) for step in range(10)]
        [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
        """
        return self.step * periods // self.steps

    def starts_period(self, periods: int) -> bool:
        """Whether a period other than the first starts with this step."""
        return self.step > 0 and self.period(periods) > self._replace(step=self.step - 1).period(periods)


def progress_at(step: int, steps: int, phases: tuple[Phase, ...]) -> TrainProgress:
    """Return the progress at a step; a phase starts at the first step that is not before its share of the training.

    Examples
    --------
    >>> progress_at(3, 10, (Phase("warm", 0.3), Phase("adapt", 0.7)))
    TrainProgress(step=3, steps=10, phase='adapt', phase_start=3, phase_end=10)
    """
    starts, share = [0], 0.0
    for phase in phases[:-1]:
        share += phase.share
        start = min(int(share * steps), steps)
        starts.append(start if start >= steps or start / steps >= share else start + 1)
    index = max(k for k, start in enumerate(starts) if start <= step)
    return TrainProgress(step, steps, phases[index].name, starts[index], [*starts, steps][index + 1])
