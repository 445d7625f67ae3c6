"""Weights from a critic that is trained to distinguish source and target: AR's, ARPM's, and WARMPOT's by a cap.

The convex step, exact and without a solver, is in `warmpot.weights`; the critic's network in `warmpot.nets`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from warmpot._checks import check_count, check_fraction, check_nonnegative, check_positive
from warmpot._typing import FloatArray
from warmpot.data.samplers import draw_rows
from warmpot.methods.base import BatchContext, Domain, NamedBatch, PassRequest, Setup, TrainProgress
from warmpot.methods.weighting import Weighting, WeightMemory
from warmpot.nets import Critic, gradient_penalty
from warmpot.weights import capped_weights, chi2_ball_weights
from warmpot.weights.formulas import SMALLEST_BETA

__all__ = ["Capped", "Chi2Ball", "CriticSettings"]

logger = logging.getLogger(__name__)

BAND = 5.0
"""AR stops adjusting rho when the mean score of the weighted source is this near to the target's."""
GROWTH = 1.2
"""Factor by which AR changes rho."""
SMALLEST_RHO = 1e-3
"""Weights are equal, for all that matters."""
NO_ROW = -1
"""Fills the rows of a subset before the first is drawn."""
CHUNK = 16384
"""Rows that are scored at once."""


@dataclass(frozen=True)
class CriticSettings:
    """The critic and its training. The defaults are for frozen features, such that one core can afford them.

    ARPM has ``hidden: 1024, steps: 15000, batch: 36`` on Office-Home.

    Attributes
    ----------
    hidden : int
        Width of its two hidden layers.
    steps, batch : int
        Adam steps at every refresh, and rows of each domain per step.
    lr : float
        Of Adam.
    spectral : bool
        Keep it 1-Lipschitz by spectral normalisation.
    penalty : float
        Weight of the gradient penalty at the end of a refresh; it grows linearly from 0 (AR: 100). Taken at the rows
        of both domains and at random points between them.
    dropout : float
        After each hidden layer in its training (AR: .5).
    slope : float
        Of its units below 0 (AR: 0).
    fresh : bool
        Start again at every refresh, from the same weights (AR); default: continue with network and optimiser.
    official_penalty : bool
        Take the norm of the penalty over the batch, as AR's code does by mistake.
    noisy_scores : bool
        Leave dropout on in the scores, as AR's code does.
    """

    hidden: int = 256
    steps: int = 400
    batch: int = 128
    lr: float = 1e-3
    spectral: bool = True
    penalty: float = 0.0
    dropout: float = 0.0
    slope: float = 0.01
    fresh: bool = False
    official_penalty: bool = False
    noisy_scores: bool = False

    def __post_init__(self) -> None:
        for name in ("hidden", "steps", "batch"):
            check_count(name, getattr(self, name))
        check_positive("lr", self.lr)
        check_nonnegative("penalty", self.penalty)
        check_nonnegative("dropout", self.dropout, maximum=0.99)
        check_nonnegative("slope", self.slope, maximum=1.0)

    def build(self, width: int, seed: int) -> tuple[Critic, Optimizer]:
        """Make a critic of features of this width, and its optimiser."""
        spectral, dropout, slope = self.spectral, self.dropout, self.slope
        critic = Critic(width, self.hidden, spectral=spectral, dropout=dropout, slope=slope, seed=seed)
        return critic, torch.optim.Adam(critic.parameters(), lr=self.lr, fused=True)

    def train(self, critic: Critic, optimizer: Optimizer, source: Tensor, target: Tensor, seed: int) -> None:
        """Maximise ``mean D(source) - mean D(target)``, less the penalty, on rows drawn at random by the seed."""
        rows, n, batch = torch.cat([source, target]), len(source), self.batch
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randint(len(part), (self.steps, batch), generator=generator) for part in (source, target)]
        picked = torch.cat([drawn[0], n + drawn[1]], dim=1).to(rows.device)
        share = torch.rand((self.steps, batch, 1), generator=generator).to(rows) if self.penalty else None
        sign = torch.full((2 * batch,), 1.0 / batch, device=rows.device)
        sign[:batch] *= -1  # the loss is minimised
        critic.train()
        for step in range(self.steps):
            x = rows.index_select(0, picked[step])
            loss = sign @ critic(x)
            if share is not None:
                everywhere = torch.cat([torch.lerp(x[:batch], x[batch:], share[step]), x])
                strength = self.penalty * step / self.steps
                stacked = 3 if self.official_penalty else None
                loss = loss + strength * gradient_penalty(critic, everywhere, one_sided=False, stacked=stacked)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        critic.train(self.noisy_scores)


class CriticWeightMemory(WeightMemory):
    """A weight for every source sample; the critic they come from, unless there is a fresh one every time.

    `rows` are those of the subset that is weighed, if not all are: none before the first refresh.
    """

    seed: Tensor
    rows: Tensor | None

    def __init__(self, n: int, width: int, settings: CriticSettings, seed: int, subset: int | None = None) -> None:
        super().__init__(n)
        self.register_buffer("seed", torch.tensor(seed))
        self.register_buffer("rows", None if subset is None or subset >= n else torch.full((subset,), NO_ROW))
        self.critic: Critic | None = None
        self._optimizer: Optimizer | None = None
        if not settings.fresh:
            self.critic, self._optimizer = settings.build(width, seed)

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the critic's."""
        return {} if self._optimizer is None else {"critic": self._optimizer}

    @property
    def subset_rows(self) -> Tensor | None:
        """The rows that are weighed; None: all."""
        return self.rows if self.rows is not None and self.rows[0] != NO_ROW else None

    def draw(self, step: int) -> Tensor | None:
        """Draw the subset of a refresh, in the order of the data set; return None where all are weighed."""
        if self.rows is not None:
            self.rows.copy_(torch.from_numpy(draw_rows(len(self.weights), len(self.rows), int(self.seed), step)))
        return self.rows

    def trained_critic(self, settings: CriticSettings, source: Tensor, target: Tensor, step: int) -> Critic:
        """Train the critic, or a fresh one, on all features as they are at a step."""
        seed, critic, optimizer = int(self.seed), self.critic, self._optimizer
        if critic is None or optimizer is None:
            critic, optimizer = settings.build(source.shape[1], seed)
            critic.to(source.device)
        drawing = int(np.random.SeedSequence([seed, step]).generate_state(1)[0])
        settings.train(critic, optimizer, source, target, drawing)
        return critic


@dataclass(frozen=True)
class CriticWeighting(Weighting[CriticWeightMemory]):
    """The least mean score of a critic over a set of weights.

    Attributes
    ----------
    periods : int
        The critic is trained and the source is weighed at the start of each of this many equal periods of the
        training but the first: weights are equal until then.
    early : float
        Share of the training after which there is one more refresh (AR on Office-31); 0: none.
    subset : int or None
        For a large source: so many samples are drawn at every refresh. Only they pass the network and are weighed, and
        source batches are drawn from them until the next (on ImageNet, AR has 72000 and ARPM 128000); None: all.
    critic : CriticSettings
    """

    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features",)}

    periods: int = 6
    early: float = 0.0
    subset: int | None = None
    critic: CriticSettings = field(default_factory=CriticSettings)

    def __post_init__(self) -> None:
        check_count("periods", self.periods)
        check_nonnegative("early", self.early, maximum=1.0)
        if self.subset is not None:
            check_count("subset", self.subset)

    @property
    def first_refresh(self) -> float:
        """After the first period, or the early one."""
        return min(self.early or 1.0, 1.0 / self.periods)

    def _is_due(self, progress: TrainProgress) -> bool:
        early = round(self.early * progress.steps)
        return progress.starts_period(self.periods) or (self.early > 0 and progress.step == early)

    @abstractmethod
    def _solve(self, scores: FloatArray, of_target: float) -> FloatArray:
        """Return weights that sum to 1, by the scores of the source and the mean score of the target."""

    def make_memory(self, setup: Setup) -> CriticWeightMemory:
        """Remember a weight for every source sample, and the critic."""
        return CriticWeightMemory(setup.n_source, setup.width, self.critic, setup.seed, self.subset)

    def refresh(self, memory: CriticWeightMemory, progress: TrainProgress, request: PassRequest) -> None:
        """Train the critic and weigh the source, or a new subset of it."""
        if not self._is_due(progress):
            return
        data, weights = request(), memory.weights
        rows = memory.draw(progress.step)
        of_source = data.source if rows is None else data.of_source(rows)
        source, target = (part.features.to(weights) for part in (of_source, data.target))
        logger.info("step %d: the critic trains for %d steps", progress.step, self.critic.steps)
        critic = memory.trained_critic(self.critic, source, target, progress.step)
        ds, dt = (_scores(critic, part) for part in (source, target))
        solved = self._solve(ds, float(dt.mean()))
        values = torch.from_numpy(len(ds) * solved).to(weights)
        if rows is None:
            weights.copy_(values)
        else:
            weights.zero_()[rows] = values
        logger.info(
            "step %d: the critic's score of the source is %.4g above the target's, %.4g with the new weights",
            progress.step, ds.mean() - dt.mean(), solved @ ds - dt.mean(),
        )  # fmt: skip

    def weigh(self, memory: CriticWeightMemory, batch: NamedBatch, context: BatchContext) -> Tensor:  # noqa: ARG002
        """Look the samples up."""
        return memory.weights[batch.rows]

    def source_rows(self, memory: CriticWeightMemory) -> Tensor | None:
        """Return the subset of the last refresh."""
        return memory.subset_rows

    def current_weights(self, memory: CriticWeightMemory, labels: Tensor) -> Tensor:  # noqa: ARG002
        """Return the weights of the last refresh."""
        return memory.weights


@torch.no_grad()
def _scores(critic: Critic, features: Tensor) -> FloatArray:
    scores: FloatArray = torch.cat([critic(part) for part in torch.split(features, CHUNK)]).double().cpu().numpy()
    return scores


@dataclass(frozen=True)
class Chi2Ball(CriticWeighting):
    """Weights of the least mean score in a chi-squared ball (AR [1]_, ARPM [2]_; Eqs. (21) and (22)).

    Attributes
    ----------
    critic : CriticSettings
        AR has ``{hidden: 1024, steps: 3000, batch: 36, spectral: false, penalty: 100, dropout: 0.5, slope: 0,
        fresh: true}``.
    rho : float
        Size of the ball: ``mean (w - 1)^2 <= rho``, for weights of mean 1.
    adjust : bool
        AR's: while the mean score of the weighted source is more than 5 above the target's, multiply rho by 1.2; while
        it is more than 5 below, divide.

    Notes
    -----
    Deviations from the public code of AR and ARPM:

    - Theirs solves by cvxpy, ours exactly (`chi2_ball_weights`): no tiny negative weights, no splits of large sources,
      whose leftover rows had weight 0.
    - On ImageNet theirs draws a subset at every refresh and samples from it by the weights. Ours samples from it
      uniformly and puts the weights into the loss, as on Office-Home: it aims at the same mean, with more variance.
    - Rows for the critic are drawn independently, theirs are shuffled in epochs.
    - ARPM's moving average of the critic is kept but never read there: left out.
    - AR's dropout stays on when it scores, so that its weights are noisy; ours is off, unless ``critic.noisy_scores``.
    - AR's gradient penalty has its norm over the batch by mistake; ours over the features, as in its paper, unless
      ``critic.official_penalty``. The scores, hence the band of `adjust`, are in units of the features for this reason.
    - AR's loop over rho need not end; ours stops when it would reverse, where the ball does not bind any more
      (rho = n - 1), and at .001.

    References
    ----------
    .. [1] Gu et al., "Adversarial reweighting for partial domain adaptation", NeurIPS 2021.
    .. [2] Gu et al., "Adversarial reweighting with alpha-power maximization for domain adaptation", IJCV 2024.
    """

    name: ClassVar[str] = "chi2_ball"
    summary: ClassVar[str] = "least mean critic score in a chi-squared ball (AR, ARPM)"

    rho: float = 5.0
    adjust: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative("rho", self.rho)

    @property
    def expected_share(self) -> float:
        """Of a ball that binds; one that may grow promises nothing."""
        return SMALLEST_BETA if self.adjust else 1.0 / (1.0 + self.rho)

    def _solve(self, scores: FloatArray, of_target: float) -> FloatArray:
        rho = adjusted_rho(scores, of_target, self.rho) if self.adjust else self.rho
        return chi2_ball_weights(scores, rho)


def adjusted_rho(scores: FloatArray, of_target: float, rho: float) -> float:
    """Return AR's rho: the first of ``rho 1.2^k`` whose weighted mean score is within 5 of the target's mean."""

    def beyond(rho: float) -> int:
        gap = float(chi2_ball_weights(scores, rho) @ scores) - of_target
        return int(gap > BAND) - int(gap < -BAND)

    side = beyond(rho)
    while side != 0 and beyond(rho) == side and (rho < len(scores) - 1 if side > 0 else rho > SMALLEST_RHO):
        rho *= GROWTH**side
    return rho


@dataclass(frozen=True)
class Capped(CriticWeighting):
    """Weights of the least mean score under a cap: WARMPOT's set of weights (Appendix H), with ARPM's critic.

    Attributes
    ----------
    beta : float
        The ``beta n`` samples of least score have the weight ``1 / beta`` each, all others none.

    Notes
    -----
    One of three readings of the paper's "ARPM with our weights, 1 / beta = 3" (docs/method-specifications.md, ARPM with
    WARMPOT weights): the one that needs no further constant. Another one, row sums of the plan over the whole data, is
    the weighting `plan`.
    """

    name: ClassVar[str] = "capped"
    summary: ClassVar[str] = "least mean critic score with at most 1/beta per sample (WARMPOT, Appendix H)"

    beta: float = 1 / 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fraction("beta", self.beta)

    @property
    def expected_share(self) -> float:
        """Share of the samples that have a weight."""
        return self.beta

    def _solve(self, scores: FloatArray, of_target: float) -> FloatArray:  # noqa: ARG002
        return capped_weights(scores, self.beta)
