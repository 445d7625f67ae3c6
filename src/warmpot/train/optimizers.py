"""Optimisers of the mini-batch engine, and their state in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from warmpot.nets import Network
from warmpot.train.config import OptimizerSettings

__all__ = ["make_optimizer", "pack_optimizer", "unpack_optimizer"]

PARTS = ("backbone", "bottleneck", "head")


def make_optimizer(
    network: Network, settings: OptimizerSettings, extra: Iterable[torch.nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """Make the optimiser with one group per part of the network; ``lr_scale`` is the part's multiplier.

    Parameters
    ----------
    network : Network
    settings : OptimizerSettings
    extra : iterable of parameters
        What a method trains besides the network.
    """
    parts = {name: list(getattr(network, name).parameters()) for name in PARTS} | {"extra": list(extra)}
    groups = [
        {"params": params, "lr_scale": getattr(settings, name)}
        for name, part in parts.items()
        if (params := [p for p in part if p.requires_grad])
    ]
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov and settings.momentum > 0,
        weight_decay=settings.weight_decay,
    )


def pack_optimizer(optimizer: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into tensors and what JSON can hold."""
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, entries in state["state"].items():
        for name, value in entries.items():
            part = tensors if isinstance(value, Tensor) else numbers
            part[f"{index}.{name}"] = value
    return tensors, {"numbers": numbers, "groups": state["param_groups"]}


def unpack_optimizer(optimizer: Any, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Undo `pack_optimizer`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **facts["numbers"]}.items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": facts["groups"]})
