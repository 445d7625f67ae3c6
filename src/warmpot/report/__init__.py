"""What a person looks at: figures."""

from __future__ import annotations

from warmpot.report.bounds import draw_bounds

__all__ = ["draw_bounds"]
