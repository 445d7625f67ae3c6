"""``warmpot methods``: what can be trained, and from which recipes."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from itertools import takewhile
from typing import Annotated

import typer

from warmpot.cli._shared import show

__all__ = ["methods"]

NEEDED = {"held": "a held part of the source", "transport": "a plan", "head": "a linear head"}
"""What a validator needs, in words."""


def methods(
    preset: Annotated[str | None, typer.Argument(metavar="PRESET", help="Show all settings of this one.")] = None,
) -> None:
    """List methods, presets and validators, or show a PRESET with all its settings.

    What `warmpot methods PRESET` prints is a whole YAML file for `warmpot fit --config`.
    """
    from warmpot.train.config import load_config, preset_names

    if preset is not None:
        print(load_config(preset).dump(), end="")
        return
    from rich.table import Table
    from rich.text import Text

    from warmpot.methods import METHODS
    from warmpot.select import DEFAULT_VALIDATOR, VALIDATORS

    known = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("method", "what it does", "parameters"):
        known.add_column(heading, overflow="fold")
    for name, cls in METHODS.items():
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        params = ", ".join(f"{field.name} {'null' if field.default is None else field.default}" for field in fields)
        known.add_row(Text(name), Text(cls.summary), Text(params or "none"))
    recipes = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("preset", "engine", "method", "what it is"):
        recipes.add_column(heading, overflow="fold")
    for name in preset_names():
        config = load_config(name)
        recipes.add_row(Text(name), Text(config.engine), Text(config.method), Text(_first_sentence(name)))
    validators = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in ("validator", "what it measures without target labels", "needs"):
        validators.add_column(heading, overflow="fold")
    for name, kind in VALIDATORS.items():
        mark = " (default)" if name == DEFAULT_VALIDATOR else ""
        needs = ", ".join(NEEDED[need] for need in sorted(kind.needs))
        validators.add_row(Text(name + mark), Text(kind.summary), Text(needs))
    show(known, "", recipes, "", validators, "")
    show("Choose by one: warmpot fit ... --choose VALIDATOR, warmpot sweep ... --validator VALIDATOR.")
    show("Use one: warmpot fit SOURCE TARGET --preset NAME. See its settings: warmpot methods NAME.")


def _first_sentence(preset: str) -> str:
    """Return what the recipe's first comment says."""
    text = (resources.files("warmpot") / "recipes" / f"{preset}.yaml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    sentence = re.split(r"(?<=\w)\. ", comment)[0]
    return sentence if sentence.endswith("...") else sentence.removesuffix(".")
