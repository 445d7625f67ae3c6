"""A partial transport plan, the proof that it is optimal, the marginal cost of mass, and the gradient.

python examples/certified_plan.py     prints the proof, writes certified_plan.png
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.figure import Figure

from warmpot.transport import certify, partial_path, solve_partial


def main() -> None:
    rng = np.random.default_rng(0)
    source = rng.normal(size=(120, 2))
    target = np.concatenate([rng.normal(size=(48, 2)), rng.normal(loc=7.0, size=(12, 2))])  # 20 % outliers
    cost = np.linalg.norm(source[:, None] - target, axis=2)
    a = np.full(120, 1 / (0.5 * 120))  # beta = .5: half of the source is enough

    solution = solve_partial(cost, a, mass=0.8)
    print(f"value {solution.value:.4f}; no plan is cheaper by more than {max(solution.gap, 0):.0e}")
    print(f"outliers that the plan uses: {(solution.q[48:] > 1e-9).sum()} of 12")

    proof = certify(solution.plan, cost, a, None, 0.8)  # needs only the plan, from any solver
    print(f"certificate: feasible {proof.feasible}, gap {abs(proof.gap):.0e}")

    path = partial_path(cost, a)
    for mass in (0.4, 0.79, 0.81, 1.0):
        slope = path.slopes[np.searchsorted(path.masses, mass) - 1]
        print(f"mass {mass:.2f}: value {np.interp(mass, path.masses, path.values):.3f}, marginal cost {slope:.2f}")

    points = torch.tensor(source, requires_grad=True)
    value = solve_partial(torch.cdist(points, torch.tensor(target)), a, mass=0.8).value
    value.backward()
    moved = source - 10 * points.grad.numpy()
    lower = solve_partial(np.linalg.norm(moved[:, None] - target, axis=2), a, mass=0.8).value
    print(f"after a step along the gradient: {lower:.4f}")

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    points_ax, slopes = figure.subplots(1, 2)
    points_ax.scatter(*source.T, s=2 + 40 * solution.p / a, label="source, sized by weight")
    used = solution.q > 1e-9
    points_ax.scatter(*target[used].T, marker="x", color="black", label="target")
    points_ax.scatter(*target[~used].T, marker="x", color="silver", label="target, left out")
    points_ax.legend(frameon=False)
    slopes.stairs(path.slopes, path.masses, baseline=None)
    slopes.axvline(0.8, color="gray", ls=":")
    slopes.set(xlabel="mass", ylabel="marginal cost", title="beyond .8 only outliers are left", ylim=(0, None))
    figure.savefig("certified_plan.png", dpi=110)


if __name__ == "__main__":
    main()
