"""One domain from whatever a user has: arrays, data frames, files, images, data sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from warmpot._interop import is_torch
from warmpot.data._columns import IdColumns, Roles, assign_columns
from warmpot.data._image_lists import EXTENSIONS
from warmpot.data.files import load_table
from warmpot.data.images import ClassNames, images_from_dataset, is_images, load_images
from warmpot.data.pixels import open_image
from warmpot.data.table import LazyRows, Table, as_table, column_names, table_from_dataset, take_columns
from warmpot.errors import MissingColumnError, MissingLabelsError

__all__ = ["is_path", "of_images", "present_roles", "read_samples"]


def is_path(data: Any) -> bool:
    """Whether these are the path of something, not samples."""
    return isinstance(data, (str, os.PathLike))


def of_images(data: Any) -> bool:
    """Whether samples, or the pair of samples and labels, are images: see `read_samples`; a missing path is none."""
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]
    if isinstance(data, Table):
        data = data.x
    if isinstance(data, LazyRows):
        return data.dtype == np.uint8
    if is_path(data):
        return is_images(data) or _is_image_file(data)
    if isinstance(data, np.ndarray) or is_torch(data):
        return int(data.ndim) > 2
    if hasattr(data, "columns") or not hasattr(data, "__getitem__"):
        return _is_image(data)
    first = data[0] if len(data) else None
    return _is_image(first[0] if isinstance(first, tuple) and first else first)


def _is_image_file(data: Any) -> bool:
    return is_path(data) and Path(data).suffix.lower() in EXTENSIONS


def _is_image(item: Any) -> bool:
    """Whether one item of a list or a data set is an image: of Pillow, an array, or the path of one."""
    array = (isinstance(item, np.ndarray) or is_torch(item)) and item.ndim > 1
    return array or _is_image_file(item) or type(item).__module__.partition(".")[0] == "PIL"


@dataclass(frozen=True)
class _Images:
    """Images in memory or by their paths as a data set without labels."""

    items: Sequence[Any]

    @property
    def targets(self) -> list[None]:
        return [None] * len(self.items)

    @property
    def samples(self) -> list[tuple[str, None]]:
        """The paths, if all items have one."""
        return [(os.fspath(item), None) for item in self.items] if all(map(is_path, self.items)) else []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, k: int) -> Any:
        return open_image(self.items[k]) if is_path(self.items[k]) else self.items[k]


def read_samples(
    data: Any,
    *,
    name: str = "x",
    label: str | None = None,
    ids: str | None = None,
    features: Sequence[str] | None = (),
    columns: Sequence[str] = (),
    needs_label: bool = False,
    needs_ids: bool = False,
    labelled: bool = True,
    root: str | os.PathLike[str] | None = None,
    classes: ClassNames = None,
    task: str = "classification",
) -> Table:
    """Read the samples of one domain, with labels and names if it has them.

    Parameters
    ----------
    data : Table, path, data frame, array, list, pair or data set
        A path: a file (see `load_table`), a folder or list of images (see `load_images`), or one image. A data frame is
        read like a file: by its column names, and an index that is not a plain count has the names of the samples. A
        pair (a tuple) is ``(X, y)``: features or images, and labels. An array of features, or images: one or several,
        as Pillow images, arrays or tensors in either order of channels, or paths. Or a torch-style data set.
    name : str
        Name of the samples in messages; a path has its own.
    label, ids, features, columns, labelled
        As for `load_table`.
    needs_label, needs_ids : bool
        Whether a named column of labels, or ids, may not be absent; otherwise, if it is, there are none.
    root, classes
        For images: as for `load_images`.
    task : {"classification", "regression"}
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, LazyRows):
        return Table(data, None, (), name)
    if of_images(data):
        return _read_images(data, name, root, classes)
    if isinstance(data, tuple) and len(data) == 2:
        samples = read_samples(data[0], name=name, label="", ids=ids, features=features, columns=columns)
        return as_table(samples.x, data[1], name=name, task=task, columns=samples.columns, names=samples.names)
    roles = Roles(label, ids, features, columns)
    try:
        if is_path(data):
            return load_table(data, labelled=labelled, task=task, **roles._asdict())
        if column_names(data) or hasattr(data, "iloc"):
            return _read_frame(data, name, roles, labelled, task)
    except MissingColumnError as error:
        roles = present_roles(error, roles, needs_label, needs_ids)
        options: dict[str, Any] = {"labelled": labelled, "task": task, **roles._asdict()}
        return read_samples(data, name=name, needs_label=needs_label, needs_ids=needs_ids, **options)
    if isinstance(data, (list, np.ndarray)) or is_torch(data) or not hasattr(data, "__getitem__"):
        return as_table(data, name=name)
    return table_from_dataset(data, name, task=task)


def present_roles(error: MissingColumnError, roles: Roles, needs_label: bool, needs_ids: bool) -> Roles:
    """Return the roles without the column of labels or ids that is absent; raise the error about it if it is needed."""
    of_labels = isinstance(error, MissingLabelsError)
    if needs_label if of_labels else needs_ids:
        raise error
    return roles._replace(label="") if of_labels else roles._replace(ids=None)


def _read_images(data: Any, name: str, root: Any, classes: ClassNames) -> Table:
    if is_path(data) and not _is_image_file(data):
        return load_images(data, root=root, classes=classes)
    if isinstance(data, tuple) and len(data) == 2:
        table = _read_images(data[0], name, root, None)
        labels = as_table(np.zeros((table.n, 1)), data[1], name=name)
        return replace(table, y=labels.y, classes=labels.classes, text_labels=labels.text_labels)
    several = isinstance(data, (list, tuple))
    if isinstance(data, np.ndarray) or is_torch(data):
        # three dimensions: one image with its channels first or last, or several grey ones
        several = data.ndim > 3 or not {data.shape[0], data.shape[-1]} & {1, 3, 4}
    elif not (is_path(data) or _is_image(data) or several):
        return images_from_dataset(data, name, classes=classes)
    return images_from_dataset(_Images(data if several else [data]), name)


def _read_frame(frame: Any, name: str, roles: Roles, labelled: bool, task: str) -> Table:
    """Read a data frame like a file: its columns by name; an index that is not a plain count as names."""
    names = column_names(frame)
    if not names:
        return as_table(frame, name=name)
    found = assign_columns(Path(name), names, roles)
    x = as_table(take_columns(frame, found.features), name=name)
    kinds = [str(frame.dtypes.iloc[j] if hasattr(frame, "iloc") else frame.dtypes[j]) for j in found.features]
    looking = IdColumns(Path(name), found, roles)
    looking.add(x.x, [kind.lower().startswith(("int", "uint")) for kind in kinds])
    looking.refuse()

    def cells(j: int) -> list[Any]:
        column = take_columns(frame, [j])
        values = column.iloc[:, 0] if hasattr(column, "iloc") else column.to_series(0)
        listed: list[Any] = values.to_list() if hasattr(values, "to_list") else values.tolist()
        return listed

    samples: list[Any] = [] if found.ids is None else cells(found.ids)
    if found.ids is None and hasattr(frame, "index") and type(frame.index).__name__ != "RangeIndex":
        samples = list(frame.index)
    y = cells(found.label) if labelled and found.label is not None else None
    columns, ids = found.feature_names, [str(sample) for sample in samples]
    return as_table(x.x, y, name=name, task=task, columns=columns, names=ids)
