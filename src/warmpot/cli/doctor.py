"""``warmpot doctor``: what is wrong with this machine, or with these files, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from warmpot.cli._machine import CHECKS, Finding
from warmpot.cli._shared import LABEL_HELP, REGRESSION_HELP, messages, one_line, show
from warmpot.errors import InputError, explain

__all__ = ["doctor"]

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    source: Annotated[Path | None, typer.Argument(metavar="SOURCE", help="Labelled file to look at as well.")] = None,
    target: Annotated[Path | None, typer.Argument(metavar="TARGET", help="File of the target.")] = None,
    label: Annotated[str | None, typer.Option(help=LABEL_HELP)] = None,
    regression: Annotated[bool, typer.Option("--regression", help=REGRESSION_HELP)] = False,
) -> None:
    """Check the installation, and two files when they are named.

    Every line says ok, warn or fail, and what to fix. The exit code is 1 when anything fails.
    """
    if source is not None and target is None:
        remedy = "Name both files, or none to check the installation."
        raise InputError(explain("SOURCE TARGET", got="one file", allowed="two files or none", remedy=remedy))
    counts = dict.fromkeys(STYLES, 0)
    with messages(wanted=True):
        for finding in _findings(source, target, label, regression):
            counts[finding.level] += 1
            _print(finding)
    show("", f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to fix")
    if counts["fail"]:
        raise typer.Exit(1)


def _findings(source: Path | None, target: Path | None, label: str | None, regression: bool) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        yield from _survived(name, check)
    if source is not None and target is not None:
        from warmpot.cli._data_checks import check_data

        yield from check_data(source, target, label=label, regression=regression)


def _survived(name: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except Exception as error:  # a broken installation raises anything, and a doctor must not die of it
        text = f"{type(error).__name__}: {one_line(error)}. Reinstall: pip install --force-reinstall warmpot"
        yield Finding("fail", name, text)


def _print(finding: Finding) -> None:
    from rich.text import Text

    show(Text.assemble((f"{finding.level:<6}", STYLES[finding.level]), f"{finding.what:<18}", finding.text))
