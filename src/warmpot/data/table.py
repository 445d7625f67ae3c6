"""A table: the features of one domain, with labels when they are known."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_choice, check_matrix
from warmpot._interop import is_torch, kind_of, to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.errors import InputError, listing

__all__ = [
    "TASKS", "LazyRows", "Rows", "Table", "as_table", "check_targets", "column_names", "encode_labels",
    "sample_shape", "table_from_dataset", "take_columns",
]  # fmt: skip


class LazyRows(ABC):
    """Samples that are loaded on demand, with as much of the array interface as training needs."""

    dtype: ClassVar[np.dtype[Any]]  # of a loaded entry

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Number of samples, then the shape of one sample."""

    @abstractmethod
    def __getitem__(self, rows: Any) -> NDArray[Any]:
        """Load the rows given by integers, a slice or a mask."""

    @abstractmethod
    def subset(self, rows: Any) -> LazyRows:
        """Return only these rows, without loading them."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a short text that differs for different data."""

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]


Rows: TypeAlias = "NDArray[np.floating[Any]] | LazyRows"
"""Samples of one domain: an array of features, or rows that are loaded on demand."""


def sample_shape(x: Rows) -> str:
    """Describe one sample, such as "3 features"."""
    if x.ndim == 2:
        return f"{x.shape[1]} features"
    return f"{'images' if x.dtype == np.uint8 else 'activations'} of {' x '.join(map(str, x.shape[1:]))}"


TASKS = ("classification", "regression")


@dataclass(frozen=True, eq=False)
class Table:
    """Features and labels of one domain; `as_table` and `load_table` make checked ones.

    Attributes
    ----------
    x : (n, d) float32 or float64 array, or LazyRows
        One sample per row, C-ordered, every entry finite; or rows that are loaded on demand, such as images.
    y : (n,) int64 array, (n,) float64 array or None
        Class codes, continuous targets for regression, or None when unlabelled.
    classes : tuple of str
        Code ``k`` means ``classes[k]``; a listed class may have no sample here. Empty without class labels.
    name : str
        Name of the table in messages.
    columns, names : tuple of str
        Names of the features, and of the samples (ids, or paths of images); empty when they have none.
    text_labels : bool
        Whether the labels were given as texts, so that predictions are texts even if all of them are whole numbers.
    """

    x: Rows
    y: IntArray | FloatArray | None
    classes: tuple[str, ...]
    name: str
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    text_labels: bool = False

    @property
    def n(self) -> int:
        """Number of samples."""
        return int(self.x.shape[0])

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.x.shape[1])

    @property
    def labelled(self) -> bool:
        """Whether the labels are known."""
        return self.y is not None

    @property
    def for_regression(self) -> bool:
        """Whether the labels are continuous targets."""
        return self.y is not None and not self.classes

    def __repr__(self) -> str:
        kind = f"{len(self.classes)} classes" if self.classes else "continuous targets"
        labels = "unlabelled" if self.y is None else kind
        return f"Table({self.name!r}, {' x '.join(map(str, self.x.shape))} {self.x.dtype}, {labels})"


def as_table(
    x: Any,
    y: Any = None,
    *,
    classes: Sequence[Any] | None = None,
    name: str = "x",
    task: str = "classification",
    columns: Sequence[str] | None = None,
    names: Sequence[str] = (),
) -> Table:
    """Check features and labels and put them into a `Table`; an `InputError` names what is missing or does not fit.

    Parameters
    ----------
    x : (n, d) array, list of rows, torch tensor or pandas DataFrame
        Features. float16 and float32 are kept as float32, everything else becomes float64. A float32 or float64
        numpy array is not copied.
    y : (n,) array, list, torch tensor or pandas Series, optional
        Labels: strings, or whole numbers (of any type). None: unlabelled.
    classes : sequence of str, optional
        Names of the classes. Whole numbers in `y` then index into it, and strings must be among them. Without it,
        strings are their own names, sorted, and a whole number is named by its digits, sorted by size.
    name : str
        Name of the table in messages.
    task : {"classification", "regression"}
        With "regression", `y` holds continuous targets and there are no classes.
    columns : sequence of str, optional
        Names of the features. Default: the column names of a DataFrame, if all of them are strings.
    names : sequence of str
        Names of the samples, such as ids; none by default.

    Examples
    --------
    >>> table = as_table([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["dog", "cat", "dog"], name="pets")
    >>> table, table.classes, table.y.tolist()
    (Table('pets', 3 x 2 float64, 2 classes), ('cat', 'dog'), [1, 0, 1])
    """
    check_choice("task", task, TASKS)
    columns = column_names(x) if columns is None else tuple(columns)
    features = _features(name, x, columns)
    for what, given, n in (("columns", columns, features.shape[1]), ("names", tuple(names), len(features))):
        if given and len(given) != n:
            remedy = "Give every feature, or every sample, one name."
            raise InputError(f"{what} of {name}", got=f"{len(given)} names", allowed=f"{n} names", remedy=remedy)
    table = Table(features, None, (), name, columns, tuple(names))
    if y is None:
        return table
    if task == "classification":
        codes, known = encode_labels(f"labels of {name}", y, len(features), classes)  # refuses mixed labels
        texts = not is_torch(y) and isinstance(next(iter(y), None), str | bytes)
        return replace(table, y=codes, classes=known, text_labels=texts)
    if classes is not None:
        remedy = "Drop them, or pass `task='classification'`."
        raise InputError("classes", got=f"{len(classes)} names", allowed="None (regression)", remedy=remedy)
    return replace(table, y=check_targets(f"labels of {name}", y, len(features)))


def table_from_dataset(
    dataset: Any, name: str = "x", *, classes: Sequence[Any] | None = None, task: str = "classification"
) -> Table:
    """Stack the items of a torch-style dataset into a `Table`.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        Each item is a 1-d array or tensor of features, or a tuple ``(features, label)``; a 1-tuple has no label.
    classes : sequence of str, optional
        Names of the classes that labels index into; default: the dataset's own ``classes`` when it has them.
    name, task
        As for `as_table`.
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        allowed, remedy = "a dataset with __len__ and __getitem__", "Stack a stream into arrays for as_table first."
        raise InputError(name, got=type(dataset).__name__, allowed=allowed, remedy=remedy)
    items = [dataset[i] for i in range(len(dataset))]
    pairs = [item if isinstance(item, tuple) else (item,) for item in items]
    if not pairs or {len(pair) for pair in pairs} not in ({1}, {2}):
        got = f"items of {sorted({len(pair) for pair in pairs})} parts" if pairs else "no items"
        remedy = "Return the same parts from every __getitem__."
        raise InputError(name, got=got, allowed="features, or (features, label)", remedy=remedy)
    rows = [_row(name, i, pair[0]) for i, pair in enumerate(pairs)]
    if odd := next((i for i, row in enumerate(rows) if row.shape != rows[0].shape), 0):
        got, allowed = f"{len(rows[odd])} features in item {odd}", f"{len(rows[0])} as in item 0"
        raise InputError(name, got=got, allowed=allowed, remedy="Give every item the same features.")
    y = [_scalar(pair[1]) for pair in pairs] if len(pairs[0]) == 2 else None
    if classes is None and task == "classification":
        classes = getattr(dataset, "classes", None)
    return as_table(np.stack(rows), y, classes=classes, name=name, task=task)


def _is_frame(x: Any) -> bool:
    return hasattr(x, "iloc") and hasattr(x, "columns")  # a pandas DataFrame, without importing pandas


def column_names(x: Any) -> tuple[str, ...]:
    """Return the column names of a data frame (pandas, polars) or a `Table`; none unless all of them are strings."""
    names = list(getattr(x, "columns", ()))
    return tuple(name.strip() for name in names) if all(isinstance(name, str) for name in names) else ()


def take_columns(x: Any, positions: Sequence[int]) -> Any:
    """Return these columns of a data frame or a `Table`, in this order."""
    if isinstance(x, Table):
        return np.take(x.x[:], positions, axis=1)
    return x.iloc[:, list(positions)] if _is_frame(x) else x[:, list(positions)]


def _features(name: str, x: Any, columns: Sequence[str]) -> NDArray[np.floating[Any]]:
    if _is_frame(x):
        x = _frame_values(name, x)
    if isinstance(x, np.ndarray) and x.dtype in (np.float16, np.float32) and not isinstance(x, np.ma.MaskedArray):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim == 2 and x.size and np.isfinite(narrow).all():
            return narrow  # the usual case, without a copy in float64; everything else is checked below
    return _as_float32_if_no_finer(x, check_matrix(name, x, columns=columns))


def _as_float32_if_no_finer(x: Any, array: FloatArray) -> NDArray[np.floating[Any]]:
    return array.astype(np.float32) if kind_of(x).resolution >= np.finfo(np.float32).eps else array


def _frame_values(name: str, frame: Any) -> NDArray[Any]:
    """Return the values of a DataFrame, with NaN for missing entries; name the columns that are not numeric."""
    texts = [str(column) for column, dtype in zip(frame.columns, frame.dtypes, strict=True) if dtype.kind not in "biuf"]
    if texts:
        remedy = "Drop or encode them. Labels are named by `label=` or given as y, ids by `ids=` or the frame's index."
        got = f"columns that are not numeric: {listing(texts)}"
        raise InputError(name, got=got, allowed="columns of numbers", remedy=remedy)
    narrow = frame.shape[1] and all(dtype.kind == "f" and dtype.itemsize <= 4 for dtype in frame.dtypes)
    array: NDArray[Any] = frame.to_numpy(dtype=np.float32 if narrow else np.float64, na_value=np.nan)
    return array


def _row(name: str, i: int, x: Any) -> NDArray[np.floating[Any]]:
    allowed = "1-d features of numbers"
    try:
        row = to_numpy(x)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        got, remedy = f"{type(x).__name__} in item {i} ({error})", "Return an array or a tensor."
        raise InputError(name, got=got, allowed=allowed, remedy=remedy) from error
    if np.ndim(x) != 1:  # of x itself: to_numpy adds a dimension to a bare number
        got, remedy = f"shape {tuple(np.shape(x))} in item {i}", "Read images with warmpot.data.images_from_dataset."
        raise InputError(name, got=got, allowed=allowed, remedy=remedy)
    return _as_float32_if_no_finer(x, row)


def _scalar(y: Any) -> Any:
    """Unwrap a label of one entry, such as a 0-d tensor."""
    return y.item() if (is_torch(y) and y.numel() == 1) or (isinstance(y, np.ndarray) and y.size == 1) else y


LARGEST_EXACT = 2.0**53  # whole numbers up to here are exact in float64
ALLOWED = "texts or whole numbers"
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but tabs and line breaks, and bytes of a file name that are not text."""


def encode_labels(name: str, y: Any, n: int, classes: Sequence[Any] | None = None) -> tuple[IntArray, tuple[str, ...]]:
    """Turn `n` strings or whole numbers into int64 codes and class names.

    If `classes` are given, numbers index into them and strings must be among them. `name` names the labels in messages.
    """
    labels = _texts_or_integers(name, _one_dimensional(name, y, n))
    if classes is None:
        values, codes = np.unique(labels, return_inverse=True)
        return codes.astype(np.int64), check_names(name, tuple(str(value) for value in values.tolist()))
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
    return check_names(what, names)


def check_names(what: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of classes; refuse those that would control a terminal, or that no file can hold."""
    if (bad := next(filter(UNPRINTABLE.search, names), None)) is not None:
        allowed, remedy = "names without control characters, in Unicode", "Rename the class."
        raise InputError(what, got=ascii(bad[:100]), allowed=allowed, remedy=remedy)
    return names
