"""Hostile calls of everything public in `warmpot.transport`: a feasible, finite answer or an error of this library.

A call is drawn with mostly usable arguments, so that it is not refused for one before another is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isfunction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from warmpot import transport
from warmpot.errors import WarmpotError

NAN, INF = np.nan, np.inf
NUMBERS: dict[str, list[float]] = {
    "ties": [0.0, 1.0, 2.0, 3.0],
    "thirds": [0.0, 1 / 3, 2 / 3, 0.1, 0.7, 0.3],
    "zero": [0.0],
    "forbidden": [0.0, 1.0, 5.0, INF, INF],
    "signs": [-1.0, 1.0, -1.0 + 1e-10, 1.0 - 1e-10, 1e-10, -1e-10, 3e-11],
    "small": [1e-8, 2e-8, 6e-8, 1e-4, 1e-10],
    "large": [6e4, 65504.0, 7e4, 1e5, -6e4, 1e4],
    "tiny": [0.0, 5e-324, 1e-310, 1e-300, 1e-150, 1e-149, 1e-45, 1e-40],
    "float32": [3e38, 1e38, -3e38, 1e30, 1e-38, 0.0],
    "huge": [1e88, 1e100, 1e120, 1e149, 1e150, -1e150, 1.0],
    "mixed": [1e-150, 1e-12, 1.0, 1e12, 1e150, 0.0, -1.0, INF],
    "bad": [NAN, INF, -INF, 1e308, -1.0, 1.0],
}
COSTS = (["ties", "thirds", "small", "zero", "forbidden", "large", "signs"], list(NUMBERS))
WEIGHTS = ([None, "ties", "thirds"], [*NUMBERS])
MASSES = ([1e-6, 0.3, 0.5, 0.8, 1.0], [0.0, 1e-300, 1e-12, 1 - 1e-9, 1 + 1e-12, 1 + 1e-6, 2.0, NAN, INF, -1.0])
EPS = ([None, 1e-3, 0.1, 1.0, 7.0], [1e-150, 1e-13, 1e-9, 1e5, 1e30, 1e88, 1e120, 1e150, 0.0, NAN, INF])
TAU = ([1e-3, 1.0, 30.0], EPS[1])
TOL = ([1e-9], [1e-15, 1e-300, 0.1, 0.0, 1e-3])
MAX_ITER = ([None, None, 1, 3], [1, 2, 5, 50, 2**62, 0])
KINDS = (
    ["float64", "torch.float64", "torch.float32"],
    [
        *["float16", "float32", "longdouble", "int64", "uint8", "bool", "complex128", "object"],
        *["torch.float16", "torch.bfloat16", "torch.float8_e4m3fn", "torch.int32", "torch.bool", "torch.complex64"],
        *["grad", "list", "frame", "frame of text", "csr", "csc", "bsr", "complex csr", "sparse tensor"],
        *["fortran", "strided", "masked"],
    ],
)
CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "grad": lambda x: torch.tensor(x, requires_grad=True),
    "list": lambda x: x.tolist(),
    "sparse tensor": lambda x: torch.tensor(x).to_sparse(),
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "masked": lambda x: np.ma.masked_equal(x, 1.0),
}
MATRICES: dict[str, Callable[[np.ndarray], Any]] = {  # of one or two axes
    "frame": lambda x: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x, index=np.arange(x.size) + 7),
    "frame of text": lambda x: pd.DataFrame(x).assign(name="a"),
    "csr": lambda x: sp.csr_array(np.atleast_2d(x)),
    "csc": lambda x: sp.csc_matrix(np.atleast_2d(x)),
    "bsr": lambda x: sp.bsr_array(np.atleast_2d(x)),
    "complex csr": lambda x: sp.csr_matrix(np.atleast_2d(x) * 1j),
}


class Call(NamedTuple):
    """The arguments of a call before their conversion; `kinds` are those of x, a, b and y."""

    function: str
    x: np.ndarray
    y: np.ndarray
    a: np.ndarray | None
    b: np.ndarray | None
    kinds: tuple[str, ...]
    mass: float
    eps: float | None
    tau: float
    tol: float
    max_iter: int | None
    throw: bool
    variant: int

    @property
    def problem(self) -> tuple[Any, Any, Any]:
        """Cost (or points, or plan) and both weights, converted."""
        x, a, b = (
            None if x is None else convert(x, k) for x, k in zip((self.x, self.a, self.b), self.kinds, strict=False)
        )
        return x, a, b

    @property
    def limits(self) -> dict[str, Any]:
        """The settings that all solvers have."""
        return {"tol": self.tol, "max_iter": self.max_iter, "throw": self.throw}


def convert(x: np.ndarray, kind: str) -> Any:
    """Bring an array into a library, dtype or container."""
    with np.errstate(all="ignore"):
        if kind in CONTAINERS:
            return CONTAINERS[kind](x)
        if kind in MATRICES:
            return MATRICES[kind](x) if x.ndim < 3 and x.size else x
        if kind.startswith("torch."):
            return torch.tensor(x).to(getattr(torch, kind[6:]))
        return x.astype(kind)


def arrays(shape: int | tuple[int, ...], numbers: str) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(float, shape, elements=st.sampled_from(NUMBERS[numbers]), fill=st.nothing())


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw a call; every argument is hostile in one of eight calls."""

    def one_of(choices: tuple[Sequence[Any], Sequence[Any]]) -> Any:
        return draw(st.sampled_from(choices[draw(st.integers(0, 7)) == 0]))

    function = draw(st.sampled_from(list(FUNCTIONS)))
    n, m = (one_of(([1, 2, 3, 4, 6, 8], [0, 1, 30, 120])) for _ in range(2))
    width = one_of(([1, 2, 3], [0, 40]))
    x_shape, y_shape = (n, m), (n, m)
    if function == "solve_partial_points":
        x_shape, y_shape = (n, width), (m, width)
    elif function == "solve_partial_batch":
        x_shape = (2, n, m)
    x, y = draw(arrays(x_shape, one_of(COSTS))), draw(arrays(y_shape, one_of(COSTS)))
    sizes = one_of(([(n, m)], [(m, n)]))
    a, b = (None if (w := one_of(WEIGHTS)) is None else draw(arrays(k, w)) for k in sizes)
    with np.errstate(all="ignore"):
        most = np.fmin(*(1.0 if w is None or not w.size else w.sum() for w in (a, b)))
        mass = float(one_of(MASSES) * one_of(([most], [1.0, 1e-150, 1e88])))
        finite = x[np.isfinite(x)]
        unit = float(np.ptp(finite)) if finite.size and draw(st.booleans()) else 1.0
        eps, tau = one_of(EPS), one_of(TAU) * (unit or 1.0)
        eps = eps if eps is None else eps * (unit or 1.0)
    kinds = tuple(one_of(KINDS) for _ in range(4))
    tol, max_iter, throw, variant = one_of(TOL), one_of(MAX_ITER), draw(st.booleans()), draw(st.integers(0, 3))
    return Call(function, x, y, a, b, kinds, mass, eps, tau, tol, max_iter, throw, variant)


def numbers(x: Any) -> np.ndarray:
    """Return the numbers of an answer, dense and in float64."""
    if sp.issparse(x):
        x = x.toarray()
    if isinstance(x, torch.Tensor):
        x = x.detach().to_dense().cdouble().numpy()
    array = np.asarray(np.real(x))
    if array.dtype == object:  # of a frame with text
        array = pd.to_numeric(array.ravel(), errors="coerce").reshape(array.shape)
    return np.asarray(array, dtype=float)


def resolution(x: Any) -> float:
    if isinstance(x, torch.Tensor):
        return float(torch.finfo(x.dtype).eps) if x.dtype.is_floating_point else 0.0
    dtype = np.asarray(x).dtype
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def assert_finite(answer: Any, *names: str) -> None:
    for name in names:
        assert np.isfinite(numbers(getattr(answer, name))).all(), name


def assert_feasible(plan: Any, a: Any, b: Any, mass: float) -> None:
    """Every constraint holds, relative to the mass, as closely as the dtypes can express."""
    tol = 1e-9 + 8 * max(resolution(x) for x in (plan if not sp.issparse(plan) else plan.data, a, b))
    dense = numbers(plan)
    assert np.isfinite(dense).all()
    assert (dense >= 0).all()
    wa, wb = (np.full(k, 1 / k) if w is None else numbers(w) for w, k in zip((a, b), dense.shape, strict=True))
    mass = min(mass, wa.sum(), wb.sum())
    assert (dense.sum(axis=1) - wa).max() <= tol * mass
    assert (dense.sum(axis=0) - wb).max() <= tol * mass
    assert abs(dense.sum() - mass) <= tol * mass


def assert_solved(s: transport.Solution[Any], a: Any, b: Any, call: Call) -> None:
    assert_feasible(s.plan, a, b, call.mass)
    assert_finite(s, "p", "q", "value", "objective", "dual_value", "gap", "slope", "residuals")
    assert_finite(s.potentials, "u", "v")
    assert s.gap >= 0
    assert s.residuals.worst <= 1e-9
    assert s.status.ok or not call.throw
    assert repr(s)


def solve_partial(call: Call) -> None:
    cost, a, b = call.problem
    s = transport.solve_partial(cost, a, b, mass=call.mass, eps=call.eps, **call.limits)
    assert_solved(s, a, b, call)
    assert not numbers(s.plan)[np.isposinf(numbers(cost))].any()
    if getattr(s.objective, "requires_grad", False):
        s.objective.backward()
        assert np.isfinite(numbers(cost.grad)).all()


def step_plan(call: Call) -> None:
    cost, a, _ = call.problem
    step = transport.step_plan(cost, a, mass=call.mass, eps=call.eps)
    assert np.isfinite(numbers(step.plan)).all()
    assert not numbers(step.plan)[np.isposinf(numbers(cost))].any()


def solve_partial_batch(call: Call) -> None:
    cost, a, b = call.problem
    batch = transport.solve_partial_batch(cost, a, b, mass=call.mass, eps=call.eps, **call.limits)
    for k in range(len(batch)):
        assert_solved(batch[k], a, b, call)


def solve_partial_blocks(call: Call) -> None:
    cost, a, b = call.problem

    class Blocks:
        shape = call.x.shape

        def block(self, rows: Any) -> Any:
            return cost[rows] if isinstance(cost, np.ndarray) else numbers(cost)[rows]

    a, beta = capacities(call, a)
    s = transport.solve_partial_blocks(Blocks(), beta=beta, mass=call.mass, a=a, b=b, **call.limits)
    assert_solved(s, uniform(beta, call) if a is None else a, b, call)


def solve_partial_points(call: Call) -> None:
    xs, a, b = call.problem
    a, beta = capacities(call, a)
    given = {"beta": beta, "a": a, "b": b, "cost": absolute if call.variant == 1 else "euclidean"}
    s = transport.solve_partial_points(xs, convert(call.y, call.kinds[3]), mass=call.mass, **given, **call.limits)
    assert_solved(s, uniform(beta, call) if a is None else a, b, call)


def capacities(call: Call, a: Any) -> tuple[Any, float | None]:
    return (None, (1.0, 0.35, 0.0, 1e-300)[call.variant]) if a is None else (a, None)


def uniform(beta: float | None, call: Call) -> np.ndarray:
    assert beta is not None
    return np.full(len(call.x), 1 / (beta * len(call.x)))


def absolute(s: Any, t: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        difference: np.ndarray = np.abs(numbers(s).sum(axis=1)[:, None] - numbers(t).sum(axis=1))
    return difference


def partial_path(call: Call) -> None:
    path = transport.partial_path(*call.problem)
    assert_finite(path, "masses", "values", "slopes")
    assert (np.diff(path.masses) > 0).all()
    assert (np.diff(path.slopes) > 0).all()
    assert path.masses.size == path.values.size == path.slopes.size + 1


def round_to_feasible(call: Call) -> None:
    plan, a, b = call.problem
    assert_feasible(transport.round_to_feasible(plan, a, b, call.mass), a, b, call.mass)


def certify(call: Call) -> None:
    cost, a, b = call.problem
    plan, potentials = convert(call.y, call.kinds[3]), None
    if call.variant == 0 and call.y.size:
        potentials = transport.Potentials(call.y[:, 0], call.y[0])
    if call.variant == 1:
        s = transport.solve_partial(cost, a, b, mass=call.mass, eps=call.eps, throw=False)
        plan, potentials = s.plan, s.potentials
    proof = transport.certify(plan, cost, a, b, call.mass, potentials=potentials)
    assert_finite(proof, "dual_value", "residuals", "slope")
    assert_finite(proof.potentials, "u", "v")
    assert proof.feasible or call.variant != 1
    if proof.value == INF:  # documented: the plan uses a forbidden pair
        assert not proof.feasible
        assert proof.gap == INF
    else:
        assert_finite(proof, "value", "gap")


def solve_unbalanced(call: Call) -> None:
    cost, a, b = call.problem
    limits = call.limits | {"max_iter": 1000 if call.max_iter is None else min(call.max_iter, 1000)}
    given = {"regularizer": ("entropy", "kl")[call.variant % 2], "tau": call.tau, "eps": call.eps or 0.1}
    s = transport.solve_unbalanced(cost, a=a, b=b, **given, **limits)
    assert_finite(s, "plan", "p", "q", "value", "objective", "dual_value", "gap")
    assert (numbers(s.plan) >= 0).all()
    assert not np.isnan([*numbers(s.potentials.u), *numbers(s.potentials.v)]).any()
    assert s.gap >= 0
    assert s.status.ok or not call.throw
    assert repr(s)


CHECKS = (solve_partial, step_plan, solve_partial_batch, solve_partial_blocks, solve_partial_points, partial_path)
CHECKS += (round_to_feasible, certify, solve_unbalanced)
FUNCTIONS: dict[str, Callable[[Call], None]] = {check.__name__: check for check in CHECKS}

hostile = settings(derandomize=True, suppress_health_check=list(HealthCheck))


def test_every_public_function_is_called() -> None:
    assert {name for name in transport.__all__ if isfunction(getattr(transport, name))} == set(FUNCTIONS)


def answer_or_refuse(call: Call) -> None:
    try:
        FUNCTIONS[call.function](call)
    except WarmpotError as error:
        assert str(error)  # noqa: PT017


@given(call=calls())
@settings(hostile, max_examples=100)
def test_hostile_calls(call: Call) -> None:
    answer_or_refuse(call)


@pytest.mark.slow
@given(call=calls())
@settings(hostile, max_examples=10_000)
def test_ten_thousand_hostile_calls(call: Call) -> None:
    answer_or_refuse(call)
