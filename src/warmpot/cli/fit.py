"""``warmpot fit``: train on a labelled source and an unlabelled target, or resume a run that was stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Argument, Option

from warmpot._files import is_unused
from warmpot._run_files import PAGE, RESULTS
from warmpot.cli import _flags
from warmpot.cli._data_files import (
    ColumnFlags,
    DataFiles,
    absolute_file,
    describe_task,
    held_out_task,
    nested_changes,
    remembered_files,
)
from warmpot.cli._interrupt import on_interrupt, start_again
from warmpot.cli._shared import (
    SETTING_OF_FLAG,
    default_out,
    facts_grid,
    given_once,
    heavy_imports,
    messages,
    present_classes,
    quoted,
    score,
    show,
    show_written,
)
from warmpot.cli.report import open_page, write_report
from warmpot.errors import InputError

if TYPE_CHECKING:
    from warmpot.data import Truth
    from warmpot.train import Fitted, RunConfig

__all__ = ["fit"]

SOURCE_FORMS = "Labelled file (.npz, .csv, .tsv, .parquet), folder or list of images."
SOURCE = Annotated[Path | None, Argument(metavar="SOURCE", help=SOURCE_FORMS)]
TARGET = Annotated[Path | None, Argument(metavar="TARGET", help="Target data; labels in it are not used for training.")]
OUT = Annotated[Path | None, Option("--out", "-o", help="New folder. [default: runs/SOURCE-TARGET-PRESET]")]
METHOD = Annotated[str | None, _flags.training(metavar="NAME", help="See `warmpot methods`. [default: the preset's]")]
WEIGHTING = "How source samples are weighted; see `warmpot methods`. [default: the preset's]"
WEIGHTS = Annotated[str | None, _flags.training(metavar="NAME", help=WEIGHTING)]
PRESET_DEFAULT = "Named settings; `warmpot methods --all` lists them. [default: the method's for features, or full]"
PRESET = Annotated[str | None, _flags.training(metavar="NAME", help=PRESET_DEFAULT)]
CONFIG = Annotated[Path | None, _flags.training(help="YAML file with settings that replace the preset's.")]
TARGET_SHARE = "Share of the target to match, in (0, 1], for warmpot and mpot; auto for warmpot."
ALPHA = Annotated[str | None, _flags.training(metavar="NUMBER", help=TARGET_SHARE)]
SOURCE_SHARE = "Share of the source that is relevant, in (0, 1], for warmpot; or auto."
BETA = Annotated[str | None, _flags.training(metavar="NUMBER", help=SOURCE_SHARE)]
SEED = Annotated[int | None, _flags.training(help="Random seed. [default: 0]")]
VALIDATOR = "Validator that chooses the best round. [default: last round]"
CHOOSE = Annotated[str | None, _flags.training(metavar="NAME", help=VALIDATOR)]
FRESH = "Share of the target to hold out, for `warmpot bound` to certify the result with. [default: 0]"
HOLDOUT = Annotated[float | None, _flags.training(metavar="SHARE", help=FRESH)]
RESUME = Annotated[Path | None, Option(help="Resume the run in this folder, with its settings.")]


def fit(
    source: SOURCE = None,
    target: TARGET = None,
    source_: _flags.SOURCE_OPTION = None,
    target_: _flags.TARGET_OPTION = None,
    out: OUT = None,
    method: METHOD = None,
    weights: WEIGHTS = None,
    preset: PRESET = None,
    config: CONFIG = None,
    settings: _flags.SETTINGS = None,
    alpha: ALPHA = None,
    beta: BETA = None,
    seed: SEED = None,
    choose: CHOOSE = None,
    holdout: HOLDOUT = None,
    label: _flags.LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    regression: _flags.REGRESSION = False,
    resume: RESUME = None,
    devices: _flags.DEVICES = None,
    num_nodes: _flags.NUM_NODES = None,
    accelerator: _flags.ACCELERATOR = None,
    strategy: _flags.STRATEGY = None,
    precision: _flags.PRECISION = None,
    backbone: _flags.BACKBONE = None,
    backbone_weights: _flags.BACKBONE_WEIGHTS = None,
    fine_tune: _flags.FINE_TUNE = None,
    train_from: _flags.TRAIN_FROM = None,
    cache: _flags.CACHE = False,
    root: _flags.ROOT = None,
    classes: _flags.CLASSES = None,
    corrupt: _flags.CORRUPT_FILES = "raise",
    workers: _flags.WORKERS = None,
    no_report: _flags.NO_REPORT = False,
    browse: _flags.OPEN = False,
    quiet: _flags.QUIET = False,
) -> None:
    """Train on a labelled SOURCE and an unlabelled TARGET.

    Writes a folder with the model, the predictions for the target, the weights of the source samples, and everything
    needed to resume after a stop. Flags override the YAML file, which overrides the preset.
    """
    flags = dict(locals())  # the parameters by name: nothing else is bound yet
    verbose = not quiet and _process_rank() == 0
    with messages(verbose) as note:
        request = _resolve_flags(flags, note)
        if not (request.resume and all((request.folder / name).is_file() for name in RESULTS)):
            _train(request, note, verbose, report=not no_report, browse=browse)
        elif verbose:
            show(f"{request.folder}: this run is finished, nothing is left to do.")
            show(f"Use it with: warmpot predict {quoted(request.folder)} DATA --out predictions.csv")
            if not no_report and not (request.folder / PAGE).exists():
                show(f"Write its report with: warmpot report {quoted(request.folder)}")


def _train(request: _RunRequest, note: Callable[..., None], verbose: bool, *, report: bool, browse: bool) -> None:
    """Train and print a summary. The report comes last."""
    from warmpot.select.best_iterate import fit_chosen
    from warmpot.train.run_folder import read_facts

    folder, data, config = request.folder, request.data, request.config
    if request.unused_engine:
        used = f"the preset {config.preset} runs the engine {config.engine}"
        note(f"settings of the engine {request.unused_engine} have no effect: {used}", "yellow")
    bar = None if verbose else False
    device = "cpu" if config.minibatch.hardware.accelerator == "cpu" else "auto"
    task, truth = data.read(config.images, bar, device)
    if config.holdout and task.held_out is None:  # a resumed run knows its rows
        from warmpot.data.task import draw_rows

        task, truth = held_out_task(task, truth, draw_rows(task.n_target, config.holdout, config.seed))
    note(f"{describe_task(task)} -> {folder}")
    resume = f"resume with: warmpot fit --resume {quoted(folder)}"
    on_interrupt(lambda: resume if read_facts(folder) else start_again())  # without facts nothing was written yet
    start = time.perf_counter()
    fitted = fit_chosen(task, config, out=folder, resume=request.resume, progress_bar=bar, facts=data.facts())
    seconds = time.perf_counter() - start
    page = write_report(fitted, task, truth, verbose) if report and _process_rank() == 0 else None
    if verbose:
        show(f"{data.source.name} -> {data.target.name}", style="bold")
        show(facts_grid(_summary(fitted, truth, seconds)))
        if fitted.predictor.classes:  # not in the grid, because names of classes can be long
            show("", f"Classes estimated to be present: {present_classes(fitted)}")
        show_written(folder)
        if page is not None:
            show(f"Report: {page}")
    if browse and page is not None:
        open_page(page)


def _summary(fitted: Fitted, truth: Truth | None, seconds: float) -> list[tuple[str, ...]]:
    """Return the rows of the summary."""
    from warmpot.methods import METHODS
    from warmpot.weights import effective_share

    config, outputs = fitted.config, fitted.outputs
    rows: list[tuple[str, ...]] = [("method", config.method, f"preset {config.preset}, seed {config.seed}")]
    usual = METHODS[config.method].weights  # of the method's paper
    if config.weights != usual:
        replaced = "the row sums of its own plan" if usual == "own" else usual
        rows.append(("weights", str(config.weights), f"in place of {replaced}"))
    unit = "round" if config.engine == "full" else "step"
    if config.choose == "last":
        rows.append(("result", f"{unit} {fitted.step} (last)"))
    else:
        rows.append(("result", f"{unit} {fitted.step} (best by {config.choose})", _why_chosen(fitted)))
    rows.append(("time", f"{seconds:.1f} s", "without reading the files"))
    rows.append(("target samples", f"{len(outputs)}"))
    if fitted.predictor.classes:
        import torch

        from warmpot.train.health import effective_classes

        value = f"{effective_classes(torch.as_tensor(outputs)):.1f} of {len(fitted.predictor.classes)}"
        rows.append(("effective classes", value, "exp of the entropy of the mean prediction"))
    share = f"{effective_share(fitted.training_weights):.0%}"
    rows.append(("effective source", share, "source samples that carry the weight"))
    if (verdict := fitted.verdict) is not None:
        rows.append(("verdict", verdict.state, verdict.reason))
    return [*rows, *_gain(fitted, truth), *score(outputs, truth)]


def _why_chosen(fitted: Fitted) -> str:
    """Return a note on the choice of an iterate; for a method that starts trained, what training changed."""
    scores = {line["step"]: line["score"] for line in fitted.history if "score" in line}
    if not fitted.config.built_method.starts_trained or 0 not in scores:
        return "chosen without target labels"
    if fitted.step == 0:
        return "frozen features: fine-tuning did not raise the score"
    return f"score {scores[fitted.step]:.3f}, frozen features {scores[0]:.3f}"


def _gain(fitted: Fitted, truth: Truth | None) -> list[tuple[str, ...]]:
    """Return what the adaptation changed, compared with the fit on the source alone, if the run has one."""
    if fitted.unadapted is None or not fitted.config.built_method.uses_target:
        return []
    rows: list[tuple[str, ...]] = []
    if fitted.predictor.classes:
        changed = int((fitted.outputs.argmax(axis=1) != fitted.unadapted).sum())
        rows.append(("adaptation", f"changed {changed}", f"of {len(fitted.outputs)} predictions"))
    return rows + [("without adaptation", value, note) for _, value, note in score(fitted.unadapted, truth)]


DATA_FLAGS = ("regression", "root", "classes", "corrupt")
NEW_RUN_ONLY = {
    "out": None, "preset": None, "config": None, "label": None, "ids": None, "features": None, "regression": False,
    "root": None, "classes": None, "corrupt": "raise", "fine_tune": None,
}  # fmt: skip
"""Flags that a resumed run cannot take, with their defaults."""


class _RunRequest(NamedTuple):
    """A run to start or to resume. `unused_engine` is an engine that was given settings although it does not run."""

    folder: Path
    data: DataFiles
    config: RunConfig
    resume: bool = False
    unused_engine: str = ""


def _resolve_flags(flags: Mapping[str, Any], note: Callable[..., None]) -> _RunRequest:
    """Resolve the flags, given by the names of the parameters, before any data is read; `note` prints a status line."""
    source, target = (given_once(side.upper(), flags[side], flags[f"{side}_"]) for side in ("source", "target"))
    given = {setting: flags[flag] for flag, setting in SETTING_OF_FLAG.items() if flags[flag] is not None}
    if not flags["cache"]:  # as if it was not given: the config file may switch it on
        del given["images.cache"]
    if (weights := absolute_file(given.get("images.backbone.weights"))) is not None:
        given["images.backbone.weights"] = weights
    changes = nested_changes(flags["settings"] or [], given)
    if flags["resume"] is not None:
        return _resumed_run(flags, source, target, changes, note)
    if source is None or target is None:
        got, allowed = "no target" if source else "no data", "two files or folders of images (or --resume DIR)"
        raise InputError("SOURCE TARGET", got=got, allowed=allowed, remedy="Run: warmpot fit SOURCE TARGET")
    columns = ColumnFlags(flags["label"], flags["ids"], flags["features"] or ())
    data = DataFiles(source, target, columns, **{name: flags[name] for name in DATA_FLAGS})
    return _new_run(flags, data, changes, note)


def _resumed_run(
    flags: Mapping[str, Any],
    source: Path | None,
    target: Path | None,
    changes: dict[str, Any],
    note: Callable[..., None],
) -> _RunRequest:
    given = [f"--{name.replace('_', '-')}" for name, default in NEW_RUN_ONLY.items() if flags[name] != default]
    if given or changes:
        got = ", ".join(given).replace("--fine-tune", "--fine-tune/--frozen") or "other settings"
        remedy = "The folder has its settings: leave these out, or start a new run."
        raise InputError("--resume", got=got, allowed="no other settings", remedy=remedy)
    folder: Path = flags["resume"]
    note(f"resuming {folder}")

    with heavy_imports():
        from warmpot.train.run_folder import read_config

    return _RunRequest(folder, remembered_files(folder, source, target, "--resume"), read_config(folder), resume=True)


def _new_run(
    flags: Mapping[str, Any], data: DataFiles, changes: dict[str, Any], note: Callable[..., None]
) -> _RunRequest:
    from warmpot.train.recipes import check_names

    check_names(flags["method"], flags["preset"])
    note(f"reading {data.source} and {data.target}")  # before the seconds that the following imports take

    with heavy_imports():
        from warmpot.train.defaults import config_for_data

    config = config_for_data(
        images=data.of_images, regression=data.regression, method=flags["method"], preset=flags["preset"],
        file=flags["config"], changes=changes, fine_tune=flags["fine_tune"],
    )  # fmt: skip
    unused = next((engine for engine in ("full", "minibatch") if engine in changes and engine != config.engine), "")
    return _RunRequest(_new_folder(flags["out"], data, config), data, config, unused_engine=unused)


def _new_folder(out: Path | None, data: DataFiles, config: RunConfig) -> Path:
    """Return the folder of a new run, which must not be in use; `RunFolder` checks again when it writes."""
    if out is None:
        if config.minibatch.hardware.processes > 1 or int(os.environ.get("WORLD_SIZE", 1)) > 1:
            remedy = "Name a new folder."
            raise InputError("--out", got="none", allowed="a folder, for several processes", remedy=remedy)
        out = default_out(data.source, data.target, *_name_parts(config))
    # Only the first process checks: by the time that others do, it may have written files.
    elif _process_rank() == 0 and not is_unused(out):
        remedy = f"Name a new folder, or resume the run in this one: warmpot fit --resume {quoted(out)}"
        got, allowed = "a folder or file that is in use", "a new or empty folder"
        raise InputError(f"--out {out}", got=got, allowed=allowed, remedy=remedy)
    return out


def _name_parts(config: RunConfig) -> list[str]:
    """Return the preset, and the method and weights where they are not the preset's."""
    from warmpot.methods import METHODS
    from warmpot.train.config import load_config

    default = load_config(config.preset)
    method = [config.method] if config.method != default.method else []
    usual = METHODS[config.method].weights if method else default.weights
    return [config.preset, *method, *([str(config.weights)] if config.weights != usual else [])]


def _process_rank() -> int:
    """Return the number of this process as launchers set it: all processes run the command, the first one prints."""
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
    return int(next((os.environ[name] for name in names if os.environ.get(name, "").isdigit()), 0))
