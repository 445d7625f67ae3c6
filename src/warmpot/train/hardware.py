"""The processes and devices of a run: Lightning Fabric, started as the settings say."""

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
    """Start Fabric as the settings say; bad flags get our message."""
    from lightning_fabric import Fabric  # loads torch's compiler: three seconds that the full engine need not wait

    accelerator = hardware.accelerator
    if accelerator == "mps":
        got, remedy = "mps", "Plans are solved in float64, which it does not have: use cpu or cuda."
        raise InputError("minibatch.hardware.accelerator", got=got, allowed="cpu, cuda, auto", remedy=remedy)
    if accelerator == "auto" and not torch.cuda.is_available():
        accelerator = "cpu"  # Fabric would take mps where there is one
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
    """Return the device of a name; "auto" is a GPU if there is one, of several processes on a machine one each."""
    gpu = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if gpu else torch.device("cpu")
    if name.partition(":")[0] not in ("cpu", "cuda") or (name != "cpu" and not gpu):
        remedy = "`warmpot doctor` lists the devices of this machine."
        raise InputError("device", got=repr(name), allowed="auto, cpu, cuda if there is one", remedy=remedy)
    return torch.device(name)


@contextmanager
def quiet_gathers() -> Iterator[None]:
    """Hide what Fabric's own gather says of torch's: nobody who trains can do anything about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"torch\.distributed\.nn\.functional\.all_gather")
        yield
