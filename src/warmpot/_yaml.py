"""YAML of settings, with limits on its size: the one loader of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from warmpot._files import MAX_DIGITS, check_file, read_text
from warmpot.errors import InputError

__all__ = ["parse_yaml", "read_yaml"]

MAX_CHARACTERS = 1_000_000
"""Characters of a file, also after its aliases are written out: grids have some thousands; a bomb has billions."""
MAX_DEPTH = 50
"""Levels of nested values: settings have five."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Makes plain values only, and stops at the limits before it makes any."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.sizes: dict[int, int] = {}  # characters of a node with aliases written out, by its id

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.depth += 1
        alias, problem = self.check_event(yaml.AliasEvent), f"more than {MAX_DEPTH} levels"
        if self.depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(None, None, problem, self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        if not alias:
            self.sizes[id(node)] = self._size(node)
        if self.sizes.get(id(node), MAX_CHARACTERS + 1) > MAX_CHARACTERS:  # without a size: it contains itself
            problem = f"more than {MAX_CHARACTERS} characters, with its aliases written out"
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return node

    def _size(self, node: Any) -> int:
        if isinstance(node, yaml.ScalarNode):
            return len(node.value) + 1
        parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
        return 1 + sum(self.sizes[id(part)] for part in parts)

    def construct_yaml_int(self, node: Any) -> int:
        if len(node.value) > MAX_DIGITS:
            problem = f"an integer of {len(node.value)} characters"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(super().construct_yaml_int(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def read_yaml(path: Path, allowed: str = "a YAML file") -> Any:
    """Read a YAML file; an `InputError` explains why it cannot be read."""
    if (size := check_file(path, allowed).stat().st_size) > MAX_CHARACTERS:
        got, limit = f"{size} bytes", f"{allowed} of at most {MAX_CHARACTERS} bytes"
        raise InputError(str(path), got=got, allowed=limit, remedy="Name a file of settings.")
    return parse_yaml(read_text(path, allowed), str(path), allowed)


def parse_yaml(text: str, what: str = "YAML", allowed: str = "YAML") -> Any:
    """Return the value of a YAML text; an `InputError` names `what` if it cannot be read."""
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except Exception as error:  # besides its own errors, PyYAML raises those of int, float and datetime
        got = " ".join(str(error).split()) or type(error).__name__
        raise InputError(what, got=got, allowed=allowed, remedy="Correct it.") from error
    finally:
        if loader is not None:
            loader.dispose()
