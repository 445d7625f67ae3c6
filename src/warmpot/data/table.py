"""A table: the features of one domain, with labels when they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_choice, check_matrix
from warmpot._interop import is_torch, kind_of, to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.data._labels import check_targets, encode_labels
from warmpot.data.lazy import Rows
from warmpot.errors import InputError, listing

__all__ = ["TASKS", "Table", "as_table", "table_from_dataset"]

TASKS = ("classification", "regression")
FLOAT32_EPS = float(np.finfo(np.float32).eps)


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
    columns : tuple of str
        Names of the features, in their order; empty when they have none.
    names : tuple of str
        Names of the samples, such as paths of images; empty when they have none.
    """

    x: Rows
    y: IntArray | FloatArray | None
    classes: tuple[str, ...]
    name: str
    columns: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

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
    x: Any, y: Any = None, *, classes: Sequence[Any] | None = None, name: str = "x", task: str = "classification"
) -> Table:
    """Check features and labels and put them into a `Table`.

    Parameters
    ----------
    x : (n, d) array, list of rows, torch tensor or pandas DataFrame
        Features. float16 and float32 are kept as float32, everything else becomes float64. A float32 or float64
        numpy array is not copied. The column names of a DataFrame are kept when all of them are strings.
    y : (n,) array, list, torch tensor or pandas Series, optional
        Labels: strings, or whole numbers (of any type). None: unlabelled.
    classes : sequence of str, optional
        Names of the classes. Whole numbers in `y` then index into it, and strings must be among them. Without it,
        strings are their own names, sorted, and a whole number is named by its digits, sorted by size.
    name : str
        Name of the table in messages.
    task : {"classification", "regression"}
        With "regression", `y` holds continuous targets and there are no classes.

    Raises
    ------
    InputError
        For no samples, non-finite features, missing labels, or labels that do not fit the features or the task.

    Examples
    --------
    >>> table = as_table([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], ["dog", "cat", "dog"], name="pets")
    >>> table
    Table('pets', 3 x 2 float64, 2 classes)
    >>> table.classes, table.y.tolist()
    (('cat', 'dog'), [1, 0, 1])
    """
    check_choice("task", task, TASKS)
    features, columns = _features(name, x), _column_names(x)
    if y is None:
        return Table(features, None, (), name, columns)
    if task == "classification":
        return Table(features, *encode_labels(f"labels of {name}", y, len(features), classes), name, columns)
    if classes is not None:
        remedy = "Drop them, or pass `task='classification'`."
        raise InputError("classes", got=f"{len(classes)} names", allowed="None (regression)", remedy=remedy)
    return Table(features, check_targets(f"labels of {name}", y, len(features)), (), name, columns)


def table_from_dataset(
    dataset: Any, name: str = "x", *, classes: Sequence[Any] | None = None, task: str = "classification"
) -> Table:
    """Stack the items of a torch-style dataset into a `Table`.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        Each item is a 1-d array or tensor of features, or a tuple ``(features, label)``; a 1-tuple has no label.
    name : str
        Name of the table in messages.
    classes : sequence of str, optional
        Names of the classes that labels index into; default: the dataset's own ``classes`` when it has them.
    task : {"classification", "regression"}
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


def _column_names(x: Any) -> tuple[str, ...]:
    """Return the column names of a DataFrame; none unless all of them are strings."""
    names = list(x.columns) if _is_frame(x) else []
    return tuple(name.strip() for name in names) if all(isinstance(name, str) for name in names) else ()


def _features(name: str, x: Any) -> NDArray[np.floating[Any]]:
    if _is_frame(x):
        x = _frame_values(name, x)
    if isinstance(x, np.ndarray) and x.dtype in (np.float16, np.float32) and not isinstance(x, np.ma.MaskedArray):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim == 2 and x.size and np.isfinite(narrow).all():
            return narrow  # the usual case, without a copy in float64; everything else is checked below
    return _as_float32_if_no_finer(x, check_matrix(name, x))


def _as_float32_if_no_finer(x: Any, array: FloatArray) -> NDArray[np.floating[Any]]:
    return array.astype(np.float32) if kind_of(x).resolution >= FLOAT32_EPS else array


def _frame_values(name: str, frame: Any) -> NDArray[Any]:
    """Return the values of a DataFrame, with NaN for missing entries; name the columns that are not numeric."""
    texts = [str(column) for column, dtype in zip(frame.columns, frame.dtypes, strict=True) if dtype.kind not in "biuf"]
    if texts:
        remedy = "Drop or encode them; labels go to y."
        raise InputError(name, got=f"columns {listing(texts)}", allowed="columns of numbers", remedy=remedy)
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
