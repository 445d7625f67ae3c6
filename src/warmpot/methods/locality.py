"""What SPL and SCS-LP share: the supervised locality-preserving projection, and class centres in it as a classifier."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from scipy.linalg import eigh
from torch import Tensor

from warmpot._typing import FloatArray, IntArray
from warmpot.data import Task
from warmpot.methods.rounds import FullSettings, Rounds
from warmpot.methods.sizes import check_columns_memory
from warmpot.nets import NetworkSettings, Outputs, PrototypeHead, build_network
from warmpot.nets.network import ColumnScale, Network, Projection, make_scale
from warmpot.weights.axes import principal_axes, with_signs
from warmpot.weights.presence import unit_rows

__all__ = ["UNLABELLED", "LocalityRounds", "class_centres", "locality_axes", "uncentred_axes"]

UNLABELLED = -1
"""Pseudo-label of a target sample that does not count in the projection."""
FAR = 1e3
"""Distance of the centre of a class that is not there: ``exp(-FAR)`` is 0 in float64, and its logarithm is finite."""
SMALLEST = 1e-10
"""Principal axes with a smaller share of the largest variance are left out, as in the official code."""
UNKNOWNS = ("matrix", "centre", "means", "clusters", "pseudo", "training_weights")


def uncentred_axes(x: FloatArray, width: int) -> FloatArray:
    """Principal axes of (n, d) samples, at most `width`, those without variance left out; at least one.

    The official codes project samples onto them without subtracting the mean.
    """
    squares, axes = principal_axes(x - x.mean(axis=0), min(width, x.shape[1]))
    varies = squares > SMALLEST * max(squares[0], 0.0)
    varies[0] = True
    return axes[:, varies]


def locality_axes(x: FloatArray, labels: IntArray, n_classes: int, width: int) -> FloatArray:
    r"""Axes of the supervised locality-preserving projection.

    They maximise ``tr P'X'DXP`` under ``P'(X'LX + I)P = 1``, where ``W_ij = 1`` for samples of one class, D has the row
    sums of W, which are the sizes of the classes, and ``L = D - W``. Large classes count more than in Fisher's
    discriminant, and the mean of all samples is not subtracted.

    Parameters
    ----------
    x : (n, d) array
        Labelled samples of both domains.
    labels : (n,) array of int
        Their classes or pseudo-labels.
    n_classes, width : int
        At most `width` axes are returned, the best first.
    """
    one_hot = np.eye(n_classes)[labels]
    sizes, sums, d = one_hot.sum(axis=0), one_hot.T @ x, x.shape[1]
    total = (x * sizes[labels][:, None]).T @ x
    within = total - sums.T @ sums + np.eye(d)
    return with_signs(eigh(total, within, subset_by_index=[d - min(width, d), d - 1])[1][:, ::-1])


def class_centres(x: FloatArray, labels: IntArray, n_classes: int) -> FloatArray:
    """Mean of every class, scaled to length 1; that of a class without samples is far away."""
    one_hot = np.eye(n_classes)[labels]
    sizes = one_hot.sum(axis=0)[:, None]
    far = FAR * np.eye(1, x.shape[1])
    return np.where(sizes > 0, unit_rows(one_hot.T @ x / np.maximum(sizes, 1)), far)


class LocalityRounds(Rounds):
    """Both domains on principal axes, of length 1; a projection fitted to (pseudo-)labels; class centres in it.

    The network has all of it, in float64, so that its predictions are those of the rounds.

    Attributes
    ----------
    xs, xt : (n_s, k) and (n_t, k) arrays
        The samples on the principal axes, of length 1.
    matrix, centre : (k, width) and (k,) tensors
        The projection: rows are centred, mapped and scaled to length 1.
    means, clusters : (C, width) tensors
        The two centres of each class (`PrototypeHead`).
    pseudo : (n_t,) tensor
        Pseudo-labels of the target samples that count in the next projection; `UNLABELLED` for the others.
    """

    matrix: Tensor
    centre: Tensor
    means: Tensor
    clusters: Tensor
    pseudo: Tensor

    def __init__(self, task: Task, settings: FullSettings, seed: int, *, axes: int, width: int, rounds: int) -> None:
        if not axes:
            check_columns_memory(task, "params.axes 0", 5, "Project onto principal axes: params.axes=512.")
        self.labels, self.n_classes, self.n_rounds = np.asarray(task.ys, np.int64), task.n_classes or 1, rounds
        inputs = [torch.as_tensor(x) for x in task.arrays()]
        scale = make_scale(settings.scale, task.width)
        if isinstance(scale, ColumnScale):
            scale.fit(*inputs)
        scaled = torch.cat([scale(x) for x in inputs]).double().numpy()
        principal = uncentred_axes(scaled, axes) if axes else np.eye(task.width)
        self.settings = NetworkSettings(
            scale=settings.scale, bottleneck="projection", axes=principal.shape[1] if axes else 0,
            width=min(width, principal.shape[1]), unit_features=True, head="prototypes",
        )  # fmt: skip
        self._network = build_network(self.settings, task.width, self.n_classes, seed=seed).double()
        self._network.fit_scale(*inputs)
        if axes:
            self._projection(0).matrix.copy_(torch.from_numpy(principal))
        self.xs, self.xt = np.split(unit_rows(scaled @ principal), [task.n_source])
        self.training_weights = torch.full((task.n_source,), 1.0 / task.n_source, dtype=torch.float64)
        self.pseudo = torch.full((task.n_target,), UNLABELLED)

    def _projection(self, index: int) -> Projection:
        layer = self._network.bottleneck[index]
        assert isinstance(layer, Projection)
        return layer

    def _project(self) -> tuple[FloatArray, FloatArray]:
        """Fit the projection to the source samples with weight and to the pseudo-labels; return both domains in it.

        Source samples without weight count nowhere.
        """
        used, pseudo = self.training_weights.numpy() > 0, self.pseudo.numpy()
        labelled = pseudo != UNLABELLED
        x = np.concatenate([self.xs[used], self.xt[labelled]])
        labels = np.concatenate([self.labels[used], pseudo[labelled]])
        centre = np.concatenate([self.xs[used], self.xt]).mean(axis=0)
        matrix = locality_axes(x, labels, self.n_classes, self.settings.width)
        self.centre, self.matrix = torch.from_numpy(centre), torch.from_numpy(matrix)
        return unit_rows((self.xs - centre) @ matrix), unit_rows((self.xt - centre) @ matrix)

    def start(self) -> None:
        """Label by the nearest mean of a source class, in the projection of the source."""
        source, _ = self._project()
        self.means = torch.from_numpy(class_centres(source, self.labels, self.n_classes))
        self.clusters = self.means.clone()

    @abstractmethod
    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return features and log-probabilities of both domains."""

    def applied(self) -> tuple[Outputs, Outputs]:
        """Return what the network makes of both domains, from the principal axes on."""
        network = self.network()
        with torch.no_grad():
            source, target = (network.bottleneck[-1](torch.from_numpy(x)) for x in (self.xs, self.xt))
            return Outputs(source, network.head(source)), Outputs(target, network.head(target))

    def network(self) -> Network:
        """Put projection and centres into the network."""
        projection, head = self._projection(-1), self._network.head
        assert isinstance(head, PrototypeHead)
        with torch.no_grad():
            projection.centre.copy_(self.centre)
            projection.source_centre.copy_(self.centre)
            projection.matrix.copy_(self.matrix)
            head.weight.copy_(self.means)
            head.second.copy_(self.clusters)
        return self._network.eval()

    def state(self) -> dict[str, Tensor]:
        """Return the unknowns."""
        return {name: getattr(self, name) for name in UNKNOWNS}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from unknowns."""
        for name in UNKNOWNS:
            setattr(self, name, state[name].clone())
