"""Shards: rows of numbers in many memory-mapped files of a folder, such as the features of a set of images.

A folder holds ``shards.json`` (the `ShardLayout`), a pair of ``shard-00000.npy`` and ``shard-00000.json`` (which rows
were kept, which files were not) for every run of `ShardLayout.per_shard` samples and, once all of these exist,
``index.csv`` with the names and labels of the rows. Every file is whole or absent, so writing can stop at any time and
be resumed later.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from warmpot._files import (
    FILENAME_ERRORS,
    atomic_write,
    check_file,
    is_unused,
    make_folder,
    read_csv,
    read_json,
    write_csv,
    write_text,
)
from warmpot._run_files import SHARDS
from warmpot._typing import IntArray
from warmpot.data.table import LazyRows, Table, check_targets, encode_labels
from warmpot.errors import InputError, MissingColumnError, MissingLabelsError

__all__ = ["DTYPES", "ShardLayout", "ShardWriter", "Shards", "is_shard_folder", "read_shards"]

DTYPES = ("float32", "float16")  # data types of the numbers on disk; both are float32 in memory
LAYOUT, INDEX = SHARDS, "index.csv"
FORMAT = 1
MAX_OPEN = 256  # files mapped at a time: each uses a file descriptor, of which a process usually has 1,024


@dataclass(frozen=True)
class ShardLayout:
    """What a folder of shards contains; two folders with equal layouts hold the same rows.

    Of `n` samples fewer rows may be kept. `row` is the shape of a row, `dtype` the type of its numbers on disk (one of
    `DTYPES`). `made_from` says what the rows were computed from and how, in values that JSON supports.
    """

    n: int
    row: tuple[int, ...]
    dtype: str
    per_shard: int
    classes: tuple[str, ...] = ()
    made_from: Mapping[str, Any] = field(default_factory=dict)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return -(-self.n // self.per_shard)

    def samples_of(self, k: int) -> range:
        """Return the samples of shard `k`."""
        return range(k * self.per_shard, min((k + 1) * self.per_shard, self.n))

    def fingerprint(self) -> str:
        """Return a short hash of everything that determines the rows."""
        return hashlib.sha256(replace(self, classes=()).to_json().encode()).hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        write_text(path, self.to_json() + "\n")

    @classmethod
    def read(cls, path: Path) -> ShardLayout:
        """Read what `write` wrote."""
        try:
            stored = read_json(path)
            if stored.pop("format") != FORMAT:
                raise ValueError("another format")
            row, classes = tuple(int(size) for size in stored.pop("row")), tuple(stored.pop("classes"))
            return cls(row=row, classes=classes, made_from=stored.pop("ask"), **stored)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            got, remedy = f"a layout that cannot be read ({error})", "Delete the folder and extract again."
            raise InputError(str(path), got=got, allowed="what extract wrote", remedy=remedy) from error

    def to_json(self) -> str:
        """Return the content of ``shards.json``; its key for `made_from` is "ask"."""
        fields = asdict(self)
        fields["ask"] = dict(fields.pop("made_from"))
        return json.dumps({"format": FORMAT, **fields}, indent=1, sort_keys=True)


class ShardWriter:
    """Writes a folder of shards, from one process or from several at the same time.

    The folder is new, empty, or begun with the same layout; then only the missing shards have to be written.
    """

    def __init__(self, folder: Path, layout: ShardLayout) -> None:
        self.folder, self.layout = folder, layout
        foreign = not is_unused(make_folder(folder))
        if is_shard_folder(folder):  # checked last: another process may have begun it in the meantime
            self._check_same(ShardLayout.read(folder / LAYOUT))
        elif foreign:
            got, remedy = "a folder with other files in it", "Name another folder."
            raise InputError(str(folder), got=got, allowed="a new folder", remedy=remedy)
        else:
            layout.write(folder / LAYOUT)

    def has(self, k: int) -> bool:
        """Whether shard `k` is complete."""
        try:
            return self._paths(k)[0].stat().st_size == int(self._note(k)["bytes"])
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _note(self, k: int) -> Any:
        """Return the notes on shard `k`: ``rows`` that were kept, ``bad`` ones with reasons."""
        return read_json(self._paths(k)[1])

    def write(self, k: int, x: NDArray[Any], rows: Sequence[int], bad: Mapping[int, str]) -> None:
        """Write shard `k`: the rows of the samples `rows`, in this order, and why others are `bad`."""
        values, note = self._paths(k)
        if x.shape != (len(rows), *self.layout.row):
            raise ValueError(f"{x.shape} is not {len(rows)} rows of {self.layout.row}")
        with atomic_write(values) as draft, open(draft, "xb") as stream:
            np.save(stream, np.ascontiguousarray(x, dtype=self.layout.dtype), allow_pickle=False)
            size = stream.tell()
        text = json.dumps({"rows": [int(row) for row in rows], "bytes": size, "bad": dict(bad)})
        write_text(note, text + "\n")  # after the numbers, because this file marks the shard as complete

    def bad(self) -> dict[int, str]:
        """Return the samples that were not kept, with reasons."""
        notes = map(self._note, range(self.layout.n_shards))
        return {int(row): why for note in notes for row, why in note["bad"].items()}

    def finish(self, table: Table) -> None:
        """Write the index: names and labels of the rows, from the table that they were computed from."""
        if ShardLayout.read(self.folder / LAYOUT).classes != table.classes:
            replace(self.layout, classes=table.classes).write(self.folder / LAYOUT)
        columns: dict[str, Sequence[Any]] = {"name": table.names} if table.names else {}
        if table.y is not None:
            columns["label"] = [table.classes[code] if table.classes else float(code) for code in table.y.tolist()]
        kept = (row for k in range(self.layout.n_shards) for row in self._note(k)["rows"])
        rows = ([row, *(column[row] for column in columns.values())] for row in kept)
        write_csv(self.folder / INDEX, ["row", *columns], rows)

    def _paths(self, k: int) -> tuple[Path, Path]:
        path = _shard_path(self.folder, k)
        return path, path.with_suffix(".json")

    def _check_same(self, existing: ShardLayout) -> None:
        # Compared as JSON, which has no tuples.
        old, new = (json.loads(replace(layout, classes=()).to_json()) for layout in (existing, self.layout))
        old, new = ({**fields.pop("ask"), **fields} for fields in (old, new))
        different = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
        if different:
            changes = ", ".join(f"{key} {_short(old.get(key))} (now {_short(new.get(key))})" for key in different[:3])
            remedy = "Name another folder, delete this one, or repeat the same command."
            raise InputError(str(self.folder), got=f"rows made with {changes}", allowed="the same", remedy=remedy)


class Shards(LazyRows):
    """The rows of a finished folder of shards, read on demand; `read_shards` opens them.

    Rows are float32 whatever the files hold. The object can be sent to other processes, which map the files again.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, folder: Path, layout: ShardLayout, stored: IntArray, rows: IntArray) -> None:
        self.folder, self.layout = folder, layout
        self._stored = stored  # the sample of every stored row, in order
        self._first = np.searchsorted(stored, np.arange(layout.n_shards + 1) * layout.per_shard)  # row of each shard
        self._rows = rows  # which stored rows this object consists of
        self._maps: OrderedDict[int, NDArray[Any]] = OrderedDict()

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of rows, then the shape of one row."""
        return (len(self._rows), *self.layout.row)

    @property
    def samples(self) -> IntArray:
        """The sample that each row belongs to; samples that could not be read have no row."""
        samples: IntArray = self._stored[self._rows]
        return samples

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        chosen = self._rows[rows]
        if chosen.ndim == 0:
            row: NDArray[Any] = self[[rows]][0]
            return row
        out = np.empty((len(chosen), *self.layout.row), dtype=self.dtype)
        order = np.argsort(chosen, kind="stable")  # reads every file once, from beginning to end
        ordered = chosen[order]
        shards = np.searchsorted(self._first, ordered, side="right") - 1
        starts = np.flatnonzero(np.diff(shards, prepend=-1))
        for start, stop in pairwise([*starts, len(ordered)]):
            k = int(shards[start])
            out[order[start:stop]] = self._map(k)[ordered[start:stop] - self._first[k]]
        return out

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r}, {' x '.join(map(str, self.shape))} {self.layout.dtype})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": OrderedDict()}  # pickling a map would copy its file

    def subset(self, rows: Any) -> Shards:
        """Return only these rows, without reading them."""
        return Shards(self.folder, self.layout, self._stored, np.atleast_1d(self._rows[rows]))

    def fingerprint(self) -> str:
        """Hash the layout and the samples that the rows belong to."""
        digest = hashlib.sha256(self.layout.fingerprint().encode())
        digest.update(np.ascontiguousarray(self.samples).data)
        return digest.hexdigest()[:16]

    def _map(self, k: int) -> NDArray[Any]:
        """Map shard `k`; the most recently used ones stay mapped."""
        if k not in self._maps:
            path, rows = _shard_path(self.folder, k), int(self._first[k + 1] - self._first[k])
            try:
                mapped = np.load(check_file(path), mmap_mode="r", allow_pickle=False)
                if mapped.shape != (rows, *self.layout.row) or mapped.dtype != self.layout.dtype:
                    raise ValueError(f"an array of shape {mapped.shape} and type {mapped.dtype}")
            except (OSError, ValueError, EOFError) as error:
                allowed = f"{rows} rows of shape {self.layout.row}"
                remedy = f"Delete it and {self.folder / INDEX}, and extract again."
                raise InputError(str(path), got=f"{error}", allowed=allowed, remedy=remedy) from error
            self._maps[k] = mapped
            if len(self._maps) > MAX_OPEN:
                self._maps.popitem(last=False)
        self._maps.move_to_end(k)
        return self._maps[k]


def is_shard_folder(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a folder of shards, finished or not."""
    try:
        return (Path(path) / LAYOUT).is_file()
    except (OSError, TypeError, ValueError):  # not a path: the reader that is tried next reports it
        return False


def read_shards(
    path: str | os.PathLike[str],
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    task: str = "classification",
    ids: str | None = None,
) -> Table:
    """Read a finished folder of shards as a `Table` with rows on demand; arguments as for `load_table`."""
    shards, columns = _open_folder(path := Path(path))
    if label not in (None, "", "label") or (label == "label" and "label" not in columns):
        got, remedy = f"columns {', '.join(columns)} in {INDEX}", "Leave `label=` out."
        raise MissingLabelsError(str(path), got=got, allowed=f"a column {label!r}", remedy=remedy)
    if ids not in (None, "name") or (ids == "name" and "name" not in columns):
        got, remedy = f"columns {', '.join(columns)} in {INDEX}", "Leave `ids=` out: names are read by themselves."
        raise MissingColumnError(str(path), got=got, allowed=f"a column {ids!r}", remedy=remedy)
    names = tuple(columns.get("name", ()))
    labels: Any = None if label == "" else columns.get("label")
    if labels is None:
        return Table(shards, None, (), str(path), (), names)
    what = f"labels of {path}"
    if task == "regression":
        with suppress(ValueError):  # `check_targets` refuses strings
            labels = list(map(float, labels))
        return Table(shards, check_targets(what, labels, len(shards)), (), str(path), (), names)
    given = classes if classes is not None else shards.layout.classes or None
    return Table(shards, *encode_labels(what, labels, len(shards), given), str(path), (), names)


def _open_folder(folder: Path) -> tuple[Shards, dict[str, list[str]]]:
    """Return the rows of a folder, and the columns of its index."""
    if not is_shard_folder(folder):
        remedy = "Make it: warmpot extract IMAGES --out FOLDER --backbone NAME"
        raise InputError(str(folder), got=f"no {LAYOUT}", allowed="a folder of shards", remedy=remedy)
    layout = ShardLayout.read(folder / LAYOUT)
    if not (folder / INDEX).exists():
        got, remedy = "an unfinished extract", "Run the same extract command again: what exists is kept."
        raise InputError(str(folder), got=got, allowed="a finished one", remedy=remedy)
    try:
        header, *rows = read_csv(folder / INDEX, errors=FILENAME_ERRORS)
        columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=True))
        stored = np.array(columns["row"], dtype=np.int64)
        if (np.diff(stored) <= 0).any() or not 0 <= stored[0] <= stored[-1] < layout.n:
            raise ValueError("rows out of order")
    except (ValueError, KeyError, IndexError) as error:
        got, remedy = f"an index that cannot be read ({error})", "Delete it and extract again: the shards are kept."
        raise InputError(str(folder / INDEX), got=got, allowed="what extract wrote", remedy=remedy) from error
    return Shards(folder, layout, stored, np.arange(len(stored))), columns


def _shard_path(folder: Path, k: int) -> Path:
    return folder / f"shard-{k:05d}.npy"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:36]}..."
