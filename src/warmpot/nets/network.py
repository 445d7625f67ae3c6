"""Backbone, scale, bottleneck, head: one network for frozen features and (with a backbone) for images."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from warmpot._checks import check_choice, check_count, check_positive
from warmpot.errors import InputError
from warmpot.nets.sphere import SphereHead, sphere_radius, unit_rows

__all__ = [
    "NARROW",
    "SCALES",
    "ColumnScale",
    "Network",
    "NetworkSettings",
    "Outputs",
    "Pair",
    "Projection",
    "RowScale",
    "build_network",
    "make_linear",
    "make_scale",
]

BOTTLENECKS = ("linear", "bn_relu", "relu_dropout", "none", "projection")
DROPOUT = 0.5
SCALES = ("none", "rows", "columns", "auto")
NARROW = 64
"""Tables with fewer columns are taken for measurements in units of their own, wider ones for a network's features."""

CONSTANT = 1e-12
"""A column whose spread is a smaller part of its mean is constant up to rounding."""
TINY = 1e-30
"""So is a column with a smaller spread: float32 ends there."""
FARTHEST = 1e12
"""Largest scaled entry: its square, summed over a row, is finite in float32."""


class Outputs(NamedTuple):
    """What a network says of a batch: features f(x) (n, d) and outputs w(x) (n, C), logits or predictions.

    `pooled` is what the bottleneck got: the (scaled) output of the backbone.
    """

    features: Tensor
    logits: Tensor
    pooled: Tensor | None = None

    @classmethod
    def of(cls, **parts: Tensor) -> Outputs:
        """Return outputs of which only some parts were kept; reading another one gives None."""
        return cls(*(parts.get(name) for name in cls._fields))  # type: ignore[arg-type]


@dataclass(frozen=True)
class NetworkSettings:
    """The shape of a network.

    Attributes
    ----------
    scale : "none", "rows", "columns" or "auto"
        What happens to the input of the bottleneck: nothing (the authors' code); every row is scaled to one length,
        which makes learning rates and costs independent of the feature extractor's units; every column is
        standardised over both domains, for tables whose columns have units of their own; or "columns" for tables of
        fewer than 64 columns and "rows" for wider ones.
    radius : float
        The (typical) length of a scaled row.
    bottleneck : "linear", "bn_relu", "relu_dropout", "none" or "projection"
        Linear layer without activation (Office-Home), followed by BatchNorm and ReLU (ImageNet-Caltech), followed by
        ReLU and dropout of one half (DAN), no layer at all: features are the (scaled) inputs, or a fixed projection
        that the full engine fills in.
    width : int
        Width of the bottleneck.
    unit_features : bool
        For a projection: scale its rows to length 1.
    sphere : float, "auto" or None
        Radius r of a sphere: the bottleneck's output is scaled to length r, and the head has rows of length 1 and the
        bias ``r tanh(b)`` (AR, ARPM). "auto" is `sphere_radius` of the number of classes; None: plain features and a
        linear head.
    joint : bool
        In training, source and target batch pass as one, so that BatchNorm sees both together (PWAN); default: one
        after the other.
    """

    scale: str = "none"
    radius: float = 1.0
    bottleneck: str = "linear"
    width: int = 256
    unit_features: bool = False
    sphere: float | Literal["auto"] | None = None
    joint: bool = False

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_choice("bottleneck", self.bottleneck, BOTTLENECKS)
        check_positive("radius", self.radius)
        check_count("width", self.width)
        if self.sphere is None:
            return
        if self.bottleneck == "projection":
            got, allowed = "one with the bottleneck 'projection'", "any other bottleneck"
            raise InputError("sphere", got=got, allowed=allowed, remedy="Leave it out, or use unit_features.")
        if self.sphere != "auto":
            check_positive("sphere", self.sphere, remedy='Pass a radius, "auto", or null for plain features.')


class RowScale(nn.Module):
    """Scale every row to one Euclidean length; rows of zeros stay."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = radius

    def forward(self, x: Tensor) -> Tensor:
        """Scale the rows."""
        return self.radius * unit_rows(x)


class ColumnScale(nn.Module):
    """Standardise every column, and scale so that the mean square length of a row is `radius` squared.

    The centre is kept as a sum of two float32 numbers: a column may lie far from 0 for its spread (dates in seconds),
    and not every device has float64.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, n_inputs: int, radius: float) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(2, n_inputs))
        self.register_buffer("spread", torch.ones(n_inputs))
        self.factor = radius / n_inputs**0.5

    def fit(self, *samples: Tensor) -> None:
        """Take centre and spread from samples, every domain with the same weight; constant columns become 0."""
        centre = torch.stack([x.double().mean(dim=0) for x in samples]).mean(dim=0)
        square = torch.stack([(x.double() - centre).square().mean(dim=0) for x in samples]).mean(dim=0)
        self.centre[0] = centre
        self.centre[1] = centre - self.centre[0]
        varies = square > (CONSTANT * centre).square() + TINY**2
        self.spread.copy_(torch.where(varies, square, torch.inf).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Scale the columns; samples absurdly far from the training data come nearer, so that sums are finite."""
        scaled: Tensor = self.factor * (x - self.centre[0] - self.centre[1]) / self.spread
        farthest = min(FARTHEST, torch.finfo(scaled.dtype).max)  # half precision ends at 65504
        return scaled.clamp(-farthest, farthest)


class Projection(nn.Module):
    """A fixed linear map after a shift; rows of length 1 after it if asked for.

    The shift is the target's; the source has its own, for whoever needs the features of both (`Network.for_source`).
    """

    centre: Tensor
    source_centre: Tensor
    matrix: Tensor

    def __init__(self, n_inputs: int, width: int, unit: bool) -> None:
        super().__init__()
        self.unit = unit
        self.register_buffer("centre", torch.zeros(n_inputs))
        self.register_buffer("source_centre", torch.zeros(n_inputs))
        self.register_buffer("matrix", torch.zeros(n_inputs, width))

    def forward(self, x: Tensor) -> Tensor:
        """Project the rows."""
        y = (x - self.centre) @ self.matrix
        return nn.functional.normalize(y, dim=1) if self.unit else y


class Network(nn.Module):
    """``head(bottleneck(scale(backbone(x))))``; the bottleneck's output is the feature f(x) of the transport cost.

    Attributes
    ----------
    n_inputs : int
        Width of what the scale gets.
    """

    def __init__(
        self, backbone: nn.Module, scale: nn.Module, bottleneck: nn.Sequential, head: nn.Linear, n_inputs: int
    ) -> None:
        super().__init__()
        self.n_inputs = n_inputs
        self.backbone = backbone
        self.scale = scale
        self.bottleneck = bottleneck
        self.head = head

    @property
    def needs_scale(self) -> bool:
        """Whether `fit_scale` has something to learn."""
        return isinstance(self.scale, ColumnScale)

    def fit_scale(self, *samples: Tensor) -> None:
        """Take what the scale needs to know from samples of every domain."""
        if isinstance(self.scale, ColumnScale):
            self.scale.fit(*samples)

    def for_source(self) -> Network:
        """Return the network as it sees the source; itself, when both domains are seen alike."""
        if not (len(self.bottleneck) and isinstance(self.bottleneck[0], Projection)):
            return self
        twin = copy.deepcopy(self)
        twin.bottleneck[0].centre = twin.bottleneck[0].source_centre
        return twin

    def forward(self, x: Tensor) -> Outputs:
        """Return features and outputs of a batch."""
        scaled = self.scale(self.backbone(x))  # in the precision of x, which may be finer than the network's
        pooled = scaled.to(next(self.head.parameters()).dtype)
        features = self.bottleneck(pooled)
        return Outputs(features, self.head(features), pooled)


class Pair(nn.Module):
    """A network applied to a source batch, a target batch and further ones.

    One module, so that a distributed wrapper sees one forward for one backward.

    Parameters
    ----------
    network : Network
    joint : bool
        Whether both batches pass as one, so that BatchNorm sees them together; default: two passes, each domain apart
        (as in the authors' code).
    """

    def __init__(self, network: Network, joint: bool = False) -> None:
        super().__init__()
        self.network = network
        self.joint = joint

    def forward(self, batches: Mapping[str, Tensor]) -> dict[str, Outputs]:
        """Return the outputs of every batch by its name; all but "source" and "target" always pass by themselves."""
        if not self.joint:
            return {name: self.network(batch) for name, batch in batches.items()}
        together = [batches[name] for name in ("source", "target")]
        parts = [part.split([len(batch) for batch in together]) for part in self.network(torch.cat(together))]
        source, target = (Outputs(*mine) for mine in zip(*parts, strict=True))
        apart = {name: self.network(batch) for name, batch in batches.items() if name not in ("source", "target")}
        return {"source": source, "target": target, **apart}


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
    layers: list[nn.Module] = []
    if settings.bottleneck in ("linear", "bn_relu", "relu_dropout"):
        layers = [make_linear(n_inputs, width, generator)]
    if settings.bottleneck == "bn_relu":
        layers += [nn.BatchNorm1d(width), nn.ReLU()]
    if settings.bottleneck == "relu_dropout":
        layers += [nn.ReLU(), nn.Dropout(DROPOUT)]
    if settings.bottleneck == "projection":
        layers = [Projection(n_inputs, width, settings.unit_features)]
    head = make_linear(width, n_outputs, generator)
    if settings.sphere is not None:
        if n_outputs == 1:
            remedy = "Leave it out: one class has no angle to another, and real-valued outputs would be bounded."
            raise InputError("sphere", got="a single output", allowed="at least 2 classes", remedy=remedy)
        radius = sphere_radius(n_outputs) if settings.sphere == "auto" else settings.sphere
        layers.append(RowScale(radius))
        head = SphereHead(head, radius)
    scale = make_scale(settings.scale, n_inputs, settings.radius)
    return Network(backbone or nn.Identity(), scale, nn.Sequential(*layers), head, n_inputs)


def make_scale(kind: str, n_inputs: int, radius: float = 1.0) -> nn.Module:
    """Make the scale that `NetworkSettings.scale` names; one of columns is still to be fitted."""
    if kind == "auto":
        kind = "columns" if n_inputs < NARROW else "rows"
    if kind == "none":
        return nn.Identity()
    return RowScale(radius) if kind == "rows" else ColumnScale(n_inputs, radius)


def make_linear(n_in: int, n_out: int, generator: torch.Generator) -> nn.Linear:
    """Make a linear layer with Xavier-normal weights and zero biases."""
    layer = nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")  # does not draw from the global generator
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
