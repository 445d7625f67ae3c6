"""What docstrings say, as Markdown."""

from __future__ import annotations

import inspect
import re

from warmpot._markdown import printable, safe, table
from warmpot.methods import METHODS, WEIGHTINGS

__all__ = ["notes", "plain_notes", "printable", "safe", "table"]

NOTES = re.compile(r"^Notes\n-{3,}\n(.*?)(?=^\w[\w ]*\n-{3,}\n|\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)
PLACE = r"(?:METHODS|SPEC) section \d+(?: to \d+)?"
POINTER = re.compile(rf"[,;]?\s*\(?{PLACE}(?:, {PLACE})*\)?|\s*\[\d+\]_")  # users do not have these


def notes(kind: type) -> str:
    """Return the section Notes of a docstring; "" without one."""
    found = NOTES.search(inspect.getdoc(kind) or "")
    blocks = re.split(r"\n\s*\n", POINTER.sub("", found[1]).strip()) if found else []
    return "\n\n".join(_block(block) for block in blocks)


def plain_notes(kind: type) -> list[str]:
    """Return the same without any markup: paragraphs, and items of lists with a dash before them."""
    names = {kind.__name__: kind.name for kind in (*METHODS.values(), *WEIGHTINGS.values())}
    found = NOTES.search(inspect.getdoc(kind) or "")
    text = POINTER.sub("", found[1]).strip() if found else ""
    text = CODE.sub(lambda code: names.get(code[1] or code[2], code[1] or code[2]), text)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|^(?=- )", text, flags=re.MULTILINE) if part.strip()]


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
