"""Deprecated: use `warmpot.bench.table_files`."""

from warmpot._deprecation import moved_names

__getattr__ = moved_names(__name__, {"write_tables": "warmpot.bench.table_files:write_tables"})
