"""Iterates of a run: engines offer snapshots, and a chooser decides which one they return.

Choosers are made in `warmpot.select`. Without one the last iterate is the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from scipy.sparse import csr_array
from torch import Tensor, nn

from warmpot.nets import Backbone, Network, NetworkSettings, Outputs
from warmpot.transport import Solution
from warmpot.weights import ClassPresence

__all__ = ["Chooser", "ChosenIterate", "Snapshot", "Trained"]

FIRST = ("first.source", "first.target")
"""Names, in checkpoints, of the features of the first snapshot."""
COMPANION = "beside:"
"""Prefix, in checkpoints, of the tensors that are kept with those of the network."""
CHOSEN = "kept"
"""Key, in the facts of a checkpoint, of the iterate that the chooser prefers."""


class Snapshot(NamedTuple):
    """An iterate that could be the result, with its outputs.

    Step 0 is the full engine's fit on the source alone, or what a method that starts trained has before the first step.

    The network is in evaluation mode, on the CPU, as it is applied to the target; `Network.for_source` is applied to
    the source. It changes when training continues. `transport` is the cost of the last plan per unit of mass.
    `source_rows` are the samples that `source` has the outputs of; None: all. With a backbone, `first` are the features
    of source and target in the run's first snapshot: what all iterates have in common.
    """

    step: int
    network: Network
    source: Outputs
    target: Outputs
    transport: float | None
    source_rows: Tensor | None = None
    first: tuple[Tensor, Tensor] | None = None


class Trained(NamedTuple):
    """What an engine returns: of the iterate `step`, the network, the outputs of both domains, and weights.

    `plan` is that over all pairs; `training_weights` are what each source sample counted in training, and sum to 1;
    `presence` is the training's estimate of which classes are in the target, if it made one. `source_rows` are the
    samples that `source` has the outputs of; None: all. `unadapted` are the predictions of the target, class codes or
    values, by the fit on the source alone, and `unknown` the relative entropies of its class probabilities; None if the
    training had none. `agreement` is the share of the target that another classifier predicts the same.
    """

    network: Network
    settings: NetworkSettings
    history: list[dict[str, Any]]
    source: Outputs
    target: Outputs
    step: int
    plan: Solution[csr_array] | None
    training_weights: Tensor
    presence: ClassPresence | None = None
    source_rows: Tensor | None = None
    unadapted: Tensor | None = None
    unknown: Tensor | None = None
    agreement: float | None = None


class Chooser(Protocol):
    """Receives every snapshot of one run in turn; none holds target labels."""

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Return whether the snapshot is the best so far, and what to log about it."""

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON can hold it."""

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""


class ChosenIterate:
    """Holds the tensors of the snapshot that the chooser prefers.

    `companion` is what belongs to an iterate besides its network, such as weights: its state is kept and restored too.
    """

    def __init__(self, chooser: Chooser | None, companion: nn.Module) -> None:
        self.chooser, self._companion = chooser, companion
        self.step: int | None = None
        self._tensors: dict[str, Tensor] = {}
        self._first: tuple[Tensor, Tensor] | None = None

    def offer(self, snapshot: Snapshot, trained: Network | None = None) -> dict[str, Any]:
        """Ask the chooser; return what to log. `trained` is the network in training, if another one predicts."""
        if self.chooser is None:
            return {}
        if self._first is None and isinstance(snapshot.network.backbone, Backbone):
            self._first = snapshot.source.features.float(), snapshot.target.features.float()
        better, line = self.chooser.offer(snapshot._replace(first=self._first))
        if better:
            self.step = snapshot.step
            network = snapshot.network if trained is None else trained
            parts = {"": network.state_dict(), COMPANION: self._companion.state_dict()}
            self._tensors = {f"{p}{name}": tensor.clone() for p, part in parts.items() for name, tensor in part.items()}
        return line

    def restore(self, network: Network) -> None:
        """Put the kept tensors, if there are any, into the network and the companion."""
        if self.step is None:
            return
        parts: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for name, tensor in self._tensors.items():
            parts[name.startswith(COMPANION)][name.removeprefix(COMPANION)] = tensor
        network.load_state_dict(parts[0])
        self._companion.load_state_dict(parts[1])

    def tensors(self) -> dict[str, Tensor]:
        """Return the part of a checkpoint that is tensors."""
        first = {} if self._first is None else dict(zip(FIRST, self._first, strict=True))
        return {f"kept.{name}": tensor for name, tensor in self._tensors.items()} | first

    def facts(self) -> dict[str, Any]:
        """Return the part of a checkpoint that is JSON."""
        return {CHOSEN: {"step": self.step, "chooser": self.chooser.state()}} if self.chooser is not None else {}

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Undo `tensors` and `facts`."""
        if self.chooser is None or CHOSEN not in facts:
            return
        self.step = facts[CHOSEN]["step"]
        self.chooser.load(facts[CHOSEN]["chooser"])
        self._tensors = {name[5:]: tensor for name, tensor in tensors.items() if name.startswith("kept.")}
        if all(name in tensors for name in FIRST):
            self._first = tensors[FIRST[0]], tensors[FIRST[1]]
