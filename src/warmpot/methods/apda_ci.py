"""APDA-CI: adversarial alignment, weighted by whether a sample keeps its class when moved to the target and back."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative, check_positive
from warmpot.errors import InputError
from warmpot.methods.adversarial import DiscriminatorMemory, domain_loss
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    Domain,
    Method,
    PassRequest,
    Phase,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import mean_entropy, reversal_strength, sample_entropy, weighted_cross_entropy
from warmpot.nets import Discriminator, frozen_head
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["ApdaCi"]

SOURCE, CENTRING, ADAPT = "source", "centring", "adapt"
TINY = 1e-30
"""Keeps a quotient by a mean that may be 0 finite."""


class CentreMemory(DiscriminatorMemory):
    """The discriminator, and the centres of source classes and of target clusters."""

    source_centres: Tensor
    target_centres: Tensor

    def __init__(self, setup: Setup, hidden: int) -> None:
        super().__init__(Discriminator(setup.width, hidden, seed=setup.seed, batch_norm=True))
        self.seed = setup.seed
        self.register_buffer("source_centres", torch.zeros(setup.n_classes, setup.width))
        # as many clusters as classes, if there are as many samples
        self.register_buffer("target_centres", torch.zeros(min(setup.n_classes, setup.n_target), setup.width))


@dataclass(frozen=True)
class ApdaCi(Method[CentreMemory]):
    """Minimise ``wCE(w) + a1 MSE(f_i, m_y) + a2 MSE(f_j, m_nearest) + adversarial L_adv(w) + entropy mean_j H(p_j)``.

    Specification: docs/method-specifications.md, APDA-CI.

    ``m`` are the means of the source classes, ``M_s``, and the centres of as many clusters of the target, ``M_t``. A
    feature moves to a domain by ``T(f; M) = softmax_k(-||f - m_k||^2 / temperature) M``. The weights of source samples
    compare the label with the predictions at two places: ``p1`` at ``T(f; M_t)``, and ``p2`` at ``T(T(f; M_t); M_s)``,
    moved to the source again. With every factor divided by its mean over the batch,

        w = mixing (1 + exp(-H(p1))) p1[y] + (1 - mixing) p2[y],

    divided by its own mean. A sample of an outlier class comes back as another class. No gradient goes through w.

    ``L_adv = (mean_i w_i BCE_i + mean_j BCE_j) / 2`` is DANN's: a discriminator with BatchNorm descends, the features
    ascend through a reversed gradient of strength ``2 / (1 + exp(-slope s)) - 1`` after a share s of the last phase.

    There are three phases: cross-entropy of the source; with ``centring_weight MSE(f_i, m_y)`` added; and the whole.
    ``M_s`` is computed from all samples at the start of the second and the third phase, ``M_t`` by k-means at the start
    of the third. After every step of these phases each centre moves to the mean of its samples in the batch,
    ``m <- momentum m + (1 - momentum) mean``.

    Attributes
    ----------
    adversarial, entropy : float
        Weights of the terms.
    source_centre, target_centre : float
        ``a1`` and ``a2``: 0 and .1 on Office-Home, .5 and .5 on Office-31.
    mixing : float
        Weight of the prediction at the target, against that at the source again.
    temperature : float
        Of the softmax over the centres.
    momentum : float
        Of the centres: .99 on Office-Home, .9 on Office-31.
    pretrain, centring : float
        Shares of the steps that the first two phases take.
    centring_weight : float
        Weight of the distances to the class means in the second phase.
    slope : float
        How fast the reversal comes up. The official 1000 steps are a slope of 30 in the 30000 steps of Office-Home,
        and of 3 in the 3000 of Office-31.
    hidden : int
        Width of the discriminator's two hidden layers.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The discriminator starts Xavier-normal; the official one as PyTorch's layers do by default.
    - Entropies are those of the probabilities; officially of the probabilities + 1e-5.
    - One optimiser for all phases: the official first two have weight decay 5e-4 and decay rate 3e-4, the third 1e-3
      and 1e-3, which is ours for all. The decay of the learning rate starts again with each phase, as there; momentum
      does not.
    - The official phases start from the checkpoint of best target accuracy of the phase before, which needs target
      labels; ours from the last. The same holds for the result.
    - With fewer target samples than classes there are as many clusters as samples.
    - The mean of the weights is at least 1e-30; the official code divides by 0 there.
    - The discriminator's loss is taken from logits, not from a sigmoid whose logarithm is cut off at -100.
    - With another weighting, its weights (divided by their mean) replace w.

    References
    ----------
    Lin, Zhou, Qiu, Zheng, "Adversarial partial domain adaptation by cycle inconsistency", ECCV 2022.
    """

    name: ClassVar[str] = "apda-ci"
    summary: ClassVar[str] = "adversarial: source samples count that keep their class when moved to the target and back"
    reference: ClassVar[str] = "Lin et al., ECCV 2022"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "clusters", "partial")
    weights: ClassVar[str] = "own"
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features",)}

    adversarial: float = 1.0
    entropy: float = 0.1
    source_centre: float = 0.0
    target_centre: float = 0.1
    mixing: float = 0.5
    temperature: float = 1.0
    momentum: float = 0.99
    pretrain: float = 2500 / 33000
    centring: float = 500 / 33000
    centring_weight: float = 0.1
    slope: float = 30.0
    hidden: int = 1024

    def __post_init__(self) -> None:
        for name in ("adversarial", "entropy", "source_centre", "target_centre", "centring_weight", "slope"):
            check_nonnegative(name, getattr(self, name))
        for name in ("mixing", "momentum", "pretrain", "centring"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        check_positive("temperature", self.temperature)
        check_count("hidden", self.hidden)
        if self.pretrain + self.centring >= 1:
            got = f"{self.pretrain:g} and {self.centring:g}"
            remedy = "Leave steps for the phase that adapts."
            raise InputError("pretrain, centring", got=got, allowed="a sum below 1", remedy=remedy)

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Train on the source; draw its classes together; adapt."""
        return (
            Phase(SOURCE, self.pretrain, adapts=False, uses_target=False),
            Phase(CENTRING, self.centring, adapts=False, uses_target=False, restarts_decay=True),
            Phase(ADAPT, restarts_decay=True),
        )

    def make_memory(self, setup: Setup) -> CentreMemory:
        """Make the discriminator of features, and room for the centres."""
        return CentreMemory(setup, self.hidden)

    def refresh(self, memory: CentreMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Compute the centres from all samples when a phase that uses them starts."""
        if progress.phase == SOURCE or not progress.starts_phase:
            return
        data = request()
        features = data.source.features.to(memory.source_centres.dtype)
        # a class without samples, which no label names, is put where it does no harm: at the mean of all
        memory.source_centres.copy_(features.mean(dim=0).expand_as(memory.source_centres))
        _move(memory.source_centres, features, data.labels, momentum=0.0)
        if progress.phase == ADAPT:
            memory.target_centres.copy_(_clusters(data.target.features, len(memory.target_centres), memory.seed))

    def step(self, context: BatchContext, memory: CentreMemory) -> StepResult:
        """Return the loss of the phase; then move the centres."""
        source, labels = context.source, context.labels
        phase, uniform = context.progress.phase, torch.ones_like(source.logits[:, 0]).detach()
        if phase != ADAPT:
            loss = weighted_cross_entropy(source.logits, labels, uniform, delta=0.0)
            if phase == CENTRING:
                loss = loss + self.centring_weight * _centre_loss(source.features, memory.source_centres, labels)
                _move(memory.source_centres, source.features, labels, self.momentum)
            return StepResult.of(loss, uniform / len(uniform))
        target = context.target
        given = self._cycle_weights(context, memory) if context.weights is None else context.weights
        weights = _with_mean_one(given.detach())
        nearest = _similarities(target.features.detach(), memory.target_centres).argmax(dim=1)
        strength = reversal_strength(context.progress.phase_share, self.slope)
        classification = weighted_cross_entropy(source.logits, labels, weights, delta=TINY)
        adversarial = domain_loss(memory.discriminator, source.features, target.features, strength, weights)
        entropy = mean_entropy(target.logits)
        to_classes = _centre_loss(source.features, memory.source_centres, labels)
        to_clusters = _centre_loss(target.features, memory.target_centres, nearest)
        total = classification + self.source_centre * to_classes + self.target_centre * to_clusters
        total = total + self.adversarial * adversarial + self.entropy * entropy
        _move(memory.source_centres, source.features, labels, self.momentum)
        _move(memory.target_centres, target.features, nearest, self.momentum)
        return StepResult.of(
            total, weights / len(weights),
            classification=classification, adversarial=adversarial, entropy=entropy, centres=to_clusters,
        )  # fmt: skip

    @torch.no_grad()
    def _cycle_weights(self, context: BatchContext, memory: CentreMemory) -> Tensor:
        there = self._transported(context.source.features, memory.target_centres)
        back = self._transported(there, memory.source_centres)
        logits = [frozen_head(context.head, features) for features in (there, back)]
        rows = torch.arange(len(there), device=there.device)
        at_target, after = (_with_mean_one(torch.softmax(z, dim=1)[rows, context.labels]) for z in logits)
        sure = _with_mean_one(1.0 + torch.exp(-sample_entropy(logits[0])))
        return self.mixing * sure * at_target + (1.0 - self.mixing) * after

    def _transported(self, features: Tensor, centres: Tensor) -> Tensor:
        similarities = _similarities(features, centres) / self.temperature
        return torch.softmax(similarities, dim=1) @ centres.to(features.dtype)


def _similarities(features: Tensor, centres: Tensor) -> Tensor:
    """Return ``-||f - m||^2`` up to a number of each row, which neither a softmax nor the nearest centre sees."""
    centres = centres.to(features.dtype)
    return 2.0 * features @ centres.T - centres.square().sum(dim=1)


def _with_mean_one(weights: Tensor) -> Tensor:
    return weights / weights.mean().clamp_min(TINY)


def _centre_loss(features: Tensor, centres: Tensor, index: Tensor) -> Tensor:
    """Mean square, over samples and columns, of the distance to given centres; the centres get no gradient."""
    return (features - centres[index].to(features.dtype)).square().mean()


@torch.no_grad()
def _move(centres: Tensor, features: Tensor, index: Tensor, momentum: float) -> None:
    """Move every centre that has samples towards their mean."""
    members = functional.one_hot(index, len(centres)).to(centres.dtype)
    counts = members.sum(dim=0)
    means = members.T @ features.to(centres.dtype) / counts.clamp_min(1.0)[:, None]
    centres.copy_(torch.where((counts > 0)[:, None], momentum * centres + (1.0 - momentum) * means, centres))


def _clusters(features: Tensor, number: int, seed: int) -> Tensor:
    """Return the centres of k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct samples than clusters: some are alike
        found = KMeans(number, n_init=10, random_state=seed).fit(features.double().cpu().numpy())
    return torch.from_numpy(found.cluster_centers_)
