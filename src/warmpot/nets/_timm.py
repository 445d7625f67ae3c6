"""The import of timm, and of the torchvision it needs, whatever build of torch is installed."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from typing import Any

from warmpot.errors import MissingExtraError

__all__ = ["import_timm"]

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
