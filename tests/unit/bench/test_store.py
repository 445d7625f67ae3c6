"""The file of results."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmpot.bench import Record, append, read_store
from warmpot.bench.store import RESULTS
from warmpot.errors import WarmpotError

RECORDS = [
    Record("k1", "d", "t", "r", seed=0, accuracy={"last": 0.5}),
    Record("k2", "d", "t", "r", seed=1, point={"params.alpha": 0.5}),
    Record("k3", "d", "t", "q", status="failed", error="Error: x\ny"),
]


def test_the_last_line_of_a_place_counts(tmp_path: Path) -> None:
    for record in (*RECORDS, dataclasses.replace(RECORDS[0], accuracy={"last": 0.9})):
        append(tmp_path, record)
    found = read_store(tmp_path)
    assert found == [dataclasses.replace(RECORDS[0], accuracy={"last": 0.9}), *RECORDS[1:]]
    assert [record.done for record in found] == [True, True, False]
    with pytest.raises(WarmpotError, match="a path that can be written"):
        append(tmp_path / "nowhere", RECORDS[0])


@given(cut=st.integers(1, 400))
def test_a_torn_line_costs_its_own_cell_only(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("store")
    for record in RECORDS[:2]:
        append(folder, record)
    file = folder / RESULTS
    whole = file.read_bytes()
    keep = max(len(whole) - cut, whole.index(b"\n") + 1)
    file.write_bytes(whole[:keep])
    append(folder, RECORDS[2])
    expected = [RECORDS[0], RECORDS[2]] if keep < len(whole) - 1 else RECORDS
    assert read_store(folder) == expected


def test_records_of_other_versions_are_read(tmp_path: Path) -> None:
    odd = [{"row": "r", "point": None}, {"row": ["r"]}]
    lines = [{"key": "k", "dataset": "d", "new": 3}, ["no", "record"], "text", *odd]
    (tmp_path / RESULTS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_store(tmp_path) == [Record("k", "d")]
    assert read_store(tmp_path / "nowhere") == []
