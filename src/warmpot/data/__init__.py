"""Reading what users have."""

from __future__ import annotations

from warmpot.data.arrays import load_features

__all__ = ["load_features"]
