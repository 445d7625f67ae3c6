"""Reading features from files (`warmpot.data.files`)."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warmpot.data
from warmpot.data import load_features
from warmpot.errors import InputError, MissingExtraError

X = np.array([[0.5, -1.25, 3.0], [1e-17, 2.0, 1 / 3], [7.0, 8.0, 1e300]])
NAMES = ["width", "height", "depth"]


def write_parquet(path: Path, columns: dict[str, Any]) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    pyarrow.parquet.write_table(pa.table(columns), path)


def write_text(path: Path, delimiter: str, header: str = "") -> None:
    np.savetxt(path, X, fmt="%.17g", delimiter=delimiter, header=header, comments="")


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "npz": ("npz", lambda path: np.savez(path, X=X)),
    "npz compressed": ("npz", lambda path: np.savez_compressed(path, X=X, y=np.arange(3))),
    "npz, X next to another table": ("npz", lambda path: np.savez(path, other=X + 1, X=X)),
    "npz, the only table": ("npz", lambda path: np.savez(path, features=X, y=np.arange(3), image=np.zeros((3, 2, 2)))),
    "npy": ("npy", lambda path: np.save(path, X)),
    "npy in Fortran order": ("npy", lambda path: np.save(path, np.asfortranarray(X))),
    "csv": ("csv", lambda path: write_text(path, ",")),
    "csv with header": ("csv", lambda path: write_text(path, ",", "width,height,depth")),
    "csv with quoted header": ("csv", lambda path: write_text(path, ",", '"width, in m","height\nin m","depth"')),
    "csv with comments": ("csv", lambda path: write_text(path, ",", "# made today\n\nwidth,height,depth")),
    "tsv": ("tsv", lambda path: write_text(path, "\t")),
    "tsv with header": ("tsv", lambda path: write_text(path, "\t", "width\theight\tdepth")),
    "parquet": ("parquet", lambda path: write_parquet(path, dict(zip(NAMES, X.T, strict=True)))),
    "upper case suffix": ("CSV", lambda path: write_text(path, ",")),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("as_text", [True, False])
def test_every_format_gives_the_table(tmp_path: Path, kind: str, as_text: bool) -> None:
    suffix, write = WRITERS[kind]
    path = tmp_path / f"x.{suffix}"
    write(path)
    found = load_features(str(path) if as_text else path)
    np.testing.assert_array_equal(found, X)
    assert found.dtype == np.float64
    assert found.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["float16", "float32", "uint8", "int64", "bool", ">f8"])
def test_numbers_of_any_type_become_float64(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
    np.save(tmp_path / "x.npy", values)
    files = [tmp_path / "x.npy"]
    if dtype != ">f8":
        write_parquet(tmp_path / "x.parquet", {"a": values[:, 0], "b": values[:, 1]})
        files.append(tmp_path / "x.parquet")
    for file in files:
        found = load_features(file)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, values.astype(float))


@pytest.mark.parametrize(("text", "expected"), [("1,2,3\n", [[1, 2, 3]]), ("1\n2\n", [[1], [2]]), ("a\n1\n", [[1]])])
def test_one_row_or_one_column(tmp_path: Path, text: str, expected: list[list[float]]) -> None:
    (tmp_path / "x.csv").write_text(text)
    np.testing.assert_array_equal(load_features(tmp_path / "x.csv"), expected)


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("a,b\r\n1,2\r\n3,4\r\n".encode("utf-8-sig"))
    np.testing.assert_array_equal(load_features(tmp_path / "x.csv"), [[1, 2], [3, 4]])
    (tmp_path / "x.csv").write_bytes("1,2\r\n3,4\r\n".encode("utf-8-sig"))
    np.testing.assert_array_equal(load_features(tmp_path / "x.csv"), [[1, 2], [3, 4]])


def test_a_folder_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "domain=3"
    folder.mkdir()
    write_parquet(folder / "x.parquet", {"a": [1.0, 2.0]})
    assert load_features(folder / "x.parquet").shape == (2, 1)


class Bomb:
    """Fails the test when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("a pickle was opened",))


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    bomb = np.array([Bomb()], dtype=object)
    np.savez(tmp_path / "named.npz", X=X, classes=bomb)
    np.savez(tmp_path / "only.npz", features=X, classes=bomb)
    np.testing.assert_array_equal(load_features(tmp_path / "named.npz"), X)
    np.testing.assert_array_equal(load_features(tmp_path / "only.npz"), X)
    np.savez(tmp_path / "pickled.npz", X=bomb)
    np.save(tmp_path / "pickled.npy", bomb)
    (tmp_path / "bare.npy").write_bytes(pickle.dumps(Bomb()))
    for name in ("pickled.npz", "pickled.npy", "bare.npy"):
        with pytest.raises(InputError, match=name):
            load_features(tmp_path / name)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])


def npz_cut(path: Path) -> None:
    np.savez(path, X=X)
    cut(path)


def npy_cut(path: Path) -> None:
    np.save(path, X)
    cut(path)


def parquet_cut(path: Path) -> None:
    write_parquet(path, {"a": [1.0, 2.0]})
    cut(path)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def parquet(**columns: Any) -> Callable[[Path], object]:
    return lambda path: write_parquet(path, columns)


def nothing(path: Path) -> None:
    pass


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("x.npz", nothing, "No such file"),
    "directory": ("x.npz", lambda path: path.mkdir(), "a directory"),
    "empty npz": ("x.npz", text(""), "an empty file"),
    "empty csv": ("x.csv", text(""), "an empty file"),
    "empty parquet": ("x.parquet", text(""), "an empty file"),
    "suffix": ("x.mat", text("1"), r"suffix '\.mat'; allowed: \.npz or .*numpy\.savez"),
    "no suffix": ("x", text("1"), "suffix ''"),
    "npz without arrays": ("x.npz", lambda path: np.savez(path), "no arrays"),
    "npz with two tables": ("x.npz", lambda path: np.savez(path, first=X, second=X), "keys first, second;.*X"),
    "npz without tables": ("x.npz", lambda path: np.savez(path, y=X[0], names=np.array([["a"]])), "keys y, names"),
    "npz of images": ("x.npz", lambda path: np.savez(path, X=np.zeros((2, 3, 3))), r"shape \(2, 3, 3\).*Reshape"),
    "npz of texts": ("x.npz", lambda path: np.savez(path, X=np.array([["a"]])), "dtype <U1"),
    "npz of complex numbers": ("x.npz", lambda path: np.savez(path, X=X + 1j), "dtype complex128"),
    "npz cut": ("x.npz", npz_cut, "readable .npz file.*damaged"),
    "npz is text": ("x.npz", text("hello"), "readable .npz file"),
    "npy cut": ("x.npy", npy_cut, "readable .npy file.*damaged"),
    "npy of one dimension": ("x.npy", lambda path: np.save(path, X[0]), r"shape \(3,\)"),
    "npy without rows": ("x.npy", lambda path: np.save(path, X[:0]), r"shape \(0, 3\)"),
    "npy NaN": (
        "x.npy",
        lambda path: np.save(path, [[1.0, np.nan]]),
        r"1 non-finite entries \(the first at \(0, 1\)\)",
    ),
    "csv NaN": ("x.csv", text("a,b\n1,2\n3,nan\n"), "non-finite.*row 1, column 'b'"),
    "csv infinity": ("x.csv", text("1,2\n3,1e999\n"), r"non-finite.*\(1, 1\)"),
    "csv header only": ("x.csv", text("a,b\n"), "no row of numbers"),
    "csv comments only": ("x.csv", text("# a\n\n"), "no row of numbers"),
    "csv named texts": ("x.csv", text("id,name,size\n1,cat,2\n2,dog,3\n"), r"not numeric: 'name' \('dog'\);"),
    "csv late text": ("x.csv", text("a,b\n1,2\n2,x\n"), r"'b' \('x'\)"),
    "csv unnamed texts": ("x.csv", text("cat,1,2\ndog,2,3\n"), "'column 1'"),
    "csv texts only": ("x.csv", text("cat\ndog\n"), "'column 1'"),
    "csv many texts": ("x.csv", text(("x," * 7 + "1\n") * 2), r"'column 5' \('x'\) and 2 more;"),
    "csv hole in the first row": (
        "x.csv",
        text("1,,3\n4,5,6\n"),
        r"an empty cell in row 0 \(line 1\), column 'column 2';",
    ),
    "csv hole later": ("x.csv", text("a,b\n1,2\n,3\n"), r"an empty cell in row 1 \(line 3\), column 'a';"),
    "csv ragged": ("x.csv", text("1,2\n3\n"), "columns changed from 2 to 1"),
    "csv semicolons": ("x.csv", text("1;2\n3;4\n"), r"'column 1' \('3;4'\)"),
    "csv pandas index": ("x.csv", text(",a,b\n0,1,2\n"), "index=False"),
    "csv pandas index and numbers": ("x.csv", text(",0,1,2\n0,.1,.2,.3\n"), "index=False"),
    "csv pandas numbers": ("x.csv", text("0,1,2\n.1,.2,.3\n"), "an index or column numbers.*names in the header"),
    "csv header too short": ("x.csv", text('"a","b"\n"1",2,3\n'), "an index"),
    "csv is binary": ("x.csv", lambda path: path.write_bytes(bytes(range(256))), "readable .csv file"),
    "tsv with commas": ("x.tsv", text("1,2\n3,4\n"), "'column 1'"),
    "parquet cut": ("x.parquet", parquet_cut, "readable .parquet file"),
    "parquet texts": ("x.parquet", parquet(a=[1.0], name=["cat"], tags=[["x"]]), r"'name' \(string\), 'tags' \(list<"),
    "parquet index": ("x.parquet", parquet(a=[1.0], __index_level_0__=[7]), r"'__index_level_0__' \(an index\)"),
    "parquet hole": ("x.parquet", parquet(a=[1, None]), "non-finite.*row 1, column 'a'"),
    "parquet hole among truths": ("x.parquet", parquet(a=[True, None]), "non-finite.*row 1, column 'a'"),
    "parquet without rows": ("x.parquet", lambda path: write_parquet(path, {"a": np.zeros(0)}), r"shape \(0, 1\)"),
    "parquet without columns": ("x.parquet", parquet(), "readable .parquet file|shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_a_one_line_message(tmp_path: Path, case: str) -> None:
    name, write, message = BAD[case]
    write(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        load_features(tmp_path / name)
    shown = str(caught.value)
    assert shown.startswith(f"{tmp_path / name}: got ")
    assert "; allowed: " in shown
    assert "\n" not in shown


@pytest.mark.parametrize("path", [None, 3, "a\0b.npz"])
def test_something_that_is_not_a_path_is_refused(path: Any) -> None:
    with pytest.raises(InputError, match="allowed: a file you may read"):
        load_features(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'warmpot\[parquet\]'"):
        load_features(tmp_path / "x.parquet")


def test_the_public_names() -> None:
    assert warmpot.data.__all__ == [
        "ClassBalanced",
        "Sampler",
        "Shuffled",
        "Table",
        "Task",
        "Truth",
        "ViewSettings",
        "as_table",
        "benchmark_names",
        "benchmark_task",
        "digits_task",
        "images_from_dataset",
        "load_features",
        "load_images",
        "load_table",
        "make_sampler",
        "make_task",
        "read_benchmark",
        "read_samples",
        "table_from_dataset",
    ]
