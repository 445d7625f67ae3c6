"""What the full engine needs for data of a given size: memory, as an upper bound, and time, roughly."""

from __future__ import annotations

from typing import NamedTuple

from warmpot._memory import GIB, check_memory
from warmpot.data import Task
from warmpot.weights.axes import matrix_side

__all__ = ["DataSize", "check_columns_memory"]

FLOPS = 4e10
"""Operations per second of one core; what a fit of 3,000 x 1,500 samples of 2,048 features took, 13 s, fits it."""
PAIR = 25e-9
"""Seconds for a pair of samples, or a sample and a class, besides the product: costs, exponentials, the network."""
OTHER = 0.2 * GIB
"""Libraries that are loaded during a fit, and all that is small."""
LOOKED_AT = 5000
"""Samples per domain that the presence looks at (`warmpot.weights.presence.MOST`)."""
REMEDY = "Take a mini-batch preset such as frozen, a sample of the rows, or fewer columns (their principal axes)."


class DataSize(NamedTuple):
    """Samples of both domains, columns, outputs (classes), principal axes, width of the features, rounds."""

    n_source: int
    n_target: int
    columns: int
    outputs: int
    axes: int
    width: int
    rounds: int

    def __str__(self) -> str:
        samples = f"{self.n_source:,} and {self.n_target:,} samples"
        return f"{samples}, {self.columns:,} features, {self.outputs:,} outputs"

    def check_memory(self) -> None:
        """Refuse data for which the full engine would run out of memory."""
        check_memory("full", str(self), self.memory, REMEDY)

    @property
    def memory(self) -> float:
        """Bytes that a fit takes at most, beyond the data."""
        n_s, n_t, d, c, k, width, rounds = self
        n = n_s + n_t
        side = matrix_side(n, d)
        matrix = 16 * (n + d) * k if side is None else 8 * side * side
        ordered, scaled, projection = 4 * n * d, 4 * n * d, 4 * d * width  # the samples sorted, then scaled
        units = 24 * n_s * d + 48 * c * d  # roots, and whether the variance follows the mean
        axes = 8 * n * d + 2 * matrix + 12 * d * k
        labels = 16 * n * c + 64 * n_t * c  # soft labels in float32; probabilities and costs in float64
        pairs = min(8 * n_s * n_t, 2 * GIB) + min(24 * n_s * n_t, GIB) if rounds else 0
        presence = 40 * min(n_t, LOOKED_AT) ** 2 + 8 * c * min(c, n)
        training = 4 * d * k + 2 * projection + 32 * n * k + labels + pairs + presence
        return OTHER + projection + ordered + max(scaled + max(units, axes), training)

    @property
    def seconds(self) -> float:
        """Time of a fit on one free core, roughly."""
        n_s, n_t, d, c, k, width, rounds = self
        n, few_s, few_t, few_k = n_s + n_t, min(n_s, LOOKED_AT), min(n_t, LOOKED_AT), min(k, 256)
        side = matrix_side(n, d)
        axes = 20 * n * d * k if side is None else 2 * n * d * side + 3 * side**3
        look = 2 * (few_s + few_t) * few_k**2 + 10 * few_k**3 + 4 * few_t * (c + few_t) * few_k
        presence = 37 * ((look + 2 * c * c * few_k) / FLOPS + PAIR * (2 * few_t * (few_t / 2 + c) + c * c))
        discriminant = 2 * n * k**2 + 10 * k**3
        structured = 40 * (discriminant + 20 * n_t * c * width) / FLOPS + 80 * PAIR * n_t * c if rounds else 0.0
        plan = n_s * n_t * (2 * width / FLOPS + 2 * PAIR) if rounds else 0.0
        refit = (discriminant + 20 * 6 * n * c * width) / FLOPS + 5 * PAIR * n * c
        return axes / FLOPS + presence + structured + (rounds + 1) * (plan + refit)


def check_columns_memory(task: Task, what: str, copies: int, remedy: str) -> None:
    """Refuse data whose columns x columns matrices, so many at a time, do not fit into memory."""
    size = f"{task.n_source + task.n_target:,} samples x {task.width:,} features"
    samples = 24 * (task.n_source + task.n_target) * task.width
    check_memory(what, size, samples + 8 * copies * task.width**2, remedy)
