"""A table: one domain's features, with its labels when they are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_choice, check_matrix
from warmpot._interop import is_torch, kind_of, to_numpy
from warmpot._typing import FloatArray, IntArray
from warmpot.data._labels import encode, real_labels
from warmpot.data.lazy import Rows
from warmpot.errors import InputError, listing

__all__ = ["TASKS", "Table", "as_table", "table_from_dataset"]

TASKS = ("classification", "regression")
SINGLE = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, eq=False)
class Table:
    """Features and labels of one domain; `as_table` and `load_table` make checked ones.

    Attributes
    ----------
    x : (n, d) float32 or float64 array, or LazyRows
        One sample a row, C-ordered, every entry finite; or rows to be loaded, such as images.
    y : (n,) int64 array, (n,) float64 array or None
        Class codes, real-valued labels for regression, or None when unlabelled.
    classes : tuple of str
        Code ``k`` means ``classes[k]``; a listed class may have no sample here. Empty without class labels.
    name : str
        What messages call this table.
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
        """Whether the labels are real numbers."""
        return self.y is not None and not self.classes

    def __repr__(self) -> str:
        labels = "unlabelled" if self.y is None else f"{len(self.classes)} classes" if self.classes else "real labels"
        return f"Table({self.name!r}, {' x '.join(map(str, self.x.shape))} {self.x.dtype}, {labels})"


def as_table(
    x: Any, y: Any = None, *, classes: Sequence[Any] | None = None, name: str = "x", task: str = "classification"
) -> Table:
    """Check features and labels and put them into a `Table`.

    Parameters
    ----------
    x : (n, d) array, list of rows, torch tensor or pandas DataFrame
        Features. float16 and float32 are kept as float32, everything else becomes float64. A float32 or float64
        numpy array is not copied. The names of a DataFrame's columns are kept when all of them are texts.
    y : (n,) array, list, torch tensor or pandas Series, optional
        Labels: texts, or whole numbers (of any type). None: unlabelled.
    classes : sequence of str, optional
        Names of the classes. Whole numbers in `y` then index into it, and texts must be among them. Without it, texts
        are their own names, sorted, and a whole number is named by its digits, sorted by size.
    name : str
        What messages call this table.
    task : {"classification", "regression"}
        With "regression", `y` holds real numbers and there are no classes.

    Returns
    -------
    Table

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
    features, columns = _features(name, x), _names(x)
    n = len(features)
    if y is None:
        return Table(features, None, (), name, columns)
    if task == "regression":
        if classes is not None:
            remedy = "Drop them, or pass `task='classification'`."
            raise InputError("classes", got=f"{len(classes)} names", allowed="None (regression)", remedy=remedy)
        return Table(features, real_labels(f"labels of {name}", y, n), (), name, columns)
    codes, names = encode(f"labels of {name}", y, n, classes)
    return Table(features, codes, names, name, columns)


def table_from_dataset(
    dataset: Any, name: str = "x", *, classes: Sequence[Any] | None = None, task: str = "classification"
) -> Table:
    """Stack the items of a torch-style dataset into a `Table`.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        Each item is a 1-d array or tensor of features, or a tuple ``(features, label)``; a 1-tuple has no label.
    name : str
        What messages call this table.
    classes : sequence of str, optional
        Names of the classes, which labels index into; the dataset's own ``classes`` when it has them.
    task : {"classification", "regression"}
        As for `as_table`.

    Returns
    -------
    Table
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


def _names(x: Any) -> tuple[str, ...]:
    """Names of a DataFrame's columns; none unless all of them are texts."""
    names = list(x.columns) if hasattr(x, "iloc") and hasattr(x, "columns") else []
    return tuple(name.strip() for name in names) if all(isinstance(name, str) for name in names) else ()


def _features(name: str, x: Any) -> NDArray[np.floating[Any]]:
    if hasattr(x, "iloc") and hasattr(x, "columns"):
        x = _frame(name, x)
    if isinstance(x, np.ndarray) and x.dtype in (np.float16, np.float32) and not isinstance(x, np.ma.MaskedArray):
        narrow = np.ascontiguousarray(x, dtype=np.float32)
        if x.ndim == 2 and x.size and np.isfinite(narrow).all():
            return narrow  # what fails here is refused below; what passes never grows to float64
    array = check_matrix(name, x)
    return _narrowed(x, array)


def _narrowed(x: Any, array: FloatArray) -> NDArray[np.floating[Any]]:
    """Return `array` as float32 when `x` was no finer."""
    return array.astype(np.float32) if kind_of(x).resolution >= SINGLE else array


def _frame(name: str, frame: Any) -> NDArray[Any]:
    """Read a DataFrame, naming the columns that hold no numbers; a missing entry becomes NaN."""
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
    if np.ndim(x) != 1:  # asked of x: to_numpy gives a bare number a dimension
        remedy = "Read images with warmpot.data.images_from_dataset."
        got = f"shape {tuple(np.shape(x))} in item {i}"
        raise InputError(name, got=got, allowed=allowed, remedy=remedy)
    return _narrowed(x, row)


def _scalar(y: Any) -> Any:
    """Turn a label of one entry, such as a 0-d tensor, into the number or text it holds."""
    return y.item() if (is_torch(y) and y.numel() == 1) or (isinstance(y, np.ndarray) and y.size == 1) else y
