"""The data sets of a grid: their entries in its file, and reading their tasks with the target labels apart."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from warmpot._checks import check_count
from warmpot._settings import from_mapping
from warmpot.data import Table, Task, Truth, as_table, digits_task, load_table, make_task
from warmpot.data.benchmarks import benchmark_names, benchmark_task, read_benchmark
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.train.images import ImageSettings

__all__ = ["DataSet", "GridData", "read_data_set", "read_names"]

KINDS = ("features", "images", "digits", "built_in", "source")
"""Settings that name the data: a data set has exactly one of them."""
ARROW = " -> "
BUILT_IN = f"fonts{ARROW}handwritten"
SIDE = 16
"""Width and height of a digit in pixels: the size of USPS, so that only MNIST is resized."""
MARGIN = 4
"""Width of the empty border around MNIST's digits; USPS has none."""


@dataclass(frozen=True)
class DataSet:
    """One data set of a grid and its tasks. Paths are relative to the folder given with ``--data``.

    Attributes
    ----------
    tasks : sequence of str
        ``SOURCE -> TARGET``, or "all" pairs of `domains` (for images: of the described data set).
    domains : sequence of str
        Domains of "all" tasks, for features and digits.
    features : str
        Files of features, with ``{domain}`` in the name (the domain's name without blanks).
    images : str
        A described data set (`warmpot.data.benchmark_names`), read from `root`.
    root : str
        Folder of the images; default: a folder with the name of the described data set if it exists, else the folder
        of the data.
    digits : str
        Files of grey images, with ``{domain}`` in the name; `samples` of each are drawn with the seed and resized to
        16 x 16 pixels.
    built_in : int
        Number of source samples of the built-in task, drawn with the seed.
    source, target : str
        Two files; the labels of the target are used for evaluation only.
    label : str or None
        Column of the labels in these files.
    ids : str or None
        Column of the ids in these files, which are not features.
    classes : sequence of str
        Classes that the target is restricted to, or the name of a described data set, for its shared classes. Empty:
        no restriction.
    samples : int
        Samples per domain of `digits`.
    setting : str
        How its features were made, if that differs from the grid's setting.
    """

    name: str
    tasks: Sequence[str] = ()
    domains: Sequence[str] = ()
    features: str = ""
    images: str = ""
    root: str = ""
    digits: str = ""
    built_in: int = 0
    source: str = ""
    target: str = ""
    label: str | None = None
    ids: str | None = None
    classes: Sequence[str] = ()
    samples: int = 3000
    setting: str = ""

    def __post_init__(self) -> None:
        kinds = [kind for kind in KINDS if getattr(self, kind)]
        if len(kinds) != 1 or bool(self.source) != bool(self.target):
            got, allowed = " and ".join(kinds) or "no data", f"one of {', '.join(KINDS)} with target"
            raise InputError(self.name, got=got, allowed=allowed, remedy="Give the files of its data.")
        for name in ("features", "digits"):
            if (value := getattr(self, name)) and not _is_pattern(value):
                got, allowed = repr(value), "a path with {domain} in it, and no other braces"
                remedy = "Write it as office_home/{domain}.npz; a brace of a name is {{ or }}"
                raise InputError(f"{self.name}.{name}", got=got, allowed=allowed, remedy=remedy)
        if self.images and self.classes:
            what, allowed = f"{self.name}.classes", f"those of {self.images}"
            raise InputError(what, got="some", allowed=allowed, remedy="Leave them out.")
        check_count("samples", self.samples)
        object.__setattr__(self, "tasks", tuple(self._read_tasks()))
        object.__setattr__(self, "domains", ())  # only needed to list the tasks
        classes = tuple(map(str, self.classes))
        if len(classes) == 1 and classes[0] in benchmark_names():
            classes = read_benchmark(classes[0]).shared
        object.__setattr__(self, "classes", classes)

    def _read_tasks(self) -> Iterator[str]:
        if self.built_in or self.source:
            yield BUILT_IN if self.built_in else f"{Path(self.source).stem}{ARROW}{Path(self.target).stem}"
            return
        if list(self.tasks) == ["all"]:
            yield from self._all_tasks()
            return
        what, allowed = f"{self.name}.tasks", "SOURCE -> TARGET"
        if not self.tasks:
            raise InputError(what, got="none", allowed=allowed, remedy="List some, or write `tasks: all`.")
        for task in self.tasks:
            ends = [end.strip() for end in str(task).split("->")]
            if len(ends) != 2 or not all(ends) or ends[0] == ends[1]:
                raise InputError(what, got=repr(task), allowed=allowed, remedy="Write it as Art -> Product")
            if self.images:
                ends = [read_benchmark(self.images).domain(end).name for end in ends]
            yield ARROW.join(ends)

    def _all_tasks(self) -> Iterator[str]:
        domains: list[tuple[str, str | None]] = [(str(name), None) for name in self.domains]
        if self.images:
            domains = [(d.name, d.role) for d in read_benchmark(self.images).domains if d.needed]
        if len(domains) < 2:
            remedy = "List them: domains: [Art, Product]"
            raise InputError(f"{self.name}.domains", got=len(domains), allowed="two or more", remedy=remedy)
        for (source, source_role), (target, target_role) in itertools.permutations(domains, 2):
            if source_role != "target" and target_role != "source":
                yield f"{source}{ARROW}{target}"

    @property
    def drawn(self) -> bool:
        """Whether its samples depend on the seed."""
        return bool(self.digits or self.built_in)

    def identity(self) -> dict[str, Any]:
        """Return what identifies its data; of files only the names, since folders differ between machines."""
        files = [Path(getattr(self, name)).name for name in ("features", "digits", "source", "target")]
        identity = {"name": self.name, "files": files, "images": self.images, "built_in": self.built_in}
        identity |= {"ids": self.ids} if self.ids else {}  # absent from the stores of older versions
        return {**identity, "label": self.label, "classes": sorted(self.classes), "samples": self.samples}


def _is_pattern(text: str) -> bool:
    """Whether {domain} is the only replacement field of a path."""
    try:
        fields = [part[1:] for part in Formatter().parse(text) if part[1] is not None]
    except ValueError:  # an unmatched brace
        return False
    return bool(fields) and set(fields) == {("domain", "", None)}


def read_data_set(entry: Any, where: str) -> DataSet:
    """Make a data set from an entry of the file."""
    if isinstance(entry, Mapping):
        lists = [name for name in ("tasks", "domains", "classes") if name in entry]
        entry = {**entry, **{name: read_names(entry[name], f"{where}.{name}") for name in lists}}
    return from_mapping(DataSet, entry, where)


def read_names(value: Any, where: str) -> list[str]:
    """Read a list of names; a single name is a list of one."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, (str, int)) for name in names):
        raise InputError(where, got=repr(value), allowed="a list of names", remedy="Write it as [one, another].")
    return [str(name) for name in names]


class GridData:
    """Reads tasks whose paths start from one folder; keeps the last task, and digests of unchanged files."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._last: dict[Any, tuple[Task, Truth]] = {}  # at most one: consecutive cells often share their task
        self._digests: dict[tuple[Path, int, int], str] = {}

    def load(self, data: DataSet, task: str, seed: int, images: ImageSettings | None = None) -> tuple[Task, Truth]:
        """Read a task and its target labels; `seed` is for drawn samples, `images` how images become features."""
        written = [path.stat().st_mtime_ns for path in self.paths(data, task) if path.is_file()]
        key = data, task, seed if data.drawn else None, repr(images), tuple(written)
        if key not in self._last:
            self._last.clear()  # before reading: two tasks of the size of ImageNet do not fit into memory
            adaptation, truth = make_task(*self._tables(data, task, seed, images))
            if truth is None or adaptation.for_regression:
                got = "no labels" if truth is None else "continuous targets"
                remedy = "Add class labels: a grid needs them for evaluation."
                raise InputError(f"target of {data.name}", got=got, allowed="class labels", remedy=remedy)
            self._last[key] = adaptation, truth
        return self._last[key]

    def paths(self, data: DataSet, task: str) -> list[Path]:
        """List the files and folders that a task is read from."""
        if data.built_in:
            return []
        if data.images:
            root = self.folder / (data.root or data.images)
            return [root if data.root or root.is_dir() else self.folder]
        if data.source:
            return [self.folder / data.source, self.folder / data.target]
        pattern = data.features or data.digits
        return [self.folder / pattern.format(domain=domain.replace(" ", "")) for domain in task.split(ARROW)]

    def content(self, data: DataSet, task: str) -> str:
        """Return 16 hexadecimal digits that identify the content of a task's files.

        File names do not identify data: another folder, or features extracted again, may hold other numbers. The result
        is empty for a task without files, with missing files, or with a folder of images, which is too large to read.
        """
        files = self.paths(data, task)
        if not files or not all(file.is_file() for file in files):
            return ""
        try:
            digests = "".join(map(self._digest, files))
        except OSError:  # unreadable: the training reports it
            return ""
        return hashlib.sha256(digests.encode()).hexdigest()[:16]

    def _digest(self, file: Path) -> str:
        stat = file.stat()
        key = file.resolve(), stat.st_size, stat.st_mtime_ns
        if key not in self._digests:
            digest = hashlib.sha256()
            with open(file, "rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
            self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _tables(self, data: DataSet, task: str, seed: int, images: ImageSettings | None) -> tuple[Table, Table]:
        if data.built_in:
            return digits_task(n_source=data.built_in, seed=seed)
        if data.images:
            return self._read_images(data, task, images)
        if data.digits:
            return self._draw_digits(data, task, seed)
        label, ids = (data.label, data.ids) if data.source else (None, None)
        source, target = (load_table(file, label=label, ids=ids) for file in self.paths(data, task))
        return source, _restrict_classes(target, data)

    def _draw_digits(self, data: DataSet, task: str, seed: int) -> tuple[Table, Table]:
        """Draw digits of both domains; in the target, only those of the shared classes."""
        rng, tables = np.random.default_rng(seed), []
        for side, (domain, file) in enumerate(zip(task.split(ARROW), self.paths(data, task), strict=True)):
            try:
                with np.load(file) as arrays:
                    x, y = arrays["X"], arrays["y"]
            except (OSError, ValueError, KeyError) as error:
                got = getattr(error, "strerror", None) or str(error)
                remedy = "Give the folder of the data with --data."
                raise InputError(str(file), got=got, allowed="a .npz with X and y", remedy=remedy) from error
            shared = np.isin(y.astype(str), data.classes) if side and data.classes else np.ones(len(y), dtype=bool)
            rows = rng.permutation(np.flatnonzero(shared))[: data.samples]
            tables.append(as_table(_resize_digits(x[rows]), y[rows], name=domain))
        return tables[0], tables[1]

    def _read_images(self, data: DataSet, task: str, images: ImageSettings | None) -> tuple[Table, Table]:
        from warmpot.train.images import ImageSettings, prepare

        settings = images or ImageSettings()
        (root,) = self.paths(data, task)
        tables = benchmark_task(data.images, root, *task.split(ARROW), view=settings.view)
        source, target, *_ = prepare(*tables, settings=settings, corrupt="skip", progress_bar=False)
        return source, target


def _restrict_classes(target: Table, data: DataSet) -> Table:
    """Keep the classes that the target of a partial task has."""
    if not data.classes or target.y is None:
        return target
    if missing := sorted(set(data.classes) - set(target.classes)):
        remedy = "Correct the classes of the data set."
        raise InputError(f"classes of {data.name}", got=missing[0], allowed=f"those of {target.name}", remedy=remedy)
    keep = np.isin(np.array(target.classes)[target.y.astype(np.int64)], data.classes)
    return as_table(np.asarray(target.x)[keep], target.y[keep], classes=target.classes, name=target.name)


def _resize_digits(images: NDArray[Any]) -> NDArray[Any]:
    """Bring digits to 16 x 16 pixels in [0, 1]; MNIST's border is cut off."""
    from PIL import Image

    if images.shape[1] != SIDE:
        inner = slice(MARGIN, images.shape[1] - MARGIN)
        size = SIDE, SIDE
        small = [Image.fromarray(image[inner, inner]).resize(size, Image.Resampling.BILINEAR) for image in images]
        images = np.stack([np.asarray(image) for image in small])
    return images.reshape(len(images), -1).astype(np.float32) / 255.0
