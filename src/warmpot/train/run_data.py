"""The files that a run is trained on, and how they are read again.

Nothing heavy is imported before something is read: the commands use these names in their flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Table, Task, Truth
    from warmpot.train.images import ImageSettings

__all__ = [
    "ColumnFlags", "DataFiles", "held_out_task", "read_run_data", "read_table", "recorded_data", "remembered_files",
    "remembered_flags",
]  # fmt: skip


@dataclass(frozen=True)
class ColumnFlags:
    """What the columns of a table are used for, by name: the flags --label, --id and --feature.

    `features` are features although they look like ids; None: so are all columns, as in the runs of older versions.
    """

    label: str | None = None
    ids: str | None = None
    features: Sequence[str] | None = ()

    def asdict(self) -> dict[str, Any]:
        """Return the flags by the names of the library's arguments."""
        return {"label": self.label, "ids": self.ids, "features": self.features}

    def over(self, default: ColumnFlags) -> ColumnFlags:
        """Return these flags, with the default's in place of those that were not given."""
        label = default.label if self.label is None else self.label
        ids = default.ids if self.ids is None else self.ids
        return ColumnFlags(label, ids, self.features or default.features)


NO_FLAGS = ColumnFlags()


def read_table(
    path: Path,
    flags: ColumnFlags,
    *,
    regression: bool,
    needs_label: bool,
    needs_ids: bool = True,
    columns: Sequence[str] = (),
) -> Table:
    """Read a file with its labels and ids; unless they are needed, a column that is absent means none.

    `columns` are the features of a model, to be matched by name.
    """
    from warmpot.data import read_samples

    needs: dict[str, Any] = {"needs_label": needs_label, "needs_ids": needs_ids}
    task = "regression" if regression else "classification"
    return read_samples(path, **flags.asdict(), columns=columns, task=task, **needs)


@dataclass(frozen=True)
class DataFiles:
    """The paths of the source and the target (tables, or images), and how to read them."""

    source: Path
    target: Path
    flags: ColumnFlags = NO_FLAGS
    regression: bool = False
    root: Path | None = None
    classes: Path | None = None
    corrupt: str = "raise"
    holdout: Sequence[int] = ()
    """Rows of the target that a run held out."""

    @property
    def of_images(self) -> bool:
        """Whether both sides are images."""
        from warmpot.data.images import is_images

        # A missing path counts as the kind of the other one: reading it raises an error that names it.
        kinds = [is_images(path) for path in (self.source, self.target) if path.exists()]
        if len(set(kinds)) > 1:
            names = ["images" if kind else "a table" for kind in kinds]
            remedy = "Name two tables or two sets of images; `warmpot extract` makes a table from images."
            got = f"{names[0]} and {names[1]}"
            raise InputError("SOURCE TARGET", got=got, allowed="two of the same kind", remedy=remedy)
        return bool(kinds) and kinds[0]

    def facts(self) -> dict[str, Any]:
        """Return what the run folder records, with absolute paths, so that a run can be resumed from anywhere."""
        from warmpot.train.defaults import data_facts

        images = {"root": self.root, "classes": self.classes, "corrupt": self.corrupt} if self.of_images else None
        flags = self.flags.asdict()
        return data_facts(self.source, self.target, **flags, regression=self.regression, images=images)

    def read(
        self, images: ImageSettings | None = None, progress_bar: bool | None = None, device: str = "auto"
    ) -> tuple[Task, Truth | None]:
        """Read both sides, without the target samples that the run held out; target labels are in the `Truth` only."""
        task, truth = self.read_all(images, progress_bar, device)
        return held_out_task(task, truth, self.holdout)

    def read_all(
        self, images: ImageSettings | None = None, progress_bar: bool | None = None, device: str = "auto"
    ) -> tuple[Task, Truth | None]:
        """Read both sides."""
        from warmpot.train.defaults import task_from_tables

        if images is None and self.of_images:
            remedy = "Extract features first: warmpot extract DIR --out features.npz"
            raise InputError("SOURCE TARGET", got="images", allowed="tables of features", remedy=remedy)
        options: dict[str, Any] = {"corrupt": self.corrupt, "device": device, "progress_bar": progress_bar}
        return task_from_tables(self.side("source"), self.side("target"), images, **options)

    def side(self, side: str) -> Table:
        """Read the "source" or the "target"; images stay on disk."""
        path = self.source if side == "source" else self.target
        if self.of_images:
            from warmpot.data.images import load_images

            return load_images(path, root=self.root, classes=self.classes)
        # ids are most of all for predictions: a source may be without
        needs: dict[str, Any] = {"needs_label": side == "source", "needs_ids": side == "target"}
        return read_table(path, self.flags, regression=self.regression, **needs)


def held_out_task(task: Task, truth: Truth | None, rows: Any) -> tuple[Task, Truth | None]:
    """Hold out rows of the target, in the task and in its labels."""
    from warmpot.data.task import hold_out_target

    task = hold_out_target(task, rows)
    return task, truth if truth is None or task.held_out is None else truth.of_rows(task.held_out.kept)


def remembered_flags(facts: Mapping[str, Any]) -> ColumnFlags:
    """Return what the columns of a run's tables are used for."""
    return ColumnFlags(facts.get("label"), facts.get("ids"), facts.get("features"))


def remembered_files(
    run: Path, source: Path | None, target: Path | None, argument: str, flags: ColumnFlags = NO_FLAGS
) -> DataFiles:
    """Return the data of a run as its folder records it; `source` and `target` replace paths that have moved.

    `argument` is the flag that named the folder, for messages. `flags` replace those of the run.
    """
    from warmpot.train.run_folder import held_out_rows, read_facts

    facts = read_facts(run)
    if not facts:
        got, remedy = "no run, or one that was stopped before it started", "Start one: warmpot fit SOURCE TARGET"
        raise InputError(f"{argument} {run}", got=got, allowed="the folder of a run", remedy=remedy)
    if (source is None or target is None) and not {"source", "target"} <= set(facts):
        got, remedy = "a run that was not started by `warmpot fit`", f"Name the files: SOURCE TARGET {argument}"
        raise InputError(f"{argument} {run}", got=got, allowed="a run that knows its data", remedy=remedy)
    root, classes = (Path(facts[name]) if facts.get(name) else None for name in ("root", "classes"))
    return DataFiles(
        source or Path(facts["source"]), target or Path(facts["target"]), flags.over(remembered_flags(facts)),
        bool(facts.get("regression")), root, classes, facts.get("corrupt", "raise"), held_out_rows(facts),
    )  # fmt: skip


def recorded_data(run: Path) -> list[Path]:
    """Return the files that a run was trained on: no output may replace them."""
    from warmpot.train.run_folder import read_facts

    facts = read_facts(run)
    return [Path(facts[name]) for name in ("source", "target", "classes") if isinstance(facts.get(name), str)]


def read_run_data(run: Path, progress_bar: bool | None = None) -> tuple[Task | None, Truth | None, str]:
    """Read the data of a finished run from the files that it records; if that fails, return the reason.

    The reason is for pages, which are sent to others: it has no folders.
    """
    from warmpot.train.run_folder import read_config, read_facts

    if not {"source", "target"} <= set(read_facts(run)):
        return None, None, "its folder does not record where the data are"
    try:
        files = remembered_files(run, None, None, "RUN")
        if gone := [path.name for path in (files.source, files.target) if not path.exists()]:
            return None, None, f"its data has moved or was deleted ({', '.join(gone)})"
        return *files.read(read_config(run).images, progress_bar), ""
    except InputError as error:
        text = " ".join(str(error).split())
        for path in recorded_data(run):
            text = text.replace(str(path), path.name)
        return None, None, f"its data could not be read: {text}"
