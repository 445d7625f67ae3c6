"""IDSP: a regularised linear classifier that is smooth within each domain, without alignment; in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from warmpot._checks import check_count, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.costs import nearest_rows
from warmpot.data import Task
from warmpot.losses import LabelLoss
from warmpot.methods.base import Memory, Method
from warmpot.methods.rounds import FullSettings, RoundResult, Rounds
from warmpot.methods.sizes import check_columns_memory
from warmpot.nets import Network, NetworkSettings, Outputs, build_network
from warmpot.weights.presence import unit_rows

__all__ = ["Idsp", "IdspRounds", "roughness"]


def roughness(x: FloatArray, neighbours: int) -> FloatArray:
    """Return ``X'LX`` of (n, d) samples, L the normalised Laplacian of their graph of nearest neighbours by cosine.

    Two samples are joined if one is among the nearest neighbours of the other, with their cosine as weight A_ij, or 0
    if that is negative. ``L = 1 - D^(-1/2) A D^(-1/2)``, where D has the row sums of A; a sample without neighbours has
    no part in it.
    """
    unit, n = unit_rows(x), len(x)
    count = min(neighbours, n - 1)
    rows, columns = np.repeat(np.arange(n), count), nearest_rows(unit, count).ravel()
    joined = csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    edges = joined.maximum(joined.T).tocoo()
    cosines = np.maximum((unit[edges.row] * unit[edges.col]).sum(axis=1), 0.0)
    graph = csr_array((cosines, (edges.row, edges.col)), shape=(n, n))
    degrees = np.asarray(graph.sum(axis=1))
    root = diags_array(np.where(degrees > 0, 1 / np.sqrt(np.where(degrees > 0, degrees, 1)), 0.0))
    smoothed = root @ (graph @ (root @ x))
    # Rounding leaves a matrix that is not quite symmetric.
    form = (x * (degrees > 0)[:, None]).T @ x - x.T @ smoothed
    symmetric: FloatArray = 0.5 * (form + form.T)
    return symmetric


class IdspRounds(Rounds):
    """The fit on the source alone, then one round: the fit with smoothness."""

    head: Tensor

    def __init__(self, method: Idsp, task: Task, settings: FullSettings, seed: int) -> None:
        check_columns_memory(
            task, method.name, 5, "Reduce the columns to their principal axes, or take the preset full."
        )
        self.method, self.n_rounds, n_classes = method, 1, task.n_classes or 1
        inputs = [torch.as_tensor(x) for x in task.arrays()]
        self.settings = NetworkSettings(scale=settings.scale, bottleneck="none")
        self._network = build_network(self.settings, task.width, n_classes, seed=seed).double()
        self._network.fit_scale(*inputs)
        self.xs, self.xt = (self._network.scale(x).double() for x in inputs)
        self.targets = np.eye(n_classes)[np.asarray(task.ys)]
        self.training_weights = torch.full((task.n_source,), 1.0 / task.n_source, dtype=torch.float64)

    def _fit(self, penalty: FloatArray) -> None:
        """Solve the normal equations; the last row of the head is the bias, which has no penalty."""
        x = self.xs.numpy()
        centre, mean = x.mean(axis=0), self.targets.mean(axis=0)
        gram = (x - centre).T @ (x - centre) + penalty + self.method.ridge * np.eye(x.shape[1])
        slopes = np.linalg.solve(gram, (x - centre).T @ (self.targets - mean))
        self.head = torch.from_numpy(np.concatenate([slopes, (mean - centre @ slopes)[None]]))

    def start(self) -> None:
        """Fit without smoothness."""
        self._fit(np.zeros((self.xs.shape[1],) * 2))

    def round(self, number: int) -> RoundResult:  # noqa: ARG002
        """Fit with smoothness."""
        rough = [roughness(x.numpy() - x.numpy().mean(axis=0), self.method.neighbours) for x in (self.xs, self.xt)]
        before = self._roughness_of(rough)
        self._fit(self.method.smoothness * (rough[0] + rough[1]))
        return RoundResult({"roughness_before": before, "roughness": self._roughness_of(rough)})

    def _roughness_of(self, rough: list[FloatArray]) -> float:
        """Return the mean roughness of the outputs per sample."""
        slopes = self.head[:-1].numpy()
        return float(np.trace(slopes.T @ (rough[0] + rough[1]) @ slopes)) / (len(self.xs) + len(self.xt))

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return inputs and outputs of both domains."""
        weight, bias = self.head[:-1], self.head[-1]
        source, target = (Outputs(x, torch.addmm(bias, x, weight)) for x in (self.xs, self.xt))
        return source, target

    def network(self) -> Network:
        """Put the head into the network."""
        with torch.no_grad():
            self._network.head.weight.copy_(self.head[:-1].T)
            self._network.head.bias.copy_(self.head[-1])
        return self._network.eval()

    def state(self) -> dict[str, Tensor]:
        """Return the head."""
        return {"head": self.head, "training_weights": self.training_weights}

    def load(self, state: dict[str, Tensor]) -> None:
        """Continue from a head."""
        self.head, self.training_weights = state["head"].clone(), state["training_weights"].clone()


@dataclass(frozen=True)
class Idsp(Method[Memory]):
    """Minimise ``sum_i ||w(x_i) - e_y||^2 + ridge ||W||^2 + smoothness sum_D tr W'X_D'L_D X_D W`` over W and b.

    The classifier is ``w(x) = W'x + b``, e_y is the one-hot label, and D runs over the two domains: each has its own
    graph of nearest neighbours, with the Laplacian L_D, of centred samples. No term compares the domains.

    Attributes
    ----------
    ridge : float
        Weight of the penalty of W.
    smoothness : float
        Weight of the roughness of the outputs within the domains.
    neighbours : int
        Of the graphs.

    Notes
    -----
    An interpretation (docs/method-specifications.md, IDSP): no code was found, and of the paper only its abstract was
    read. It says that nothing is aligned, and that the smoothness of the model is the structure within each domain.
    Deviations are not known. Inferred: the squared loss, the linear classifier (a closed form), the Laplacian of
    neighbours, and the constants, which are those that adaptation regularisation (ARTL) has for the same two terms.

    The outputs estimate one-hot labels: their order has a meaning, their softmax is far from certain.

    References
    ----------
    W. Li, S. Chen, "Partial domain adaptation without domain alignment", IEEE TPAMI, 2022.
    """

    name: ClassVar[str] = "idsp"
    summary: ClassVar[str] = "a linear classifier that is smooth among neighbours of each domain; no alignment"
    reference: ClassVar[str] = "Li, Chen, TPAMI 2022"
    status: ClassVar[str] = "interpretation: no code was found; loss, graph and constants are inferred"
    tags: ClassVar[tuple[str, ...]] = ("neighbours", "closed form", "partial")
    engines: ClassVar[tuple[str, ...]] = ("full",)

    ridge: float = 0.1
    smoothness: float = 1.0
    neighbours: int = 10

    def __post_init__(self) -> None:
        check_positive("ridge", self.ridge)
        check_nonnegative("smoothness", self.smoothness)
        check_count("neighbours", self.neighbours)

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> IdspRounds:  # noqa: ARG002
        """Return the two fits; the loss plays no part."""
        return IdspRounds(self, task, settings, seed)
