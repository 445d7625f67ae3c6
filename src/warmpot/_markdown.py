"""Texts as Markdown: what users named is shown as it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["printable", "safe", "table"]

SPECIAL = re.compile(r"([\\`*_\[\]|~$#@]|:(?=//))")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


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
