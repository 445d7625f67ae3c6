"""Flags of the commands that train many times: how many at a time, and where."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["AT_A_TIME", "GPUS", "RAY_ADDRESS"]

AT_A_TIME = Annotated[
    int | None, typer.Option("--workers", help="Trainings at a time. [default: 1, with Ray one per available CPU]")
]
RAY_ADDRESS = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Train on Ray: local starts one here, auto or host:port join a cluster."),
]
GPUS = Annotated[float, typer.Option(help="GPUs that Ray gives to each training; 0.5 trains two on one.")]
