"""SLM: select source samples, label target samples, mix both; adversarial alignment of what was selected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot._checks import check_count, check_nonnegative, check_positive
from warmpot.errors import InputError
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DELTA, mean_one
from warmpot.methods.base import OFFICIAL, BatchContext, Memory, Method, Phase, Setup, StepResult
from warmpot.methods.losses import reversal_strength, sample_entropy
from warmpot.nets import Discriminator, Outputs, reverse_gradient
from warmpot.weights import normalized
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["Slm"]

ALIGN, SELECT = "align", "select"
"""Names of the phases."""
SOURCE, TARGET = 0, 1
"""Labels of the domains for the discriminators."""
COLDEST = 1e-5
"""Added to temperatures that fall to 0, as in the official code."""
GUARD = 1e-5
"""Added to probabilities in the entropies of `diversity`, as in the official code."""


class SelectorMemory(Memory):
    """The selector, and a discriminator for each phase; the official second phase starts with a new one.

    The seed of the draws is part of the state: a checkpoint determines them.
    """

    seed: Tensor

    def __init__(self, setup: Setup, hidden: int) -> None:
        super().__init__()
        self.register_buffer("seed", torch.tensor(setup.seed))
        seeds = (3 * setup.seed + k for k in range(3))
        self.first = Discriminator(setup.width, hidden, seed=next(seeds), n_outputs=2)
        self.discriminator = Discriminator(setup.width, hidden, seed=next(seeds), n_outputs=2)
        self.selector = Discriminator(setup.pooled, hidden, dropout=0.0, seed=next(seeds), n_outputs=2)

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters of all three."""
        return self.parameters()


class Draws(NamedTuple):
    """The random numbers of a step: of the selection (n_s, 2), of mixing ratios, and of who is mixed with whom."""

    noise: Tensor
    ratio: float
    source_ratio: float
    target_ratio: float
    source_order: Tensor
    target_order: Tensor


class Selection(NamedTuple):
    """What source samples count (n_s,), with the gradient of the selector, and the loss of the selector's own terms."""

    counts: Tensor
    loss: Tensor


@dataclass(frozen=True)
class Slm(Method[SelectorMemory]):
    """Minimise ``L_cls + L_adv + label L_label + mix L_mix + L_select + diversity (mean_j H(p_j) - H(mean_j p_j))``.

    Specification: docs/method-specifications.md, SLM.

    The first phase is DANN, ``CE + mean_i l(f_i) + mean_j l(f_j)``, where l is the loss of a discriminator between the
    domains and the features ascend on it through a reversed gradient. Its strength is
    ``r = 2 / (1 + exp(-slope s)) - 1`` after a share s of the phase. The second phase starts with a new discriminator:

    - *Select.* A selector draws ``a_i`` in {0, 1} for every source sample (Gumbel softmax with a straight-through
      gradient, temperature 1 - r). ``L_cls = mean_i a_i CE_i`` with smoothed labels. The selector learns from
      ``L_select = hausdorff max(0, D(a) - D(1 - a) + margin) + concentration H(softmax_i of its scores)``, where
      ``D(a) = mean_i min_j a_i d_ij + mean_j min_i a_i d_ij`` for the distances d of features, and from L_adv.
    - ``L_adv = mean_i a_i H(p_i) l(f_i) + mean_j H(p_j) l(f_j)``. The entropies have no gradient; that of a is
      reversed.
    - *Label.* ``L_label = mean_j m_j S(p_j, q_j)`` with ``q_j = softmax(z_j / (temperature (1 - r)))`` and ``m_j = 1``
      where ``max p_j >= threshold``. ``S(p, q) = -sum_k q_k log softmax(p)_k`` has a second softmax, of probabilities,
      as in the official code.
    - *Mix.* Inputs are mixed, and pass the network: ``rho x_i + (1 - rho) x_j`` of both domains; and of a sample and
      another one of the same domain, by a ratio of its own. Ratios are from Beta(spread, spread); rho is rounded to
      two digits and kept ``gap`` away from one half. A mixture has the mixed labels (those of the target: q); it counts
      if all its parts do, by ``a`` and ``m``. L_mix has the losses of labels and those of the discriminator, by rho for
      the domain of the source and 1 - rho for the target's.

    Attributes
    ----------
    align : float
        Share of the steps in the first phase.
    adversarial, label, mix, diversity : float
        Weights of the terms; ``mix: 0`` saves three passes per step.
    hausdorff, margin : float
        Weight and margin of the distance between sets.
    concentration : float
        Weight of the entropy of the selector's scores over the batch.
    selector_rate : float
        Learning rate of the selector, relative to that of the discriminators (with SGD).
    smoothing, threshold, temperature : float
        Of labels; of the pseudo-labels' largest probability; of pseudo-labels at the start of the phase.
    spread, gap : float
        Of the mixing ratios.
    slope : float
        How fast the reversal comes up.
    hidden : int
        Width of the two hidden layers of discriminators and selector.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The official selector is a ResNet-18 on images. Ours has two hidden layers, and its input is that of the
      bottleneck, without gradient. Its learning rate is multiplied through its gradient, so that its weight decay is
      that of the others.
    - The official network has BatchNorm of its own for each domain. Ours passes the domains separately, with their own
      statistics in training, but has one set of weights and of running averages. Mixtures of the domains therefore pass
      once, not once as source and once as target.
    - The official code multiplies the distances d_ij by ``a_j``: the selection of the source sample that has the number
      of the target sample. It is ``a_i`` here, as in the paper; equal minima share their gradient.
    - Smoothed labels are divided by the number of classes; there by 31 on every data set.
    - Batches of different sizes are mixed up to the smaller. Mixed pixels are rounded to whole numbers.
    - Momentum is kept between the phases.
    - The official phases end with the checkpoint of best target accuracy, which needs target labels; ours with the
      last.
    - Discriminators and selector start from Xavier-normal weights and zero biases; there from PyTorch's default.
    - The official code trains the last stage of the backbone only. The preset does not know the backbone: set
      ``images.backbone.train_from`` (layer4 of a ResNet).
    - With another weighting, its weights (divided by their mean) replace a in both phases, and L_select is left out.

    References
    ----------
    Sahoo, Panda, Feris, Saenko, Das, "Select, label, and mix: Learning discriminative invariant feature representations
    for partial domain adaptation", WACV 2023.
    """

    name: ClassVar[str] = "slm"
    summary: ClassVar[str] = "adversarial: a selector of source samples, soft pseudo-labels, mixtures of samples"
    reference: ClassVar[str] = "Sahoo et al., WACV 2023"
    status: ClassVar[str] = f"{OFFICIAL}, with another selector"
    tags: ClassVar[tuple[str, ...]] = ("adversarial", "pseudo-labels", "partial")
    weights: ClassVar[str] = "own"

    align: float = 1.0 / 3.0
    adversarial: float = 1.0
    label: float = 1.0
    mix: float = 1.0
    diversity: float = 0.1
    hausdorff: float = 0.01
    margin: float = 100.0
    concentration: float = 10.0
    selector_rate: float = 10.0
    smoothing: float = 0.2
    threshold: float = 0.3
    temperature: float = 0.05
    spread: float = 2.0
    gap: float = 0.1
    slope: float = 10.0
    hidden: int = 1024

    def __post_init__(self) -> None:
        for name in ("adversarial", "label", "mix", "diversity", "hausdorff", "margin", "concentration",
                     "selector_rate", "slope"):  # fmt: skip
            check_nonnegative(name, getattr(self, name))
        for name in ("align", "smoothing", "threshold"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        check_nonnegative("gap", self.gap, maximum=0.5)
        for name in ("temperature", "spread"):
            check_positive(name, getattr(self, name))
        check_count("hidden", self.hidden)
        if self.align >= 1:
            remedy = "Leave steps to the second phase."
            raise InputError("align", got=self.align, allowed="0 <= align < 1", remedy=remedy)

    @property
    def expected_share(self) -> float:
        """Any class may be the only one."""
        return SMALLEST_BETA

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Align all samples; then select, label and mix."""
        return Phase(ALIGN, self.align), Phase(SELECT, restarts_decay=True)

    def make_memory(self, setup: Setup) -> SelectorMemory:
        """Make the discriminators of features, with dropout, and the selector of the bottleneck's inputs."""
        return SelectorMemory(setup, self.hidden)

    def step(self, context: BatchContext, memory: SelectorMemory) -> StepResult:
        """Return the loss of one batch; discriminators and selector learn from the same."""
        strength = reversal_strength(context.progress.phase_share, self.slope)
        if context.progress.phase == ALIGN:
            return self._align(context, memory, strength)
        source, target, labels = context.source, context.target, context.labels
        rest = 1.0 - strength + COLDEST
        draws = self._draw(int(memory.seed), context.progress.step, len(labels), len(target.logits))
        selection = self._select(context, memory, draws.noise, rest)
        counts, fixed = reverse_gradient(selection.counts, strength), selection.counts.detach()
        classification = (fixed * self._smoothed(source.logits, labels)).mean()
        doubts = sample_entropy(source.logits.detach()), sample_entropy(target.logits.detach())
        of_source = _judged(memory.discriminator, source.features, SOURCE, strength)
        of_target = _judged(memory.discriminator, target.features, TARGET, strength)
        adversarial = (of_source * doubts[0] * counts).mean() + (of_target * doubts[1]).mean()
        soft, sure = self._pseudo_labels(target.logits, rest)
        label = (sure * _second_softmax_loss(target.logits, soft)).mean()
        diversity = _diversity(target.logits)
        total = classification + self.adversarial * adversarial + self.label * label + selection.loss
        total = total + self.diversity * diversity
        metrics = {"selected": fixed.mean(), "sure": sure.mean(), "reversal": strength}
        if self.mix > 0:
            labels_mix, domains_mix = self._mix(context, memory, draws, selection.counts, (soft, sure))
            total = total + self.mix * (labels_mix + self.adversarial * domains_mix)
            metrics["mix"] = labels_mix
        return StepResult.of(
            total, normalized(fixed, DELTA),
            classification=classification, adversarial=adversarial, label=label, select=selection.loss, **metrics,
        )  # fmt: skip

    def _align(self, context: BatchContext, memory: SelectorMemory, strength: float) -> StepResult:
        """DANN: the sum of both means, not half of it."""
        source, target = context.source, context.target
        losses = functional.cross_entropy(at_least_float32(source.logits), context.labels, reduction="none")
        weights = torch.ones_like(losses).detach() if context.weights is None else mean_one(context.weights).to(losses)
        classification = (weights * losses).mean()
        of_source = _judged(memory.first, source.features, SOURCE, strength)
        of_target = _judged(memory.first, target.features, TARGET, strength)
        adversarial = (weights * of_source).mean() + of_target.mean()
        return StepResult.of(
            classification + self.adversarial * adversarial, normalized(weights, DELTA),
            classification=classification, adversarial=adversarial, reversal=strength,
        )  # fmt: skip

    def _draw(self, seed: int, step: int, n_source: int, n_target: int) -> Draws:
        """Draw by seed and step alone, so that a resumed run, and every process, draws the same."""
        rng = np.random.default_rng([seed, step])
        ratio, of_source, of_target = (float(x) for x in rng.beta(self.spread, self.spread, size=3))
        ratio = round(ratio, 2)
        if abs(ratio - 0.5) < self.gap:
            ratio = 0.5 + self.gap if ratio >= 0.5 else 0.5 - self.gap
        orders = (torch.from_numpy(rng.permutation(n)) for n in (n_source, n_target))
        return Draws(torch.from_numpy(rng.gumbel(size=(n_source, 2))), ratio, of_source, of_target, *orders)

    def _select(self, context: BatchContext, memory: SelectorMemory, noise: Tensor, rest: float) -> Selection:
        """Draw a selection and compute the selector's own terms; given weights replace it."""
        if context.weights is not None:
            given = at_least_float32(mean_one(context.weights))
            return Selection(given, given.new_zeros(()))
        if context.source.pooled is None:
            raise RuntimeError("this context was made without the inputs of the bottleneck")
        scores = at_least_float32(memory.selector(context.source.pooled.detach()))
        scores = reverse_gradient(scores, -self.selector_rate)  # not reversed: multiplied
        noisy = scores + noise.to(scores.dtype).to(scores.device)
        soft = torch.softmax(noisy / rest, dim=1)[:, 1]
        counts = (noisy[:, 1] > noisy[:, 0]).to(soft.dtype) + (soft - soft.detach())  # exactly 0 or 1
        features, others = (at_least_float32(side.features.detach()) for side in (context.source, context.target))
        distances = torch.cdist(features, others)
        difference = _set_distance(distances, counts) - _set_distance(distances, 1.0 - counts)
        loss = self.hausdorff * functional.relu(difference + self.margin)
        return Selection(counts, loss + self.concentration * sample_entropy(scores[None, :, 1]).sum())

    def _smoothed(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits = at_least_float32(logits)
        return functional.cross_entropy(logits, labels, reduction="none", label_smoothing=self.smoothing)

    def _pseudo_labels(self, logits: Tensor, rest: float) -> tuple[Tensor, Tensor]:
        """Return soft pseudo-labels (n_t, C), which become sharp, and which samples are sure (n_t,)."""
        logits = at_least_float32(logits.detach())
        sure = torch.softmax(logits, dim=1).amax(dim=1) >= self.threshold
        return torch.softmax(logits / (self.temperature * rest), dim=1), sure.to(logits.dtype)

    def _mix(
        self, context: BatchContext, memory: SelectorMemory, draws: Draws, counts: Tensor, pseudo: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Return the losses of mixtures: of their labels, and of their domains."""
        strength = reversal_strength(context.progress.phase_share, self.slope)
        between, in_source, in_target = _mixed_outputs(context, draws)
        (soft, sure), labels, fixed = pseudo, context.labels, counts.detach()
        n, rho = len(between.logits), draws.ratio

        def judged(features: Tensor, domain: int) -> Tensor:
            return _judged(memory.discriminator, features, domain, strength)

        # mixtures of the domains
        known = (rho * fixed[:n] * self._smoothed(between.logits, labels[:n])).mean()
        guessed = _second_softmax_loss(between.logits, (1.0 - rho) * soft[:n])
        of_labels = known + (fixed[:n] * sure[:n] * guessed).mean()
        domains = rho * judged(between.features, SOURCE) + (1.0 - rho) * judged(between.features, TARGET)
        of_domains = (domains * reverse_gradient(counts[:n], strength)).mean()
        # mixtures of the source
        order, ratio = draws.source_order.to(labels.device), draws.source_ratio
        losses = ratio * self._smoothed(in_source.logits, labels)
        losses = losses + (1.0 - ratio) * self._smoothed(in_source.logits, labels[order])
        of_labels = of_labels + (fixed * fixed[order] * losses).mean()
        both = reverse_gradient(counts * counts[order], strength)
        of_domains = of_domains + (rho * judged(in_source.features, SOURCE) * both).mean()
        # mixtures of the target
        order, ratio = draws.target_order.to(labels.device), draws.target_ratio
        losses = _second_softmax_loss(in_target.logits, ratio * soft + (1.0 - ratio) * soft[order])
        of_labels = of_labels + (sure * sure[order] * losses).mean()
        return of_labels, of_domains + ((1.0 - rho) * judged(in_target.features, TARGET)).mean()


def _mixed_outputs(context: BatchContext, draws: Draws) -> tuple[Outputs, Outputs, Outputs]:
    """Pass mixtures of the domains, of the source and of the target through the network."""
    source, target, forward = context.inputs, context.target_inputs, context.forward
    if source is None or target is None or forward is None:
        raise RuntimeError("this context was made without inputs or a network")

    def other(x: Tensor, order: Tensor) -> Tensor:
        """Return the partners of the samples of this process, which any process may have."""
        return context.own_rows(context.gather(x)[order.to(x.device)])

    n = min(len(source), len(target))
    mixtures = (
        _mixture(source[:n], target[:n], draws.ratio),
        _mixture(source, other(source, draws.source_order), draws.source_ratio),
        _mixture(target, other(target, draws.target_order), draws.target_ratio),
    )
    dtype = context.source.features.dtype  # the main pass may return another precision than the network's own
    outputs = [Outputs(*(part.to(dtype) for part in forward(x)[:2])) for x in mixtures]
    return outputs[0], outputs[1], outputs[2]


def _mixture(first: Tensor, second: Tensor, ratio: float) -> Tensor:
    """Return ``ratio first + (1 - ratio) second``; whole numbers, which pixels are, stay whole numbers."""
    if first.is_floating_point():
        return ratio * first + (1.0 - ratio) * second
    return (ratio * first.float() + (1.0 - ratio) * second.float()).round().to(first.dtype)


def _judged(discriminator: nn.Module, features: Tensor, domain: int, strength: float) -> Tensor:
    """Return the loss of a discriminator for every sample: cross-entropy of two sigmoids, taken for logits.

    It lies between .31 and 1.31, as in the official code.
    """
    scores = torch.sigmoid(at_least_float32(discriminator(reverse_gradient(features, strength))))
    return functional.softplus(scores[:, 1 - domain] - scores[:, domain])


def _set_distance(distances: Tensor, counts: Tensor) -> Tensor:
    """Averaged Hausdorff distance of (n_s, n_t) distances, whose rows count by `counts`."""
    counted = counts[:, None] * distances
    return counted.amin(dim=1).mean() + counted.amin(dim=0).mean()


def _second_softmax_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return ``-sum_k q_k log softmax(p)_k``, (n,), for the probabilities p of logits and soft labels q."""
    probabilities = torch.softmax(at_least_float32(logits), dim=1)
    return -(labels * torch.log_softmax(probabilities, dim=1)).sum(dim=1)


def _diversity(logits: Tensor) -> Tensor:
    """Mean entropy of predictions, less the entropy of the mean prediction."""
    p = torch.softmax(at_least_float32(logits), dim=1)
    mean = p.mean(dim=0)
    return (mean * torch.log(mean + GUARD)).sum() - (p * torch.log(p + GUARD)).sum(dim=1).mean()
