"""Grids of trainings from one YAML file, their results in an append-only file, and tables of these results."""

from __future__ import annotations

from warmpot.bench.grid import Cell, DataSet, Grid, Row, grid_names, load_grid, read_grid
from warmpot.bench.store import Record, append, read_store

__all__ = ["Cell", "DataSet", "Grid", "Record", "Row", "append", "grid_names", "load_grid", "read_grid", "read_store"]
