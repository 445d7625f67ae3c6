"""Processes and devices of a run, through Lightning Fabric."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from warmpot.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from warmpot.train.config import HardwareSettings

__all__ = ["make_fabric", "quiet_gathers", "resolve_device"]


def make_fabric(hardware: HardwareSettings) -> Fabric:
    """Start Fabric with these settings; raise an `InputError` for settings that it refuses."""
    # Imported here, because it loads torch's compiler: three seconds that the full engine does not need.
    from lightning_fabric import Fabric

    accelerator = hardware.accelerator
    if accelerator == "mps":
        got, remedy = "mps", "Plans are solved in float64, which it does not support: use cpu or cuda."
        raise InputError("minibatch.hardware.accelerator", got=got, allowed="cpu, cuda, auto", remedy=remedy)
    if accelerator == "auto" and not torch.cuda.is_available():
        accelerator = "cpu"  # where Fabric would choose mps
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=hardware.devices,
            num_nodes=hardware.num_nodes,
            strategy=hardware.strategy,
            precision=hardware.precision,  # type: ignore[arg-type]
        )
    except (ValueError, RuntimeError, TypeError) as error:
        got, remedy = " ".join(str(error).split()), "`warmpot doctor` lists the devices of this machine."
        raise InputError("minibatch.hardware", got=got, allowed="Fabric's flags", remedy=remedy) from error
    fabric.launch()
    return fabric


def resolve_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU if there is one: its own for each process of a machine."""
    gpu = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpu else torch.device("cpu")
    if name.partition(":")[0] not in ("cpu", "cuda") or (name != "cpu" and not gpu):
        remedy = "`warmpot doctor` lists the devices of this machine."
        raise InputError("device", got=repr(name), allowed="auto, cpu, cuda if there is one", remedy=remedy)
    return torch.device(name)


@contextmanager
def quiet_gathers() -> Iterator[None]:
    """Hide a deprecation warning of torch that Fabric's gather causes, and that users cannot act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"torch\.distributed\.nn\.functional\.all_gather")
        yield
