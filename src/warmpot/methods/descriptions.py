"""Descriptions of methods and weightings for users, parsed from their docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from docstring_parser import Docstring
from docstring_parser.numpydoc import NumpydocParser, Section

from warmpot._tables import escape_markdown
from warmpot.methods.registry import METHODS, WEIGHTINGS

__all__ = ["Parameter", "citation_free", "class_names", "description", "markdown_notes", "paragraphs", "parameters",
           "plain_notes", "plain_text", "section"]  # fmt: skip

CITATION = re.compile(r"\s*\[\d+\]_")
REFERENCE_LABEL = re.compile(r"^\.\. \[\d+\] ", re.MULTILINE)
CODE = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)


class Parameter(NamedTuple):
    """A parameter by its full name, its default as YAML writes it, and its meaning."""

    name: str
    default: str
    meaning: str


def _parsed(kind: type) -> Docstring:
    parser = NumpydocParser()
    parser.add_section(Section("Class attributes", "class_attributes"))
    return parser.parse(inspect.getdoc(kind) or "")


def description(kind: type) -> str:
    """Return the part of a docstring before its first section."""
    return (_parsed(kind).description or "").strip()


def section(kind: type, name: str) -> str:
    """Return the section "notes" or "references" of a docstring, "" without one."""
    return "\n\n".join(meta.description or "" for meta in _parsed(kind).meta if meta.args == [name])


def parameters(kind: type, prefix: str = "") -> Iterator[Parameter]:
    """Yield the parameters of a method or weighting; those of nested settings as ``settings.name``."""
    meanings: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        for entry in _parsed(base).params:
            meaning = " ".join(plain_text(entry.description or "").split())
            documented = dict.fromkeys(entry.arg_name.split(", "), meaning)
            # "As in X" refers to the text of the base class, which says more.
            meanings = documented | meanings if meaning.startswith("As in ") else meanings | documented
    for field in dataclasses.fields(kind):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if dataclasses.is_dataclass(default):
            yield from parameters(type(default), f"{prefix}{field.name}.")
        else:
            yield Parameter(prefix + field.name, _as_yaml(default), meanings.get(field.name, ""))


def _as_yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def class_names() -> dict[str, str]:
    """Return the names that users type for methods and weightings, by the names of the classes."""
    return {kind.__name__: kind.name for kind in (*METHODS.values(), *WEIGHTINGS.values())}


def citation_free(text: str) -> str:
    """Remove citations, and turn each labelled reference into a paragraph."""
    return REFERENCE_LABEL.sub("\n", CITATION.sub("", text)).strip()


def plain_text(text: str) -> str:
    """Remove markup and citations; methods and weightings get the names that users type.

    Examples
    --------
    >>> plain_text("As in `ClassShare` [1]_, with ``hard``.")
    'As in class_share, with hard.'
    """
    names = class_names()
    return CODE.sub(lambda code: names.get(code[1] or code[2], code[1] or code[2]), citation_free(text))


def paragraphs(text: str) -> list[str | list[str]]:
    r"""Split a text at blank lines, with each paragraph on one line; a list with dashes becomes a list of items.

    Examples
    --------
    >>> paragraphs("One\nline.\n\n- first\n- second\n  item")
    ['One line.', ['first', 'second item']]
    """
    blocks: list[str | list[str]] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("- "):
            blocks.append([" ".join(item.split()) for item in re.split(r"^- ", block, flags=re.MULTILINE)[1:]])
        elif block:
            blocks.append(" ".join(block.split()))
    return blocks


def markdown_notes(kind: type) -> str:
    """Return the notes of a docstring as Markdown, "" without notes."""
    return "\n\n".join("\n".join(lines) for lines in _lines(section(kind, "notes"), _markdown_spans))


def plain_notes(kind: type) -> list[str]:
    """Return the paragraphs and list items of the notes without markup; items start with a dash."""
    return [line for lines in _lines(section(kind, "notes"), plain_text) for line in lines]


def _lines(text: str, convert: Callable[[str], str]) -> Iterator[list[str]]:
    for block in paragraphs(text):
        yield [convert(block)] if isinstance(block, str) else [f"- {convert(item)}" for item in block]


def _markdown_spans(text: str) -> str:
    """Escape a text except for its code."""
    names = class_names()
    # With two groups in the pattern, every third piece is text and the two after it are code or None.
    pieces = CODE.split(citation_free(text))
    escaped = ""
    for index in range(0, len(pieces), 3):
        words = re.split(r"(\s+)", pieces[index])
        escaped += "".join(escape_markdown(word) if word.strip() else word for word in words)
        code = next(filter(None, pieces[index + 1 : index + 3]), "")
        escaped += f"`{names.get(code, code)}`" if code else ""
    return escaped
