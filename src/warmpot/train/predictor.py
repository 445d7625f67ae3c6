"""A trained network with the meaning of its outputs (class names, or a scale), and what bounds need of it."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from warmpot._checks import check_features, check_matrix
from warmpot._memory import check_memory
from warmpot._run_files import MODEL_FACTS
from warmpot._settings import from_mapping, to_mapping
from warmpot._typing import BoolArray, FloatArray, IntArray
from warmpot.bounds import BoundProblem, head_lipschitz
from warmpot.bounds.levels import at_level
from warmpot.bounds.losses import DEFAULT_LOSS
from warmpot.data import Table, Task
from warmpot.data._columns import find_columns
from warmpot.data.inputs import is_path, of_images, read_samples
from warmpot.data.pixels import Pixels
from warmpot.data.shards import Shards
from warmpot.data.table import LazyRows, Rows, check_names, column_names, sample_shape, take_columns
from warmpot.errors import InputError, listing
from warmpot.nets import Backbone, Network, NetworkSettings, Outputs, load_network, save_network
from warmpot.train.batches import BLOCK, blocks
from warmpot.train.extract import weights_fingerprint
from warmpot.train.hardware import resolve_device
from warmpot.train.images import ImageSettings
from warmpot.weights import estimate_present_classes, needs_review, relative_entropy

__all__ = ["BoundInputs", "Predictor", "apply_network", "bound_inputs", "check_pass_memory"]


PART, LAZY_PART = 2**26, 2**28
"""Bytes that a part of the samples may take, with their features and outputs (`Predictor.in_parts`); more for images:
the processes that decode them start again for every part."""
WHOLE = r"0|-?[1-9]\d{0,17}"  # a whole number that int64 holds, as `str` writes it


def apply_network(network: Network, x: Rows, workers: int = 0) -> Outputs:
    """Features and outputs of all rows, as float64 tensors on the CPU; images are decoded by so many processes."""
    return Outputs(*_all_outputs(network, x, workers)[:2])


def _all_outputs(network: Network, x: Rows, workers: int) -> list[Tensor]:
    """Return features, outputs and, if the network has it, outputs of the fit on the source alone."""
    device = device_of(network)
    parts: list[list[Tensor]] = []
    with torch.inference_mode():
        for block in blocks(x, workers):
            outputs = network(block.to(device))
            first = [] if network.unadapted is None else [network.unadapted(outputs.pooled)]
            parts.append([outputs.features, outputs.logits, *first])
        # moved first: not every device has float64
        return [torch.cat([tensor.cpu().double() for tensor in tensors]) for tensors in zip(*parts, strict=True)]


def device_of(network: Network) -> torch.device:
    """Return the device that a network is on."""
    return next(network.parameters()).device


def check_pass_memory(what: str, network: Network, samples: int, copied: int, remedy: str) -> None:
    """Refuse to apply a network to more samples than memory can hold the outputs of.

    Counted are features and outputs in float64 with the blocks that they are joined from, probabilities, and `copied`
    columns of the data.
    """
    width, outputs = network.head.in_features, network.head.out_features
    size = f"{samples:,} samples x {network.n_inputs:,} features, {outputs:,} outputs"
    check_memory(what, size, 8.0 * samples * (copied + 2 * width + 4 * outputs), remedy)


@dataclass(frozen=True, repr=False)
class Predictor:
    """A trained model, independent of the data it was trained on.

    Samples are an array, a data frame, a `Table`, or the path of a file; of a model that was trained on images also
    images: a folder, a list, Pillow images, arrays or tensors (see `warmpot.data.read_samples`). Named columns are
    matched by name with those that the model was trained on: their order does not matter, and others are ignored.

    Attributes
    ----------
    network : Network
        In evaluation mode, on the CPU unless `to` has moved it.
    settings : NetworkSettings
        Its shape.
    classes : tuple of str
        Class names in the order of the outputs; empty in regression.
    centre, scale : float
        A prediction of a regressor is ``centre + scale * output``.
    columns : tuple of str
        Names of the features it takes, in their order; empty when it was trained without.
    images : ImageSettings or None
        How images are preprocessed; None when it was trained on features. With images it also takes the features of
        its backbone, unless the backbone was trained with it.
    temperature : float
        Outputs are divided by it before they become probabilities (`warmpot.weights.calibration_temperature`); 1 leaves
        them as they were trained. It does not change which class is predicted.
    text_labels : bool
        Whether the labels that it was trained on were texts.
    presence : tuple of float
        Probability of each class to be in the target that it was adapted to; empty if that was not estimated.
    """

    network: Network
    settings: NetworkSettings
    classes: tuple[str, ...]
    centre: float = 0.0
    scale: float = 1.0
    columns: tuple[str, ...] = ()
    images: ImageSettings | None = None
    temperature: float = 1.0
    text_labels: bool = False
    presence: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Number of features it takes."""
        return int(self.network.n_inputs)

    def __repr__(self) -> str:
        inputs = f"{self.width} features" if self.images is None else f"images, {self.images.backbone.name}"
        outputs = f"{len(self.classes)} classes" if self.classes else "continuous targets"
        return f"Predictor({inputs} -> {outputs}, on {device_of(self.network)})"

    def to(self, device: str | torch.device) -> Predictor:
        """Return the same model on another device, such as "cuda", or "auto": a GPU if there is one.

        Samples are moved to it in batches; what is returned is on the CPU.
        """
        return replace(self, network=copy.deepcopy(self.network).to(resolve_device(str(device))))

    @property
    def labels(self) -> NDArray[Any]:
        """The classes as predictions have them: integers if they were given as such, or read as such, else texts."""
        numbers = not self.text_labels and all(re.fullmatch(WHOLE, name) for name in self.classes)
        return np.array([int(name) for name in self.classes] if numbers else self.classes)

    def predict(self, x: Any, name: str = "X") -> NDArray[Any]:
        """Most probable classes, as in `labels`, or the values of a regressor, (n,)."""
        if not self.classes:
            return self.values(x, name)
        labels: NDArray[Any] = self.labels[self.probabilities(x, name).argmax(axis=1)]
        return labels

    def outputs(self, x: Any, name: str = "X", *, source: bool = False) -> Outputs:
        """Features and raw outputs of samples of the target, or of the source, as float64 tensors; all finite."""
        return Outputs(*self._outputs(x, name, source=source)[:2])

    def _outputs(self, x: Any, name: str, *, source: bool = False) -> list[Tensor]:
        outputs = _all_outputs(self.network.for_source() if source else self.network, *self._rows(x, name))
        bad = ~torch.isfinite(outputs[1]).all(dim=1)
        if bad.any():
            got, allowed = f"{int(bad.sum())} samples whose predictions overflow", "features as in training"
            remedy = "Drop samples that are that far from the training data."
            raise InputError(name, got=got, allowed=allowed, remedy=remedy)
        return outputs

    def _rows(self, x: Any, name: str) -> tuple[Rows, int]:
        """Check samples; return them, with the number of processes that decode them."""
        if is_path(x) or (self.images is not None and of_images(x)):
            x, name = read_samples(x, name=name, columns=self.columns, labelled=False), str(x) if is_path(x) else name
        names = column_names(x)
        if names and self.columns:
            allowed = f"the columns it was trained on, {listing(self.columns)}"
            x, names = take_columns(x, find_columns(name, names, self.columns, allowed)), self.columns
        if isinstance(x, Table):
            x = x.x
        if isinstance(x, Pixels) and self.images is not None:
            return x.with_view(self.images.view), self.images.processes
        tuned = self.images is not None and self.images.fine_tunes
        if isinstance(x, LazyRows) and x.ndim > 2:
            if tuned and self._enters(x):
                return x, 0
            allowed = "images" if self.images is not None else f"{self.width} features"
            remedy = "Give it what it was trained on."
            raise InputError(name, got=sample_shape(x), allowed=allowed, remedy=remedy)
        if isinstance(x, LazyRows | np.ndarray):
            copied = self.width * (x.dtype != np.float64)
            check_pass_memory(name, self.network, len(x), copied, "Split the data, and predict a part at a time.")
        rows = check_matrix(name, x[:] if isinstance(x, LazyRows) else x, width=self.width, columns=names)
        if tuned:
            remedy = "Its backbone was trained: features of another backbone do not fit."
            raise InputError(name, got=f"{self.width} features", allowed="images", remedy=remedy)
        check_features(name, rows)
        return np.require(rows, requirements=["C", "W"]), 0  # torch warns otherwise

    def _enters(self, x: LazyRows) -> bool:
        """Whether these are activations at the input of the trained block."""
        backbone = self.network.backbone
        if not (isinstance(x, Shards) and isinstance(backbone, Backbone)):
            return False
        return bool(x.layout.made_from.get("weights") == weights_fingerprint(backbone.stem))

    def probabilities(self, x: Any, name: str = "X") -> FloatArray:
        """Class probabilities (n, C)."""
        return self.as_probabilities(self.outputs(x, name).logits).numpy()

    def assess(self, x: Any, name: str = "X") -> tuple[FloatArray, FloatArray | None]:
        """Class probabilities (n, C), and scores from 0 to 1 (n,), larger for samples that fit no class.

        The scores are `Fitted.unknown` of new samples: how unsure the fit on the source alone is. None for a model
        without that fit, such as those of mini-batch methods.
        """
        _, logits, *first = self._outputs(x, name)
        return self.as_probabilities(logits).numpy(), relative_entropy(first[0].numpy()) if first else None

    def as_probabilities(self, logits: Tensor) -> Tensor:
        """Return class probabilities from outputs of the network."""
        return torch.softmax(logits / self.temperature, dim=1)

    def review(self, probabilities: FloatArray) -> BoolArray:
        """Which predictions, of samples with these class probabilities, should be reviewed (`needs_review`)."""
        presence = np.array(self.presence) if self.presence else None
        return needs_review(probabilities.max(axis=1), probabilities.argmax(axis=1), presence)

    @property
    def scores_unknown(self) -> bool:
        """Whether `assess` has scores."""
        return self.network.unadapted is not None and bool(self.classes)

    def rows_per_part(self, *, lazy: bool = False) -> int:
        """Return how many samples to predict at a time: whole blocks, so that each is multiplied as in one pass."""
        outputs = self.network.head.out_features
        rows = int(
            (LAZY_PART if lazy else PART) // (8 * (self.width + 2 * self.network.head.in_features + 4 * outputs))
        )
        return rows // BLOCK * BLOCK or max(rows, 1)

    def in_parts(self, table: Table) -> Iterator[tuple[FloatArray, FloatArray | None]]:
        """Yield what `assess` returns, or the values of a regressor, for some samples of a table after the other.

        Memory is that of one part: features and outputs of millions of samples may not fit.
        """
        x, size = table.x, self.rows_per_part(lazy=isinstance(table.x, LazyRows))
        for start in range(0, table.n, size):
            rows = slice(start, start + size)
            part = replace(table, x=x.subset(rows) if isinstance(x, LazyRows) else x[rows], y=None, names=())
            name = f"{table.name}, from row {start}" if start else table.name  # what is wrong is counted from there
            yield self.assess(part, name) if self.classes else (self.values(part, name), None)

    def values(self, x: Any, name: str = "X") -> FloatArray:
        """Predictions of a regressor, (n,)."""
        values: FloatArray = self.outputs(x, name).logits[:, 0].numpy()
        return self.centre + self.scale * values

    def facts(self) -> dict[str, Any]:
        """Return the meaning of its inputs and outputs, ready for JSON."""
        facts: dict[str, Any] = {"classes": list(self.classes), "centre": self.centre, "scale": self.scale}
        facts |= {"columns": list(self.columns), "temperature": self.temperature, "text_labels": self.text_labels}
        facts["presence"] = list(self.presence)
        if self.images is not None:
            # the weights are in the file; the path they were read from is not for those who receive the model
            backbone = replace(self.images.backbone, weights=Path(self.images.backbone.weights).name)
            facts["images"] = to_mapping(replace(self.images, backbone=backbone))
        return facts

    def save(self, folder: Path | str) -> None:
        """Write it into a folder: safetensors and JSON."""
        save_network(Path(folder), self.network, self.settings, self.facts())

    @classmethod
    def load(cls, folder: Path | str) -> Predictor:
        """Read what `save` wrote."""
        network, settings, facts = load_network(Path(folder))
        try:
            images = from_mapping(ImageSettings, facts["images"], "images") if "images" in facts else None
            columns = tuple(map(str, facts.get("columns", ())))  # absent from older files
            classes = check_names(str(Path(folder) / MODEL_FACTS), tuple(map(str, facts["classes"])))
            unit = float(facts["centre"]), float(facts["scale"])
            temperature = float(facts.get("temperature", 1.0))  # absent from older files
            if not 0 < temperature < float("inf"):
                raise ValueError(f"temperature {temperature}")
            texts = bool(facts.get("text_labels", False))  # absent from older files
            presence = _presence(facts.get("presence", []), len(classes))
        except (KeyError, TypeError, ValueError) as error:
            got, remedy = f"a model without the meaning of its outputs ({error})", "Train again, or restore the file."
            what = str(Path(folder) / MODEL_FACTS)
            raise InputError(what, got=got, allowed="what `warmpot fit` wrote", remedy=remedy) from error
        return cls(network, settings, classes, *unit, columns, images, temperature, texts, presence)

    def class_shares(self, counts: IntArray) -> dict[str, float]:
        """Return the classes estimated to be present, with the share of samples predicted as each, largest first.

        `counts` are the numbers of samples predicted as each class, (C,).
        """
        present = estimate_present_classes(counts / counts.sum())
        return {self.classes[k]: share for k, share in present.items()}


@dataclass(frozen=True, eq=False)
class BoundInputs:
    """Features of both domains, labels of the source, predictions, and the head, in logits.

    Labels are class codes and predictions class probabilities; of a regressor both are values, in standard deviations
    of the source labels. No target label is in it.
    """

    source: FloatArray
    labels: IntArray | FloatArray
    target: FloatArray
    source_proba: FloatArray
    target_proba: FloatArray
    weight: FloatArray
    bias: FloatArray

    @property
    def continuous(self) -> bool:
        """Whether the labels are values."""
        return len(self.weight) == 1

    @property
    def points(self) -> tuple[FloatArray, IntArray | FloatArray, FloatArray, FloatArray, FloatArray]:
        """The arguments of `joint_bound`."""
        return self.source, self.labels, self.target, self.source_proba, self.target_proba

    def loss(self, kind: str = "joint") -> str:
        """Return the loss of Theorem 3.2 ("features") or 3.3 ("joint"), unless another is named."""
        return "absolute" if self.continuous else DEFAULT_LOSS.get(kind, "tv")

    def problem(self, kind: str = "joint", level: str = "features") -> BoundProblem:
        """Return the problem of Theorem 3.2 ("features") or 3.3 ("joint"), with the head's own constant.

        `level` is one of `warmpot.bounds.levels`.
        """
        loss = self.loss(kind)
        if level != "features":
            source, target, gamma = at_level(level, *self._sides, self.weight)
            return BoundProblem(kind, source, self.labels, target, *self._sides[2:], gamma=gamma, loss=loss)
        return BoundProblem(kind, *self.points, gamma=head_lipschitz(self.weight, loss), loss=loss)

    @property
    def _sides(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return self.source, self.target, self.source_proba, self.target_proba

    def with_target(self, predictor: Predictor, x: Any, name: str = "fresh samples") -> BoundInputs:
        """Return the same classifier and source with other target samples."""
        target, proba = _side(predictor, x, name, source=False)
        return replace(self, target=target, target_proba=proba)


def _presence(values: Any, n_classes: int) -> tuple[float, ...]:
    """Check the probabilities of the classes that a file has."""
    if not isinstance(values, list) or len(values) not in (0, n_classes):
        raise ValueError(f"no list of {n_classes} probabilities")
    if not all(isinstance(value, int | float) and 0 <= value <= 1 for value in values):
        raise ValueError("probabilities that are not in [0, 1]")
    return tuple(map(float, values))


def _side(predictor: Predictor, x: Any, name: str, *, source: bool) -> tuple[FloatArray, FloatArray]:
    """Return features and predictions of samples of one domain."""
    outputs = predictor.outputs(x, name, source=source)
    proba = torch.softmax(outputs.logits, dim=1) if predictor.classes else outputs.logits
    return outputs.features.numpy(), proba.numpy()


def bound_inputs(predictor: Predictor, task: Task) -> BoundInputs:
    """Apply a classifier or regressor to both domains of the task that it was trained on.

    Parameters
    ----------
    predictor : Predictor
        ``Fitted.predictor``, ``WarmpotClassifier.predictor_`` or ``Predictor.load(run)``.
    task : Task
    """
    if not predictor.network.has_linear_head:
        remedy = "The theorems need the Lipschitz constant of the head, which is known for linear heads."
        raise InputError("predictor", got="a head of class centres", allowed="a linear head", remedy=remedy)
    features = task.xs.ndim == 2  # the width of images is their channels; the predictor knows which of them it takes
    if predictor.classes != task.classes or (features and predictor.width != task.width):
        got, remedy = "a model with other classes or features", "Pass the data that it was trained on."
        raise InputError("predictor", got=got, allowed="a model that was trained on this task", remedy=remedy)
    source, proba_s = _side(predictor, task.unlabelled("source"), "source", source=True)
    target, proba_t = _side(predictor, task.unlabelled("target"), "target", source=False)
    head = predictor.network.head
    weight, bias = (part.detach().cpu().double().numpy() for part in (head.weight, head.bias))
    labels: IntArray | FloatArray = np.asarray(task.ys, np.int64)
    if not task.classes:
        labels = (np.asarray(task.ys, np.float64) - predictor.centre) / predictor.scale
    return BoundInputs(source, labels, target, proba_s, proba_t, weight, bias)
