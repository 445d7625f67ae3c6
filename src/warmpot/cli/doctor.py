"""``warmpot doctor``: what is wrong with this machine, or with these files, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from warmpot.cli._data_files import DataFiles
from warmpot.cli._image_flags import CLASSES
from warmpot.cli._machine import CHECKS, Finding
from warmpot.cli._shared import LABEL_HELP, REGRESSION_HELP, messages, one_line, show
from warmpot.errors import InputError

__all__ = ["doctor"]

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
DATASET_HELP = (
    "Data set to look at instead: office-31, office-home, imagenet-caltech, visda-2017 or domainnet. "
    "Without --root: what is expected, and where to get it."
)


def doctor(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="Labelled file, folder or list of images to check."),
    ] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TARGET", help="The same of the target.")] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP)] = None,
    regression: Annotated[bool, typer.Option("--regression", help=REGRESSION_HELP)] = False,
    dataset: Annotated[str | None, typer.Option(help=DATASET_HELP)] = None,
    root: Annotated[
        Path | None,
        typer.Option(help="Folder of the data set of --dataset, or that paths in a list start from."),
    ] = None,
    classes: CLASSES = None,
) -> None:
    """Check the installation, and two files when they are named; or the folders of a data set.

    Every line says ok, warn or fail, and what to fix. The exit code is 1 when anything fails.
    """
    if dataset is None and root is not None and source is None:
        raise InputError("--root", got=root, allowed="--dataset with it", remedy="Name the data set.")
    if dataset is not None and source is not None:
        got, remedy = f"{source} with --dataset", "Ask for one of the two."
        raise InputError("SOURCE TARGET", got=got, allowed="no files", remedy=remedy)
    if source is not None and target is None:
        remedy = "Name both files, or none to check the installation."
        raise InputError("SOURCE TARGET", got="one file", allowed="two files or none", remedy=remedy)
    if dataset is not None and root is None:
        from warmpot.cli._dataset_checks import describe_dataset

        show(*describe_dataset(dataset))
        return
    if dataset is not None and root is not None:
        from warmpot.cli._dataset_checks import check_dataset

        _report(check_dataset(dataset, root))
    else:
        files = None
        if source is not None and target is not None:
            files = DataFiles(source, target, label, regression, root, classes)
        _report(_findings(files))


def _report(findings: Iterator[Finding]) -> None:
    counts = dict.fromkeys(STYLES, 0)
    with messages(wanted=True):
        for finding in findings:
            counts[finding.level] += 1
            _print(finding)
    show("", f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to fix")
    if counts["fail"]:
        raise typer.Exit(1)


def _findings(files: DataFiles | None) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        yield from _survived(name, check)
    if files is not None:
        from warmpot.cli._data_checks import check_data

        yield from check_data(files)


def _survived(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # a broken installation raises anything, and a doctor must not die of it
        text = f"{type(error).__name__}: {one_line(error)}. Reinstall: pip install --force-reinstall warmpot"
        yield Finding("fail", name, text)


def _print(finding: Finding) -> None:
    from rich.text import Text

    show(Text.assemble((f"{finding.level:<6}", STYLES[finding.level]), f"{finding.what:<18}", finding.text))
