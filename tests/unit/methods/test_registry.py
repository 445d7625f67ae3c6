"""Methods and weightings are found in the files of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import warmpot.methods
from warmpot.errors import InputError
from warmpot.methods import DEFAULT_METHOD, METHODS, WEIGHTINGS, Method, Weighting, get_method
from warmpot.methods.base import NOT_STATED
from warmpot.methods.warmpot import Warmpot
from warmpot.train import load_config

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


def test_only_methods_of_the_package_claim_something() -> None:
    class Own(Method[Any]):
        name = "own-of-a-test"

    class Derived(Warmpot):
        name = "derived-of-a-test"

    assert Own.status == Derived.status == NOT_STATED
    own = {name for name, cls in METHODS.items() if cls.__module__.startswith("warmpot.methods.")}
    assert not {name for name in own if METHODS[name].status == NOT_STATED}


def test_an_unknown_method_says_how_to_register_one() -> None:
    with pytest.raises(InputError, match="register_method") as caught:
        get_method("arpmm")
    assert "Did you mean 'arpm'?" in str(caught.value)
    assert "entry point" in str(caught.value)
    assert len(str(caught.value)) < 250


def test_an_unknown_preset_lists_a_few() -> None:
    with pytest.raises(InputError, match="Did you mean 'full'") as caught:
        load_config("ful")
    assert caught.value.allowed.startswith("full, ")
    assert len(str(caught.value)) < 250
