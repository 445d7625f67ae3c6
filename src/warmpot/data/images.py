"""Domains of images: folders with one folder per class, lists of paths and labels, torch datasets."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from warmpot._interop import is_torch
from warmpot._typing import IntArray
from warmpot.data._image_lists import EXTENSIONS, encode_list_labels, path_error, read_class_names, read_list
from warmpot.data.pixels import DEFAULT_VIEW, Pixels, ViewSettings, as_rgb, open_image
from warmpot.data.shards import is_shard_folder
from warmpot.data.table import Table, encode_labels
from warmpot.errors import listing

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["drop_samples", "image_folder", "image_list", "images_from_dataset", "is_images", "load_images"]

CHANNELS = (1, 3, 4)  # grey, RGB, and RGB with transparency, which is dropped
LISTS = (".txt", ".lst", ".list")  # suffixes of lists of images; a .csv is read as a list only by `load_images`

AnyPath: TypeAlias = "str | os.PathLike[str]"
ClassNames: TypeAlias = "Sequence[Any] | str | os.PathLike[str] | None"


@dataclass(frozen=True)
class _FileOpener:
    """Opens images by their paths relative to a folder."""

    root: str

    def path(self, item: str) -> str:
        return os.path.join(self.root, item)

    def open(self, item: str) -> Image:
        return open_image(self.path(item))

    def stamp(self, item: str) -> str:
        """Return name and size, which do not change when a data set is moved to another machine."""
        try:
            return f"{item}\0{os.stat(self.path(item)).st_size}"
        except (OSError, ValueError):
            return f"{item}\0missing"


def is_images(path: AnyPath) -> bool:
    """Whether a path is read as images: a folder that `warmpot extract` did not write, or a list of images."""
    path = Path(path)
    return not is_shard_folder(path) if path.is_dir() else path.suffix.lower() in LISTS


def load_images(
    path: AnyPath, *, root: AnyPath | None = None, classes: ClassNames = None, view: ViewSettings = DEFAULT_VIEW
) -> Table:
    """Find the images of a folder or of a list; they are decoded on demand.

    The `names` of the table are the paths below the folder, sorted within each class, or the paths of the list.

    Parameters
    ----------
    path : path
        A folder with one folder per class, or with images only (unlabelled). Links are followed; hidden entries (with
        a leading dot) and files with other extensions are ignored. Or a list (.txt, .lst, .list or .csv), in UTF-8,
        with a line ``path label`` per image: separated by blanks, a tab or a comma; the path may contain blanks. A list
        without any label is unlabelled. A ``.csv`` may use quotes, and a header such as ``path,label`` is skipped.
    root : path, optional
        Folder that the paths of a list are relative to; default: the folder of the list.
    classes : sequence of str or path, optional
        Names of the classes in their order, or a file with one name per line: whole numbers index into it, other labels
        must be among them. Default for a folder: its folders, sorted; a folder without images is a class without
        samples. Default for a list: a label that is not a number is its own name; a whole number is named after the
        folder of its images when numbers and folders correspond one to one (two lists may number the same classes
        differently), else by its digits.
    view : ViewSettings
        How an image becomes a square.
    """
    if Path(path).is_dir():
        if not is_images(path):
            raise path_error(path, "features that `warmpot extract` wrote", "a folder of images", "Load it as a table.")
        return image_folder(path, classes=classes, view=view)
    if Path(path).suffix.lower() not in (*LISTS, ".csv"):
        got = f"suffix {Path(path).suffix!r}" if Path(path).exists() else "no such folder or file"
        allowed = f"a folder of images, or a list ({', '.join(LISTS)}, .csv)"
        raise path_error(path, got, allowed, "Check spelling and folder.")
    return image_list(path, root=root, classes=classes, view=view)


def image_folder(root: AnyPath, *, classes: ClassNames = None, view: ViewSettings = DEFAULT_VIEW) -> Table:
    """Find the images ``root/<class>/**/image``, or ``root/image`` without labels; arguments as for `load_images`."""
    try:
        entries = _entries(root)
    except OSError as error:
        got = error.strerror or str(error)
        raise path_error(root, got, "a folder you may read", "Check spelling and permissions.") from error
    broken: list[str] = []
    folders = [entry.name for entry in entries if _is_folder(entry)]
    by_folder = {name: sorted(_images_below(os.fspath(root), name, broken)) for name in folders}
    loose = [entry.name for entry in entries if not _is_folder(entry) and _is_image(entry, entry.name, broken)]
    items = tuple(loose or (item for name in folders for item in by_folder[name]))
    if broken:
        got = f"{len(broken)} broken links: {listing(broken)}"
        raise path_error(root, got, "links to files", "Fix or remove them.")
    if loose and folders:
        got, remedy = f"images ({listing(loose)}) next to folders ({listing(folders)})", "Put every image into the "
        raise path_error(root, got, "one folder per class, or unlabelled images only", remedy + "folder of its class.")
    if not items:
        raise path_error(root, "no images", f"files {', '.join(EXTENSIONS)}", "Name the folder that holds the classes.")
    inner = {item.split("/")[1] if item.count("/") > 1 else "" for item in items}
    if len(folders) == 1 and len(inner) > 1 and "" not in inner:
        got = f"one folder {folders[0]!r}, which contains folders ({listing(sorted(inner))})"
        remedy = f"Name {os.path.join(root, folders[0])!r}; or write a list, if this is one class."
        raise path_error(root, got, "one folder per class", remedy)
    if loose:
        return _table(items, root, None, (), os.fspath(root), view)
    names = read_class_names(folders) or ()
    labels = [name for name, folder in zip(names, folders, strict=True) for _ in by_folder[folder]]
    given = names if classes is None else read_class_names(classes)
    return _table(items, root, *encode_labels(f"labels of {root}", labels, len(items), given), os.fspath(root), view)


def _entries(folder: AnyPath) -> list[os.DirEntry[str]]:
    """List the entries that are not hidden, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()  # a link to itself makes is_dir raise


def _is_image(entry: os.DirEntry[str], item: str, broken: list[str]) -> bool:
    """Whether a file is an image, by its extension; broken links are collected."""
    if entry.is_symlink() and not os.path.exists(entry.path):
        broken.append(item)
        return False
    return entry.name.lower().endswith(EXTENSIONS) and entry.is_file()


def _images_below(root: str, folder: str, broken: list[str], above: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the images of a folder and its subfolders, as paths below `root` with forward slashes."""
    path = os.path.join(root, folder)
    if (real := os.path.realpath(path)) in above:
        return  # a link to a folder that contains it
    try:
        entries = _entries(path)
    except OSError as error:
        raise path_error(path, error.strerror or str(error), "a folder you may read", "Check permissions.") from error
    for entry in entries:
        item = f"{folder}/{entry.name}"
        if _is_folder(entry):
            yield from _images_below(root, item, broken, (*above, real))
        elif _is_image(entry, item, broken):
            yield item


def image_list(
    file: AnyPath, *, root: AnyPath | None = None, classes: ClassNames = None, view: ViewSettings = DEFAULT_VIEW
) -> Table:
    """Read a list of images, a line ``path label`` per image; arguments as for `load_images`."""
    what = os.fspath(file)
    lines = read_list(file)
    opener = _FileOpener(os.fspath(root if root is not None else Path(file).parent))
    if root is not None and not os.path.isdir(root):
        raise path_error(root, "no folder", "the folder that the paths are relative to", "Check spelling and folder.")
    # The backslashes of a list from Windows are replaced, unless they are part of the name.
    items = tuple(
        path if "\\" not in path or os.path.exists(opener.path(path)) else path.replace("\\", "/")
        for _, path, _ in lines
    )
    if missing := [item for item in items if not os.path.isfile(opener.path(item))]:
        got = f"{len(missing)} of {len(items)} files missing below {opener.root!r}: {listing(missing)}"
        raise path_error(what, got, "files that exist", "Pass the folder that the paths are relative to as `root=`.")
    unlabelled = [number for number, _, label in lines if not label]
    if unlabelled and len(unlabelled) < len(lines):
        got = f"no label in line {unlabelled[0]} ({len(unlabelled)} such lines)"
        raise path_error(what, got, "a label in every line, or in none", "Complete the list.")
    if unlabelled:
        return _table(items, opener.root, None, (), what, view)
    codes, names = encode_list_labels(what, lines, items, read_class_names(classes))
    return _table(items, opener.root, codes, names, what, view)


def _table(
    items: tuple[str, ...], root: AnyPath, y: IntArray | None, classes: tuple[str, ...], name: str, view: ViewSettings
) -> Table:
    opener = _FileOpener(os.fspath(root))
    return Table(Pixels(items, opener.open, view, opener.stamp, opener.path), y, classes, name, names=items)


def drop_samples(table: Table, rows: Any) -> Table:
    """Drop samples from a table, such as those that `find_corrupt` returns; a class may lose all of its samples."""
    keep = np.ones(table.n, dtype=bool)
    keep[np.fromiter(rows, dtype=np.int64)] = False
    if not keep.any():
        raise path_error(table.name, "no remaining samples", "at least one", "Check what was dropped, and why.")
    x = table.x[keep] if isinstance(table.x, np.ndarray) else table.x.subset(keep)
    y = None if table.y is None else table.y[keep]
    return replace(table, x=x, y=y, names=tuple(compress(table.names, keep)))


@dataclass(frozen=True, eq=False)
class _ItemOpener:
    """Opens the images of a torch dataset by their index."""

    dataset: Any
    dataset_name: str

    def name(self, k: int) -> str:
        return f"item {k} of {self.dataset_name}"

    def open(self, k: int) -> Image:
        # A copy, because it is closed after use, and an image in memory is the caller's.
        return _as_pillow(_image_and_label(self.dataset[k])[0]).copy()

    def stamp(self, k: int) -> str:
        """Hash the pixels: a dataset offers no other way to notice a change."""
        try:
            with self.open(k) as image:
                pixels = np.asarray(as_rgb(image))
            return f"{pixels.shape} {hashlib.sha256(pixels.tobytes()).hexdigest()}"
        except Exception as error:  # corrupt: reported when its pixels are needed
            return type(error).__name__


def images_from_dataset(
    dataset: Any, name: str = "images", *, classes: ClassNames = None, view: ViewSettings = DEFAULT_VIEW
) -> Table:
    """Use the images of a torch-style dataset, which are loaded from it on demand.

    Labels come from the dataset's ``targets`` or ``samples`` when it has them, else from one pass over its items.

    Parameters
    ----------
    dataset : object with ``__len__`` and ``__getitem__``
        An item is an image or ``(image, label)``. An image is a Pillow image, an array of (height, width) or (height,
        width, channels), or a tensor of (height, width) or (channels, height, width), or in the other order if only
        that has 1, 3 or 4 channels; uint8, or floats in [0, 1], not normalised. The dataset should not
        augment: random views are drawn here.
    name : str
        Name of the table in messages.
    classes, view
        As for `load_images`; default of `classes`: the dataset's own ``classes`` when it has them.
    """
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")) or not len(dataset):
        got = "no items" if hasattr(dataset, "__len__") else type(dataset).__name__
        raise path_error(name, got, "a dataset with __len__ and __getitem__", "Pass a map-style dataset.")
    n = len(dataset)
    labels, own_classes, paths = _stated_labels(dataset)
    if labels is None or len(labels) != n:
        labels = [_label(dataset, k, name) for k in range(n)]
    opener = _ItemOpener(dataset, name)
    pixels = Pixels(range(n), opener.open, view, opener.stamp, opener.name)
    names = paths if len(paths) == n else ()
    if all(label is None for label in labels):
        return Table(pixels, None, (), name, names=names)
    given = own_classes if classes is None else read_class_names(classes)
    return Table(pixels, *encode_labels(f"labels of {name}", labels, n, given), name, names=names)


def _stated_labels(dataset: Any) -> tuple[Any, Any, tuple[str, ...]]:
    """Return labels, classes and paths that a dataset states in its attributes, also through torch's Subset."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):
        labels, classes, paths = _stated_labels(dataset.dataset)
        chosen = [int(k) for k in dataset.indices]
        labels = None if labels is None else [labels[k] for k in chosen]
        return labels, classes, tuple(paths[k] for k in chosen) if paths else ()
    samples = getattr(dataset, "samples", ())
    pairs = isinstance(samples, (list, tuple)) and all(isinstance(s, tuple) and len(s) == 2 for s in samples)
    samples = samples if pairs else ()
    paths = tuple(str(path) for path, _ in samples)
    labels = getattr(dataset, "targets", [label for _, label in samples] or None)
    if getattr(dataset, "target_transform", None) is not None:
        labels = None  # the items have other labels than the attributes
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    return labels, getattr(dataset, "classes", None), paths


def _label(dataset: Any, k: int, name: str) -> Any:
    try:
        label = _image_and_label(dataset[k])[1]
        return label.item() if hasattr(label, "item") else label
    except Exception as error:  # whatever the dataset raises
        remedy = "Repair the item, or give the dataset `targets` to read the labels from."
        got = f"{type(error).__name__}: {error}"
        raise path_error(f"item {k} of {name}", got, "an image and one label", remedy) from error


def _image_and_label(item: Any) -> tuple[Any, Any]:
    """Split an item into its image and its label, None without one."""
    if not isinstance(item, (tuple, list)):
        return item, None
    return item[0], item[1] if len(item) > 1 else None


def _as_pillow(image: Any) -> Image:
    """Turn an image of a dataset into a Pillow image."""
    from PIL import Image

    if isinstance(image, Image.Image):
        return image
    if tensor := is_torch(image):
        image = image.detach().cpu().numpy()
    if not isinstance(image, np.ndarray) or image.ndim not in (2, 3):
        raise TypeError(f"{type(image).__name__} of shape {np.shape(image)}, not an image")
    if image.ndim == 3:
        # Where both ends can be the channels, a tensor has them first and an array last.
        first, last = (image.shape[axis] in CHANNELS for axis in (0, 2))
        if not (first or last):
            raise TypeError(f"{image.shape[0 if tensor else 2]} channels, not 1, 3 or 4")
        image = image.transpose(1, 2, 0) if first and (tensor or not last) else image
    if image.dtype.kind == "f":
        if not (image.min() >= 0 and image.max() <= 1):  # also refuses NaN
            raise TypeError(f"numbers from {image.min():g} to {image.max():g}, not in [0, 1]: do not normalise")
        image = np.rint(image * 255).astype(np.uint8)
    if image.dtype != np.uint8:
        raise TypeError(f"pixels of type {image.dtype}, not uint8 or floats in [0, 1]")
    return Image.fromarray(np.ascontiguousarray(image[..., 0] if image.ndim == 3 and image.shape[2] == 1 else image))
