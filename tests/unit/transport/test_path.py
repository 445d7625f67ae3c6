"""The value for every mass at once."""

from __future__ import annotations

import numpy as np
import pytest

from warmpot.transport import partial_path


def test_path_with_forbidden_pairs_ends_at_the_movable_mass() -> None:
    cost = np.array([[np.inf, 1.0], [np.inf, 2.0]])
    assert partial_path(cost).masses[-1] == pytest.approx(0.5)
    assert partial_path(np.full((2, 2), np.inf)).masses.tolist() == [0.0]
