"""A method with a weighting, and what both remember: what training deals with."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from torch import nn

from warmpot.costs import PairCosts
from warmpot.methods.base import Clock, Labelled, Look, Memory, Method, Sizes, Step, View, Whole
from warmpot.methods.source_only import SourceOnly
from warmpot.methods.weighting import Weighting

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from torch import Tensor
    from torch.optim import Optimizer

    from warmpot.transport import Solution

__all__ = ["Learner"]


class Learner(nn.Module):
    """A method, its weighting and their memories.

    Parameters
    ----------
    method : Method
    weighting : Weighting or None
        None: the method's own plan.
    sizes : Sizes
    seed : int
    warmup : int
        Steps on the source alone before the method begins; its clock starts after them.
    """

    def __init__(
        self, method: Method, weighting: Weighting | None, sizes: Sizes, seed: int, warmup: int = 0
    ) -> None:  # fmt: skip
        super().__init__()
        self.method, self.weighting, self.warmup = method, weighting, warmup
        self.of_method = method.memory(sizes, seed)
        self.of_weighting = Memory() if weighting is None else weighting.memory(sizes, seed)

    @property
    def remembers(self) -> bool:
        """Whether there is any state beside the network."""
        return bool(self.state_dict())

    @property
    def pooled(self) -> bool:
        """Whether a look at whole domains needs what the bottleneck got."""
        return self.method.pooled or (self.weighting is not None and self.weighting.pooled)

    @property
    def expected_share(self) -> float:
        """Share of the source samples that carry the weight at least."""
        return (self.method if self.weighting is None else self.weighting).expected_share

    def trained(self) -> Iterable[nn.Parameter]:
        """Return the parameters for the run's own optimiser."""
        return [*self.of_method.trained(), *self.of_weighting.trained()]

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the further optimisers."""
        memories = {"method": self.of_method, "weighting": self.of_weighting}
        return {f"{part}.{name}": found for part, memory in memories.items()
                for name, found in memory.optimizers().items()}  # fmt: skip

    def _own(self, clock: Clock) -> Clock | None:
        """Return the method's clock, or None as long as it has not begun."""
        return None if clock.step < self.warmup else Clock(clock.step - self.warmup, clock.steps - self.warmup)

    def extra_samples(self, clock: Clock, source_batch: int) -> int:
        """Return the size of the further source batch of a step."""
        own = self._own(clock)
        return 0 if own is None else self.method.extra_samples(own, source_batch)

    def refresh(self, clock: Clock, look: Look) -> None:
        """Do what is due before a step."""
        own = self._own(clock)
        if own is None:
            return
        seen = cache(look)
        self.method.refresh(self.of_method, own, seen)
        if own.step == 0:  # a method may have set the head
            seen = cache(look)
        if self.weighting is not None:
            self.weighting.refresh(self.of_weighting, own, seen)

    def step(self, view: View) -> Step:
        """Weigh the source samples, and return the loss."""
        clock = self._own(view.clock)
        if clock is None:
            return SourceOnly().step(view, self.of_method)
        view = view._replace(clock=clock)
        if self.weighting is not None:
            assert view.rows is not None
            weigh, own = self.weighting.weigh, self.of_weighting
            view = view._replace(weights=weigh(own, Labelled(view.source, view.labels, view.rows), view))
            if view.extra is not None:
                view = view._replace(extra_weights=weigh(own, view.extra, view))
        return self.method.step(view, self.of_method)

    def finish(self, whole: Whole) -> Solution[csr_array] | Tensor | None:
        """Return the weights of the whole source; as the method's own plan over all pairs where there is one."""
        if self.weighting is not None:
            return self.weighting.everywhere(self.of_weighting, whole)
        costs = PairCosts(whole.source.features.numpy(), whole.target.features.numpy())
        return self.method.plan(costs, whole.labels, whole.target.logits, 1.0, whole.loss)
