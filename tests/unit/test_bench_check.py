"""The comparison of measured ratios with the committed ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "transport.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("transport_benchmark", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_ratio_that_fell_by_half_is_named(script: ModuleType) -> None:
    committed = {
        "rows": [{"case": "one", "ratio": 100.0}, {"case": "two", "ratio": 100.0}, {"case": "three", "ratio": None}]
    }
    rows = [
        script.Row("one", 1.0, 60.0),
        script.Row("two", 1.0, 40.0),
        script.Row("three", 1.0, 1.0),
        script.Row("new", 1.0, 1.0),
    ]
    assert script.fallen(rows, committed) == ["two: 40, was 100"]
