"""Backbones: from images to pooled features, split into a frozen stem and a trained tail."""

from __future__ import annotations

import importlib
import importlib.util
import socket
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from warmpot._checks import check_choice, check_count
from warmpot._files import check_file
from warmpot.errors import InputError, MissingExtraError, listing
from warmpot.nets._split import split_network, split_points
from warmpot.nets.low_rank import adapt_attention

__all__ = [
    "Backbone", "BackboneSettings", "FrozenStem", "PixelNormalization", "PretrainedView", "are_weights_here",
    "build_backbone", "check_weights", "freeze_statistics", "import_timm", "last_block", "train_from_names",
]  # fmt: skip

BATCH_NORMS = ("train", "frozen", "sync")
V1 = "resnet50_v1"
V1_MEAN = (123.68 / 255, 116.779 / 255, 103.939 / 255)
HEAD_PREFIXES = ("fc.", "classifier.", "head.")  # beginnings of the tensor names of a classification head
WEIGHT_KEYS = ("state_dict", "model", "model_state_dict")  # keys under which training checkpoints store the weights
BLOCK = 4  # images per pass of the stem on a CPU, where the last bits of a convolution depend on the size of its batch
WORTH_TRAINING = 0.05  # share of the parameters: a block of a transformer has 1/12, its last norm less than 1/1000
FEW_PARTS = 5  # a ResNet has more: conv1, bn1 and four layers
CONNECT_SECONDS = 5.0  # until the hub counts as not reachable
MAX_SHOWN = 3  # names of tensors that a message lists


@dataclass(frozen=True)
class BackboneSettings:
    """Which backbone, with which weights, and how much of it is trained.

    Attributes
    ----------
    name : str
        A model of timm, or "resnet50_v1": the original ResNet-50, with the stride in the first convolution of a block.
    weights : str
        "pretrained" (downloaded by timm), "none" (random), or a file: safetensors, or a state dict of torch.
    train_from : str, optional
        The first trained part, such as "layer4"; the parts before it are frozen. "all": everything is trained; default:
        nothing is.
    batch_norm : "train", "frozen" or "sync"
        BatchNorm of the trained part in training: normalise by the batch and update the running statistics; normalise
        by the running statistics, which are kept (scale and shift are still trained); or normalise by the batches of
        all processes together.
    lora : int
        Of a transformer, train only updates of this rank of the linear layers of attention, from `train_from` on
        (`warmpot.nets.low_rank`); 0: train everything there.
    micro_batch : int
        In training, images that pass the trained part at a time; 0: a whole batch. What they leave for the backward
        pass is computed again there, so memory holds one micro-batch only, for a quarter more time. Losses and plans
        are still those of the whole batch, and so are gradients. BatchNorm that normalises by the batch would take the
        micro-batch, and count it twice: set `batch_norm` to "frozen".
    channels_last : bool
        Store the trained part's tensors with the channels last: faster for most convolutions.
    compile : bool
        Compile the trained part for training (`torch.compile`): the first steps take a minute, later ones less time.
    """

    name: str = "resnet50.tv_in1k"
    weights: str = "pretrained"
    train_from: str | None = None
    batch_norm: str = "train"
    lora: int = 0
    micro_batch: int = 0
    channels_last: bool = False
    compile: bool = False

    def __post_init__(self) -> None:
        check_choice("batch_norm", self.batch_norm, BATCH_NORMS)
        check_count("micro_batch", self.micro_batch, minimum=0)
        if check_count("lora", self.lora, minimum=0) and self.train_from is None:
            remedy = "Name the first trained part, or 'all': `train_from`."
            raise InputError("lora", got="a network that is not trained", allowed="a trained one", remedy=remedy)
        for field in ("name", "weights"):
            if not getattr(self, field):
                raise InputError(field, got="nothing", allowed="a name", remedy="Leave the setting out.")


class PretrainedView(NamedTuple):
    """How the authors of the weights prepare a test image; `fixed`: the network accepts no other crop."""

    resize: int
    crop: int
    interpolation: str
    fixed: bool


class PixelNormalization(nn.Module):
    """Maps pixels (n, 3, h, w) in 0, ..., 255 to numbers with mean 0 and standard deviation 1 per channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("std", torch.tensor(std))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the pixels."""
        return (x.to(self.mean.dtype) / 255 - self.mean[:, None, None]) / self.std[:, None, None]


class FrozenStem(nn.Module):
    """Normalisation, and the network up to the trained part; always in evaluation mode, without gradients.

    On a CPU, and for a given number of torch's threads, the output for an image does not depend on the other images of
    its batch, to the last bit: a stored output equals one that is computed again.
    """

    def __init__(self, normalise: PixelNormalization, body: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.normalise = normalise
        # the faster memory layout; not for the trained part, whose gradients must all have the same layout
        self.body = body.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.pooled = pooled
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> FrozenStem:  # noqa: ARG002 - always frozen
        """Stay in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Return the input of the trained part; pooled features when nothing is trained."""
        with torch.autocast(x.device.type, enabled=False):  # so that a stored output equals a computed one
            if x.device.type != "cpu" or torch.compiler.is_compiling() or isinstance(self.body, nn.Identity):
                y = self._pass(x)
            else:
                y = torch.cat([self._pass(_padded(block))[: len(block)] for block in torch.split(x, BLOCK)])
        if y.ndim == 2 and not self.pooled:
            remedy = "Name an earlier part."
            raise InputError("train_from", got="a part after the pooling", allowed="one before", remedy=remedy)
        return y

    def _pass(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(self.normalise(x).contiguous(memory_format=torch.channels_last))
        return y.contiguous()  # the memory layout that it has when read from disk


def _padded(x: Tensor) -> Tensor:
    """Fill up a block with copies of its last image."""
    return torch.cat([x, x[-1:].expand(BLOCK - len(x), *x.shape[1:])]) if len(x) < BLOCK else x


def freeze_statistics(network: nn.Module) -> None:
    """Let BatchNorm normalise by its running statistics, and keep them; scale and shift are still trained."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


class Backbone(nn.Module):
    """Images to pooled features (n, width): ``tail(stem(pixels))``, a frozen and a trained part."""

    def __init__(
        self, stem: FrozenStem, tail: nn.Module, width: int, view: PretrainedView, settings: BackboneSettings
    ) -> None:
        super().__init__()
        self.stem, self.tail = stem, tail
        self.width, self.view, self.settings = width, view, settings

    @property
    def normalise(self) -> PixelNormalization:
        """The first layer."""
        return self.stem.normalise

    def train(self, mode: bool = True) -> Backbone:
        """Set the mode of the tail; frozen BatchNorm and the stem stay in evaluation mode."""
        super().train(mode)
        if self.settings.batch_norm == "frozen":
            freeze_statistics(self.tail)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features (n, width).

        `x` holds uint8 pixels (n, 3, h, w); or the stem's output for them, floats of three or more dimensions; or
        pooled features, which are returned unchanged.
        """
        if x.ndim == 2:
            return x
        if not x.is_floating_point():
            x = self.stem(x)
            if torch.is_autocast_enabled(x.device.type):  # as Fabric rounds inputs that come from disk
                x = x.to(torch.get_autocast_dtype(x.device.type))
        elif self.settings.train_from is None:
            got, allowed = f"floats {tuple(x.shape)}", "uint8 pixels (n, 3, h, w) or pooled features (n, width)"
            raise InputError("x", got=got, allowed=allowed, remedy="Pass images as whole numbers in 0, ..., 255.")
        x = x.to(self.normalise.mean.dtype)
        if self.settings.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        if not (self.settings.micro_batch and self.training and torch.is_grad_enabled()):
            y: Tensor = self.tail(x)
            return y
        parts = torch.split(x, self.settings.micro_batch)
        return torch.cat([checkpoint(self.tail, part, use_reentrant=False) for part in parts])


def build_backbone(settings: BackboneSettings, *, seed: int = 0) -> Backbone:
    """Build a backbone; random weights come from `seed`, not from the global generator.

    The names of its tensors depend on the name, `train_from` and `lora` only, so that a saved backbone can be loaded
    into one built with ``weights="none"``.
    """
    net = _make_network(settings.name, seed, pretrained=settings.weights == "pretrained")
    if settings.weights not in ("pretrained", "none"):
        _load_weights(net, Path(settings.weights))
    if settings.train_from in (None, "all"):
        body, tail = (nn.Identity(), net) if settings.train_from else (net, nn.Identity())
    else:
        body, tail = split_network(net, settings.train_from)
    if settings.batch_norm == "sync":  # timm's function, which supports timm's own kinds of BatchNorm
        tail = import_timm().layers.convert_sync_batchnorm(tail)
    if settings.lora:
        adapt_attention(tail, settings.lora, seed)
    if settings.channels_last:
        tail = tail.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    cfg = net.pretrained_cfg
    crop, fixed = cfg["input_size"][-1], bool(cfg.get("fixed_input_size", False))
    view = PretrainedView(int(crop / cfg["crop_pct"]), crop, cfg["interpolation"], fixed)
    stem = FrozenStem(PixelNormalization(cfg["mean"], cfg["std"]), body, pooled=settings.train_from is None)
    return Backbone(stem, tail, int(net.head_hidden_size), view, settings).train()


def train_from_names(name: str) -> list[str]:
    """Return the outermost parts of a backbone that `BackboneSettings.train_from` can name, in their order."""
    return _outer_points(_make_network(name, 0))


def last_block(name: str) -> str:
    """Return the last part that `train_from` can name and that is worth training: not a normalisation only."""
    net = _make_network(name, 0)
    sizes = {point: sum(p.numel() for p in net.get_submodule(point).parameters()) for point in _outer_points(net)}
    total = sum(p.numel() for p in net.parameters())
    return [point for point, size in sizes.items() if size >= WORTH_TRAINING * total][-1]


def _outer_points(net: nn.Module) -> list[str]:
    points = split_points(net)
    outer = [point for point in points if "." not in point]
    # a network whose blocks are in one sequence is divided within it
    return outer if len(outer) > FEW_PARTS else [point for point in points if point.count(".") <= 1]


def are_weights_here(settings: BackboneSettings) -> bool:
    """Whether no weights have to be downloaded."""
    if settings.weights != "pretrained" or settings.name == V1:
        return True
    from huggingface_hub import try_to_load_from_cache

    config = import_timm().get_pretrained_cfg(settings.name)
    repository = None if config is None else config.hf_hub_id
    files = ("model.safetensors", "pytorch_model.bin")
    return repository is None or any(isinstance(try_to_load_from_cache(repository, name), str) for name in files)


def check_weights(settings: BackboneSettings) -> None:
    """Raise an `InputError` if weights would have to be downloaded and cannot be."""
    if settings.weights == "pretrained" and settings.name == V1:
        raise _no_weights(settings.name, "timm has none")
    if not are_weights_here(settings) and (problem := _why_no_download()):
        raise _no_weights(settings.name, problem)


def _why_no_download() -> str:
    """Return why the hub cannot be reached, or ""; the hub's own client would try again for a minute."""
    from huggingface_hub.constants import ENDPOINT

    hub = urlsplit(ENDPOINT)
    if getproxies():  # it may be reachable through a proxy only
        return ""
    try:
        socket.create_connection((hub.hostname or "", hub.port or 443), CONNECT_SECONDS).close()
    except OSError as error:
        return f"not on this machine, and {hub.hostname} cannot be reached: {error}"
    return ""


def _make_network(name: str, seed: int, *, pretrained: bool = False) -> Any:
    """Make a network without a head, with random weights or those that timm provides."""
    timm = import_timm()
    if name != V1 and not timm.is_model(name):
        near = get_close_matches(name, timm.list_models(), n=3)
        remedy = f"Did you mean {' or '.join(near)}?" if near else "timm.list_models() lists them."
        raise InputError("backbone", got=repr(name), allowed=f"{V1}, or a model of timm", remedy=remedy)
    if pretrained:
        check_weights(BackboneSettings(name))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        try:
            net = timm.create_model("resnet50" if name == V1 else name, pretrained=pretrained, num_classes=0)
        except Exception as error:  # from the connection, the disk, the hub, or a name without weights
            if not pretrained:
                raise
            raise _no_weights(name, f"{type(error).__name__}: {error}") from error
    if name == V1:
        for block in (net.layer2[0], net.layer3[0], net.layer4[0]):
            block.conv1.stride, block.conv2.stride = (2, 2), (1, 1)
        net.pretrained_cfg |= {"mean": V1_MEAN, "crop_pct": 0.875, "interpolation": "bilinear"}
    return net


def _no_weights(name: str, reason: str) -> InputError:
    got = f"'pretrained', but the weights of {name} are not available ({reason})"
    remedy = "Name a file: `weights=PATH` (on another machine, timm's weights can be downloaded as model.safetensors)."
    allowed = "weights timm can download, a file, or 'none'"
    return InputError("backbone weights", got=got, allowed=allowed, remedy=remedy)


def _load_weights(net: nn.Module, file: Path) -> None:
    """Load weights from a file, without those of a classification head."""
    needed = net.state_dict()
    stored = {key.removeprefix("module."): tensor for key, tensor in _read_tensors(file).items()}
    stored = {key: tensor for key, tensor in stored.items() if key in needed or not key.startswith(HEAD_PREFIXES)}
    misfits = [key for key, tensor in stored.items() if key in needed and needed[key].shape != tensor.shape]
    result = net.load_state_dict({key: stored[key] for key in stored if key not in misfits}, strict=False)
    missing = [key for key in result.missing_keys if key not in misfits]
    problems = {"missing": missing, "unknown": result.unexpected_keys, "of another shape": misfits}
    if texts := [f"{len(keys)} {problem} ({listing(keys, MAX_SHOWN)})" for problem, keys in problems.items() if keys]:
        remedy = "Name a file with the weights of this network, under timm's names."
        raise _file_error(file, f"tensors {'; '.join(texts)}", remedy)


def _read_tensors(file: Path) -> Mapping[str, Tensor]:
    """Read the tensors of a file; only tensors are ever unpickled."""
    remedy = "Name a .safetensors file, or a state dict that torch.save wrote."
    try:
        check_file(file)
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes the parsers raise almost anything
        got = str(error.got) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise _file_error(file, got, remedy) from error
    for key in WEIGHT_KEYS:
        if isinstance(stored, Mapping) and isinstance(stored.get(key), Mapping):
            stored = stored[key]
    if not isinstance(stored, Mapping) or not all(isinstance(tensor, Tensor) for tensor in stored.values()):
        raise _file_error(file, "something other than named tensors", remedy)
    return stored


def _file_error(file: Path, got: str, remedy: str) -> InputError:
    return InputError(f"backbone weights {file}", got=got, allowed="a file of the network's tensors", remedy=remedy)


SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
"""Operators that torchvision refers to at import without checking that its compiled part was loaded."""


def import_timm() -> Any:
    """Import timm, with a workaround for torchvision where necessary.

    torchvision's compiled operators only load with the build of torch that they were made for. Without them its import
    fails, although neither its models nor timm's need them. Declaring two operators makes the import succeed; a
    torchvision that can be imported is not changed.
    """
    for name in ("timm", "torchvision"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            remedy = "Install the extra that brings it: pip install 'warmpot[vision]'."
            raise MissingExtraError(name, got="not installed", allowed="installed", remedy=remedy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing codecs and deprecations, which no user can act on
            _import_torchvision()
            return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:
        remedy = "Install matching versions: pip install -U torch 'warmpot[vision]'."
        got = f"an import that fails ({error})"
        raise MissingExtraError("timm", got=got, allowed="one that works", remedy=remedy) from error


def _import_torchvision() -> None:
    import torch

    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for schema in SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # half initialised by the failed import
        torchvision: Any = importlib.import_module("torchvision")
        torchvision.warmpot_operators = library  # keeps it alive: its definitions disappear with it
