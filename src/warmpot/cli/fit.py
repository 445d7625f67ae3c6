"""``warmpot fit``: train on a labelled source and an unlabelled target, or resume a run that was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from warmpot._run_files import PAGE
from warmpot.cli import _flags
from warmpot.cli._data_files import describe_task
from warmpot.cli._run_request import RunRequest, method_weights, process_rank, resolve_flags
from warmpot.cli._shared import (
    class_summary,
    complain,
    facts_grid,
    messages,
    quoted,
    score,
    show,
    show_written,
)
from warmpot.cli.report import write_report

if TYPE_CHECKING:
    from warmpot.data import Truth
    from warmpot.train import Fitted

__all__ = ["fit"]


SOURCE = Annotated[
    Path | None,
    Argument(metavar="SOURCE", help="Labelled file (.npz, .csv, .tsv, .parquet), folder or list of images."),
]
TARGET = Annotated[Path | None, Argument(metavar="TARGET", help="Target data; labels in it are not used for training.")]
SOURCE_OPTION = Annotated[Path | None, Option("--source", "-s", help="SOURCE, as an option.")]
TARGET_OPTION = Annotated[Path | None, Option("--target", "-t", help="TARGET, as an option.")]
OUT = Annotated[Path | None, Option("--out", "-o", help="New folder. [default: runs/SOURCE-TARGET-PRESET]")]
METHOD = Annotated[str | None, Option(metavar="NAME", help="See `warmpot methods`. [default: the preset's]")]
WEIGHTS = Annotated[str | None, Option(metavar="NAME", help="How source samples are weighted. [default: the preset's]")]
PRESET = Annotated[
    str | None, Option(metavar="NAME", help="All settings. [default: the method's for features, or full]")
]
CONFIG = Annotated[Path | None, Option(help="YAML file with settings that replace the preset's.")]
ALPHA = Annotated[
    str | None,
    Option(metavar="NUMBER", help="Share of the target to match, in (0, 1], for warmpot and mpot; auto for warmpot."),
]
BETA = Annotated[
    str | None, Option(metavar="NUMBER", help="Share of the source that is relevant, in (0, 1], for warmpot; or auto.")
]
SEED = Annotated[int | None, Option(help="Random seed. [default: 0]")]
CHOOSE = Annotated[
    str | None, Option(metavar="NAME", help="Validator that chooses the best round. [default: last round]")
]
RESUME = Annotated[Path | None, Option(help="Resume the run in this folder, with its settings.")]


def fit(
    source: SOURCE = None,
    target: TARGET = None,
    source_: SOURCE_OPTION = None,
    target_: TARGET_OPTION = None,
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
    label: _flags.LABEL = None,
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
    workers: _flags.DECODERS = None,
    no_report: _flags.NO_REPORT = False,
    quiet: _flags.QUIET = False,
) -> None:
    """Train on a labelled SOURCE and an unlabelled TARGET.

    Writes a folder with the model, the predictions for the target, the weights of the source samples, and everything
    needed to resume after a stop. Flags override the YAML file, which overrides the preset.
    """
    flags = dict(locals())  # the parameters by name: nothing else is bound yet
    verbose = not quiet and process_rank() == 0
    with messages(verbose) as note:
        request = resolve_flags(flags, note)
        if not request.finished:
            _train(request, note, verbose, report=not no_report)
        elif verbose:
            _show_finished(request.folder, report=not no_report)


def _show_finished(folder: Path, report: bool) -> None:
    show(f"{folder}: this run is finished, nothing is left to do.")
    show(f"Use it with: warmpot predict {quoted(folder)} DATA --out predictions.csv")
    if report and not (folder / PAGE).exists():
        show(f"Write its report with: warmpot report {quoted(folder)}")


def _train(request: RunRequest, note: Callable[..., None], verbose: bool, *, report: bool) -> None:
    """Train and print a summary; on Ctrl-C, print how to resume. The report comes last."""
    from warmpot.select.best_iterate import fit_chosen
    from warmpot.train.run_folder import read_facts

    folder, data, config = request.folder, request.data, request.config
    note(f"reading {data.source} and {data.target}")
    if request.unused_engine:
        used = f"the preset {config.preset} runs the engine {config.engine}"
        note(f"settings of the engine {request.unused_engine} have no effect: {used}", "yellow")
    bar = None if verbose else False
    device = "cpu" if config.minibatch.hardware.accelerator == "cpu" else "auto"
    task, truth = data.read(config.images, bar, device)
    note(f"{describe_task(task)} -> {folder}")
    start = time.perf_counter()
    try:
        fitted = fit_chosen(task, config, out=folder, resume=request.resume, progress_bar=bar, facts=data.facts())
    except KeyboardInterrupt:
        if not read_facts(folder):
            raise  # nothing was written yet
        complain(f"interrupted; resume with: warmpot fit --resume {quoted(folder)}", "yellow")
        raise Exit(130) from None
    seconds = time.perf_counter() - start
    if report and process_rank() == 0:
        write_report(fitted, task, truth, verbose)
    if verbose:
        show(f"{data.source.name} -> {data.target.name}", style="bold")
        show(facts_grid(_summary(fitted, truth, seconds)))
        if fitted.predictor.classes:  # not in the grid, because names of classes can be long
            shares = fitted.predictor.class_shares(fitted.outputs)
            show("", f"Classes estimated to be present: {class_summary(shares)}")
        show_written(folder)


def _summary(fitted: Fitted, truth: Truth | None, seconds: float) -> list[tuple[str, ...]]:
    """Return the rows of the summary."""
    from warmpot.weights import effective_share

    config, outputs = fitted.config, fitted.outputs
    rows: list[tuple[str, ...]] = [("method", config.method, f"preset {config.preset}, seed {config.seed}")]
    usual = method_weights(config)
    if config.weights != usual:
        replaced = "the row sums of its own plan" if usual == "own" else usual
        rows.append(("weights", str(config.weights), f"in place of {replaced}"))
    unit = "round" if config.engine == "full" else "step"
    if config.choose == "last":
        rows.append(("result", f"{unit} {fitted.step} (last)"))
    else:
        rows.append(("result", f"{unit} {fitted.step} (best by {config.choose})", "chosen without target labels"))
    rows.append(("time", f"{seconds:.1f} s", "without reading the files"))
    rows.append(("target samples", f"{len(outputs)}"))
    if fitted.predictor.classes:
        import torch

        from warmpot.train.health import effective_classes

        value = f"{effective_classes(torch.as_tensor(outputs)):.1f} of {len(fitted.predictor.classes)}"
        rows.append(("effective classes", value, "exp of the entropy of the mean prediction"))
    share = f"{effective_share(fitted.training_weights):.0%}"
    rows.append(("effective source", share, "share of the source samples that carry the weight"))
    return rows + score(outputs, truth)
