"""``warmpot export``: a finished run for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warmpot.cli._data_files import remembered_files
from warmpot.cli._shared import complain, facts_grid, messages, read_side, show
from warmpot.cli.predict import load_finished
from warmpot.errors import WarmpotError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warmpot.cli._data_files import DataFiles
    from warmpot.data.lazy import Rows
    from warmpot.train import Predictor

__all__ = ["export"]

ROWS, IMAGES = 256, 8
"""Samples to compare outputs on."""


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder that `warmpot fit` wrote.")],
    onnx: Annotated[bool, typer.Option("--onnx", help="Write model.onnx too (extra export).")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder, or an older export. [default: RUN/export]")
    ] = None,
    opset: Annotated[int, typer.Option(help="Operator set of ONNX, 18 to 25.")] = 18,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Write a folder to share: the model of a finished RUN, and a card that says what it is.

    The folder has model.safetensors and model.json, which `warmpot predict` takes, README.md, the card, and with
    --onnx model.onnx. What was written is run and compared with the model; if it differs, nothing is left.
    """
    from warmpot.report.card import model_card
    from warmpot.train.export import export as write

    folder = run / "export" if out is None else out
    with messages(not quiet):
        predictor = load_finished(run)
        inputs, origin = _inputs(run, predictor) if onnx else (None, "")
        if onnx and not quiet:
            complain("exporting", "dim")
        found = write(
            predictor, folder, onnx=onnx, opset=opset, inputs=inputs, origin=origin,
            card=lambda agreement: model_card(run, agreement),
        )  # fmt: skip
    if quiet:
        return
    if found is not None:
        name, difference = found.largest
        rows = [(name, f"within {difference:.2g}", f"of the model's, on {sum(found.batches)} inputs ({found.inputs})")]
        if found.same is not None:
            rows.append(("same class", f"{found.same:.1%}", "of them"))
        show(facts_grid(rows), "")
    show(f"Wrote {folder}: {', '.join(sorted(entry.name for entry in folder.iterdir()))}")


def _inputs(run: Path, predictor: Predictor) -> tuple[NDArray[Any] | None, str]:
    """Return samples of the run's target, spread over its rows; None when it is not there any more, or has changed."""
    import numpy as np

    try:
        data = remembered_files(run, None, None, "RUN")
        x = _target(data, predictor)
        view = predictor.images.view if predictor.images else None
        if x.shape[1:] != ((3, view.crop, view.crop) if view else (predictor.width,)):
            return None, ""
        rows = np.unique(np.linspace(0, len(x) - 1, IMAGES if view else ROWS).astype(int))
        return np.asarray(x[rows]), f"rows of {data.target.name}"
    except WarmpotError:
        return None, ""


def _target(data: DataFiles, predictor: Predictor) -> Rows:
    """Return the target's samples; its labels, if any, stay behind."""
    if predictor.images is not None:
        from warmpot.data.images import load_images

        return load_images(data.target, root=data.root, classes=data.classes, view=predictor.images.view).x
    from warmpot.data.task import in_order

    table = read_side(data.target, data.label, regression=data.regression, needed=False)
    return in_order(table, predictor.columns, "the columns of the run").x
