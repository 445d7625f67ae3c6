"""What the verbs that train share: the two files, and settings given as flags."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot.cli._shared import read_side, recorded
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Table, Task, Truth
    from warmpot.train.images import ImageSettings

__all__ = ["DataFiles", "nested_changes", "remembered_files"]


@dataclass(frozen=True)
class DataFiles:
    """Where the two files, or folders of images, are and how to read them."""

    source: Path
    target: Path
    label: str | None
    regression: bool
    root: Path | None = None
    classes: Path | None = None
    corrupt: str = "raise"

    @property
    def of_images(self) -> bool:
        """Whether both sides are images."""
        from warmpot.data.images import is_images

        # a side that is not there is read as the other one, to be missed by name
        kinds = [is_images(path) for path in (self.source, self.target) if path.exists()]
        if len(set(kinds)) > 1:
            names = ["images" if kind else "a table" for kind in kinds]
            got, remedy = f"{names[0]} and {names[1]}", "Give two of a kind; `warmpot extract` makes a table of images."
            raise InputError("SOURCE TARGET", got=got, allowed="two of a kind", remedy=remedy)
        return bool(kinds) and kinds[0]

    def facts(self) -> dict[str, Any]:
        """Return what the run directory remembers; whole paths, so that a run can be resumed from any folder."""
        paths = {"source": str(self.source.resolve()), "target": str(self.target.resolve())}
        facts = {**paths, "label": self.label, "regression": self.regression}
        if self.of_images:
            further = {"root": self.root, "classes": self.classes}
            facts |= {name: None if path is None else str(path.resolve()) for name, path in further.items()}
            facts["corrupt"] = self.corrupt
        return facts

    def read(
        self, images: ImageSettings | None = None, bar: bool | None = None, device: str = "auto"
    ) -> tuple[Task, Truth | None]:
        """Read both, images as the settings have it; the target's labels only reach the `Truth`."""
        from warmpot.data import make_task

        if not self.of_images:
            return make_task(self.side("source"), self.side("target"))
        if images is None:
            got, remedy = "images", "Make tables of them first: warmpot extract DIR --out features.npz"
            raise InputError("SOURCE TARGET", got=got, allowed="tables of features here", remedy=remedy)
        from warmpot.train.images import prepare

        tables = self.side("source"), self.side("target")
        if tables[0].y is None:  # said now, not after hours in the network
            got, remedy = "no labels", "Put its images into a folder a class, or list them with their labels."
            raise InputError(str(self.source), got=got, allowed="a labelled source", remedy=remedy)
        return make_task(*prepare(*tables, settings=images, corrupt=self.corrupt, device=device, progress_bar=bar))

    def side(self, side: str) -> Table:
        """Read the "source" or the "target"; images stay on disk."""
        path = self.source if side == "source" else self.target
        if self.of_images:
            from warmpot.data.images import load_images

            return load_images(path, root=self.root, classes=self.classes)
        return read_side(path, self.label, regression=self.regression, needed=side == "source")


def remembered_files(run: Path, source: Path | None, target: Path | None, what: str) -> DataFiles:
    """Return the files that a run directory remembers; they may be named anew, when the data was moved.

    `what` is the argument that named the folder, for messages.
    """
    facts = recorded(run)
    if not facts:
        got, remedy = "no run, or one that ended before it began", "Start a new one: warmpot fit SOURCE TARGET"
        raise InputError(f"{what} {run}", got=got, allowed="the folder of a run", remedy=remedy)
    if (source is None or target is None) and not {"source", "target"} <= set(facts):
        got, remedy = "a run that was not started by `warmpot fit`", f"Name the files: SOURCE TARGET {what}"
        raise InputError(f"{what} {run}", got=got, allowed="a run that knows its data", remedy=remedy)
    root, classes = (Path(facts[name]) if facts.get(name) else None for name in ("root", "classes"))
    return DataFiles(
        source or Path(facts["source"]),
        target or Path(facts["target"]),
        facts.get("label"),
        bool(facts.get("regression")),
        root,
        classes,
        facts.get("corrupt", "raise"),
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
        raise InputError("--set", got=got, allowed="a setting of the run", remedy="Use --preset.")
    try:
        if equals and all(name.strip().split(".")):
            return name.strip(), yaml.safe_load(value)
    except yaml.YAMLError:
        got += ", whose value is no YAML"
    remedy = "Write it as --set minibatch.steps=100; `warmpot methods full` shows all settings."
    raise InputError("--set", got=got, allowed="NAME=VALUE", remedy=remedy)
