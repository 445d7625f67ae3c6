"""Deprecated: use `warmpot.bench.runner`."""

from warmpot._deprecation import moved_names

__getattr__ = moved_names(__name__, {"run_grid": "warmpot.bench.runner:run_grid"})
