"""Domains of images: folders with a folder a class, lists of paths and labels, datasets of torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warmpot._interop import is_torch
from warmpot._typing import IntArray
from warmpot.data._labels import encode
from warmpot.data._lists import EXTENSIONS, class_list, code_labels, one_form, read_list, refusal
from warmpot.data.pixels import DEFAULT_VIEW, Pixels, ViewSettings, as_rgb, open_image
from warmpot.data.table import Table
from warmpot.errors import listing

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["EXTENSIONS", "image_folder", "image_list", "images_from_dataset", "is_images", "load_images", "without"]

LISTS = (".txt", ".lst", ".list")
"""Lists of images; a .csv is one too when it is asked for as images."""
SHARDS = "shards.json"
"""A folder with this file was written by `warmpot extract`."""


@dataclass(frozen=True)
class _Files:
    """Opens images by their paths below a folder."""

    root: str

    def path(self, item: str) -> str:
        return os.path.join(self.root, item)

    def open(self, item: str) -> Image:
        return open_image(self.path(item))

    def stamp(self, item: str) -> str:
        """Name and size: they stay when a data set moves to another machine."""
        try:
            return f"{item}\0{os.stat(self.path(item)).st_size}"
        except (OSError, ValueError):
            return f"{item}\0missing"


def is_images(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is read as images: a folder, unless `warmpot extract` wrote it, or a list of images."""
    path = Path(path)
    return not (path / SHARDS).exists() if path.is_dir() else path.suffix.lower() in LISTS


def load_images(
    path: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    classes: Sequence[Any] | str | os.PathLike[str] | None = None,
    view: ViewSettings = DEFAULT_VIEW,
) -> Table:
    """Read a folder by `image_folder`, a list (.txt, .lst, .list or .csv) by `image_list`; a folder needs no `root`."""
    if Path(path).is_dir():
        if not is_images(path):
            raise refusal(path, "features that `warmpot extract` wrote", "a folder of images", "Load it as a table.")
        return image_folder(path, classes=classes, view=view)
    if Path(path).suffix.lower() not in (*LISTS, ".csv"):
        got = f"suffix {Path(path).suffix!r}" if Path(path).exists() else "no such folder or file"
        allowed = f"a folder of images, or a list ({', '.join(LISTS)}, .csv)"
        raise refusal(path, got, allowed, "Check spelling and folder.")
    return image_list(path, root=root, classes=classes, view=view)


def image_folder(
    root: str | os.PathLike[str],
    *,
    classes: Sequence[Any] | str | os.PathLike[str] | None = None,
    view: ViewSettings = DEFAULT_VIEW,
) -> Table:
    """Find the images of a folder: ``root/<class>/**/image``, or ``root/image`` without labels.

    Parameters
    ----------
    root : path
        A folder of one folder a class, or of images only. Links are followed; what is hidden (a leading dot) and files
        of other extensions are passed over.
    classes : sequence of str or path, optional
        Names of the classes in their order, or a file with a name a line. By default the folders, sorted; one without
        images is a class without samples.
    view : ViewSettings
        How an image becomes a square.

    Returns
    -------
    Table
        Its `names` are the paths below `root`, sorted within each class.
    """
    try:
        entries = _entries(root)
    except OSError as error:
        got = error.strerror or str(error)
        raise refusal(root, got, "a folder you may read", "Check spelling and permissions.") from error
    broken: list[str] = []
    folders = [entry.name for entry in entries if _is_folder(entry)]
    found = {name: sorted(_below(os.fspath(root), name, broken)) for name in folders}
    loose = [entry.name for entry in entries if not _is_folder(entry) and _is_image(entry, entry.name, broken)]
    if broken:
        raise refusal(root, f"{len(broken)} broken links: {listing(broken)}", "links to files", "Mend or remove them.")
    if loose and folders:
        got = f"images ({listing(loose)}) beside folders ({listing(folders)})"
        remedy = "Put every image into the folder of its class."
        raise refusal(root, got, "a folder a class, or images without labels only", remedy)
    items = tuple(loose or (item for name in folders for item in found[name]))
    if not items:
        raise refusal(root, "no images", f"files {', '.join(EXTENSIONS)}", "Name the folder that holds the classes.")
    inner = {item.split("/")[1] if item.count("/") > 1 else "" for item in items}
    if len(folders) == 1 and len(inner) > 1 and "" not in inner:
        got = f"one folder {folders[0]!r}, of folders ({listing(sorted(inner))})"
        remedy = f"Name {os.path.join(root, folders[0])!r}; or write a list, if this is one class."
        raise refusal(root, got, "a folder a class", remedy)
    if loose:
        return _table(items, root, None, (), os.fspath(root), view)
    names = [one_form(name) for name in folders]
    labels = [name for name, folder in zip(names, folders, strict=True) for _ in found[folder]]
    codes, known = encode(f"labels of {root}", labels, len(items), names if classes is None else class_list(classes))
    return _table(items, root, codes, known, os.fspath(root), view)


def _entries(folder: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """List what is not hidden, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # a link to itself makes is_dir raise


def _is_image(entry: os.DirEntry[str], item: str, broken: list[str]) -> bool:
    """Tell whether a file is an image by its extension; note a broken link."""
    if entry.is_symlink() and not os.path.exists(entry.path):
        broken.append(item)
        return False
    return entry.name.lower().endswith(EXTENSIONS) and entry.is_file()


def _below(root: str, folder: str, broken: list[str], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the images of a folder and of those in it, as paths below `root` with forward slashes."""
    place = os.path.join(root, folder)
    if (real := os.path.realpath(place)) in above:
        return  # a link to a folder that holds it
    try:
        entries = _entries(place)
    except OSError as error:
        raise refusal(place, error.strerror or str(error), "a folder you may read", "Check permissions.") from error
    for entry in entries:
        item = f"{folder}/{entry.name}"
        if _is_folder(entry):
            yield from _below(root, item, broken, (*above, real))
        elif _is_image(entry, item, broken):
            yield item


def image_list(
    file: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    classes: Sequence[Any] | str | os.PathLike[str] | None = None,
    view: ViewSettings = DEFAULT_VIEW,
) -> Table:
    """Read a list of images, as this field ships them: a line ``path label`` an image.

    Parameters
    ----------
    file : path
        Text in UTF-8. Blanks, a tab or a comma part path and label; the path may hold blanks. A file without any label
        is unlabelled. A ``.csv`` may quote, and a first line such as ``path,label`` is passed over.
    root : path, optional
        Folder that the paths are relative to; by default the folder of the list.
    classes : sequence of str or path, optional
        Names of the classes, or a file with a name a line. Whole numbers index into it, texts must be among them.
        Without it a text is its own name. A whole number is named by the folder that holds its images when numbers and
        folders correspond one to one, since two lists may number the same classes differently; else by its digits.
    view : ViewSettings
        How an image becomes a square.

    Returns
    -------
    Table
        Its `names` are the paths as they are listed.
    """
    what = os.fspath(file)
    lines = read_list(file)
    place = _Files(os.fspath(root if root is not None else Path(file).parent))
    if root is not None and not os.path.isdir(root):
        raise refusal(root, "no folder", "the folder that the paths are relative to", "Check spelling and folder.")
    items = tuple(_slashed(path, place) for _, path, _ in lines)
    if missing := [item for item in items if not os.path.isfile(place.path(item))]:
        got = f"{len(missing)} of {len(items)} files missing below {place.root!r}: {listing(missing)}"
        raise refusal(what, got, "files that exist", "Pass the folder that the paths are relative to as `root=`.")
    unlabelled = [number for number, _, label in lines if not label]
    if unlabelled and len(unlabelled) < len(lines):
        got = f"no label in line {unlabelled[0]} ({len(unlabelled)} such lines)"
        raise refusal(what, got, "a label in every line, or in none", "Complete the list.")
    if unlabelled:
        return _table(items, place.root, None, (), what, view)
    codes, names = code_labels(what, lines, items, class_list(classes))
    return _table(items, place.root, codes, names, what, view)


def _slashed(path: str, place: _Files) -> str:
    """Read the backslashes of a list from Windows, where they are not part of a name."""
    return path if "\\" not in path or os.path.exists(place.path(path)) else path.replace("\\", "/")


def _table(
    items: tuple[str, ...],
    root: str | os.PathLike[str],
    codes: IntArray | None,
    classes: tuple[str, ...],
    name: str,
    view: ViewSettings,
) -> Table:
    files = _Files(os.fspath(root))
    return Table(Pixels(items, files.open, view, files.stamp, files.path), codes, classes, name, names=items)


def without(table: Table, rows: Any) -> Table:
    """Drop samples from a table, such as those `find_corrupt` found; a class may lose all of its samples.

    Parameters
    ----------
    table : Table
        Of images, or of features.
    rows : iterable of int
        Which to drop.
    """
    kept = np.ones(table.n, dtype=bool)
    kept[np.fromiter(rows, dtype=np.int64)] = False
    if not kept.any():
        raise refusal(table.name, "no sample that is left", "at least one", "Look at what was dropped, and why.")
    x = table.x[kept] if isinstance(table.x, np.ndarray) else table.x.subset(kept)
    y = None if table.y is None else table.y[kept]
    names = tuple(name for name, keep in zip(table.names, kept, strict=True) if keep) if table.names else ()
    return replace(table, x=x, y=y, names=names)


@dataclass(frozen=True, eq=False)
class _Items:
    """Opens the items of a torch dataset by their numbers."""

    dataset: Any
    called: str

    def name(self, k: int) -> str:
        return f"item {k} of {self.called}"

    def open(self, k: int) -> Image:
        return _picture(_parts(self.dataset[k])[0])

    def stamp(self, k: int) -> str:
        """Hash the pixels: a dataset says no other way whether it changed."""
        try:
            with self.open(k) as image:
                pixels = np.asarray(as_rgb(image))
            return f"{pixels.shape} {hashlib.sha256(pixels.tobytes()).hexdigest()}"
        except Exception as error:  # corrupt: named when its pixels are asked for
            return type(error).__name__


def images_from_dataset(
    dataset: Any,
    name: str = "images",
    *,
    classes: Sequence[Any] | str | os.PathLike[str] | None = None,
    view: ViewSettings = DEFAULT_VIEW,
) -> Table:
    """Take the images of a torch-style dataset, which are loaded from it when they are asked for.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        An item is an image or ``(image, label)``. An image is a Pillow image, an array of (height, width) or (height,
        width, channels), or a tensor of (height, width) or (channels, height, width); uint8, or floats in [0, 1], not
        normalised. The dataset should draw nothing at random: views are drawn here.
    name : str
        What messages call it.
    classes : sequence of str or path, optional
        Names of the classes; the dataset's own ``classes`` when it has them.
    view : ViewSettings
        How an image becomes a square.

    Returns
    -------
    Table
        Labels come from the dataset's ``targets`` or ``samples`` when it has them, else from one pass over its items.
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or not len(dataset):
        got = "no items" if hasattr(dataset, "__len__") else type(dataset).__name__
        raise refusal(name, got, "a dataset with __len__ and __getitem__", "Pass a map-style dataset.")
    n = len(dataset)
    labels, own, paths = _facts(dataset)
    if labels is None or len(labels) != n:
        labels = _labels(dataset, name)
    items = _Items(dataset, name)
    pixels = Pixels(range(n), items.open, view, items.stamp, items.name)
    names = paths if len(paths) == n else ()
    if labels is None:
        return Table(pixels, None, (), name, names=names)
    codes, known = encode(f"labels of {name}", labels, n, class_list(classes) if classes is not None else own)
    return Table(pixels, codes, known, name, names=names)


def _facts(dataset: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Find labels, classes and paths that a dataset states, through torch's Subset as well."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        labels, classes, paths = _facts(dataset.dataset)
        chosen = [int(k) for k in dataset.indices]
        labels = None if labels is None else [labels[k] for k in chosen]
        return labels, classes, tuple(paths[k] for k in chosen) if paths else ()
    samples = getattr(dataset, "samples", None)
    listed = isinstance(samples, (list, tuple)) and all(isinstance(one, tuple) and len(one) == 2 for one in samples)
    paths = tuple(str(path) for path, _ in samples) if listed and samples else ()
    labels = getattr(dataset, "targets", [label for _, label in samples] if listed and samples else None)
    if getattr(dataset, "target_transform", None) is not None:
        labels = None  # what it states is not what it hands out
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    return labels, getattr(dataset, "classes", None), paths


def _labels(dataset: Any, name: str) -> list[Any] | None:
    """Collect the labels of all items; None when they have none."""
    labels = [_label(dataset, k, name) for k in range(len(dataset))]
    return None if all(label is None for label in labels) else labels


def _label(dataset: Any, k: int, name: str) -> Any:
    try:
        label = _parts(dataset[k])[1]
        return label.item() if hasattr(label, "item") else label
    except Exception as error:  # the dataset's own
        remedy = "Repair the item, or give the dataset `targets` to read the labels from."
        got = f"{type(error).__name__}: {error}"
        raise refusal(f"item {k} of {name}", got, "an image and one label", remedy) from error


def _parts(item: Any) -> tuple[Any, Any]:
    """Split an item into its image and its label, None without one."""
    if not isinstance(item, (tuple, list)):
        return item, None
    return item[0], item[1] if len(item) > 1 else None


def _picture(image: Any) -> Image:
    """Make a Pillow image of what a dataset hands out."""
    from PIL import Image

    if isinstance(image, Image.Image):
        return image
    if tensor := is_torch(image):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
        raise TypeError(f"{type(image).__name__} of shape {np.shape(image)}, not a picture")
    if tensor and image.ndim == 3:
        image = image.transpose(1, 2, 0)
    if image.ndim == 3 and image.shape[2] not in (1, 3, 4):
        raise TypeError(f"{image.shape[2]} channels, not 1, 3 or 4")
    if image.dtype.kind == "f":
        if not (image.min() >= 0 and image.max() <= 1):  # NaN too
            raise TypeError(f"numbers from {image.min():g} to {image.max():g}, not in [0, 1]: do not normalise")
        image = np.rint(image * 255).astype(np.uint8)
    if image.dtype != np.uint8:
        raise TypeError(f"pixels of type {image.dtype}, not uint8 or floats in [0, 1]")
    return Image.fromarray(np.ascontiguousarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image))
