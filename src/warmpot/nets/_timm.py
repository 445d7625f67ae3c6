"""The import of timm, and of the torchvision it needs, beside any build of torch."""

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
"""Operators that torchvision describes at import without asking whether its compiled part could be loaded."""

_kept: list[Any] = []  # a library's definitions go when it goes


def import_timm() -> Any:
    """Import timm, mending torchvision first if it needs it.

    torchvision's compiled operators load only beside the build of torch they were made for. Its import fails without
    them, although its models and timm's need none. Declaring two operators lets it pass; one that loads is left alone.
    """
    for name in ("timm", "torchvision"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            remedy = "Install the extra that brings it: pip install 'warmpot[vision]'."
            raise MissingExtraError(name, got="not installed", allowed="installed", remedy=remedy)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # missing codecs, deprecations between the two: no user can act on them
            _import_torchvision()
            return importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:
        remedy = "Install versions that belong together: pip install -U torch 'warmpot[vision]'."
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
        _kept.append(library)
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]  # what the failed import left half made
        importlib.import_module("torchvision")
