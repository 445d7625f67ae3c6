"""The cost of matching a source sample with a target sample.

The joint cost of Theorem 3.3 (Eq. (10)) and of the training problem (Eq. (19); docs/theory.md, Joint cost),

    C_ij = eta1 * ||f(x_i) - f(x~_j)||_2 + eta2 * loss(y_i, w(x~_j)),

has two units: `eta1` is per unit of feature distance, `eta2` per nat of cross-entropy (or per unit of the label loss
in regression). ``eta2 = 0`` is the feature-only cost of Theorem 3.2. The distance is *not* squared; MPOT and JUMBOT
square it (``squared=True``), and then `eta1` is per unit of its square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from warmpot._checks import check_count, check_nonnegative, check_positive
from warmpot._typing import Array, FloatArray, IntArray
from warmpot.losses import LABEL_LOSSES, LabelLoss, at_least_float32, get_label_loss
from warmpot.transport.large import EuclideanBlocks

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LABEL_LOSSES", "JointCost", "PairCosts", "feature_distance", "joint_cost", "label_loss", "nearest_rows",
           "rms_distance"]  # fmt: skip

ROUNDING = 1e-14  # squared distances below this fraction of the squared norms are rounding and count as 0


def feature_distance(source: Tensor, target: Tensor, *, squared: bool = False) -> Tensor:
    """Euclidean distances between two batches of features, or their squares, in float32 at least.

    Computed in float64 from products of centred features: as fast as the product form that `torch.cdist` takes
    above 25 rows, without its loss of half of the digits between close points in float32. The gradient at distance 0
    is 0.
    """
    dtype = at_least_float32(source).dtype
    centre = target.detach().double().mean(dim=0)
    x, y = source.double() - centre, target.double() - centre
    x_square, y_square = x.square().sum(dim=1, keepdim=True), y.square().sum(dim=1)
    square = x_square + y_square - 2.0 * (x @ y.T)
    same = square <= ROUNDING * (x_square + y_square).detach()  # the rest is rounding, also in its gradient
    distance = square if squared else square.masked_fill(same, 1.0).sqrt()
    return distance.masked_fill(same, 0.0).to(dtype)


def rms_distance(source: Any, target: Any) -> float:
    """Root mean square distance over all pairs, from means and spreads alone; arrays or tensors.

    Examples
    --------
    >>> rms_distance(np.array([[0.0], [2.0]]), np.array([[1.0]]))
    1.0
    """
    x, y = (
        np.asarray(part.detach().cpu() if hasattr(part, "detach") else part, np.float64) for part in (source, target)
    )
    centre_x, centre_y = x.mean(axis=0), y.mean(axis=0)
    spread = np.square(x - centre_x).sum() / len(x) + np.square(y - centre_y).sum() / len(y)
    return float(np.sqrt(spread + np.square(centre_x - centre_y).sum()))


def label_loss(labels: Tensor, outputs: Tensor, loss: str | LabelLoss = "cross_entropy") -> Tensor:
    """Loss of the target's `outputs` against the source's `labels`, for every pair.

    Parameters
    ----------
    labels : (n_s,) tensor
        Class codes, or numbers in regression.
    outputs : (n_t, C) tensor of logits, or (n_t, 1) tensor of predictions
    loss : LabelLoss, or its name
        "cross_entropy" ``-log softmax(outputs_j)[y_i]``, "absolute" ``|y_i - outputs_j|`` or "squared", its square.
    """
    return get_label_loss(loss).pairwise(labels, outputs)


def joint_cost(
    source: Tensor,
    labels: Tensor,
    target: Tensor,
    outputs: Tensor,
    *,
    eta1: float,
    eta2: float,
    loss: str | LabelLoss = "cross_entropy",
    squared: bool = False,
) -> Tensor:
    """Cost of every pair of two batches (Theorem 3.3), differentiable in features and outputs.

    Parameters
    ----------
    source, target : (n_s, d) and (n_t, d) tensors
        Features f(x) of both domains.
    labels : (n_s,) tensor
        Source labels.
    outputs : (n_t, C) tensor
        Outputs of the network for the target samples; see `label_loss`.
    eta1, eta2 : float
        Weights of feature distance and label loss.
    loss : LabelLoss, or its name
        See `label_loss`.
    squared : bool
        Square the distances (MPOT, JUMBOT).
    """
    cost = eta1 * feature_distance(source, target, squared=squared)
    return cost + eta2 * label_loss(labels, outputs, loss) if eta2 else cost


def nearest_rows(x: Array, count: int) -> IntArray:
    """Row numbers of the `count` nearest other rows of each row, in no order."""
    from warmpot.transport._kernels import smallest_entries

    blocks = EuclideanBlocks(np.asarray(x, np.float64), np.asarray(x, np.float64))
    nearest = np.empty((len(x), count), np.int64)
    for start in range(0, len(x), 1024):
        rows = np.arange(start, min(start + 1024, len(x)))
        distances = blocks.block(rows)
        distances[np.arange(len(rows)), rows] = np.inf
        smallest_entries(distances, nearest[rows[0] : rows[-1] + 1])
    return nearest


class PairCosts:
    """Joint costs between whole data sets, by blocks of source rows.

    A solver asks for every block several times, so the distances are stored when they fit into `max_memory`, and
    computed again for every block when they do not.

    Parameters
    ----------
    xs, xt : (n_s, d) and (n_t, d) arrays
        Features of both domains.
    max_memory : float
        GiB that the stored distances may take.
    neighbours : int
        How many nearest target samples the outputs of a target sample are averaged with.
    smooth : float
        Weight of that average, in [0, 1]; 0 leaves the outputs as they are.
    """

    def __init__(
        self, xs: Array, xt: Array, *, max_memory: float = 2.0, neighbours: int = 7, smooth: float = 0.0
    ) -> None:
        self._smooth = check_nonnegative("smooth", smooth, maximum=1.0)
        count = min(check_count("neighbours", neighbours), len(xt) - 1)
        self._average: csr_array | None = None  # of the neighbours of each target sample
        if smooth and count > 0:
            near = nearest_rows(xt, count)
            ends = np.arange(0, near.size + 1, count)
            self._average = csr_array((np.full(near.size, 1.0 / count), near.ravel(), ends), shape=(len(xt), len(xt)))
        budget = check_positive("max_memory", max_memory, remedy="Give it in GiB.") * 2**30
        self.shape = (xs.shape[0], xt.shape[0])
        self.rms = rms_distance(xs, xt)
        self._blocks = EuclideanBlocks(np.asarray(xs, np.float64), np.asarray(xt, np.float64))
        self._stored: FloatArray | None = None
        if 8 * self.shape[0] * self.shape[1] <= budget:
            self._stored = np.empty(self.shape)
            for start in range(0, self.shape[0], 1024):
                rows = np.arange(start, min(start + 1024, self.shape[0]))
                self._blocks.block(rows, out=self._stored[rows[0] : rows[-1] + 1])

    def distances(self, rows: IntArray) -> FloatArray:
        """Return the distances of some source rows to all target rows, as a new array."""
        return self._blocks.block(rows) if self._stored is None else self._stored[rows]

    def _smoothed(self, outputs: Tensor) -> Tensor:
        if self._average is None:
            return outputs
        import torch

        averaged = outputs
        for _ in range(2):  # neighbours of neighbours
            averaged = (1 - self._smooth) * outputs + self._smooth * torch.from_numpy(self._average @ averaged.numpy())
        return averaged

    def joint(
        self,
        labels: Tensor,
        outputs: Tensor,
        *,
        eta1: float,
        eta2: float,
        loss: str | LabelLoss = "cross_entropy",
        squared: bool = False,
    ) -> JointCost:
        """Return the joint cost, a block cost that `solve_partial_blocks` takes; arguments as in `joint_cost`."""
        smoothed = self._smoothed(outputs.detach().cpu().double())
        return JointCost(self, labels.detach().cpu(), smoothed, eta1, eta2, get_label_loss(loss), squared)


class JointCost:
    """The joint cost between whole data sets, by blocks of source rows; returned by `PairCosts.joint`."""

    def __init__(
        self,
        costs: PairCosts,
        labels: Tensor,
        outputs: Tensor,
        eta1: float,
        eta2: float,
        loss: LabelLoss,
        squared: bool,
    ) -> None:
        import torch

        self.shape = costs.shape
        self._distances, self._labels, self._outputs, self._loss = costs.distances, labels, outputs, loss
        self._eta1, self._eta2, self._squared = eta1, eta2, squared
        self._by_class: Any = None
        if eta2 and loss.classification:  # one row per class, computed once and looked up for every block
            self._by_class = eta2 * loss.pairwise(torch.arange(outputs.shape[1]), outputs).contiguous().numpy()

    def block(self, rows: IntArray) -> FloatArray:
        """Return the costs of some source rows against all target rows."""
        block = self._distances(rows)
        if self._squared:
            block *= block
        block *= self._eta1
        if self._by_class is not None:
            block += self._by_class[self._labels[rows].numpy()]
        elif self._eta2:
            block += self._eta2 * self._loss.pairwise(self._labels[rows], self._outputs).numpy()
        return block
