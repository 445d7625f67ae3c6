"""Choosing an iterate within a run: engines offer snapshots, a chooser says which to keep.

Choosers live above this room (`warmpot.select`). Without one the last iterate is the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from warmpot.nets import Network, Outputs

__all__ = ["Chooser", "ChosenIterate", "Snapshot"]

BESIDE = "beside:"
"""Marks the names of what is kept beside the network."""


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


class ChosenIterate:
    """Holds the weights of the snapshot that the chooser liked best.

    Parameters
    ----------
    chooser : Chooser or None
    beside : torch.nn.Module, optional
        What belongs to an iterate besides its network: its state is kept and restored with it.
    """

    def __init__(self, chooser: Chooser | None, beside: nn.Module | None = None) -> None:
        self.chooser, self._beside = chooser, beside
        self.step: int | None = None
        self._weights: dict[str, Tensor] = {}

    def offer(self, snapshot: Snapshot) -> dict[str, Any]:
        """Ask the chooser; return what to log."""
        if self.chooser is None:
            return {}
        better, line = self.chooser.offer(snapshot)
        if better:
            self.step = snapshot.step
            parts = {"": snapshot.network.state_dict()}
            parts |= {} if self._beside is None else {BESIDE: self._beside.state_dict()}
            self._weights = {f"{p}{name}": tensor.clone() for p, part in parts.items() for name, tensor in part.items()}
        return line

    def restore(self, network: Network) -> bool:
        """Put the kept weights into the network; False when there are none."""
        if self.step is None:
            return False
        parts: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for name, tensor in self._weights.items():
            parts[name.startswith(BESIDE)][name.removeprefix(BESIDE)] = tensor
        network.load_state_dict(parts[0])
        if self._beside is not None:
            self._beside.load_state_dict(parts[1])
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
