"""What ``warmpot methods NAME`` says of a method or a weighting: its docstring, laid out for a terminal."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table as Grid

    from warmpot.methods import Method, Weighting

__all__ = ["described", "plain"]

TITLE = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
ENTRY = re.compile(r"^(\S[^\n]*)\n?((?:[ ]+[^\n]*\n?|\n)*)", re.MULTILINE)
MARKUP = (
    (re.compile(r"[,;]?\s*(?:METHODS|SPEC)\s+sections?\s+\d+(?:\s+to\s+\d+)?"), ""),  # users do not have these
    (re.compile(r"\s*\(\)"), ""),
    (re.compile(r"^\.\. \[\d+\] ", re.MULTILINE), "\n"),
    (re.compile(r"\s*\[\d+\]_"), ""),
    (re.compile(r"``(.+?)``", re.DOTALL), r"\1"),
)
CODE = re.compile(r"`(.+?)`", re.DOTALL)


def described(kind: type[Method[Any]] | type[Weighting[Any]]) -> Iterator[Any]:
    """Return what to print, part by part: what it minimises, parameters, notes with deviations, references."""
    from rich.console import Group
    from rich.text import Text

    sections = _sections(kind)
    # Groups and tables are wrapped at the width of the terminal, texts by themselves are not.
    yield Group(Text.assemble((kind.name, "bold"), f"  {kind.summary}"), *_facts(kind))
    yield Group("", *_paragraphs(sections[""]))
    parameters = _parameters(kind)
    if parameters.row_count:
        yield Group(
            "", Text.assemble(("Parameters", "bold"), ("  with defaults; presets may have others", "dim")), parameters
        )
    for title in ("Notes", "References"):
        if title in sections:
            yield Group("", Text(title, style="bold"), *_paragraphs(sections[title]))


def _facts(kind: Any) -> Iterator[Any]:
    from rich.text import Text

    facts = {
        "reference": getattr(kind, "reference", ""),
        "tags": ", ".join(getattr(kind, "tags", ())),
        "weights": getattr(kind, "weights", ""),
        "engines": ", ".join(getattr(kind, "engines", ())),
        "real labels": "yes" if kind.regression else "no",
    }
    for name, value in facts.items():
        if value:
            yield Text.assemble((f"{name:<11}  ", "dim"), value)


def _sections(kind: type) -> dict[str, str]:
    """Split a docstring at its underlined titles; what comes before the first has the title ""."""
    _, *rest = ["", *TITLE.split(plain(inspect.getdoc(kind) or ""))]
    return {"": rest[0].strip(), **dict(zip(rest[1::2], rest[2::2], strict=True))}


def plain(text: str) -> str:
    """Return a docstring without markup and pointers to where users cannot look; classes by the names that they use."""
    from warmpot.methods import METHODS, WEIGHTINGS

    for pattern, instead in MARKUP:
        text = pattern.sub(instead, text)
    names = {kind.__name__: kind.name for kind in (*METHODS.values(), *WEIGHTINGS.values())}
    return CODE.sub(lambda found: names.get(found[1], found[1]), text)


def _paragraphs(text: str) -> Iterator[Any]:
    """Paragraphs and lists with dashes, joined to be wrapped anew."""
    from rich.text import Text

    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if not paragraph.startswith("- "):
            yield Text("\n" * (number > 0) + " ".join(paragraph.split()))
            continue
        items = _grid(" ")
        for item in re.split(r"^- ", paragraph, flags=re.MULTILINE)[1:]:
            items.add_row(Text("-"), Text(" ".join(item.split())))
        yield items


def _parameters(kind: Any) -> Grid:
    """Parameters with defaults and meaning; those of nested settings by their whole names."""
    from rich.text import Text

    grid = _grid("  ")
    for meaning, rows in groupby(_parameter_rows(kind, ""), key=itemgetter(2)):
        names, defaults, _ = zip(*rows, strict=True)
        grid.add_row(Text("\n".join(names)), Text("\n".join(defaults), style="cyan"), Text(meaning))
    return grid


def _parameter_rows(kind: Any, prefix: str) -> Iterator[tuple[str, str, str]]:
    meanings = _meanings(kind)
    for field in dataclasses.fields(kind):
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if dataclasses.is_dataclass(default):
            yield from _parameter_rows(type(default), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, _shown(default), meanings.get(field.name, "")


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]  # as in YAML
    return f"{value:g}" if isinstance(value, float) else str(value)


def _meanings(kind: Any) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say of each attribute."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        for head, body in ENTRY.findall(_sections(base).get("Attributes", "")):
            meaning = " ".join(body.split())
            said = dict.fromkeys(head.partition(" : ")[0].split(", "), meaning)
            found = said | found if meaning.startswith("As in ") else found | said
    return found


def _grid(gap: str) -> Grid:
    from rich.table import Table as Grid

    return Grid.grid(padding=(0, len(gap), 0, 0), pad_edge=False)
