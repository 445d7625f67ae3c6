"""Lists of images, as this field ships them: lines of a path and a label, read and turned into codes and names."""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmpot._typing import IntArray
from warmpot.data._labels import encode
from warmpot.errors import InputError

__all__ = ["EXTENSIONS", "class_list", "code_labels", "one_form", "read_list", "refusal"]

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm")
HEADS = ("path", "paths", "file", "filename", "file_name", "filepath", "image", "image_path", "img", "name")
"""A first line whose path is one of these is a header."""
ENDED = re.compile(rf"(?i)(.*(?:{'|'.join(map(re.escape, EXTENSIONS))}))(?:\s*[,\t]\s*(.*)|\s+(.+))?$")
"""A path that ends as an image, then its label: both may hold blanks."""
WHOLE = re.compile(r"[+-]?\d+")

Line = tuple[int, str, str]
"""Number of a line, the path in it and its label, "" without one."""


def refusal(path: object, got: str, allowed: str, remedy: str) -> InputError:
    """Make the error about a path."""
    return InputError(str(path), got=got, allowed=allowed, remedy=remedy)


def one_form(name: str) -> str:
    """Write a name the one way Unicode prefers: file systems differ in how they store an accent."""
    return unicodedata.normalize("NFC", name)


def read_list(file: str | os.PathLike[str]) -> list[Line]:
    """Read the lines of a list; blank ones and a header are passed over."""
    text = _text(file)
    if Path(file).suffix.lower() == ".csv":
        split = _cells(file, text)
    else:
        rows = enumerate(map(str.strip, text.split("\n")), start=1)  # splitlines would part names at rarer marks
        split = [(number, _split(row)) for number, row in rows if row]
    if split and split[0][1][0].lower() in HEADS:
        split = split[1:]
    for number, cells in split:
        words = re.split(r"[\s,]+", cells[1]) if len(cells) == 2 else cells[1:]
        if len(cells) > 2 or (len(words) > 1 and all(map(WHOLE.fullmatch, words))):
            got = f"{len(words)} entries after the path in line {number}"
            raise refusal(file, got, "one label an image", "Keep path and label only.")
        if not cells[0]:
            raise refusal(file, f"no path in line {number}", "`path label`", "Complete the line.")
    if not split:
        raise refusal(file, "no lines", "a line `path label` an image", "Write the list again.")
    return [(number, cells[0], cells[1] if len(cells) > 1 else "") for number, cells in split]


def _text(file: str | os.PathLike[str]) -> str:
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise refusal(file, got, "a text file in UTF-8", "Check spelling, folder and encoding.") from error


def _cells(file: str | os.PathLike[str], text: str) -> list[tuple[int, list[str]]]:
    """Split a csv, with the numbers of its lines."""
    reader = csv.reader(io.StringIO(text))
    try:
        return [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        remedy = "Save it again as path,label."
        raise refusal(file, f"{error} in line {reader.line_num}", "a readable csv", remedy) from error


def _split(row: str) -> list[str]:
    """Split path and label: after the last extension of an image, else at the last tab, comma or blank."""
    if match := ENDED.match(row):
        return [match[1], match[2] or match[3] or ""]
    mark = "\t" if "\t" in row else "," if "," in row else None
    return [cell.strip() for cell in row.rsplit(mark, 1)]


def code_labels(
    what: str, lines: list[Line], items: Sequence[str], classes: Sequence[Any] | None
) -> tuple[IntArray, tuple[str, ...]]:
    """Turn the labels of a list into codes and names."""
    texts = [one_form(label) for _, _, label in lines]
    seen: dict[str, tuple[int, str]] = {}
    for (number, _, _), item, text in zip(lines, items, texts, strict=True):
        first = seen.setdefault(item, (number, text))
        if first[1] != text:
            got = f"{item!r} as {first[1]!r} in line {first[0]} and as {text!r} in line {number}"
            raise refusal(what, got, "one label an image", "Keep the right line.")
    if not all(map(WHOLE.fullmatch, texts)):
        return encode(f"labels of {what}", texts, len(texts), classes)
    codes, names = encode(f"labels of {what}", list(map(int, texts)), len(texts), classes)
    folders = [one_form(os.path.basename(os.path.dirname(item))) for item in items]
    if classes is None:
        pairs = sorted(set(zip(codes.tolist(), folders, strict=True)))
        one_to_one = len(pairs) == len(names) == len(set(folders)) and "" not in folders
        return codes, tuple(folder for _, folder in pairs) if one_to_one else names
    if set(folders) <= set(names):
        other = (k for k, folder in enumerate(folders) if names[codes[k]] != folder)
        if (k := next(other, None)) is not None:
            got = f"label {texts[k]} = {names[codes[k]]!r} for {items[k]!r} in line {lines[k][0]}"
            remedy = "The list was numbered in another order: pass its own classes, or leave classes out."
            raise refusal(what, got, f"the class of its folder, {folders[k]!r}", remedy)
    return codes, names


def class_list(classes: Sequence[Any] | str | os.PathLike[str] | None) -> Sequence[Any] | None:
    """Read the names of classes from a file, a line each, when a path is given."""
    if classes is None:
        return None
    if isinstance(classes, (str, os.PathLike)):
        classes = [name.strip() for name in _text(classes).split("\n") if name.strip()]
    return [one_form(name) if isinstance(name, str) else name for name in classes]
