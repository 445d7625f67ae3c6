"""A task: what training may see of a labelled source and an unlabelled target, and separately the target's labels."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_matrix
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.data._columns import find_columns
from warmpot.data.table import Rows, Table, sample_shape, take_columns
from warmpot.errors import InputError, WarmpotWarning, listing

__all__ = ["HeldOutTarget", "Task", "Truth", "draw_rows", "hold_out_target", "make_task", "match_columns",
           "match_labels"]  # fmt: skip

MIN_SAMPLES = 2  # samples that each side must have: with a single sample there is nothing to choose between


@dataclass(frozen=True, eq=False)
class HeldOutTarget:
    """Target samples that are kept out of a task: nothing that is trained, weighted or chosen depends on them.

    Attributes
    ----------
    x : array or LazyRows
        The samples.
    rows, kept : (m,) and (n_target,) int64 arrays
        Their row numbers, and those of the other samples, in the data that both are from.
    names : tuple of str
    """

    x: Rows
    rows: IntArray
    kept: IntArray
    names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    """What training may see. There is no field for target labels, and nothing here was derived from them.

    Attributes
    ----------
    xs, xt : (n, d) float32 or float64 array, or LazyRows
        Source and target features, with the same dtype; or rows that are loaded on demand, such as images, for the
        mini-batch engine.
    ys : (n_source,) int64 array or float64 array
        Class codes of the source, or continuous targets for regression.
    classes : tuple of str
        Names of the source's classes, each with at least one sample; empty for regression.
    columns : tuple of str
        Names of the features, in the order of `xs` and `xt`; empty when neither side has names.
    source_names, target_names : tuple of str
        Names of the samples, such as ids or paths of images; empty when they have none. The name of a target image may
        reveal its class: names are only used to open files and to list predictions.
    text_labels : bool
        Whether the source labels were given as texts; see `Table`.
    held_out : HeldOutTarget or None
        Target samples that are not in `xt`, for a certificate; see `hold_out_target`.
    """

    xs: Rows
    ys: IntArray | FloatArray
    xt: Rows
    classes: tuple[str, ...]
    columns: tuple[str, ...] = ()
    source_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    text_labels: bool = False
    held_out: HeldOutTarget | None = None

    @property
    def n_source(self) -> int:
        """Number of source samples."""
        return int(self.xs.shape[0])

    @property
    def n_target(self) -> int:
        """Number of target samples."""
        return int(self.xt.shape[0])

    @property
    def width(self) -> int:
        """Number of features, or of the channels of an image."""
        return int(self.xs.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes; 0 for regression."""
        return len(self.classes)

    @property
    def for_regression(self) -> bool:
        """Whether the labels are continuous targets."""
        return not self.classes

    def unlabelled(self, side: str) -> Table:
        """Return the samples of the "source" or the "target" with the names of their columns, without labels."""
        return Table(self.xs if side == "source" else self.xt, None, (), side, self.columns)

    def arrays(self) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
        """Return the features of both domains; an `InputError` when the inputs are not features."""
        if not (isinstance(self.xs, np.ndarray) and isinstance(self.xt, np.ndarray)):
            remedy = "Extract features first, or train with the mini-batch engine (`warmpot fit --fine-tune`)."
            raise InputError("task", got=sample_shape(self.xs), allowed="features", remedy=remedy)
        return self.xs, self.xt

    def __repr__(self) -> str:
        labels = f"{self.n_classes} classes" if self.classes else "continuous targets"
        return f"Task({self.n_source} source, {self.n_target} target samples, {sample_shape(self.xs)}, {labels})"


@dataclass(frozen=True, eq=False)
class Truth:
    """Target labels, for evaluation only; never pass them to training.

    Attributes
    ----------
    yt : (n_target,) int64 array or float64 array
        Codes in the order of the source's `classes`, -1 for a class that the source does not have; or continuous
        targets.
    """

    yt: IntArray | FloatArray
    classes: tuple[str, ...]

    @property
    def known(self) -> BoolArray:
        """Which target samples belong to a class of the source (all of them, for regression)."""
        return self.yt >= 0 if self.classes else np.ones(len(self.yt), dtype=bool)

    def of_rows(self, rows: IntArray) -> Truth:
        """Return the labels of some of the samples."""
        return Truth(self.yt[rows], self.classes)

    def accuracy(self, outputs: NDArray[Any]) -> float:
        """Return the share of correct predictions, from outputs (n_target, n_classes) or class codes (n_target,)."""
        codes = outputs.argmax(axis=1) if outputs.ndim == 2 else outputs
        return float((codes == self.yt).mean())


def draw_rows(n: int, share: float, seed: int) -> IntArray:
    """Draw the target samples to hold out: this share of n, at least one, in ascending order.

    Examples
    --------
    >>> draw_rows(10, 0.3, 0).tolist()
    [0, 1, 3]
    """
    m = min(max(round(share * n), 1), n - MIN_SAMPLES)
    if m < 1:
        got, allowed = f"{n} target samples to hold out from", f"more than {MIN_SAMPLES}"
        raise InputError("holdout", got=got, allowed=allowed, remedy="Leave holdout out.")
    # not the seed of the training itself: the samples must not depend on anything that it draws
    rows: IntArray = np.sort(np.random.default_rng([seed, 0x401D]).permutation(n)[:m])
    return rows


def hold_out_target(task: Task, rows: Sequence[int] | IntArray) -> Task:
    """Return the task without some target samples, which are then in `Task.held_out`; a task that has these is kept."""
    if task.held_out is not None or not len(rows):
        return task
    rows, n = np.asarray(rows, np.int64), task.n_target
    if rows.min() < 0 or rows.max() >= n or len(rows) > n - MIN_SAMPLES:
        got, allowed = f"row {int(rows.max())} of {n} target samples", f"rows of these, without at least {MIN_SAMPLES}"
        raise InputError("held-out samples", got=got, allowed=allowed, remedy="Name the target file of the run.")
    kept = np.setdiff1d(np.arange(n), rows)
    x, held = (task.xt[part] if isinstance(task.xt, np.ndarray) else task.xt.subset(part) for part in (kept, rows))
    names, held_names = (
        tuple(task.target_names[k] for k in part) if task.target_names else () for part in (kept, rows)
    )
    return replace(task, xt=x, target_names=names, held_out=HeldOutTarget(held, rows, kept, held_names))


def make_task(source: Table, target: Table) -> tuple[Task, Truth | None]:
    """Combine a labelled source and a target into a task, and keep the target's labels apart.

    Classes are matched by name, in whatever order the two tables list them. The target's list of classes never
    influences the `Task`. A source class without samples is dropped, with a `WarmpotWarning`. Features are matched by
    name when both tables name their columns, by position otherwise.

    Parameters
    ----------
    source : Table
        Labelled, with at least two samples of at least two classes (or continuous targets for regression).
    target : Table
        The same features as the source; its labels are optional and only reach the `Truth`, which is None without them.

    Examples
    --------
    >>> from warmpot.data import as_table
    >>> source = as_table([[0.0], [1.0], [2.0], [2.5]], ["a", "b", "c", "c"])
    >>> target = as_table([[1.1], [2.1]], [1, 0], classes=["c", "b"])
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", WarmpotWarning)  # "a" and "b" have one sample
    ...     task, truth = make_task(source, target)
    >>> task
    Task(4 source, 2 target samples, 1 features, 3 classes)
    >>> truth.yt.tolist()
    [1, 2]
    """
    for table in (source, target):
        if table.n < MIN_SAMPLES:
            got, remedy = f"{table.n} samples", "Give each side more samples."
            raise InputError(table.name, got=got, allowed=f"at least {MIN_SAMPLES}", remedy=remedy)
    target = match_columns(target, source.columns, f"the columns of {source.name}")
    warn_of_repeated_names(target)
    if source.x.ndim == target.x.ndim == 2:
        if target.width != source.width:
            check_matrix(target.name, target.x, width=source.width)  # raises, with the package's usual message
    elif source.x.shape[1:] != target.x.shape[1:] or source.x.dtype != target.x.dtype:
        got, remedy = sample_shape(target.x), "Give two folders of images, or two tables of features."
        raise InputError(target.name, got=got, allowed=f"{sample_shape(source.x)}, as in {source.name}", remedy=remedy)
    if source.y is None:
        remedy = "Pass y, or name the label column or key of the file."
        raise InputError(source.name, got="no labels", allowed="a labelled source", remedy=remedy)
    if target.y is not None and source.for_regression != target.for_regression:
        kinds = ["continuous targets" if table.for_regression else "class labels" for table in (source, target)]
        allowed, remedy = f"{kinds[0]}, as the source has", "Read both with the same task."
        raise InputError(target.name, got=kinds[1], allowed=allowed, remedy=remedy)
    xs, xt = source.x, target.x
    if xs.ndim == 2:  # images and activations stay unloaded; distances need a common dtype, the finer of the two
        arrays = [x if isinstance(x, np.ndarray) else np.asarray(x[:]) for x in (xs, xt)]
        xs, xt = (x.astype(np.result_type(np.float32, *arrays), copy=False) for x in arrays)
    ys, classes = (source.y, ()) if source.for_regression else _drop_empty_classes(source, source.y)
    columns = source.columns or target.columns
    task = Task(xs, ys, xt, classes, columns, source.names, target.names, source.text_labels)
    return task, match_labels(target, classes)


def match_columns(table: Table, columns: Sequence[str], allowed: str) -> Table:
    """Put a table's features into the order of `columns`, by name; without names on either side, leave them.

    `allowed` describes these columns in the `InputError` about names that differ, or repeat so that the order is
    ambiguous.
    """
    columns = tuple(columns)
    if not columns or not table.columns or table.columns == columns:
        return table
    positions = find_columns(table.name, table.columns, columns, allowed, extra=False)
    return replace(table, x=take_columns(table, positions), columns=columns)


def warn_of_repeated_names(table: Table) -> None:
    """Warn if several samples have the same name, such as an id that is listed with their predictions."""
    if len(set(table.names)) < len(table.names):
        repeated = [name for name, count in Counter(table.names).items() if count > 1]
        remedy = "They are kept; tell them apart by their rows."
        _warn(table.name, f"ids more than once: {listing(repeated)}", "one id per sample", remedy)


def match_labels(table: Table, classes: tuple[str, ...], owner: str = "source") -> Truth | None:
    """Encode a target's labels, if it has any, in the order of `classes` (empty for regression), by name.

    `owner` is what these classes belong to, for the `WarmpotWarning` about labels that are not among them.
    """
    if table.y is None or not classes:
        return None if table.y is None else Truth(table.y, ())
    code_of = {name: k for k, name in enumerate(classes)}
    yt = np.array([code_of.get(name, -1) for name in table.classes], dtype=np.int64)[table.y]
    unknown = [table.classes[k] for k in np.unique(table.y[yt < 0])]
    if unknown:
        none = bool((yt < 0).all())
        every = " (none of its labels is known)" if none else ""
        effect = "accuracy cannot be measured." if none else "their samples count as wrong."
        got, allowed = f"classes the {owner} lacks: {listing(unknown)}{every}", f"the {owner}'s classes"
        _warn(table.name, got, allowed, f"Check that both sides write them in the same way; {effect}")
    return Truth(yt, classes)


def _drop_empty_classes(source: Table, codes: NDArray[Any]) -> tuple[IntArray, tuple[str, ...]]:
    """Encode the labels by the classes that have samples; warn about classes with none or one."""
    counts = np.bincount(codes, minlength=len(source.classes))
    classes = tuple(compress(source.classes, counts))
    if len(classes) < 2:
        got, remedy = f"one class only ({classes[0]!r})", "Give the source samples of every class that may occur."
        raise InputError(source.name, got=got, allowed="at least two classes", remedy=remedy)
    if len(classes) < len(counts):
        empty = listing(source.classes[k] for k in np.flatnonzero(counts == 0))
        _warn(source.name, f"classes without samples: {empty}", "samples of every class", "They are dropped.")
    if (counts == 1).any():
        single = listing(source.classes[k] for k in np.flatnonzero(counts == 1))
        remedy = "They are kept; such a class is learnt from a single point."
        _warn(source.name, f"classes with one sample: {single}", "two or more samples per class", remedy)
    new_codes = np.cumsum(counts > 0) - 1
    return new_codes[codes].astype(np.int64), classes


def _warn(what: str, got: str, allowed: str, remedy: str) -> None:
    # the fourth frame up is the caller of make_task: past this function, its caller and make_task
    warnings.warn(WarmpotWarning(what, got=got, allowed=allowed, remedy=remedy), stacklevel=4)
