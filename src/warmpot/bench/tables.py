"""Deprecated: use `warmpot.bench.result_tables`."""

from warmpot._deprecation import moved_names

__all__: list[str] = []
__getattr__ = moved_names(__name__, {"write_tables": "warmpot.bench.result_tables:write_tables"})
