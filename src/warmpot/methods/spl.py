"""SPL: pseudo-labels from class means and clusters in a supervised projection, the most certain ones first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from warmpot._checks import check_count
from warmpot._typing import FloatArray, IntArray
from warmpot.data import Task
from warmpot.losses import LabelLoss
from warmpot.methods.base import OFFICIAL, Memory, Method
from warmpot.methods.locality import UNLABELLED, LocalityRounds, class_centres
from warmpot.methods.rounds import FullSettings, RoundResult
from warmpot.nets import Outputs
from warmpot.weights.presence import unit_rows

__all__ = ["Spl", "SplRounds", "clusters_from", "selected"]

CLUSTER_STEPS = 100


def clusters_from(x: FloatArray, centres: FloatArray) -> FloatArray | None:
    """Cluster (n, d) samples by k-means from given centres; None if a cluster is empty in the end.

    As in the official code, the centre of a cluster that loses all its samples moves to the origin, from where it may
    gain samples again; and with an empty cluster all probabilities from clusters are NaN, which a maximum ignores.
    """
    last = np.inf
    for _ in range(CLUSTER_STEPS):
        squares = (x**2).sum(axis=1)[:, None] + (centres**2).sum(axis=1) - 2 * x @ centres.T
        nearest = squares.argmin(axis=1)
        sizes = np.bincount(nearest, minlength=len(centres))
        centres = np.eye(len(centres))[nearest].T @ x / np.maximum(sizes, 1)[:, None]
        error = float(squares.min(axis=1).sum())
        if last - error < np.finfo(float).eps:
            break
        last = error
    return unit_rows(centres) if sizes.all() else None


def selected(certainty: FloatArray, predicted: IntArray, left_out: float) -> np.ndarray:
    """Mark the samples of each predicted class that are more certain than the one at the share `left_out`.

    The comparison is strict, as in the official code: the least certain sample of a class is never marked.
    """
    marked = np.zeros(len(predicted), bool)
    for c in np.unique(predicted):
        own = np.flatnonzero(predicted == c)
        threshold = np.sort(certainty[own])[int(np.floor(len(own) * left_out))]
        marked[own] = certainty[own] > threshold
    return marked


class SplRounds(LocalityRounds):
    """The iterations of SPL."""

    def round(self, number: int) -> RoundResult:
        """Project, label the target, and select the pseudo-labels of the next projection."""
        source, target = self._project()
        means = class_centres(source, self.labels, self.n_classes)
        clusters = clusters_from(target, means)
        self.means = torch.from_numpy(means)
        self.clusters = self.means.clone() if clusters is None else torch.from_numpy(clusters)
        logits = self.outputs()[1].logits.numpy()
        predicted = logits.argmax(axis=1)
        left_out = max(1 - number / (self.n_rounds - 1), 0.0)
        marked = selected(np.exp(logits.max(axis=1)), predicted, left_out)
        self.pseudo = torch.from_numpy(np.where(marked, predicted, UNLABELLED))
        classes = len(np.unique(predicted))
        return RoundResult(
            {"selected": float(marked.mean()), "classes": classes, "clustered": float(clusters is not None)}
        )

    def outputs(self) -> tuple[Outputs, Outputs]:
        """Return what the network makes of both domains."""
        return self.applied()


@dataclass(frozen=True)
class Spl(Method[Memory]):
    """Alternate between a supervised locality-preserving projection and pseudo-labels of the target.

    Samples are scaled to length 1, projected onto principal axes of both domains, and scaled again. An iteration k of T

    1. fits a projection P that maximises ``tr P'X'DXP`` under ``P'(X'LX + I)P = 1`` over the source and the selected
       target samples, with ``W_ij = 1`` within a class or pseudo-label, and else 0 (`locality_axes`); projected samples
       are centred by the mean of both domains and scaled to length 1;
    2. takes the probability of class c for a target sample as the larger of ``softmax(-d)_c`` and ``softmax(-d')_c``,
       with d the distances to the means of the source classes and d' those to the centres of k-means clusters of the
       target that start at these means, all of length 1; the class with the largest probability is the pseudo-label;
    3. selects, of each predicted class, the share ``k / (T - 1)`` with the largest probabilities.

    The pseudo-labels of the last iteration are the predictions.

    Attributes
    ----------
    axes : int
        Principal axes that are kept; 0: no principal axes.
    width : int
        Axes of the projection.
    iterations : int
        T, at least 2.

    Notes
    -----
    Reproduction of the official code's objective (docs/method-specifications.md, SPL). It is for targets that have all
    classes of the source: nothing takes weight off outlier classes; `ScsLp` is its partial version. Deviations:

    - tables of fewer than 64 columns are standardised by column before the first step, not scaled by row
      (``full.scale``);
    - the code's k-means is a compiled file; what it does with empty clusters (`clusters_from`) is that of the public
      source of the same name;
    - new samples are labelled by the last projection, means and clusters; the code has no new samples.

    References
    ----------
    Q. Wang, T. P. Breckon, "Unsupervised domain adaptation via structured prediction based selective pseudo-labeling",
    AAAI 2020. Code: github.com/hellowangqian/domain-adaptation-capls.
    """

    name: ClassVar[str] = "spl"
    summary: ClassVar[str] = "class means and clusters of the target in a supervised projection, certain samples first"
    reference: ClassVar[str] = "Wang, Breckon, AAAI 2020"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("pseudo-labels", "closed form")
    engines: ClassVar[tuple[str, ...]] = ("full",)

    axes: int = 1024
    width: int = 128
    iterations: int = 11

    def __post_init__(self) -> None:
        check_count("axes", self.axes, minimum=0)
        check_count("width", self.width)
        check_count("iterations", self.iterations, minimum=2)

    def rounds(self, task: Task, settings: FullSettings, loss: LabelLoss, seed: int) -> SplRounds:  # noqa: ARG002
        """Return the iterations; the loss plays no part."""
        return SplRounds(task, settings, seed, axes=self.axes, width=self.width, rounds=self.iterations)
