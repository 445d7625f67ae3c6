"""``warmpot fit``: train on a labelled source and an unlabelled target, or go on with a run that was stopped."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot.cli._shared import (
    LABEL_HELP,
    REGRESSION_HELP,
    class_summary,
    complain,
    facts_grid,
    messages,
    one_line,
    read_side,
    recorded,
    score,
    show,
)
from warmpot.errors import InputError, explain

if TYPE_CHECKING:
    from warmpot.data import Task, Truth
    from warmpot.train import Fitted, RunConfig

__all__ = ["fit"]

FINISHED = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv")
"""What the end of a run writes, all of it whole."""
EVALUATION = "(target labels, evaluation only)"


@dataclass(frozen=True)
class _Data:
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


@dataclass(frozen=True)
class _Job:
    """A run to do: new, or to go on with."""

    folder: Path
    data: _Data
    config: RunConfig
    resume: bool


def fit(
    source: Annotated[
        Path | None, typer.Argument(metavar="SOURCE", help="Labelled file: .npz (X, y), .csv, .tsv or .parquet.")
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="File of the target; labels in it are not trained on.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder. [default: runs/SOURCE-TARGET-PRESET]")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="`warmpot methods` lists them. [default: full]")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; wins over the preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, as minibatch.steps=100.")
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Share of the target to match, in (0, 1].")] = None,
    beta: Annotated[float | None, typer.Option(help="Share of the source believed to matter, in (0, 1].")] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 0]")] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP)] = None,
    regression: Annotated[bool, typer.Option("--regression", help=REGRESSION_HELP)] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder; nothing else needed.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes or GPUs (mini-batch engine).")] = None,
    accelerator: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps (mini-batch engine).")] = None,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed ... (mini-batch engine).")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train on a labelled SOURCE and an unlabelled TARGET.

    Writes a folder with the model, the predictions for the target, the weights of the source and everything needed to
    go on after a stop. Flags win over the YAML file, which wins over the preset.
    """
    flags: dict[str, Any] = {"params.alpha": alpha, "params.beta": beta, "seed": seed}
    hardware = {"devices": devices, "accelerator": accelerator, "precision": precision}
    flags |= {f"minibatch.hardware.{name}": value for name, value in hardware.items()}
    changes = _changes(settings or [], {name: value for name, value in flags.items() if value is not None})
    wanted = not quiet and _rank() == 0
    if resume is None:
        _run(_new_job(_given(source, target, label, regression), out, preset, config, changes), wanted)
        return
    others = {"--out": out, "--preset": preset, "--config": config, "--label": label, "--regression": regression}
    _refuse_beside_resume([name for name, value in others.items() if value], changes)
    job = _old_job(resume, source, target)
    if all((resume / name).is_file() for name in FINISHED):
        if wanted:
            show(f"{resume}: this run is finished, nothing is left to do.")
            show(f"Use it with: warmpot predict {_quoted(resume)} DATA --out predictions.csv")
        return
    _run(job, wanted)


def _changes(settings: list[str], flags: dict[str, Any]) -> dict[str, Any]:
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


def _given(source: Path | None, target: Path | None, label: str | None, regression: bool) -> _Data:
    if source is None or target is None:
        got, remedy = "no target" if source else "no data", "Run: warmpot fit source.npz target.npz"
        raise InputError(explain("SOURCE TARGET", got=got, allowed="two files (or --resume DIR)", remedy=remedy))
    return _Data(source, target, label, regression)


def _refuse_beside_resume(flags: list[str], changes: dict[str, Any]) -> None:
    if flags or changes:
        got = ", ".join(flags) or "other settings"
        remedy = "The folder remembers its settings: leave them out, or start a new run."
        raise InputError(explain("--resume", got=got, allowed="no other settings", remedy=remedy))


def _new_job(data: _Data, out: Path | None, preset: str | None, file: Path | None, changes: dict[str, Any]) -> _Job:
    """Resolve the configuration and the folder; refuse a folder in use before any data is read."""
    from warmpot.train.config import load_config

    config = load_config(preset, file, changes)
    if data.regression and config.loss == "cross_entropy" and "loss" not in changes:
        config = replace(config, loss="squared")
    if out is None:
        if config.minibatch.hardware.devices > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
            remedy = "Name a new folder."
            raise InputError(explain("--out", got="none", allowed="a folder, for several processes", remedy=remedy))
        out = _free(Path("runs") / f"{data.source.stem}-{data.target.stem}-{config.preset}")
    return _Job(out, data, config, resume=False)


def _free(folder: Path) -> Path:
    """Append the first number that makes the name new."""
    number, free = 2, folder
    while free.exists():
        free, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return free


def _old_job(folder: Path, source: Path | None, target: Path | None) -> _Job:
    """Read what the folder remembers; files may be named anew, when the data was moved."""
    from warmpot.train.config import load_config

    facts = recorded(folder)
    if not facts:
        got, remedy = "no run, or one that ended before it began", "Start a new one: warmpot fit SOURCE TARGET"
        raise InputError(explain(f"--resume {folder}", got=got, allowed="the folder of a run", remedy=remedy))
    missing = [name for name in ("source", "target") if name not in facts]
    if missing and (source is None or target is None):
        got, remedy = (
            "a run that was not started by `warmpot fit`",
            "Name the files: warmpot fit SOURCE TARGET --resume",
        )
        raise InputError(explain(f"--resume {folder}", got=got, allowed="the folder of a run", remedy=remedy))
    data = _Data(
        source or Path(facts["source"]),
        target or Path(facts["target"]),
        facts.get("label"),
        bool(facts.get("regression")),
    )
    return _Job(folder, data, load_config(file=folder / "config.yaml"), resume=True)


def _rank() -> int:
    """Return the number of this process, as launchers tell it: every process runs the verb, one of them talks."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), 0))


def _quoted(folder: Path) -> str:
    return shlex.quote(str(folder))


def _run(job: _Job, wanted: bool) -> None:
    """Train, tell the result, and on Ctrl-C how to go on."""
    with messages(wanted):
        _check_new(job)
        if wanted:
            complain(f"reading {job.data.source} and {job.data.target}", "dim")
        try:
            task, truth = job.data.read()
        except InputError as error:
            raise InputError(one_line(error)) from error
        if wanted:
            sizes = f"{task.n_source} source and {task.n_target} target samples, {task.width} features"
            complain(
                f"{sizes}; {f'{task.n_classes} classes' if task.classes else 'real labels'} -> {job.folder}", "dim"
            )
        from warmpot.train import fit as train

        start = time.perf_counter()
        try:
            bar = None if wanted else False
            fitted = train(
                task, job.config, out=job.folder, resume=job.resume, progress_bar=bar, facts=job.data.facts()
            )
        except KeyboardInterrupt:
            if not recorded(job.folder):
                raise  # nothing was begun
            complain(f"interrupted; go on with: warmpot fit --resume {_quoted(job.folder)}", "yellow")
            raise typer.Exit(130) from None
        seconds = time.perf_counter() - start
    if wanted:
        show(f"{job.data.source.name} -> {job.data.target.name}", style="bold")
        show(facts_grid(_summary(fitted, truth, seconds)))
        if fitted.predictor.classes:  # not in the grid: names of classes can be long
            show("", f"Believed present: {class_summary(fitted.predictor.class_shares(fitted.outputs))}")
        names = sorted(entry.name for entry in job.folder.iterdir())
        show(f"Wrote {job.folder}: {', '.join(names)}")


def _check_new(job: _Job) -> None:
    """Refuse a folder in use before the data is read; `RunDir` has the last word."""
    if job.resume or _rank() or not job.folder.exists():
        return
    if not job.folder.is_dir() or any(job.folder.iterdir()):
        remedy = f"Name a new folder, or go on with the run in it: warmpot fit --resume {_quoted(job.folder)}"
        got, allowed = "something that is there already", "a new or empty folder"
        raise InputError(explain(f"--out {job.folder}", got=got, allowed=allowed, remedy=remedy))


def _summary(fitted: Fitted, truth: Truth | None, seconds: float) -> list[tuple[str, ...]]:
    """Tell what became of a run, a row a fact."""
    from warmpot.weights import effective_share

    config, outputs = fitted.config, fitted.outputs
    rows: list[tuple[str, ...]] = [
        ("method", config.method, f"preset {config.preset}, seed {config.seed}"),
        ("time", f"{seconds:.1f} s", "without reading the files"),
        ("target samples", f"{len(outputs)}"),
    ]
    if fitted.predictor.classes:
        import torch

        from warmpot.train.health import effective_classes

        known = len(fitted.predictor.classes)
        effective = effective_classes(torch.as_tensor(outputs))
        rows.append(("classes in effect", f"{effective:.1f} of {known}", "exp of the entropy of the mean prediction"))
    share = effective_share(fitted.source_weights)
    rows.append(("weight share", f"{share:.0%}", "of the source carries the weight, in effect"))
    if truth is not None and truth.known.any():  # else there is nothing to measure by
        rows.append((*score(outputs, truth), EVALUATION))
    return rows
