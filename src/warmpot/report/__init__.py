"""What a person looks at: figures, model cards, pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmpot.report.bounds import draw_bounds
    from warmpot.report.run import report_run

__all__ = ["draw_bounds", "report_run"]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a figure of bounds needs no page."""
    if name == "draw_bounds":
        from warmpot.report.bounds import draw_bounds

        return draw_bounds
    if name == "report_run":
        from warmpot.report.run import report_run

        return report_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
