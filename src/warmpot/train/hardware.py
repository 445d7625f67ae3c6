"""Processes and devices of a run, through Lightning Fabric, and the signals that stop it."""

from __future__ import annotations

import logging
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import torch

from warmpot.errors import InputError

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from warmpot.train.config import HardwareSettings

__all__ = ["asked_to_stop", "make_fabric", "quiet_gathers", "resolve_device"]

# A name of its own: where the log of trainings is turned off, the answer to Ctrl-C must still appear.
logger = logging.getLogger("warmpot.train.interrupt")


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
        names = ("devices", "num_nodes", "strategy", "precision")
        fabric = Fabric(accelerator=accelerator, **{name: getattr(hardware, name) for name in names})
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


@contextmanager
def asked_to_stop() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the signal (SIGINT: Ctrl-C, or SIGTERM) that asked to stop, or 0.

    An interrupt within an optimiser step would leave a state that no uninterrupted run can have. A second signal
    interrupts at once, and so does the end of the block if nobody stopped. Signals can only be caught in the main
    thread; in other threads nothing is changed.
    """
    received = 0

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal received
        if received:
            raise KeyboardInterrupt(number)
        received = number
        logger.warning("stopping after this step; press again to stop at once, without finishing it")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt(received)
