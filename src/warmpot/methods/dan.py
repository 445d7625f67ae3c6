"""DAN: features whose distributions agree under several Gaussian kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from warmpot._checks import check_nonnegative
from warmpot.losses import at_least_float32
from warmpot.methods.adversarial import DELTA, TLL, mean_one
from warmpot.methods.base import BatchContext, Memory, Method, StepResult
from warmpot.methods.losses import gaussian_kernels, weighted_cross_entropy
from warmpot.weights import normalized

__all__ = ["Dan", "linear_mmd"]


def linear_mmd(source: Tensor, target: Tensor, weights: Tensor | None = None) -> Tensor:
    """Estimate the squared maximum mean discrepancy under a sum of Gaussian kernels, in linear time [1]_.

    It is the mean over i of ``w_i w_i' k(s_i, s_i') + k(t_i, t_i') - w_i k(s_i, t_i') - w_i' k(s_i', t_i)``, where i'
    is the sample after i (after the last the first), and k the sum of ``exp(-d^2 / (2 c sigma^2))`` over five scales c.
    ``sigma^2`` is the mean squared distance of all pairs of both batches, without gradient.

    Parameters
    ----------
    source, target : (n, d) and (m, d) tensors
        The further samples of the larger batch count in ``sigma^2`` only.
    weights : (n,) tensor, optional
        Of the source samples, with mean 1; default: ones. No gradient goes through them.

    References
    ----------
    .. [1] Gretton et al., "A kernel two-sample test", JMLR 2012, Section 6.
    """
    source, target = at_least_float32(source), at_least_float32(target)
    everything = torch.cat([source, target]).detach()
    # twice the mean square after centring; not a sum of squares of differences, which would need all pairs
    width = 2.0 * (everything - everything.mean(dim=0)).square().sum(dim=1).mean()
    kernel = gaussian_kernels(width)
    n = min(len(source), len(target))
    s, t = source[:n], target[:n]
    w = torch.ones_like(s[:, 0]) if weights is None else weights[:n].detach().to(s.dtype)
    after_s, after_t, after_w = s.roll(-1, dims=0), t.roll(-1, dims=0), w.roll(-1)
    within = w * after_w * kernel(s, after_s) + kernel(t, after_t)
    return (within - w * kernel(s, after_t) - after_w * kernel(after_s, t)).mean()


@dataclass(frozen=True)
class Dan(Method[Memory]):
    """Minimise ``wCE(w) + transfer MMD^2``; all classes of the source are aligned.

    Specification: docs/method-specifications.md, DAN.

    ``MMD^2`` is the squared distance of the mean embeddings of the two batches of features under a sum of five Gaussian
    kernels, estimated in linear time (`linear_mmd`). The weights w have mean 1 in it (equal weights in the paper).

    Attributes
    ----------
    transfer : float
        Weight of the discrepancy.

    Notes
    -----
    Reproduction of the objective of the Transfer-Learning-Library, in its settings for targets with all classes: it
    has none for partial ones. Deviations:

    - The constant ``2 / (n - 1)`` that the library adds is left out; it has no gradient.
    - With batches of different sizes the further samples of the larger one are not compared; the library needs equal
      sizes.
    - The discrepancy is taken of one layer, the bottleneck, as in the library; the paper has three layers and learns
      the weights of the kernels.
    - The library reports the best checkpoint by target labels; we report the last iterate.

    References
    ----------
    Long, Cao, Wang, Jordan, "Learning transferable features with deep adaptation networks", ICML 2015.
    """

    name: ClassVar[str] = "dan"
    summary: ClassVar[str] = "moments: features with the same means under Gaussian kernels, all classes aligned"
    reference: ClassVar[str] = "Long et al., ICML 2015"
    status: ClassVar[str] = TLL
    tags: ClassVar[tuple[str, ...]] = ("moments",)

    transfer: float = 1.0

    def __post_init__(self) -> None:
        check_nonnegative("transfer", self.transfer)

    def step(self, context: BatchContext, memory: Memory) -> StepResult:  # noqa: ARG002
        """Return the loss of one batch."""
        source, target, weights = context.source, context.target, context.given_weights
        classification = weighted_cross_entropy(source.logits, context.labels, weights, delta=DELTA)
        discrepancy = linear_mmd(source.features, target.features, mean_one(weights))
        total = classification + self.transfer * discrepancy
        return StepResult.of(total, normalized(weights, DELTA), classification=classification, discrepancy=discrepancy)
