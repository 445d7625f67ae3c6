"""Backbones: from images to pooled features, cut into a frozen stem and a trained tail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from warmpot._checks import check_choice
from warmpot.errors import InputError
from warmpot.nets._cut import cut, parts
from warmpot.nets._timm import import_timm

__all__ = ["Backbone", "BackboneSettings", "Normalise", "Stem", "View", "backbone_parts", "build_backbone"]

BATCH_NORMS = ("train", "frozen", "sync")
V1 = "resnet50_v1"
V1_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
HEADS = ("fc.", "classifier.", "head.")
"""How names of a classification head begin."""
WRAPPERS = ("state_dict", "model", "model_state_dict")
"""Under which a training's checkpoint keeps the weights."""
BLOCK = 4
"""Images that pass the stem at once on a CPU. There, the last bits of a convolution depend on the size of its batch."""
SHOWN = 3
"""Names of tensors shown in a message."""


@dataclass(frozen=True)
class BackboneSettings:
    """Which backbone, with which weights, and how much of it is trained.

    Attributes
    ----------
    name : str
        A model of timm, or "resnet50_v1": the original ResNet-50, with the stride in the first convolution of a block.
    weights : str
        "pretrained" (timm downloads them), "none" (random), or a file: safetensors, or a state dict of torch.
    train_from : str, optional
        The part from which on it is trained, such as "layer4" (`backbone_parts` lists them); what comes before stays
        as it is. "all": everything is trained; default: nothing is.
    batch_norm : "train", "frozen" or "sync"
        BatchNorm of the trained part in training: it normalises by each batch and updates its running statistics; or
        by the running statistics, which stay (its scale and shift are still trained); or by the batches of all
        processes together.
    """

    name: str = "resnet50.tv_in1k"
    weights: str = "pretrained"
    train_from: str | None = None
    batch_norm: str = "train"

    def __post_init__(self) -> None:
        check_choice("batch_norm", self.batch_norm, BATCH_NORMS)
        for field in ("name", "weights"):
            if not getattr(self, field):
                raise InputError(field, got="nothing", allowed="a name", remedy="Leave the setting out.")


class View(NamedTuple):
    """How the weights' authors prepare an image at test: resize to `resize`, crop `crop` pixels from its centre.

    `fixed`: no other crop fits the network.
    """

    resize: int
    crop: int
    interpolation: str
    fixed: bool


class Normalise(nn.Module):
    """Pixels (n, 3, h, w) in 0, ..., 255 to numbers of mean 0 and spread 1 a channel, on the device they are on."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the pixels."""
        return (x.to(self.mean.dtype) / 255 - self.mean[:, None, None]) / self.std[:, None, None]


class Stem(nn.Module):
    """The frozen part: normalisation, and the network up to the trained part; always in evaluation mode, no gradients.

    What it says of an image does not depend on the batch the image is in, to the last bit (on a CPU, for a given
    number of torch's threads): an output that was kept is the one that would be computed again.
    """

    def __init__(self, normalise: Normalise, body: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.normalise = normalise
        # channels last is the faster layout; the trained part has none, so that its gradients have one layout
        self.body = body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pooled = pooled
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Stem:  # noqa: ARG002 - frozen is frozen
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return what the trained part takes; pooled features when there is none."""
        with torch.autocast(x.device.type, enabled=False):  # what is kept on disk is what would be computed again
            return self._blocks(x)

    def _blocks(self, x: Tensor) -> Tensor:
        if x.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(self.body, nn.Identity):
            y = self._pass(x)
        else:
            y = torch.cat([self._pass(_padded(block))[: len(block)] for block in torch.split(x, BLOCK)])
        if y.ndim == 2 and not self.pooled:
            remedy = "Train from an earlier part on."
            raise InputError("train_from", got="a part after the pooling", allowed="one before", remedy=remedy)
        return y

    def _pass(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(self.normalise(x).contiguous(memory_format=torch.channels_last))
        return y.contiguous()  # the layout in which it comes back from disk


def _padded(x: Tensor) -> Tensor:
    """Fill a block up with its last image."""
    return torch.cat([x, x[-1:].expand(BLOCK - len(x), *x.shape[1:])]) if len(x) < BLOCK else x


class Backbone(nn.Module):
    """Images to pooled features (n, width); ``tail(stem(pixels))``.

    Attributes
    ----------
    stem : Stem
        The frozen part, from pixels on.
    tail : torch.nn.Module
        The trained part, up to the pooling.
    width : int
        Number of pooled features.
    view : View
        How the images should be prepared.
    settings : BackboneSettings
    """

    def __init__(self, stem: Stem, tail: nn.Module, width: int, view: View, settings: BackboneSettings) -> None:
        super().__init__()
        self.stem = stem
        self.tail = tail
        self.width = width
        self.view = view
        self.settings = settings

    @property
    def normalise(self) -> Normalise:
        """What is done to pixels first."""
        return self.stem.normalise

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode of the tail, apart from frozen BatchNorm; the stem stays in evaluation mode."""
        super().train(mode)
        if self.settings.batch_norm == "frozen":
            for module in self.tail.modules():
                if isinstance(module, _BatchNorm):
                    module.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features (n, width).

        Parameters
        ----------
        x : Tensor
            uint8 pixels (n, 3, h, w); or the stem's output for them, floats of three or more dimensions; or pooled
            features (n, width), which are returned as they are.
        """
        if x.ndim == 2:
            return x
        if not x.is_floating_point():
            x = self.stem(x)
            if torch.is_autocast_enabled(x.device.type):  # as Fabric rounds what comes from disk
                x = x.to(torch.get_autocast_dtype(x.device.type))
        elif self.settings.train_from is None:
            allowed = "uint8 pixels (n, 3, h, w) or pooled features (n, width)"
            remedy = "Pass images as whole numbers in 0, ..., 255."
            raise InputError("x", got=f"floats {tuple(x.shape)}", allowed=allowed, remedy=remedy)
        y: Tensor = self.tail(x.to(self.normalise.mean.dtype))
        return y


def backbone_parts(settings: BackboneSettings) -> list[str]:
    """Return the names that `train_from` may have besides "all", in the order of the forward pass."""
    return parts(_make(settings.name, 0))


def build_backbone(settings: BackboneSettings, *, seed: int = 0) -> Backbone:
    """Build a backbone.

    The names of its tensors depend on `settings.name` and `settings.train_from` only: one saved can be restored into
    one built with ``weights="none"``.

    Parameters
    ----------
    settings : BackboneSettings
    seed : int
        Seed of random weights; no global state is touched.
    """
    net = _make(settings.name, seed, pretrained=settings.weights == "pretrained")
    if settings.weights not in ("pretrained", "none"):
        _fill(net, Path(settings.weights))
    body: nn.Module = nn.Identity()
    tail: nn.Module = nn.Identity()
    if settings.train_from is None:
        body = net
    elif settings.train_from == "all":
        tail = net
    else:
        body, tail = cut(net, settings.train_from)
    if settings.batch_norm == "sync":  # timm's, which knows timm's own kinds of BatchNorm
        tail = import_timm().layers.convert_sync_batchnorm(tail)
    cfg = net.pretrained_cfg
    crop = cfg["input_size"][-1]
    view = View(int(crop / cfg["crop_pct"]), crop, cfg["interpolation"], bool(cfg.get("fixed_input_size", False)))
    stem = Stem(Normalise(cfg["mean"], cfg["std"]), body, pooled=settings.train_from is None)
    return Backbone(stem, tail, int(net.head_hidden_size), view, settings).train()


def _make(name: str, seed: int, *, pretrained: bool = False) -> Any:
    """Make a network without a head, with random weights or those that timm knows for it."""
    timm = import_timm()
    if name != V1 and not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=3)
        remedy = f"Did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them."
        raise InputError("backbone", got=repr(name), allowed=f"{V1}, or a model of timm", remedy=remedy)
    if pretrained and name == V1:
        raise _no_weights(name, "timm has none")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            net = timm.create_model("resnet50" if name == V1 else name, pretrained=pretrained, num_classes=0)
        except Exception as error:  # of the network, the disk, the hub, or a name with unknown weights
            if not pretrained:
                raise
            raise _no_weights(name, f"{type(error).__name__}: {error}") from error
    if name == V1:
        for block in (net.layer2[0], net.layer3[0], net.layer4[0]):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
        net.pretrained_cfg |= {"mean": V1_MEAN, "crop_pct": 0.875, "interpolation": "bilinear"}
    return net


def _no_weights(name: str, reason: str) -> InputError:
    got = f"'pretrained', but those of {name} could not be had ({reason})"
    remedy = "Name a file: `weights=PATH` (on another machine, timm's weights can be downloaded as model.safetensors)."
    allowed = "weights timm can download, a file, or 'none'"
    return InputError("backbone weights", got=got, allowed=allowed, remedy=remedy)


def _fill(net: nn.Module, file: Path) -> None:
    """Load weights from a file; those of an old head are left out."""
    own = net.state_dict()
    held = {key.removeprefix("module."): tensor for key, tensor in _read(file).items()}
    held = {key: tensor for key, tensor in held.items() if key in own or not key.startswith(HEADS)}
    wrong = [key for key, tensor in held.items() if key in own and own[key].shape != tensor.shape]
    fitting = {key: tensor for key, tensor in held.items() if key not in wrong}
    found = net.load_state_dict(fitting, strict=False)
    missing = [key for key in found.missing_keys if key not in wrong]
    faults = {"missing": missing, "unknown": found.unexpected_keys, "of another shape": wrong}
    texts = [
        f"{len(keys)} {fault} ({', '.join(keys[:SHOWN])}{', ...' if len(keys) > SHOWN else ''})"
        for fault, keys in faults.items()
        if keys
    ]
    if texts:
        remedy = "Name the file of this very network, under timm's names."
        raise _bad_file(file, f"tensors {'; '.join(texts)}", remedy)


def _read(file: Path) -> Mapping[str, Tensor]:
    """Read the tensors of a file; nothing but tensors is ever unpickled."""
    remedy = "Name a .safetensors file, or a state dict that torch.save wrote."
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        held = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the parsers raise almost anything
        raise _bad_file(file, f"{type(error).__name__}: {error}", remedy) from error
    for key in WRAPPERS:
        if isinstance(held, Mapping) and isinstance(held.get(key), Mapping):
            held = held[key]
    if not isinstance(held, Mapping) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise _bad_file(file, "something else than named tensors", remedy)
    return held


def _bad_file(file: Path, got: str, remedy: str) -> InputError:
    allowed = "a file of the network's tensors"
    return InputError(f"backbone weights {file}", got=got, allowed=allowed, remedy=remedy)
