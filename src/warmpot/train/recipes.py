"""Settings as files: the recipes of the package, YAML files, and how one overrides another."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from functools import cache
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from warmpot._settings import REGISTERING, merged, nearest, suggestion
from warmpot._yaml import parse_yaml, read_yaml
from warmpot.errors import InputError

__all__ = ["check_names", "layered", "preset_for", "preset_names", "presets_of", "read_preset", "read_settings"]

DEFAULT = "full"
OF_FEATURES = "frozen"
"""The loop on frozen features that all methods share."""
OF_IMAGES = "official"
"""The loop on images, as the authors' code runs it on Office-Home."""


RECIPES = resources.files("warmpot") / "recipes"


@cache
def _names() -> tuple[str, ...]:
    return tuple(sorted(entry.name[:-5] for entry in RECIPES.iterdir() if entry.name.endswith(".yaml")))


def preset_names() -> list[str]:
    """Names of the recipes inside the package."""
    return list(_names())


@cache
def _resolved(name: str) -> Mapping[str, Any]:
    """Read a recipe once: reading all of them, to find those of a method, takes a noticeable part of a second."""
    recipe: dict[str, Any] = parse_yaml((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
    base = _resolved(recipe.pop("base")) if "base" in recipe else {}
    return {**layered(base, recipe), "preset": name}


def read_preset(name: str) -> dict[str, Any]:
    """Read a recipe as a plain mapping, on top of the recipe that it names as its base."""
    if name not in _names():
        remedy = f"{suggestion(name, preset_names())} `warmpot methods --all` lists them."
        raise InputError("preset", got=repr(name), allowed=nearest(name, preset_names()), remedy=remedy)
    return dict(copy.deepcopy(_resolved(name)))


def check_names(method: str | None, preset: str | None) -> None:
    """Refuse names that are not known, with the nearest known one, without importing any method.

    Methods are known by the recipes of the package, or by an entry point. Where the methods are imported already, a
    script may have registered some: then nothing is refused here.
    """
    if preset is not None:
        read_preset(preset)
    if method is None or "warmpot.methods" in sys.modules:
        return
    known = list(dict.fromkeys(str(_resolved(name)["method"]) for name in _names()))
    known += [entry.name for entry in entry_points(group="warmpot.methods")]
    if method not in known:
        remedy = f"{suggestion(method, known)} {REGISTERING}"
        raise InputError("method", got=repr(method), allowed=nearest(method, known), remedy=remedy)


def presets_of(method: str) -> list[str]:
    """Names of the recipes that train a method.

    Examples
    --------
    >>> presets_of("ar")
    ['ar', 'ar-frozen', 'ar-imagenet', 'ar-office31']
    """
    return [name for name in _names() if _resolved(name)["method"] == method]


def preset_for(method: str, preset: str | None = None, *, images: bool = False) -> str:
    """Return the recipe for a method: the named one, else its own for features, that of the full engine first.

    With `images`, its own for a backbone that is trained, as in its paper. A named recipe must be the method's; a
    method without recipes, such as one of another package, can be trained with any, by default the shared loop.

    Examples
    --------
    >>> [preset_for(method) for method in ("warmpot", "arpm", "source-only", "mine")]
    ['full', 'arpm-frozen', 'source-only', 'frozen']
    >>> [preset_for(method, images=True) for method in ("warmpot", "arpm", "source-only")]
    ['official', 'arpm', 'source-only-official']
    """
    if preset is not None and read_preset(preset)["method"] == method:
        return preset
    own = presets_of(method)
    if preset is None and images:
        return next((name for name in (OF_IMAGES, f"{method}-{OF_IMAGES}", method) if name in own), OF_IMAGES)
    if preset is None:
        whole = [name for name in (DEFAULT, method) if name in own and read_preset(name)["engine"] == "full"]
        return next((name for name in (*whole, f"{method}-{OF_FEATURES}") if name in own), OF_FEATURES)
    if own:
        other = read_preset(preset)["method"]
        got, allowed = f"{preset!r}, which is for {other!r}, with the method {method!r}", ", ".join(own)
        raise InputError("preset", got=got, allowed=allowed, remedy="Leave one of the two out.")
    return preset


def layered(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Override settings by others; another method or another weighting starts from its own parameters.

    Examples
    --------
    >>> layered({"method": "warmpot", "params": {"alpha": 0.5}, "seed": 1}, {"method": "source-only"})
    {'method': 'source-only', 'seed': 1}
    """
    if base.get("method") != changes.get("method", base.get("method")):
        base = {key: value for key, value in base.items() if key not in ("params", "weights", "weight_params")}
    if base.get("weights") != changes.get("weights", base.get("weights")):
        base = {key: value for key, value in base.items() if key != "weight_params"}
    return merged(base, changes)


def read_settings(file: Path) -> dict[str, Any]:
    """Read a mapping from a YAML file."""
    settings = read_yaml(file)
    if not isinstance(settings, dict | None):
        remedy = "Write `name: value` lines."
        raise InputError(str(file), got=type(settings).__name__, allowed="a mapping", remedy=remedy)
    return settings or {}
