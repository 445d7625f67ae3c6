"""Backbone, scale, bottleneck, head: one network for frozen features and (with a backbone) for images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from warmpot._checks import check_choice, check_count

__all__ = ["Network", "NetworkSettings", "Outputs", "Pair", "build_network"]

BOTTLENECKS = ("linear", "bn_relu", "none")
SCALES = ("none", "l2")


class Outputs(NamedTuple):
    """What a network says of a batch: features f(x) (n, d) and outputs w(x) (n, C), logits or predictions."""

    features: Tensor
    logits: Tensor


@dataclass(frozen=True)
class NetworkSettings:
    """The shape of a network.

    Attributes
    ----------
    scale : "none" or "l2"
        What happens to the input of the bottleneck: nothing (the authors' code), or every row is scaled to length 1,
        which makes learning rates and costs independent of the feature extractor's units.
    bottleneck : "linear", "bn_relu" or "none"
        Linear layer without activation (Office-Home), followed by BatchNorm and ReLU (ImageNet-Caltech), or no layer
        at all: features are the (scaled) inputs.
    width : int
        Width of the bottleneck.
    """

    scale: str = "none"
    bottleneck: str = "linear"
    width: int = 256

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_choice("bottleneck", self.bottleneck, BOTTLENECKS)
        check_count("width", self.width)


class UnitLength(nn.Module):
    """Scale every row to Euclidean length 1; rows of zeros stay."""

    def forward(self, x: Tensor) -> Tensor:
        """Scale the rows."""
        return nn.functional.normalize(x, dim=1)


class Network(nn.Module):
    """``head(bottleneck(scale(backbone(x))))``; the bottleneck's output is the feature f(x) of the transport cost.

    Attributes
    ----------
    n_inputs : int
        Width of what the scale gets.
    """

    def __init__(
        self, backbone: nn.Module, scale: nn.Module, bottleneck: nn.Module, head: nn.Linear, n_inputs: int
    ) -> None:
        super().__init__()
        self.n_inputs = n_inputs
        self.backbone = backbone
        self.scale = scale
        self.bottleneck = bottleneck
        self.head = head

    def forward(self, x: Tensor) -> Outputs:
        """Return features and outputs of a batch."""
        features = self.bottleneck(self.scale(self.backbone(x)))
        return Outputs(features, self.head(features))


class Pair(nn.Module):
    """A network applied to a source and a target batch, one after the other.

    Two passes, so that BatchNorm sees each domain apart (as in the authors' code); one module, so that a distributed
    wrapper sees one forward for one backward.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(self, source: Tensor, target: Tensor) -> tuple[Outputs, Outputs]:
        """Return the outputs of both batches."""
        return self.network(source), self.network(target)


def build_network(
    settings: NetworkSettings, n_inputs: int, n_outputs: int, *, seed: int, backbone: nn.Module | None = None
) -> Network:
    """Build a network with the authors' initialisation: Xavier-normal weights, zero biases.

    Parameters
    ----------
    settings : NetworkSettings
    n_inputs : int
        Width of the backbone's output (of the data, without a backbone).
    n_outputs : int
        Number of classes; 1 in regression.
    seed : int
        Seed of the initialisation; no global state is touched.
    backbone : torch.nn.Module, optional
        What turns an input into a vector; default: the input is one already.
    """
    generator = torch.Generator().manual_seed(seed)
    width = n_inputs if settings.bottleneck == "none" else settings.width
    layers: list[nn.Module] = [] if settings.bottleneck == "none" else [_linear(n_inputs, width, generator)]
    if settings.bottleneck == "bn_relu":
        layers += [nn.BatchNorm1d(width), nn.ReLU()]
    scale = UnitLength() if settings.scale == "l2" else nn.Identity()
    head = _linear(width, n_outputs, generator)
    return Network(backbone or nn.Identity(), scale, nn.Sequential(*layers), head, n_inputs)


def _linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")  # does not draw from the global generator
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
