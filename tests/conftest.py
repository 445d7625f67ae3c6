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
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=60)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

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
