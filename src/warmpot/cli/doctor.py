"""``warmpot doctor``: check the installation, two data files, or the folders of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from warmpot.cli import _flags
from warmpot.cli._data_files import ColumnFlags, DataFiles
from warmpot.cli._doctor_checks import CHECKS, Finding, check_data
from warmpot.cli._shared import complain, messages, one_line, show
from warmpot.errors import InputError, WarmpotError

__all__ = ["doctor"]

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}
DATASET_HELP = (
    "Data set to check instead: office-31, office-home, imagenet-caltech, visda-2017 or domainnet. "
    "Without --root: print the expected folders, and where to get the data."
)
ROOT_HELP = "Folder of the data set of --dataset, or that the paths in a list are relative to."
SOURCE = Annotated[Path | None, Argument(metavar="SOURCE", help="Labelled file, folder or list of images to check.")]


def doctor(
    source: SOURCE = None,
    target: Annotated[Path | None, Argument(metavar="TARGET", help="Target data to check.")] = None,
    label: _flags.LABEL = None,
    ids: _flags.IDS = None,
    features: _flags.FEATURES = None,
    regression: _flags.REGRESSION = False,
    dataset: Annotated[str | None, Option(help=DATASET_HELP)] = None,
    root: Annotated[Path | None, Option(help=ROOT_HELP)] = None,
    classes: _flags.CLASSES = None,
    backbone: _flags.BACKBONE = None,
    backbone_weights: _flags.BACKBONE_WEIGHTS = None,
) -> None:
    """Check the installation, data files or a data set.

    The installation is always checked, unless --dataset is given. Every line starts with ok, warn or fail, and names
    what to fix. What fails is repeated on standard error, and the exit code is 1.
    """
    if dataset is None and root is not None and source is None:
        raise InputError("--root", got=root, allowed="--dataset with it", remedy="Name the data set.")
    if dataset is not None and source is not None:
        got, remedy = f"{source} with --dataset", "Leave one of the two out."
        raise InputError("SOURCE TARGET", got=got, allowed="no files", remedy=remedy)
    if source is not None and target is None:
        remedy = "Name both files, or none to check the installation."
        raise InputError("SOURCE TARGET", got="one file", allowed="two files or none", remedy=remedy)
    if dataset is None:
        flags = ColumnFlags(label, ids, features or ())
        data = DataFiles(source, target, flags, regression, root, classes) if source and target else None
        _report(_check_all(data, {"name": backbone, "weights": backbone_weights}))
    elif root is None:
        show(*_describe_dataset(dataset))
    else:
        _report(_check_dataset(dataset, root))


def _report(findings: Iterator[Finding]) -> None:
    from rich.text import Text

    counts, errors = dict.fromkeys(STYLES, 0), []
    with messages(True):
        for level, subject, text in findings:
            counts[level] += 1
            errors += [f"error: {subject}: {text}"] if level == "fail" else []
            show(Text.assemble((f"{level:<6}", STYLES[level]), f"{subject:<18}", text))
    show("", f"{counts['ok']} ok, {counts['warn']} to look at, {counts['fail']} to fix")
    for error in errors:  # once more, as other commands print them
        complain(error, STYLES["fail"])
    if errors:
        raise Exit(1)


def _check_all(data: DataFiles | None, backbone: Mapping[str, str | None]) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        try:
            yield from check()
        except Exception as error:  # noqa: PERF203 - a broken installation can raise anything; the rest still runs
            text = f"{type(error).__name__}: {one_line(error)}. Reinstall: pip install --force-reinstall warmpot"
            yield Finding("fail", name, text)
    if data is not None:
        from warmpot.nets.backbone import BackboneSettings

        given: dict[str, Any] = {name: value for name, value in backbone.items() if value is not None}
        yield from check_data(data, BackboneSettings(**given))


def _check_dataset(name: str, root: Path) -> Iterator[Finding]:
    """Compare the folders below `root` with those of the data set."""
    from warmpot.data.benchmarks import read_benchmark

    benchmark = read_benchmark(name)
    try:
        yield from (Finding(check.level, check.domain, check.text) for check in benchmark.check(root))
    except (OSError, WarmpotError) as error:
        yield Finding("fail", "root", one_line(error))


def _describe_dataset(name: str) -> Iterator[str]:
    """Describe the expected folders, and where to get the data."""
    from warmpot.data.benchmarks import read_benchmark

    benchmark = read_benchmark(name)
    n_shared = len(benchmark.shared)
    yield f"{benchmark.title}: {benchmark.n_classes} classes in the source, {n_shared} of them in the target"
    yield from ("", benchmark.tree(), "", "There may be a folder `images` between a domain and its classes.", "")
    if benchmark.classes:
        yield f"Classes in the target: {', '.join(benchmark.shared)}"
        yield f"Only in the source: {', '.join(name for name in benchmark.classes if name not in benchmark.shared)}"
    for domain in benchmark.domains:
        if any(folder != class_name for folder, class_name in domain.names.items()):
            pairs = ", ".join(f"{folder} = {class_name}" for folder, class_name in domain.names.items())
            yield f"Classes of {domain.name}: {pairs}"
    yield from ("", "Get it from (warmpot downloads nothing):", *(f"  {place}" for place in benchmark.obtain), "")
    yield f"Terms: {benchmark.licence}"
    yield f"Cite: {benchmark.citation}"
    yield f"Lists: {benchmark.lists}"
    yield f"Note: {benchmark.note}"
    yield from ("", f"Check your copy: warmpot doctor --dataset {name} --root DIR")
