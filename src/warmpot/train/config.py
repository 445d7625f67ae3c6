"""The description of a run: one YAML file, small validated objects."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from warmpot._checks import check_choice, check_count, check_fraction, check_nonnegative, check_positive
from warmpot._settings import from_mapping, to_mapping
from warmpot.errors import InputError
from warmpot.losses import LabelLoss, get_label_loss
from warmpot.methods import (
    DEFAULT_METHOD,
    OWN,
    FullSettings,
    Method,
    ParamGroup,
    Weighting,
    make_method,
    make_weighting,
    weighting_names,
)
from warmpot.nets import Network, NetworkSettings
from warmpot.train.images import ImageSettings
from warmpot.train.recipes import DEFAULT, layered, preset_for, presets_of, read_preset, read_settings

__all__ = ["LAST", "HardwareSettings", "MinibatchSettings", "OptimizerSettings", "RunConfig", "load_config"]

ENGINES = ("full", "minibatch")
LAST = "last"
"""The choice without a validator: the last iterate."""
CUSTOM = "custom"
"""The choice by a `Chooser` of one's own."""


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimiser; the learning rate of step i is ``lr * multiplier * (1 + decay_rate * i) ** -decay_power``.

    Of n steps, with the schedule "relative" it is ``lr * multiplier * (1 + decay_rate * i / n) ** -decay_power``
    (SHOT++), and with "cosine" ``lr * multiplier * (1 + cos(pi * i / n)) / 2`` (SLM).

    Attributes
    ----------
    name : "sgd" or "adam"
    lr : float
    momentum, nesterov
        For SGD.
    weight_decay : float
        The authors' 1e-3: their scheduler overwrites the 5e-4 of the constructor at every step.
    decay_rate, decay_power : float
    schedule : "power", "relative" or "cosine"
    backbone, bottleneck, head, extra : float
        Multipliers of the learning rate; the last is for what a method trains besides the network.
    """

    name: str = "sgd"
    lr: float = 1e-3
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 1e-3
    decay_rate: float = 1e-3
    decay_power: float = 0.75
    schedule: str = "power"
    backbone: float = 1.0
    bottleneck: float = 10.0
    head: float = 10.0
    extra: float = 10.0

    def __post_init__(self) -> None:
        check_choice("name", self.name, ("sgd", "adam"))
        check_choice("schedule", self.schedule, ("power", "relative", "cosine"))
        check_positive("lr", self.lr)
        check_nonnegative("momentum", self.momentum, maximum=1.0)
        for name in ("weight_decay", "decay_rate", "decay_power", "backbone", "bottleneck", "head", "extra"):
            check_nonnegative(name, getattr(self, name))

    def decay(self, step: float, steps: int) -> float:
        """Return the factor of all learning rates at a step of so many."""
        if self.schedule == "cosine":
            return (1.0 + math.cos(math.pi * step / steps)) / 2.0
        done = step / steps if self.schedule == "relative" else step
        return float((1.0 + self.decay_rate * done) ** -self.decay_power)

    def build(
        self, network: Network, extra: Iterable[nn.Parameter] = (), further: Iterable[ParamGroup] = ()
    ) -> torch.optim.Optimizer:
        """Make the optimiser of a network, and of what a method trains besides it; ``lr_scale`` are the multipliers.

        The factors of `further` groups are relative to the multiplier `extra` and to the weight decay.
        """
        parts = {name: getattr(network, name).parameters() for name in ("backbone", "bottleneck", "head")}
        groups: list[dict[str, Any]] = [
            {"params": params, "lr_scale": getattr(self, name)}
            for name, part in {**parts, "extra": extra}.items()
            if (params := [p for p in part if p.requires_grad])
        ]
        groups += [
            {"params": list(params), "lr_scale": self.extra * lr, "weight_decay": self.weight_decay * weight_decay}
            for params, lr, weight_decay in further
        ]
        # One pass over the memory per step. It reads every tensor in the order of its memory, and a checkpoint returns
        # momentum in the usual order: not for parameters in another one (channels last).
        fused = all(param.is_contiguous() for group in groups for param in group["params"])
        if self.name == "adam":
            return torch.optim.Adam(groups, lr=self.lr, weight_decay=self.weight_decay, fused=fused)
        return torch.optim.SGD(
            groups, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay, fused=fused,
        )  # fmt: skip


@dataclass(frozen=True)
class HardwareSettings:
    """Flags of Lightning Fabric, and where the plan of a distributed batch is solved.

    Attributes
    ----------
    accelerator, devices, num_nodes, strategy, precision
        As `lightning_fabric.Fabric` takes them.
    plan : "gathered" or "rank"
        Over several processes: one plan on the joined batch (the same loss as one process), or one per process.
    """

    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    plan: str = "gathered"

    def __post_init__(self) -> None:
        check_count("devices", self.devices)
        check_count("num_nodes", self.num_nodes)
        check_choice("plan", self.plan, ("gathered", "rank"))

    @property
    def processes(self) -> int:
        """Processes that train together."""
        return self.devices * self.num_nodes


@dataclass(frozen=True)
class MinibatchSettings:
    """The mini-batch engine: SGD on batches, a plan for every batch (the paper).

    Attributes
    ----------
    steps : int
        Training steps.
    warmup : float
        Share of the steps on the source alone, before the method and its schedules start (ours). The predictions of an
        untrained head are guesses: weights from them feed back on themselves, and what has no weight is never learned.
    source_batch, target_batch : int
        Samples per step, over all processes together.
    sampler : "balanced" or "shuffled"
        How source batches are drawn: equally many samples of every class, or shuffled.
    network, optimizer, hardware
        See `NetworkSettings`, `OptimizerSettings`, `HardwareSettings`.
    log_every, checkpoint_every : int
        Steps between lines of ``metrics.jsonl``, and between checkpoints.
    """

    steps: int = 5000
    warmup: float = 0.0
    source_batch: int = 65
    target_batch: int = 65
    sampler: str = "balanced"
    network: NetworkSettings = field(default_factory=NetworkSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    hardware: HardwareSettings = field(default_factory=HardwareSettings)
    log_every: int = 50
    checkpoint_every: int = 500

    def __post_init__(self) -> None:
        for name in ("steps", "source_batch", "target_batch", "log_every", "checkpoint_every"):
            check_count(name, getattr(self, name))
        check_choice("sampler", self.sampler, ("balanced", "shuffled"))
        check_nonnegative("warmup", self.warmup, maximum=1.0)

    @property
    def warmup_steps(self) -> int:
        """Steps before the method starts; it has at least one."""
        return min(round(self.warmup * self.steps), self.steps - 1)


@dataclass(frozen=True)
class RunConfig:
    """One run.

    Attributes
    ----------
    preset : str
        The recipe that the settings started from, for the record.
    engine : "full" or "minibatch"
    method, params : str and mapping
        A name that `warmpot.methods.method_names` lists, and its parameters.
    weights, weight_params : str or None, and mapping
        How source samples are weighted: a name that `warmpot.methods.weighting_names` lists, or "own": by the method
        itself, by its plan for instance; None: as in the method's paper. And the weighting's parameters.
    loss : str
        Label loss: "cross_entropy" for classes; "absolute" or "squared" for continuous targets.
    seed : int
    choose : str
        Which iterate is the result: "last", or the best by a validator of `warmpot.select.VALIDATORS`.
    held : float
        Share of the source kept out of the training for a validator that needs it.
    holdout : float
        Share of the target, in [0, 1), that nothing depends on: `warmpot bound` certifies the classifier with it.
    candidates : int or None
        How many settings, listed in advance, the target chose these from, as `warmpot sweep` writes; None if these were
        not listed. It has no effect on the training: a PAC-Bayes bound pays for the choice.
    tensorboard : bool
        Write metrics for TensorBoard too (extra ``track``).
    full, minibatch
        Settings of the two engines.
    images : ImageSettings or None
        How images become features; None for data that are features already.
    built_method, built_weighting, label_loss
        The method, the weighting (None: the method weighs samples itself) and the label loss of these names, built
        once.
    """

    preset: str = "full"
    engine: str = "full"
    method: str = DEFAULT_METHOD
    params: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    weight_params: Mapping[str, Any] = field(default_factory=dict)
    loss: str = "cross_entropy"
    seed: int = 0
    choose: str = LAST
    held: float = 0.2
    holdout: float = 0.0
    candidates: int | None = 1
    tensorboard: bool = False
    full: FullSettings = field(default_factory=FullSettings)
    minibatch: MinibatchSettings = field(default_factory=MinibatchSettings)
    images: ImageSettings | None = None
    built_method: Method[Any] = field(init=False, repr=False, compare=False)
    built_weighting: Weighting[Any] | None = field(init=False, repr=False, compare=False)
    label_loss: LabelLoss = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_choice("engine", self.engine, ENGINES)
        if self.engine == "full" and self.images is not None and self.images.fine_tunes:
            got, remedy = "'full' with a backbone that is trained", "Take a mini-batch preset, such as official."
            raise InputError("engine", got=got, allowed="'minibatch'", remedy=remedy)
        self._set("label_loss", get_label_loss(self.loss))
        check_count("seed", self.seed, minimum=0)
        check_fraction("held", self.held)
        if not 0 <= check_nonnegative("holdout", self.holdout, maximum=1.0) < 1:
            raise InputError("holdout", got=1, allowed="0 <= holdout < 1", remedy="Leave target samples to train on.")
        if self.candidates is not None:
            check_count("candidates", self.candidates)
        method = make_method(self.method, self.params)
        if self.engine not in method.engines:
            got, allowed = f"{self.engine!r} with the method {method.name!r}", " or ".join(map(repr, method.engines))
            recipes = presets_of(method.name)
            remedy = f"Take one of its presets: {', '.join(recipes)}." if recipes else "Set engine=minibatch."
            raise InputError("engine", got=got, allowed=allowed, remedy=remedy)
        # What is saved is resolved, defaults and all.
        self._set("built_method", method)
        self._set("params", dataclasses.asdict(method))  # type: ignore[call-overload]
        self._set("weights", method.weights if self.weights is None else self.weights)
        self._check_weights(method)
        weighting = None if self.weights in (None, OWN) else make_weighting(self.weights, self.weight_params)
        if weighting is not None and self.engine == "minibatch":
            method.check_first_refresh(weighting.first_refresh)
        self._set("built_weighting", weighting)
        resolved = dataclasses.asdict(weighting) if weighting is not None else {}  # type: ignore[call-overload]
        self._set("weight_params", resolved)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_weights(self, method: Method[Any]) -> None:
        """Refuse weights that the method or its engine could not use."""
        if self.weights == OWN and self.weight_params:
            remedy = "Set params of the method, or name a weighting."
            allowed = "none with the weights 'own'"
            raise InputError("weight_params", got=f"{self.weight_params}", allowed=allowed, remedy=remedy)
        if self.weights == method.weights:
            return
        what, allowed = f"{self.weights!r} with the method {method.name!r}", repr(method.weights)
        remedy = ""
        if not method.uses_target:
            remedy = "A method that does not use the target cannot weigh samples by it."
        elif self.engine == "full":
            what, remedy = f"{self.weights!r} with the full engine", "Take a mini-batch preset, such as frozen."
        elif self.weights == OWN and not method.weighs_samples():
            allowed = ", ".join(weighting_names())
            remedy = "It has no plan of its own; `plan` solves one for the weights."
        if remedy:
            raise InputError("weights", got=what, allowed=allowed, remedy=remedy)

    def dump(self) -> str:
        """Write the resolved run as YAML."""
        settings = to_mapping(self)
        if self.images is None:
            del settings["images"]
        return str(yaml.safe_dump(settings, sort_keys=False))


def load_config(
    preset: str | None = None, file: Path | None = None, changes: Mapping[str, Any] | None = None
) -> RunConfig:
    """Resolve a run: a preset, under a YAML file, under further changes.

    Parameters
    ----------
    preset : str, optional
        A recipe of the package; default: the one that the file names, else that of the method which file or changes
        name (`preset_for`), else "full".
    file : path, optional
        YAML with any part of a `RunConfig`.
    changes : mapping, optional
        Nested settings that win over both.

    Examples
    --------
    >>> load_config("official", changes={"minibatch": {"steps": 10}}).minibatch.steps
    10
    """
    written, changes = {} if file is None else read_settings(file), changes or {}
    method = changes.get("method", written.get("method"))
    base = read_preset(preset or str(written.get("preset", DEFAULT if method is None else preset_for(str(method)))))
    if "images" not in written and "images" not in changes:
        base.pop("images", None)  # what a recipe says of images is not for features
    layers = layered(base, {key: value for key, value in written.items() if key != "preset"})
    return from_mapping(RunConfig, layered(layers, changes), "config")
