"""What users have, read and checked; tasks, samplers and a built-in pair of domains."""

from __future__ import annotations

from warmpot.data.arrays import load_features, load_table
from warmpot.data.digits import digits_task
from warmpot.data.samplers import ClassBalanced, Sampler, Shuffled, Weighted, make_sampler
from warmpot.data.table import Table, as_table, table_from_dataset
from warmpot.data.task import Task, Truth, make_task

__all__ = [
    "ClassBalanced",
    "Sampler",
    "Shuffled",
    "Table",
    "Task",
    "Truth",
    "Weighted",
    "as_table",
    "digits_task",
    "load_features",
    "load_table",
    "make_sampler",
    "make_task",
    "table_from_dataset",
]
