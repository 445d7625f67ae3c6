"""ARPM: adversarial reweighting, alpha-power maximisation, agreement of neighbours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative, check_positive
from warmpot.data.samplers import draw_rows
from warmpot.errors import InputError
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    DatasetPass,
    Domain,
    Memory,
    Method,
    PassRequest,
    Phase,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.nets import Outputs, SphereHead, frozen_head
from warmpot.weights import normalized
from warmpot.weights.axes import principal_axes

__all__ = ["Arpm", "pca_head"]

logger = logging.getLogger(__name__)

TARGET = "target"
"""Name of the phase with the terms of the target."""
NEIGHBOUR_WEIGHT = 0.1
"""Of each neighbour of a neighbour."""
SAME = 1e-6
"""Entries of directions that differ by less are the same up to rounding."""
ROUNDED = 1e-6
"""Shares of recipes are rounded to seven digits."""
CHUNK = 2048
"""Rows for which neighbours are searched, or votes counted, at once."""


def _directions(outputs: Outputs) -> Tensor:
    pooled = outputs.features if outputs.pooled is None else outputs.pooled
    return functional.normalize(pooled.detach().float(), dim=1)


class TargetBank(Memory):
    """The latest outputs of the network for every target sample.

    `nearest` is valid as long as `still`: the directions are those of the last fill, as with frozen features always.
    """

    features: Tensor
    scores: Tensor
    nearest: Tensor
    still: Tensor

    def __init__(self, setup: Setup, count: int) -> None:
        super().__init__()
        n, self.seed = setup.n_target, setup.seed
        self.register_buffer("features", torch.zeros(n, setup.pooled))
        self.register_buffer("scores", torch.zeros(n, setup.n_classes))
        self.register_buffer("nearest", torch.zeros(n, min(count, n - 1), dtype=torch.long))
        self.register_buffer("still", torch.tensor(False))

    def fill(self, directions: Tensor, scores: Tensor) -> None:
        """Take all samples."""
        self.features.copy_(directions)
        self.scores.copy_(scores)
        every = torch.arange(len(self.features), device=self.features.device)
        self.nearest.copy_(torch.cat([self._search(part, self.nearest.shape[1]) for part in torch.split(every, CHUNK)]))
        self.still.fill_(True)

    def write(self, rows: Tensor, directions: Tensor, scores: Tensor) -> None:
        """Take the samples of a batch."""
        self.scores[rows] = scores
        if self.still:
            self.still.fill_(torch.allclose(self.features[rows], directions, rtol=0.0, atol=SAME))
        if not self.still:
            self.features[rows] = directions

    def neighbours(self, rows: Tensor, count: int) -> Tensor:
        """Return the nearest others of some rows by cosine: (n, count), fewer if there are fewer."""
        return self.nearest[rows, :count] if self.still else self._search(rows, min(count, len(self.features) - 1))

    def _search(self, rows: Tensor, count: int) -> Tensor:
        cosines = self.features[rows] @ self.features.T
        cosines[torch.arange(len(rows), device=rows.device), rows] = -torch.inf
        return cosines.topk(count, dim=1).indices


@dataclass(frozen=True)
class Arpm(Method[TargetBank]):
    """Minimise ``wCE(w) - power_weight * mean_j sum_k p_jk^power + consistency * L`` [1]_.

    Specification: docs/method-specifications.md, ARPM.

    wCE is the cross-entropy with smoothed labels under the weights w of a critic (`Chi2Ball`), over their sum.
    ``L = -mean_j sum_q .1 <p_j, q>``, where q runs over what a bank holds of the neighbours of the neighbours of target
    sample j. The target's predictions p come from a head that does not learn from them: only features move.
    Reproduction of the official code's objective.

    Attributes
    ----------
    label_smooth : float
        Label smoothing.
    power, power_weight : float
        Exponent (alpha in the paper) and weight of the sum of powers, which is largest for certain predictions.
        The official code has the weight .3 on Office-Home and ImageNet-Caltech, 1 on Office-31 and VisDA.
    consistency : float
        Weight of the agreement with neighbours.
    neighbours, second_neighbours : int
        Nearest target samples by the cosine of pooled features, and of each of them (VisDA: 5 and 5).
    start : float
        Share of the training after which both terms of the target begin, not before the weights are first computed:
        they make the classifier's clusters certain, those on outlier classes too.
    pca_head : bool
        Start the head from principal axes of the target (`pca_head`); not together with a warm-up, which it
        would undo. Off in the recipe for frozen features: they cannot move towards such a head.
    head_samples : int or None
        Source samples that this start of the head is computed from, drawn at random (on ImageNet, 128000); None: all.

    Notes
    -----
    The network is part of the method: ``minibatch.network.sphere`` is "auto", its width 256, or the next power of two
    from 3 C on for more classes.

    Deviations from the official code (the paper's text was not available to us):

    - The bank is filled with all target samples when the terms of the target begin; the official code fills it before
      training by label instead of index: most rows are noise until their first batch.
    - A sample is removed from its own list of neighbours by its index; the official code removes whichever comes first.
      Its test for mutual neighbours compares with source samples and has no effect: left out.
    - ``sum q log q`` in its consistency has no gradient: left out.
    - The terms of the target begin with the step at `start`; in the official code, with the step after it.
    - While pooled features do not change (frozen features), neighbours are searched once.
    - A class without source samples keeps its row of the head at the PCA start.
    - Bottleneck and critic start Xavier-normal; in the official code, Kaiming-normal and Kaiming-uniform. All steps run
      in training mode; in the official code, those after an evaluation have BatchNorm in evaluation mode.
    - For the weights see `Chi2Ball`. We report the last iterate, the official code the best by target labels.

    References
    ----------
    .. [1] Gu et al., "Adversarial reweighting with alpha-power maximization for domain adaptation", IJCV 2024.
    """

    name: ClassVar[str] = "arpm"
    summary: ClassVar[str] = "adversarial reweighting, certain predictions, agreement of target neighbours"
    reference: ClassVar[str] = "Gu et al., IJCV 2024"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("critic", "neighbours", "partial")
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features", "pooled")}
    weights: ClassVar[str] = "chi2_ball"

    label_smooth: float = 0.1
    power: float = 6.0
    power_weight: float = 0.3
    consistency: float = 1.0
    neighbours: int = 4
    second_neighbours: int = 3
    start: float = 1 / 6
    pca_head: bool = True
    head_samples: int | None = None

    def __post_init__(self) -> None:
        check_nonnegative("label_smooth", self.label_smooth, maximum=1.0)
        check_positive("power - 1", self.power - 1, remedy="The sum of powers must grow with certainty.")
        for name in ("power_weight", "consistency"):
            check_nonnegative(name, getattr(self, name))
        for name in ("neighbours", "second_neighbours"):
            check_count(name, getattr(self, name))
        check_nonnegative("start", self.start, maximum=1.0)
        if self.head_samples is not None:
            check_count("head_samples", self.head_samples)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The source alone, then the terms of the target too."""
        return Phase("source", self.start, adapts=False), Phase(TARGET)

    def check_first_refresh(self, share: float) -> None:
        """Refuse terms of the target that begin before the first weights."""
        if self.start < share - ROUNDED:
            got, allowed = f"{self.start:.4g}, before the source is first weighted", f"at least {share:.4g}"
            remedy = "Raise it, or let weight_params.periods be larger: the source is weighted after the first period."
            raise InputError("params.start", got=got, allowed=allowed, remedy=remedy)

    def make_memory(self, setup: Setup) -> TargetBank:
        """Make an empty bank."""
        return TargetBank(setup, max(self.neighbours, self.second_neighbours))

    def refresh(self, memory: TargetBank, progress: TrainProgress, request: PassRequest) -> None:
        """Set the head before the first step; fill the bank before the first step that uses it."""
        if progress.step == 0 and self.pca_head:
            _start_head(request(), self.head_samples, memory.seed)
        if progress.phase == TARGET and progress.starts_phase:
            target, head = request().target, request().network.head
            # At step 0 the head is newer than the outputs.
            logits = frozen_head(head, target.features.to(head.weight))
            memory.fill(_directions(target), torch.softmax(logits.float(), dim=1))

    def step(self, context: BatchContext, memory: TargetBank) -> StepResult:
        """Return the loss of one batch."""
        weights = context.given_weights
        classification = weighted_cross_entropy(context.source.logits, context.labels, weights, self.label_smooth)
        total, metrics = classification, {"classification": classification}
        if context.progress.phase == TARGET:
            p = torch.softmax(frozen_head(context.head, context.target.features).float(), dim=1)
            power = p.pow(self.power).sum(dim=1).mean()
            consistency = self._consistency(p, context, memory)
            total = total - self.power_weight * power + self.consistency * consistency
            metrics |= {"power": power, "consistency": consistency}
        return StepResult.of(total, normalized(weights), **metrics)

    def _consistency(self, p: Tensor, context: BatchContext, bank: TargetBank) -> Tensor:
        """Minus the agreement with the neighbours of neighbours; the bank sees the batch first."""
        rows = context.target_rows
        assert rows is not None
        with torch.no_grad():
            bank.write(rows, _directions(context.target), p.detach())
            first = bank.neighbours(rows, self.neighbours)
            second = bank.neighbours(first.flatten(), self.second_neighbours)
            wanted = bank.scores[second.reshape(len(rows), first.shape[1] * second.shape[1])].sum(dim=1)
        return -NEIGHBOUR_WEIGHT * (p * wanted).sum(dim=1).mean()


def _start_head(data: DatasetPass, samples: int | None, seed: int) -> None:
    head, features = data.network.head, data.target.features
    n_classes, limit = head.out_features, min(features.shape)
    if n_classes > limit:
        reason = "the head starts at random: %d classes need as many target samples and features, here at least %d"
        logger.info(reason, n_classes, limit)
        return
    n, labels = len(data.labels), data.labels
    if samples is None or samples >= n:
        of_source = data.source
    else:
        rows = torch.from_numpy(draw_rows(n, samples, seed, step=0))
        of_source, labels = data.of_source(rows), labels[rows.to(labels.device)]
    with torch.no_grad():
        weight = pca_head(of_source.features, labels, features, head.weight.detach()).to(head.weight)
        # In place: assigning would cut a distributed wrapper's hooks.
        (head.raw_weight if isinstance(head, SphereHead) else head.weight).copy_(weight)


def pca_head(source: Tensor, labels: Tensor, target: Tensor, otherwise: Tensor) -> Tensor:
    """Weight of a head whose rows are in the span of the first principal axes of the target, one axis per class.

    The axis along which a source sample is furthest from the target's mean votes for the sample's class; row k is the
    mean of the axes that the samples of class k voted for, or that of `otherwise` (C, d) without samples. C is at most
    n_t and d. The sign of an axis is free, and the votes depend on it: the target sample that is furthest from the mean
    along an axis is on its positive side. That is the rule of scikit-learn 1.3, which the official code pins; later
    releases make the largest entry of the axis positive.
    """
    n_classes = len(otherwise)
    x = target.double().cpu()
    centre = x.mean(dim=0)
    axes = torch.from_numpy(principal_axes((x - centre).numpy(), n_classes)[1]).T
    scores = (x - centre) @ axes.T
    axes = axes * scores.gather(0, scores.abs().argmax(dim=0, keepdim=True)).sign().T
    # A part at a time: in float64 the features of a large source take more memory than the pass that they come from.
    parts = torch.split(source, CHUNK)
    votes = torch.cat([((part.double().cpu() - centre) @ axes.T).argmax(dim=1) for part in parts])
    counts = torch.zeros(n_classes, n_classes, dtype=torch.float64)
    counts.index_put_((labels.cpu(), votes), torch.ones(len(votes), dtype=torch.float64), accumulate=True)
    per_class = counts.sum(dim=1, keepdim=True)
    return torch.where(per_class > 0, counts @ axes / per_class.clamp_min(1.0), otherwise.double().cpu())
