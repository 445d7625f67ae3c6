"""The page "Scaling": its tables are those of the results, its law and counts are right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page(benchmark_script: Callable[[str], ModuleType]) -> ModuleType:
    """The module that writes the page."""
    return benchmark_script("_scaling_page")


def test_the_page_shows_the_results(page: ModuleType, tmp_path: Path) -> None:
    copy = tmp_path / "scaling.md"
    copy.write_text((ROOT / "docs" / "scaling.md").read_text())
    page.write(page.Results(ROOT / "benchmarks" / "results" / "scaling.jsonl"), copy)
    assert copy.read_text() == (ROOT / "docs" / "scaling.md").read_text(), "run: python benchmarks/scaling.py --tables"


def test_the_law_is_found_in_data_that_follow_it(page: ModuleType) -> None:
    plans = [{"n": n, "draw": 0, "cpu": 2e-5 * n**1.25} for n in page.SIZES]
    plans.append({"n": 10 * page.SIZES[-1], "draw": 0, "cpu": 1.0})  # must not be fitted to
    law = page.law(plans)
    assert law == pytest.approx((2e-5, 1.25))
    assert law.seconds(10**6) == pytest.approx(2e-5 * 10**7.5)


@pytest.mark.parametrize(
    ("recipe", "passes"),
    [
        ("imagenet-caltech", (1, 1)),
        ("ba3us-imagenet", (1, 10)),
        ("pwan-imagenet", (2, 50)),
        ("arpm-imagenet", (11, 11)),
    ],
)
def test_passes_are_counted_as_the_recipes_make_them(
    page: ModuleType, recipe: str, passes: tuple[int, int]
) -> None:  # fmt: skip
    from warmpot.train import load_config

    assert page.passes_of(load_config(recipe)) == passes
