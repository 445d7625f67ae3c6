"""Reading features and labels from files (`warmpot.data.files`)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from warmpot.data import load_features, load_table, read_samples
from warmpot.errors import InputError, MissingColumnError

X = np.array([[0.5, -1.25], [1 / 3, 2.0], [7.0, 1e300]])
TEXTS = ["dog", "cat", "dog"]


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(columns), path)


def lines(*rows: str) -> Callable[[Path], object]:
    return lambda path: path.write_text("\n".join(rows) + "\n")


def rows(head: str, delimiter: str = ",", labels: list[str] = TEXTS, at: int = 2) -> Callable[[Path], object]:
    body = [[repr(float(v)) for v in row] for row in X]
    for row, label in zip(body, labels, strict=True):
        row.insert(at, label)
    return lines(*([head] if head else []), *(delimiter.join(row) for row in body))


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: write_parquet(path, {"a": X[:, 0], "b": X[:, 1], **columns})


CLASSES = np.array(["ape", "cat", "dog"])
NAMED: dict[str, tuple[str, Callable[[Path], object], dict[str, Any]]] = {
    "csv": ("x.csv", rows("a,b,label"), {}),
    "csv, upper case": ("x.csv", rows("a,b,Class"), {}),
    "csv, first column": ("x.csv", rows("TARGET,a,b", at=0), {}),
    "csv, named": ("x.csv", rows("a,b,species"), {"label": "species"}),
    "csv, column numbers": ("x.csv", rows("0,1,species"), {"label": "species"}),
    "csv, quoted": ("x.csv", rows('"a, in m","b","y"', labels=['"dog"', '"cat"', '"dog"']), {}),
    "csv, spaces": ("x.csv", rows("a, b, y", labels=[" dog", " cat", "dog "]), {}),
    "csv, comments": ("x.csv", rows("# mine\n\na,b,y\n# now numbers"), {}),
    "tsv": ("x.tsv", rows("a\tb\tlabel", "\t"), {}),
    "parquet": ("x.parquet", parquet(label=TEXTS), {}),
    "parquet, named": ("x.parquet", parquet(species=TEXTS), {"label": "species"}),
    "npz of texts": ("x.npz", lambda path: np.savez(path, X=X, y=np.array(TEXTS)), {}),
    "npz, named": ("x.npz", lambda path: np.savez(path, X=X, kind=np.array(TEXTS), y=[1, 2, 3]), {"label": "kind"}),
}


@pytest.mark.parametrize("case", NAMED)
def test_every_format_gives_features_and_labels(tmp_path: Path, case: str) -> None:
    name, write, settings = NAMED[case]
    write(tmp_path / name)
    table = load_table(tmp_path / name, **settings)
    np.testing.assert_array_equal(table.x, X)
    assert table.y is not None
    assert table.classes == ("cat", "dog")
    assert table.y.tolist() == [1, 0, 1]
    assert table.name == str(tmp_path / name)


def test_npz_labels_index_into_its_classes(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(
        path, X=X[:, :1].astype(np.float16), y=np.array([2, 1, 2]), classes=CLASSES, path=np.array(["a", "b", "c"])
    )
    table = load_table(path)
    assert table.classes == ("ape", "cat", "dog")
    assert table.y is not None
    assert table.y.tolist() == [2, 1, 2]
    assert load_table(path, classes=["x", "y", "z"]).classes == ("x", "y", "z")
    assert load_table(path, task="regression").y.tolist() == [2.0, 1.0, 2.0]  # type: ignore[union-attr]


def test_files_keep_float32(tmp_path: Path) -> None:
    x = np.ones((2, 2), dtype=np.float32)
    np.savez(tmp_path / "x.npz", X=x)
    write_parquet(tmp_path / "x.parquet", {"a": x[:, 0], "b": x[:, 1]})
    for name in ("x.npz", "x.parquet"):
        assert load_table(tmp_path / name).x.dtype == np.float32
        assert load_features(tmp_path / name).dtype == np.float64


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.npz", lambda path: np.savez(path, X=X)),
        ("x.npz", lambda path: np.savez(path, X=X, classes=CLASSES)),
        ("x.npy", lambda path: np.save(path, X)),
        ("x.csv", lambda path: np.savetxt(path, X, fmt="%.17g", delimiter=",")),
        ("x.csv", lines("a,b", "0.5,-1.25", f"{1 / 3!r},2", "7,1e300")),
        ("x.parquet", parquet()),
    ],
)
def test_files_without_labels_are_unlabelled(tmp_path: Path, name: str, write: Callable[[Path], object]) -> None:
    write(tmp_path / name)
    table = load_table(tmp_path / name)
    np.testing.assert_array_equal(table.x, X)
    assert table.y is None
    assert table.classes == ()


@pytest.mark.parametrize("labels", [["10", "9", "10"], ["10.0", "9.0", "10.0"], ["10", "9.0", "10"]])
def test_numbers_in_text_files_are_numbers(tmp_path: Path, labels: list[str]) -> None:
    rows("a,b,y", labels=labels)(tmp_path / "x.csv")
    table = load_table(tmp_path / "x.csv")
    assert table.classes == ("9", "10")
    assert table.y is not None
    assert table.y.tolist() == [1, 0, 1]


def test_names_may_look_like_comments_and_numbers(tmp_path: Path) -> None:
    rows("a,b,y", labels=["C#", "C", "10"])(tmp_path / "x.csv")
    assert load_table(tmp_path / "x.csv").classes == ("10", "C", "C#")


def test_column_numbers_next_to_a_label_are_a_header(tmp_path: Path) -> None:
    lines("0,1,2,label", "5,6,7,cat", "8,9,1,dog")(tmp_path / "x.csv")
    table = load_table(tmp_path / "x.csv")
    assert table.x.tolist() == [[5, 6, 7], [8, 9, 1]]
    assert table.classes == ("cat", "dog")


def test_an_empty_label_reads_features_only(tmp_path: Path) -> None:
    lines("x,y", "0.5,1.5", "2.5,3.5")(tmp_path / "x.csv")
    assert load_table(tmp_path / "x.csv", label="").width == 2
    with pytest.raises(InputError, match=r"label 1\.5 at 0.*regression"):
        load_table(tmp_path / "x.csv")
    assert load_table(tmp_path / "x.csv", task="regression").y.tolist() == [1.5, 3.5]  # type: ignore[union-attr]


class Bomb:
    """Fails the test when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was opened",))


BOMB = np.array([Bomb(), Bomb(), Bomb()], dtype=object)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, X=X, y=BOMB)
    with pytest.raises(InputError, match=r"a pickle under 'y'.*dtype=str"):
        load_table(path)
    assert load_table(path, label="").y is None
    np.savez(path, X=X, y=np.array([2, 1, 2]), classes=BOMB)
    with pytest.raises(InputError, match="a pickle under 'classes'"):
        load_table(path)
    assert load_table(path, classes=["a", "b", "c"]).classes == ("a", "b", "c")
    assert load_table(path, task="regression").for_regression
    (tmp_path / "bare.npz").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"bare\.npz"):
        load_table(tmp_path / "bare.npz")


BAD: dict[str, tuple[str, Callable[[Path], object], dict[str, Any], str]] = {
    "missing": ("x.npz", lambda path: None, {}, "No such file"),
    "directory": ("images", lambda path: path.mkdir(), {}, "a directory.*folders of images are read by"),
    "NaN feature": ("x.csv", lines("a,y", "1,cat", "nan,dog"), {}, "non-finite.*row 1, column 'a'"),
    "NaN label": ("x.csv", lines("a,y", "1,1", "2,nan"), {}, r"missing label \(NaN\) at 1"),
    "hole in the labels": ("x.csv", lines("a,y", "1,cat", "2,"), {}, r"an empty label in row 1 \(line 3\)"),
    "hole in parquet": ("x.parquet", parquet(y=["a", None, "b"]), {}, "a missing label at 1"),
    "two label columns": ("x.csv", rows("a,target,label"), {}, "2 columns for labels: 'target', 'label'.*label="),
    "unknown column": ("x.csv", rows("a,b,label"), {"label": "species"}, "columns 'a', 'b', 'label'; .*'species'"),
    "unknown parquet column": ("x.parquet", parquet(), {"label": "species"}, "columns 'a', 'b'; .*'species'"),
    "no header": ("x.csv", rows(""), {"label": "species"}, "a column 'species'"),
    "unknown key": ("x.npz", lambda path: np.savez(path, X=X), {"label": "kind"}, "keys X; allowed: a key 'kind'"),
    "npy with labels": ("x.npy", lambda path: np.save(path, X), {"label": "y"}, "features only"),
    "texts next to the labels": ("x.csv", lines("a,b,y", "1,x,cat", "2,z,dog"), {}, r"not numeric: 'b' \('z'\);"),
    "parquet texts": ("x.parquet", parquet(c=["u", "v", "w"], y=TEXTS), {}, r"not numeric: 'c' \(string\);"),
    "labels only": ("x.parquet", lambda path: write_parquet(path, {"y": [1, 2]}), {}, "readable .parquet file|shape"),
    "csv labels only": ("x.csv", lines("y", "1", "2"), {}, r"shape \(2, 0\)"),
    "index": ("x.csv", lines(",a,y", "0,1,cat", "1,2,dog"), {}, "index=False"),
    "ragged": ("x.csv", lines("a,b,y", "1,2,cat", "3,dog"), {}, "got"),
    "length": ("x.npz", lambda path: np.savez(path, X=X, y=[0, 1]), {}, "2 labels; allowed: 3"),
    "code without a name": (
        "x.npz",
        lambda path: np.savez(path, X=X, y=[0, 1, 3], classes=CLASSES),
        {},
        "label 3 at 2",
    ),
    "texts for regression": ("x.csv", rows("a,b,y"), {"task": "regression"}, "not numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_a_one_line_message(tmp_path: Path, case: str) -> None:
    name, write, settings, message = BAD[case]
    write(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        load_table(tmp_path / name, **settings)
    shown = str(caught.value)
    assert str(tmp_path / name) in shown
    assert "; allowed: " in shown
    assert "\n" not in shown


def test_the_task_is_checked_before_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="task: got 'ranking'"):
        load_table(tmp_path / "absent.npz", task="ranking")


def test_the_real_files(shared_data: Path) -> None:
    table = load_table(shared_data / "office31" / "webcam.npz")
    assert (table.n, len(table.classes), table.x.dtype) == (795, 31, np.float32)
    assert "back_pack" in table.classes


COLUMNS: dict[str, tuple[str, Callable[[Path], object], str | None, tuple[str, ...]]] = {
    "csv": ("x.csv", rows("a,b,label"), None, ("a", "b")),
    "csv, labels in the middle": ("x.csv", rows("a,y,b", at=1), None, ("a", "b")),
    "csv, quoted and spaced": ("x.csv", rows('"a, in m", b ,y'), None, ("a, in m", "b")),
    "csv, no labels": ("x.csv", lines("b,a", "1,2", "3,4"), None, ("b", "a")),
    "csv, labels not read": ("x.csv", lines("b,y", "1,2", "3,4"), "", ("b", "y")),
    "csv, no header": ("x.csv", lines("1,2", "3,4"), None, ()),
    "tsv": ("x.tsv", rows("a\tb\tlabel", "\t"), None, ("a", "b")),
    "parquet": ("x.parquet", parquet(y=TEXTS), None, ("a", "b")),
    "npz": ("x.npz", lambda path: np.savez(path, X=X, y=TEXTS), None, ()),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_names_of_columns_are_kept(tmp_path: Path, case: str) -> None:
    name, write, label, expected = COLUMNS[case]
    write(tmp_path / name)
    table = load_table(tmp_path / name, label=label)
    assert table.columns == expected
    assert len(table.columns) in (0, table.width)


def numbered(head: str, *columns: Any) -> Callable[[Path], object]:
    return lines(head, *(",".join(map(str, row)) for row in zip(*columns, strict=True)))


TEN, NOISE = range(3, 33, 3), [5, 1, 4, 1, 5, 9, 2, 6, 5, 3]
SHUFFLED = [10_000_000 + 7 * j % 61 for j in range(60)]
ID_LIKE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "called id": ("x.csv", numbered("id,a", [2.5, 1, 2], [1, 2, 2]), "'id' that looks like an id;"),
    "called ID, with spaces": ("x.csv", numbered("a, ID ", [1, 2, 2], [1, 1, 1]), "'ID' that looks like an id;"),
    "an id of something": ("x.csv", numbered("a,patient_id", NOISE, NOISE), "'patient_id' that looks like an id;"),
    "row numbers of pandas": ("x.csv", numbered("Unnamed: 0,a", [0.0, 1.0], [1, 2]), "'Unnamed: 0' that looks like"),
    "rising": ("x.csv", numbered("a,row", NOISE, TEN), "'row' that looks like an id: 10 integers that only rise;"),
    "falling": ("x.csv", numbered("a,row", NOISE, TEN[::-1]), "'row' .*: 10 integers that only fall;"),
    "shuffled": ("x.csv", numbered("a,case", NOISE * 6, SHUFFLED), "'case' .*: 60 integers that are all different;"),
    "next to labels": ("x.csv", numbered("y,row,a", NOISE, TEN, NOISE), "'row'"),
    "no header": ("x.csv", lines(*(f"{j},{j % 3}.5" for j in range(10))), "'column 1' .*rise;.*`ids=` 'column 1'"),
    "parquet": ("x.parquet", lambda path: write_parquet(path, {"a": NOISE, "row": list(TEN)}), "'row' .*rise;"),
    "parquet, called id": ("x.parquet", lambda path: write_parquet(path, {"a": [1, 2], "Id": [2.5, 2.5]}), "'Id'"),
}


def test_integers_that_happen_to_be_different_are_features(tmp_path: Path) -> None:
    incomes = np.random.default_rng(0).choice(100_000, 300, replace=False)  # all different, as most drawn ones are
    few = [3, 1, 4, 15, 9, 2, 6, 5, 35, 8]
    numbered("a,income", [1, 2] * 150, incomes)(tmp_path / "x.csv")
    numbered("a,age", NOISE, few)(tmp_path / "y.csv")
    assert load_table(tmp_path / "x.csv").columns == ("a", "income")
    assert load_table(tmp_path / "y.csv").columns == ("a", "age")


@pytest.mark.parametrize(("text", "message"), [
    (["a,b,a", "1,2,3"], "columns more than once: 'a'"),
    (["a;b;c;y", "1,5;2;3;u", "1,7;2;4;v"], "cells that ';' separates.*decimal"),
])  # fmt: skip
def test_headers_that_cannot_be_meant(tmp_path: Path, text: list[str], message: str) -> None:
    lines(*text)(tmp_path / "x.csv")
    with pytest.raises(InputError, match=message):
        load_table(tmp_path / "x.csv")


@pytest.mark.parametrize("case", ID_LIKE)
def test_a_column_that_looks_like_an_id_is_refused_unless_it_is_chosen(tmp_path: Path, case: str) -> None:
    name, write, message = ID_LIKE[case]
    write(path := tmp_path / name)
    for read in (load_table, load_features):
        with pytest.raises(InputError, match=message) as caught:
            read(path)
    column = str(caught.value).split("'")[1]
    assert f"Pass `ids=` {column!r} if it is an id, `features=` {column!r} if it is a feature" in str(caught.value)
    with_it = load_table(path, features=[column])
    assert load_table(path, features=None).x.tolist() == with_it.x.tolist()
    without = load_table(path, ids=column)
    assert without.width == with_it.width - 1
    assert column not in without.columns
    position = with_it.columns.index(column) if with_it.columns else 0
    assert list(map(float, without.names)) == with_it.x[:, position].tolist()


NOT_IDS: dict[str, Callable[[Path], object]] = {
    "few rows": numbered("a,row", NOISE[:9], TEN[:9]),
    "a repeated number": numbered("a,row", NOISE, [*TEN[:9], TEN[8]]),
    "fractions": numbered("a,time", NOISE, [j + 0.5 for j in TEN]),
    "whole times": numbered("a,time", NOISE, [f"{1700000000 + j}.0" for j in TEN]),
    "one up, one down": numbered("a,row", NOISE, [*TEN[:9], 0]),
    "id in a name": numbered("a,idle", NOISE, NOISE),
    "id at the end of a word": numbered("a,humid", NOISE, NOISE),
}


@pytest.mark.parametrize("case", NOT_IDS)
def test_other_columns_are_features(tmp_path: Path, case: str) -> None:
    NOT_IDS[case](tmp_path / "x.csv")
    assert load_table(tmp_path / "x.csv").width == 2


def test_ids_are_texts_or_numbers(tmp_path: Path) -> None:
    lines("code,a,y", " n1 ,1,cat", "n#2,2,dog")(tmp_path / "x.csv")
    write_parquet(tmp_path / "x.parquet", {"code": [7, 9], "a": [1.0, 2.0], "y": ["cat", "dog"]})
    np.savez(tmp_path / "x.npz", X=[[1.0], [2.0]], y=["cat", "dog"], code=np.array(["u", "v"]), one=np.ones((1, 2)))
    for name, ids in (("x.csv", ("n1", "n#2")), ("x.parquet", ("7", "9")), ("x.npz", ("u", "v"))):
        table = load_table(tmp_path / name, ids="code")
        assert (table.names, table.x.tolist(), table.classes) == (ids, [[1], [2]], ("cat", "dog"))
        with pytest.raises(MissingColumnError, match="'row' for ids"):
            load_table(tmp_path / name, ids="row")
    with pytest.raises(MissingColumnError, match=r"\(labels: 'y'\); allowed: one column 'y' for ids"):
        load_table(tmp_path / "x.csv", ids="y")
    with pytest.raises(InputError, match=r"columns that are not numeric: 'code' .*`label=`.*`ids=`"):
        load_table(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"shape \(1, 2\) under 'one'"):
        load_table(tmp_path / "x.npz", ids="one")
    np.savez(tmp_path / "x.npz", X=[[1.0], [2.0]], code=["u"])
    with pytest.raises(InputError, match=r"names of .*x\.npz: got 1 names; allowed: 2"):
        load_table(tmp_path / "x.npz", ids="code")
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(MissingColumnError, match="features only"):
        load_table(tmp_path / "x.npy", ids="code")


@pytest.mark.parametrize(
    "paths", [np.array("a"), np.array(["a"]), np.array([["a", "b"]]), np.array([0.5, 1.5]), np.array([{}, {}])]
)
def test_a_key_path_without_one_name_per_sample_is_ignored(tmp_path: Path, paths: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=[0, 1], path=paths)
    assert load_table(tmp_path / "a.npz").names == ()


def test_paths_that_are_labels_are_not_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(2), path=["a", "b"])
    assert load_table(tmp_path / "a.npz").names == ("a", "b")
    assert load_table(tmp_path / "a.npz", label="path").names == ()


def test_columns_that_are_chosen_by_name(tmp_path: Path) -> None:
    lines("note,b,y,id,a", ",1,2,3,4", "old,5,6,7,8")(tmp_path / "x.csv")
    write_parquet(tmp_path / "x.parquet", {"note": ["", "old"], "b": [1, 5], "y": [2, 6], "id": [3, 7], "a": [4, 8]})
    for name in ("x.csv", "x.parquet"):
        table = load_table(tmp_path / name, columns=["a", "b"])
        assert (table.columns, table.x.tolist(), table.classes) == (("a", "b"), [[4, 1], [8, 5]], ("2", "6"))
        table = load_table(tmp_path / name, columns=["y", "id"])  # labels are not what is a feature by name
        assert (table.columns, table.x.tolist(), table.y) == (("y", "id"), [[2, 3], [6, 7]], None)
        with pytest.raises(InputError, match="no column 'c'; allowed: the columns 'a', 'c'"):
            load_table(tmp_path / name, columns=["a", "c"])
    lines("a,b,note", "1,2,x", "3,4,y,5")(tmp_path / "x.csv")
    with pytest.raises(InputError, match="columns changed from 3 to 4"):  # a cell too many is no cell to ignore
        load_table(tmp_path / "x.csv", columns=["a", "b"])


def test_labels_are_left_out_unchecked(tmp_path: Path) -> None:
    lines("a,y", "1,0.5", "2,")(tmp_path / "x.csv")
    assert load_features(tmp_path / "x.csv").tolist() == [[1], [2]]
    assert load_table(tmp_path / "x.csv", labelled=False).y is None


def test_empty_cells_are_counted(tmp_path: Path) -> None:
    lines("a,b,y", "1,2,cat", "# a note", "3, ,dog", ",,cat")(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"an empty cell in row 1 \(line 4\), column 'b' and 2 more;"):
        load_table(tmp_path / "x.csv")


@pytest.mark.parametrize(("labels", "task"), [("cat  dog", "classification"), ("1  2 ", "regression")])
def test_empty_labels_are_reported_like_empty_cells(tmp_path: Path, labels: str, task: str) -> None:
    first, _, last, *_ = labels.split(" ")
    lines("a,kind", f"1,{first}", "# a note", "3,", f"4,{last}", "5, ")(tmp_path / "x.csv")
    with pytest.raises(
        InputError, match=r"an empty label in row 1 \(line 4\), column 'kind' and 1 more; allowed: a label"
    ):
        load_table(tmp_path / "x.csv", label="kind", task=task)
    assert load_table(tmp_path / "x.csv", label="kind", labelled=False).n == 4


@pytest.mark.parametrize("text", ["NA", " n/a", "null"])
def test_missing_values_are_reported_like_empty_cells(tmp_path: Path, text: str) -> None:
    lines("a,b", "1,2", f"3,{text}")(tmp_path / "x.csv")
    with pytest.raises(InputError, match=rf"'{text.strip()}' in row 1 \(line 3\), column 'b'; allowed: a number"):
        load_table(tmp_path / "x.csv")


def test_a_feature_that_is_not_there_is_named(tmp_path: Path) -> None:
    lines("a,b", "1,2", "3,4")(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"allowed: a column 'c' that is a feature"):
        load_table(tmp_path / "x.csv", features=["b", "c"])
    with pytest.raises(InputError, match=r"allowed: a column 'c' that is a feature"):
        read_samples(tmp_path / "x.csv", features=["b", "c"])  # labels and ids may be absent, features not
