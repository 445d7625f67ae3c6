"""``warmpot methods``: what can be trained, how sources are weighted, and from which recipes."""

from __future__ import annotations

import inspect
import re
from importlib import resources
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot._settings import suggestion
from warmpot.cli._shared import show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as Grid

__all__ = ["methods"]

NEEDED = {"held": "a held part of the source", "transport": "a plan", "head": "a linear head"}
"""What a validator needs, in words."""
ENDINGS = "NAME-frozen for features, NAME for Office-Home, NAME-imagenet for ImageNet."


def methods(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Describe this method or weighting, or print this preset.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Print this preset, where a method has the same name.")
    ] = None,
) -> None:
    """List methods, weightings, presets and validators, or tell all about NAME.

    Methods and weightings are described, with their parameters. Of a preset, all settings are printed: a whole YAML
    file for `warmpot fit --config`.
    """
    from warmpot.methods import METHODS, OWN, WEIGHTINGS
    from warmpot.select import VALIDATORS
    from warmpot.train import load_config, preset_names

    if name is not None and preset is not None:
        remedy = "Leave one out."
        raise InputError("NAME --preset", got="both", allowed="one of them", remedy=remedy)
    if name is None and preset is None:
        _list_all()
    elif name in METHODS or name in WEIGHTINGS:
        from warmpot.cli._described import described

        show(*described(METHODS.get(str(name)) or WEIGHTINGS[str(name)]))
        _list_presets(str(name))
    elif name == OWN:
        show(f"{OWN}  row sums of the method's own plan ({_planners()}), anew for every batch; it has no parameters")
    elif preset is not None or name in preset_names():
        print(load_config(preset or name).dump(), end="")
    elif name in VALIDATORS:
        show(f"{name}  {VALIDATORS[str(name)].summary}", inspect.getdoc(VALIDATORS[str(name)]) or "")
    else:
        known = [*METHODS, *WEIGHTINGS, OWN, *preset_names(), *VALIDATORS]
        allowed = "a method, a weighting, a preset or a validator: `warmpot methods` lists them"
        raise InputError("NAME", got=repr(name), allowed=allowed, remedy=suggestion(str(name), known))


def _planners() -> str:
    from warmpot.methods import METHODS

    return ", ".join(name for name, cls in METHODS.items() if cls.weighs_samples())


def _list_all() -> None:
    from rich.text import Text

    from warmpot.methods import METHODS, OWN, WEIGHTINGS
    from warmpot.select import DEFAULT_VALIDATOR, VALIDATORS
    from warmpot.train.recipes import preset_for, presets_of

    known = _grid()
    for name, cls in METHODS.items():
        notes = [", ".join(cls.tags), f"weights {cls.weights}" if cls.uses_target else "", cls.reference]
        known.add_row(Text(name), _lines(cls.summary, "; ".join(filter(None, notes))))
    weightings = _grid()
    for name, kind in WEIGHTINGS.items():
        weightings.add_row(Text(name), Text(kind.summary))
    weightings.add_row(Text(OWN), Text(f"row sums of the method's own plan ({_planners()})"))
    presets = _grid()
    for name in METHODS:
        default = preset_for(name)
        others = [other for other in presets_of(name) if other != default]
        presets.add_row(Text(name), Text(", ".join([f"{default} (default)", *others])))
    validators = _grid()
    for name, judge in VALIDATORS.items():
        mark = " (default)" if name == DEFAULT_VALIDATOR else ""
        needs = ", ".join(NEEDED[need] for need in sorted(judge.needs))
        validators.add_row(Text(name + mark), _lines(judge.summary, f"needs {needs}" if needs else ""))
    show(_heading("Methods", "warmpot fit SOURCE TARGET --method NAME"), known, "")
    show(_heading("Weightings", "--weights NAME, beside any method but source-only"), weightings, "")
    show(_heading("Presets", "--preset NAME"), presets, Text(ENDINGS, style="dim"), "")
    show(_heading("Validators", "warmpot fit ... --choose NAME, warmpot sweep ... --validator NAME"), validators, "")
    show("More about any of them: warmpot methods NAME")


def _heading(text: str, use: str = "") -> Any:
    from rich.text import Text

    return Text.assemble((text, "bold"), (f"  {use}" if use else "", "dim"))


def _grid() -> Grid:
    from rich.table import Table as Grid

    return Grid.grid(padding=(0, 2, 0, 0), pad_edge=False)


def _lines(summary: str, note: str) -> Any:
    from rich.text import Text

    return Text.assemble(summary, (f"\n{note}" if note else "", "dim"))


def _list_presets(name: str) -> None:
    """List the presets of a method, or with a weighting, and say what each is."""
    from rich.text import Text

    from warmpot.train import load_config, preset_names

    configs = {preset: load_config(preset) for preset in preset_names()}
    configs = {preset: config for preset, config in configs.items() if name in (config.method, config.weights)}
    engines, grid = {config.engine for config in configs.values()}, _grid()
    for preset, config in configs.items():
        engine = [Text(config.engine, style="dim")] if len(engines) > 1 else []
        grid.add_row(Text(preset), *engine, Text(_about(preset)))
    if configs:
        show("", _heading("Presets", "all settings of one: warmpot methods --preset NAME"), grid)


def _about(preset: str) -> str:
    """Return how the recipe's first comment begins: up to a full stop, colon or semicolon outside of brackets."""
    from warmpot.cli._described import plain

    text = (resources.files("warmpot") / "recipes" / f"{preset}.yaml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return re.split(r"[.:;](?: |$)(?![^(]*\))", plain(comment))[0].removesuffix(".")
