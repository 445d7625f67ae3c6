"""The processes and devices of a run: Lightning Fabric, started as the settings say."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning_fabric import Fabric

from warmpot.errors import InputError, explain
from warmpot.train.config import HardwareSettings

__all__ = ["make_fabric", "quiet_gathers"]


def make_fabric(hardware: HardwareSettings) -> Fabric:
    """Start Fabric as the settings say; bad flags get our message."""
    accelerator = hardware.accelerator
    if accelerator == "mps":
        got, remedy = "mps", "Plans are solved in float64, which it does not have: use cpu or cuda."
        raise InputError(explain("minibatch.hardware.accelerator", got=got, allowed="cpu, cuda, auto", remedy=remedy))
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
        raise InputError(explain("minibatch.hardware", got=got, allowed="Fabric's flags", remedy=remedy)) from error
    fabric.launch()
    return fabric


@contextmanager
def quiet_gathers() -> Iterator[None]:
    """Hide what Fabric's own gather says of torch's: nobody who trains can do anything about it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"torch\.distributed\.nn\.functional\.all_gather")
        yield
