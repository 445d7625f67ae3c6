"""Bad input gets the library's own error, which says what, got, allowed and remedy."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from warmpot.errors import InfeasibleError, InputError
from warmpot.transport import (
    Potentials,
    certify,
    partial_path,
    round_to_feasible,
    solve_partial,
    solve_partial_batch,
    solve_partial_blocks,
    solve_partial_points,
    step_plan,
)

C = np.arange(6.0).reshape(2, 3)
X = np.arange(8.0).reshape(4, 2)


def distance(s: Any, t: Any) -> Any:
    return np.abs(np.asarray(s)[:, :1] - np.asarray(t)[:, 0])


NAN_COST = np.array([[0.0, np.nan], [1.0, 2.0]])

BAD: dict[str, Callable[[], Any]] = {
    "nan cost": lambda: solve_partial(NAN_COST, mass=0.5),
    "nan cost, torch": lambda: solve_partial(torch.tensor(NAN_COST), mass=0.5, eps=1.0),
    "-inf cost": lambda: solve_partial(np.array([[-np.inf, 1.0]]), mass=0.5),
    "absurd cost": lambda: solve_partial(np.array([[1e200, 1.0]]), mass=0.5),
    "absurd points": lambda: solve_partial_points(X * 1e200, X, beta=1, mass=0.5),
    "1-d cost": lambda: solve_partial(np.ones(3), mass=0.5),
    "3-d cost": lambda: solve_partial(np.ones((2, 2, 2)), mass=0.5),
    "empty cost": lambda: solve_partial(np.ones((0, 3)), mass=0.5),
    "empty column": lambda: solve_partial(np.ones((3, 0)), mass=0.5),
    "text cost": lambda: solve_partial(np.array([["a", "b"]]), mass=0.5),
    "complex cost": lambda: solve_partial(np.ones((2, 2), complex), mass=0.5),
    "integers too large": lambda: solve_partial(np.array([[10**400, 1]], dtype=object), mass=0.5),
    "ragged cost": lambda: solve_partial([[1.0], [1.0, 2.0]], mass=0.5),  # type: ignore[arg-type]
    "None cost": lambda: solve_partial(None, mass=0.5),  # type: ignore[arg-type]
    "short a": lambda: solve_partial(C, np.ones(3), mass=0.5),
    "2-d a": lambda: solve_partial(C, np.ones((2, 1)), mass=0.5),
    "long b": lambda: solve_partial(C, None, np.ones(4), mass=0.5),
    "negative a": lambda: solve_partial(C, np.array([1.0, -0.1]), mass=0.5),
    "nan b": lambda: solve_partial(C, None, np.array([1.0, np.nan, 0.0]), mass=0.5),
    "inf a": lambda: solve_partial(C, np.array([np.inf, 1.0]), mass=0.5),
    "zero a": lambda: solve_partial(C, np.zeros(2), mass=0.5),
    "overflowing a": lambda: solve_partial(C, np.full(2, 1e308), mass=0.5),
    "zero mass": lambda: solve_partial(C, mass=0.0),
    "negative mass": lambda: solve_partial(C, mass=-0.5),
    "nan mass": lambda: solve_partial(C, mass=np.nan),
    "inf mass": lambda: solve_partial(C, mass=np.inf),
    "mass above max": lambda: solve_partial(C, mass=1.1),
    "huge int mass": lambda: solve_partial(C, mass=10**400),
    "huge int mass, entropic": lambda: solve_partial(C, mass=10**400, eps=1.0),
    "huge int mass of a step": lambda: step_plan(C, mass=10**400, eps=1.0),
    "mass None": lambda: solve_partial(C, mass=None),  # type: ignore[arg-type]
    "mass text": lambda: solve_partial(C, mass="much"),  # type: ignore[arg-type]
    "mass vector": lambda: solve_partial(C, mass=np.array([0.1, 0.2])),  # type: ignore[arg-type]
    "zero eps": lambda: solve_partial(C, mass=0.5, eps=0.0),
    "negative eps": lambda: solve_partial(C, mass=0.5, eps=-1.0),
    "nan eps": lambda: solve_partial(C, mass=0.5, eps=np.nan),
    "inf eps": lambda: solve_partial(C, mass=0.5, eps=np.inf),
    "eps far below the cost": lambda: solve_partial(C, mass=0.5, eps=1e-13),
    "zero tol": lambda: solve_partial(C, mass=0.5, tol=0.0),
    "tol 1": lambda: solve_partial(C, mass=0.5, tol=1.0),
    "zero max_iter": lambda: solve_partial(C, mass=0.5, max_iter=0),
    "fractional max_iter": lambda: solve_partial(C, mass=0.5, max_iter=1.5),  # type: ignore[arg-type]
    "max_iter overflow": lambda: solve_partial(C, mass=0.5, max_iter=2**70),
    "forbidden everything": lambda: solve_partial(np.full((2, 2), np.inf), mass=0.5),
    "forbidden too much": lambda: solve_partial(np.array([[np.inf, 1.0], [np.inf, 1.0]]), mass=0.9),
    "forbidden too much, entropic": lambda: solve_partial(np.array([[np.inf, 1], [np.inf, 1]]), mass=0.9, eps=1.0),
    "2-d batch": lambda: solve_partial_batch(C, mass=0.5),
    "empty batch": lambda: solve_partial_batch(np.ones((0, 2, 2)), mass=0.5),
    "batch weights": lambda: solve_partial_batch(np.ones((2, 2, 2)), np.ones((3, 2)), mass=0.5),
    "points nan": lambda: solve_partial_points(X * np.nan, X, beta=1, mass=0.5),
    "points widths": lambda: solve_partial_points(X, X[:, :1], beta=1, mass=0.5),
    "points 1-d": lambda: solve_partial_points(X[0], X[0], beta=1, mass=0.5),
    "points empty": lambda: solve_partial_points(X[:0], X, beta=1, mass=0.5),
    "points beta 0": lambda: solve_partial_points(X, X, beta=0, mass=0.5),
    "points beta 2": lambda: solve_partial_points(X, X, beta=2, mass=0.5),
    "points mass": lambda: solve_partial_points(X, X, beta=0.5, mass=1.5),
    "points cost name": lambda: solve_partial_points(X, X, beta=1, mass=0.5, cost="manhattan"),
    "points cost shape": lambda: solve_partial_points(X, X, beta=1, mass=0.5, cost=lambda s, t: np.ones((1, 1))),
    "points cost nan": lambda: solve_partial_points(
        X, X, beta=1, mass=0.5, cost=lambda s, t: np.full((len(s), len(t)), np.nan)
    ),
    "points no array": lambda: solve_partial_points(3, X, beta=1, mass=0.5, cost=lambda s, t: s),  # type: ignore[arg-type]
    "points all forbidden": lambda: solve_partial_points(
        X, X, beta=1, mass=0.5, cost=lambda s, t: np.full((len(s), len(t)), np.inf)
    ),
    "points memory": lambda: solve_partial_points(X, X, beta=1, mass=0.5, max_memory=0),
    "points without beta": lambda: solve_partial_points(X, X, mass=0.5),
    "points beta and a": lambda: solve_partial_points(X, X, beta=1, a=np.ones(4), mass=0.5),
    "masked cost": lambda: solve_partial(np.ma.masked_less(C, 1.0), mass=0.5),
    "complex torch cost": lambda: solve_partial(torch.ones((2, 2), dtype=torch.complex64), mass=0.5),
    "meta tensor": lambda: solve_partial(torch.ones((2, 2), device="meta"), mass=0.5),
    "vanishing weights": lambda: solve_partial(C, np.full(2, 1e-310), mass=1e-310),
    "float16 excess": lambda: solve_partial(C, np.full(2, 0.5, np.float16), mass=1.009),
    "round ragged": lambda: round_to_feasible([[1, 2], [3]], None, None, 1.0),
    "round complex sparse": lambda: round_to_feasible(sp.csr_array(np.eye(2) * 1j), None, None, 1.0),
    "batch ragged weights": lambda: solve_partial_batch(np.zeros((2, 2, 2)), [[1, 1], [1]], mass=1.0),  # type: ignore[arg-type]
    "certify potentials, long": lambda: certify(C / 60, C, None, None, 0.25, potentials=Potentials(C[0], np.ones(4))),
    "certify potentials, nan": lambda: certify(C / 60, C, None, None, 0.25, potentials=Potentials(C[0], C[0] * np.nan)),
    "certify potentials, tuple": lambda: certify(C / 60, C, None, None, 0.25, potentials=(C[0], C[0])),  # type: ignore[arg-type]
    "certify ragged": lambda: certify([[1.0, 2.0], [3.0]], C, None, None, 0.25),
    "certify large sparse": lambda: certify(sp.csr_array((10**7, 10**7)), C, None, None, 0.25),
    "certify absurd plan": lambda: certify(C * 1e300, C, None, None, 0.25),
    "certify absurd potentials": lambda: certify(
        C / 60, C, None, None, 0.25, potentials=Potentials(C[0], C[0] * 1e300)
    ),
    "mass far below": lambda: solve_partial(C, np.full(2, 1e149), np.full(3, 1e149), mass=1e-200, eps=1.0),
    "sparse cost": lambda: solve_partial(sp.csr_array(C), mass=0.5),
    "sparse batch": lambda: solve_partial_batch(sp.csr_array(C), mass=0.5),
    "sparse weights": lambda: solve_partial_batch(C[None], sp.csr_array(np.ones((1, 2))), mass=0.5),
    "sparse points": lambda: solve_partial_points(sp.csr_array(X), X, beta=1, mass=0.5),
    "points that cannot be indexed": lambda: solve_partial_points(sp.dia_array(X), X, beta=1, mass=0.5, cost=distance),
    "sparse tensor points": lambda: solve_partial_points(
        torch.tensor(X).to_sparse(), X, beta=1, mass=0.5, cost=distance
    ),
    "frame with text": lambda: solve_partial(pd.DataFrame(C).assign(name="a"), mass=0.5),  # type: ignore[arg-type]
    "frame with missing entries": lambda: solve_partial(
        pd.DataFrame(C).astype("Int64").where(C > 0),  # type: ignore[arg-type]
        mass=0.5,
    ),
    "blocks without shape": lambda: solve_partial_blocks(object(), beta=1, mass=0.5),  # type: ignore[arg-type]
    "blocks without rows": lambda: solve_partial_blocks(SimpleNamespace(shape=(0, 3)), beta=1, mass=0.5),  # type: ignore[arg-type]
    "path nan": lambda: partial_path(NAN_COST),
    "path weights": lambda: partial_path(C, np.ones(5)),
    "round negative": lambda: round_to_feasible(-np.ones((2, 2)), None, None, 0.5),
    "round nan": lambda: round_to_feasible(np.full((2, 2), np.nan), None, None, 0.5),
    "round 1-d": lambda: round_to_feasible(np.ones(3), None, None, 0.5),
    "certify shape": lambda: certify(np.ones((3, 2)), C, None, None, 0.5),
    "certify negative": lambda: certify(-np.ones((2, 3)), C, None, None, 0.5),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name: str) -> None:
    with pytest.raises(InputError, match=r"got .*; allowed: .*\. [A-Z].*\.$"):
        BAD[name]()


def test_data_frames_are_read_by_position() -> None:
    frame, points = pd.DataFrame(C, columns=list("xyz")), pd.DataFrame(X, index=list("abcd"))
    assert solve_partial(frame, mass=0.5).value == solve_partial(C, mass=0.5).value
    weights = np.array([[0.5, 0.5], [0.2, 0.8]])
    batch = solve_partial_batch(np.stack([C, C]), pd.DataFrame(weights, columns=list("xy")), mass=0.5)
    assert batch.value.tolist() == [solve_partial(C, row, mass=0.5).value for row in weights]
    for cost in ("euclidean", distance):
        s = solve_partial_points(points, points, beta=1, mass=0.5, cost=cost)  # type: ignore[arg-type]
        assert s.value == 0.0


def test_sparse_samples_are_passed_on_to_a_function() -> None:
    def products(s: Any, t: Any) -> Any:
        return -(s @ t.T).toarray()

    sparse = solve_partial_points(sp.csr_array(X), sp.csr_array(X), beta=1, mass=0.5, cost=products)
    assert sparse.value == solve_partial(-X @ X.T, mass=0.5).value


def test_too_much_mass_names_both_numbers() -> None:
    with pytest.raises(InfeasibleError, match=r"1\.5.*<= 1\.0") as caught:
        solve_partial(C, mass=1.5)
    assert caught.value.mass == 1.5
    assert caught.value.movable == pytest.approx(1.0)


@pytest.mark.parametrize("eps", [None, 0.5])
def test_forbidden_pairs_name_the_movable_mass(eps: float | None) -> None:
    cost = np.array([[np.inf, 1.0, 1.0], [np.inf, 1.0, 1.0], [np.inf, np.inf, 2.0]])
    with pytest.raises(InfeasibleError, match="finite cost") as caught:
        solve_partial(cost, mass=0.9, eps=eps)
    assert caught.value.movable == pytest.approx(2 / 3)
    with pytest.raises(InfeasibleError) as caught:
        solve_partial_points(np.arange(3), np.arange(3), beta=1, mass=0.9, cost=lambda s, t: cost[np.ix_(s, t)])
    assert caught.value.movable == pytest.approx(2 / 3)
