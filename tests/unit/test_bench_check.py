"""The comparison of measured ratios with the committed ones."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType


def test_a_ratio_that_fell_by_half_is_named(benchmark_script: Callable[[str], ModuleType]) -> None:
    script = benchmark_script("_rows")
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
