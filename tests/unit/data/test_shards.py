"""Rows in many memory-mapped files of a folder."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmpot.data import Table
from warmpot.data import shards as shards_module
from warmpot.data.shards import ShardLayout, Shards, ShardWriter, read_shards
from warmpot.errors import InputError

X = np.arange(33, dtype=np.float32).reshape(11, 3)


def write(folder: Path, x: np.ndarray = X, per_shard: int = 4, kept: np.ndarray | None = None) -> Shards:
    """Write rows, without those that are not `kept`, and open the folder."""
    kept = np.ones(len(x), dtype=bool) if kept is None else kept
    writer = ShardWriter(folder, layout := ShardLayout(len(x), x.shape[1:], "float32", per_shard))
    for k in range(layout.n_shards):
        rows = [row for row in layout.samples_of(k) if kept[row]]
        writer.write(k, x[rows], rows, {row: "bad" for row in layout.samples_of(k) if not kept[row]})
    assert list(writer.bad()) == np.flatnonzero(~kept).tolist()
    writer.finish(Table(x, None, (), "x"))
    shards = read_shards(folder).x
    assert isinstance(shards, Shards)
    return shards


@settings(max_examples=40)
@given(data=st.data())
def test_shards_are_indexed_like_an_array(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    n, per_shard = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 12))
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)))
    x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
    shards, expected = write(tmp_path_factory.mktemp("shards"), x, per_shard, kept), x[kept]
    assert shards.shape == expected.shape
    for _ in range(3):
        rows = data.draw(_rows(len(expected)))
        np.testing.assert_array_equal(shards[rows], expected[rows])
        part = pickle.loads(pickle.dumps(shards.subset(rows)))
        np.testing.assert_array_equal(part[::-1], np.atleast_2d(expected[rows])[::-1])
        same = np.array_equal(np.atleast_2d(expected[rows]), expected)
        assert (part.fingerprint() == shards.fingerprint()) == same


def _rows(n: int) -> st.SearchStrategy[Any]:
    numbers = st.lists(st.integers(-n, n - 1), max_size=20)
    masks = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
    arrays = numbers.map(lambda rows: np.array(rows, dtype=np.int64))
    return st.one_of(arrays, masks, st.slices(n), st.integers(-n, n - 1))


def test_few_files_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards_module, "MAX_OPEN", 2)
    shards = write(tmp_path / "out")
    np.testing.assert_array_equal(shards[:], X)
    np.testing.assert_array_equal(shards[[0, 9, 1]], X[[0, 9, 1]])
    assert len(shards._maps) == 2
    assert len(pickle.loads(pickle.dumps(shards))._maps) == 0


def test_the_layout_on_disk_has_the_keys_of_format_1(tmp_path: Path) -> None:
    layout = ShardLayout(5, (3,), "float16", 4, ("a", "b"), {"backbone": "resnet50", "resize": 256})
    layout.write(tmp_path / "shards.json")
    text = (tmp_path / "shards.json").read_text().replace("\n", "").replace(" ", "")
    assert text == (
        '{"ask":{"backbone":"resnet50","resize":256},"classes":["a","b"],"dtype":"float16","format":1,"n":5,'
        '"per_shard":4,"row":[3]}'
    )
    assert ShardLayout.read(tmp_path / "shards.json") == layout
    assert layout.fingerprint() == ShardLayout(5, (3,), "float16", 4, (), layout.made_from).fingerprint()


@pytest.mark.parametrize("text", ["", "row\n", "row\n3\n1\n", "row\nx\n", "row\n11\n", "row,label\n1\n"])
def test_a_damaged_index_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path / "out")
    (tmp_path / "out" / "index.csv").write_text(text)
    with pytest.raises(InputError, match=r"index\.csv"):
        read_shards(tmp_path / "out")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}'])
def test_a_damaged_layout_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "shards.json").write_text(text)
    with pytest.raises(InputError, match=r"shards\.json"):
        read_shards(tmp_path)


def test_a_folder_without_shards_is_refused_with_the_command_that_makes_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="warmpot extract"):
        read_shards(tmp_path)
