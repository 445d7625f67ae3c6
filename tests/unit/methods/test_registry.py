"""Methods and weightings are found in the files of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import warmpot.methods
from warmpot.methods import DEFAULT_METHOD, METHODS, WEIGHTINGS, Method, Weighting

FILES = Path(warmpot.methods.__file__).parent


def _derived(cls: type[Any]) -> set[type[Any]]:
    return {cls}.union(*map(_derived, cls.__subclasses__()))


def _named_in_package(kind: type[Any]) -> dict[str, type[Any]]:
    classes = {cls for cls in _derived(kind) if cls.__module__.startswith("warmpot.methods.")}
    return {cls.name: cls for cls in classes if "name" in vars(cls)}


def test_every_class_with_a_name_is_registered() -> None:
    assert _named_in_package(Method).items() <= METHODS.items()
    assert _named_in_package(Weighting).items() <= WEIGHTINGS.items()


def test_every_file_with_a_name_was_read() -> None:
    """Found in the text, so that a file which nothing imports is noticed, too."""
    named = {path.stem for path in FILES.glob("*.py") if '    name: ClassVar[str] = "' in path.read_text()}
    assert named == {cls.__module__.rpartition(".")[2] for cls in (*METHODS.values(), *WEIGHTINGS.values())
                     if cls.__module__.startswith("warmpot.methods.")}  # fmt: skip


def test_the_default_comes_first() -> None:
    assert next(iter(METHODS)) == DEFAULT_METHOD
