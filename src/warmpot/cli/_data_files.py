"""What the verbs that train share: the two files, and settings given as flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot.cli._shared import read_side, recorded
from warmpot.errors import InputError, explain

if TYPE_CHECKING:
    from warmpot.data import Task, Truth

__all__ = ["DataFiles", "nested_changes", "remembered_files"]


@dataclass(frozen=True)
class DataFiles:
    """Where the two files are and how to read them."""

    source: Path
    target: Path
    label: str | None
    regression: bool

    def facts(self) -> dict[str, Any]:
        """Return what the run directory remembers; whole paths, so that a run can be resumed from any folder."""
        paths = {"source": str(self.source.resolve()), "target": str(self.target.resolve())}
        return {**paths, "label": self.label, "regression": self.regression}

    def read(self) -> tuple[Task, Truth | None]:
        """Read both; the target's labels only reach the `Truth`."""
        from warmpot.data import make_task

        source = read_side(self.source, self.label, regression=self.regression, needed=True)
        target = read_side(self.target, self.label, regression=self.regression, needed=False)
        return make_task(source, target)


def remembered_files(run: Path, source: Path | None, target: Path | None, what: str) -> DataFiles:
    """Return the files that a run directory remembers; they may be named anew, when the data was moved.

    `what` is the argument that named the folder, for messages.
    """
    facts = recorded(run)
    if not facts:
        got, remedy = "no run, or one that ended before it began", "Start a new one: warmpot fit SOURCE TARGET"
        raise InputError(explain(f"{what} {run}", got=got, allowed="the folder of a run", remedy=remedy))
    if (source is None or target is None) and not {"source", "target"} <= set(facts):
        got, remedy = "a run that was not started by `warmpot fit`", f"Name the files: SOURCE TARGET {what}"
        raise InputError(explain(f"{what} {run}", got=got, allowed="a run that knows its data", remedy=remedy))
    return DataFiles(
        source or Path(facts["source"]),
        target or Path(facts["target"]),
        facts.get("label"),
        bool(facts.get("regression")),
    )


def nested_changes(settings: list[str], flags: dict[str, Any]) -> dict[str, Any]:
    """Nest ``--set`` texts and the flags that stand for a setting; a flag of its own wins."""
    from warmpot._settings import merged, with_value

    found: dict[str, Any] = {}
    for name, value in [*map(_setting, settings), *flags.items()]:
        found = merged(found, with_value(name, value))
    return found


def _setting(text: str) -> tuple[str, Any]:
    import yaml

    name, equals, value = text.partition("=")
    got = repr(text)
    if name.strip() == "preset":
        raise InputError(explain("--set", got=got, allowed="a setting of the run", remedy="Use --preset."))
    try:
        if equals and all(name.strip().split(".")):
            return name.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        got += ", whose value is no YAML"
    remedy = "Write it as --set minibatch.steps=100; `warmpot methods full` shows all settings."
    raise InputError(explain("--set", got=got, allowed="NAME=VALUE", remedy=remedy))
