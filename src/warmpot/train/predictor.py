"""A trained network with what its outputs mean: class names, or the unit of real labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from warmpot._checks import check_features, check_matrix
from warmpot._typing import FloatArray
from warmpot.errors import InputError, explain
from warmpot.nets import Network, NetworkSettings, Outputs, load_network, save_network
from warmpot.weights import believed_classes, predicted_shares

__all__ = ["Predictor", "apply_network"]

BLOCK = 8192
"""Rows given to the network at a time: bounds the memory of a prediction."""


def apply_network(network: Network, x: NDArray[Any]) -> Outputs:
    """Features and outputs of all rows, as float64 tensors."""
    with torch.inference_mode():
        parts = [network(block) for block in torch.split(torch.from_numpy(x), BLOCK)]
        return Outputs(*(torch.cat([part[k].double() for part in parts]) for k in range(2)))


@dataclass(frozen=True)
class Predictor:
    """What remains of a run when the data is gone.

    Attributes
    ----------
    network : Network
        In evaluation mode, on the CPU.
    settings : NetworkSettings
        Its shape.
    classes : tuple of str
        Class names in the order of the outputs; empty in regression.
    centre, scale : float
        A real label is ``centre + scale * output``.
    columns : tuple of str
        Names of the features it takes, in their order; empty when it was trained without.
    """

    network: Network
    settings: NetworkSettings
    classes: tuple[str, ...]
    centre: float = 0.0
    scale: float = 1.0
    columns: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Number of features it takes."""
        return int(self.network.n_inputs)

    def outputs(self, x: Any, name: str = "X", *, source: bool = False) -> Outputs:
        """Features and raw outputs of samples of the target, or of the source, as float64 tensors; all finite."""
        rows = np.require(check_matrix(name, x, width=self.width), requirements=["C", "W"])  # torch warns otherwise
        check_features(name, rows)
        found = apply_network(self.network.for_source() if source else self.network, rows)
        bad = ~torch.isfinite(found.logits).all(dim=1)
        if bad.any():
            got, allowed = f"{int(bad.sum())} samples whose predictions overflow", "features as in training"
            remedy = "Drop samples that far from what it was trained on."
            raise InputError(explain(name, got=got, allowed=allowed, remedy=remedy))
        return found

    def probabilities(self, x: Any, name: str = "X") -> FloatArray:
        """Class probabilities (n, C)."""
        return torch.softmax(self.outputs(x, name).logits, dim=1).numpy()

    def values(self, x: Any, name: str = "X") -> FloatArray:
        """Real-valued predictions (n,)."""
        found: FloatArray = self.outputs(x, name).logits[:, 0].numpy()
        return self.centre + self.scale * found

    def save(self, folder: Path | str) -> None:
        """Write it into a folder: safetensors and JSON."""
        facts = {"classes": list(self.classes), "centre": self.centre, "scale": self.scale}
        facts["columns"] = list(self.columns)
        save_network(Path(folder), self.network, self.settings, facts)

    @classmethod
    def load(cls, folder: Path | str) -> Predictor:
        """Read what `save` wrote."""
        network, settings, facts = load_network(Path(folder))
        columns = tuple(facts.get("columns", ()))  # absent from older files
        return cls(network, settings, tuple(facts["classes"]), facts["centre"], facts["scale"], columns)

    def class_shares(self, probabilities: FloatArray) -> dict[str, float]:
        """Classes believed to occur among samples, with the share predicted as each, the largest first."""
        return {self.classes[k]: share for k, share in believed_classes(predicted_shares(probabilities)).items()}
