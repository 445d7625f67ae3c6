"""Deprecated: use `warmpot.bench.runner`."""

from warmpot._deprecation import moved_names

__all__: list[str] = []
__getattr__ = moved_names(__name__, {"run_grid": "warmpot.bench.runner:run_grid"})
