"""Texts as Markdown: what users named, and what docstrings say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from typing import Any

from warmpot.methods import METHODS, WEIGHTINGS

__all__ = ["notes", "printable", "safe", "table"]

SPECIAL = re.compile(r"([\\`*_\[\]|~$#@]|:(?=//))")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
NOTES = re.compile(r"^Notes\n-{3,}\n(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)
PLACE = r"(?:METHODS|SPEC) section \d+(?: to \d+)?"
POINTER = re.compile(rf"[,;]?\s*\(?{PLACE}(?:, {PLACE})*\)?|\s*\[\d+\]_")  # users do not have these


def printable(text: Any) -> str:
    """Put a blank for every line break and other letter that cannot be seen."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))


def safe(text: Any) -> str:
    r"""Write a user's text so that Markdown and HTML show it as it is, on one line.

    Examples
    --------
    >>> print(safe("<b>a|b</b>\n*c*"))
    &lt;b&gt;a\|b&lt;/b&gt; \*c\*
    """
    words = SPECIAL.sub(r"\\\1", " ".join(printable(text).split()))
    return "".join(ENTITIES.get(letter, letter) for letter in words) or "(empty)"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table; its cells are Markdown already."""
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, ["---"] * len(head), *rows))


def notes(kind: type) -> str:
    """Return the section Notes of a docstring; "" without one."""
    found = NOTES.search(inspect.getdoc(kind) or "")
    blocks = re.split(r"\n\s*\n", POINTER.sub("", found[1]).strip()) if found else []
    return "\n\n".join(_block(block) for block in blocks)


def _block(text: str) -> str:
    """Write a paragraph, or a list with dashes."""
    items = [_spans(item) for item in re.split(r"^- ", text, flags=re.MULTILINE) if item.strip()]
    return "\n".join(f"- {item}" for item in items) if text.startswith("- ") else " ".join(items)


def _spans(text: str) -> str:
    """Escape a text outside of its code; classes have the names that users know them by."""
    names = {kind.__name__: kind.name for kind in (*METHODS.values(), *WEIGHTINGS.values())}
    pieces, end = [], 0
    for code in CODE.finditer(text):
        words = " ".join((code[1] or code[2]).split())
        pieces += [_between(text[end : code.start()]), f"`{names.get(words, words)}`"]
        end = code.end()
    return "".join([*pieces, _between(text[end:])]).strip()


def _between(text: str) -> str:
    """Escape a text between others: a blank at either end stays."""
    if not text.strip():
        return " " if text else ""
    return " " * text[0].isspace() + safe(text) + " " * text[-1].isspace()
