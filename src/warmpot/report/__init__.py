"""HTML pages of runs and grids, figures, model cards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmpot.report.bound_figures import draw_bounds
    from warmpot.report.run_page import report_run

__all__ = ["draw_bounds", "report_run"]


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: a figure of bounds does not need the modules of a page."""
    if name == "draw_bounds":
        from warmpot.report.bound_figures import draw_bounds

        return draw_bounds
    if name == "report_run":
        from warmpot.report.run_page import report_run

        return report_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
