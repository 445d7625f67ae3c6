"""SHOT++: the source's classifier is kept while the target's features move; then MixMatch on the target alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from warmpot._checks import check_count, check_fraction, check_nonnegative, check_positive
from warmpot.errors import InputError
from warmpot.losses import at_least_float32
from warmpot.methods.base import (
    OFFICIAL,
    BatchContext,
    BatchSpec,
    Domain,
    Memory,
    Method,
    PassRequest,
    Phase,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import mean_entropy, sample_entropy, weighted_cross_entropy
from warmpot.nets import make_linear, restart_head
from warmpot.weights import normalized

__all__ = ["ShotMemory", "ShotPlus", "centroid_labels", "interleaved", "mixed_samples", "split_by_entropy"]

SOURCE, ROTATION, TARGET, MIXING = "source", "rotation", "target", "mixing"
"""Names of the phases."""
EASY, VIEW = "easy", "view"
"""Names of the batches of samples with a pseudo-label, and of the others in a second random view."""
TURNS = 4
"""Rotations of an image: by 0, 90, 180 and 270 degrees."""
ROUNDS = 2
"""Rounds of centroids and labels, as in the official code."""
DELTA = 1e-30
"""Keeps a mean with weights that may all be 0 finite."""


@torch.no_grad()
def centroid_labels(features: Tensor, logits: Tensor, threshold: int) -> Tensor:
    """Label every sample with the class of the nearest centroid: (n, d) and (n, C) to (n,).

    Features get a last entry 1, and length 1. The centroids are means over all samples, first weighted by the
    probabilities, then over those that the first round gave to a class; nearest is that of the largest cosine. Classes
    with at most `threshold` samples, by the labels so far, are left out; if that is all of them, those without samples.

    Examples
    --------
    >>> x = torch.tensor([[0.0, 2.0], [0.0, 3.0], [2.0, 0.0], [3.0, 0.1]])
    >>> centroid_labels(x, torch.tensor([[3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.5, 0.0]]), threshold=0).tolist()
    [0, 0, 1, 1]
    """
    features, logits = at_least_float32(features), at_least_float32(logits)
    rows = functional.normalize(torch.cat([features, torch.ones_like(features[:, :1])], dim=1), dim=1)
    members, labels = torch.softmax(logits, dim=1), logits.argmax(dim=1)
    for _ in range(ROUNDS):
        centroids = functional.normalize(members.T @ rows / (members.sum(dim=0)[:, None] + 1e-8), dim=1, eps=1e-30)
        counts = torch.bincount(labels, minlength=logits.shape[1])
        left_out = counts <= (threshold if int(counts.max()) > threshold else 0)
        labels = (rows @ centroids.T).masked_fill(left_out, -torch.inf).argmax(dim=1)
        members = functional.one_hot(labels, logits.shape[1]).to(rows.dtype)
    return labels


@torch.no_grad()
def split_by_entropy(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Split samples into easy and hard ones: two masks (n,).

    With the share s of samples whose entropy is below the mean, the easy samples of a predicted class are its
    ``floor(s n_k)`` with the least entropy. Without any, they are the first one of each predicted class. Without a hard
    sample, all count as hard too.

    Examples
    --------
    >>> easy, hard = split_by_entropy(torch.tensor([[9.0, 0.0], [8.0, 0.0], [0.1, 0.0], [0.0, 9.0]]))
    >>> easy.tolist(), hard.tolist()
    ([True, True, False, False], [False, False, True, True])
    """
    entropies, classes = sample_entropy(logits), logits.argmax(dim=1)
    share = int((entropies < entropies.mean()).sum()) / len(entropies)

    def first(least: int) -> Tensor:
        easy = torch.zeros_like(classes, dtype=torch.bool)
        for k in sorted(set(classes.tolist())):
            rows = torch.nonzero(classes == k).flatten()
            order = rows[entropies[rows].sort(stable=True).indices]
            easy[order[: max(int(len(rows) * share), least)]] = True
        return easy

    easy = first(0)
    if not bool(easy.any()):
        easy = first(1)
    return easy, ~easy if bool((~easy).any()) else torch.ones_like(easy)


def mixed_samples(x: Tensor, share: float, partners: Tensor) -> Tensor:
    """Return ``share x_i + (1 - share) x_partner``; whole numbers, such as pixels, are rounded."""
    if x.is_floating_point():
        return share * x + (1.0 - share) * x[partners]
    values = x.float()
    return (share * values + (1.0 - share) * values[partners]).round().to(x.dtype)


def interleaved(size: int) -> Tensor:
    """Return an order of three batches in which each has a third of every other; applied twice, it is the old one.

    So BatchNorm sees labelled and unlabelled samples together, as in MixMatch.

    Examples
    --------
    >>> interleaved(3).reshape(3, 3).tolist()
    [[0, 4, 8], [3, 1, 5], [6, 7, 2]]
    """
    order, third = torch.arange(3 * size).reshape(3, size), size // 3
    ends = [third, 2 * third + (size % 3 == 2), size]
    for k in (1, 2):
        part = slice(ends[k - 1], ends[k])
        order[0, part], order[k, part] = order[k, part].clone(), order[0, part].clone()
    return order.flatten()


class ShotMemory(Memory):
    """Pseudo-labels of the target; which samples are easy, and which hard; the classifier of rotations."""

    pseudo: Tensor
    easy: Tensor
    hard: Tensor

    def __init__(self, setup: Setup, rotates: bool) -> None:
        super().__init__()
        self.seed = setup.seed
        generator = torch.Generator().manual_seed(setup.seed)
        self.rotation = make_linear(2 * setup.width, TURNS, generator) if rotates else None
        self.register_buffer("pseudo", torch.zeros(setup.n_target, dtype=torch.int64))
        for name in ("easy", "hard"):  # none are, until the last phase
            self.register_buffer(name, torch.zeros(setup.n_target, dtype=torch.bool))

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters of the classifier of rotations."""
        return () if self.rotation is None else self.rotation.parameters()


@dataclass(frozen=True)
class ShotPlus(Method[ShotMemory]):
    """Train on the source; then, without it, fit the target's features to the frozen head; then MixMatch.

    Specification: docs/method-specifications.md, SHOT++.

    1. Source: ``wCE(w)`` with label smoothing.
    2. Rotation: a linear classifier of 4 rotations r of an image learns from ``[f(x), f(r(x))]``; the network stays.
    3. Target, with a frozen head: ``pseudo mean_j CE(c_j, p_j) + entropy mean_j H(p_j) + rotation CE_r``. The
       pseudo-labels c are those of `centroid_labels`, computed `periods` times. The rotation's gradient goes to its
       classifier and to ``f(r(x))``, not to ``f(x)``.
    4. Mixing: `split_by_entropy` gives easy samples, with the predicted class as label, and hard ones. The head starts
       from random weights again. q is the mean prediction of a hard sample in two random views, raised to the power
       ``1 / temperature`` and normalised. All inputs and labels of a batch are mixed with those of a random partner,
       ``l x + (1 - l) x'`` with ``l = max(b, 1 - b)``, b drawn from Beta(mixing, mixing) once per step. Minimised is
       ``mean CE(labels, p) + u mean (q - p)^2``: the first over the mixed easy samples, the second over the mixed hard
       ones and all classes. u grows linearly to `consistency`.

    The source has no part after the first phase: neither have its weights.

    Attributes
    ----------
    smoothing : float
        Of the source labels.
    pseudo, entropy, rotation : float
        Weights of the terms of the third phase. Rotations need images: with features the last must be 0.
    threshold : int
        A class that has at most so many target samples by prediction gets no pseudo-labels.
    periods : int
        How often pseudo-labels are computed.
    consistency : float
        Largest weight of the hard samples.
    temperature, mixing : float
        Of the guessed labels; parameter of the Beta distribution.
    mix_batch : float
        Size of each batch of the last phase, over that of the source batch.
    pretrain, turning, adapting : float
        Shares of the steps that the first three phases take; without rotations there is no second phase.

    Notes
    -----
    Reproduction of the official code's objective. Deviations:

    - The official phases last 50, 15, 15 and 50 epochs; ours have steps, the mean number over the tasks of Office-Home
      if 7 of 10 target samples are easy.
    - The official first phase trains on 90 % of the source, and takes the best of 10 iterates on the rest; ours trains
      on all, and takes the last. The classifier of rotations is the last iterate, too, not the best of 10.
    - In the last phase the easy batch passes through the network before it is mixed, too: BatchNorm sees it.
    - The official entropy has ``log(p + 1e-5)``.
    - The official random start of the head is uniform, as that of `torch.nn.Linear`; ours is Xavier-normal.
    - Mixed images are rounded to whole pixel values. On features the two views of a sample are the same.
    - The learning rate of a step is that of the official step before it.
    - The last iterate is the result; the official code reports the one with the least entropy, too.
    - Where no class has more samples than `threshold`, or no sample would be easy or hard, the official code fails; see
      `centroid_labels` and `split_by_entropy`.

    References
    ----------
    Liang, Hu, Wang, He, Feng, "Source data-absent unsupervised domain adaptation through hypothesis transfer and
    labeling transfer", TPAMI 2022. Berthelot et al., "MixMatch", NeurIPS 2019.
    """

    name: ClassVar[str] = "shot-plus"
    summary: ClassVar[str] = "target features fitted to the source's frozen head by pseudo-labels; then MixMatch"
    reference: ClassVar[str] = "Liang et al., TPAMI 2022"
    status: ClassVar[str] = OFFICIAL
    tags: ClassVar[tuple[str, ...]] = ("pseudo-labels", "partial")
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"target": ("features", "logits")}

    smoothing: float = 0.1
    pseudo: float = 0.3
    entropy: float = 1.0
    rotation: float = 0.6
    threshold: int = 10
    periods: int = 15
    consistency: float = 100.0
    temperature: float = 0.5
    mixing: float = 0.75
    mix_batch: float = 36 / 64
    pretrain: float = 0.55
    turning: float = 0.075
    adapting: float = 0.075

    def __post_init__(self) -> None:
        for name in ("pseudo", "entropy", "rotation", "consistency"):
            check_nonnegative(name, getattr(self, name))
        for name in ("smoothing", "pretrain", "turning", "adapting"):
            check_nonnegative(name, getattr(self, name), maximum=1.0)
        for name in ("temperature", "mixing"):
            check_positive(name, getattr(self, name))
        check_count("threshold", self.threshold, minimum=0)
        check_count("periods", self.periods)
        check_fraction("mix_batch", self.mix_batch)
        if sum(phase.share for phase in self.phases[:-1]) > 1:
            got = f"{self.pretrain:g}, {self.turning:g} and {self.adapting:g}"
            remedy = "The last phase takes what they leave."
            raise InputError("pretrain, turning, adapting", got=got, allowed="a sum of at most 1", remedy=remedy)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The source, its classifier of rotations, the target, and MixMatch; the source passes in the first only."""
        whole = ("backbone", "bottleneck", "head")
        rotation = Phase(ROTATION, self.turning, frozen=whole, uses_source=False, separate=True)
        return (
            Phase(SOURCE, self.pretrain, adapts=False, uses_target=False, separate=True),
            *([rotation] if self.rotation else []),
            Phase(TARGET, self.adapting, frozen=("head",), uses_source=False, separate=True),
            Phase(MIXING, uses_source=False, separate=True),
        )

    def check_first_refresh(self, share: float) -> None:
        """Refuse weights that come after the only phase that has a use for them."""
        if share > 0 and share >= self.pretrain:
            got, allowed = f"{self.pretrain:.4g}, before the source is first weighted", f"above {share:.4g}"
            remedy = "Raise it, or let weight_params.periods be larger: only this phase uses the source."
            raise InputError("params.pretrain", got=got, allowed=allowed, remedy=remedy)

    def make_memory(self, setup: Setup) -> ShotMemory:
        """Make room for pseudo-labels, and the classifier of rotations."""
        if self.rotation and setup.network is not None and isinstance(setup.network.backbone, nn.Identity):
            raise _not_images(self.rotation, "features")
        return ShotMemory(setup, self.rotation > 0)

    def refresh(self, memory: ShotMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Compute pseudo-labels; split the target, and start the head again, when the last phase begins."""
        if progress.phase == TARGET:
            within = TrainProgress(progress.step - progress.phase_start, progress.phase_end - progress.phase_start)
            if within.step == 0 or within.starts_period(self.periods):
                target = request().target
                memory.pseudo.copy_(centroid_labels(target.features, target.logits, self.threshold))
        elif progress.phase == MIXING and progress.starts_phase:
            data = request()
            easy, hard = split_by_entropy(data.target.logits)
            memory.easy.copy_(easy)
            memory.hard.copy_(hard)
            memory.pseudo.copy_(data.target.logits.argmax(dim=1))
            restart_head(data.network.head, memory.seed + 1)  # other weights than those before the training

    def extra_batches(self, progress: TrainProgress, source_batch: int) -> Mapping[str, BatchSpec]:
        """Return the batches of the last phase: easy samples, and two views of hard ones."""
        if progress.phase != MIXING:
            return {}
        size = max(round(self.mix_batch * source_batch), min(source_batch, 2))
        names = {EASY: "", "target": "", VIEW: "target"}
        return {name: BatchSpec(size, "target", view_of) for name, view_of in names.items()}

    def pools(self, memory: ShotMemory) -> Mapping[str, SamplePool]:
        """In the last phase, draw from the easy and the hard samples."""
        easy, hard = (torch.nonzero(part).flatten() for part in (memory.easy, memory.hard))
        return {EASY: SamplePool(easy, memory.pseudo[easy]), "target": SamplePool(hard)} if len(easy) else {}

    def step(self, context: BatchContext, memory: ShotMemory) -> StepResult:
        """Return the loss of the phase."""
        if memory.rotation is not None and (context.target_inputs is None or context.target_inputs.ndim != 4
                                            or context.target_inputs.is_floating_point()):  # fmt: skip
            raise _not_images(self.rotation, "inputs that are not pixels")
        phase = context.progress.phase
        if phase == SOURCE:
            weights = context.given_weights
            loss = weighted_cross_entropy(context.source.logits, context.labels, weights, self.smoothing, DELTA)
            return StepResult.of(loss, normalized(weights, DELTA), classification=loss)
        if phase == ROTATION:
            loss = self._rotation_loss(context, memory)
            return StepResult.of(loss, None, rotation=loss)
        return self._target_step(context, memory) if phase == TARGET else self._mixing_step(context, memory)

    def _target_step(self, context: BatchContext, memory: ShotMemory) -> StepResult:
        logits = at_least_float32(context.target.logits)
        classification = functional.cross_entropy(logits, memory.pseudo[context.target_rows])
        entropy = mean_entropy(logits)
        loss = self.pseudo * classification + self.entropy * entropy
        if memory.rotation is None:
            return StepResult.of(loss, None, classification=classification, entropy=entropy)
        rotation = self._rotation_loss(context, memory)
        loss = loss + self.rotation * rotation
        return StepResult.of(loss, None, classification=classification, entropy=entropy, rotation=rotation)

    def _rotation_loss(self, context: BatchContext, memory: ShotMemory) -> Tensor:
        """Cross-entropy of the rotation of every image, drawn from seed and step."""
        assert context.forward is not None
        assert context.target_inputs is not None
        assert memory.rotation is not None
        plain = context.target.features.detach()
        turns = torch.from_numpy(_generator(memory, context).integers(0, TURNS, len(plain))).to(plain.device)
        pairs = zip(context.target_inputs, context.own_rows(turns).tolist(), strict=True)
        rotated = torch.stack([torch.rot90(image, turn, (1, 2)) for image, turn in pairs])
        with torch.set_grad_enabled(context.progress.phase != ROTATION):  # there only the classifier learns
            features = context.forward(rotated).features
        both = torch.cat([part.to(memory.rotation.weight.dtype) for part in (plain, features)], dim=1)
        return functional.cross_entropy(at_least_float32(memory.rotation(both)), turns)

    def _mixing_step(self, context: BatchContext, memory: ShotMemory) -> StepResult:
        easy, view = (context.extra.get(name) for name in (EASY, VIEW))
        if easy is None or easy.labels is None or view is None:
            remedy = "Choose larger batches."
            raise InputError("minibatch.source_batch", got="too few samples", allowed="4 per process", remedy=remedy)
        assert context.forward is not None
        given = (easy.inputs, context.target_inputs, view.inputs)
        inputs = [context.gather(x) for x in given if x is not None]
        n = min(map(len, inputs))
        guesses = [x.logits.detach()[:n] for x in (context.target, view.outputs)]
        labels = self._sharpened(torch.stack([at_least_float32(x).softmax(dim=1) for x in guesses]).mean(dim=0))
        known = functional.one_hot(easy.labels[:n], labels.shape[1]).to(labels.dtype)
        generator = _generator(memory, context)
        draw = float(generator.beta(self.mixing, self.mixing))
        share = max(draw, 1.0 - draw)
        partners = torch.from_numpy(generator.permutation(3 * n)).to(labels.device)
        targets = mixed_samples(torch.cat([known, labels, labels]), share, partners)
        mixed, order = mixed_samples(torch.cat([x[:n] for x in inputs]), share, partners), interleaved(n).to(partners)
        batches = mixed[order].reshape(3, n, *mixed.shape[1:])
        logits = torch.cat([context.forward(context.own_rows(part)).logits for part in batches])[order]
        logits = at_least_float32(logits)
        classification = -(targets[:n] * torch.log_softmax(logits[:n], dim=1)).sum(dim=1).mean()
        consistency = (torch.softmax(logits[n:], dim=1) - targets[n:]).square().mean()
        step, _, _, start, end = context.progress
        ramp = (step + 1 - start) / (end - start)
        loss = classification + ramp * self.consistency * consistency
        return StepResult.of(loss, None, classification=classification, consistency=consistency, ramp=ramp)

    def _sharpened(self, probabilities: Tensor) -> Tensor:
        # By logarithms: a power of small numbers may be 0 for all classes.
        tiny = torch.finfo(probabilities.dtype).tiny
        return torch.softmax(probabilities.clamp_min(tiny).log() / self.temperature, dim=1)


def _generator(memory: ShotMemory, context: BatchContext) -> np.random.Generator:
    """Make the generator of a step, the same in a resumed run and in every process."""
    return np.random.default_rng([memory.seed, context.progress.step])


def _not_images(weight: float, got: str) -> InputError:
    remedy = "Set params.rotation=0; the preset shot-plus-frozen does. Images must not be stored as features."
    return InputError("params.rotation", got=f"{weight:g} with {got}", allowed="0, or images", remedy=remedy)
