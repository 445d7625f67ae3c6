"""Choosing an iterate within a run: engines offer snapshots, and a chooser decides which one to keep.

Choosers are made in `warmpot.select`. Without one the last iterate is the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from warmpot.nets import Network, Outputs

__all__ = ["Chooser", "ChosenIterate", "Snapshot"]

COMPANION = "beside:"
"""Prefix, in checkpoints, of the tensors that are kept with those of the network."""


class Snapshot(NamedTuple):
    """An iterate that could be the result.

    Attributes
    ----------
    step : int
        Rounds or steps done; 0 is the full engine's fit on the source alone.
    network : Network
        In evaluation mode, on the CPU, as it is applied to the target; `Network.for_source` is applied to the source.
        It changes when training continues.
    source, target : Outputs
        Its features and outputs for both domains.
    transport : float or None
        Cost of the last plan per unit of mass, in units of its own cost.
    """

    step: int
    network: Network
    source: Outputs
    target: Outputs
    transport: float | None


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

    Parameters
    ----------
    chooser : Chooser or None
    companion : torch.nn.Module, optional
        What belongs to an iterate besides its network, such as weights: its state is kept and restored with it.
    """

    def __init__(self, chooser: Chooser | None, companion: nn.Module | None = None) -> None:
        self.chooser, self._companion = chooser, companion
        self.step: int | None = None
        self._tensors: dict[str, Tensor] = {}

    def offer(self, snapshot: Snapshot) -> dict[str, Any]:
        """Ask the chooser; return what to log."""
        if self.chooser is None:
            return {}
        better, line = self.chooser.offer(snapshot)
        if better:
            self.step = snapshot.step
            parts = {"": snapshot.network.state_dict()}
            parts |= {} if self._companion is None else {COMPANION: self._companion.state_dict()}
            self._tensors = {f"{p}{name}": tensor.clone() for p, part in parts.items() for name, tensor in part.items()}
        return line

    def restore(self, network: Network) -> bool:
        """Put the kept tensors into the network; False when there are none."""
        if self.step is None:
            return False
        parts: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
        for name, tensor in self._tensors.items():
            parts[name.startswith(COMPANION)][name.removeprefix(COMPANION)] = tensor
        network.load_state_dict(parts[0])
        if self._companion is not None:
            self._companion.load_state_dict(parts[1])
        return True

    def tensors(self) -> dict[str, Tensor]:
        """Return the part of a checkpoint that is tensors."""
        return {f"kept.{name}": tensor for name, tensor in self._tensors.items()}

    def facts(self) -> dict[str, Any]:
        """Return the part of a checkpoint that is JSON."""
        return {"kept": {"step": self.step, "chooser": self.chooser.state()}} if self.chooser is not None else {}

    def load(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Undo `tensors` and `facts`."""
        if self.chooser is None or "kept" not in facts:
            return
        self.step = facts["kept"]["step"]
        self.chooser.load(facts["kept"]["chooser"])
        self._tensors = {name[5:]: tensor for name, tensor in tensors.items() if name.startswith("kept.")}
