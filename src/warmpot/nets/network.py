"""Backbone, scale, bottleneck and head: one network for frozen features and (with a backbone) for images."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from warmpot._checks import check_choice, check_count, check_positive
from warmpot._files import atomic_write, check_file, read_json, write_text
from warmpot._memory import check_memory
from warmpot._run_files import MODEL_FACTS, MODEL_TENSORS
from warmpot._settings import from_mapping, to_mapping
from warmpot.errors import InputError
from warmpot.nets.backbone import Backbone, BackboneSettings, build_backbone
from warmpot.nets.heads import PrototypeHead, SphereHead, WeightNormHead, empty_linear, sphere_radius, unit_rows
from warmpot.nets.residual import ResidualBlock

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "NARROW", "SCALES", "ColumnScale", "Network", "NetworkSettings", "Outputs", "Pair", "Projection", "RowScale",
    "build_network", "load_network", "make_linear", "make_scale", "restart_head", "save_network",
]  # fmt: skip

BOTTLENECKS = ("linear", "bn", "bn_relu", "bn_relu_dropout", "relu_dropout", "none", "projection")
HEADS = ("linear", "weight_norm", "prototypes")
INITS = ("xavier", "torch")
DROPOUT = 0.5
SCALES = ("none", "rows", "roots", "columns", "auto")
NARROW = 64
"""Tables with fewer columns are taken for measurements in different units, wider ones for features of a network."""

CONSTANT = 1e-12  # a column whose standard deviation, relative to its mean, is smaller is constant up to rounding
TINY = 1e-30  # a column with a smaller standard deviation is constant too: float32 ends there
FARTHEST = 1e12  # largest scaled entry: its square, summed over a row, is finite in float32


class Outputs(NamedTuple):
    """Outputs of a network for a batch: features f(x) (n, d) and w(x) (n, C), logits or predictions.

    `pooled` is the input of the bottleneck: the (scaled) output of the backbone.
    """

    features: Tensor
    logits: Tensor
    pooled: Tensor | None = None

    @classmethod
    def of(cls, **parts: Tensor) -> Outputs:
        """Return outputs with some parts only; the others are None."""
        return cls(*(parts.get(name) for name in cls._fields))  # type: ignore[arg-type]


@dataclass(frozen=True)
class NetworkSettings:
    """The architecture of a network.

    Attributes
    ----------
    scale : "none", "rows", "roots", "columns" or "auto"
        How the input of the bottleneck is scaled: not at all (the authors' code); every row to the same length, which
        makes learning rates and costs independent of the feature extractor's units; the same after the square root of
        every entry (with its sign), after which nonnegative features are compared by the Hellinger distance, and a few
        large entries do not decide them; every column standardised over both domains, for tables whose columns have
        different units; or "columns" for tables of fewer than 64 columns and "rows" for wider ones.
    radius : float
        The (typical) length of a scaled row.
    bottleneck, width : str, int
        "linear": a linear layer without activation (Office-Home), of this width; "bn", "bn_relu" (ImageNet-Caltech),
        "bn_relu_dropout" and "relu_dropout" (DAN): followed by BatchNorm, ReLU and dropout of one half; "none": no
        layer, features are the (scaled) inputs; "projection": a fixed projection that the full engine computes.
    unit_features : bool
        For a projection: scale its rows to length 1.
    axes : int
        For a projection: first project onto so many axes, and scale to length 1 (SPL); 0: do not.
    sphere : float, "auto" or None
        Radius r of a sphere: the bottleneck's output is scaled to length r, and the head has rows of length 1 and the
        bias ``r tanh(b)`` (AR, ARPM). "auto" is `sphere_radius` of the number of classes; None: plain features.
    joint : bool
        In training, pass source and target as one batch, so that BatchNorm sees both together (PWAN).
    head : "linear", "weight_norm" or "prototypes"
        Without a sphere: a linear layer, with weight normalisation if asked for (SHOT++); or two centres per class,
        which the full engine computes (SPL).
    init : "xavier" or "torch"
        How linear layers start: Xavier-normal with zero biases (the authors' Office-Home code), or as torch.nn.Linear
        does by default, weights and biases uniform up to 1 / sqrt(number of inputs) (their ImageNet-Caltech code).
    """

    scale: str = "none"
    radius: float = 1.0
    bottleneck: str = "linear"
    width: int = 256
    unit_features: bool = False
    axes: int = 0
    sphere: float | Literal["auto"] | None = None
    joint: bool = False
    head: str = "linear"
    init: str = "xavier"

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES)
        check_choice("bottleneck", self.bottleneck, BOTTLENECKS)
        check_choice("head", self.head, HEADS)
        check_choice("init", self.init, INITS)
        check_positive("radius", self.radius)
        check_count("width", self.width)
        check_count("axes", self.axes, minimum=0)
        if self.axes and self.bottleneck != "projection":
            allowed, remedy = "0", "Leave it out: only the bottleneck 'projection' has it."
            raise InputError(
                "axes", got=f"{self.axes} with the bottleneck {self.bottleneck!r}", allowed=allowed, remedy=remedy
            )
        if self.head == "prototypes" and self.bottleneck != "projection":
            got, allowed = f"'prototypes' with the bottleneck {self.bottleneck!r}", "'linear' or 'weight_norm'"
            raise InputError("head", got=got, allowed=allowed, remedy="Only SPL and SCS-LP have prototypes.")
        if self.sphere is None:
            return
        if self.bottleneck == "projection":
            got, remedy = "one with the bottleneck 'projection'", "Leave it out, or use unit_features."
            raise InputError("sphere", got=got, allowed="any other bottleneck", remedy=remedy)
        if self.head != "linear":
            got, allowed = f"one with the head {self.head!r}", "the head 'linear', which it replaces"
            raise InputError("sphere", got=got, allowed=allowed, remedy="Leave one of them out.")
        if self.sphere != "auto":
            check_positive("sphere", self.sphere, remedy='Pass a radius, "auto", or null for plain features.')

    @property
    def has_batch_norm(self) -> bool:
        """Whether the bottleneck has BatchNorm, which needs two samples per batch."""
        return "bn" in self.bottleneck.split("_")


class RowScale(nn.Module):
    """Scale every row to the same Euclidean length, after the square roots of its entries if asked for.

    Roots keep their signs. Rows of zeros stay.
    """

    def __init__(self, radius: float, *, roots: bool = False) -> None:
        super().__init__()
        self.radius, self.roots = radius, roots

    def forward(self, x: Tensor) -> Tensor:
        """Scale the rows."""
        if self.roots:
            x = x.sign() * torch.where(x == 0, 1, x.abs()).sqrt()  # the root has no gradient at 0
        return self.radius * unit_rows(x)


class ColumnScale(nn.Module):
    """Standardise every column, and scale so that the mean square length of a row is `radius` squared.

    The centre is stored as a sum of two float32 numbers: a column may have a mean much larger than its standard
    deviation (dates in seconds), and not every device supports float64.
    """

    centre: Tensor
    spread: Tensor

    def __init__(self, n_inputs: int, radius: float) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(2, n_inputs))
        self.register_buffer("spread", torch.ones(n_inputs))
        self.factor = radius / n_inputs**0.5

    def fit(self, *samples: Tensor) -> None:
        """Estimate centre and spread from samples, every domain with the same weight; constant columns become 0."""
        centre = torch.stack([x.double().mean(dim=0) for x in samples]).mean(dim=0)
        square = torch.stack([(x.double() - centre).square().mean(dim=0) for x in samples]).mean(dim=0)
        self.centre[0] = centre
        self.centre[1] = centre - self.centre[0]
        varies = square > (CONSTANT * centre).square() + TINY**2
        self.spread.copy_(torch.where(varies, square, torch.inf).sqrt())

    def forward(self, x: Tensor) -> Tensor:
        """Scale the columns; entries extremely far from the training data are clamped, so that sums are finite."""
        scaled: Tensor = self.factor * (x - self.centre[0] - self.centre[1]) / self.spread
        farthest = min(FARTHEST, torch.finfo(scaled.dtype).max)  # half precision ends at 65504
        return scaled.clamp(-farthest, farthest)


class Projection(nn.Module):
    """A fixed linear map of centred rows; its outputs optionally have length 1.

    Rows are centred by the target's mean; `Network.for_source` returns a network that uses the source's.
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

    A method may leave a `residual` block with the network that predicts (`Method.final_network`): it corrects the
    features of the target, and `for_source` returns a network without it. The full engine leaves `unadapted`: the
    bottleneck and the head that it fitted to the source alone.
    """

    def __init__(
        self, backbone: nn.Module, scale: nn.Module, bottleneck: nn.Sequential, head: nn.Linear, n_inputs: int
    ) -> None:
        super().__init__()
        self.n_inputs = n_inputs
        self.backbone, self.scale, self.bottleneck, self.head = backbone, scale, bottleneck, head
        self.residual: ResidualBlock | None = None
        self.unadapted: nn.Sequential | None = None

    @property
    def has_linear_head(self) -> bool:
        """Whether the outputs are a linear map of the features, whose Lipschitz constant is known."""
        return not isinstance(self.head, PrototypeHead)

    @property
    def needs_scale(self) -> bool:
        """Whether `fit_scale` has anything to estimate."""
        return isinstance(self.scale, ColumnScale)

    def fit_scale(self, *samples: Tensor) -> None:
        """Estimate the scale of the columns from samples of every domain."""
        if isinstance(self.scale, ColumnScale):
            self.scale.fit(*samples)

    def for_source(self) -> Network:
        """Return the network to use for the source; itself, unless it treats the domains differently.

        A projection may centre them separately, and a residual block is for the target only.
        """
        projects = len(self.bottleneck) > 0 and isinstance(self.bottleneck[-1], Projection)
        if not projects and self.residual is None:
            return self
        # Shared, because it is large for wide data: inputs x features.
        shared = {id(self.bottleneck[-1].matrix): self.bottleneck[-1].matrix} if projects else {}
        twin = copy.deepcopy(self, {**shared, id(self.unadapted): self.unadapted})
        twin.residual = twin.unadapted = None
        if projects:
            twin.bottleneck[-1].centre = twin.bottleneck[-1].source_centre
        return twin

    def add_unadapted(self) -> nn.Sequential:
        """Add a second bottleneck and head, copies of the present ones, as `unadapted`; return them."""
        self.unadapted = copy.deepcopy(nn.Sequential(self.bottleneck, self.head))
        return self.unadapted

    def forward(self, x: Tensor) -> Outputs:
        """Return features and outputs of a batch."""
        scaled = self.scale(self.backbone(x))  # in the precision of x, which may be higher than the network's
        pooled = scaled.to(next(self.head.parameters()).dtype)
        features = self.bottleneck(pooled)
        if self.residual is not None:
            features = self.residual(features)
        return Outputs(features, self.head(features), pooled)


class Pair(nn.Module):
    """A network applied to a source batch, a target batch and further ones, as `NetworkSettings.joint` says.

    It is one module, because a distributed wrapper expects one forward per backward.
    """

    def __init__(self, network: Network, joint: bool = False) -> None:
        super().__init__()
        self.network = network
        self.joint = joint

    def forward(self, batches: Mapping[str, Tensor]) -> dict[str, Outputs]:
        """Return the outputs of every batch by its name; all but "source" and "target" always pass by themselves."""
        if not self.joint or not {"source", "target"} <= batches.keys():
            return {name: self.network(batch) for name, batch in batches.items()}
        domains = [batches["source"], batches["target"]]
        parts = [part.split([len(batch) for batch in domains]) for part in self.network(torch.cat(domains))]
        source, target = (Outputs(*of_domain) for of_domain in zip(*parts, strict=True))
        others = {name: self.network(batch) for name, batch in batches.items() if name not in ("source", "target")}
        return {"source": source, "target": target, **others}


def build_network(
    settings: NetworkSettings, n_inputs: int, n_outputs: int, *, seed: int, backbone: nn.Module | None = None
) -> Network:
    """Build a network with weights drawn from `seed`.

    Parameters
    ----------
    settings : NetworkSettings
    n_inputs, n_outputs : int
        Width of the backbone's output (of the data, without a backbone); number of classes, or 1 in regression.
    backbone : torch.nn.Module, optional
        Maps an input to a vector; default: the input is a vector already.
    """
    width = n_inputs if settings.bottleneck == "none" else settings.width
    got = f"{n_inputs} inputs, width {width}, {n_outputs} outputs"
    check_memory("network", got, 4.0 * width * (n_inputs * (width != n_inputs) + n_outputs), "Make it narrower.")
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    if settings.bottleneck == "projection":
        layers = [Projection(n_inputs, settings.axes, unit=True)] if settings.axes else []
        layers.append(Projection(settings.axes or n_inputs, settings.width, settings.unit_features))
    elif settings.bottleneck != "none":
        further = {"bn": nn.BatchNorm1d(settings.width), "relu": nn.ReLU(), "dropout": nn.Dropout(DROPOUT)}
        layers = [make_linear(n_inputs, settings.width, generator, settings.init)]
        layers += [further[name] for name in settings.bottleneck.split("_") if name != "linear"]
    head = make_linear(width, n_outputs, generator, settings.init)
    if settings.head == "weight_norm":
        head = WeightNormHead(head)
    elif settings.head == "prototypes":
        head = PrototypeHead(head)
    if settings.sphere is not None:
        if n_outputs == 1:
            remedy = "Leave it out: a single output would be bounded, and there are no angles between classes."
            raise InputError("sphere", got="a single output", allowed="at least 2 classes", remedy=remedy)
        radius = sphere_radius(n_outputs) if settings.sphere == "auto" else settings.sphere
        layers.append(RowScale(radius))
        head = SphereHead(head, radius)
    scale = make_scale(settings.scale, n_inputs, settings.radius)
    return Network(backbone or nn.Identity(), scale, nn.Sequential(*layers), head, n_inputs)


def make_scale(kind: str, n_inputs: int, radius: float = 1.0) -> nn.Module:
    """Make the layer for `NetworkSettings.scale`; a `ColumnScale` has to be fitted."""
    if kind == "auto":
        kind = "columns" if n_inputs < NARROW else "rows"
    if kind == "none":
        return nn.Identity()
    return ColumnScale(n_inputs, radius) if kind == "columns" else RowScale(radius, roots=kind == "roots")


def make_linear(n_in: int, n_out: int, generator: torch.Generator, init: str = "xavier") -> nn.Linear:
    """Make a linear layer that starts as `NetworkSettings.init` says."""
    layer = empty_linear(n_in, n_out)
    if init == "torch":
        for part in (layer.weight, layer.bias):
            nn.init.uniform_(part, -(n_in**-0.5), n_in**-0.5, generator=generator)
        return layer
    nn.init.xavier_normal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def restart_head(head: nn.Linear, seed: int) -> None:
    """Give a head new random weights in place, Xavier-normal with zero biases, drawn from `seed`."""
    linear = make_linear(head.in_features, head.out_features, torch.Generator().manual_seed(seed))
    fresh = copy.deepcopy(head)
    with torch.no_grad():
        for name in ("weight", "bias"):
            values = getattr(linear, name).detach().to(getattr(head, name))
            if parametrize.is_parametrized(fresh, name):
                setattr(fresh, name, values)  # the parameters behind it follow
            else:
                getattr(fresh, name).copy_(values)
    head.load_state_dict(fresh.state_dict())  # in place: an optimiser holds the parameters


def save_network(folder: Path, network: Network, settings: NetworkSettings, facts: Mapping[str, Any]) -> None:
    """Write ``model.safetensors`` and ``model.json`` into an existing folder; `settings` is what built the network.

    `facts` are what else a user of the model needs to know, such as the class names, in values that JSON supports.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with atomic_write(folder / MODEL_TENSORS) as draft:
        draft.write_bytes(save(tensors))  # save_file would make it readable by its owner only
    sizes = {"n_inputs": network.n_inputs, "n_outputs": network.head.out_features}
    described = {"network": to_mapping(settings), **sizes, "dtype": _dtype(network.head), "facts": dict(facts)}
    described |= {name: True for name in ("residual", "unadapted") if getattr(network, name) is not None}
    if isinstance(network.backbone, Backbone):
        shape = network.backbone.settings
        described["backbone_dtype"] = _dtype(network.backbone)
        described["backbone"] = to_mapping(replace(shape, weights=Path(shape.weights).name))  # they are in the file
    write_text(folder / MODEL_FACTS, json.dumps(described, indent=1))


def _dtype(module: nn.Module) -> str:
    return str(next(module.parameters()).dtype).removeprefix("torch.")


def load_network(folder: Path) -> tuple[Network, NetworkSettings, dict[str, Any]]:
    """Read a network (in evaluation mode), its settings and the facts saved with it."""
    import torch
    from safetensors.torch import load

    try:
        described = read_json(folder / MODEL_FACTS)
        tensors = load(check_file(folder / MODEL_TENSORS).read_bytes())  # load_file wants a name in UTF-8
        if "bottleneck.0.centre" in tensors:  # older files have no centre of the source
            tensors.setdefault("bottleneck.0.source_centre", tensors["bottleneck.0.centre"].clone())
        settings = from_mapping(NetworkSettings, described["network"], "network")
        network = build_network(settings, described["n_inputs"], described["n_outputs"], seed=0)
        if described.get("residual", False):
            network.residual = ResidualBlock(network.head.in_features, seed=0)  # its weights are in the file
        if described.get("unadapted", False):
            network.add_unadapted()
        network.to(getattr(torch, described["dtype"]))
        if "backbone" in described:  # its weights are in the file
            shape = from_mapping(BackboneSettings, described["backbone"], "backbone")
            network.backbone = build_backbone(replace(shape, weights="none"))
            network.backbone.to(getattr(torch, described.get("backbone_dtype", "float32")))
            network.backbone.settings = shape
        network.load_state_dict(tensors)
        facts = dict(described["facts"])
    except Exception as error:  # a damaged file makes the parsers raise almost anything
        got = f"{error.what}: {error.got}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        remedy = "Name the folder that `warmpot fit --out` wrote."
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy) from error
    return network.eval(), settings, facts
