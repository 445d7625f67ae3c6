"""Labels as users have them, turned into integer codes and class names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._interop import is_torch, to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError

__all__ = ["check_targets", "encode_labels"]

LARGEST_EXACT = 2.0**53
"""Whole numbers up to here are exact in float64."""
ALLOWED = "texts or whole numbers"


def encode_labels(name: str, y: Any, n: int, classes: Sequence[Any] | None = None) -> tuple[IntArray, tuple[str, ...]]:
    """Turn `n` labels into int64 codes and class names.

    Parameters
    ----------
    name : str
        Name of the labels in messages.
    y : (n,) array-like
        Strings or whole numbers.
    n : int
        Number of samples.
    classes : sequence of str, optional
        The names: numbers index into them, strings must be among them.
    """
    labels = _texts_or_integers(name, _one_dimensional(name, y, n))
    if classes is None:
        values, codes = np.unique(labels, return_inverse=True)
        return codes.astype(np.int64), tuple(str(value) for value in values.tolist())
    names = _class_names(name, classes)
    if labels.dtype.kind == "i":
        outside = (labels < 0) | (labels >= len(names))
        if outside.any():
            allowed, remedy = f"0 to {len(names) - 1}, one of {len(names)} classes", "Name every class in its order."
            raise _label_error(name, outside, f"label {labels[outside][0]}", allowed, remedy)
        return labels, names
    code_of = {text: k for k, text in enumerate(names)}
    values, inverse = np.unique(labels, return_inverse=True)
    codes = np.array([code_of.get(text, -1) for text in values.tolist()], dtype=np.int64)[inverse]
    if (codes < 0).any():
        got, allowed = f"label {str(labels[codes < 0][0])!r}", f"one of the {len(names)} classes"
        raise _label_error(name, codes < 0, got, allowed, "Add it to classes, or leave classes out.")
    return codes, names


def check_targets(name: str, y: Any, n: int) -> FloatArray:
    """Return `n` continuous targets as finite float64 numbers."""
    array = _one_dimensional(name, y, n)
    try:
        values = to_numpy(array.tolist() if array.dtype == object else array)
    except (TypeError, ValueError, OverflowError) as error:
        got, remedy = f"labels that are not numbers ({error})", "Pass numbers, or `task='classification'`."
        raise InputError(name, got=got, allowed="real numbers", remedy=remedy) from error
    if not np.isfinite(values).all():
        bad, got = ~np.isfinite(values), "a missing or infinite label"
        raise _label_error(name, bad, got, "finite numbers", "Drop those samples.")
    return values


def _label_error(name: str, bad: NDArray[np.bool_], got: str, allowed: str, remedy: str) -> InputError:
    """Return an error with the position of the first bad label and the number of bad ones."""
    got = f"{got} at {int(np.argmax(bad))} ({int(bad.sum())} such in all)"
    return InputError(name, got=got, allowed=allowed, remedy=remedy)


def _one_dimensional(name: str, y: Any, n: int) -> NDArray[Any]:
    if is_torch(y):
        y = y.detach().cpu()
        y = (y.double() if y.is_floating_point() else y).numpy()  # numpy has no bfloat16
    elif isinstance(y, (list, tuple)) and any(isinstance(label, str) for label in y):
        y = np.fromiter(y, dtype=object, count=len(y))  # numpy would turn [1, "a"] into two strings
    try:
        array = np.asarray(y)
    except (TypeError, ValueError) as error:
        raise InputError(name, got=str(error), allowed=ALLOWED, remedy="Pass one label per sample.") from error
    if array.ndim != 1:
        remedy = "Pass one label per sample: y.ravel() for a column, y.argmax(1) for indicators."
        raise InputError(name, got=f"shape {array.shape}", allowed=f"shape ({n},)", remedy=remedy)
    if len(array) != n:
        remedy = "Give features and labels of the same samples."
        raise InputError(name, got=f"{len(array)} labels", allowed=f"{n}, one per sample", remedy=remedy)
    if isinstance(y, np.ma.MaskedArray) and np.ma.is_masked(y):
        raise _label_error(name, np.ma.getmaskarray(y), "a missing label", ALLOWED, "Drop those samples.")
    return array


def _texts_or_integers(name: str, labels: NDArray[Any]) -> NDArray[Any]:
    """Return an array of strings or of int64; refuse missing, mixed and fractional labels."""
    if labels.dtype.kind in "OT":
        labels = _from_objects(name, labels)
    if labels.dtype.kind == "S":
        try:
            labels = np.char.decode(labels, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(name, got=str(error), allowed="utf-8 texts", remedy="Decode them.") from error
    if labels.dtype.kind == "U":
        if (labels == "").any():
            raise _label_error(name, labels == "", "an empty label", ALLOWED, "Drop unlabelled samples.")
        return labels
    if labels.dtype.kind == "f":
        if (missing := np.isnan(labels)).any():
            raise _label_error(name, missing, "a missing label (NaN)", ALLOWED, "Drop unlabelled samples.")
        whole = (labels == np.rint(labels)) & (np.abs(labels) <= LARGEST_EXACT)
        if not whole.all():
            remedy = "Pass `task='regression'` for continuous targets."
            raise _label_error(name, ~whole, f"label {labels[~whole][0]}", ALLOWED, remedy)
    elif labels.dtype.kind not in "biu" or (labels.size and labels.max() > np.iinfo(np.int64).max):
        got = f"dtype {labels.dtype}" if labels.dtype.kind not in "biu" else f"label {labels.max()}"
        raise InputError(name, got=got, allowed=ALLOWED, remedy="Pass texts or int64 labels.")
    return labels.astype(np.int64)


def _from_objects(name: str, labels: NDArray[Any]) -> NDArray[Any]:
    """Find the common type of labels that are Python objects."""
    values = labels.tolist()
    missing = np.array([_is_missing(value) for value in values], dtype=bool)
    if missing.any():
        raise _label_error(name, missing, "a missing label", ALLOWED, "Drop unlabelled samples.")
    texts = np.array([isinstance(value, str) for value in values], dtype=bool)
    if texts.all():
        return np.array(values, dtype=str)
    if texts.any():
        got = f"{values[int(np.argmin(texts))]!r} among texts"
        raise _label_error(name, ~texts, got, ALLOWED, "Make them all texts.")
    try:
        numbers = np.array(values)
    except (TypeError, ValueError):
        numbers = labels
    if numbers.dtype.kind not in "biuf" or numbers.ndim != 1:
        got, remedy = f"a {type(values[0]).__name__}", "Pass one text or number per sample."
        raise InputError(name, got=got, allowed=ALLOWED, remedy=remedy)
    return numbers


def _is_missing(value: Any) -> bool:
    # pandas' own markers are recognised by name: pandas is not a dependency
    markers = value is None or type(value).__name__ in ("NAType", "NaTType")
    return markers or (isinstance(value, (float, np.floating)) and bool(np.isnan(value)))


def _class_names(name: str, classes: Sequence[Any]) -> tuple[str, ...]:
    what = f"classes of the {name}"
    if isinstance(classes, (str, bytes)):
        raise InputError(what, got=repr(classes), allowed="a list of names", remedy="Put it into a list.")
    listed = np.asarray(classes).tolist() if hasattr(classes, "dtype") else list(classes)
    names = tuple(entry.decode() if isinstance(entry, bytes) else str(entry) for entry in listed)
    if len(set(names)) < len(names) or not names:
        got = f"{next(entry for entry in names if names.count(entry) > 1)!r} more than once" if names else "no names"
        raise InputError(what, got=got, allowed="different names", remedy="Name every class once.")
    return names
