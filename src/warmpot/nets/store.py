"""Networks on disk: tensors in safetensors, the rest in JSON; nothing is ever unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot._files import atomic_write
from warmpot._run_files import MODEL_FACTS, MODEL_TENSORS
from warmpot._settings import from_mapping, to_mapping
from warmpot.errors import InputError
from warmpot.nets.backbone import Backbone, BackboneSettings, build_backbone
from warmpot.nets.network import Network, NetworkSettings, build_network

if TYPE_CHECKING:
    from torch import nn

__all__ = ["load_network", "save_network"]


def save_network(folder: Path, network: Network, settings: NetworkSettings, facts: Mapping[str, Any]) -> None:
    """Write ``model.safetensors`` and ``model.json``.

    Parameters
    ----------
    folder : path
        An existing folder.
    network : Network
    settings : NetworkSettings
        What `build_network` made it from.
    facts : mapping
        What else a user of the model needs to know, such as the class names, in values that JSON supports.
    """
    from safetensors.torch import save

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    with atomic_write(folder / MODEL_TENSORS) as draft:
        draft.write_bytes(save(tensors))  # save_file would make it readable by its owner only
    described = {
        "network": to_mapping(settings),
        "n_inputs": network.n_inputs,
        "n_outputs": network.head.out_features,
        "dtype": _dtype(network.head),
        "facts": dict(facts),
    }
    if isinstance(network.backbone, Backbone):
        shape = network.backbone.settings
        described["backbone_dtype"] = _dtype(network.backbone)
        described["backbone"] = to_mapping(replace(shape, weights=Path(shape.weights).name))  # they are in the file
    with atomic_write(folder / MODEL_FACTS) as draft:
        draft.write_text(json.dumps(described, indent=1), encoding="utf-8")


def _dtype(module: nn.Module) -> str:
    return str(next(module.parameters()).dtype).removeprefix("torch.")


def load_network(folder: Path) -> tuple[Network, NetworkSettings, dict[str, Any]]:
    """Read a network (in evaluation mode), its settings and the facts saved with it."""
    import torch
    from safetensors.torch import load_file

    try:
        described = json.loads((folder / MODEL_FACTS).read_text(encoding="utf-8"))
        tensors = load_file(folder / MODEL_TENSORS)
        if "bottleneck.0.centre" in tensors:  # older files have no centre of the source
            tensors.setdefault("bottleneck.0.source_centre", tensors["bottleneck.0.centre"].clone())
        settings = from_mapping(NetworkSettings, described["network"], "network")
        network = build_network(settings, described["n_inputs"], described["n_outputs"], seed=0)
        network.to(getattr(torch, described["dtype"]))
        if "backbone" in described:  # its weights are in the file
            shape = from_mapping(BackboneSettings, described["backbone"], "backbone")
            network.backbone = build_backbone(replace(shape, weights="none"))
            network.backbone.to(getattr(torch, described.get("backbone_dtype", "float32")))
            network.backbone.settings = shape
        network.load_state_dict(tensors)
    except InputError:
        raise
    except Exception as error:  # a damaged file makes the parsers raise almost anything
        got, remedy = f"{type(error).__name__}: {error}", "Name the folder that `warmpot fit --out` wrote."
        raise InputError(str(folder), got=got, allowed="a finished run", remedy=remedy) from error
    return network.eval(), settings, described["facts"]
