"""Samples in parts (`warmpot.data.parts`): the same as the whole file, in bounded memory."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warmpot.data import load_table
from warmpot.data._columns import Roles
from warmpot.data.parts import Part, SampleParts, read_parts
from warmpot.errors import InputError, WarmpotWarning

rng = np.random.default_rng(0)
N = 35
X = rng.normal(size=(N, 3)).round(3)
LABELS = [f"{k % 3:02d}" for k in range(N)]  # texts only because of the last
LABELS[-1] = "other"
IDS = [f"s{k}" for k in range(N)]


def write_csv(path: Path, x: Any = X, labels: Any = LABELS, ids: Any = IDS) -> None:
    rows = [
        [name, *map(repr, row), label] for name, row, label in zip(ids, np.asarray(x).tolist(), labels, strict=True)
    ]
    lines = [",".join(row) for row in [["name", "a", "b", "c", "label"], *rows]]
    path.write_text("# mine\n\n" + "\n\n".join(lines) + "\n# the end\n\n\n")


def write_parquet(path: Path, x: Any = X, labels: Any = LABELS, ids: Any = IDS) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    columns = {"name": ids, **dict(zip("abc", np.asarray(x).T, strict=True)), "label": labels}
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=7)


WRITERS: dict[str, Callable[..., None]] = {"csv": write_csv, "parquet": write_parquet}


def parts(path: Path, rows: int = 10, **options: Any) -> SampleParts:
    return read_parts(path, rows, Roles(ids=options.pop("ids", "name"), **options))


def labels_of(part: Part) -> list[Any]:
    return [] if part.labels is None else list(part.labels)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("columns", [(), ("c", "a")])
@pytest.mark.parametrize("rows", [1, 10, N, 100])
def test_the_parts_are_the_file(tmp_path: Path, kind: str, columns: tuple[str, ...], rows: int) -> None:
    path = tmp_path / f"x.{kind}"
    WRITERS[kind](path)
    whole = load_table(path, ids="name", columns=columns)
    read = list(parts(path, rows, columns=columns))
    assert [part.table.n for part in read] == [min(rows, N - start) for start in range(0, N, rows)]
    np.testing.assert_array_equal(np.vstack([part.table.x for part in read]), whole.x)
    assert {part.table.columns for part in read} == {whole.columns}
    assert sum((part.table.names for part in read), ()) == whole.names == tuple(IDS)
    assert [label for part in read for label in labels_of(part)] == LABELS
    shares = [part.share for part in read]
    assert shares == sorted(shares)
    assert 0 < shares[0] <= shares[-1] == 1
    truth = parts(path, rows).truth(LABELS, ("00", "01", "02", "other"))
    np.testing.assert_array_equal(truth.yt, [*(np.arange(N - 1) % 3), 3])


def test_an_array_is_read_in_parts(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    read = list(parts(tmp_path / "x.npy", ids=None))
    np.testing.assert_array_equal(np.vstack([part.table.x for part in read]), X.astype(np.float32))
    assert [(part.table.n, part.share) for part in read] == [(10, 10 / N), (10, 20 / N), (10, 30 / N), (5, 1.0)]


def test_columns_that_may_be_absent(tmp_path: Path) -> None:
    write_csv(tmp_path / "x.csv")
    roles = Roles(label="kind", ids="number", columns=("a",))
    (part,) = read_parts(tmp_path / "x.csv", N, roles)
    assert (part.labels, part.table.names, part.table.columns) == (None, (), ("a",))
    for needs, missing in (({"needs_label": True}, "kind"), ({"needs_ids": True}, "number")):
        with pytest.raises(InputError, match=missing):
            list(read_parts(tmp_path / "x.csv", N, roles, **needs))
    with pytest.raises(InputError, match="'d' that is a feature"):
        list(read_parts(tmp_path / "x.csv", N, roles._replace(features=("d",))))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("role", ["ids", "label"])
def test_labels_and_ids_that_the_run_was_trained_on_are_features_too(tmp_path: Path, kind: str, role: str) -> None:
    path = tmp_path / f"x.{kind}"
    WRITERS[kind](path)
    read = list(parts(path, **{role: "b"}, columns=("a", "b")))
    np.testing.assert_array_equal(np.vstack([part.table.x for part in read]), X[:, :2])
    given = [cell for part in read for cell in (part.table.names if role == "ids" else labels_of(part))]
    assert list(map(float, given)) == X[:, 1].tolist()


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_wrong_is_found_in_its_row(tmp_path: Path, kind: str) -> None:
    path, bad = tmp_path / f"x.{kind}", X.copy()
    bad[[17, 18], 1] = np.nan, np.inf
    WRITERS[kind](path, bad)
    with pytest.raises(InputError, match=r"2 non-finite entries \(the first in row 17, column 'b'"):
        list(parts(path))
    missing = "" if kind == "csv" else None
    WRITERS[kind](path, X, [*LABELS[:20], missing, *LABELS[21:]])
    labels = {label: None for part in parts(path) for label in labels_of(part)}
    place = r"an empty label in row 20 \(line 45\), column 'label'" if kind == "csv" else "a missing label at 20 "
    with pytest.raises(InputError, match=place):
        parts(path).truth(list(labels), ("a", "b"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("s,1,x,3,a", "columns that are not numeric: 'b' ..x.."),
        ("s,1,1_000,3,a", "columns that are not numeric: 'b' ..1_000.."),
        ("s,1,,3,a", r"an empty cell in row 20 \(line 22\), column 'b'"),
        ("s,1,2,3", r"columns changed from 5 to 4 in row 20 \(line 22\)"),
        ("s,1,2,3,4,a", r"columns changed from 5 to 6 in row 20 \(line 22\)"),
    ],
)
@pytest.mark.parametrize("rows", [5, 10, 100])
def test_bad_rows_of_a_text_file(tmp_path: Path, row: str, message: str, rows: int) -> None:
    good = ["s,1,2,3,a"]
    for after in (good * 4, [row] * 4):  # with the second, a part of its own has the same cells everywhere
        (tmp_path / "x.csv").write_text("\n".join(["name,a,b,c,label", *(good * 20), row, *after]))
        with pytest.raises(InputError, match=message):
            list(parts(tmp_path / "x.csv", rows))


@pytest.mark.parametrize("kind", WRITERS)
def test_ids_are_found_over_all_rows(tmp_path: Path, kind: str) -> None:
    path, x = tmp_path / f"x.{kind}", X.copy()

    def write(column: Any) -> None:
        x[:, 1] = column
        if kind == "csv":
            rows = [f"{row[0]},{int(row[1])},{row[2]}" for row in x.tolist()]
            path.write_text("\n".join(["a,b,c", *rows]))
        else:
            pa = pytest.importorskip("pyarrow")
            import pyarrow.parquet

            pyarrow.parquet.write_table(pa.table({"a": x[:, 0], "b": x[:, 1].astype(int), "c": x[:, 2]}), path)

    shuffled = rng.permutation(N)
    for column, reason in ((np.arange(N), "only rise"), (shuffled, "are all different")):
        write(column)
        with pytest.raises(InputError, match=f"'b' that looks like an id: {N} integers that {reason}"):
            list(parts(path, ids=None))
        assert len(list(parts(path, ids=None, features=["b"]))) == 4
        assert len(list(parts(path, ids=None, columns=["b"]))) == 4
    shuffled[-1] = shuffled[0]  # in another part
    write(shuffled)
    assert len(list(parts(path, ids=None))) == 4


@pytest.mark.parametrize("kind", WRITERS)
def test_names_that_repeat_in_another_part(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"x.{kind}"

    def warn() -> None:
        samples = parts(path)
        samples.warn_of_repeated_names(np.array([hash(name) for part in samples for name in part.table.names]))

    WRITERS[kind](path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn()
    WRITERS[kind](path, ids=[*IDS[:-1], "s3"])
    with pytest.warns(WarmpotWarning, match="ids more than once: 's3'"):
        warn()


@pytest.mark.parametrize("kind", [*WRITERS, "npy"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, kind: str) -> None:
    peaks = []
    for n in (2000, 8000):
        path, x = tmp_path / f"{n}.{kind}", rng.normal(size=(n, 3))
        if kind == "npy":
            np.save(path, x)
        else:
            WRITERS[kind](path, x, ["a", "b"] * (n // 2), [f"s{k}" for k in range(n)])
        tracemalloc.start()
        assert sum(part.table.n for part in parts(path, 500, ids=None if kind == "npy" else "name")) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
