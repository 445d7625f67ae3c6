"""Choosing an iterate within a run: engines offer snapshots, a chooser says which to keep.

Choosers live above this room (`warmpot.select`). Without one the last iterate is the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor

from warmpot.nets import Network, Outputs

__all__ = ["Chooser", "Keeper", "Snapshot"]


class Snapshot(NamedTuple):
    """An iterate that could be the result.

    Attributes
    ----------
    step : int
        Rounds or steps done; 0 is the full engine's fit on the source alone.
    network : Network
        In evaluation mode, on the CPU, as it sees the target; `Network.for_source` is how it sees the source. It
        changes when training goes on.
    source, target : Outputs
        What it says of both domains.
    transport : float or None
        Cost of the last plan per unit of mass, in units of its own cost.
    """

    step: int
    network: Network
    source: Outputs
    target: Outputs
    transport: float | None


class Chooser(Protocol):
    """Sees every snapshot of one run in turn; there is no target label in any."""

    def offer(self, snapshot: Snapshot) -> tuple[bool, dict[str, Any]]:
        """Return whether it is the best so far, and what to log of it."""

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON can hold it."""

    def load(self, state: dict[str, Any]) -> None:
        """Undo `state`."""


class Keeper:
    """Holds the weights of the snapshot that the chooser liked best."""

    def __init__(self, chooser: Chooser | None) -> None:
        self.chooser = chooser
        self.step: int | None = None
        self._weights: dict[str, Tensor] = {}

    def offer(self, snapshot: Snapshot) -> dict[str, Any]:
        """Ask the chooser; return what to log."""
        if self.chooser is None:
            return {}
        better, line = self.chooser.offer(snapshot)
        if better:
            self.step = snapshot.step
            self._weights = {name: tensor.clone() for name, tensor in snapshot.network.state_dict().items()}
        return line

    def restore(self, network: Network) -> bool:
        """Put the kept weights into the network; False when there are none."""
        if self.step is None:
            return False
        network.load_state_dict(self._weights)
        return True

    def tensors(self) -> dict[str, Tensor]:
        """Return what a checkpoint holds of it, beside `facts`."""
        return {f"kept.{name}": tensor for name, tensor in self._weights.items()}

    def facts(self) -> dict[str, Any]:
        """Return the part of a checkpoint that is JSON."""
        return {"kept": {"step": self.step, "chooser": self.chooser.state()}} if self.chooser is not None else {}

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Undo `tensors` and `facts`."""
        if self.chooser is None or "kept" not in facts:
            return
        self.step = facts["kept"]["step"]
        self.chooser.load(facts["kept"]["chooser"])
        self._weights = {name[5:]: tensor for name, tensor in tensors.items() if name.startswith("kept.")}
