"""The entropic solver for a batch of problems on a torch device.

The algorithm of `entropic`, written for whole batches: sweeps, then a Newton step, for all problems that have not
converged, each of which keeps its own potentials. Problems are frozen as they converge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from warmpot.transport.entropic import (
    LOG_LIMIT,
    LOG_MAX,
    LOG_MIN,
    LONGEST_MOVE,
    NEWTON_MOVE,
    SINGULAR_MOVE,
    STALL_CHECKS,
    SWEEPS,
    conclude,
    schedule,
    solve_entropic,
    spare,
    units,
)
from warmpot.transport.problem import Answer, PartialProblem, Status

__all__ = ["solve_entropic_torch"]


@dataclass
class _State:
    """Absorbed kernel and the change since, in the notation of `_entropic`; leading axis = problem."""

    kernel: Tensor
    a: Tensor
    b: Tensor
    tau: Tensor
    mu: Tensor
    nu: Tensor
    s: Tensor
    x: Tensor
    y: Tensor
    x_cap: Tensor
    y_cap: Tensor

    def sweep(self, active: Tensor) -> None:
        """Maximise the dual over x, y and s, for active problems."""
        row = self.s[:, None] * torch.einsum("bij,bj->bi", self.kernel, self.y)
        self.x = torch.where(active[:, None], _capped(self.a, row, self.x_cap), self.x)
        column = torch.einsum("bij,bi->bj", self.kernel, self.x)
        scaled = self.s[:, None] * column
        self.y = torch.where(active[:, None], _capped(self.b, scaled, self.y_cap), self.y)
        total = (self.y * column).sum(dim=1)
        self.s = torch.where(active & (total > 0), 1.0 / total, self.s)

    def plan(self) -> Tensor:
        return self.s[:, None, None] * self.x[:, :, None] * self.kernel * self.y[:, None, :]

    def residual(self, plan: Tensor) -> tuple[Tensor, Tensor]:
        """Optimality violations in mass and, in units of eps, in cost."""
        p, q = plan.sum(dim=2), plan.sum(dim=1)
        total = p.sum(dim=1)
        mass, cost = (total - 1.0).abs(), torch.zeros_like(total)
        sides = ((p, self.a, self.x, self.x_cap, self.mu), (q, self.b, self.y, self.y_cap, self.nu))
        for sums, limit, scaling, cap, potential in sides:
            miss = (sums - limit).abs() * ((sums > limit) | (scaling < cap))
            mass = mass + miss.sum(dim=1)
            cost = cost + (miss * (potential - scaling.log()).clamp(min=0.0)).sum(dim=1)
        return mass, cost

    def dual(self) -> Tensor:
        """Dual objective up to a constant, in units of eps."""
        rows = (self.a * (self.mu - self.x.log())).sum(dim=1)
        cols = (self.b * (self.nu - self.y.log())).sum(dim=1)
        return self.s.log() - rows - cols - self.plan().sum(dim=(1, 2))

    def drift(self) -> float:
        parts = (self.s.log().abs().max(), self.x.log().abs().max(), self.y.log().abs().max())
        return max(float(part) for part in parts)

    def absorb(self, cost: Tensor, eps: Tensor) -> None:
        """Move s, x and y into the potentials, and these into the kernel."""
        self.tau = self.tau + self.s.log()
        self.mu = (self.mu - self.x.log()).clamp(min=0.0)
        self.nu = (self.nu - self.y.log()).clamp(min=0.0)
        log = self.tau[:, None, None] - self.mu[:, :, None] - self.nu[:, None, :] - cost / eps[:, None, None]
        self.kernel = torch.where(log > LOG_MIN, log.clamp(max=LOG_MAX).exp(), 0.0)
        total = self.kernel.sum(dim=(1, 2))
        self.s = torch.where(total > 0, 1.0 / total, 1.0)
        self.x, self.y = torch.ones_like(self.mu), torch.ones_like(self.nu)
        self.x_cap, self.y_cap = self.mu.clamp(max=LOG_MAX).exp(), self.nu.clamp(max=LOG_MAX).exp()


def _capped(limit: Tensor, sums: Tensor, cap: Tensor) -> Tensor:
    return torch.where(sums * cap > limit, limit / sums.clamp(min=1e-300), cap)


def _newton_direction(state: _State, plan: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Newton direction under mu, nu >= 0; potentials that would cross zero are fixed there and the rest re-solved."""
    n = plan.shape[1]
    p, q = plan.sum(dim=2), plan.sum(dim=1)
    total = p.sum(dim=1)
    free = torch.cat([(state.x < state.x_cap) | (p > state.a), (state.y < state.y_cap) | (q > state.b)], dim=1)
    room = torch.cat([(state.x_cap / state.x).log(), (state.y_cap / state.y).log()], dim=1)
    short = torch.cat([p - state.a, q - state.b], dim=1)
    sums = torch.cat([p, q], dim=1)
    move, d_tau = torch.zeros_like(room), torch.zeros_like(total)
    for _ in range(8):
        rows, cols = free[:, :n].double(), free[:, n:].double()
        held = move * ~free
        spill = torch.cat(
            [torch.einsum("bij,bj->bi", plan, held[:, n:]), torch.einsum("bij,bi->bj", plan, held[:, :n])], dim=1
        )
        g0 = 1.0 - total + (sums * held).sum(dim=1)
        g = (short - spill) * free
        inner = plan * rows[:, :, None] * cols[:, None, :]
        scaled = inner / p.clamp(min=1e-300)[:, :, None]
        corner = total * (1 + 1e-14) - (p * rows).sum(dim=1)
        edge = (inner.sum(dim=1) - q) * cols
        block = -torch.einsum("bik,bil->bkl", scaled, inner) + torch.diag_embed(q * (1 + 1e-14) * cols + (1 - cols))
        matrix = torch.cat(
            [torch.cat([corner[:, None, None], edge[:, None, :]], 2), torch.cat([edge[:, :, None], block], 2)], 1
        )
        right = torch.cat(
            [(g0 + g[:, :n].sum(dim=1))[:, None], g[:, n:] - torch.einsum("bij,bi->bj", scaled, g[:, :n])], 1
        )
        step, _ = torch.linalg.solve_ex(matrix, right)
        d_tau = step[:, 0]
        d_rows = (g[:, :n] - torch.einsum("bij,bj->bi", inner, step[:, 1:])) / p.clamp(min=1e-300) + d_tau[:, None]
        move = torch.where(free, torch.cat([d_rows, step[:, 1:]], dim=1), held)
        crossing = free & (room + move < 0)
        if not bool(crossing.any()):
            break
        reach = torch.where(crossing, room / -move, np.inf)
        first = reach <= reach.amin(dim=1, keepdim=True)
        crossing = crossing & (first | (move.abs().amax(dim=1, keepdim=True) <= SINGULAR_MOVE))
        move = torch.where(crossing, -room, move)
        free = free & ~crossing
    return d_tau, move[:, :n], move[:, n:]


def _newton_step(state: _State, residual: Tensor, active: Tensor) -> None:
    """Damped Newton steps that raise the dual or halve the residual, each problem with its own damping."""
    d_tau, d_mu, d_nu = _newton_direction(state, state.plan())
    longest = torch.cat([d_tau[:, None].abs(), d_mu.abs(), d_nu.abs()], dim=1).amax(dim=1)
    waiting = active & torch.isfinite(longest)
    d_tau, d_mu, d_nu = (torch.nan_to_num(d, 0.0, 0.0, 0.0) for d in (d_tau, d_mu, d_nu))
    longest = longest.nan_to_num(1.0).clamp(min=1e-300)
    step = (LONGEST_MOVE / longest).clamp(max=1.0)
    before, s, x, y = state.dual(), state.s, state.x, state.y
    for _ in range(6):
        if not bool(waiting.any()):
            break
        state.s = torch.where(waiting, s * (step * d_tau).exp(), state.s)
        x_new = torch.minimum(state.x_cap, x * (-step[:, None] * d_mu).exp())
        y_new = torch.minimum(state.y_cap, y * (-step[:, None] * d_nu).exp())
        state.x = torch.where(waiting[:, None], x_new, state.x)
        state.y = torch.where(waiting[:, None], y_new, state.y)
        mass, _ = state.residual(state.plan())
        better = (mass < 0.5 * residual) | (state.dual() > before + 1e-13 * before.abs())
        waiting = waiting & ~better
        step = torch.minimum(0.25 * step, NEWTON_MOVE / longest)
    state.s = torch.where(waiting, s, state.s)  # no damping helped: stay
    state.x, state.y = torch.where(waiting[:, None], x, state.x), torch.where(waiting[:, None], y, state.y)


def _solve_at(
    state: _State, cost: Tensor, eps: Tensor, tol: Tensor, max_iter: int, count: Tensor
) -> tuple[Tensor, Tensor]:
    """Solve all problems at one eps each; returns which converged and which stalled. `count` is added to."""
    state.absorb(cost, eps)
    size = cost.shape[0]
    done = torch.zeros(size, dtype=torch.bool, device=cost.device)
    stalled = done.clone()
    best, idle = torch.full_like(eps, np.inf), torch.zeros_like(count)
    while bool((active := ~done & ~stalled & (count < max_iter)).any()):
        for _ in range(SWEEPS):
            state.sweep(active)
        mass, gap = state.residual(state.plan())
        count += SWEEPS * active
        done = done | (active & (mass <= tol) & (gap * eps <= tol))
        progressed = mass < 0.9 * best
        best, idle = torch.where(progressed, mass, best), torch.where(progressed, 0, idle + 1)
        stalled = stalled | (active & ~done & (idle > STALL_CHECKS))
        active = active & ~done & ~stalled
        if bool(active.any()):
            _newton_step(state, mass, active)
            count += active
            if state.drift() > LOG_LIMIT:
                state.absorb(cost, eps)
    return done, stalled


def _anneal(
    cost: Tensor, a: Tensor, b: Tensor, eps: Tensor, tol: Tensor, room: float, max_iter: int
) -> tuple[_State, Tensor, Tensor, Tensor]:
    """Solve at falling eps, all problems in step; returns the state, which converged, which stalled, and counts."""
    zero, x, y = torch.zeros_like(eps), torch.ones_like(a), torch.ones_like(b)
    state = _State(cost, a, b, zero, torch.zeros_like(a), torch.zeros_like(b), zero + 1, x, y, x, y)
    count = torch.zeros(eps.shape, dtype=torch.int64, device=eps.device)
    values, tols = schedule(float(eps.min()), float(tol.min()), room)
    factors = values / values[-1]
    for k, factor in enumerate(factors[:-1]):
        _solve_at(state, cost, eps * factor, torch.full_like(eps, float(tols[k])), max_iter, count)
        state.absorb(cost, eps * factor)
        ratio = factor / factors[k + 1]
        state.tau = (state.tau + state.s.log()) * ratio
        state.mu, state.nu, state.s = state.mu * ratio, state.nu * ratio, torch.ones_like(state.s)
    done, stalled = _solve_at(state, cost, eps, tol, max_iter, count)
    return state, done, stalled, count


def solve_entropic_torch(
    problems: list[PartialProblem], eps: float, *, tol: float, max_iter: int, device: Any
) -> list[Answer]:
    """Solve entropic problems of one shape together, in float64 on `device`; see `solve_entropic`.

    A problem that stalls here is solved again on the CPU, from another start.
    """
    flip = problems[0].cost.shape[0] < problems[0].cost.shape[1]  # Newton eliminates rows: make them the longer side
    all_units = [units(_without_weightless(problem), eps) for problem in problems]

    def send(arrays: list[Any]) -> Tensor:
        return torch.as_tensor(np.stack(arrays), dtype=torch.float64, device=device)

    cost = send([unit.cost.T if flip else unit.cost for unit in all_units])
    a = send([unit.problem.a / unit.problem.mass for unit in all_units])
    b = send([unit.problem.b / unit.problem.mass for unit in all_units])
    relative = send([eps / unit.span for unit in all_units])
    limit = (1e-15 / relative).clamp(min=tol)
    room = min(spare(unit.problem) for unit in all_units)
    a, b = (b, a) if flip else (a, b)
    state, done, stalled, count = _anneal(cost, a, b, relative, limit, room, max_iter)
    plans, tau = state.plan().cpu().numpy(), (state.tau + state.s.log()).cpu().numpy()
    mu = (state.mu - state.x.log()).clamp(min=0.0).cpu().numpy()
    nu = (state.nu - state.y.log()).clamp(min=0.0).cpu().numpy()
    if flip:
        plans, mu, nu = plans.transpose(0, 2, 1), nu, mu
    answers = []
    for k, unit in enumerate(all_units):
        status = Status.OPTIMAL if done[k] else Status.STALLED if stalled[k] else Status.MAX_ITER
        plan = np.ascontiguousarray(plans[k])
        potential = np.append(mu[k], nu[k])
        answer = conclude(unit, plan, potential, float(tau[k]), eps, float(limit[k]), status, int(count[k]))
        if answer.status is Status.STALLED:
            answer = solve_entropic(problems[k], eps, tol=tol, max_iter=max_iter)
        answers.append(answer)
    return answers


def _without_weightless(problem: PartialProblem) -> PartialProblem:
    """Forbid all pairs of rows and columns that have no weight: they move nothing, and shapes stay equal."""
    live = problem.live
    if live is None:
        return problem
    return replace(problem, cost=np.where(np.outer(*live), problem.cost, np.inf), forbidden=True)
