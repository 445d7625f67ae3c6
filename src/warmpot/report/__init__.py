"""HTML pages of runs and grids, figures, model cards."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmpot.report.plots import (
        plot_class_weights,
        plot_classes,
        plot_confusion,
        plot_projection,
        plot_training,
        plot_weights,
    )
    from warmpot.report.run_page import report_run
    from warmpot.report.sections.bounds import draw_bounds

__all__ = [
    "draw_bounds", "plot_class_weights", "plot_classes", "plot_confusion", "plot_projection", "plot_training",
    "plot_weights", "report_run",
]  # fmt: skip

_MODULES = {"draw_bounds": "warmpot.report.sections.bounds", "report_run": "warmpot.report.run_page"}
_MODULES |= {name: "warmpot.report.plots" for name in __all__ if name.startswith("plot_")}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a figure of bounds does not need the modules of a page."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
