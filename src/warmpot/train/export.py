"""A trained network for other programs: safetensors and ONNX, compared with the original before anything is left."""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from warmpot._checks import check_count
from warmpot._files import atomic_folder
from warmpot._settings import to_mapping
from warmpot.errors import InputError, MissingExtraError, WarmpotError
from warmpot.nets import Network
from warmpot.nets.network import ColumnScale
from warmpot.train.predictor import Predictor
from warmpot.train.rundir import versions

__all__ = ["OPSET", "Agreement", "draw_inputs", "export", "to_onnx"]

ONNX, CARD = "model.onnx", "README.md"
WRITTEN = {ONNX, CARD, "model.safetensors", "model.json", f"{ONNX}.data"}
"""What an export may consist of: a folder with anything else in it is not replaced."""
EXTRA = ("onnx", "onnxruntime", "onnxscript")
OPSET = 18
"""The exporter's own operator set: for any other it converts."""
OPSETS = range(18, 26)
TOLERANCE = 1e-4
"""Largest difference of outputs, per unit of the largest output; float32 networks differ by about 1e-6."""
SPLIT = (1, 4)
"""Where a sample is cut into batches: of 1, of 3, and of the rest."""


@dataclass(frozen=True)
class Agreement:
    """How far the outputs of an exported model are from the original's.

    Attributes
    ----------
    inputs : str
        What was put in, in words.
    batches : tuple of int
        Sizes of the batches.
    differences : mapping of str to float
        Largest absolute difference, by output.
    same : float or None
        Share of samples with the same predicted class; None in regression.
    """

    inputs: str
    batches: tuple[int, ...]
    differences: Mapping[str, float]
    same: float | None

    @property
    def largest(self) -> tuple[str, float]:
        """Name of the output that decides, logits or prediction, and its largest difference."""
        name = "prediction" if self.same is None else "logits"
        return name, self.differences[name]


class _Deployed(nn.Module):
    """What leaves the house: a network with outputs that mean something by themselves."""

    unit: Tensor

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.network = predictor.network
        self.regression = not predictor.classes
        # A tensor, because the exporter rounds plain numbers to float32; labels may lie far from 0 for their spread.
        self.register_buffer("unit", torch.tensor([predictor.centre, predictor.scale], dtype=torch.float64))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        found = self.network(x)
        if self.regression:
            return found.features, self.unit[0] + self.unit[1] * found.logits[:, 0].double()
        return found.features, found.logits, torch.softmax(found.logits, dim=1)


def export(
    predictor: Predictor,
    folder: Path,
    *,
    onnx: bool = True,
    opset: int = OPSET,
    inputs: NDArray[Any] | None = None,
    origin: str = "",
    card: Callable[[Agreement | None], str] | None = None,
) -> Agreement | None:
    """Write a folder that holds all one needs to use a model elsewhere; or, when anything fails, nothing.

    ``model.safetensors`` and ``model.json`` are what `Predictor.load` reads, ``model.onnx`` is what `to_onnx` says,
    ``README.md`` is the card.

    Parameters
    ----------
    predictor : Predictor
    folder : path
        New, empty, or an older export, which is replaced.
    onnx : bool
        Whether to write ``model.onnx`` (extra ``export``).
    opset : int
        Version of the operator set of ONNX, 18 to 25.
    inputs : array, optional
        Samples to compare outputs on, as `Predictor` takes them; default: `draw_inputs`.
    origin : str
        What these are, in words.
    card : function, optional
        Takes the `Agreement` (None without ONNX) and returns the text of the card.

    Returns
    -------
    Agreement or None
        Of ``model.onnx``.
    """
    folder = folder.resolve()
    _check_place(folder)
    if onnx:
        _check_onnx(opset)
    if inputs is None:
        inputs, origin = draw_inputs(predictor), "drawn at random"
    with atomic_folder(folder) as draft:
        predictor.save(draft)
        _check_saved(predictor, draft, inputs)
        found = to_onnx(predictor, draft / ONNX, inputs, opset=opset, origin=origin) if onnx else None
        if card is not None:
            (draft / CARD).write_text(card(found), encoding="utf-8")
    return found


def to_onnx(
    predictor: Predictor, path: Path, inputs: NDArray[Any], *, opset: int = OPSET, origin: str = ""
) -> Agreement:
    """Write ``model.onnx``, run it and compare; a `WarmpotError` when the outputs differ by more than rounding.

    The input is ``x``: images in uint8 (n, 3, height, width), features in float32 (n, d), or in float64 when the
    network standardises columns, which may lie far from 0 for their spread. The outputs are ``features``, and
    ``logits`` and ``probabilities`` of classes, or ``prediction`` in units of the labels. The number of samples n is
    free. Class names, names of columns, versions, and how images are cut are in the metadata, as JSON.

    Parameters
    ----------
    predictor, opset, origin
        As in `export`.
    path : path
        File to write.
    inputs : array
        Samples to compare outputs on; their shape is that of the input.
    """
    _check_onnx(opset)
    sample = np.ascontiguousarray(inputs, dtype=_input_type(predictor, inputs))
    _write(predictor, path, sample, opset)
    return _compared(predictor, path, inputs, sample, origin)


def draw_inputs(predictor: Predictor, n: int = 64, *, seed: int = 0) -> NDArray[Any]:
    """Draw inputs that a network without its data can be tried on.

    Columns of a network that standardises them are drawn from their centres and spreads, other features from the
    standard normal distribution, and images, 8 at most, are noise.

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


def _input_type(predictor: Predictor, inputs: NDArray[Any]) -> type[np.generic]:
    if inputs.dtype == np.uint8:
        return np.uint8
    return np.float64 if isinstance(predictor.network.scale, ColumnScale) else np.float32


def _check_place(folder: Path) -> None:
    """Refuse a folder that would fail, or whose files would be lost."""
    got, allowed, remedy = "", "a new or empty folder, or an older export", "Name another folder with --out."
    if not folder.parent.is_dir():
        got, allowed, remedy = (
            "no folder above it",
            "a folder that exists",
            f"Make it first: mkdir -p '{folder.parent}'",
        )
    elif folder.exists() and not folder.is_dir():
        got = "a file"
    elif folder.is_dir() and (other := sorted({entry.name for entry in folder.iterdir()} - WRITTEN)):
        got = f"a folder with {other[0]!r} in it"
    if got:
        raise InputError(str(folder), got=got, allowed=allowed, remedy=remedy)


def _check_onnx(opset: int) -> None:
    missing = [name for name in EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        remedy = "Install it: pip install 'warmpot[export]'."
        raise MissingExtraError(", ".join(missing), got="not installed", allowed="installed", remedy=remedy)
    check_count("opset", opset)
    if opset not in OPSETS:
        remedy = f"Leave it out: {OPSET} is what most programs read."
        raise InputError("opset", got=opset, allowed=f"{OPSETS[0]} to {OPSETS[-1]}", remedy=remedy)


def _applied(network: Network, inputs: NDArray[Any]) -> tuple[Tensor, Tensor]:
    """Features and logits, in float64, of samples in the precision that they came in."""
    with torch.inference_mode():
        found = network(torch.from_numpy(np.array(inputs)))
    return found.features.double(), found.logits.double()


def _check_saved(predictor: Predictor, folder: Path, inputs: NDArray[Any]) -> None:
    again = _applied(Predictor.load(folder).network, inputs)
    if not all(torch.equal(a, b) for a, b in zip(_applied(predictor.network, inputs), again, strict=True)):
        got, remedy = "a network that says something else when it is read again", "Please report this."
        raise WarmpotError("model.safetensors", got=got, allowed="the same network", remedy=remedy)


def _write(predictor: Predictor, path: Path, sample: NDArray[Any], opset: int) -> None:
    names = ["features", *(["logits", "probabilities"] if predictor.classes else ["prediction"])]
    two = torch.from_numpy(sample[[0, -1]])  # of one sample, torch would take the number for a constant
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of torch, about its own workings
            program = torch.onnx.export(
                _Deployed(predictor).eval(), (two,), dynamo=True, input_names=["x"], output_names=names,
                dynamic_shapes=({0: torch.export.Dim("batch")},), opset_version=opset, verbose=False,
            )  # fmt: skip
    except Exception as error:  # the exporter raises almost anything
        got, remedy = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", "Export without ONNX."
        raise WarmpotError(ONNX, got=got, allowed="a network that torch can export", remedy=remedy) from error
    assert program is not None  # of the old exporter only
    for node in program.model.graph.all_nodes():
        node.metadata_props.clear()  # lines of source code with paths of this machine
    facts: dict[str, Any] = {"classes": predictor.classes, "columns": predictor.columns, "versions": versions()}
    if predictor.images is not None:
        facts["view"] = to_mapping(predictor.images.view)
    program.model.metadata_props.update({name: json.dumps(value) for name, value in facts.items()})
    program.save(path, external_data=False)


def _compared(
    predictor: Predictor, path: Path, inputs: NDArray[Any], sample: NDArray[Any], origin: str
) -> Agreement:  # fmt: skip
    """Run the file on batches of several sizes, and hold it against the network in torch."""
    features, logits = _applied(predictor.network, inputs)
    # what is wanted, and where an output lies and how wide it is: rounding is relative to that
    wanted = {"features": (features, 0.0, 1.0), "logits": (logits, 0.0, 1.0)}
    wanted["probabilities"] = (torch.softmax(logits, dim=1), 0.0, 1.0)
    if not predictor.classes:
        values = predictor.centre + predictor.scale * logits[:, 0]
        wanted = {"features": wanted["features"], "prediction": (values, predictor.centre, predictor.scale)}
    batches = [batch for batch in np.split(sample, SPLIT) if len(batch)]
    found = _run(path, list(wanted), batches)
    differences = {}
    for name, (expected, centre, unit) in wanted.items():
        difference = float(np.abs(found[name] - expected.numpy()).max())
        allowed = TOLERANCE * max(unit, float((expected - centre).abs().max()))
        if found[name].shape != expected.shape or not difference <= allowed:  # NaN is not
            remedy = "Try another --opset, or export without ONNX; please report it. Nothing was written."
            got = f"{name} that differ by {difference:.3g} from the model's"
            raise WarmpotError(ONNX, got=got, allowed=f"up to {allowed:.3g}", remedy=remedy)
        differences[name] = difference
    same = float((found["logits"].argmax(axis=1) == logits.argmax(dim=1).numpy()).mean()) if predictor.classes else None
    return Agreement(origin, tuple(map(len, batches)), differences, same)


def _run(path: Path, names: list[str], batches: list[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        parts = [session.run(names, {"x": batch}) for batch in batches]
    except Exception as error:  # its errors have no common base but this
        got, remedy = str(error).strip().partition("\n")[0], "Try another --opset, or export without ONNX."
        raise WarmpotError(ONNX, got=got, allowed="a model that onnxruntime runs", remedy=remedy) from error
    return {name: np.concatenate([part[k] for part in parts]) for k, name in enumerate(names)}
