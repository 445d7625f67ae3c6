"""Reading and checking of data; tasks, samplers, descriptions of public data sets and a built-in task."""

from __future__ import annotations

from warmpot.data.benchmarks import benchmark_names, benchmark_task, read_benchmark
from warmpot.data.digits import digits_task
from warmpot.data.files import load_features, load_table
from warmpot.data.images import images_from_dataset, load_images
from warmpot.data.inputs import read_samples
from warmpot.data.pixels import ViewSettings
from warmpot.data.samplers import ClassBalanced, Sampler, Shuffled, make_sampler
from warmpot.data.table import Table, as_table, table_from_dataset
from warmpot.data.task import Task, Truth, make_task

__all__ = [
    "ClassBalanced", "Sampler", "Shuffled", "Table", "Task", "Truth", "ViewSettings", "as_table", "benchmark_names",
    "benchmark_task", "digits_task", "images_from_dataset", "load_features", "load_images", "load_table",
    "make_sampler", "make_task", "read_benchmark", "read_samples", "table_from_dataset",
]  # fmt: skip
