"""Tables from what users hold in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from warmpot.data import Table, as_table, table_from_dataset
from warmpot.errors import InputError

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "x",
    [
        X,
        X.tolist(),
        X.astype(int),
        np.asfortranarray(X),
        torch.from_numpy(X),
        torch.from_numpy(X).requires_grad_(),
        pd.DataFrame(X),
        pd.DataFrame(X).astype({0: int, 1: "Float64", 2: "int8"}),
    ],
    ids=["numpy", "list", "integers", "fortran", "torch", "torch with gradient", "pandas", "pandas mixed"],
)
def test_features_of_any_library_become_float64(x: Any) -> None:
    table = as_table(x, name="office")
    np.testing.assert_array_equal(table.x, X)
    assert table.x.dtype == np.float64
    assert table.x.flags.c_contiguous
    assert (table.n, table.width, table.name) == (4, 3, "office")
    assert table.y is None
    assert table.classes == ()
    assert not table.labelled
    assert not table.for_regression


@pytest.mark.parametrize(
    "x",
    [
        X.astype(np.float32),
        X.astype(np.float16),
        torch.from_numpy(X).float(),
        torch.from_numpy(X).bfloat16(),
        pd.DataFrame(X.astype(np.float32)),
    ],
    ids=["float32", "float16", "torch float32", "torch bfloat16", "pandas float32"],
)
def test_narrow_features_are_kept_as_float32(x: Any) -> None:
    table = as_table(x)
    assert table.x.dtype == np.float32
    assert table.x.flags.c_contiguous
    np.testing.assert_array_equal(table.x, X)


def test_checked_arrays_are_not_copied() -> None:
    for x in (X, X.astype(np.float32)):
        assert np.shares_memory(as_table(x).x, x)


BAD_FEATURES: dict[str, tuple[Any, str]] = {
    "NaN": ([[1.0, np.nan]], r"1 non-finite entries \(the first at \(0, 1\)\)"),
    "NaN in float32": (np.array([[1, np.nan]], dtype=np.float32), "non-finite"),
    "infinity in float16": (np.array([[1, np.inf]], dtype=np.float16), "non-finite"),
    "no rows": (np.zeros((0, 3)), r"shape \(0, 3\)"),
    "no rows in float32": (np.zeros((0, 3), dtype=np.float32), r"shape \(0, 3\)"),
    "no columns": (np.zeros((3, 0)), r"shape \(3, 0\)"),
    "one dimension": ([1.0, 2.0], r"shape \(2,\).*Reshape"),
    "images": (np.zeros((2, 3, 8, 8), dtype=np.float32), r"shape \(2, 3, 8, 8\)"),
    "texts": ([["a", "b"]], "dtype <U1"),
    "complex": (torch.zeros(2, 2, dtype=torch.complex64), "complex"),
    "masked": (np.ma.masked_greater(X.astype(np.float32), 3), "masked"),
    "frame with texts": (pd.DataFrame({"a": [1.0], "kind": ["cat"]}), "not numeric: 'kind'.*`label=`.*`ids=`"),
    "frame with a hole": (pd.DataFrame({"a": [1.0, None]}), "non-finite.*row 1, column 'a'"),
    "frame with NA": (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "non-finite.*row 1, column 'a'"),
    "frame without columns": (pd.DataFrame(index=range(3)), r"shape \(3, 0\)"),
    "nothing": (None, "dtype object"),
}


@pytest.mark.parametrize("case", BAD_FEATURES)
def test_bad_features_are_refused_under_their_name(case: str) -> None:
    x, message = BAD_FEATURES[case]
    with pytest.raises(InputError, match=f"^webcam: got .*{message}"):
        as_table(x, name="webcam")


LABELS: dict[str, tuple[Any, tuple[str, ...], list[int]]] = {
    "texts": (["dog", "cat", "dog", "ape"], ("ape", "cat", "dog"), [2, 1, 2, 0]),
    "tuple": (("b", "a", "b", "b"), ("a", "b"), [1, 0, 1, 1]),
    "text objects": (np.array(["b", "a", "b", "b"], dtype=object), ("a", "b"), [1, 0, 1, 1]),
    "bytes": (np.array([b"b", b"a", b"b", b"b"]), ("a", "b"), [1, 0, 1, 1]),
    "series of texts": (pd.Series(["b", "a", "b", "b"], index=[3, 1, 2, 0]), ("a", "b"), [1, 0, 1, 1]),
    "categories": (pd.Series(["b", "a", "b", "b"], dtype="category"), ("a", "b"), [1, 0, 1, 1]),
    "integers by size": ([10, 9, 10, -1], ("-1", "9", "10"), [2, 1, 2, 0]),
    "boxed integers": (np.array([10, 9, 10, 2], dtype=object), ("2", "9", "10"), [2, 1, 2, 0]),
    "unsigned": (np.array([2, 1, 2, 2], dtype=np.uint8), ("1", "2"), [1, 0, 1, 1]),
    "whole floats": ([2.0, 1.0, 2.0, 2.0], ("1", "2"), [1, 0, 1, 1]),
    "truths": ([True, False, True, True], ("0", "1"), [1, 0, 1, 1]),
    "torch": (torch.tensor([5, 3, 5, 5]), ("3", "5"), [1, 0, 1, 1]),
    "list of tensors": (list(torch.tensor([5, 3, 5, 5])), ("3", "5"), [1, 0, 1, 1]),
    "torch bfloat16": (torch.tensor([5, 3, 5, 5]).bfloat16(), ("3", "5"), [1, 0, 1, 1]),
    "series of integers": (pd.Series([5, 3, 5, 5], dtype="Int64"), ("3", "5"), [1, 0, 1, 1]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_become_codes_and_names(case: str) -> None:
    y, classes, codes = LABELS[case]
    table = as_table(X, y)
    assert table.classes == classes
    assert table.y is not None
    assert table.y.dtype == np.int64
    assert table.y.tolist() == codes
    assert table.labelled
    assert not table.for_regression


@pytest.mark.parametrize("classes", [["b", "a", "c"], np.array(["b", "a", "c"]), np.array([b"b", b"a", b"c"])])
def test_given_classes_are_indexed(classes: Any) -> None:
    by_number = as_table(X, [1, 0, 1, 1], classes=classes)
    by_name = as_table(X, ["a", "b", "a", "a"], classes=classes)
    for table in (by_number, by_name):
        assert table.classes == ("b", "a", "c")
        assert table.y is not None
        assert table.y.tolist() == [1, 0, 1, 1]


def test_unlabelled_tables_have_no_classes() -> None:
    assert as_table(X, classes=["a", "b"]).classes == ()


BAD_LABELS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "too few": ([0, 1, 0], {}, "3 labels; allowed: 4"),
    "too many": (["a"] * 5, {}, "5 labels"),
    "none": ([], {}, "0 labels"),
    "column": (np.zeros((4, 1), dtype=int), {}, r"shape \(4, 1\).*ravel"),
    "indicators": (np.eye(4), {}, "argmax"),
    "arrays": (np.array([np.zeros(1), np.zeros(2), None, "a"], dtype=object), {}, "missing label at 2"),
    "ragged": ([[1], [1, 2], [1], [1]], {}, "got"),
    "NaN": ([0.0, np.nan, 1.0, np.nan], {}, r"missing label \(NaN\) at 1 \(2 such"),
    "None": (["a", None, "b", "a"], {}, "a missing label at 1"),
    "None among numbers": ([1, 2, None, 1], {}, "a missing label at 2"),
    "NaN among texts": (pd.Series(["a", None, "b", "a"]), {}, "a missing label at 1"),
    "NA": (pd.Series([1, 2, None, 1], dtype="Int64"), {}, r"a missing label .*at 2"),
    "empty text": (["a", "", "b", "a"], {}, "an empty label at 1"),
    "masked": (np.ma.masked_equal([0, 1, 0, 1], 1), {}, "a missing label at 1"),
    "fractions": ([0.5, 1.0, 2.0, 1.0], {}, "label 0.5 at 0.*regression"),
    "infinite": ([np.inf, 1.0, 2.0, 1.0], {}, "label inf at 0"),
    "too large": (np.array([2**63, 1, 2, 1], dtype=np.uint64), {}, "label 9223372036854775808"),
    "mixed": (["a", 1, "b", "a"], {}, "1 among texts at 1"),
    "complex": ([1j, 0, 0, 0], {}, "dtype complex128"),
    "dates": (np.array(["2020-01-01"] * 4, dtype="datetime64[D]"), {}, "dtype datetime64"),
    "objects": ([object()] * 4, {}, "a object"),
    "not utf-8": (np.array([b"\xff"] * 4), {}, "utf-8"),
    "not text": (["a", "\udc80", "b", "a"], {}, r"'\\udc80'; allowed: names without control"),
    "control characters": (["a", "\x1b[31mred", "b", "a"], {}, r"'\\x1b\[31mred'; allowed: names without control"),
    "overwritten": ([0, 1, 1, 0], {"classes": ["a", "b\rc"]}, "names without control"),
    "out of range": ([0, 1, 2, 0], {"classes": ["a", "b"]}, "label 2 at 2.*0 to 1"),
    "negative": ([0, -1, 1, 0], {"classes": ["a", "b"]}, "label -1 at 1"),
    "unknown name": (["a", "b", "d", "a"], {"classes": ["a", "b"]}, "label 'd' at 2"),
    "classes twice": ([0, 1, 1, 0], {"classes": ["a", "a"]}, "'a' more than once"),
    "no classes": ([0, 1, 1, 0], {"classes": []}, "no names"),
    "one text for classes": ([0, 1, 1, 0], {"classes": "ab"}, "a list of names"),
    "real NaN": ([0.5, np.nan, 1.0, 1.0], {"task": "regression"}, "missing or infinite label at 1"),
    "real None": ([0.5, None, 1.0, 1.0], {"task": "regression"}, "not numbers|missing"),
    "real texts": (["a", "b", "a", "b"], {"task": "regression"}, "not numbers.*task='classification'"),
    "real too few": ([0.5], {"task": "regression"}, "1 labels"),
}


@pytest.mark.parametrize("case", BAD_LABELS)
def test_bad_labels_are_refused(case: str) -> None:
    y, settings, message = BAD_LABELS[case]
    with pytest.raises(InputError, match=f"labels of amazon: got .*{message}|labels of amazon: {message}"):
        as_table(X, y, name="amazon", **settings)


def test_continuous_targets() -> None:
    for y in ([0.5, -1.0, 2.0, 3.0], pd.Series([0.5, -1.0, 2.0, 3.0]), torch.tensor([0.5, -1.0, 2.0, 3.0])):
        table = as_table(X, y, task="regression")
        assert table.y is not None
        assert table.y.dtype == np.float64
        assert table.y.tolist() == [0.5, -1.0, 2.0, 3.0]
        assert table.classes == ()
        assert table.for_regression


def test_regression_has_no_classes() -> None:
    with pytest.raises(InputError, match="classes: got 2 names"):
        as_table(X, [0, 1, 0, 1], classes=["a", "b"], task="regression")
    with pytest.raises(InputError, match="task: got 'ranking'"):
        as_table(X, task="ranking")


def test_the_repr_of_a_table() -> None:
    assert repr(as_table(X, name="a")) == "Table('a', 4 x 3 float64, unlabelled)"
    assert repr(as_table(X, [0, 1, 0, 1], name="a")) == "Table('a', 4 x 3 float64, 2 classes)"
    assert (
        repr(as_table(X, [0, 1, 0, 1], name="a", task="regression")) == "Table('a', 4 x 3 float64, continuous targets)"
    )
    with pytest.raises(AttributeError):
        as_table(X).name = "b"  # type: ignore[misc]


class Items:
    """A torch-style dataset."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


def check_pairs(table: Table, dtype: type) -> None:
    np.testing.assert_array_equal(table.x, X)
    assert table.x.dtype == dtype
    assert table.y is not None
    assert table.y.tolist() == [1, 0, 1, 1]


def test_datasets_are_stacked() -> None:
    y = torch.tensor([7, 2, 7, 7])
    check_pairs(table_from_dataset(torch.utils.data.TensorDataset(torch.from_numpy(X).float(), y)), np.float32)
    check_pairs(table_from_dataset(torch.utils.data.TensorDataset(torch.from_numpy(X), y.double())), np.float64)
    check_pairs(table_from_dataset(Items([(row, label) for row, label in zip(X, "babb", strict=True)])), np.float64)
    check_pairs(
        table_from_dataset(Items([(row.tolist(), np.array(k)) for row, k in zip(X, [7, 2, 7, 7], strict=True)])), float
    )
    bare = table_from_dataset(Items(list(X)), "bare")
    assert bare.y is None
    assert bare.name == "bare"
    assert table_from_dataset(torch.utils.data.TensorDataset(torch.from_numpy(X))).y is None


def test_the_classes_of_a_dataset_are_used() -> None:
    dataset = Items([(X[0], 1), (X[1], 0)])
    dataset.classes = ["cat", "dog", "eel"]  # type: ignore[attr-defined]
    assert table_from_dataset(dataset).classes == ("cat", "dog", "eel")
    assert table_from_dataset(dataset, classes=["a", "b"]).classes == ("a", "b")
    assert table_from_dataset(dataset, task="regression").for_regression


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self) -> Any:
        return iter(X)


BAD_DATASETS: dict[str, tuple[Any, str]] = {
    "stream": (Stream(), "Stream; allowed: a dataset with __len__"),
    "number": (3, "int; allowed"),
    "empty": (Items([]), "no items"),
    "images": (Items([(torch.zeros(3, 8, 8), 0)]), r"shape \(3, 8, 8\) in item 0.*images_from_dataset"),
    "numbers": (Items([(1.0, 0)]), r"shape \(\) in item 0"),
    "three parts": (Items([(X[0], 0, 1)]), r"items of \[3\] parts"),
    "labels in some items only": (Items([(X[0], 0), X[1]]), r"items of \[1, 2\] parts"),
    "dicts": (Items([{"x": X[0]}]), "dict in item 0"),
    "widths": (Items([X[0], X[1], X[2][:2]]), "2 features in item 2; allowed: 3"),
    "NaN": (Items([np.array([np.nan])]), "non-finite"),
}


@pytest.mark.parametrize("case", BAD_DATASETS)
def test_bad_datasets_are_refused(case: str) -> None:
    dataset, message = BAD_DATASETS[case]
    with pytest.raises(InputError, match=f"^mine: got .*{message}"):
        table_from_dataset(dataset, "mine")


def test_names_of_a_data_frame_are_kept_when_they_are_texts() -> None:
    pandas = pytest.importorskip("pandas")
    x = np.arange(6.0).reshape(3, 2)
    frame = pandas.DataFrame(x, columns=["b", " a"])
    assert as_table(frame).columns == ("b", "a")
    assert as_table(frame, [0, 1, 0]).columns == ("b", "a")
    assert as_table(frame, [0.5, 1.5, 0.0], task="regression").columns == ("b", "a")
    assert as_table(pandas.DataFrame(x)).columns == as_table(pandas.DataFrame(x, columns=["a", 1])).columns == ()
    assert as_table(x).columns == ()
