"""Shards: rows of numbers in many memory-mapped files of one folder, such as the features of a data set of images.

A folder holds ``shards.json`` (the `Layout`), a pair ``shard-00000.npy`` and ``shard-00000.json`` (rows that were kept,
files that were not) for every run of `Layout.per_shard` samples, and, once all of them are there, ``index.csv`` with
the names and labels of the rows. Every file is whole or absent, so writing can stop anywhere and go on later.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._files import FILENAME_ERRORS, atomic_write, write_csv
from warmpot._typing import IntArray
from warmpot.data._labels import encode, real_labels
from warmpot.data.lazy import LazyRows
from warmpot.data.table import Table
from warmpot.errors import InputError, MissingLabelsError

__all__ = ["DTYPES", "Layout", "Shards", "ShardsFolder", "is_shards", "read_shards"]

DTYPES = ("float32", "float16")
"""What numbers on disk may be; both are float32 in memory."""
LAYOUT, INDEX = "shards.json", "index.csv"
FORMAT = 1
MOST_OPEN = 256
"""Files mapped at a time: each holds a file descriptor, of which a process usually has 1,024."""


@dataclass(frozen=True)
class Layout:
    """What a folder of shards is to hold; two folders with equal layouts hold the same rows.

    Attributes
    ----------
    n : int
        Samples asked for; fewer rows may be kept.
    row : tuple of int
        Shape of a row.
    dtype : str
        Of the numbers on disk, one of `DTYPES`.
    per_shard : int
        Samples a shard; the last one may have fewer.
    classes : tuple of str
        Names of the classes; empty without class labels.
    ask : mapping
        What the rows were made from and how, as far as JSON can say it.
    """

    n: int
    row: tuple[int, ...]
    dtype: str
    per_shard: int
    classes: tuple[str, ...] = ()
    ask: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.n // self.per_shard)

    def span(self, k: int) -> range:
        """Return the samples of shard `k`."""
        return range(k * self.per_shard, min((k + 1) * self.per_shard, self.n))

    def fingerprint(self) -> str:
        """Return a short hash of all that decides the rows."""
        return hashlib.sha256(replace(self, classes=())._text().encode()).hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        with atomic_write(path) as draft:
            draft.write_text(self._text() + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Layout:
        """Read what `write` wrote."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found.pop("format") != FORMAT:
                raise ValueError("another format")
            row, classes = tuple(int(size) for size in found.pop("row")), tuple(found.pop("classes"))
            return cls(row=row, classes=classes, **found)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            got, remedy = f"a layout that cannot be read ({error})", "Delete the folder and extract again."
            raise InputError(str(path), got=got, allowed="what extract wrote", remedy=remedy) from error

    def _text(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self), "ask": dict(self.ask)}, indent=1, sort_keys=True)


class ShardsFolder:
    """A folder of shards being written, by one process or by several at the same time.

    Parameters
    ----------
    folder : path
        New, empty, or begun with the same layout; then only what is missing has to be written.
    layout : Layout
        What the folder is to hold.

    Raises
    ------
    InputError
        When the folder holds something else.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.folder, self.layout = folder, layout
        try:
            folder.mkdir(parents=True, exist_ok=True)
            foreign = not is_shards(folder) and next((p for p in folder.iterdir() if p.suffix != ".tmp"), None)
        except OSError as error:
            got, remedy = error.strerror or error, "Name another folder."
            raise InputError(str(folder), got=got, allowed="a folder to write to", remedy=remedy) from error
        if foreign and not is_shards(folder):  # another process may have begun it in between
            got, remedy = f"a folder with {foreign.name!r} in it", "Name another folder."
            raise InputError(str(folder), got=got, allowed="a new folder", remedy=remedy)
        if is_shards(folder):
            self._check_same(Layout.read(folder / LAYOUT))
        else:
            layout.write(folder / LAYOUT)

    @property
    def finished(self) -> bool:
        """Whether everything is there, the index too."""
        return (self.folder / INDEX).exists()

    def has(self, k: int) -> bool:
        """Whether shard `k` is there, whole."""
        try:
            return self._paths(k)[0].stat().st_size == int(self.note(k)["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def note(self, k: int) -> dict[str, Any]:
        """Return what was noted about shard `k`: ``rows`` that were kept, ``bad`` ones with reasons."""
        found: dict[str, Any] = json.loads(self._paths(k)[1].read_text(encoding="utf-8"))
        return found

    def write(self, k: int, x: NDArray[Any], rows: Sequence[int], bad: Mapping[int, str]) -> None:
        """Write shard `k`: the rows of the samples `rows`, in this order, and why others are `bad`."""
        values, note = self._paths(k)
        if x.shape != (len(rows), *self.layout.row):
            raise ValueError(f"{x.shape} is not {len(rows)} rows of {self.layout.row}")
        with atomic_write(values) as draft, open(draft, "xb") as stream:
            np.save(stream, np.ascontiguousarray(x, dtype=self.layout.dtype), allow_pickle=False)
            size = stream.tell()
        text = json.dumps({"rows": [int(row) for row in rows], "bytes": size, "bad": dict(bad)})
        with atomic_write(note) as draft:  # after the numbers: with it the shard counts as there
            draft.write_text(text + "\n", encoding="utf-8")

    def bad(self) -> dict[int, str]:
        """Return the samples that were not kept, with reasons."""
        notes = (self.note(k) for k in range(self.layout.shards))
        return {int(row): why for note in notes for row, why in note["bad"].items()}

    def finish(self, table: Table) -> None:
        """Write names and labels of the rows that were kept.

        Parameters
        ----------
        table : Table
            What the rows were made from; its names, labels and classes are kept, in place of older ones.
        """
        if Layout.read(self.folder / LAYOUT).classes != table.classes:
            replace(self.layout, classes=table.classes).write(self.folder / LAYOUT)
        kept = (row for k in range(self.layout.shards) for row in self.note(k)["rows"])
        labels: list[Any] | None = None
        if table.y is not None:
            labels = [table.classes[code] if table.classes else float(code) for code in table.y.tolist()]
        columns = ["row", *["name"] * bool(table.names), *["label"] * (labels is not None)]
        further = [table.names] * bool(table.names) + ([] if labels is None else [labels])
        write_csv(self.folder / INDEX, columns, ([row, *(column[row] for column in further)] for row in kept))

    def _paths(self, k: int) -> tuple[Path, Path]:
        return _shard(self.folder, k), self.folder / f"shard-{k:05d}.json"

    def _check_same(self, found: Layout) -> None:
        # through JSON, which knows no tuples
        old, new = (json.loads(replace(layout, classes=())._text()) for layout in (found, self.layout))
        old, new = ({**said.pop("ask"), **said} for said in (old, new))
        other = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        if other:
            was = ", ".join(f"{key} {_short(old.get(key))} (now {_short(new.get(key))})" for key in other[:3])
            remedy = "Name another folder, delete this one, or ask for the same again."
            raise InputError(str(self.folder), got=f"rows made with {was}", allowed="the same", remedy=remedy)


class Shards(LazyRows):
    """Rows in a finished folder of shards; `Shards.open` makes one. A row is read when it is asked for.

    Rows are float32 whatever the files hold. The object can be sent to other processes, which map the files anew.
    """

    def __init__(self, folder: Path, layout: Layout, stored: IntArray, rows: IntArray) -> None:
        self.folder, self.layout = folder, layout
        self._stored = stored
        """Sample of every stored row, in their order."""
        self._first = np.searchsorted(stored, np.arange(layout.shards + 1) * layout.per_shard)
        """Stored row that each shard begins with."""
        self._rows = rows
        """Stored rows that are ours."""
        self._maps: OrderedDict[int, NDArray[Any]] = OrderedDict()

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Shards:
        """Open a folder that `extract` finished.

        Parameters
        ----------
        folder : str or path
            Holds ``shards.json`` and ``index.csv``.

        Returns
        -------
        Shards
        """
        return _opened(Path(folder))[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of one."""
        return (len(self._rows), *self.layout.row)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a loaded number."""
        return np.dtype(np.float32)

    @property
    def samples(self) -> IntArray:
        """Which of the samples that were asked for the rows are."""
        found: IntArray = self._stored[self._rows]
        return found

    @property
    def nbytes(self) -> int:
        """Size of all rows in memory."""
        return int(np.prod(self.shape)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        wanted = self._rows[rows]
        if wanted.ndim == 0:
            found: NDArray[Any] = self[[rows]][0]
            return found
        out = np.empty((len(wanted), *self.layout.row), dtype=self.dtype)
        order = np.argsort(wanted, kind="stable")  # every file once, from its beginning to its end
        ordered = wanted[order]
        shards = np.searchsorted(self._first, ordered, side="right") - 1
        starts = np.flatnonzero(np.diff(shards, prepend=-1))
        for start, stop in pairwise([*starts, len(ordered)]):
            k = int(shards[start])
            out[order[start:stop]] = self._map(k)[ordered[start:stop] - self._first[k]]
        return out

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r}, {' x '.join(map(str, self.shape))} {self.layout.dtype})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": OrderedDict()}  # a map that is pickled becomes a copy of its file

    def subset(self, rows: Any) -> Shards:
        """Return these rows only, unread."""
        return Shards(self.folder, self.layout, self._stored, np.atleast_1d(self._rows[rows]))

    def fingerprint(self) -> str:
        """Return a short hash of the layout and of which samples the rows are."""
        digest = hashlib.sha256(self.layout.fingerprint().encode())
        digest.update(np.ascontiguousarray(self.samples).data)
        return digest.hexdigest()[:16]

    def _map(self, k: int) -> NDArray[Any]:
        """Map shard `k`; the ones used last stay mapped."""
        if k not in self._maps:
            path, rows = _shard(self.folder, k), int(self._first[k + 1] - self._first[k])
            try:
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
                if mapped.shape != (rows, *self.layout.row) or mapped.dtype != self.layout.dtype:
                    raise ValueError(f"an array of shape {mapped.shape} and type {mapped.dtype}")
            except (OSError, ValueError, EOFError) as error:
                got, remedy = f"{error}", f"Delete it and {self.folder / INDEX}, and extract again."
                allowed = f"{rows} rows of shape {self.layout.row}"
                raise InputError(str(path), got=got, allowed=allowed, remedy=remedy) from error
            self._maps[k] = mapped
            if len(self._maps) > MOST_OPEN:
                self._maps.popitem(last=False)
        self._maps.move_to_end(k)
        return self._maps[k]


def is_shards(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder of shards, finished or not."""
    try:
        return (Path(path) / LAYOUT).is_file()
    except (OSError, TypeError, ValueError):  # no path at all: what reads it says so
        return False


def read_shards(
    path: str | os.PathLike[str],
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
) -> Table:
    """Read a finished folder of shards as a `Table`, its rows unread; arguments as for `load_table`."""
    shards, columns = _opened(path := Path(path))
    if label not in (None, "", "label") or (label == "label" and "label" not in columns):
        got, remedy = f"columns {', '.join(columns)} in {INDEX}", "Leave `label=` out."
        raise MissingLabelsError(str(path), got=got, allowed=f"a column {label!r}", remedy=remedy)
    names = tuple(columns.get("name", ()))
    labels = None if label == "" else columns.get("label")
    if labels is None:
        return Table(shards, None, (), str(path), (), names)
    what = f"labels of {path}"
    if task == "regression":
        return Table(shards, real_labels(what, _numbers(labels), len(shards)), (), str(path), (), names)
    y, found = encode(what, labels, len(shards), classes if classes is not None else shards.layout.classes or None)
    return Table(shards, y, found, str(path), (), names)


def _opened(folder: Path) -> tuple[Shards, dict[str, list[str]]]:
    """Open a folder, and return the columns of its index."""
    if not is_shards(folder):
        remedy = "Make it: warmpot extract IMAGES --out FOLDER --backbone NAME"
        raise InputError(str(folder), got=f"no {LAYOUT}", allowed="a folder of shards", remedy=remedy)
    layout = Layout.read(folder / LAYOUT)
    try:
        with open(folder / INDEX, encoding="utf-8", errors=FILENAME_ERRORS, newline="") as stream:
            reader: Iterator[list[str]] = csv.reader(stream)
            header = next(reader)
            columns = dict(zip(header, map(list, zip(*reader, strict=True)), strict=True))
        stored = np.array(columns["row"], dtype=np.int64)
        if (np.diff(stored) <= 0).any() or not 0 <= stored[0] <= stored[-1] < layout.n:
            raise ValueError("rows out of order")
    except FileNotFoundError as error:
        remedy = "Run the extract command that began it once more: what is there is kept."
        raise InputError(
            str(folder), got="an extract that is not finished", allowed="a finished one", remedy=remedy
        ) from error
    except (OSError, ValueError, KeyError, StopIteration, IndexError) as error:
        got, remedy = f"an index that cannot be read ({error})", "Delete it and extract again: the shards are kept."
        raise InputError(str(folder / INDEX), got=got, allowed="what extract wrote", remedy=remedy) from error
    return Shards(folder, layout, stored, np.arange(len(stored))), columns


def _numbers(labels: list[str]) -> list[Any]:
    """Read texts as numbers; what is none stays, to be refused by who asked for numbers."""
    try:
        return [float(label) for label in labels]
    except ValueError:
        return list(labels)


def _shard(folder: Path, k: int) -> Path:
    return folder / f"shard-{k:05d}.npy"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]}..."
