"""SCS-LP: the partial version of SPL, which propagates labels over a graph and drops classes that nobody gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array

from warmpot._checks import check_count, check_positive
from warmpot._typing import FloatArray
from warmpot.costs import nearest_rows
from warmpot.data import Task
from warmpot.losses import LabelLoss
from warmpot.methods.base import Memory, Method
from warmpot.methods.locality import LocalityRounds, class_centres
from warmpot.methods.rounds import FullSettings, RoundResult
from warmpot.nets import Outputs
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["ScsLp", "ScsLpRounds", "propagated"]

STEPS, TOLERANCE = 1000, 1e-3
"""Of the propagation: the defaults of the function that the official code calls."""
LEAST = 1e-12
"""Added to scores before the logarithm: a sample may have no path to a class."""


def propagated(centres: FloatArray, x: FloatArray, neighbours: int, scale: float) -> FloatArray:
    """Propagate labels from one centre per class to samples, over the graph of nearest neighbours.

    Two nodes are joined if one of them is among the nearest neighbours of the other, with the similarity
    ``exp(-(distance / scale)^2)``. The scores F of a sample, from 0, become the mean of those of its neighbours by
    similarity, until no score changes by .001; those of the centres stay at 1 for their class.

    Parameters
    ----------
    centres : (K, d) array
    x : (n, d) array
    neighbours : int
    scale : float

    Returns
    -------
    (n, K) array
        Nonnegative; rows sum to at most 1, to 0 for a sample without a path to a centre.
    """
    nodes, labelled = np.concatenate([centres, x]), len(centres)
    count = min(neighbours, len(nodes) - 1)
    rows, columns = np.repeat(np.arange(len(nodes)), count), nearest_rows(nodes, count).ravel()
    joined = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(nodes),) * 2)
    edges = joined.maximum(joined.T).tocoo()
    squares = ((nodes[edges.row] - nodes[edges.col]) ** 2).sum(axis=1)
    similar = csr_array((np.exp(-squares / scale**2), (edges.row, edges.col)), shape=joined.shape)[labelled:]
    sums = np.asarray(similar.sum(axis=1))[:, None]
    scores, known = np.zeros((len(x), labelled)), np.eye(labelled)
    for _ in range(STEPS):
        moved = similar @ np.concatenate([known, scores]) / np.maximum(sums, 1e-300)
        change = np.abs(moved - scores).max()
        scores = moved
        if change < TOLERANCE:
            break
    return scores


class ScsLpRounds(LocalityRounds):
    """The iterations of SCS-LP.

    Attributes
    ----------
    scores : (n_t, C) tensor
        Of the propagation, for each target sample; at the start the probabilities of the nearest means.
    """

    def __init__(self, method: ScsLp, task: Task, settings: FullSettings, seed: int) -> None:
        super().__init__(task, settings, seed, axes=method.axes, width=method.width, rounds=method.iterations)
        self.method, self.expected_share = method, method.expected_share
        self.scores = torch.zeros(task.n_target, self.n_classes, dtype=torch.float64)

    def start(self) -> None:
        """Label by the nearest mean of a source class."""
        super().start()
        self.scores = self.applied()[1].logits.softmax(dim=1)

    def round(self, number: int) -> RoundResult:  # noqa: ARG002
        """Project, propagate, and drop the source classes that no target sample got."""
        source, target = self._project()
        used = self.training_weights.numpy() > 0
        present = np.unique(self.labels[used])
        means = class_centres(source[used], self.labels[used], self.n_classes)
        scores = np.zeros((len(target), self.n_classes))
        scores[:, present] = propagated(means[present], target, self.method.neighbours, self.method.scale)
        predicted = present[scores[:, present].argmax(axis=1)]
        kept = np.isin(self.labels, predicted)
        self.means = torch.from_numpy(class_centres(source[kept], self.labels[kept], self.n_classes))
        self.clusters = torch.from_numpy(class_centres(target, predicted, self.n_classes))
        self.scores, self.pseudo = torch.from_numpy(scores), torch.from_numpy(predicted)
        self.training_weights = torch.from_numpy(kept / kept.sum())
        return RoundResult({"classes": len(np.unique(predicted))})

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return what the network makes of the source; of the target, its features and the propagated labels."""
        source, target = self.applied()
        return source, target._replace(logits=(self.scores + LEAST).log())

    def state(self) -> dict[str, torch.Tensor]:
        """Return the unknowns and the scores."""
        return {**super().state(), "scores": self.scores}

    def load(self, state: dict[str, torch.Tensor]) -> None:
        """Continue from unknowns."""
        super().load(state)
        self.scores = state["scores"].clone()


@dataclass(frozen=True)
class ScsLp(Method[Memory]):
    """Alternate between a supervised locality-preserving projection and label propagation; drop classes in between.

    Samples are scaled to length 1, projected onto principal axes of both domains, and scaled again. An iteration

    1. fits the projection of `Spl` to the source samples of the classes that are left and to all target samples with
       their pseudo-labels (the first: to the source); projected samples are centred by the mean of both, and scaled to
       length 1;
    2. propagates labels from the means of the source classes that are left, of length 1, to the target, over a graph of
       nearest neighbours (`propagated`): the class with the largest score is the pseudo-label;
    3. drops the source classes that no target sample was labelled as.

    The pseudo-labels of the last iteration are the predictions.

    Attributes
    ----------
    axes : int
        Principal axes that are kept; 0: no principal axes.
    width : int
        Axes of the projection.
    iterations : int
    neighbours : int
        Of the graph.
    scale : float
        Of distances in its similarities.

    Notes
    -----
    The official code was read (docs/method-specifications.md, SCS-LP), but it calls MATLAB's ``fitsemigraph``, whose
    source is not public. Inferred: its defaults (scale 1, .001 as tolerance, at most 1000 steps, nodes joined if either
    is a neighbour of the other), and that scores start at 0. Further deviations:

    - tables of fewer than 64 columns are standardised by column before the first step, not scaled by row
      (``full.scale``);
    - a sample without a path to a class mean gets the first class that is left, in the code the first of all;
    - the probabilities are the scores, in the code a softmax of them: the predictions are the same;
    - a new sample is labelled as by `Spl`, with the means of the target samples labelled as a class as its cluster. Of
      the samples of the training this gives another label to some; the run reports the propagated ones.

    References
    ----------
    Q. Wang, T. P. Breckon, "Source class selection with label propagation for partial domain adaptation", ICIP 2021.
    Code: github.com/hellowangqian/scs-lp-pda.
    """

    name: ClassVar[str] = "scs-lp"
    summary: ClassVar[str] = (
        "label propagation in a supervised projection; source classes that no sample gets are dropped"
    )
    reference: ClassVar[str] = "Wang, Breckon, ICIP 2021"
    status: ClassVar[str] = "interpretation: the official code calls a function whose source is not public"
    tags: ClassVar[tuple[str, ...]] = ("pseudo-labels", "neighbours", "closed form", "partial")
    engines: ClassVar[tuple[str, ...]] = ("full",)
    weights: ClassVar[str] = "own"

    axes: int = 512
    width: int = 128
    iterations: int = 10
    neighbours: int = 15
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_count("axes", self.axes, minimum=0)
        for name in ("width", "iterations", "neighbours"):
            check_count(name, getattr(self, name))
        check_positive("scale", self.scale)

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> ScsLpRounds:  # noqa: ARG002
        """Return the iterations; the loss plays no part."""
        return ScsLpRounds(self, task, settings, seed)
