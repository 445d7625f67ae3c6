"""``warmpot methods``: list or describe methods, weightings, presets and validators."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from importlib.metadata import entry_points
from itertools import groupby, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from warmpot._settings import suggestion
from warmpot.cli._shared import show
from warmpot.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table as Grid
    from rich.text import Text

    from warmpot.methods import Method, Weighting

__all__ = ["listing", "methods", "preset_summary", "write_listing"]

LISTING = Path(__file__).with_suffix(".json")
"""The methods, weightings and validators of the package, as `write_listing` stores them."""

NEEDS = {"held": "a held-out part of the source", "transport": "a plan", "head": "a linear head"}
"""What a validator can need."""
NAME_HELP = "Describe this method, weighting or validator, or print a preset."
PRESET = Annotated[str | None, Option(metavar="NAME", help="Print this preset, even if a method has the same name.")]
ALL = Annotated[bool, Option("--all", "-a", help="Also list the presets of all methods.")]
START = (
    ("warmpot fit SOURCE TARGET", "the default (preset full): exact plans, all pairs"),
    ("    ... --preset source-only", "no adaptation: what to compare with"),
    ("    ... --preset frozen", "the paper's training, in batches, on features"),
    ("    ... --fine-tune", "images: the network is trained, too (without a GPU, its last block)"),
    ("warmpot sweep SOURCE TARGET", "tries several, chooses without target labels"),
)
PRESET_NAMES = "NAME-frozen for features, NAME for images; NAME-office31, NAME-imagenet."


def methods(
    name: Annotated[str | None, Argument(metavar="NAME", help=NAME_HELP)] = None,
    preset: PRESET = None,
    everything: ALL = False,
) -> None:
    """List methods, weightings and validators, and what to use first.

    With NAME, describe it: methods and weightings with their parameters. A preset is printed with all settings, as a
    complete YAML file for `warmpot fit --config`.
    """
    if name is not None and preset is not None:
        raise InputError("NAME --preset", got="both", allowed="one of them", remedy="Leave one out.")
    if name is None and preset is None:
        _list(everything)
        return
    from warmpot.methods import OWN, get_method, get_weighting, method_names, weighting_names
    from warmpot.select import VALIDATORS
    from warmpot.train import load_config, preset_names

    if name in method_names() or name in weighting_names():
        show(*_describe(get_method(name) if name in method_names() else get_weighting(name)))
        _list_presets(name)
    elif name == OWN:
        show(f"{OWN}  {_own_summary()}; computed for every batch; no parameters")
    elif preset is not None or name in preset_names():
        print(load_config(preset or name).dump(), end="")
    elif name in VALIDATORS:
        show(f"{name}  {VALIDATORS[str(name)].summary}", inspect.getdoc(VALIDATORS[str(name)]) or "")
    else:
        known = [*method_names(), *weighting_names(), OWN, *preset_names(), *VALIDATORS]
        allowed = "a method, weighting, preset or validator that `warmpot methods --all` lists"
        raise InputError("NAME", got=repr(name), allowed=allowed, remedy=suggestion(str(name), known))


def _own_summary() -> str:
    from warmpot.methods import get_method, method_names

    methods = ((name, get_method(name)) for name in method_names())
    # The full engine has no choice of weights.
    names = [name for name, cls in methods if cls.weighs_samples() and "minibatch" in cls.engines]
    return f"what the method computes itself, such as row sums of its plan ({', '.join(names)})"


def listing() -> dict[str, list[list[str]]]:
    """Return what is listed of methods, weightings and validators: name, summary, and a note if there is one."""
    from warmpot.methods import OWN, get_method, get_weighting, method_names, weighting_names
    from warmpot.methods.base import NOT_STATED, OFFICIAL
    from warmpot.select import DEFAULT_VALIDATOR, VALIDATORS

    method_rows = []
    for name in method_names():
        cls = get_method(name)
        # A reproduction is the usual case; everything else is named.
        status = "" if cls.status == OFFICIAL else cls.status.partition(":")[0].replace(NOT_STATED, "status not stated")
        weights = f"weights {cls.weights}" if cls.uses_target else ""
        notes = [status, ", ".join(cls.tags), weights, cls.reference]
        method_rows.append([name, cls.summary, "; ".join(filter(None, notes))])
    validator_rows = []
    for name, validator in VALIDATORS.items():
        mark = " (default)" if name == DEFAULT_VALIDATOR else ""
        needs = ", ".join(NEEDS[need] for need in sorted(validator.needs))
        validator_rows.append([name + mark, validator.summary, f"needs {needs}" if needs else ""])
    weighting_rows = [*([name, get_weighting(name).summary] for name in weighting_names()), [OWN, _own_summary()]]
    return {"methods": method_rows, "weightings": weighting_rows, "validators": validator_rows}


def write_listing() -> None:
    """Store the `listing` of the package, so that it can be printed without importing torch."""
    LISTING.write_text(json.dumps(listing(), indent=1) + "\n", encoding="utf-8")


def _read_listing() -> dict[str, list[list[str]]]:
    """Return the stored listing; that of the classes if another package, or this process, may have added some."""
    added = any(entry_points(group=f"warmpot.{kind}") for kind in ("methods", "weightings"))
    if added or "warmpot.methods" in sys.modules:
        return listing()
    stored: dict[str, list[list[str]]] = json.loads(LISTING.read_text(encoding="utf-8"))
    return stored


def _list(presets: bool) -> None:
    """Print what to use first, then everything by kind; the presets, three per method, on request."""
    from warmpot.train.recipes import preset_for, presets_of

    rows = _read_listing()
    show(_heading("Start here", ""), _summaries(START), "")
    show(_heading("Methods", "warmpot fit SOURCE TARGET --method NAME"), _summaries(rows["methods"]))
    show(_heading("", "Where no status (interpretation, ours) is named: reproduces the authors' code."), "")
    use = "--weights NAME, for every mini-batch method except source-only"
    show(_heading("Weightings", use), _summaries(rows["weightings"]), "")
    if presets:
        defaults = {name: preset_for(name) for name, *_ in rows["methods"]}
        preset_rows = [
            (name, ", ".join([f"{default} (default)", *(other for other in presets_of(name) if other != default)]))
            for name, default in defaults.items()
        ]
        show(_heading("Presets", "--preset NAME"), _summaries(preset_rows), _heading("", PRESET_NAMES), "")
    show(_heading("Validators", "warmpot fit ... --choose NAME, warmpot sweep ... --validator NAME"))
    show(_summaries(rows["validators"]), "", "More about any of them: warmpot methods NAME")
    if not presets:
        show("Presets of all methods: warmpot methods --all")


def _describe(cls: type[Method[Any]] | type[Weighting[Any]]) -> Iterator[Any]:
    """Yield what to print: summary, facts, objective, parameters, notes with deviations, references."""
    from rich.console import Group
    from rich.text import Text

    from warmpot.methods import descriptions

    facts = {
        "reference": getattr(cls, "reference", ""),
        "status": getattr(cls, "status", ""),
        "tags": ", ".join(getattr(cls, "tags", ())),
        "weights": getattr(cls, "weights", ""),
        "engines": ", ".join(getattr(cls, "engines", ())),
        "regression": "yes" if cls.regression else "no",
    }
    fact_lines = [Text.assemble((f"{name:<11}  ", "dim"), value) for name, value in facts.items() if value]
    # Groups and tables are wrapped at the width of the terminal, single texts are not.
    yield Group(Text.assemble((cls.name, "bold"), f"  {cls.summary}"), *fact_lines)
    yield Group("", *_paragraphs(descriptions.description(cls)))
    grid = _grid()
    # Parameters that share an entry of the docstring share its meaning.
    for meaning, entries in groupby(descriptions.parameters(cls), key=lambda parameter: parameter.meaning):
        names, defaults, _ = zip(*entries, strict=True)
        grid.add_row(Text("\n".join(names)), Text("\n".join(defaults), style="cyan"), Text(meaning))
    if grid.row_count:
        yield Group("", _heading("Parameters", "with defaults; presets may have others"), grid)
    for title in ("Notes", "References"):
        if text := descriptions.section(cls, title.lower()):
            yield Group("", Text(title, style="bold"), *_paragraphs(text))


def _paragraphs(text: str) -> Iterator[Any]:
    from rich.text import Text

    from warmpot.methods.descriptions import paragraphs, plain_text

    for number, paragraph in enumerate(paragraphs(plain_text(text))):
        if isinstance(paragraph, str):
            yield Text("\n" * (number > 0) + paragraph)
        else:
            items = _grid(1)
            for item in paragraph:
                items.add_row(Text("-"), Text(item))
            yield items


def _heading(title: str, note: str) -> Text:
    from rich.text import Text

    return Text.assemble((title, "bold"), ("  " if title else "") + note, style="dim")


def _grid(gap: int = 2) -> Grid:
    from rich.table import Table as Grid

    return Grid.grid(padding=(0, gap, 0, 0), pad_edge=False)


def _summaries(rows: Iterable[Sequence[str]]) -> Grid:
    """Lay out names with their summaries; a third entry is dimmed, on a line of its own."""
    from rich.text import Text

    grid = _grid()
    for name, summary, *note in rows:
        grid.add_row(Text(name), Text.assemble(summary, *(("\n" + text, "dim") for text in note if text)))
    return grid


def _list_presets(name: str) -> None:
    """List the presets that use a method or a weighting."""
    from warmpot.train import load_config, preset_names

    configs = {preset: load_config(preset) for preset in preset_names()}
    configs = {preset: config for preset, config in configs.items() if name in (config.method, config.weights)}
    several = len({config.engine for config in configs.values()}) > 1
    if configs:
        engines = {preset: f"{config.engine}: " if several else "" for preset, config in configs.items()}
        rows = [(preset, engine + preset_summary(preset)) for preset, engine in engines.items()]
        show("", _heading("Presets", "all settings of one: warmpot methods --preset NAME"), _summaries(rows))


def preset_summary(preset: str) -> str:
    """Return the first clause of the recipe's comment: up to a full stop, colon or semicolon outside brackets."""
    from warmpot.methods.descriptions import plain_text

    text = (resources.files("warmpot") / "recipes" / f"{preset}.yaml").read_text(encoding="utf-8")
    comment = " ".join(line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), text.splitlines()))
    return re.split(r"[.:;](?: |$)(?![^(]*\))", plain_text(comment))[0].removesuffix(".")
