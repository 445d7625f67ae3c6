"""Export of a trained network to safetensors and ONNX, compared with the original before anything is kept."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from warmpot._checks import check_count
from warmpot._files import atomic_folder, is_unused, read_json
from warmpot._run_files import MODEL_FACTS, MODEL_TENSORS
from warmpot._settings import to_mapping
from warmpot.errors import InputError, MissingExtraError, WarmpotError
from warmpot.nets import Network
from warmpot.nets.network import ColumnScale
from warmpot.train.predictor import Predictor
from warmpot.train.run_folder import versions

__all__ = ["OPSET", "Agreement", "draw_inputs", "export", "to_onnx"]

ONNX, CARD = "model.onnx", "README.md"
EXPORT_FILES = {ONNX, CARD, MODEL_TENSORS, MODEL_FACTS, f"{ONNX}.data"}
"""Files that an export may consist of: a folder that contains anything else is not replaced."""
PACKAGES = ("onnx", "onnxruntime", "onnxscript")
OPSET = 18
"""The exporter's own operator set; for others it has to convert."""
OPSETS = range(18, 26)
TOLERANCE = 1e-4
"""Largest difference of outputs, relative to the largest output; float32 networks differ by about 1e-6."""
SPLIT = (1, 4)
"""Where the samples are split into batches: of 1, of 3, and of the rest."""


@dataclass(frozen=True)
class Agreement:
    """Largest absolute differences, by output, between an exported model and the original.

    `inputs` describes the inputs, `batches` are the sizes of their batches; `same` is the share of samples with
    the same predicted class, None in regression.
    """

    inputs: str
    batches: tuple[int, ...]
    differences: Mapping[str, float]
    same: float | None

    @property
    def largest(self) -> tuple[str, float]:
        """Name of the main output, logits or prediction, and its largest difference."""
        name = "prediction" if self.same is None else "logits"
        return name, self.differences[name]


class _ExportedNetwork(nn.Module):
    """A network with outputs that can be used without this package."""

    unit: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.network = predictor.network
        self.regression, self.temperature = not predictor.classes, predictor.temperature
        # A float64 tensor, because the exporter rounds plain numbers to float32, and targets may have a mean that is
        # much larger than their standard deviation.
        self.register_buffer("unit", torch.tensor([predictor.centre, predictor.scale], dtype=torch.float64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = self.network(x)
        if self.regression:
            return outputs.features, self.unit[0] + self.unit[1] * outputs.logits[:, 0].double()
        return outputs.features, outputs.logits, torch.softmax(outputs.logits / self.temperature, dim=1)


def export(
    predictor: Predictor, folder: Path, *, onnx: bool = True, opset: int = OPSET, inputs: NDArray[Any] | None = None,
    origin: str = "", card: Callable[[Agreement | None], str] | None = None,
) -> Agreement | None:  # fmt: skip
    """Write a folder with all that is needed to use a model elsewhere; if anything fails, nothing is written.

    ``model.safetensors`` and ``model.json`` are read by `Predictor.load`, ``model.onnx`` is described under `to_onnx`,
    ``README.md`` is the model card.

    Parameters
    ----------
    predictor : Predictor
    folder : path
        New, empty, or an older export, which is replaced.
    onnx, opset : bool and int
        Whether to write ``model.onnx`` (extra ``export``), and the version of its operator set, 18 to 25.
    inputs, origin : array and str, optional
        Samples for comparing the outputs, as `Predictor` takes them, and their description; default: `draw_inputs`.
    card : function, optional
        Takes the `Agreement` of ``model.onnx``, which is also returned (None without ONNX); returns the card's text.
    """
    folder = folder.resolve()
    _check_folder(folder)
    if onnx:
        _check_onnx(opset)
    if inputs is None:
        inputs, origin = draw_inputs(predictor), "drawn at random"
    with atomic_folder(folder) as draft:
        predictor.save(draft)
        _check_saved(predictor, draft, inputs)
        agreement = to_onnx(predictor, draft / ONNX, inputs, opset=opset, origin=origin) if onnx else None
        if card is not None:
            (draft / CARD).write_text(card(agreement), encoding="utf-8")
    return agreement


def to_onnx(
    predictor: Predictor, path: Path, inputs: NDArray[Any], *, opset: int = OPSET, origin: str = ""
) -> Agreement:
    """Write ``model.onnx``, run it and compare; a `WarmpotError` when the outputs differ by more than rounding.

    The input is ``x``: images in uint8 (n, 3, height, width), features in float32 (n, d), or in float64 when the
    network standardises columns, whose means may be much larger than their standard deviations. The outputs are
    ``features``, and ``logits`` and ``probabilities`` of classes, or ``prediction`` in units of the targets. The number
    of samples n is free. Class names, column names, versions and the view settings of images are in the metadata, as
    JSON. Arguments are as in `export`; the shape of `inputs` is that of the input.
    """
    _check_onnx(opset)
    dtype = np.float64 if isinstance(predictor.network.scale, ColumnScale) else np.float32
    sample = np.ascontiguousarray(inputs, dtype=np.uint8 if inputs.dtype == np.uint8 else dtype)
    _write(predictor, path, sample, opset)
    return _compare(predictor, path, inputs, sample, origin)


def draw_inputs(predictor: Predictor, n: int = 64, *, seed: int = 0) -> NDArray[Any]:
    """Draw random inputs to test a network without its data.

    Columns of a network that standardises them are drawn with their centres and spreads, other features from the
    standard normal distribution; images, at most 8, are noise.

    Examples
    --------
    >>> from warmpot.nets import NetworkSettings, build_network
    >>> settings = NetworkSettings(width=3)
    >>> predictor = Predictor(build_network(settings, 5, 2, seed=0).eval(), settings, ("cat", "dog"))
    >>> draw_inputs(predictor).shape
    (64, 5)
    """
    rng, network = np.random.default_rng(seed), predictor.network
    if predictor.images is not None:
        side = predictor.images.view.crop
        return rng.integers(0, 256, size=(min(n, 8), 3, side, side), dtype=np.uint8)
    rows = rng.normal(size=(n, network.n_inputs))
    if isinstance(network.scale, ColumnScale):
        spread = network.scale.spread.double()
        centre, spread = network.scale.centre.double().sum(dim=0), torch.where(spread.isfinite(), spread, 0.0)
        rows = centre.numpy() + spread.numpy() * rows
    return rows


def _check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, or whose files would be lost."""
    got, allowed, remedy = "", "a new or empty folder, or an older export", "Name another folder with --out."
    if not folder.parent.is_dir():
        got, allowed = "no folder above it", "a folder that exists"
        remedy = f"Make it first: mkdir -p '{folder.parent}'"
    elif folder.exists() and not folder.is_dir():
        got = "a file"
    elif not is_unused(folder) and (other := sorted({entry.name for entry in folder.iterdir()} - EXPORT_FILES)):
        got = f"a folder with {other[0]!r} in it"
    elif not is_unused(folder) and not _is_export(folder):
        got = f"a folder with {min(entry.name for entry in folder.iterdir())!r}, but without a model that was exported"
    if got:
        raise InputError(str(folder), got=got, allowed=allowed, remedy=remedy)


def _is_export(folder: Path) -> bool:
    """Whether the files in a folder are of an export: other programs, too, call a file model.json."""
    with suppress(ValueError, OSError):
        facts = read_json(folder / MODEL_FACTS)
        return isinstance(facts, dict) and {"network", "facts"} <= set(facts) and (folder / MODEL_TENSORS).is_file()
    return False


def _check_onnx(opset: int) -> None:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "Install it: pip install 'warmpot[export]'."
        raise MissingExtraError(", ".join(missing), got="not installed", allowed="installed", remedy=remedy)
    check_count("opset", opset)
    if opset not in OPSETS:
        remedy = f"Leave it out: {OPSET} is what most programs read."
        raise InputError("opset", got=opset, allowed=f"{OPSETS[0]} to {OPSETS[-1]}", remedy=remedy)


def _outputs(network: Network, inputs: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Return features and logits, in float64, of samples in their own precision."""
    with torch.inference_mode():
        outputs = network(torch.from_numpy(np.array(inputs)))
    return outputs.features.double(), outputs.logits.double()


def _check_saved(predictor: Predictor, folder: Path, inputs: NDArray[Any]) -> None:
    loaded = _outputs(Predictor.load(folder).network, inputs)
    if not all(torch.equal(a, b) for a, b in zip(_outputs(predictor.network, inputs), loaded, strict=True)):
        got, remedy = "a network with other outputs after loading", "Please report this."
        raise WarmpotError("model.safetensors", got=got, allowed="the same network", remedy=remedy)


def _write(predictor: Predictor, path: Path, sample: NDArray[Any], opset: int) -> None:
    names = ["features", *(["logits", "probabilities"] if predictor.classes else ["prediction"])]
    two = torch.from_numpy(sample[[0, -1]])  # with a single sample, torch would take their number for a constant
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # from torch, about its own internals
            program = torch.onnx.export(
                _ExportedNetwork(predictor).eval(), (two,), dynamo=True, input_names=["x"], output_names=names,
                dynamic_shapes=({0: torch.export.Dim("batch")},), opset_version=opset, verbose=False,
            )  # fmt: skip
    except Exception as error:  # the exporter raises almost anything
        got, remedy = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", "Export without ONNX."
        raise WarmpotError(ONNX, got=got, allowed="a network that torch can export", remedy=remedy) from error
    assert program is not None, "only the old exporter returns None"
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # source lines with paths of this machine
    facts: dict[str, Any] = {"classes": predictor.classes, "columns": predictor.columns, "versions": versions()}
    if predictor.images is not None:
        facts["view"] = to_mapping(predictor.images.view)
    program.model.metadata_props.update({name: json.dumps(value) for name, value in facts.items()})
    program.save(path, external_data=False)


def _compare(predictor: Predictor, path: Path, inputs: NDArray[Any], sample: NDArray[Any], origin: str) -> Agreement:
    """Run the file on batches of several sizes, and compare its outputs with those of the network in torch."""
    features, logits = _outputs(predictor.network, inputs)
    # The expected output, its centre and its unit: rounding errors are relative to these.
    expected = {"features": (features, 0.0, 1.0)}
    if predictor.classes:
        expected |= {"logits": (logits, 0.0, 1.0), "probabilities": (predictor.as_probabilities(logits), 0.0, 1.0)}
    else:
        values = predictor.centre + predictor.scale * logits[:, 0]
        expected["prediction"] = (values, predictor.centre, predictor.scale)
    batches = [batch for batch in np.split(sample, SPLIT) if len(batch)]
    outputs = _run(path, list(expected), batches)
    differences = {}
    for name, (values, centre, unit) in expected.items():
        difference = float(np.abs(outputs[name] - values.numpy()).max())
        allowed = TOLERANCE * max(unit, float((values - centre).abs().max()))
        if outputs[name].shape != values.shape or not difference <= allowed:  # also refuses NaN
            remedy = "Try another --opset, or export without ONNX; please report it. Nothing was written."
            got = f"{name} that differ by {difference:.3g} from the model's"
            raise WarmpotError(ONNX, got=got, allowed=f"up to {allowed:.3g}", remedy=remedy)
        differences[name] = difference
    equal = outputs["logits"].argmax(axis=1) == logits.argmax(dim=1).numpy() if predictor.classes else None
    return Agreement(origin, tuple(map(len, batches)), differences, None if equal is None else float(equal.mean()))


def _run(path: Path, names: list[str], batches: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        parts = [session.run(names, {"x": batch}) for batch in batches]
    except Exception as error:  # its errors have no other common base class
        got, remedy = str(error).strip().partition("\n")[0], "Try another --opset, or export without ONNX."
        raise WarmpotError(ONNX, got=got, allowed="a model that onnxruntime runs", remedy=remedy) from error
    return {name: np.concatenate([part[k] for part in parts]) for k, name in enumerate(names)}
