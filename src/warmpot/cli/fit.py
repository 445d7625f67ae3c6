"""``warmpot fit``: train on a labelled source and an unlabelled target, or go on with a run that was stopped."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot.cli._data_files import DataFiles, nested_changes, remembered_files
from warmpot.cli._image_flags import (
    BACKBONE,
    BACKBONE_WEIGHTS,
    CACHE,
    CLASSES,
    CORRUPT_FILES,
    FINE_TUNE,
    ROOT,
    TRAIN_FROM,
    WORKERS,
    image_choices,
)
from warmpot.cli._shared import (
    LABEL_HELP,
    REGRESSION_HELP,
    class_summary,
    complain,
    facts_grid,
    messages,
    one_line,
    quoted,
    recorded,
    score,
    show,
)
from warmpot.cli.report import NO_REPORT_HELP, write_report
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Task, Truth
    from warmpot.train import Fitted, RunConfig

__all__ = ["fit", "sizes"]

FINISHED = ("model.safetensors", "model.json", "predictions.csv", "source_weights.csv")
"""What the end of a run writes, all of it whole."""
HARDWARE = "Hardware, for the mini-batch engine"
EVALUATION = "(target labels, evaluation only)"


@dataclass(frozen=True)
class _Job:
    """A run to do: new, or to go on with."""

    folder: Path
    data: DataFiles
    config: RunConfig
    resume: bool
    idle: str = ""
    """An engine that was given settings and does not run."""


def fit(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="Labelled file (.npz, .csv, .tsv, .parquet), folder or list of images."),
    ] = None,
    target: Annotated[
        Path | None, typer.Argument(metavar="TARGET", help="The same of the target; its labels are not trained on.")
    ] = None,
    source_: Annotated[Path | None, typer.Option("--source", "-s", help="SOURCE, as an option.")] = None,
    target_: Annotated[Path | None, typer.Option("--target", "-t", help="TARGET, as an option.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder. [default: runs/SOURCE-TARGET-PRESET]")
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="NAME", help="`warmpot methods` lists them. [default: the preset's]")
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="How source samples are weighted. [default: as the preset has it]"),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(metavar="NAME", help="All settings. [default: the method's for features; full]")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings; wins over the preset.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, as minibatch.steps=100.")
    ] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER", help="Share of the target to match, in (0, 1], or auto (warmpot; mpot: a number)."
        ),
    ] = None,
    beta: Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Share of the source believed to matter, in (0, 1], or auto (warmpot)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="[default: 0]")] = None,
    choose: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep the best round by this validator. [default: last]")
    ] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP)] = None,
    regression: Annotated[bool, typer.Option("--regression", help=REGRESSION_HELP)] = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder; nothing else needed.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes or GPUs a machine.", rich_help_panel=HARDWARE)] = None,
    num_nodes: Annotated[int | None, typer.Option(help="Machines.", rich_help_panel=HARDWARE)] = None,
    accelerator: Annotated[str | None, typer.Option(help="auto, cpu or cuda.", rich_help_panel=HARDWARE)] = None,
    strategy: Annotated[str | None, typer.Option(help="auto, ddp, fsdp ...", rich_help_panel=HARDWARE)] = None,
    precision: Annotated[str | None, typer.Option(help="32-true, bf16-mixed ...", rich_help_panel=HARDWARE)] = None,
    backbone: BACKBONE = None,
    backbone_weights: BACKBONE_WEIGHTS = None,
    fine_tune: FINE_TUNE = None,
    train_from: TRAIN_FROM = None,
    cache: CACHE = False,
    root: ROOT = None,
    classes: CLASSES = None,
    corrupt: CORRUPT_FILES = "raise",
    workers: WORKERS = None,
    no_report: Annotated[bool, typer.Option("--no-report", help=NO_REPORT_HELP)] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Train on a labelled SOURCE and an unlabelled TARGET.

    Writes a folder with the model, the predictions for the target, the weights of the source and everything needed to
    go on after a stop. Flags win over the YAML file, which wins over the preset.
    """
    flags: dict[str, Any] = {"method": method, "weights": weights, "params.alpha": alpha, "params.beta": beta}
    flags |= {"seed": seed, "choose": choose}
    hardware = {"devices": devices, "num_nodes": num_nodes, "accelerator": accelerator, "strategy": strategy}
    hardware["precision"] = precision
    flags |= {f"minibatch.hardware.{name}": value for name, value in hardware.items()}
    if backbone_weights is not None and Path(backbone_weights).is_file():  # found again from any folder
        backbone_weights = str(Path(backbone_weights).resolve())
    of_images: dict[str, Any] = {
        "backbone.name": backbone,
        "backbone.weights": backbone_weights,
        "backbone.train_from": train_from,
    }
    of_images |= {"cache": cache or None, "workers": workers}
    flags |= {f"images.{name}": value for name, value in of_images.items()}
    changes = nested_changes(settings or [], {name: value for name, value in flags.items() if value is not None})
    wanted = not quiet and _rank() == 0
    source, target = _one("source", source, source_), _one("target", target, target_)
    if resume is None:
        data = _given(source, target, label, regression)
        data = replace(data, root=root, classes=classes, corrupt=corrupt)
        changes, tuned = image_choices(data, changes, config, fine_tune, wanted)
        chosen = _preset(method, preset, config, tuned)
        _run(_new_job(data, out, chosen, config, changes), wanted, report=not no_report)
        return
    others = {"--out": out, "--preset": preset, "--config": config, "--label": label, "--regression": regression}
    others |= {"--root": root, "--classes": classes, "--corrupt": corrupt != "raise"}
    others["--fine-tune/--frozen"] = fine_tune is not None
    _refuse_beside_resume([name for name, value in others.items() if value], changes)
    job = _old_job(resume, source, target)
    if all((resume / name).is_file() for name in FINISHED):
        if wanted:
            show(f"{resume}: this run is finished, nothing is left to do.")
            show(f"Use it with: warmpot predict {quoted(resume)} DATA --out predictions.csv")
            if not no_report and not (resume / "report.html").exists():
                show(f"Look at it with: warmpot report {quoted(resume)}")
        return
    _run(job, wanted, report=not no_report)


def _given(source: Path | None, target: Path | None, label: str | None, regression: bool) -> DataFiles:
    if source is None or target is None:
        got, remedy = "no target" if source else "no data", "Run: warmpot fit SOURCE TARGET"
        raise InputError(
            "SOURCE TARGET", got=got, allowed="two files or folders of images (or --resume DIR)", remedy=remedy
        )
    return DataFiles(source, target, label, regression)


def _refuse_beside_resume(flags: list[str], changes: dict[str, Any]) -> None:
    if flags or changes:
        got = ", ".join(flags) or "other settings"
        remedy = "The folder remembers its settings: leave them out, or start a new run."
        raise InputError("--resume", got=got, allowed="no other settings", remedy=remedy)


def _one(name: str, argument: Path | None, option: Path | None) -> Path | None:
    """Return what was given either way."""
    if argument is not None and option is not None:
        remedy = "Give it once."
        raise InputError(f"--{name}", got=f"{name.upper()} as well", allowed="one of the two", remedy=remedy)
    return option if argument is None else argument


def _preset(method: str | None, preset: str | None, file: Path | None, tuned: bool) -> str | None:
    """Return the preset that the flags ask for, if they do."""
    from warmpot.train.recipes import preset_for, read_yaml

    written = read_yaml(file) if file is not None else {}
    method = method or written.get("method") or ("warmpot" if tuned else None)
    named = preset or written.get("preset")
    return named if method is None else preset_for(method, named, images=tuned)


def _new_job(data: DataFiles, out: Path | None, preset: str | None, file: Path | None, changes: dict[str, Any]) -> _Job:
    """Resolve the configuration and the folder; refuse a folder in use before any data is read."""
    from warmpot.train.config import load_config

    config = load_config(preset, file, changes)
    if data.regression and config.loss == "cross_entropy" and "loss" not in changes:
        config = replace(config, loss="squared")
    if out is None:
        if config.minibatch.hardware.processes > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
            remedy = "Name a new folder."
            raise InputError("--out", got="none", allowed="a folder, for several processes", remedy=remedy)
        out = _free(Path("runs") / "-".join([data.source.stem, data.target.stem, *_called(config)]))
    idle = next((name for name in ("full", "minibatch") if name in changes and name != config.engine), "")
    return _Job(out, data, config, resume=False, idle=idle)


def _called(config: RunConfig) -> list[str]:
    """Name the preset, and what of method and weights is not the preset's."""
    from warmpot.train.config import load_config

    plain = load_config(config.preset)
    method = [config.method] if config.method != plain.method else []
    usual = _own_weights(config) if method else plain.weights
    return [config.preset, *method, *([str(config.weights)] if config.weights != usual else [])]


def _own_weights(config: RunConfig) -> str:
    """Return the weighting of the method's paper."""
    from warmpot.methods import METHODS

    return METHODS[config.method].weights


def _free(folder: Path) -> Path:
    """Append the first number that makes the name new."""
    number, free = 2, folder
    while free.exists():
        free, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return free


def _old_job(folder: Path, source: Path | None, target: Path | None) -> _Job:
    """Read what the folder remembers; files may be named anew, when the data was moved."""
    from warmpot.train.config import load_config

    data = remembered_files(folder, source, target, "--resume")
    return _Job(folder, data, load_config(file=folder / "config.yaml"), resume=True)


def _rank() -> int:
    """Return the number of this process, as launchers tell it: every process runs the verb, one of them talks."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), 0))


def _run(job: _Job, wanted: bool, *, report: bool) -> None:
    """Train, tell the result, and on Ctrl-C how to go on; then write the page, if it is asked for."""
    with messages(wanted):
        _check_new(job)
        if wanted:
            complain(f"reading {job.data.source} and {job.data.target}", "dim")
            if job.idle:
                engine = f"the preset {job.config.preset} runs the engine {job.config.engine}"
                complain(f"settings of the engine {job.idle} have no effect: {engine}", "yellow")
        try:
            device = "cpu" if job.config.minibatch.hardware.accelerator == "cpu" else "auto"
            task, truth = job.data.read(job.config.images, None if wanted else False, device)
        except InputError as error:
            raise InputError(one_line(error)) from error
        if wanted:
            complain(f"{sizes(task)} -> {job.folder}", "dim")
        from warmpot.select.within import fit_chosen as train

        start = time.perf_counter()
        try:
            bar = None if wanted else False
            fitted = train(
                task, job.config, out=job.folder, resume=job.resume, progress_bar=bar, facts=job.data.facts()
            )
        except KeyboardInterrupt:
            if not recorded(job.folder):
                raise  # nothing was begun
            complain(f"interrupted; go on with: warmpot fit --resume {quoted(job.folder)}", "yellow")
            raise typer.Exit(130) from None
        seconds = time.perf_counter() - start
        if report and _rank() == 0:
            write_report(job.folder, task, truth, wanted)
    if wanted:
        show(f"{job.data.source.name} -> {job.data.target.name}", style="bold")
        show(facts_grid(_summary(fitted, truth, seconds)))
        if fitted.predictor.classes:  # not in the grid: names of classes can be long
            show("", f"Believed present: {class_summary(fitted.predictor.class_shares(fitted.outputs))}")
        names = sorted(entry.name for entry in job.folder.iterdir())
        show(f"Wrote {job.folder}: {', '.join(names)}")


def sizes(task: Task) -> str:
    """Say how much data there is."""
    from warmpot.data.lazy import sample_shape

    labels = f"{task.n_classes} classes" if task.classes else "real labels"
    return f"{task.n_source} source and {task.n_target} target samples, {sample_shape(task.xs)}; {labels}"


def _check_new(job: _Job) -> None:
    """Refuse a folder in use before the data is read; `RunDir` has the last word."""
    if job.resume or _rank() or not job.folder.exists():
        return
    if not job.folder.is_dir() or any(job.folder.iterdir()):
        remedy = f"Name a new folder, or go on with the run in it: warmpot fit --resume {quoted(job.folder)}"
        got, allowed = "something that is there already", "a new or empty folder"
        raise InputError(f"--out {job.folder}", got=got, allowed=allowed, remedy=remedy)


def _iterate(fitted: Fitted) -> str:
    what = "round" if fitted.config.engine == "full" else "step"
    how = "last" if fitted.config.choose == "last" else f"best by {fitted.config.choose}"
    return f"{what} {fitted.step} ({how})"


def _weights_row(config: RunConfig) -> list[tuple[str, ...]]:
    """Tell weights that are not those of the method's paper."""
    usual, names = _own_weights(config), {"own": "row sums of its own plan"}
    if config.weights == usual:
        return []
    return [("weights", str(config.weights), f"in place of {names.get(usual, usual)}")]


def _summary(fitted: Fitted, truth: Truth | None, seconds: float) -> list[tuple[str, ...]]:
    """Tell what became of a run, a row a fact."""
    from warmpot.weights import effective_share

    config, outputs = fitted.config, fitted.outputs
    rows: list[tuple[str, ...]] = [
        ("method", config.method, f"preset {config.preset}, seed {config.seed}"),
        *_weights_row(config),
        ("result", _iterate(fitted), "chosen without target labels" if config.choose != "last" else ""),
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
