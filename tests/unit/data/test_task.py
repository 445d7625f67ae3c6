"""Tasks: what training may see, and the target's labels apart from it."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

from warmpot.data import Table, Task, as_table, load_table, make_task
from warmpot.data.task import HeldOutTarget
from warmpot.errors import InputError, WarmpotWarning
from warmpot.train.run_folder import fingerprint

RNG = np.random.default_rng(0)
XS, XT = RNG.normal(size=(6, 3)), RNG.normal(size=(4, 3))
YS = ["a", "b", "c", "a", "b", "c"]
SOURCE = as_table(XS, YS, name="source")


def test_training_has_no_field_for_target_labels() -> None:
    names = ["xs", "ys", "xt", "classes", "columns", "source_names", "target_names", "text_labels", "held_out"]
    assert [field.name for field in dataclasses.fields(Task)] == names
    assert [field.name for field in dataclasses.fields(HeldOutTarget)] == ["x", "rows", "kept", "names"]


def test_a_task_and_its_truth() -> None:
    task, truth = make_task(SOURCE, as_table(XT, ["c", "b", "b", "c"], name="target"))
    np.testing.assert_array_equal(task.xs, XS)
    np.testing.assert_array_equal(task.xt, XT)
    assert task.ys.tolist() == [0, 1, 2, 0, 1, 2]
    assert task.classes == ("a", "b", "c")
    assert (task.n_source, task.n_target, task.width, task.n_classes) == (6, 4, 3, 3)
    assert not task.for_regression
    assert repr(task) == "Task(6 source, 4 target samples, 3 features, 3 classes)"
    assert truth is not None
    assert truth.yt.tolist() == [2, 1, 1, 2]
    assert truth.classes == task.classes
    assert truth.known.all()


def test_an_unlabelled_target_has_no_truth() -> None:
    task, truth = make_task(SOURCE, as_table(XT))
    assert truth is None
    assert task.classes == ("a", "b", "c")


def test_classes_are_matched_by_name_whatever_their_order() -> None:
    for names, codes in (["b", "c", "x", "a"], [1, 0, 0, 3]), (["a", "b", "c"], [2, 1, 1, 0]):
        _, truth = make_task(SOURCE, as_table(XT, codes, classes=names))
        assert truth is not None
        assert truth.yt.tolist() == [2, 1, 1, 0]


def test_the_target_never_influences_the_task() -> None:
    plain, _ = make_task(SOURCE, as_table(XT))
    for names, codes in (["c", "b", "a"], [0, 0, 1, 1]), (["z", "b", "y", "a"], [1, 1, 3, 3]):
        task, _ = make_task(SOURCE, as_table(XT, codes, classes=names))
        assert task.classes == plain.classes
        for array, expected in zip((task.xs, task.ys, task.xt), (plain.xs, plain.ys, plain.xt), strict=True):
            np.testing.assert_array_equal(array, expected)
            assert array.dtype == expected.dtype


def test_an_empty_class_is_dropped_with_a_warning() -> None:
    source = as_table(XS, [3, 1, 1, 3, 0, 0], classes=["a", "b", "gone", "d"], name="amazon")
    target = as_table(XT, [0, 1, 2, 0], classes=["d", "b", "a"])
    with pytest.warns(WarmpotWarning, match="^amazon: got classes without samples: 'gone'; .* dropped") as caught:
        task, truth = make_task(source, target)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert task.classes == ("a", "b", "d")
    assert task.ys.tolist() == [2, 1, 1, 2, 0, 0]
    assert truth is not None
    assert truth.yt.tolist() == [2, 1, 0, 2]


def test_many_empty_classes_are_counted() -> None:
    source = as_table(XS, [0, 1] * 3, classes=[f"c{k}" for k in range(10)])
    with pytest.warns(WarmpotWarning, match="'c6' and 3 more"):
        task, _ = make_task(source, as_table(XT))
    assert task.classes == ("c0", "c1")


def test_a_class_with_one_sample_is_kept_with_a_warning() -> None:
    source = as_table(XS, ["a", "a", "b", "b", "b", "rare"], name="amazon")
    with pytest.warns(WarmpotWarning, match="amazon: got classes with one sample: 'rare'"):
        task, _ = make_task(source, as_table(XT))
    assert task.classes == ("a", "b", "rare")
    assert np.bincount(task.ys).tolist() == [2, 3, 1]


def test_classes_the_source_lacks_count_as_unknown() -> None:
    with pytest.warns(WarmpotWarning, match="target: got classes the source lacks: 'x';"):
        task, truth = make_task(SOURCE, as_table(XT, ["x", "b", "x", "c"], name="target"))
    assert task.classes == ("a", "b", "c")
    assert truth is not None
    assert truth.yt.tolist() == [-1, 1, -1, 2]
    assert truth.known.tolist() == [False, True, False, True]


def test_labels_entirely_unknown_to_the_source_are_warned_about() -> None:
    unknown = "'0', '1' \\(none of its labels is known\\); .* write them in the same way"
    with pytest.warns(WarmpotWarning, match=unknown):
        _, truth = make_task(SOURCE, as_table(XT, [0, 1, 1, 0]))
    assert truth is not None
    assert truth.yt.tolist() == [-1] * 4


def test_a_listed_class_without_samples_causes_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, truth = make_task(SOURCE, as_table(XT, [1, 1, 1, 1], classes=["never seen", "a"]))
    assert truth is not None
    assert truth.known.all()


def named(x: np.ndarray, columns: str, y: list[str] | None = None, name: str = "target") -> Table:
    return dataclasses.replace(as_table(x, y, name=name), columns=tuple(columns))


def test_columns_are_matched_by_name_whatever_their_order() -> None:
    task, truth = make_task(named(XS, "pqr", YS), named(XT[:, [2, 0, 1]], "rpq", ["c", "b", "b", "c"]))
    np.testing.assert_array_equal(task.xs, XS)
    np.testing.assert_array_equal(task.xt, XT)
    assert task.xt.flags.c_contiguous
    assert task.columns == ("p", "q", "r")
    assert truth is not None
    assert truth.yt.tolist() == [2, 1, 1, 2]
    real = dataclasses.replace(as_table(XS, np.arange(6) / 4, task="regression"), columns=("p", "q", "r"))
    task, _ = make_task(real, named(XT[:, ::-1], "rqp"))
    np.testing.assert_array_equal(task.xt, XT)
    assert task.columns == ("p", "q", "r")


def test_columns_without_names_on_both_sides_are_matched_by_position() -> None:
    plain, bare = as_table(XT), as_table(XS, YS)
    for source, target, columns in ((named(XS, "pqr", YS), plain, "pqr"), (bare, named(XT, "rpq"), "rpq"),
                                    (bare, plain, "")):  # fmt: skip
        task, _ = make_task(source, target)
        np.testing.assert_array_equal(task.xt, XT)
        assert task.columns == tuple(columns)
    assert fingerprint(make_task(named(XS, "pqr", YS), plain)[0]) == fingerprint(make_task(bare, plain)[0])


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        ("pqr", "pqs", "target: got no column 'r' and extra columns 's'; allowed: the columns of source"),
        ("pqr", "xyz", "no column 'p', 'q', 'r' and extra columns 'x', 'y', 'z'"),
        ("pq", "pqr", "target: got extra columns 'r'"),
        ("pqr", "pq", "target: got no column 'r'"),
        ("ppq", "qpp", "columns more than once: 'p'"),
        ("ppq", "pq", "columns more than once: 'p'"),
    ],
)
def test_other_columns_are_refused_by_name(source: str, target: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_task(named(XS[:, : len(source)], source, YS, "source"), named(XT[:, : len(target)], target))


def test_repeated_names_in_the_same_order_are_accepted() -> None:
    assert make_task(named(XS, "ppq", YS), named(XT, "ppq"))[0].columns == ("p", "p", "q")


def test_the_target_may_be_larger() -> None:
    task, truth = make_task(SOURCE, as_table(np.zeros((50, 3)), ["a"] * 50))
    assert task.n_target == 50
    assert truth is not None
    assert len(truth.yt) == 50


def test_both_sides_get_one_dtype() -> None:
    narrow = as_table(XT.astype(np.float32))
    assert make_task(SOURCE, narrow)[0].xt.dtype == np.float64
    assert make_task(as_table(XS.astype(np.float32), YS), narrow)[0].xs.dtype == np.float32


def test_regression() -> None:
    source = as_table(XS, np.arange(6) / 4, task="regression")
    task, truth = make_task(source, as_table(XT, [1, 2, 3, -4], task="regression"))
    assert task.for_regression
    assert task.classes == ()
    assert task.ys.dtype == np.float64
    assert task.ys.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25]
    assert truth is not None
    assert truth.yt.tolist() == [1, 2, 3, -4]
    assert truth.known.all()
    assert make_task(source, as_table(XT))[1] is None
    assert repr(task).endswith("continuous targets)")


BAD = {
    "mismatched widths": (SOURCE, as_table(XT[:, :2], name="target"), "target: got 2 columns; allowed: 3 columns"),
    "unlabelled source": (as_table(XS, name="source"), as_table(XT), "source: got no labels"),
    "one class only": (as_table(XS, ["a"] * 6, name="source"), as_table(XT), r"one class only \('a'\)"),
    "one class left": (as_table(XS, [1] * 6, classes=["a", "b"]), as_table(XT), r"one class only \('b'\)"),
    "one source sample": (as_table(XS[:1], ["a"], name="source"), as_table(XT), "source: got 1 samples"),
    "one target sample": (SOURCE, as_table(XT[:1], name="target"), "target: got 1 samples; allowed: at least 2"),
    "continuous targets for classes": (SOURCE, as_table(XT, [1] * 4, task="regression"), "continuous targets"),
    "classes for continuous targets": (
        as_table(XS, range(6), task="regression"),
        as_table(XT, [1] * 4),
        "got class labels",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_tables_that_do_not_make_a_task(case: str) -> None:
    source, target, message = BAD[case]
    with pytest.raises(InputError, match=message):
        make_task(source, target)


def test_the_real_partial_task(shared_data: Path) -> None:
    source = load_table(shared_data / "office31" / "amazon.npz")
    target = load_table(shared_data / "office31" / "webcam.npz")
    task, truth = make_task(source, target)
    assert task.n_classes == 31
    assert truth is not None
    assert truth.known.all()
