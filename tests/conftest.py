"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=30)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

SLOW = (
    "test_cli_resume.py::test_an_interrupted_run_says_how_to_go_on",
    "test_cli_resume.py::test_on_a_terminal_there_is_a_bar_and_a_summary",
    "test_cli_resume.py::test_errors_of_the_process_are_one_line",
    "test_train_loop.py::test_two_processes_train_as_one_on_the_gathered_batch",
    "test_train_loop.py::test_a_signal_to_one_process_stops_all",
    "test_bounds_and_choices.py::test_a_sweep_is_not_below_source_only",
    "test_bounds_and_choices.py::test_training_for_the_bound_proves_something",
    "test_cli_sweep.py::test_ctrl_c_ends_the_workers_at_once_and_the_sweep_can_go_on",
    "test_full.py::test_a_killed_run_goes_on_bit_for_bit[4]",
    "test_full.py::test_a_target_like_the_source_is_not_hurt[narrow]",
    "test_full.py::test_a_shifted_partial_target_is_won[narrow]",
    "test_every_method.py::test_it_beats_the_source_and_takes_weight_off_outliers[ar]",
    "test_every_method.py::test_it_beats_the_source_and_takes_weight_off_outliers[pwan]",
    "test_sweep.py::test_workers_find_the_same_though_one_is_killed",
    "test_examples.py::test_out_folder_can_be_chosen",
)
"""Long tests of what a shorter one tests too, or of what changes seldom: `make test-all` runs them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in item.nodeid for name in SLOW):
            item.add_marker(pytest.mark.slow)


Maker = Callable[[Any], Any]


@pytest.fixture(params=["numpy-float64", "torch-float64", "torch-float32"])
def make(request: pytest.FixtureRequest) -> Maker:
    """Return a function that turns an array into the library and dtype under test."""
    library, dtype = request.param.split("-")
    if library == "numpy":
        return lambda x: np.asarray(x, dtype=dtype)
    return lambda x: torch.as_tensor(np.asarray(x), dtype=getattr(torch, dtype))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of real data sets, or skip."""
    for parent in Path(__file__).resolve().parents:
        found = parent / "shared" / "data"
        if found.is_dir():
            return found
    return pytest.skip("the real data sets (../shared/data) are not on this machine")
