"""A method with a weighting and their memories: the object that the mini-batch engine trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from warmpot.costs import PairCosts
from warmpot.methods.base import (
    BatchContext,
    BatchSpec,
    DatasetPass,
    Domain,
    Memory,
    Method,
    NamedBatch,
    ParamGroup,
    PassRequest,
    Phase,
    SamplePool,
    Setup,
    StepResult,
    TrainProgress,
    progress_at,
)
from warmpot.methods.rounds import DatasetPlan
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.weighting import Weighting
from warmpot.nets import Network

__all__ = ["Learner"]

WARMUP = Phase("warmup", adapts=False)


class Learner(nn.Module):
    """A method, its weighting (None: the method weighs source samples itself) and their memories.

    Of all `steps`, `warmup` are on the source alone before the method starts; its progress counts from there.

    Attributes
    ----------
    batch_weights : (n_s,) tensor
        What every source sample counted when it was last in a batch, on a scale with mean 1 over the batch; 0 for a
        sample that was in none since the method started.
    """

    batch_weights: Tensor

    def __init__(
        self, method: Method[Any], weighting: Weighting[Any] | None, setup: Setup, *, steps: int, warmup: int = 0
    ) -> None:
        super().__init__()
        self.method, self.weighting, self.steps, self.warmup = method, weighting, steps, warmup
        self.of_method = method.make_memory(setup)
        self.of_weighting = Memory() if weighting is None else weighting.make_memory(setup)
        self.register_buffer("batch_weights", torch.zeros(setup.n_source))

    @property
    def has_state(self) -> bool:
        """Whether method or weighting have state besides the network."""
        return bool(self.of_method.state_dict()) or bool(self.of_weighting.state_dict())

    def pass_parts(self, domain: Domain) -> list[str]:
        """Return the parts of the outputs that a pass over a domain must keep.

        In one order, in which all processes gather them: that of a set differs from process to process.
        """
        components = [self.method] if self.weighting is None else [self.method, self.weighting]
        return sorted({part for component in components for part in component.passes.get(domain, ())})

    @property
    def expected_share(self) -> float:
        """Smallest share of the source samples that should carry the weight."""
        return (self.method if self.weighting is None else self.weighting).expected_share

    @property
    def adapts_from(self) -> float:
        """Share of all steps after which the target takes part."""
        return self._share_before(next((k for k, phase in enumerate(self.method.phases) if phase.adapts), 0))

    @property
    def settles_at(self) -> float:
        """Share of all steps after which the last phase starts: nothing is ramped any more."""
        return self._share_before(len(self.method.phases) - 1)

    def _share_before(self, index: int) -> float:
        share = sum(phase.share for phase in self.method.phases[:index])
        return (self.warmup + share * (self.steps - self.warmup)) / self.steps

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters for the run's own optimiser."""
        return [*self.of_method.trained(), *self.of_weighting.trained()]

    def param_groups(self) -> Iterable[ParamGroup]:
        """Return parameters for it at other learning rates."""
        return [*self.of_method.param_groups(), *self.of_weighting.param_groups()]

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the further optimisers."""
        memories = {"method": self.of_method, "weighting": self.of_weighting}.items()
        return {f"{part}.{name}": value for part, memory in memories for name, value in memory.optimizers().items()}

    def progress(self, step: int) -> TrainProgress | None:
        """Return the method's progress at a step of the training, or None before it starts."""
        if step < self.warmup:
            return None
        return progress_at(step - self.warmup, self.steps - self.warmup, self.method.phases)

    def phase(self, step: int) -> Phase:
        """Return the phase of a step."""
        progress = self.progress(step)
        return WARMUP if progress is None else next(p for p in self.method.phases if p.name == progress.phase)

    def uses_target(self, step: int) -> bool:
        """Whether target batches go through the network: for the method, or for weights that need them."""
        return self.phase(step).uses_target or (self.weighting is not None and self.weighting.needs_target)

    def restarts_momentum(self, step: int) -> bool:
        """Whether a phase starts with this step, and momentum with it."""
        progress, phase = self.progress(step), self.phase(step)
        return progress is not None and progress.starts_phase and (phase.restarts_momentum or phase.separate)

    def decay_span(self, step: int) -> tuple[float, int]:
        """Return since how many steps the learning rate decays, and how many it has until it starts again or ends."""
        now = self.progress(step)
        if now is not None and self.phase(step).separate:
            return now.phase_share * self.steps, self.steps
        starts, progress = [0], self.progress(self.warmup)
        while progress is not None:
            if self.phase(self.warmup + progress.step).restarts_decay:
                starts.append(self.warmup + progress.step)
            ends = progress.phase_end >= progress.steps
            progress = None if ends else self.progress(self.warmup + progress.phase_end)
        begin = max(start for start in starts if start <= step)
        return step - begin, min([start for start in starts if start > step], default=self.steps) - begin

    def extra_batches(self, step: int, source_batch: int) -> Mapping[str, BatchSpec]:
        """Return the further batches of a step."""
        progress = self.progress(step)
        return {} if progress is None else self.method.extra_batches(progress, source_batch)

    def pools(self) -> Mapping[str, SamplePool]:
        """Return what batches are drawn from, where that is not the whole domain."""
        rows = self.source_rows()
        return {**({} if rows is None else {"source": SamplePool(rows)}), **self.method.pools(self.of_method)}

    def source_rows(self) -> Tensor | None:
        """Return the source samples that the weighting weighs now; None: all."""
        return None if self.weighting is None else self.weighting.source_rows(self.of_weighting)

    def refresh(self, step: int, request: PassRequest) -> None:
        """Do what is due before a step."""
        progress = self.progress(step)
        if progress is None:
            return
        once = cache(request)
        self.method.refresh(self.of_method, progress, once)
        if progress.step == 0:  # a method may have set the head
            once = cache(request)
        if self.weighting is not None:
            self.weighting.refresh(self.of_weighting, progress, once)

    def step(self, step: int, context: BatchContext) -> StepResult:
        """Weigh the source samples, and return the loss."""
        progress = self.progress(step)
        if progress is None:
            return self._recorded(context, SourceOnly().step(context, self.of_method))
        if progress.step == 0:
            self.batch_weights.zero_()
        context = dataclasses.replace(context, progress=progress)
        rows = context.rows
        if self.weighting is not None and rows is not None:
            weigh = partial(self.weighting.weigh, self.of_weighting, context=context)
            context = dataclasses.replace(context, weigh=weigh)
            if self.phase(step).uses_source:
                weights, extra = weigh(NamedBatch(context.source, rows, context.labels)), dict(context.extra)
                for name, batch in context.extra.items():
                    if batch.domain == "source":
                        extra[name] = batch._replace(weights=weigh(batch))
                largest = self.weighting.largest_weight(self.of_weighting)
                context = dataclasses.replace(context, weights=weights, largest_weight=largest, extra=extra)
        return self._recorded(context, self.method.step(context, self.of_method))

    def _recorded(self, context: BatchContext, result: StepResult) -> StepResult:
        """Note what the samples of a batch counted."""
        if context.rows is not None and result.weights is not None:
            self.batch_weights[context.rows] = (len(context.rows) * result.weights).to(self.batch_weights)
        return result

    def training_weights(self, labels: Tensor) -> Tensor:
        """Return what each source sample counts, relative to the others; they sum to 1.

        These are the weights in force now, or where every batch has its own, what a sample counted in its last one.
        """
        weights = None if self.weighting is None else self.weighting.current_weights(self.of_weighting, labels)
        weights = (self.batch_weights if weights is None else weights).double().cpu()
        if not weights.any():  # the method has used no source sample
            weights = torch.ones_like(weights)
        return weights / weights.sum()

    def final_plan(self, data: DatasetPass) -> DatasetPlan | None:
        """Return the plan over all pairs after the training: the method's own, or that of its weighting."""
        if self.weighting is not None:
            return self.weighting.final_plan(data)
        costs = PairCosts(data.source.features.numpy(), data.target.features.numpy())
        return self.method.plan(costs, data.labels, data.target.logits, 1.0, data.loss)

    def final_network(self, network: Network) -> Network:
        """Return the network that predicts after the training."""
        return self.method.final_network(self.of_method, network)
