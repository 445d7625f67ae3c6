"""The columns of a file by name: which hold features, labels and ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from warmpot.data._image_lists import path_error
from warmpot.errors import InputError, MissingColumnError, MissingLabelsError, listing

__all__ = ["LABEL_NAMES", "FileColumns", "FileContent", "IdColumns", "Roles", "assign_columns", "find_columns"]

LABEL_NAMES = ("label", "y", "class", "target")
"""Columns that hold the labels when no column is named; upper and lower case are the same."""
ID_NAME = re.compile(r"(.*[ _-])?id|unnamed: 0", re.IGNORECASE)
"""Names of columns of ids; the last is what pandas calls the row numbers that it wrote into a file."""
MIN_ORDERED = 10
"""Rows from which integers that only rise, or only fall, are taken for ids: n random numbers are in order with
probability 2 / n!, which is less than 1e-6 for 10 of them but a third for 3."""
CHANCE = 1e-6
"""Integers that are all different are taken for ids if drawn ones would be with a smaller probability."""


class Roles(NamedTuple):
    """What the columns, or the keys of a ``.npz``, are used for: the arguments of `load_table`."""

    label: str | None = None
    ids: str | None = None
    features: Sequence[str] | None = ()
    columns: Sequence[str] = ()


class FileColumns(NamedTuple):
    """Positions of the columns of a file by what they are used for; `extra` ones are ignored."""

    names: list[str]
    label: int | None
    ids: int | None
    features: list[int]

    @property
    def extra(self) -> list[int]:
        return sorted({*range(len(self.names))} - {self.label, self.ids, *self.features})

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(self.names[j] for j in self.features)


class FileContent(NamedTuple):
    """Unchecked content of a file, or of some of its rows.

    `classes` is an `InputError` if it cannot be read, to be raised if it is needed; `share` is how much of the file has
    been read.
    """

    x: Any
    y: Any = None
    classes: Any = None
    columns: tuple[str, ...] = ()
    names: Sequence[Any] = ()
    share: float = 1.0


def assign_columns(path: Path, names: Sequence[str], roles: Roles, *, header: bool = True) -> FileColumns:
    """Decide what each column is used for; without a `header`, `names` are numbers that only messages use."""
    names = [name.strip() for name in names]
    label = _label_column(path, names, roles) if header else None
    ids = None
    if roles.ids is not None:
        if names.count(roles.ids) != 1 or names.index(roles.ids) == label:
            got = f"columns {listing(names)}" + (f" (labels: {names[label]!r})" if label is not None else "")
            remedy = "Check the spelling of the id column."
            raise MissingColumnError(str(path), got=got, allowed=f"one column {roles.ids!r} for ids", remedy=remedy)
        ids = names.index(roles.ids)
    if header and (unknown := [name for name in roles.features or () if name not in names]):
        got, allowed = f"columns {listing(names)}", f"a column {listing(unknown)} that is a feature"
        raise path_error(path, got, allowed, "Check the spelling of the feature.")
    features = [j for j in range(len(names)) if j not in (label, ids)]
    if header and (repeated := [name for name, count in Counter(names[j] for j in features).items() if count > 1]):
        raise path_error(path, f"columns more than once: {listing(repeated)}", "different names", "Rename them.")
    if header and roles.columns:
        features = find_columns(str(path), names, roles.columns, f"the columns {listing(roles.columns)}")
    return FileColumns(names, label, ids, features)


class IdColumns:
    """Finds features that look like ids, unless they were chosen, in one part of the rows after the other.

    Columns of integers are kept while no part of them has repeated a number: only those can look like ids.
    """

    def __init__(self, path: Path, columns: FileColumns, roles: Roles) -> None:
        self._path, self._names = path, columns.feature_names
        named = enumerate(self._names if roles.features is not None and not roles.columns else ())
        self._parts: dict[int, list[NDArray[Any]]] = {j: [] for j, name in named if name not in (roles.features or ())}

    def add(self, x: Any, integers: Sequence[bool]) -> None:
        """Look at some rows; `integers` are the features that are integers there."""
        for j in list(self._parts):
            column = np.asarray(x[:, j])
            if ID_NAME.fullmatch(self._names[j]):
                self._refuse(j, column, _like_ids(column) if integers[j] else "")
            # neighbours first: that is cheap, and enough for most columns of integers
            if not integers[j] or (np.diff(column) == 0).any() or len(np.unique(column)) < len(column):
                del self._parts[j]
            else:
                self._parts[j].append(column.copy())

    def refuse(self) -> None:
        """Raise an `InputError` about the first column that looks like one, after all rows were added."""
        for j, parts in self._parts.items():
            column = np.concatenate(parts) if parts else np.empty(0)
            if reason := _like_ids(column):
                self._refuse(j, column, reason)

    def _refuse(self, j: int, column: NDArray[Any], reason: str) -> None:
        name = self._names[j]
        got = f"a column {name!r} that looks like an id"
        got += f": {len(column)} integers that {reason}" if reason else ""
        remedy = f"Pass `ids=` {name!r} if it is an id, `features=` {name!r} if it is a feature, or drop it."
        raise path_error(self._path, got, "features", remedy)


def _like_ids(column: NDArray[Any]) -> str:
    """Return in what way integers look like ids: in order, or shuffled; "" if they do not."""
    steps, n = np.diff(column), len(column)
    if n < MIN_ORDERED:
        return ""
    if (steps > 0).all() or (steps < 0).all():
        return "only rise" if steps[0] > 0 else "only fall"
    # n numbers drawn from r are all different with a probability below exp(-n (n - 1) / 2 r): the birthday problem
    crowded = n * (n - 1) / 2 > -np.log(CHANCE) * (np.ptp(column) + 1.0)
    return "are all different" if crowded and len(np.unique(column)) == n else ""


def _label_column(path: Path, names: Sequence[str], roles: Roles) -> int | None:
    """Find the column of labels among all column names."""
    label = roles.label
    if label == "":
        return None
    usual = set(LABEL_NAMES) - {name.lower() for name in roles.columns}
    matches = [j for j, name in enumerate(names) if (name.lower() in usual if label is None else name == label)]
    if len(matches) > 1:
        got = f"{len(matches)} columns for labels: {listing([names[j] for j in matches])}"
        raise path_error(path, got, "one", "Choose one with `label=`, and drop the other: it may give the label away.")
    if label is not None and not matches:
        got, allowed = f"columns {listing(names)}" if names else "no names of columns", f"a column {label!r}"
        raise MissingLabelsError(str(path), got=got, allowed=allowed, remedy="Check the spelling of the label column.")
    return matches[0] if matches else None


def find_columns(
    what: str, names: Sequence[str], columns: Sequence[str], allowed: str, *, extra: bool = True
) -> list[int]:
    """Return the position of each of `columns` among `names`.

    An `InputError` about `what` names those that are missing, those that repeat so that the order is ambiguous and,
    unless `extra` ones are ignored, all others. `allowed` describes `columns` in it.
    """
    if list(names) == list(columns):
        return list(range(len(names)))
    position = {name: j for j, name in enumerate(names)}
    missing = [name for name in columns if name not in position]
    others = [] if extra else [name for name in position if name not in set(columns)]
    problems = ["no column " + listing(missing)] * bool(missing) + ["extra columns " + listing(others)] * bool(others)
    if not problems:
        counts = Counter(names), Counter(columns)
        several = [name for name in counts[1] if max(count[name] for count in counts) > 1]
        problems = ["columns more than once: " + listing(several)] * bool(several)
    if problems:
        remedy = "Rename, add or drop columns until both have the same; their order does not matter."
        if extra:
            remedy = "Rename or add columns until it has them; their order does not matter, others are ignored."
        raise InputError(what, got=" and ".join(problems), allowed=allowed, remedy=remedy)
    return [position[name] for name in columns]
