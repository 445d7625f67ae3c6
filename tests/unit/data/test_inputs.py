"""The same samples in every form that a user may have them in (`warmpot.data.inputs`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from warmpot.data import Table, load_table, read_samples
from warmpot.data.inputs import of_images
from warmpot.errors import InputError, MissingColumnError, MissingLabelsError

pd = pytest.importorskip("pandas")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 2)), np.array(["a", "b", "c"] * 4)
FRAME = pd.DataFrame(X, columns=["p", "q"])


def assert_same(table: Table, expected: Table) -> None:
    np.testing.assert_array_equal(table.x, expected.x)
    assert (table.y is None) == (expected.y is None)
    if table.y is not None:
        np.testing.assert_array_equal(table.y, expected.y)
    assert (table.classes, table.columns, table.names) == (expected.classes, expected.columns, expected.names)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_a_frame_is_read_like_the_file_that_it_writes(suffix: str, tmp_path: Path) -> None:
    frame = FRAME.assign(Class=Y, key=[f"s{k}" for k in range(12)])
    file = tmp_path / f"x.{suffix}"
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
        frame.to_parquet(file)
    else:
        frame.to_csv(file, index=False, sep="\t" if suffix == "tsv" else ",")
    for named in ({}, {"label": "Class"}):
        expected = load_table(file, ids="key", **named)
        assert expected.names[3] == "s3"
        assert_same(read_samples(str(file), ids="key", **named), expected)
        assert_same(read_samples(frame, ids="key", **named), expected)
    assert read_samples(frame, ids="key", labelled=False).y is None


def test_ids_of_a_frame() -> None:
    assert read_samples(FRAME).names == ()
    assert read_samples(FRAME.set_axis([f"i{k}" for k in range(12)])).names[:2] == ("i0", "i1")
    assert read_samples(FRAME.iloc[::2]).names == ()  # a range, still a plain count
    with pytest.raises(InputError, match="a column 'id' that looks like an id"):
        read_samples(FRAME.assign(id=range(12)))
    with pytest.raises(InputError, match="12 integers that only rise"):
        read_samples(FRAME.assign(number=range(3, 15)))
    assert read_samples(FRAME.assign(number=range(3, 15)), features=["number"]).width == 3
    with pytest.raises(InputError, match="not numeric: 'note'"):
        read_samples(FRAME.assign(note="x"))


def test_named_columns_that_are_absent() -> None:
    with pytest.raises(MissingLabelsError):
        read_samples(FRAME, label="kind", needs_label=True)
    with pytest.raises(MissingColumnError):
        read_samples(FRAME, ids="key", needs_ids=True)
    table = read_samples(FRAME.assign(y=1), label="kind", ids="key")  # of a target without them: then y is a feature
    assert (table.y, table.names, table.columns) == (None, (), ("p", "q", "y"))


def test_pairs_and_arrays() -> None:
    expected = read_samples((FRAME, Y))
    assert (expected.classes, expected.columns) == (("a", "b", "c"), ("p", "q"))
    for features in (X, X.tolist(), torch.from_numpy(X)):
        table = read_samples((features, Y))
        np.testing.assert_array_equal(table.x, expected.x)
        np.testing.assert_array_equal(table.y, expected.y)
        assert read_samples(features).y is None
    assert read_samples(expected) is expected
    assert read_samples((X, X[:, 0]), task="regression").for_regression
    items = [(torch.from_numpy(row), label) for row, label in zip(X, Y, strict=True)]
    dataset = type("Items", (), {"__len__": lambda _: 12, "__getitem__": lambda _, k: items[k]})()
    np.testing.assert_array_equal(read_samples(dataset).y, expected.y)


PIXELS = rng.integers(0, 256, size=(3, 12, 10, 3), dtype=np.uint8)


def image_forms(folder: Path) -> dict[str, Any]:
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    for k, picture in enumerate(pictures):
        picture.save(folder / f"{k}.png")
    first = PIXELS.transpose(0, 3, 1, 2).copy()
    return {
        "pillow": pictures,
        "channels last": PIXELS,
        "channels first": first,
        "tensor": torch.from_numpy(first),
        "tensor, channels last": torch.from_numpy(PIXELS),
        "floats": PIXELS / 255,
        "a list of arrays": list(PIXELS),
        "a list of paths": [folder / f"{k}.png" for k in range(3)],
        "a folder": folder,
    }


def test_images_in_any_layout(tmp_path: Path) -> None:
    forms = image_forms(tmp_path)
    expected = read_samples(forms.pop("a folder")).x[:]
    for form, images in forms.items():
        assert of_images(images), form
        assert of_images((images, [0, 1, 0]))
        np.testing.assert_array_equal(read_samples(images).x[:], expected, err_msg=form)
        one = read_samples(images[1])
        np.testing.assert_array_equal(one.x[:], expected[1:2], err_msg=form)
    table = read_samples((forms["pillow"], ["b", "a", "b"]))
    assert (table.classes, table.y.tolist()) == (("a", "b"), [1, 0, 1])  # type: ignore[union-attr]
    assert read_samples(forms["a list of paths"]).names == tuple(str(tmp_path / f"{k}.png") for k in range(3))
    assert read_samples(PIXELS[:2, ..., 0]).n == 2  # grey
    assert not any(of_images(data) for data in (X, FRAME, X.tolist(), (X, Y), tmp_path / "x.csv"))
    with pytest.raises(InputError, match="5 channels"):
        read_samples(np.zeros((2, 12, 10, 5), np.uint8)).x[:]
