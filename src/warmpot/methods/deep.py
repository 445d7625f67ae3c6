"""Fine-tuning by plans over whole data sets: the full engine's answer trains the network, and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from warmpot._checks import check_count, check_positive
from warmpot.data import Task
from warmpot.methods.alternation import Alternation
from warmpot.methods.base import (
    BatchContext,
    DatasetPass,
    Domain,
    Memory,
    PassRequest,
    Phase,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
)
from warmpot.methods.losses import weighted_cross_entropy
from warmpot.methods.refit import fit_classifier
from warmpot.methods.rounds import FullSettings
from warmpot.methods.warmpot import Warmpot
from warmpot.weights import normalized

__all__ = ["Deep"]

TINY = 1e-30
UNUSED = 1e-3
"""Of the largest weight: source samples with less are not drawn."""
ITERATIONS = 60
"""L-BFGS steps of the head."""


class AnswerMemory(Memory):
    """The answer of the last plan: weights of the source samples, labels and mass of the target samples."""

    weights: Tensor
    labels: Tensor
    mass: Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self.seed = setup.seed
        self.register_buffer("weights", torch.ones(setup.n_source))
        self.register_buffer("labels", torch.full((setup.n_target, setup.n_classes), 1.0 / setup.n_classes))
        self.register_buffer("mass", torch.zeros(setup.n_target))


@dataclass(frozen=True)
class Deep(Warmpot):
    """Minimise ``wCE(w)`` of the source + the cross-entropy of the target with the plan's labels.

    Before the first step, and at the start of each of `periods` equal parts of the training, both data sets pass the
    network. The full engine's alternation (`warmpot.methods.alternation`) solves on their features: exact plans over
    all pairs, with class presence. It gives

    - the weights w of the source samples,
    - for each target sample the labels of the source samples that it is matched with, averaged by the plan, and its
      matched mass, which is its weight in the loss,
    - the head: the weighted, regularised logistic regression (`penalty`) on the source and on the classes that the
      alternation predicts for the target. So step 0 predicts what the full engine does with the network as it was, and
      no training starts from random numbers.

    Then SGD trains the network with its head until the next period. There are no plans of batches: matches are not
    forced by who happens to be in a batch, and a plan is paid for once in a period.

    Attributes
    ----------
    periods : int
        How many times the plan is solved.
    penalty : float
        Ridge on the head's weights.
    alpha, beta, eta1, eta2, eps, alpha_start, ramp
        Of the plans, as for `Warmpot`; the other parameters of `Warmpot` have no effect.

    Notes
    -----
    Ours, not from a paper: there are no deviations.
    """

    name: ClassVar[str] = "deep"
    summary: ClassVar[str] = "fine-tuning with labels and weights from plans over the whole data sets"
    reference: ClassVar[str] = "ours"
    status: ClassVar[str] = "ours"
    tags: ClassVar[tuple[str, ...]] = ("transport", "partial", "pseudo-labels")
    engines: ClassVar[tuple[str, ...]] = ("minibatch",)
    starts_trained: ClassVar[bool] = True
    regression: ClassVar[bool] = False
    passes: ClassVar[Mapping[Domain, tuple[str, ...]]] = {"source": ("features",), "target": ("features",)}

    alpha: float | Literal["auto"] = "auto"
    beta: float | Literal["auto"] = "auto"
    eta1: float | Literal["auto"] = "auto"
    eta2: float = 1.0
    eps: float | Literal["auto"] | None = None
    alpha_start: float = 0.3
    ramp: float = 1.0
    periods: int = 4
    penalty: float = 0.02

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("periods", self.periods)
        check_positive("penalty", self.penalty)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """One. A head that was fitted to outputs in evaluation mode would not fit the statistics of a batch."""
        return (Phase("train", keeps_statistics=True),)

    def make_memory(self, setup: Setup) -> AnswerMemory:
        """Make room for the answer."""
        return AnswerMemory(setup)

    def refresh(self, memory: Memory, progress: TrainProgress, request: PassRequest) -> None:
        """Solve on the features of the network as it is now, and set its head."""
        assert isinstance(memory, AnswerMemory)
        if progress.step == 0 or progress.starts_period(self.periods):
            self._solve(memory, request())

    def _solve(self, memory: AnswerMemory, data: DatasetPass) -> None:
        xs, xt = (part.features.float().cpu() for part in (data.source, data.target))
        labels, classes = data.labels.cpu(), memory.labels.shape[1]
        task = Task(xs.numpy(), labels.numpy(), xt.numpy(), tuple(map(str, range(classes))))
        rounds = Alternation(self, task, FullSettings(), data.loss, memory.seed)
        rounds.start()
        for number in range(1, rounds.n_rounds + 1):
            rounds.round(number)
        outputs = rounds.outputs()
        plan = rounds.final_plan(*outputs)
        assert plan is not None, "this method has one"
        q = torch.from_numpy(plan.solution.plan.sum(axis=0))
        one_hot = functional.one_hot(labels, classes).double()
        carried = torch.from_numpy(plan.solution.plan.T @ one_hot.numpy()) / q.clamp_min(TINY)[:, None]
        memory.weights.copy_(len(labels) * rounds.training_weights)
        memory.mass.copy_(q * len(q))
        memory.labels.copy_(carried)
        # In float64, so that the head does not depend on the last bits of the features: processes sum in other orders.
        # Its target labels are predictions, not those of the plan, which has none for what it does not match.
        predicted = functional.one_hot(outputs[1].logits.argmax(dim=1), classes).double()
        x, targets = torch.cat([xs, xt]).double(), torch.cat([one_hot, predicted])
        weights = torch.cat([memory.weights.cpu().double(), torch.ones(len(xt), dtype=torch.float64)])
        start = torch.zeros(x.shape[1] + 1, classes, dtype=x.dtype)
        head = fit_classifier(x, targets, weights, start, penalty=self.penalty, iterations=ITERATIONS)
        with torch.no_grad():
            data.network.head.weight.copy_(head[:-1].T)
            data.network.head.bias.copy_(head[-1])

    def pools(self, memory: Memory) -> Mapping[str, SamplePool]:
        """Draw source samples that have weight."""
        assert isinstance(memory, AnswerMemory)
        used = memory.weights > UNUSED * memory.weights.max()
        return {} if bool(used.all()) else {"source": SamplePool(torch.nonzero(used).flatten())}

    def step(self, context: BatchContext, memory: Memory) -> StepResult:
        """Return the loss of one batch."""
        assert isinstance(memory, AnswerMemory)
        rows = context.target_rows
        weights = memory.weights[context.rows] if context.weights is None else context.weights
        source = weighted_cross_entropy(context.source.logits, context.labels, weights, delta=TINY)
        logs = torch.log_softmax(context.target.logits.float(), dim=1)
        target = -(memory.mass[rows] * (memory.labels[rows] * logs).sum(dim=1)).mean()
        return StepResult.of(source + target, normalized(weights, TINY), classification=source, carried=target)
