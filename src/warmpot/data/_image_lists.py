"""Lists of images in the format common in this field, lines of a path and a label; their labels become class codes."""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmpot._files import read_text
from warmpot._typing import IntArray
from warmpot.data.table import encode_labels
from warmpot.errors import InputError

__all__ = ["EXTENSIONS", "encode_list_labels", "normalize_name", "path_error", "read_class_names", "read_list"]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
HEADERS = ("path", "paths", "file", "filename", "file_name", "filepath", "image", "image_path", "img", "name")
"""A first line whose path is one of these is a header."""
IMAGE_LINE = re.compile(rf"(?i)(.*(?:{'|'.join(map(re.escape, EXTENSIONS))}))(?:\s*[,\t]\s*(.*)|\s+(.+))?$")
"""A path with the extension of an image, then its label: both may contain blanks."""
INTEGER = re.compile(r"[+-]?\d+")
MAX_DIGITS = 18  # what int64 holds

Line = tuple[int, str, str]  # number of a line, its path, and its label ("" without one)


def path_error(path: object, got: str, allowed: str, remedy: str) -> InputError:
    """Return an `InputError` about a path."""
    return InputError(str(path), got=got, allowed=allowed, remedy=remedy)


def normalize_name(name: str) -> str:
    """Return the NFC form of a name: file systems differ in how they store an accent."""
    return unicodedata.normalize("NFC", name)


def read_list(file: str | os.PathLike[str]) -> list[Line]:
    """Read the lines of a list, without blank lines and the header."""
    text = read_text(file, encoding="utf-8-sig")
    if Path(file).suffix.lower() == ".csv":
        reader = csv.reader(io.StringIO(text))
        try:
            lines = [(reader.line_num, list(map(str.strip, row))) for row in reader if any(map(str.strip, row))]
        except csv.Error as error:
            got, remedy = f"{error} in line {reader.line_num}", "Save it again as path,label."
            raise path_error(file, got, "a readable csv", remedy) from error
    else:
        rows = enumerate(map(str.strip, text.split("\n")), start=1)  # splitlines would also split at rarer characters
        lines = [(number, _split(row)) for number, row in rows if row]
    if lines and lines[0][1][0].lower() in HEADERS:
        lines = lines[1:]
    for number, cells in lines:
        labels = re.split(r"[\s,]+", cells[1]) if len(cells) == 2 else cells[1:]
        if len(cells) > 2 or (len(labels) > 1 and all(map(INTEGER.fullmatch, labels))):
            got = f"{len(labels)} entries after the path in line {number}"
            raise path_error(file, got, "one label per image", "Keep path and label only.")
        if not cells[0]:
            raise path_error(file, f"no path in line {number}", "`path label`", "Complete the line.")
    if not lines:
        raise path_error(file, "no lines", "a line `path label` per image", "Write the list again.")
    return [(number, cells[0], cells[1] if len(cells) > 1 else "") for number, cells in lines]


def _split(row: str) -> list[str]:
    """Split path and label: after the last extension of an image, else at the last tab, comma or blank."""
    if match := IMAGE_LINE.match(row):
        return [match[1], match[2] or match[3] or ""]
    separator = "\t" if "\t" in row else "," if "," in row else None
    return [cell.strip() for cell in row.rsplit(separator, 1)]


def encode_list_labels(
    what: str, lines: list[Line], items: Sequence[str], classes: Sequence[Any] | None
) -> tuple[IntArray, tuple[str, ...]]:
    """Turn the labels of a list into codes and class names."""
    texts = [normalize_name(label) for _, _, label in lines]
    first_label: dict[str, tuple[int, str]] = {}
    for (number, _, _), item, text in zip(lines, items, texts, strict=True):
        first = first_label.setdefault(item, (number, text))
        if first[1] != text:
            got = f"{item!r} as {first[1]!r} in line {first[0]} and as {text!r} in line {number}"
            raise path_error(what, got, "one label per image", "Keep the right line.")
    if not all(map(INTEGER.fullmatch, texts)):
        return encode_labels(f"labels of {what}", texts, len(texts), classes)
    if (digits := max(len(text.lstrip("+-")) for text in texts)) > MAX_DIGITS:
        got, allowed = f"a number of {digits} digits", f"numbers of up to {MAX_DIGITS} digits, or names"
        raise path_error(f"labels of {what}", got, allowed, "Check the list.")
    codes, names = encode_labels(f"labels of {what}", list(map(int, texts)), len(texts), classes)
    folders = [normalize_name(os.path.basename(os.path.dirname(item))) for item in items]
    if classes is None:
        pairs = sorted(set(zip(codes.tolist(), folders, strict=True)))
        one_to_one = len(pairs) == len(names) == len(set(folders)) and "" not in folders
        return codes, tuple(folder for _, folder in pairs) if one_to_one else names
    if set(folders) <= set(names):
        contradictions = (k for k, folder in enumerate(folders) if names[codes[k]] != folder)
        if (k := next(contradictions, None)) is not None:
            got = f"label {texts[k]} = {names[codes[k]]!r} for {items[k]!r} in line {lines[k][0]}"
            remedy = "The list was numbered in another order: pass its own classes, or leave classes out."
            raise path_error(what, got, f"the class of its folder, {folders[k]!r}", remedy)
    return codes, names


def read_class_names(classes: Sequence[Any] | str | os.PathLike[str] | None) -> Sequence[Any] | None:
    """Return class names; read them from a file, one per line, when a path is given."""
    if classes is None:
        return None
    if isinstance(classes, (str, os.PathLike)):
        classes = [name.strip() for name in read_text(classes, encoding="utf-8-sig").split("\n") if name.strip()]
    return [normalize_name(name) if isinstance(name, str) else name for name in classes]
