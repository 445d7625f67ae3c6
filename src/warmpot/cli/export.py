"""``warmpot export``: write a finished run in formats that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from warmpot.cli import _flags
from warmpot.cli._data_files import read_table, remembered_files
from warmpot.cli._shared import facts_grid, messages, show, show_written
from warmpot.cli.predict import load_finished
from warmpot.errors import InputError, WarmpotError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from warmpot.train import Predictor

__all__ = ["export"]

OUT = Annotated[Path | None, Option("--out", "-o", help="New folder, or an earlier export. [default: RUN/export]")]
ROWS, IMAGES = 256, 8  # number of samples on which the exported model is compared with the original


def export(
    run: _flags.RUN,
    onnx: Annotated[bool, Option("--onnx", help="Also write model.onnx (needs the extra export).")] = False,
    out: OUT = None,
    opset: Annotated[int, Option(help="Operator set of ONNX, 18 to 25.")] = 18,
    quiet: _flags.QUIET = False,
) -> None:
    """Write a folder to share, with the model of a finished RUN.

    The folder holds model.safetensors and model.json, which `warmpot predict` reads, a model card (README.md) and, with
    --onnx, model.onnx. The written model is run and compared with the original; if they differ, nothing is kept.
    """
    from warmpot.report.card import model_card
    from warmpot.train.export import export as write

    folder = run / "export" if out is None else out
    if folder.exists() and run.exists() and folder.samefile(run):
        remedy = "Name another folder with --out."
        raise InputError("--out", got=f"{folder}, which is RUN", allowed="another folder", remedy=remedy)
    with messages(not quiet) as note:
        predictor = load_finished(run)
        inputs, origin = _inputs(run, predictor) if onnx else (None, "")
        if onnx:
            note("exporting")
        agreement = write(
            predictor, folder, onnx=onnx, opset=opset, inputs=inputs, origin=origin,
            card=lambda agreement: model_card(run, agreement),
        )  # fmt: skip
    if quiet:
        return
    if agreement is not None:
        output, difference = agreement.largest
        on = f"on {sum(agreement.batches)} inputs ({agreement.inputs})"
        rows = [(output, f"within {difference:.2g}", f"of the original model's, {on}")]
        if agreement.same is not None:
            rows.append(("same class", f"{agreement.same:.1%}", "of these inputs"))
        show(facts_grid(rows), "")
    show_written(folder)


def _inputs(run: Path, predictor: Predictor) -> tuple[NDArray[Any] | None, str]:
    """Return some target samples of the run; None if the data has moved or changed."""
    import numpy as np

    from warmpot.data import load_images

    view = predictor.images.view if predictor.images else None
    try:
        data = remembered_files(run, None, None, "RUN")
        if view:
            x = load_images(data.target, root=data.root, classes=data.classes, view=view).x
        else:
            options: dict[str, Any] = {"regression": data.regression, "columns": predictor.columns}
            x = read_table(data.target, data.flags, needs_label=False, needs_ids=False, **options).x
        if x.shape[1:] != ((3, view.crop, view.crop) if view else (predictor.width,)):
            return None, ""
        rows = np.unique(np.linspace(0, len(x) - 1, IMAGES if view else ROWS).astype(int))
        return np.asarray(x[rows]), f"rows of {data.target.name}"
    except WarmpotError:
        return None, ""
