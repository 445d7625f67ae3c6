"""The built-in task."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from warmpot.data import digits_task, make_task
from warmpot.errors import InputError


@pytest.fixture(scope="module")
def tables():
    return digits_task(n_source=1000)


def test_the_task(tables) -> None:
    source, target = tables
    assert (source.n, source.width, target.n, target.width) == (1000, 64, 901, 64)
    assert source.classes == tuple("0123456789")
    assert target.classes == tuple("01234")
    assert np.bincount(source.y).tolist() == [100] * 10
    task, truth = make_task(source, target)
    assert task.n_classes == 10
    assert truth is not None
    assert set(truth.yt.tolist()) == set(range(5))


def test_both_sides_are_counts_in_boxes_filled_to_their_height(tables) -> None:
    for table in tables:
        assert np.array_equal(table.x, np.rint(table.x))
        assert table.x.min() == 0
        assert table.x.max() == 16
        rows = (table.x.reshape(-1, 8, 8) > 0).any(axis=2)
        assert rows.mean() > 0.99


def test_the_seed_decides() -> None:
    first, again, other = (digits_task(40, seed=seed)[0] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.y, again.y)
    assert not np.array_equal(first.x, other.x)


def test_printed_digits_can_be_told_apart_and_handwritten_ones_partly(tables) -> None:
    from sklearn.linear_model import LogisticRegression

    source, target = tables
    model = LogisticRegression(max_iter=300).fit(source.x[::2] / 16, source.y[::2])
    assert model.score(source.x[1::2] / 16, source.y[1::2]) > 0.9
    assert 0.5 < model.score(target.x / 16, target.y) < 0.85  # there is something left to adapt


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="n_source: got 5"):
        digits_task(5)
    with pytest.raises(InputError, match="seed: got -1"):
        digits_task(10, seed=-1)


def test_the_room_imports_nothing_heavy() -> None:
    code = "import sys, warmpot.data; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "sklearn", "matplotlib", "PIL", "scipy", "pyarrow", "pandas", "numba"} & set(loaded)
