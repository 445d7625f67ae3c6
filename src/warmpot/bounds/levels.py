"""How far up the network distances are measured: a ladder of bounds with smaller and smaller sets of heads.

Theorem 3.3 uses of the distance only that the heads of the set are Lipschitz with respect to it. For the Euclidean loss
on a linear head ``softmax(W u + b)`` there are three natural distances, each at most the one before:

- ``"features"``: ``gamma ||u - v||``. The set has every head that is no steeper than the learnt one.
- ``"head"``: ``||(W - mean row) (u - v)|| / (2 sqrt 2)``. The set has heads that only look at the directions that the
  learnt one looks at, and are no steeper than softmax there.
- ``"outputs"``: ``||g(u) - g(v)|| / sqrt 2``, the loss itself. The set has heads that correct the predictions of the
  learnt one, without enlarging differences.

So the computable part falls from level to level, and the ideal term, a minimum over a smaller set, rises: that is the
price of the level. All three are bounds.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from warmpot._checks import check_choice
from warmpot._typing import FloatArray
from warmpot.bounds.lipschitz import Lipschitz, head_lipschitz

__all__ = ["LEVELS", "Level", "at_level"]

LEVELS = {
    "features": "every head that is no steeper than the learnt one",
    "head": "heads in the directions of the learnt one",
    "outputs": "corrections of the learnt predictions",
}
"""Levels, and the heads that their ideal terms range over."""


class Level(NamedTuple):
    """What stands for the features of both domains at a level, and the constant with respect to them."""

    source: FloatArray
    target: FloatArray
    gamma: Lipschitz


def at_level(
    level: str,
    source: FloatArray,
    target: FloatArray,
    source_proba: FloatArray,
    target_proba: FloatArray,
    weight: FloatArray,
) -> Level:
    """Return the points and the constant of a level, for the loss "euclidean".

    Examples
    --------
    >>> import numpy as np
    >>> u, p = np.zeros((1, 3)), np.full((1, 2), 0.5)
    >>> at_level("outputs", u, u, p, p, np.ones((2, 3))).gamma.value == 1 / math.sqrt(2)
    True
    """
    if check_choice("level", level, LEVELS) == "features":
        return Level(source, target, head_lipschitz(weight, "euclidean"))
    if level == "head":
        centred = (weight - weight.mean(axis=0)).T
        softmax = Lipschitz(1 / (2 * math.sqrt(2)), "softmax, on centred logits", "euclidean")
        return Level(source @ centred, target @ centred, softmax)
    return Level(source_proba, target_proba, Lipschitz(1 / math.sqrt(2), "the loss itself", "euclidean"))
